//! From a won epoch to service: drain, promise, join all, and overwrite what is uncertain.

use std::collections::BTreeMap;
use std::time::Duration;

use super::line::{Line, Locked};
use super::ops::{Op, Ops, Recorded};
use super::peer::Peer;
use super::{Job, Owner, Stage, Work};
use crate::canary::Canary;
use crate::candidate::Stored;
use crate::event::{Effect, Turn};
use crate::extent::{Extent, ExtentSet};
use crate::fence::Fence;
use crate::ids::{Known, Low, MAX_MEMBERS, Position, Positions, ReplicaSequence, SessionId};
use crate::lease::{Given, Held};
use crate::local::{Entry, EntryChange, OwnPlane};
use crate::message::{Content, RecordKind};
use crate::pace::Heard;

/// The first sequence of an epoch.
const FIRST: ReplicaSequence = ReplicaSequence(1);

impl Owner {
    /// The store says that this process owns a new epoch.
    pub(crate) fn new(turn: &mut Turn<'_>, stored: Stored, patience: Duration) -> Self {
        let mut peers = [const { None }; MAX_MEMBERS];
        for position in stored.key.everybody().without(turn.config.position).iter() {
            peers[position.index()] = Some(Peer::new(position, turn.now));
        }
        let mut owner = Self {
            epoch: stored.key.epoch,
            fence: Fence::new(stored.key.epoch, turn.config.cage),
            stored,
            stage: Stage::Draining,
            patience,
            line: Line::new(),
            ops: Ops::new(FIRST),
            uncertain: ExtentSet::new(),
            base_pieces: 0,
            lost: super::lost::Lost::new(),
            peers,
            sessions: 0,
            joined: Positions::NONE.with(turn.config.position),
            added: Positions::NONE,
            held: Held::default(),
            reads: Vec::new(),
            direct: BTreeMap::new(),
            is_open: false,
            jobs: BTreeMap::new(),
            heals: BTreeMap::new(),
            fetches: 0,
            change: None,
            wanted: None,
            growth: None,
            looking: None,
            looked_at: turn.now,
            pacing: super::pacing::Pacing::new(),
            copies_next: 0,
            catching: None,
            moving: None,
            giving: None,
            forwarded: BTreeMap::new(),
            next_forwarded: 0,
            audit: None,
            proven_at: turn.now,
            proves_at_once: false,
            proof_waits: Duration::ZERO,
            committed_at: turn.now,
            ungranted_since: None,
            is_isolated: false,
            ends: false,
            gave_up: false,
            lags: false,
            endures_until: None,
        };
        if turn.sings(Canary::ResumeEpoch) && turn.entry.durable().promised == owner.epoch {
            owner.ops = Ops::new(ReplicaSequence(1 << 20));
            owner.joined = owner.stored.key.in_sync;
            owner.stage = Stage::Joining;
        }
        owner.prepare(turn);
        owner
    }

    /// Once the store is drained, makes `promised`, who is absent and what is marked for them durable.
    pub(super) fn prepare(&mut self, turn: &mut Turn<'_>) {
        let hasty = turn.sings(Canary::JoinUndrained) && turn.entry.is_quiet();
        if self.stage != Stage::Draining || !(turn.local.is_drained() || hasty) {
            return;
        }
        let uncertain = turn.local.uncertain();
        let marks = !turn.sings(Canary::NoMarkTakeover);
        self.uncertain = uncertain.clone();
        let token = turn.persist(EntryChange {
            entry: Entry {
                promised: self.epoch,
                session: SessionId(0),
                absent: self.stored.key.absent(),
            },
            marks_uncertain: marks,
            marks: if marks { uncertain } else { ExtentSet::new() },
            members: self.stored.key.members.positions(),
            own: OwnPlane::Until(Known {
                epoch: self.epoch,
                low: Low::BASE,
            }),
        });
        self.stage = Stage::Persisting(token);
    }

    /// The entry is durable: the takeover's, or a change's.
    pub(crate) fn persisted(&mut self, turn: &mut Turn<'_>, token: crate::ids::Token) {
        if self.stage == Stage::Persisting(token) {
            self.stage = Stage::Joining;
            for peer in self.peers.iter_mut().flatten() {
                peer.heard = Heard::new(turn.now);
            }
            self.begin_sessions(turn);
        } else if !self.lost.kept(token) {
            self.change_persisted(turn, token);
        }
        self.prepare(turn);
    }

    /// What is uncertain at a member that has joined.
    pub(super) fn bring(&mut self, turn: &Turn<'_>, from: Position, uncertain: &ExtentSet) {
        let is_first = !self.joined.has(from);
        self.joined = self.joined.with(from);
        if is_first && !self.is_serving() && !turn.sings(Canary::MembersNotAsked) {
            self.uncertain.add(uncertain);
        }
    }

    /// Serves, if all have joined and no own promise binds.
    pub(crate) fn activate(&mut self, turn: &mut Turn<'_>, given: &Given) {
        let all = self.stored.key.in_sync.within(self.joined) || turn.sings(Canary::ActivateEarly);
        if self.stage != Stage::Joining || !all || given.binds(turn.now) || self.change.is_some() {
            return;
        }
        self.stage = Stage::Serving;
        turn.out.push(Effect::InSync(self.stored.key.in_sync));
        let most = turn.config.limits.piece_granules;
        let pieces = self.uncertain.iter().flat_map(|extent| extent.pieces(most));
        let pieces: Vec<Extent> = pieces.collect();
        self.base_pieces = pieces.len();
        for piece in pieces {
            self.line.join(piece, Work::Base);
        }
        self.read_register(turn);
        self.start_work(turn);
    }

    /// Pieces of the base that are being read.
    pub(super) fn base_reads(&self) -> usize {
        self.jobs
            .values()
            .filter(|job| matches!(job, Job::Base(..)))
            .count()
            + self.fetched_bases().count()
    }

    /// What hosts wait for of the base, if they wait for any: it goes first.
    pub(super) fn wanted_bases(&self) -> Option<ExtentSet> {
        if self.uncertain.is_empty() {
            return None;
        }
        let writes = self
            .line
            .waiting()
            .filter_map(|(extent, work)| matches!(work, Work::Write { .. }).then_some(extent));
        let reads = self.reads.iter().map(|read| read.extent);
        let wanted: Vec<Extent> = writes.chain(reads).collect();
        let bases = self.line.waiting().filter_map(|(extent, work)| {
            let is_wanted = wanted.iter().any(|want| want.overlaps(extent));
            (matches!(work, Work::Base) && is_wanted).then_some(extent)
        });
        let bases: ExtentSet = bases.collect();
        (!bases.is_empty()).then_some(bases)
    }

    /// A piece of the base: it is here already, or another copy's.
    pub(super) fn base_known(
        &mut self,
        turn: &mut Turn<'_>,
        range: Locked,
        content: Content,
        is_local: bool,
    ) {
        let Locked { place, extent } = range;
        let op = Op {
            kind: RecordKind::Base,
            recorded: Recorded::Restoring,
            command: None,
            extent,
            content,
            place,
            is_local,
            acks: Positions::NONE,
            since: turn.now,
        };
        self.begin(turn, op);
        self.base_pieces -= 1;
        self.start_work(turn);
        self.commit_base(turn);
    }

    /// The epoch's base may be committed without a record that says so.
    fn commit_base(&mut self, turn: &mut Turn<'_>) {
        let low = self.low();
        if low != Low::BASE_OPEN {
            let epoch = self.epoch;
            turn.local.learn(Known { epoch, low });
        }
    }
}
