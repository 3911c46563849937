//! One imported pool as a state machine: events in, I/O and completions out. No clock, thread,
//! socket or randomness in here, so that the simulator runs the code that ships.
//!
//! | file | what |
//! |-|-|
//! | `waiting` | what hosts and operators wait for |
//! | `waiting/admission` | of that: writes that wait to be let in, by volume |
//! | `write`, `write/admit`, `write/bypass` | a write's way in: whether it is let in; split, reserve, ring or bypass |
//! | `journal/append`, `journal/publish` | group commit: staged → sealed → durable → published → acknowledged |
//! | `journal`, `journal/logs` | what is staged and sealed, and its sequences; the two logs and what is newest in them |
//! | `read`, `read/places`, `read/columns` | index, map, home; checksums; the other copy |
//! | `read/mend`, `read/slow` | copies that are written anew; drives that are slow to answer |
//! | `destage`, `destage/choose` | from the ring to the homes: those of the oldest records |
//! | `destage/whole`, `destage/moves`, `destage/around` | of that: slots that move as a whole; between homes; what it may use |
//! | `features` | what a pool begins to use waits until its roots name it |
//! | `drive_io`, `drive_io/deadline` | what drives are asked for, and what they are asked for again |
//! | `drive_io/flights`, `drive_io/waits` | of that: requests that drives have; what a drive cannot do now and is asked for again |
//! | `clear` | deallocate, write zeroes, deleting a volume |
//! | `steps`, `steps/commands`, `steps/commit`, `steps/destage`, `steps/walk` | steps of parts: what each is handed, and what follows from it for others |
//! | `checkpoint`, `journal/tails` | dirty pages to fresh places, then a root; what the logs may forget |
//! | `journal/relog`, `map/relog` | padding of the map log repeats old map records |
//! | `space/places`, `map/page_reservations` | room for the map: what it may come to need is there before a write is let in |
//! | `members`, `members/holding` | drives that fail, join, leave, come back, do not answer; what lies on which |
//! | `roots` | which root is due, and which all members hold; chunks of logs that lack copies |
//! | `add_log_copies` | more copies of the logs, for a volume that needs them |
//! | `upkeep/release` | segments that hold nothing go back to their drives |
//! | `replica` | volumes that are one of several copies |
//! | `upkeep` | space beside what volumes have |
//! | `upkeep/discard` | extents that hold nothing any more are discarded on their drives |
//! | `upkeep/reserve` | space that is kept for repair |
//! | `root_budget` | how large volumes may be before their maps outgrow the root |
//! | `rebuild`, `rebuild/scrub` | walks over everything mapped: columns for lost drives; scrub |
//! | `rebuild/slot` | of that: what is done with a slot |
//! | `rebuild/asked`, `rebuild/pace` | what the rest of the engine asks of the walks; how fast they go |
//! | `rebuild/readmit` | drives that come back with what they had: what is newer is written to them |
//! | `rebuild/renew`, `map/renew` | pages of the map that lack copies, or that a scrub has written anew, go elsewhere |
//! | `salvage` | strips as rebuilds and parity read them: a bad block does not take its neighbours along |
//! | `mending` | what is being made good: copies written anew, slots put together, salvaged strips |
//! | `parity` | slots cut over columns: their code, and how one is put together again |
//! | `manage` | orders: volumes, copies of replicated ones, segments |
//! | `status` | what an operator is shown |
//! | `invariant` | what cannot be; a command that waits for nothing |
//! | `stop` | volumes that take no writes while a copy is missing |
//! | `raw` | pass-through volumes |
//! | `tier` | volumes with a hot home beside their others: what goes where, and moves between them |
//! | `identity` | what a pool is: its label and sizes |
//! | `state`, `map`, `extents`, `class` | the state they share |
//! | `base` | what every part may use: the time, requests for drives, answers, memory, counters, the way to stop |
//! | `space`, `space/growth`, `space/segments` | drives and segments together: what is free, what can still be made |
//! | `space/recount` | what a drive that comes back has in use, counted a part at a time |
//! | `map/load` | pages of the map that are read |
//! | `segment_table`, `drives`, `drives/media` | segments and where they lie; the pool's drives and their roots; what class a drive is |
//! | `access`, `access/locks`, `access/guard` | who may read and change what: pages on their way, slots' locks, readers |
//! | `reservations/reserving` | which slots count on a home that they have yet to get |
//! | `volumes/entries` | entries of volumes, changed through the map log |
//! | `volumes`, `reservations`, `metadata`, `memory`, `record` | the same, each the owner of its fields: volumes, promised slots, metadata segments, memory, drives' past |
//! | `map/evict` | what of the map stays in memory |
//! | `map/lost` | leaves of which no copy can be read |

