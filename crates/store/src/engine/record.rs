//! What is known of drives since the import: bad copies on them, and why some were left out.

use std::collections::BTreeMap;

/// What has become of drives, by member.
#[derive(Default)]
pub(super) struct DriveRecord {
    bad_copies: BTreeMap<usize, u64>,
    losses: Vec<(usize, String)>,
}

impl DriveRecord {
    /// A copy on it did not verify, or could not be read.
    pub(super) fn note_bad(&mut self, drive: usize) {
        *self.bad_copies.entry(drive).or_default() += 1;
    }

    pub(super) fn bad_copies(&self, drive: usize) -> u64 {
        self.bad_copies.get(&drive).copied().unwrap_or(0)
    }

    /// It was left out.
    pub(super) fn left_out(&mut self, drive: usize, why: String) {
        self.losses.push((drive, why));
    }

    /// The number is another drive's.
    pub(super) fn is_another(&mut self, drive: usize) {
        self.bad_copies.remove(&drive);
        self.is_back(drive);
    }

    /// It takes part again.
    pub(super) fn is_back(&mut self, drive: usize) {
        self.losses.retain(|(lost, _)| *lost != drive);
    }

    /// Why it was left out first.
    pub(super) fn why_out(&self, drive: usize) -> Option<&str> {
        let mut losses = self.losses.iter();
        let loss = losses.find(|(lost, _)| *lost == drive);
        loss.map(|(_, why)| &why[..])
    }

    /// Drives that were left out, in that order, and why.
    pub(super) fn losses(&self) -> &[(usize, String)] {
        &self.losses
    }
}
