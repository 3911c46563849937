//! Making a pool: labels, empty logs, the first root.

use std::collections::BTreeSet;

use ashlar_block::ErrorKind;
use uuid::Uuid;

use crate::comeback::read_label;
use crate::drives::Drives;
use crate::engine::extents::{Extents, take_columns};
use crate::error::PoolError;
use crate::format::{
    Chunk, ChunkCopy, DriveClass, Features, Label, LogState, Member, MemberState, RepairReserve,
    Reserve, Root, Salt, TermStart,
};
use crate::sizes::{GRANULE, LABEL_AT, ROOT_AT, ROOT_BYTES, Sizes};

/// A drive of a pool to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrivePlan {
    pub uuid: Uuid,
    pub class: DriveClass,
}

/// A pool to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPlan {
    /// Its name: 1 to 64 letters, digits, `-`, `_`, `.`.
    pub name: String,
    pub pool: Uuid,
    /// Seed of its checksums; should be random.
    pub salt: Salt,
    pub sizes: Sizes,
    /// Copies of each log chunk and of the map: one more than the losses to be survived, 1 to 4, at
    /// most the number of drives.
    pub log_copies: u8,
    /// What it keeps for repair.
    pub reserve: Reserve,
    /// Its drives, in the order in which they are handed to [`format()`].
    pub drives: Vec<DrivePlan>,
}

/// Makes a pool of the drives, durably. What was on them is lost.
///
/// # Errors
/// A plan that makes no sense, a drive that is too small, an I/O error.
pub fn format(drives: &mut Drives, plan: &PoolPlan) -> Result<(), PoolError> {
    check(drives, plan)?;
    let label = |index: usize| Label {
        features: Features::NONE,
        pool: plan.pool,
        pool_name: plan.name.clone(),
        drive: plan.drives[index].uuid,
        index: index as u16,
        class: plan.drives[index].class,
        bytes: drives.geometry(index).bytes(),
        salt: plan.salt,
        sizes: plan.sizes,
    };
    let labels: Vec<Vec<u8>> = (0..drives.len())
        .map(|index| label(index).encode())
        .collect();
    let root = first_root(drives, plan)?;
    let bytes = root.encode(plan.salt)?;
    let both = |drive: usize, at: [u64; 2]| [(drive, at[0]), (drive, at[1])];
    // Old roots must not outlive the label that made sense of them.
    for drive in 0..drives.len() {
        drives.write(&both(drive, LABEL_AT), &vec![0; GRANULE])?;
        drives.write(&both(drive, ROOT_AT), &vec![0; GRANULE])?;
    }
    erase_log_starts(drives, plan, &root)?;
    for drive in 0..drives.len() {
        drives.write(&[(drive, ROOT_AT[(root.generation % 2) as usize])], &bytes)?;
    }
    for (drive, label) in labels.iter().enumerate() {
        drives.write(&both(drive, LABEL_AT), label)?;
    }
    drives.flush()?;
    Ok(())
}

/// Writes a pool's label to a drive that is to join it, durably. What was on it is lost. It is a
/// member once the engine has added it.
///
/// # Errors
/// A drive that a pool cannot use, an I/O error.
pub fn enlist(drives: &mut Drives, drive: usize, label: &Label) -> Result<(), PoolError> {
    drives
        .check(drive)
        .map_err(|why| PoolError::plan(format!("drive {drive}: {why}")))?;
    erase_own_logs(drives, drive, label)?;
    let both = |at: [u64; 2]| [(drive, at[0]), (drive, at[1])];
    drives.write(&both(LABEL_AT), &vec![0; GRANULE])?;
    drives.write(&both(ROOT_AT), &vec![0; GRANULE])?;
    drives.write(&both(LABEL_AT), &label.encode())?;
    drives.flush()?;
    Ok(())
}

fn check(drives: &Drives, plan: &PoolPlan) -> Result<(), PoolError> {
    let refuse = |why: String| Err(PoolError::plan(why));
    if let Err(error) = crate::engine::check_name(&plan.name) {
        return refuse(error.context().to_owned());
    }
    if let Err(error) = plan.sizes.check() {
        return refuse(error.to_string());
    }
    let count = drives.len();
    if count == 0 || count > 64 || count != plan.drives.len() {
        return refuse(format!("a pool has 1 to 64 drives, not {count}"));
    }
    if !(1..=4).contains(&plan.log_copies) || usize::from(plan.log_copies) > count {
        return refuse(format!(
            "{} copies of the logs on {count} drives",
            plan.log_copies
        ));
    }
    for drive in 0..count {
        if let Err(why) = drives.check(drive) {
            return refuse(format!("drive {drive}: {why}"));
        }
    }
    Ok(())
}

