//! What the admin queue does beside bring-up: keep-alive, asynchronous events, the owner's calls.

use std::time::Duration;

use ashlar_block::{Geometry, Moment};
use ashlar_nvme::Command;
use ashlar_nvme::command::{GetLogPage, Identify, NSID_BROADCAST};
use ashlar_nvme::event::{AsyncEvent, notices};
use ashlar_nvme::feature::fid;
use ashlar_nvme::identify::cns;

use super::{ADMIN, Association, ControllerFacts, facts};
use crate::failure::Failure;
use crate::queue_pair::{Data, Finished, Outcome, Submission};

/// Names of admin commands.
pub(super) const BRING_UP: u64 = 0;
pub(super) const CALL: u64 = 1;
const KEEP_ALIVE: u64 = 2;
const EVENT_REQUEST: u64 = 3;
const EVENT_LOG: u64 = 4;
const LOOK_AGAIN: u64 = 5;
pub(super) const PATHS: u64 = 6;

/// Bytes read of an event's log page: enough to clear it.
const EVENT_LOG_BYTES: usize = 512;
/// Events worth asking for.
const WANTED: u32 =
    notices::NAMESPACE_ATTRIBUTE | notices::ANA_CHANGE | notices::DISCOVERY_LOG_CHANGE;

/// The keep-alive timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepAlive {
    timeout: Duration,
    /// When to send the next, or when the one that is out is overdue.
    next: Moment,
    outstanding: bool,
}

impl KeepAlive {
    pub(super) fn next(&self) -> Moment {
        self.next
    }
}

impl Association {
    pub(super) fn submit_admin(
        &mut self,
        now: Moment,
        user: u64,
        command: Command,
        data: Data,
    ) -> Result<(), Data> {
        let submission = Submission {
            user,
            command,
            data,
            timed: user != EVENT_REQUEST,
        };
        match self.pair(ADMIN) {
            Some(pair) => pair.submit(now, submission).map_err(|back| back.data),
            None => Err(submission.data),
        }
    }

    pub(super) fn take_admin_answers(&mut self, now: Moment) {
        while let Some(finished) = self.pair(ADMIN).and_then(|pair| pair.finished()) {
            match finished.user {
                CALL => self.called.push_back(finished),
                KEEP_ALIVE => self.keep_alive_answer(now, &finished),
                EVENT_REQUEST => self.event_answer(now, &finished),
                EVENT_LOG => self.event_log_answer(now),
                PATHS => self.paths_answer(now, &finished),
                LOOK_AGAIN => self.look_again_answer(&finished),
                // An answer to a step that a shutdown overtook is of no interest.
                _ if !self.waiting => {}
                _ => self.bring_up_answer(now, finished),
            }
            // Bring-up goes on at once: each step costs one round trip and nothing more.
            self.advance(now);
        }
        self.take_io_connects();
    }

    /// The timer runs from Connect on, but only controllers that say so (KAS) watch it.
    pub(super) fn start_keep_alive(&mut self, now: Moment, facts: &ControllerFacts) {
        let timeout = self.config.keep_alive;
        if facts.keep_alive_granularity != 0 && !timeout.is_zero() {
            self.keep_alive = Some(KeepAlive {
                timeout,
                next: now + timeout / 2,
                outstanding: false,
            });
        }
    }

    pub(super) fn keep_alive(&mut self, now: Moment) {
        let Some(mut timer) = self.keep_alive.filter(|timer| timer.next <= now) else {
            return;
        };
        if timer.outstanding {
            let (what, after) = ("Keep Alive", timer.timeout);
            return self.fail(Failure::Timeout { what, after });
        }
        if self
            .submit_admin(now, KEEP_ALIVE, Command::keep_alive(), Data::None)
            .is_ok()
        {
            timer.outstanding = true;
            timer.next = now + timer.timeout;
        } else {
            timer.next = now + timer.timeout / 8;
        }
        self.keep_alive = Some(timer);
    }

