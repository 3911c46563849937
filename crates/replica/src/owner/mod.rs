//! The copy that serves hosts.
//!
//! A write is submitted here and sent to all at once, and committed when it is durable here and at all *needed*
//! members: the stored in-sync set, and the member of an add that is not resolved. Until then its range is locked.
//! What a new owner does not know to be equal everywhere is overwritten with its own content first: the *base*.

mod audit;
mod change;
mod direct;
mod failing;
mod forwarded;
mod giving;
mod grow;
mod heal;
mod isolated;
mod learner;
mod line;
mod lost;
mod ops;
mod pacing;
mod patience;
mod peer;
mod reads;
mod reseat;
mod resync;
mod sessions;
mod takeover;
#[cfg(test)]
mod tests;
mod unreadable;
mod walk;
mod writes;

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_block::{ErrorKind, IoError, Label, Moment};
use bytes::Bytes;

use crate::canary::Canary;
use crate::candidate::Stored;
use crate::event::{At, Effect, Growth, HostOperation, Outcome, ReadMode, Turn, Wish};
use crate::extent::{Extent, ExtentSet};
use crate::fence::{Fence, Intent, Origin};
use crate::ids::{
    Ask, CommandId, CopyId, Epoch, FetchId, Low, MAX_MEMBERS, Position, Positions, ReplicaSequence,
    Token,
};
use crate::lease::Held;
use crate::leaves::Leaves;
use crate::local::Applied;
use crate::message::{Content, RecordKind};

use audit::{Audit, By};
use change::Change;
pub use direct::DirectEnd;
use direct::DirectRead;
use forwarded::Forwarded;
pub use forwarded::is_forwarded;
use giving::{Giving, Moving};
use heal::Heal;
use line::{Line, Locked};
use lost::Lost;
use ops::Ops;
use pacing::Pacing;
use peer::{Peer, Session};
use reads::{Arrived, Reading, Whose};
use resync::Digest;
use unreadable::is_lost;

/// A member that is silent for so long leaves the in-sync set: T_remove.
pub const REMOVE_AFTER: Duration = Duration::from_millis(500);
/// How long a new owner waits for members after all have lost power.
pub const POWER_LOSS_WAIT: Duration = Duration::from_secs(10);
/// An idle owner says so often what is committed.
const COMMIT_EVERY: Duration = Duration::from_millis(100);
/// An owner looks at the store's key so often.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How far the owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Waits for the local store to finish what older owners gave it.
    Draining,
    /// Waits for the entry.
    Persisting(Token),
    /// Waits for the members, and for its own promises to lapse.
    Joining,
    Serving,
}

/// What stands in the line.
#[derive(Debug)]
enum Work {
    Write {
        command: CommandId,
        content: Content,
        /// It changes what hosts may do.
        is_of_rights: bool,
    },
    Base,
    Copy(Session),
    Proof {
        session: Session,
        leaves: Leaves,
    },
    Audit {
        leaves: Leaves,
    },
    Heal(FetchId),
}

impl Work {
    const fn is_of_rights(&self) -> bool {
        matches!(
            self,
            Self::Write {
                is_of_rights: true,
                ..
            }
        )
    }
}

/// What an operation of the local store is for.
#[derive(Clone, Copy, Debug)]
enum Job {
    Apply(ReplicaSequence),
    Base(Locked),
    Restore(ReplicaSequence),
    Copy { session: Session, copy: CopyId },
    Digest { session: Session, copy: CopyId },
    Audit(CopyId),
    Heal(FetchId),
}

