//! How the namespace is reached: Asymmetric Namespace Access (Base 2.1, 8.1.1).
//!
//! The log page is read at bring-up, when the controller says that something has changed, and when a
//! command was refused for its path: the event for that may still be on its way.

use ashlar_block::Moment;
use ashlar_nvme::Command;
use ashlar_nvme::command::{GetLogPage, NSID_BROADCAST};
use ashlar_nvme::identify::cmic;
use ashlar_nvme::log::{ANA_HEADER_BYTES, AnaLog, AnaState, lid};

use super::bring_up::Step;
use super::{Association, admin};
use crate::failure::Failure;
use crate::queue_pair::{Data, Finished, Outcome};

/// Longest log page that is read.
const MOST_BYTES: usize = 64 << 10;
const GROUP_BYTES: usize = 32;
const NSID_BYTES: usize = 4;

/// Whether the log page is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Not,
    Out,
    /// It is, and has to be again: something has changed since.
    OutAndOld,
}

impl Association {
    /// How the namespace is reached over this association. A controller without ANA reaches it as well as
    /// any.
    pub fn path(&self) -> AnaState {
        self.path.unwrap_or(AnaState::Optimized)
    }

    /// Since when; of a controller without ANA always.
    pub fn path_since(&self) -> Moment {
        self.path_since
    }

    /// Whether the controller tells how it reaches namespaces.
    pub fn has_paths(&self) -> bool {
        let facts = self.controller.as_deref();
        facts.is_some_and(|facts| facts.raw.cmic & cmic::ANA_REPORTING != 0)
    }

    /// Asks the controller how the namespace is reached, whatever it told last. False if it tells nothing of
    /// that.
    pub fn ask_path(&mut self, now: Moment) -> bool {
        let tells = self.has_paths();
        if tells {
            self.read_paths(now);
        }
        tells
    }

    /// Whether the controller has yet to answer that.
    pub fn is_asked(&self) -> bool {
        self.reading != Reading::Not
    }

    /// A command was refused with this state: it holds until the log page, read again, says otherwise.
    pub fn distrust_path(&mut self, now: Moment, state: AnaState) {
        if self.has_paths() {
            self.path = Some(state);
            self.read_paths(now);
        }
    }

    /// The command that reads the log page, and how long that is.
    pub(super) fn ask_paths(&self) -> (Command, usize) {
        let facts = self.controller.as_deref();
        let (groups, namespaces) = facts.map_or((0, 0), |facts| {
            let most = facts.raw.mnan.get().max(1).min(facts.raw.nn.get().max(1));
            (facts.raw.nanagrpid.get() as usize, most as usize)
        });
        let groups = groups.saturating_mul(GROUP_BYTES);
        let namespaces = namespaces.saturating_mul(NSID_BYTES);
        let bytes = ANA_HEADER_BYTES
            .saturating_add(groups)
            .saturating_add(namespaces);
        let bytes = bytes.min(MOST_BYTES);
        let ask = GetLogPage {
            lid: lid::ANA,
            lsp: 0,
            retain_event: false,
            bytes: bytes as u64,
            offset: 0,
            offset_type: false,
        };
        (Command::get_log_page(NSID_BROADCAST, ask), bytes)
    }

    /// Takes the log page.
    pub(super) fn take_paths(&mut self, now: Moment, page: &[u8]) -> Result<(), Failure> {
        let wrong = |why: &str| Failure::Network(format!("the ANA log page {why}"));
        let log = AnaLog::parse(page).ok_or_else(|| wrong("makes no sense"))?;
        let mut groups = log.groups.iter();
        let ours = groups.find(|group| group.namespaces.contains(&self.nsid));
        let ours = ours.ok_or_else(|| wrong("does not name the namespace"))?;
        if self.path != Some(ours.state) {
            self.path = Some(ours.state);
            self.path_since = now;
        }
        Ok(())
    }

    /// Reads the log page.
    pub(super) fn read_paths(&mut self, now: Moment) {
        if self.step < Step::ReadPaths || self.failure.is_some() || self.step.is_shutdown() {
            return;
        }
        if self.reading != Reading::Not {
            self.reading = Reading::OutAndOld;
            return;
        }
        let (command, bytes) = self.ask_paths();
        match self.buffer(bytes) {
            Ok(buffer) => {
                let asked = self.submit_admin(now, admin::PATHS, command, Data::ToHost(buffer));
                if asked.is_ok() {
                    self.reading = Reading::Out;
                }
            }
            Err(failure) => self.fail(failure),
        }
    }

    /// What the log page said. One that cannot be read leaves us without knowing whether the path is good.
    pub(super) fn paths_answer(&mut self, now: Moment, finished: &Finished) {
        let read = std::mem::replace(&mut self.reading, Reading::Not);
        let Outcome::Answered(completion) = finished.outcome else {
            return;
        };
        let (what, status) = (
            "Get Log Page, Asymmetric Namespace Access",
            completion.status(),
        );
        let taken = match status.is_success() {
            true => self.take_paths(now, finished.buffer.as_deref().unwrap_or_default()),
            false => Err(Failure::Command { what, status }),
        };
        match taken {
            Ok(()) if read == Reading::OutAndOld => self.read_paths(now),
            Ok(()) => {}
            Err(failure) => self.fail(failure),
        }
    }
}
