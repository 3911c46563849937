//! Import: from what the drives hold to an engine that goes on where the last one stopped.
//!
//! 1. Labels: which drives are this pool's, and in which order (`members`).
//! 2. The newest root that verifies (`members`).
//! 3. Both logs from the root's tails to their ends ([`ring`](crate::ring)); a batch that one copy holds counts,
//!    and is written to the others before anything else: otherwise the next import, without that
//!    copy, would see another past.
//! 4. The tables and system pages, the map log's changes on top, the index from the ring (`replay`).
//! 5. A root of the next term, so that nothing an old term left behind its end comes back. It also
//!    leaves out members that are missing, hence only when nothing can be refused any more. Then labels
//!    that have rotted are written again.

mod features;
mod members;
mod replay;
mod replicas;

use std::rc::Rc;
use std::time::Duration;

use ashlar_block::{BlockDevice, BufferPool};

pub use members::missing_members;

use crate::drives::Drives;
use crate::engine::{Engine, Parts, check_name};
use crate::error::PoolError;
use crate::format::{LogId, LogState, Root, TermStart};
use crate::membership::{NodeMemory, store_before};
use crate::ring::{Scanned, Source, complete_copies, scan};
use crate::sizes::ROOT_AT;
use crate::{Cage, Canary};

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Bytes of memory for the engine's I/O; 0 for the default of 256 MiB.
    pub buffer_bytes: usize,
    /// The owner's memory, of which the engine takes that much; it gets its own without.
    pub buffers: Option<BufferPool>,
    /// Bytes of memory for leaves of the map; 0 for the default of 1 GiB a mapped TiB, and 64 MiB at
    /// least. Above it leaves go that are neither in use nor changed since they were written.
    pub leaf_bytes: u64,
    /// Go on without members that are missing, even if they are half of the pool or more: the
    /// operator has made sure that they were not in service later than those here. They are left
    /// out of the pool. Without this, more than half of the members must be here, or half of them and `memory`
    /// vouches for those.
    pub degraded: bool,
    /// What the node remembers: with it exactly half of the members may be enough.
    pub memory: Option<Rc<dyn NodeMemory>>,
    /// Go on without blocks of which no drive that is here has a good copy: they are errors until they are written.
    /// Without this an import that finds such ones is refused, for a drive that is brought along may have one.
    pub accept_data_loss: bool,
    /// How long after a loss, or after an import without a member, homes get back the copies that
    /// they lack; at once by default.
    pub repair_after: Duration,
    /// The name that the pool has from now on.
    pub rename: Option<String>,
    /// What to break on purpose.
    pub cage: Cage,
}

/// An imported pool.
pub struct Imported {
    pub engine: Engine,
    /// Its drives, by member index.
    pub drives: Vec<Option<Box<dyn BlockDevice>>>,
}

const BUFFER_BYTES: usize = 256 << 20;
/// Lost ranges that a refusal names.
const NAMED: usize = 8;

impl ImportOptions {
    /// Bytes of memory for the engine's I/O.
    fn memory(&self) -> usize {
        match self.buffer_bytes {
            0 => BUFFER_BYTES,
            bytes => bytes,
        }
    }
}

