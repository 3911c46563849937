//! A loss of which no host was told is in the header, so that it is told after a crash, too: the flush of the next life goes
//! to a device that has nothing of what is lost, and would succeed.
//!
//! The header says so as soon as a failure counts. It goes on saying so for a while after a host was told, whose answer is to
//! be with it by then: a crash in between has one flush more fail, where the other way round nobody would hear of it.

use std::time::Duration;

use ashlar_block::{Durability, IoError, Moment};

use super::space::is_about_room;
use super::{Cache, Defect, Owner, Side};

/// How long after a host was told the header says the same.
const IS_TOLD: Duration = Duration::from_secs(1);
/// How long a header for which there was no room is left alone.
const AGAIN: Duration = Duration::from_secs(1);

/// How far the header is behind.
#[derive(Debug, Default)]
pub(super) struct LossRecord {
    is_on_its_way: bool,
    /// When it is to say otherwise.
    at: Option<Moment>,
}

impl LossRecord {
    pub(super) const fn is_on_its_way(&self) -> bool {
        self.is_on_its_way
    }
}

impl Cache {
    /// Has the header say whether a loss is untold, while nothing else writes it.
    pub(super) fn record_loss(&mut self) {
        let is_untold = self.around.is_untold() && !self.sings(Defect::LossIsForgotten);
        let says = self.header.as_ref().map(|header| header.is_untold);
        if says.is_none_or(|says| says == is_untold) {
            self.loss.at = None;
            return;
        }
        let wait = if is_untold { Duration::ZERO } else { IS_TOLD };
        let at = *self.loss.at.get_or_insert(self.now + wait);
        if self.now < at || self.loss.is_on_its_way || self.has_header() {
            return;
        }
        let Some(header) = &mut self.header else {
            return;
        };
        header.is_untold = is_untold;
        let bytes = header.encode();
        let how = (Side::Fast, Durability::Durable);
        match self.write(how, Owner::Loss, self.layout.header_at(), &bytes) {
            Ok(()) => {
                self.loss.is_on_its_way = true;
                self.loss.at = None;
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
        self.loss.at = Some(self.now + AGAIN);
    }

    /// When the header is to say otherwise.
    pub(super) fn loss_deadline(&self) -> Option<Moment> {
        self.loss.at.filter(|&at| at > self.now)
    }
}