    fn keep_alive_answer(&mut self, now: Moment, finished: &Finished) {
        if let Outcome::Answered(completion) = finished.outcome
            && !completion.status().is_success()
        {
            let status = completion.status();
            return self.fail(Failure::Command {
                what: "Keep Alive",
                status,
            });
        }
        if let Some(timer) = &mut self.keep_alive {
            // Counted from when it was sent, so that a slow answer does not stretch the period.
            let sent = timer.next - (Moment::ORIGIN + timer.timeout);
            timer.next = (Moment::ORIGIN + sent + timer.timeout / 2).max(now);
            timer.outstanding = false;
        }
    }

    /// Whether the discovery service has said, since the last call, that what it tells has changed.
    pub fn take_discovery_change(&mut self) -> bool {
        std::mem::take(&mut self.discovery_changed)
    }

    /// Whether the controller has said, since the last call, that another host has done something about a reservation.
    pub fn take_reservation_change(&mut self) -> bool {
        std::mem::take(&mut self.reservation_changed)
    }

    pub(super) fn event_configuration(&self) -> Command {
        let offered = self.controller.as_deref().map_or(0, |facts| facts.events);
        Command::set_features(0, fid::ASYNC_EVENT_CONFIGURATION, offered & WANTED)
    }

    /// Asks to be told of the next event.
    pub(super) fn request_event(&mut self, now: Moment) {
        // Without room there is no event; the namespace is checked again at every reconnect.
        let command = Command::async_event_request();
        let _ = self.submit_admin(now, EVENT_REQUEST, command, Data::None);
    }

    /// Reads the event's log page, which arms the event again.
    fn event_answer(&mut self, now: Moment, finished: &Finished) {
        let Outcome::Answered(completion) = finished.outcome else {
            return;
        };
        if !completion.status().is_success() || self.step.is_shutdown() {
            return;
        }
        let event = AsyncEvent::from_dw0(completion.dw0.get());
        if event == AsyncEvent::AnaChange {
            self.request_event(now);
            return self.read_paths(now);
        }
        let command = Command::get_log_page(
            NSID_BROADCAST,
            GetLogPage {
                lid: event.log_page(),
                lsp: 0,
                retain_event: false,
                bytes: EVENT_LOG_BYTES as u64,
                offset: 0,
                offset_type: false,
            },
        );
        self.event = Some(event);
        match self.buffer(EVENT_LOG_BYTES) {
            Ok(buffer) => {
                let _ = self.submit_admin(now, EVENT_LOG, command, Data::ToHost(buffer));
            }
            Err(failure) => self.fail(failure),
        }
    }

    fn event_log_answer(&mut self, now: Moment) {
        self.request_event(now);
        match self.event.take() {
            Some(AsyncEvent::NamespaceAttributeChanged) => {}
            Some(AsyncEvent::DiscoveryLogChange) => return self.discovery_changed = true,
            Some(AsyncEvent::ReservationLogAvailable) => return self.reservation_changed = true,
            _ => return,
        }
        let parameters = Identify {
            cns: cns::NAMESPACE,
            ..Identify::default()
        };
        let command = Command::identify(self.nsid, parameters);
        match self.buffer(facts::IDENTIFY_BYTES) {
            Ok(buffer) => {
                let _ = self.submit_admin(now, LOOK_AGAIN, command, Data::ToHost(buffer));
            }
            Err(failure) => self.fail(failure),
        }
    }

    /// A namespace that has changed its shape ends the association; the next one finds out whether
    /// it is still the same namespace. Mere growth is nothing to us: what was promised still holds.
    fn look_again_answer(&mut self, finished: &Finished) {
        let Outcome::Answered(completion) = finished.outcome else {
            return;
        };
        let data = finished.buffer.as_deref().unwrap_or_default();
        let limits = self.controller.as_deref();
        let same = completion.status().is_success()
            && match (facts::namespace(self.nsid, data, limits), &self.namespace) {
                (Ok(new), Some(old)) => {
                    let blocks = new.geometry.blocks.min(old.geometry.blocks);
                    let within = Geometry {
                        blocks,
                        ..new.geometry
                    };
                    within == old.geometry
                }
                _ => false,
            };
        if !same {
            self.fail(Failure::Network("the namespace has changed".into()));
        }
    }
}