/// Imports the pool that these drives hold.
///
/// # Errors
/// Drives of several pools, missing drives, structures that do not verify on any copy. Nothing is
/// changed before the logs have been read.
pub fn import(mut drives: Drives, options: &ImportOptions) -> Result<Imported, PoolError> {
    if let Some(Err(error)) = options.rename.as_deref().map(check_name) {
        return Err(PoolError::Refused(error.context().to_owned()));
    }
    loop {
        match attempt(&mut drives, options) {
            Ok(parts) => {
                return Ok(Imported {
                    engine: Engine::new(parts),
                    drives: drives.into_devices(),
                });
            }
            // A drive that fails now is as good as missing; whether the others may go on without
            // it is decided as for any other.
            Err(error @ PoolError::Io(_)) => match drives.take_broken() {
                Some(drive) => drives.leave_out(drive),
                None => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
}

fn attempt(drives: &mut Drives, options: &ImportOptions) -> Result<Parts, PoolError> {
    let members::Identified {
        label,
        root,
        missing,
        classes,
        returning,
    } = members::identify(drives, options)?;
    let source = |log| Source {
        sizes: &label.sizes,
        salt: label.salt,
        log,
        state: match log {
            LogId::Ring => &root.ring,
            LogId::Map => &root.map,
        },
        newest_term: root.term,
        salvages: log == LogId::Ring,
    };
    let ring = scan(drives, source(LogId::Ring))?;
    let map = scan(drives, source(LogId::Map))?;
    // What is lost is found again as it is by an import that is not to go on without it.
    let keeps_all = ring.lost.is_empty() || options.accept_data_loss;
    if keeps_all && !options.cage.sings(Canary::NoTailRewrite) {
        complete_copies(drives, source(LogId::Ring), &ring)?;
        complete_copies(drives, source(LogId::Map), &map)?;
    }
    let next = next_root(&root, &ring, &map);
    let mut parts = replay::replay(drives, (label, classes), next, ring, map, options)?;
    if !options.accept_data_loss {
        refuse_losses(&parts)?;
    }
    if !options.degraded {
        check_segments(&parts, &missing)?;
    }
    parts.root.features = parts.root.features.and(features::in_use(&parts));
    parts.remembered = store_before(&options.memory, &parts.root)?;
    // Last of all: it leaves members out for good, and an operator who is refused can still bring them.
    write_root(drives, &parts.label, &parts.root)?;
    for (drive, written) in members::mend_labels(drives) {
        parts.bad.push(drive);
        parts.repaired += u64::from(written);
    }
    members::name_features(drives, parts.root.features);
    parts.label.features = parts.root.features;
    // Nothing of what they hold counts yet, but they are drives of the pool.
    drives.put_back();
    let old_name = returning.iter().map(|one| one.member);
    members::name_again(drives, old_name, &parts.label.pool_name)?;
    parts.returning = returning;
    if let Some(name) = &options.rename {
        members::rename(drives, name)?;
        parts.label.pool_name.clone_from(name);
    }
    Ok(parts)
}

/// Refuses to go on without blocks of which no good copy is here.
fn refuse_losses(parts: &Parts) -> Result<(), PoolError> {
    if parts.losses.is_empty() {
        return Ok(());
    }
    let named = parts.losses.iter().take(NAMED).map(|one| {
        let volume = parts.volumes.get(&one.volume);
        let name = volume.map_or("that is gone", |entry| &entry.name);
        let (first, last, lost) = (one.first, one.end() - 1, one.lost);
        format!("volume {name}: {lost} of the 4 KiB blocks {first} to {last}")
    });
    let mut named: Vec<String> = named.collect();
    if parts.losses.len() > NAMED {
        named.push(format!("{} other places", parts.losses.len() - NAMED));
    }
    Err(PoolError::Refused(format!(
        "of some data of pool {} no copy can be read: {}. Bring a drive that has one, or import with \
         --accept-data-loss: these blocks are errors then until they are written",
        parts.label.pool_name,
        named.join("; ")
    )))
}

/// Refuses to leave out members that hold the last copy of something.
fn check_segments(parts: &Parts, missing: &[usize]) -> Result<(), PoolError> {
    for (id, class) in &parts.segment_classes {
        let segments = parts.homes.get(class);
        let Some(segments) = segments else {
            continue;
        };
        let columns = segments.columns(*id).unwrap_or_default();
        let mut last = columns.iter().map(|column| usize::from(column.drive));
        if !replay::is_readable(segments, *id, *class, &parts.members)
            && let Some(drive) = last.find(|drive| missing.contains(drive))
        {
            return Err(PoolError::Refused(format!(
                "drive {} (number {drive}) of pool {} is missing and holds the last copy of some \
                 data: bring it, or import with --degraded, without these data",
                parts.members[drive].drive, parts.label.pool_name
            )));
        }
    }
    Ok(())
}

/// The root that begins the next term where the logs end.
fn next_root(root: &Root, ring: &Scanned, map: &Scanned) -> Root {
    let term = root.term + 1;
    let begin = |state: &LogState, scanned: &Scanned| {
        let mut state = state.clone();
        // A term that wrote nothing leaves no trace.
        state
            .terms
            .retain(|start| start.first_batch < scanned.head.number);
        state.terms.push(TermStart {
            term,
            first_batch: scanned.head.number,
        });
        state
    };
    Root {
        generation: root.generation + 1,
        term,
        next_sequence: [root.next_sequence, ring.next_sequence, map.next_sequence]
            .into_iter()
            .fold(0, u64::max),
        ring: begin(&root.ring, ring),
        map: begin(&root.map, map),
        ..root.clone()
    }
}

fn write_root(
    drives: &mut Drives,
    label: &crate::format::Label,
    root: &Root,
) -> Result<(), PoolError> {
    let bytes = root.encode(label.salt)?;
    let at = ROOT_AT[(root.generation % 2) as usize];
    let here = (0..drives.len()).filter(|&drive| drives.is_here(drive));
    let places: Vec<(usize, u64)> = here.map(|drive| (drive, at)).collect();
    drives.write(&places, &bytes)?;
    Ok(())
}
