//! Roots: which is due, which is on its way, and which every member in service holds.

use ashlar_block::{Durability, Request};
use tracing::trace;

use super::Owner;
use super::add_log_copies::AddLogCopies;
use super::base::{Base, To};
use super::drives::Drives;
use super::features::FeatureRoots;
use super::identity::Identity;
use super::invariant::invariant;
use super::journal::logs::Logs;
use super::rebuild::readmit::root_without;
use super::space::Space;
use crate::Canary;
use crate::format::{ChunkCopy, LogId, Member, RepairReserve, Root, ScrubAt};
use crate::membership::{Membership, Remembered};
use crate::sizes::ROOT_AT;

/// What roots are at.
pub(crate) struct Roots {
    /// The last one that every member in service holds.
    durable: Root,
    /// Copies that every log chunk has by it.
    copies: usize,
    writing: Option<Writing>,
    members_due: bool,
    checkpoint_due: bool,
    scrub_due: bool,
    /// Drives that were emptied and let go, until a root that says so is durable, on them too: should another
    /// drive be lost meanwhile, they still count, or the rest would be a minority of those that the root before names.
    parting: Vec<usize>,
    /// A log chunk lacks copies that another drive could hold.
    healing: bool,
    /// Who waits for the members to be durable.
    waiting: Vec<u64>,
    remembered: Remembered,
    /// What roots say that the pool uses.
    pub(super) features: FeatureRoots,
    /// Volumes that wait until roots say that the logs have more copies.
    pub(super) add_log_copies: AddLogCopies,
}

struct Writing {
    root: Root,
    purpose: Purpose,
    pending: usize,
}

/// What a root is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Checkpoint,
    Members,
    /// How far a scrub has come: nothing waits for it.
    Scrub,
    /// What the pool is to use: only that waits for it.
    Features,
}

/// What a root may say beside what the last one has said.
pub(super) struct Said<'a> {
    pub(super) next_sequence: u64,
    pub(super) members: &'a [Member],
    pub(super) reserve: RepairReserve,
    pub(super) scrub: Option<ScrubAt>,
}

/// What the writing of a root may use.
pub(super) struct Around<'a> {
    pub(super) identity: &'a Identity,
    pub(super) base: &'a mut Base,
    pub(super) space: &'a mut Space,
    pub(super) logs: &'a mut Logs,
}

/// Logs that are to get the copies that they lack.
pub(super) struct Healing<'a> {
    pub(super) space: &'a mut Space,
    pub(super) logs: &'a mut Logs,
    /// Copies that every chunk should have.
    pub(super) copies: usize,
}

/// What has become of a root of which one copy is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Written {
    /// It has other copies on their way, or the engine has stopped.
    NotYet,
    /// Every member in service holds it.
    Durable(Purpose),
}

impl Roots {
    pub(crate) fn new(durable: Root, remembered: Option<Vec<Membership>>) -> Self {
        Self {
            features: FeatureRoots::new(durable.features),
            add_log_copies: AddLogCopies::default(),
            copies: log_copies_of(&durable),
            durable,
            writing: None,
            members_due: false,
            checkpoint_due: false,
            scrub_due: false,
            parting: Vec::new(),
            healing: false,
            waiting: Vec::new(),
            remembered: Remembered::new(remembered),
        }
    }

