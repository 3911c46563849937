//! A loss of which no host was told is in the header, so that it is told after a crash, too: the flush of the next life goes
//! to a device that has nothing of what is lost, and would succeed.
//!
//! The header says so as soon as a failure counts, also of a host's own flush. It goes on saying so for a while after a host
//! was told, whose answer is to be with it by then: a crash in between has one flush more fail, where the other way round no
//! host would hear of it. What is left is the time until the header is written.

use std::time::Duration;

use ashlar_block::{IoError, Moment};

use super::io::Target;
use super::space::is_about_room;
use super::{Cache, Defect, Owner};

/// How long after a host was told the header says the same.
const IS_TOLD: Duration = Duration::from_secs(1);
/// How long a header for which there was no room is left alone.
const AGAIN: Duration = Duration::from_secs(1);

/// How far the header is behind.
#[derive(Debug, Default)]
pub(super) struct LossRecord {
    is_on_its_way: bool,
    /// When a host was told last.
    told_at: Option<Moment>,
    /// When a header for which there was no room is written again.
    again_at: Option<Moment>,
}

impl LossRecord {
    pub(super) const fn is_on_its_way(&self) -> bool {
        self.is_on_its_way
    }

    /// A host is told now.
    pub(super) const fn is_told(&mut self, now: Moment) {
        self.told_at = Some(now);
    }

    /// Until when the answer to the host that was told last may be on its way.
    fn told_by(&self) -> Option<Moment> {
        self.told_at.map(|at| at + IS_TOLD)
    }
}

impl Cache {
    /// Has the header say whether a loss is untold, while nothing else writes it.
    pub(super) fn record_loss(&mut self) {
        let is_being_told = self.loss.told_by().is_some_and(|at| self.now < at);
        let is_untold = self.around.is_untold() || is_being_told;
        let is_untold = is_untold && !self.sings(Defect::LossIsForgotten);
        let says = self.header.as_ref().map(|header| header.is_untold);
        if says.is_none_or(|says| says == is_untold) {
            self.loss.again_at = None;
            return;
        }
        let waits = self.loss.again_at.is_some_and(|at| self.now < at);
        if waits || self.loss.is_on_its_way || self.has_header() {
            return;
        }
        let Some(header) = &mut self.header else {
            return;
        };
        header.is_untold = is_untold;
        let bytes = header.encode();
        match self.write(Target::FAST, Owner::Loss, self.layout.header_at(), &bytes) {
            Ok(()) => {
                self.loss.is_on_its_way = true;
                self.loss.again_at = None;
            }
            // There is no memory: who has it lets go of it.
            Err(_) => self.header_says(!is_untold),
        }
    }

    fn header_says(&mut self, is_untold: bool) {
        if let Some(header) = &mut self.header {
            header.is_untold = is_untold;
        }
    }

    pub(super) fn loss_is_recorded(&mut self, result: &Result<(), IoError>) {
        self.loss.is_on_its_way = false;
        let Err(error) = result else { return };
        if !is_about_room(error) {
            return self.fail(format!("what was lost could not be recorded: {error}"));
        }
        self.has_no_room(error);
        let said = self.header.as_ref().is_some_and(|header| header.is_untold);
        self.header_says(!said);
        self.loss.again_at = Some(self.now + AGAIN);
    }

    /// When the header is to say otherwise.
    pub(super) fn loss_deadline(&self) -> Option<Moment> {
        let both = [self.loss.told_by(), self.loss.again_at].into_iter();
        both.flatten().filter(|&at| at > self.now).min()
    }
}