/// The copy that serves.
#[derive(Debug)]
pub(crate) struct Owner {
    epoch: Epoch,
    fence: Fence,
    stored: Stored,
    stage: Stage,
    /// How long a member may be silent before this owner serves.
    patience: Duration,
    line: Line<Work>,
    ops: Ops,
    /// What is uncertain and not yet on its way to be overwritten.
    uncertain: ExtentSet,
    base_pieces: usize,
    /// What of it can be read nowhere.
    lost: Lost,
    peers: [Option<Peer>; MAX_MEMBERS],
    sessions: u32,
    joined: Positions,
    /// Who came into sync in this epoch.
    added: Positions,
    held: Held,
    reads: Vec<Reading>,
    direct: BTreeMap<Token, DirectRead>,
    /// The register was read: hosts are served.
    is_open: bool,
    jobs: BTreeMap<Token, Job>,
    /// What other copies are asked for, because it cannot be read here.
    heals: BTreeMap<FetchId, Heal>,
    fetches: u32,
    change: Option<Change>,
    /// Copies that an operator wants.
    wanted: Option<Wish>,
    /// The size that an operator wants.
    growth: Option<Growth>,
    looking: Option<Ask>,
    looked_at: Moment,
    /// How fast copies go to learners.
    pacing: Pacing,
    /// Whose turn it is, by position.
    copies_next: usize,
    /// A learner that has all: commits wait for it already, so that it can be added.
    catching: Option<Position>,
    moving: Option<Moving>,
    giving: Option<Giving>,
    /// Commands that have come by other nodes, and are not answered.
    forwarded: BTreeMap<CommandId, Forwarded>,
    next_forwarded: u64,
    audit: Option<Audit>,
    /// When copies in sync were compared last.
    proven_at: Moment,
    /// All may have lost power: they are compared as soon as they can be, as fast as it goes.
    proves_at_once: bool,
    /// How long after the last one.
    proof_waits: Duration,
    committed_at: Moment,
    ungranted_since: Option<Moment>,
    /// Hosts are sent away for want of grants.
    is_isolated: bool,
    /// The last thing this owner does is to stop.
    ends: bool,
    /// It does so because its own store has failed.
    gave_up: bool,
    /// It does so because another copy knows of more that this one had.
    lags: bool,
    /// Until then another copy could not do better: hosts hear of errors.
    endures_until: Option<Moment>,
}

impl Owner {
    /// Whether it has found out that it is not the owner any more.
    pub(crate) const fn ends(&self) -> bool {
        self.ends
    }

    /// Whether another copy knows of more that this one had.
    pub(crate) const fn lags(&self) -> bool {
        self.lags
    }

    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn label(&self, origin: Origin) -> Label {
        self.fence.label(origin)
    }

    pub(crate) fn association_ended(&mut self, origin: Origin) {
        self.fence.ended(origin);
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.stage == Stage::Serving
    }

    /// Members whose copy must be durable before anything is committed.
    fn needed(&self, at: At<'_>) -> Positions {
        let mut needed = self.stored.key.in_sync;
        if !at.sings(Canary::AddNotNeeded) {
            needed = self
                .adding()
                .into_iter()
                .chain(self.catching)
                .fold(needed, Positions::with);
        }
        if at.sings(Canary::AckBeforeRemoval) {
            needed = needed.minus(self.removing());
        }
        if at.sings(Canary::LeaverUncounted) {
            needed = needed.minus(self.ending());
        }
        needed.without(at.config.position)
    }

    /// Members whose grants reads need.
    fn grantors(&self, at: At<'_>) -> Positions {
        let mut needed = self.stored.key.in_sync;
        if !at.sings(Canary::AddNoGrant) {
            needed = self.adding().into_iter().fold(needed, Positions::with);
        }
        needed.without(at.config.position)
    }

    /// The lowest sequence not committed.
    fn low(&self) -> Low {
        let is_over = self.lost.is_apart() || self.is_nothing_uncertain();
        match is_over && self.is_serving() {
            true => self.ops.low(),
            false => Low::BASE_OPEN,
        }
    }

    /// Whether all that was uncertain when this owner began is the same at all copies in sync.
    fn is_nothing_uncertain(&self) -> bool {
        self.lost.is_empty() && self.is_all_but_lost_known()
    }

    /// The same, but for what could not be read.
    fn is_all_but_lost_known(&self) -> bool {
        self.uncertain.is_empty() && self.base_pieces == 0 && !self.ops.has_base()
    }

    /// Whether the base of this epoch is committed, or all of it but what is lost, and that is remembered.
    fn is_based(&self) -> bool {
        self.low() != Low::BASE_OPEN
    }