    /// Whether no root is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.writing.is_none()
    }

    /// The last one that every member in service holds.
    pub(super) fn durable(&self) -> &Root {
        &self.durable
    }

    /// Copies that every log chunk should have, by what it has had and for the volumes that there are, or that wait.
    pub(super) fn copies(&self) -> usize {
        self.copies.max(self.add_log_copies.wanted())
    }

    /// Whether the last root, or one on its way, may name copies on a drive.
    pub(super) fn name(&self, drive: u16) -> bool {
        !self.is_idle() || names(&self.durable, drive)
    }

    /// Whether what is written now may be acknowledged: no drive has left without the others
    /// knowing it durably.
    pub(super) fn members_are_durable(&self) -> bool {
        let writing = self.writing.as_ref();
        !self.members_due && writing.is_none_or(|w| w.purpose != Purpose::Members)
    }

    /// Whether no root is written, and so nothing acknowledged, until the node has stored which drives are left: it would
    /// let in the others.
    pub(super) fn wait_for_node(&self, identity: &Identity, drives: &Drives) -> bool {
        self.members_due
            && self
                .remembered
                .lets_in_without(&self.next_membership(drives))
            && !identity.sings(Canary::AcknowledgeBeforeRemembered)
    }

    /// The drives that the next root names.
    fn next_membership(&self, drives: &Drives) -> Membership {
        Membership {
            generation: drives.generation() + 1,
            ..Membership::of(&Root {
                members: drives.members().to_vec(),
                ..self.durable.clone()
            })
        }
    }

    /// What the node is to store before the next root is written, if it does not store it already.
    pub(super) fn hand_next(&mut self, drives: &Drives) -> Option<Membership> {
        self.remembered.hand(self.next_membership(drives))
    }

    /// What the node is to store now that a root is durable, unless another is due; of the import's it has been told.
    pub(super) fn hand_durable(&mut self) -> Option<Membership> {
        let is_durable = self.members_are_durable();
        let membership = is_durable.then(|| Membership::of(&self.durable))?;
        self.remembered.hand(membership)
    }

    /// The node has stored it.
    pub(super) fn node_has_stored(&mut self, membership: Membership) {
        self.remembered.stored(membership);
    }

    /// The next root names other members.
    pub(super) fn change_members(&mut self) {
        self.members_due = true;
    }

    /// The same for an order, which is answered when that root is durable.
    pub(super) fn change_members_for(&mut self, id: u64) {
        self.members_due = true;
        self.waiting.push(id);
    }

    /// Orders that are done: the members are durable.
    pub(super) fn take_done(&mut self) -> Vec<u64> {
        match self.members_are_durable() {
            true => std::mem::take(&mut self.waiting),
            false => Vec::new(),
        }
    }

    /// The engine has stopped: whose orders wait for the members to be durable.
    pub(super) fn take_asked(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.waiting)
    }

    /// A drive was emptied and is let go: the next root says so, on it too.
    pub(super) fn let_go(&mut self, drive: usize) {
        self.parting.push(drive);
        self.members_due = true;
    }

    /// Whether a drive is asked for something: one that was let go is, until that is durable.
    pub(super) fn serves(&self, drive: usize, drives: &Drives) -> bool {
        drives.in_service(drive as u16) || self.parting.contains(&drive)
    }

    /// A drive that is out has failed; whether it was let go and that is not durable.
    pub(super) fn parting_failed(&mut self, drive: usize) -> bool {
        let parting = self.parting.len();
        self.parting.retain(|&one| one != drive);
        self.parting.len() < parting
    }

    /// Whether an import of the drives that have gone, without those that are left, would be let
    /// through: then nothing may be acknowledged here any more.
    pub(super) fn are_of_a_minority(&self, drives: &Drives) -> bool {
        let members = self.durable.members.iter().enumerate();
        let known = members.filter(|(_, member)| member.state.in_service());
        let known: Vec<usize> = known.map(|(drive, _)| drive).collect();
        // One that has just joined is in no root that those have.
        let here = known.iter().filter(|&&drive| self.serves(drive, drives));
        here.count() * 2 < known.len()
    }

    /// What a drive had of logs and pages is named by no later root.
    pub(super) fn leave_drive(&mut self, drive: u16) {
        root_without(&mut self.durable, drive);
        self.copies = log_copies_of(&self.durable);
    }

    /// A checkpoint's pages are flushed: its root may be written.
    pub(super) fn checkpoint_is_due(&mut self) {
        self.checkpoint_due = true;
    }

    /// How far a scrub has come is to be remembered.
    pub(super) fn say_scrub(&mut self) {
        self.scrub_due = true;
    }

    /// What the next root is for, if one is due.
    pub(super) fn take_due(&mut self) -> Option<Purpose> {
        if std::mem::take(&mut self.members_due) {
            Some(Purpose::Members)
        } else if std::mem::take(&mut self.checkpoint_due) {
            Some(Purpose::Checkpoint)
        } else if std::mem::take(&mut self.scrub_due) {
            Some(Purpose::Scrub)
        } else {
            self.features.are_due().then_some(Purpose::Features)
        }
    }

    /// The last root, with what one for this purpose says anew. A checkpoint makes its own.
    pub(super) fn next(&self, purpose: Purpose, said: Said<'_>) -> Root {
        let mut root = Root {
            next_sequence: said.next_sequence,
            ..self.durable.clone()
        };
        if matches!(purpose, Purpose::Members | Purpose::Scrub) {
            root.scrub = said.scrub;
        }
        if purpose == Purpose::Members {
            (root.members, root.reserve) = (said.members.to_vec(), said.reserve);
        }
        root
    }

    /// Writes a root to all drives in service, and to those that are let go.
    pub(super) fn write(&mut self, mut root: Root, purpose: Purpose, around: &mut Around<'_>) {
        let generation = around.space.drives.next_generation();
        around.base.counters.roots += 1;
        trace!(generation, ?purpose, "root written");
        root.generation = generation;
        root.features = self.features.wanted();
        let bytes = match root.encode(around.identity.salt()) {
            Ok(bytes) => bytes,
            Err(error) => return around.base.fail(error.to_string()),
        };
        let mut drives = around.space.drives.active();
        drives.extend(&self.parting);
        let at = ROOT_AT[(generation % 2) as usize];
        self.writing = Some(Writing {
            root,
            purpose,
            pending: drives.len(),
        });
        for drive in drives {
            let Some(mut buffer) = around.base.buffer(around.logs, bytes.len()) else {
                return;
            };
            buffer.copy_from_slice(&bytes);
            let range = around.space.drives.range(drive, at, bytes.len());
            let to = To {
                drive,
                owner: Owner::Root,
                is_out: !self.serves(drive, &around.space.drives),
            };
            around.base.send(to, |tag| {
                Request::write(tag, range, buffer, Durability::Durable)
            });
        }
    }

    /// A drive has the root that is on its way, or is out.
    pub(super) fn written(&mut self, base: &mut Base) -> Written {
        let Some(writing) = &mut self.writing else {
            invariant!(base, "a root is written, but none was on its way");
            return Written::NotYet;
        };
        writing.pending -= 1;
        if writing.pending > 0 || base.failed.is_some() {
            return Written::NotYet;
        }
        let Some(Writing { root, purpose, .. }) = self.writing.take() else {
            invariant!(base, "a root has gone while it was looked at");
            return Written::NotYet;
        };
        let member = |drive: &usize| root.members.get(*drive);
        self.parting
            .retain(|drive| member(drive).is_some_and(|m| m.state.in_service()));
        trace!(generation = root.generation, ?purpose, "root durable");
        self.features.are_durable(root.features);
        self.copies = log_copies_of(&root);
        self.durable = root;
        Written::Durable(purpose)
    }

    /// Whether logs should be emptied and rooted, so that their chunks get back the copies they
    /// lack.
    pub(super) fn is_healing(&self) -> bool {
        self.healing
    }

    /// Looks whether a chunk lacks a copy that a drive has room for.
    pub(super) fn look_for_healing(&mut self, healing: &Healing<'_>) {
        self.healing = healing.is_needed();
    }

    /// Gives chunks that hold nothing the copies they lack. They are in force with the root that is
    /// about to be written, and until then nothing new is appended.
    pub(super) fn heal_logs(&mut self, healing: &mut Healing<'_>) {
        if !self.healing {
            return;
        }
        for log in [LogId::Ring, LogId::Map] {
            for chunk in healing.logs.hold(log) {
                healing.heal_chunk(log, chunk);
            }
        }
    }
}

