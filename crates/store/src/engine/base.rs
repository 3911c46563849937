//! What every part of the engine may use: the time, requests for drives, answers, memory, counters, and the way to stop.

use ashlar_block::{IoBuffer, IoError, Moment, Request};
use tracing::{debug, trace};

use super::drive_io::flights::Asked;
use super::drive_io::{DriveIo, Unsent};
use super::drives::Drives;
use super::journal::logs::Logs;
use super::memory::Memory;
use super::state::Counters;
use super::{Outbox, Owner};
use crate::manage::Managed;

/// Why the pool has stopped, if it has.
#[derive(Default)]
pub(super) struct Failure {
    why: Option<String>,
    /// What cannot be stops the pool in debug builds, too, and does not panic.
    only_stops: bool,
}

impl Failure {
    pub(super) const fn is_some(&self) -> bool {
        self.why.is_some()
    }

    pub(super) const fn is_none(&self) -> bool {
        self.why.is_none()
    }

    pub(super) fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// From now on what cannot be does not panic.
    #[cfg(feature = "canary")]
    pub(super) fn only_stop(&mut self) {
        self.only_stops = true;
    }
}

/// A request's drive, and whose it is.
#[derive(Clone, Copy)]
pub(super) struct To {
    pub(super) drive: usize,
    pub(super) owner: Owner,
    /// The drive is not asked for anything any more: its owner is told so in the next turn.
    pub(super) is_out: bool,
}

impl To {
    /// To a drive that is asked while it is in service.
    pub(super) fn of(drives: &Drives, drive: usize, owner: Owner) -> Self {
        Self {
            drive,
            owner,
            is_out: !drives.in_service(drive as u16),
        }
    }
}

pub(super) struct Base {
    /// The time of this turn.
    pub(super) now: Moment,
    /// Requests and answers: a driver's own outbox, while events are handled.
    pub(super) out: Outbox,
    /// There is more to do at once than one turn may take.
    pub(super) again: bool,
    pub(super) failed: Failure,
    pub(super) drive_io: DriveIo,
    pub(super) memory: Memory,
    pub(super) counters: Counters,
}

impl Base {
    /// What a crash has left to be done begins by itself.
    pub(super) fn new(now: Moment, drive_io: DriveIo, memory: Memory, counters: Counters) -> Self {
        Self {
            now,
            out: Outbox::default(),
            again: true,
            failed: Failure::default(),
            drive_io,
            memory,
            counters,
        }
    }

    /// Sends a request to a drive.
    pub(super) fn send(&mut self, to: To, request: impl FnOnce(u64) -> Request) {
        let To {
            drive,
            owner,
            is_out,
        } = to;
        let mut request = request(0);
        let is_ours = !matches!(owner, Owner::ReadPart { .. } | Owner::Raw(_));
        let bytes = request.buffer.as_ref().filter(|_| is_ours);
        let bytes = bytes.map_or(0, |buffer| buffer.len().next_power_of_two());
        if is_out {
            // Decided before the drive was out; nothing more goes there.
            self.drive_io.hold_unsent(Unsent {
                owner,
                drive,
                buffer: request.buffer,
            });
            self.again = true;
            return;
        }
        let asked = Asked {
            owner,
            op: request.op,
            range: request.range,
            bytes,
            since: None,
        };
        request.tag = self.drive_io.send(drive, asked, self.now);
        trace!(drive, ?owner, op = ?request.op, at = %request.range.start, blocks = request.range.count, "I/O sent");
        self.out.io.push((drive, request));
    }

    /// Answers an operator's order.
    pub(super) fn answer(&mut self, id: u64, answer: Result<Managed, IoError>) {
        self.out.managed.push((id, answer));
    }

    /// Answers a host's command.
    pub(super) fn complete(&mut self, request: Request, result: Result<(), IoError>) {
        self.out.done.push(request.complete(result));
    }

    /// A buffer, or a failure of the engine: what it has in flight is bounded below its pool's size.
    pub(super) fn buffer(&mut self, logs: &mut Logs, bytes: usize) -> Option<IoBuffer> {
        let mut buffer = self.memory.get(bytes);
        while buffer.is_none() && logs.forget_oldest() {
            buffer = self.memory.get(bytes);
        }
        if buffer.is_none() {
            self.fail("out of buffers".into());
        }
        buffer
    }

    /// Whether half of the memory is on its way to drives: copies of whole slots wait for their turn then.
    pub(super) fn is_short_of_memory(&self, logs: &Logs) -> bool {
        // What is remembered of the ring goes when memory is needed.
        let idle = logs.remembered_bytes() + self.drive_io.late_bytes();
        let busy = self.memory.outstanding_bytes().saturating_sub(idle);
        busy > self.memory.io_bytes() / 2
    }

    /// What is remembered of the ring has changed: the drives have what was written.
    pub(super) fn distrust(&mut self, logs: &mut Logs, at: u64) {
        self.counters.bad_memory += 1;
        logs.distrust(at);
    }

    /// Stops the pool: nothing is written or acknowledged any more.
    pub(super) fn fail(&mut self, why: String) {
        if self.failed.is_none() {
            debug!("the engine stops: {why}");
            self.failed.why = Some(why);
        }
    }

    /// Stops the pool, for it is in a state that cannot be. One that has stopped already has let go of
    /// much that others looked for.
    #[track_caller]
    pub(super) fn impossible(&mut self, what: &str) {
        if self.failed.is_some() {
            return;
        }
        let at = std::panic::Location::caller();
        let panics = !self.failed.only_stops;
        debug_assert!(!panics, "impossible: {what} ({at})");
        self.stop_as_impossible(&format!("{what} ({at})"));
    }

    /// What production does: stops with a message that names the state.
    pub(super) fn stop_as_impossible(&mut self, what: &str) {
        self.fail(format!(
            "the engine is in a state that cannot be: {what}. Nothing is written any more; import the pool \
             again, and report this"
        ));
    }
}