    /// What must not be read: changes not committed, and what is uncertain.
    fn unreadable(&self) -> ExtentSet {
        let mut set = self.ops.extents();
        set.add(&self.uncertain);
        set.add(self.lost.granules());
        for job in self.jobs.values() {
            if let Job::Base(range) = job {
                set.insert(range.extent);
            }
        }
        self.fetched_bases().for_each(|extent| set.insert(extent));
        set
    }

    /// Whether a range may be read as it is here now, apart from grants.
    fn is_readable(&self, at: At<'_>, extent: Extent) -> bool {
        let counts = |kind: RecordKind| match kind {
            RecordKind::Base => !at.sings(Canary::ServeBeforeBase),
            RecordKind::Host => !at.sings(Canary::ReadUncommitted),
            RecordKind::Restore => {
                !at.sings(Canary::ServeBeforeBase) && !at.sings(Canary::ReadUncommitted)
            }
        };
        if self
            .ops
            .iter()
            .any(|(_, op)| counts(op.kind) && op.extent.overlaps(extent))
        {
            return false;
        }
        if !counts(RecordKind::Base) {
            return true;
        }
        let reads_base = |job: &Job| matches!(job, Job::Base(base) if base.extent.overlaps(extent));
        let is_fetched = self.fetched_bases().any(|base| base.overlaps(extent));
        let is_uncertain = self.uncertain.overlaps(extent) || self.lost.granules().overlaps(extent);
        !is_uncertain && !self.jobs.values().any(reads_base) && !is_fetched
    }

    /// Whether all whose promise reads need have given it until after now.
    fn has_grants(&self, at: At<'_>) -> bool {
        at.sings(Canary::NoLease) || self.held.covers(self.grantors(at), at.now)
    }

    /// Whether reads that rely on grants could be answered now at all.
    pub(crate) fn reads(&self, at: At<'_>) -> bool {
        self.is_serving() && self.has_grants(at)
    }

    /// Whether a read of this range, that relies on grants, could be answered now with what is here now.
    pub(crate) fn would_serve(&self, at: At<'_>, extent: Extent) -> bool {
        self.is_serving() && self.has_grants(at) && self.is_readable(at, extent)
    }

    /// Whether this owner relies on the grant of `position` now: on none, while it lacks another that reads need.
    pub(crate) fn relies_on(&self, at: At<'_>, position: Position) -> bool {
        self.reads(at)
            && self.grantors(at).has(position)
            && self.held.covers(Positions::NONE.with(position), at.now)
    }

    /// A host's command.
    pub(crate) fn host(
        &mut self,
        turn: &mut Turn<'_>,
        command: CommandId,
        operation: HostOperation,
    ) {
        if !self.is_open {
            return turn.answer(command, Outcome::NotOwner);
        }
        if matches!(
            operation,
            HostOperation::Write { .. } | HostOperation::Read { .. }
        ) {
            self.pacing.host(command, turn.now);
        }
        let is_of_rights = matches!(operation, HostOperation::SetRegister { .. });
        let shape = self.shape(turn.at());
        let extent = match operation {
            HostOperation::Write { extent, .. } | HostOperation::Read { extent } => {
                shape.place(extent)
            }
            HostOperation::SetRegister { .. } | HostOperation::GetRegister => shape.register(),
            // Its driver decides that.
            HostOperation::Consult { .. } => None,
        };
        let Some(extent) = extent else {
            // A volume that has grown may have another owner by now.
            let outcome = match self.has_grants(turn.at()) {
                true => Outcome::OutOfRange,
                false => Outcome::NotOwner,
            };
            return turn.answer(command, outcome);
        };
        match operation {
            HostOperation::Write {
                content,
                origin,
                label,
                ..
            }
            | HostOperation::SetRegister {
                content,
                origin,
                label,
            } => {
                let intent = Intent {
                    extent,
                    is_of_rights,
                    at: turn.now,
                };
                if !self.fence.admits(origin, label, intent) {
                    return turn.answer(command, Outcome::Stale);
                }
                let work = Work::Write {
                    command,
                    content,
                    is_of_rights,
                };
                self.give_way(turn, extent);
                self.line.join(extent, work);
                self.start_work(turn);
            }
            HostOperation::Read { .. } | HostOperation::GetRegister => {
                self.read(turn, Whose::Command(command), extent);
            }
            HostOperation::Consult { .. } => {}
        }
    }