pub(crate) mod access;
mod add_log_copies;
mod base;
mod checkpoint;
pub(crate) mod class;
mod clear;
mod destage;
mod drive_io;
mod drives;
pub(crate) mod extents;
mod features;
mod identity;
mod invariant;
mod journal;
mod manage;
pub(crate) mod map;
mod members;
mod memory;
mod mending;
mod metadata;
mod parity;
pub(crate) mod raw;
mod read;
mod rebuild;
mod record;
pub(crate) mod replica;
mod reservations;
mod root_budget;
mod roots;
mod salvage;
mod segment_table;
pub(crate) mod space;
pub(crate) mod state;
mod status;
mod steps;
mod stop;
mod tier;
mod upkeep;
mod volumes;
mod waiting;
mod write;

use std::fmt;

use ashlar_block::{Completion, ErrorKind, IoBuffer, IoError, Moment, Operation, Request};
use tracing::{Level, enabled, trace};

pub use drive_io::flights::DriveReplies;
pub use drive_io::waits::DriveWait;
pub(crate) use manage::check_name;
pub use map::{LeafMemory, LostBlocks};
pub use replica::Replicas;
pub(crate) use state::Parts;
pub use state::{Counters, Engine, VolumeCondition, VolumeInfo};
pub use status::{HomeStatus, MemberStatus, Status, StripeStatus};
pub use tier::{TierStatus, TierTally};

use crate::ReplicaTag;
use crate::format::PageId;
use crate::manage::{Manage, Managed};
use crate::membership::Membership;
use clear::Clear;
use drive_io::flights::Answered;
use drive_io::waits::Refused;
use map::load::Asked;
use read::columns::StripsOf;
use space::DriveByte;
use write::Write;

/// What happens to an engine.
#[derive(Debug)]
pub enum Event {
    /// A host's request for a volume; its tag names it.
    Command {
        /// The volume's number.
        volume: u32,
        /// What it wants.
        request: Request,
    },
    /// A change of a replicated volume that other copies get, too.
    Record {
        /// The volume's number.
        volume: u32,
        /// What it is.
        request: Request,
        /// What makes it a record.
        tag: ReplicaTag,
    },
    /// An I/O from the outbox has completed.
    Done {
        /// The member it was for.
        drive: usize,
        completion: Completion,
    },
    /// An operator's wish.
    Manage {
        /// Its name in the answer.
        id: u64,
        /// What it is.
        what: Manage,
    },
    /// The node has stored durably which drives are in service.
    Remembered(Membership),
    /// Time has passed, or a turn has ended.
    Tick,
}

impl fmt::Display for Event {
    /// What a trace says of it: without data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { volume, request } => {
                let (tag, op, range) = (request.tag, request.op, request.range);
                let (at, blocks) = (range.start, range.count);
                write!(
                    f,
                    "command {tag}: {op:?} volume {volume} at {at}, {blocks} blocks"
                )
            }
            Self::Record {
                volume,
                request,
                tag,
            } => {
                let (name, op, at, blocks) = (
                    request.tag,
                    request.op,
                    request.range.start,
                    request.range.count,
                );
                write!(
                    f,
                    "record {name}: {op:?} volume {volume} at {at}, {blocks} blocks, {tag:?}"
                )
            }
            Self::Done { drive, completion } => {
                write!(f, "drive {drive} completes request {}", completion.tag)
            }
            Self::Manage { id, what } => write!(f, "order {id}: {what:?}"),
            Self::Remembered(membership) => {
                write!(f, "remembered: {} drives", membership.drives.len())
            }
            Self::Tick => f.write_str("tick"),
        }
    }
}

/// What an engine wants done.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Requests for drives, by member index.
    pub io: Vec<(usize, Request)>,
    /// Completions of commands.
    pub done: Vec<Completion>,
    /// Answers to `Manage` requests, by number.
    pub managed: Vec<(u64, Result<Managed, IoError>)>,
    /// What the node is to store, in place of what it was handed before; then comes [`Event::Remembered`].
    pub membership: Option<Membership>,
}

/// Whose I/O it was.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Append(crate::format::LogId),
    ReadPart { op: usize, at: u32 },
    ReadStrips { op: usize, first: u32 },
    Bypass { op: usize },
    Destage(DestageIo),
    LoadPage { id: PageId, tried: u64 },
    Page { id: PageId },
    CheckpointFlush,
    Root,
    Repair { repair: usize },
    Strip { reader: salvage::Reader, byte: u64 },
    Salvage { salvage: usize },
    Walk(rebuild::WalkIo),
    Raw(raw::Io),
    Discard,
}

#[derive(Clone, Copy, Debug)]
enum DestageIo {
    Read {
        job: usize,
        granule: usize,
        /// Drives whose copies have failed, as bits.
        tried: u64,
    },
    Write,
    Flush,
}