impl Healing<'_> {
    fn is_needed(&self) -> bool {
        self.logs.chunks().any(|chunk| {
            let few = self.space.drives.staying(&chunk.copies).len() < self.copies;
            few && self.spare_for(&chunk.copies).is_some()
        })
    }

    /// A drive in service without one of these copies and with room for another chunk.
    fn spare_for(&self, copies: &[ChunkCopy]) -> Option<usize> {
        let (space, drives) = (&*self.space, &self.space.drives);
        let extents = space.sizes().chunk_extents;
        let free = |&drive: &usize| {
            drives.stays(drive as u16)
                && drives.free(drive).free() >= space.map_extents(drive) + extents
                && drives.free(drive).has_run(extents)
                && !copies.iter().any(|copy| usize::from(copy.drive) == drive)
        };
        drives.best_for_logs(drives.active().into_iter().filter(free), self.copies)
    }

    fn heal_chunk(&mut self, log: LogId, chunk: usize) {
        let old = self.logs.chunks_of(log)[chunk].copies.clone();
        let extents = self.space.sizes().chunk_extents;
        let mut copies = self.space.drives.staying(&old);
        while copies.len() < self.copies {
            let Some(drive) = self.spare_for(&copies) else {
                break;
            };
            let Some(extent) = self.space.drives.take(drive, extents) else {
                break;
            };
            copies.push(ChunkCopy {
                drive: drive as u16,
                extent,
            });
        }
        // Better on a drive that is to leave than nowhere.
        for copy in self.space.drives.serving(&old) {
            if copies.len() < self.copies && !copies.contains(&copy) {
                copies.push(copy);
            }
        }
        if !copies.is_empty() {
            self.logs.set_copies(log, chunk, copies);
        }
    }
}

/// The most copies that a chunk of the logs has by a root.
fn log_copies_of(root: &Root) -> usize {
    let chunks = root.ring.chunks.iter().chain(&root.map.chunks);
    chunks.map(|chunk| chunk.copies.len()).max().unwrap_or(1)
}

/// Whether a root names copies on a drive.
fn names(root: &Root, drive: u16) -> bool {
    let chunks = root.ring.chunks.iter().chain(&root.map.chunks);
    let chunks = chunks.flat_map(|chunk| &chunk.copies);
    let meta = root.meta.iter().flat_map(|segment| &segment.columns);
    chunks.chain(meta).any(|copy| copy.drive == drive)
}
