//! What the rest of the engine asks of walks: which columns are being filled, and which drives come back.

use std::time::Duration;

use super::readmit::Returns;
use super::renew::Renewal;
use super::scrub::Scrub;
use super::{Fills, Rebuild};
use crate::comeback::Returning;
use crate::engine::state::Joining;
use crate::format::{PageId, ScrubAt};

impl Rebuild {
    /// Nothing yet but for members that an import has found to be here again.
    pub(in crate::engine) fn new(repair_after: Duration, returning: Vec<Returning>) -> Self {
        Self {
            repair_after,
            returns: Returns::found(returning),
            ..Self::default()
        }
    }

    /// The column of a segment that is being filled, if one is: it is written, and not read.
    pub(in crate::engine) fn joining(&self, segment: u32) -> Option<&Joining> {
        self.joining.get(&segment)
    }

    /// The same, if this walk writes slots of a leaf to it.
    pub(in crate::engine) fn column_to_fill(&self, segment: u32, leaf: PageId) -> Option<&Joining> {
        let joining = self.joining.get(&segment)?;
        let lacks = match self.fills {
            Fills::Nothing => false,
            Fills::Unseen | Fills::All => !joining.is_filled || self.unseen.contains(&leaf),
        };
        lacks.then_some(joining)
    }

    /// Whether a column of a segment is being filled.
    pub(in crate::engine) fn is_joining(&self, segment: u32) -> bool {
        self.joining.contains_key(&segment)
    }

    /// Drives on which columns are being filled.
    pub(in crate::engine) fn joining_drives(&self) -> impl Iterator<Item = u16> {
        self.joining.values().map(|joining| joining.column.drive)
    }

    /// The scrub that is wanted, or under way.
    pub(in crate::engine) fn scrub(&self) -> &Scrub {
        &self.scrub
    }

    /// An import has found how far a scrub had come.
    pub(in crate::engine) fn resume_scrub(&mut self, at: Option<ScrubAt>) {
        self.scrub.resume(at);
    }

    /// An order wants a scrub.
    pub(in crate::engine) fn want_scrub(&mut self, id: u64) {
        self.scrub.want(id);
    }

    /// The part of the map that is being written elsewhere.
    pub(in crate::engine) fn renewal(&self) -> &Renewal {
        &self.renewal
    }

    pub(in crate::engine) fn renewal_mut(&mut self) -> &mut Renewal {
        &mut self.renewal
    }

    /// Members that come back.
    pub(in crate::engine) fn returns(&self) -> &Returns {
        &self.returns
    }

    pub(in crate::engine) fn returns_mut(&mut self) -> &mut Returns {
        &mut self.returns
    }

    /// Nothing walks any more: takes the orders that wait for a scrub, or for a drive to be back.
    pub(in crate::engine) fn take_asked(&mut self) -> Vec<u64> {
        let mut asked = self.scrub.take_asked();
        asked.append(&mut self.returns.take_asked());
        asked
    }
}