/// Who waits for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiter {
    /// A read (for a page).
    Read(usize),
    /// A write that waits to be let in (for a page).
    Admission,
    /// A bypass write (for a slot's lock).
    Bypass(usize),
    /// A clear (for a page).
    ClearPage(usize),
    /// A clear (for a slot's lock).
    ClearSlot(usize, u64),
    /// Destage (for a page).
    Destage,
    /// A scrub or rebuild (for a page, for a slot's lock).
    Walk,
    /// The page itself is to be written to another place.
    Renew,
    /// A tier's clock (for a page).
    Tier,
}

impl Engine {
    /// Takes an event, and does everything that can be done now.
    ///
    /// A driver with several events in hand posts all but the last with [`post`](Self::post), so
    /// that what arrived together is committed together.
    pub fn handle(&mut self, now: Moment, event: Event, out: &mut Outbox) {
        self.post(now, event, out);
        // Answers and requests go into the driver's outbox meanwhile.
        std::mem::swap(&mut self.base.out, out);
        self.advance();
        std::mem::swap(&mut self.base.out, out);
        if enabled!(Level::TRACE) {
            trace_answers(out);
        }
    }

    /// Takes an event without starting new batches: `handle` (with [`Event::Tick`], say) must
    /// follow in the same turn.
    pub fn post(&mut self, now: Moment, event: Event, out: &mut Outbox) {
        self.base.now = self.base.now.max(now);
        std::mem::swap(&mut self.base.out, out);
        trace!(at_us = self.base.now.as_nanos() / 1000, "{event}");
        match event {
            Event::Command { volume, request } => self.command(volume, request),
            Event::Record {
                volume,
                request,
                tag,
            } => self.record(volume, request, tag),
            Event::Done { drive, completion } => self.io_done(drive, completion),
            Event::Manage { id, what } => self.manage(id, what),
            Event::Remembered(membership) => self.roots.node_has_stored(membership),
            Event::Tick => {}
        }
        std::mem::swap(&mut self.base.out, out);
    }

    /// A record of a replicated volume comes.
    fn record(&mut self, volume: u32, request: Request, tag: ReplicaTag) {
        if !self.replicas.has(volume) {
            let why = format!("volume {volume} is no copy of a replicated one");
            let refusal = IoError::new(ErrorKind::InvalidRequest, why);
            return self.base.complete(request, Err(refusal));
        }
        self.replicas.set_tag(Some(tag));
        self.command(volume, request);
        self.replicas.set_tag(None);
    }

    fn command(&mut self, volume: u32, request: Request) {
        let refusal = self.refusal(volume, &request);
        if let Some(refusal) = refusal {
            self.base.complete(request, Err(refusal));
            return;
        }
        self.rebuild.host_came(self.base.now);
        if self.volumes.is_raw(volume) {
            let (raw, mut around) = self.raw();
            return raw.begin(volume, request, &mut around);
        }
        match request.op {
            Operation::Read => {
                self.read_step(|reads, around| reads.begin(volume, request, around));
            }
            Operation::Write(_) => self.waiting.begin_write(Write {
                volume,
                request,
                tag: self.replicas.tag(),
            }),
            // What was acknowledged is durable already.
            Operation::Flush => self.base.complete(request, Ok(())),
            Operation::WriteZeroes { .. } | Operation::Deallocate => {
                let tag = self.replicas.tag();
                self.waiting
                    .begin_clear(Clear::of_host(volume, request, tag));
            }
        }
    }

    /// Whether hosts use the pool, so that what walks over everything leaves them most of the drives.
    fn hosts_are_here(&self) -> bool {
        self.waiting.has_commands()
            || !self.raw.has_no_commands()
            || self.rebuild.heard_of_hosts(self.base.now)
    }

    fn refusal(&self, volume: u32, request: &Request) -> Option<IoError> {
        if let Some(failed) = self.base.failed.why()
            && request.op != Operation::Read
        {
            return Some(IoError::new(ErrorKind::Latched, failed.to_owned()));
        }
        match self.geometry(volume) {
            None => Some(IoError::new(
                ErrorKind::InvalidRequest,
                format!("there is no volume {volume}"),
            )),
            Some(geometry) => {
                let changes = !matches!(request.op, Operation::Read | Operation::Flush);
                let stopped = || changes.then(|| self.volumes.stop_error(volume)).flatten();
                geometry.check(request.range).err().or_else(stopped)
            }
        }
    }