    fn read(&mut self, turn: &mut Turn<'_>, whose: Whose, extent: Extent) {
        self.reads.push(Reading {
            whose,
            extent,
            after: self.held.newest(),
            stage: reads::Stage::Blocked,
            was_healed: false,
            lost: Positions::NONE,
        });
        self.run_reads(turn);
    }

    /// Reads the register, for the first time in the epoch.
    fn read_register(&mut self, turn: &mut Turn<'_>) {
        if turn.sings(Canary::ServeBeforeRegister) {
            self.is_open = true;
        }
        if let Some(extent) = self.shape(turn.at()).register() {
            self.read(turn, Whose::Own, extent);
        }
    }

    /// Serves hosts: all owners before have committed what the register says, and none is active.
    fn open_to_hosts(&mut self, turn: &mut Turn<'_>, register: Bytes) {
        self.is_open = true;
        turn.out.push(Effect::Register(register));
        turn.out.push(Effect::Serves(self.epoch));
    }

    /// Begins and answers reads, as far as that is possible now.
    fn run_reads(&mut self, turn: &mut Turn<'_>) {
        let mut reads = std::mem::take(&mut self.reads);
        reads.retain_mut(|read| !self.run_read(turn, read));
        self.reads = reads;
        let confirmed = turn.config.reads == ReadMode::Confirmed;
        let newest = self.held.newest();
        if confirmed && self.reads.iter().any(|read| read.after >= newest) {
            self.ask_grants(turn);
        }
    }

    /// Returns whether the read is answered.
    fn run_read(&mut self, turn: &mut Turn<'_>, read: &mut Reading) -> bool {
        match &mut read.stage {
            reads::Stage::Blocked => {
                if self.is_readable(turn.at(), read.extent) {
                    let token = turn.token();
                    read.stage = reads::Stage::Reading(token);
                    turn.local.read(token, read.extent);
                    return false;
                }
                // An owner that is succeeded, and does not know it, has lost what may be good by now.
                let is_lost = self.is_lost_here(read.extent) && self.has_grants(turn.at());
                if is_lost {
                    match read.whose {
                        Whose::Command(command) => turn.answer(command, Outcome::Failed),
                        Whose::Own => self.local_failed(turn),
                    }
                }
                is_lost
            }
            reads::Stage::Reading(_) | reads::Stage::Heals(_) => false,
            reads::Stage::Arrived(arrived) => {
                arrived
                    .behind
                    .retain(|&sequence| self.ops.get(sequence).is_some());
                let grants = match turn.config.reads {
                    ReadMode::Leased => self.has_grants(turn.at()),
                    ReadMode::Confirmed => {
                        self.held
                            .confirmed_since(self.grantors(turn.at()), read.after)
                            || turn.sings(Canary::NoLease)
                    }
                };
                if !grants || !arrived.behind.is_empty() {
                    return false;
                }
                let data = std::mem::take(&mut arrived.data);
                match read.whose {
                    Whose::Command(command) => turn.answer(command, Outcome::Read(data)),
                    Whose::Own => self.open_to_hosts(turn, data),
                }
                true
            }
        }
    }