fn first_root(drives: &Drives, plan: &PoolPlan) -> Result<Root, PoolError> {
    let sizes = &plan.sizes;
    let extents = |drive| sizes.drive_extents(drives.geometry(drive).bytes());
    let mut free: Vec<Extents> = (0..drives.len())
        .map(|d| Extents::new(extents(d)))
        .collect();
    let ring = empty_log(&mut free, plan, sizes.ring_chunks)?;
    let map = empty_log(&mut free, plan, sizes.map_chunks)?;
    let members = plan.drives.iter().enumerate().map(|(i, drive)| Member {
        drive: drive.uuid,
        state: MemberState::Active,
        extents: extents(i),
    });
    Ok(Root {
        features: Features::NONE,
        pool: plan.pool,
        generation: 1,
        term: 1,
        next_sequence: 1,
        map_sequence: 1,
        members: members.collect(),
        reserve: RepairReserve {
            wish: plan.reserve,
            spent: 0,
        },
        ring,
        map,
        meta: Vec::new(),
        tops: Vec::new(),
        scrub: None,
    })
}

fn empty_log(free: &mut [Extents], plan: &PoolPlan, chunks: u32) -> Result<LogState, PoolError> {
    let mut list = Vec::new();
    for _ in 0..chunks {
        let extents = plan.sizes.chunk_extents;
        let rooms: Vec<u32> = free.iter().map(|drive| drive.columns(extents, 0)).collect();
        // The fastest class that can, else any drives.
        let of = |class: Option<DriveClass>| -> Vec<u32> {
            let all = rooms.iter().zip(&plan.drives);
            all.map(
                |(&room, drive)| match class.is_none_or(|class| drive.class == class) {
                    true => room,
                    false => 0,
                },
            )
            .collect()
        };
        let classes = DriveClass::ALL.into_iter().map(Some).chain([None]);
        let mut rooms = classes.map(of);
        let copies = rooms
            .find_map(|rooms| take_columns(free, &rooms, usize::from(plan.log_copies), extents));
        let Some(copies) = copies else {
            return Err(PoolError::plan(
                "the drives are too small for the pool's logs".into(),
            ));
        };
        list.push(Chunk { copies });
    }
    Ok(LogState {
        chunks: list,
        tail_at: 0,
        tail_number: 1,
        tail_previous: 0,
        terms: vec![TermStart {
            term: 1,
            first_batch: 1,
        }],
    })
}

/// A drive that was this pool's and went its own way has batches in its logs that verify. Where the pool's
/// logs get copies on it, those must not be taken for batches of a root that was lost.
fn erase_own_logs(drives: &mut Drives, drive: usize, label: &Label) -> Result<(), PoolError> {
    let was = read_label(drives, drive).map(|label| label.index).ok();
    let mut extents = BTreeSet::new();
    for at in ROOT_AT {
        if at + ROOT_BYTES > drives.geometry(drive).bytes() {
            continue;
        }
        let bytes = match drives.read(drive, at, ROOT_BYTES as usize) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::Exhausted => return Err(error.into()),
            // What cannot be read, an import does not go by.
            Err(_) => continue,
        };
        let Ok(root) = Root::decode(&bytes, label.salt) else {
            continue;
        };
        let chunks = root.ring.chunks.iter().chain(&root.map.chunks);
        let copies = chunks.flat_map(|chunk| &chunk.copies);
        // Without its label it cannot be told which member it was; all it holds is given up anyway.
        let its = copies.filter(|copy| was.is_none_or(|was| copy.drive == was));
        extents.extend(its.map(|copy| copy.extent));
    }
    let zeroes = vec![0; label.sizes.extent_bytes().min(1 << 20) as usize];
    for extent in extents {
        let from = label.sizes.extent_at(extent);
        let to = from + label.sizes.chunk_bytes();
        if to > drives.geometry(drive).bytes() {
            continue;
        }
        for at in (from..to).step_by(zeroes.len()) {
            drives.write(&[(drive, at)], &zeroes)?;
        }
    }
    Ok(())
}

/// What an earlier pool with the same salt left there must not look like this pool's first batch.
fn erase_log_starts(drives: &mut Drives, plan: &PoolPlan, root: &Root) -> Result<(), PoolError> {
    let chunks = root.ring.chunks.iter().chain(&root.map.chunks);
    for chunk in chunks {
        let place = |copy: &ChunkCopy| (usize::from(copy.drive), plan.sizes.extent_at(copy.extent));
        let places: Vec<_> = chunk.copies.iter().map(place).collect();
        drives.write(&places, &vec![0; GRANULE])?;
    }
    Ok(())
}