    fn io_done(&mut self, drive: usize, completion: Completion) {
        let Completion {
            tag,
            buffer,
            result,
        } = completion;
        match self.base.drive_io.answered(drive, tag) {
            Answered::Owner(asked) => match result {
                Err(error) if self.base.will_pass(&asked, &error) => {
                    let refused = Refused {
                        asked,
                        drive,
                        buffer,
                    };
                    self.wait_out(refused, &error);
                }
                result => {
                    self.base.drive_io.is_over(&asked, drive);
                    self.answered(drive, asked.owner, buffer, result);
                }
            },
            Answered::Late => {}
            Answered::Unknown => self.fail("a drive completed a request twice".into()),
        }
    }

    /// A request has been answered, or given up.
    fn answered(
        &mut self,
        drive: usize,
        owner: Owner,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
    ) {
        trace!(drive, ?owner, ok = result.is_ok(), "I/O done");
        if self.base.failed.is_some()
            && !matches!(
                owner,
                Owner::ReadPart { .. }
                    | Owner::ReadStrips { .. }
                    | Owner::Strip { .. }
                    | Owner::Salvage { .. }
                    | Owner::LoadPage { .. }
                    | Owner::Raw(_)
            )
        {
            return;
        }
        match owner {
            Owner::Append(log) => self.append_done(log, drive, buffer, result),
            Owner::ReadPart { op, at } => {
                self.read_step(|reads, around| reads.part_done(op, at, buffer, result, around));
            }
            Owner::ReadStrips { op, first } => {
                let of = StripsOf { op, first, drive };
                self.read_step(|reads, around| reads.strips_read(of, buffer, result, around));
            }
            Owner::Bypass { op } => self.bypass_written(op, drive, result),
            Owner::Destage(io) => self.destage_io_done(io, drive, buffer, result),
            Owner::LoadPage { id, tried } => {
                self.page_read(Asked { id, tried, drive }, buffer, &result);
            }
            Owner::Page { id } => self.page_written(id, drive, result),
            Owner::CheckpointFlush => self.checkpoint_flushed(drive, result),
            Owner::Root => self.root_written(drive, result),
            Owner::Walk(io) => self.walk_io_done(io, drive, result),
            Owner::Discard => self.discarded(drive, &result),
            Owner::Raw(io) => self.raw_io_done(io, drive, buffer, result),
            Owner::Strip { reader, byte } => {
                self.strip_read(reader, DriveByte { drive, byte }, buffer, result);
            }
            Owner::Salvage { salvage } => self.granule_salvaged(salvage, buffer, result),
            Owner::Repair { repair } => self.repair_written(repair, drive, result),
        }
    }

    /// Everything that can start, starts.
    fn advance(&mut self) {
        self.watch_drives();
        self.take_steps();
        if self.waits_for_itself() {
            // What one step has taken may be what a command was told to wait for: it is judged again.
            self.take_steps();
        }
        self.check_segments();
        self.check_stall();
        if self.base.failed.is_some() {
            self.fail_waiting();
        }
    }

    fn take_steps(&mut self) {
        if self.base.failed.is_some() {
            return;
        }
        self.base.again = false;
        // What is free is known before anything is asked for: by readers that have left, then by segments that are
        // empty by that.
        self.reclaim();
        self.advance_release();
        // A drive that discards all it has free has no room for another copy of the logs.
        if !self.roots.add_log_copies.is_waiting() {
            self.space.advance_discards(&mut self.base, &self.identity);
        }
        // Hosts come before what only tidies up.
        self.write_step(|writes, outlook, around| writes.admit(outlook, around));
        self.clear_step(|clears, around| clears.advance(around));
        let (raw, mut around) = self.raw();
        raw.advance(&mut around);
        // Their changes go into the batch of this turn.
        let is_asked = self.waiting.is_draining() || self.roots.is_healing();
        self.destage_step(|destage, around| destage.advance(is_asked, around));
        self.advance_rebuild();
        self.advance_log_copies();
        self.advance_features();
        self.advance_replicas();
        // What arrived together is committed together: one batch a log and turn.
        self.seal_batches();
        // Places are given up before a checkpoint begins, which moves what lies there, and after it the root that it
        // needs.
        self.give_places_back();
        self.advance_checkpoint();
        self.advance_roots();
        self.space.keep_places(&self.map, self.log_copies());
        self.provision();
        // What was staged since must not wait for an event that may never come.
        self.seal_batches();
        self.answer_drained();
        self.base.counters.evicted += self.map.make_room();
    }

    fn fail(&mut self, why: String) {
        self.base.fail(why);
    }
}

/// Commands and orders that have been answered in this turn, as the driver has not taken them yet.
fn trace_answers(out: &Outbox) {
    for answer in &out.done {
        trace!(
            ok = answer.result.is_ok(),
            "command {} answered", answer.tag
        );
    }
    for (id, answer) in &out.managed {
        trace!("order {id} answered: {answer:?}");
    }
}