    /// The local store has read.
    pub(crate) fn read_done(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        result: Result<Bytes, IoError>,
    ) {
        if let Some(job) = self.jobs.remove(&token) {
            match (result, job) {
                (Ok(data), job) => self.content_read(turn, job, data),
                (Err(error), Job::Base(range)) => self.base_unread(turn, range, &error),
                (Err(error), Job::Copy { session, copy }) if is_lost(&error) => {
                    self.copy_unreadable(turn, session, copy, &error);
                }
                (Err(error), Job::Restore(sequence))
                    if is_lost(&error) && self.stays_lost(turn, sequence) => {}
                (Err(_), _) => self.local_failed(turn),
            }
            return;
        }
        let reads = |read: &Reading| matches!(read.stage, reads::Stage::Reading(t) if t == token);
        let Some(at) = self.reads.iter().position(reads) else {
            return;
        };
        match result {
            Ok(data) => {
                let extent = self.reads[at].extent;
                let behind = match turn.sings(Canary::ReadUncommitted) {
                    true => Vec::new(),
                    false => self.behind(extent),
                };
                self.reads[at].stage = reads::Stage::Arrived(Arrived { data, behind });
                self.run_reads(turn);
            }
            Err(error) if self.heals_read(turn, at, &error) => {}
            Err(_) => {
                let Reading { whose, lost, .. } = self.reads.remove(at);
                match whose {
                    Whose::Command(command) => {
                        let outcome = match self.hands_errors_over(turn, lost) {
                            true => Outcome::PathGone,
                            false => Outcome::Failed,
                        };
                        turn.answer(command, outcome);
                    }
                    Whose::Own => self.local_failed(turn),
                }
            }
        }
    }

    /// Changes of a range that are not committed.
    fn behind(&self, extent: Extent) -> Vec<ReplicaSequence> {
        let open = self.ops.iter().filter(|(_, op)| op.extent.overlaps(extent));
        open.map(|(sequence, _)| sequence).collect()
    }

    fn content_read(&mut self, turn: &mut Turn<'_>, job: Job, data: Bytes) {
        match job {
            Job::Base(range) => self.base_known(turn, range, Content::of(data), true),
            Job::Restore(sequence) => self.restore_read(turn, sequence, data),
            Job::Copy { session, copy } => self.copy_read(turn, session, copy, data),
            Job::Apply(_) | Job::Digest { .. } | Job::Audit(_) | Job::Heal(_) => {}
        }
    }

    /// The local store has applied a change, or failed to.
    pub(crate) fn applied(&mut self, turn: &mut Turn<'_>, token: Token, result: &Applied) {
        match self.jobs.remove(&token) {
            Some(Job::Apply(sequence)) => match result {
                Ok(()) => self.local_done(turn, sequence),
                Err(error)
                    if error.kind() != ErrorKind::NoSpace
                        && self.hands_errors_over(turn, Positions::NONE) => {}
                Err(_) => self.local_refused(turn, sequence),
            },
            Some(Job::Heal(fetch)) => self.heal_written(turn, fetch, result.is_ok()),
            _ => {}
        }
        self.prepare(turn);
    }

    /// A digest of the local store.
    pub(crate) fn digested(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        result: Result<u128, IoError>,
    ) {
        match (self.jobs.remove(&token), result) {
            (Some(Job::Digest { session, copy }), Ok(digest)) => {
                self.compare(turn, session, copy, Digest::Ours(digest));
            }
            (Some(Job::Audit(copy)), Ok(digest)) => {
                self.audited(turn, copy, By::Us, digest);
            }
            (Some(Job::Digest { session, copy }), Err(error)) if is_lost(&error) => {
                self.proof_unreadable(turn, session, copy);
            }
            (Some(Job::Audit(copy)), Err(error)) if is_lost(&error) => {
                self.audit_unreadable(turn, copy);
            }
            (Some(_), Err(_)) => self.local_failed(turn),
            _ => {}
        }
    }

    /// Stops: nothing is answered by this owner from now on, and all that hosts wait for fails on this path.
    pub(crate) fn stop(mut self, turn: &mut Turn<'_>) {
        let directly = self.end_all_direct();
        let Self {
            line, ops, reads, ..
        } = self;
        let waiting = line.waiting().filter_map(|(_, work)| match work {
            Work::Write { command, .. } => Some(*command),
            _ => None,
        });
        let open = ops.iter().filter_map(|(_, op)| op.command);
        let reading = reads.iter().filter_map(|read| match read.whose {
            Whose::Command(command) => Some(command),
            Whose::Own => None,
        });
        let commands: Vec<CommandId> = waiting.chain(open).chain(reading).chain(directly).collect();
        for command in commands {
            turn.answer(command, Outcome::PathGone);
        }
        turn.out.push(Effect::Stops(self.epoch));
    }
}
