//! Space beside what volumes have: what is kept for repair, segments that go back to their drives, and free
//! space that is discarded.

mod discard;
pub(super) mod release;
pub(super) mod reserve;

use discard::Discards;
use release::Release;
use reserve::Kept;

pub(super) struct Upkeep {
    kept: Kept,
    release: Release,
    discards: Discards,
}

impl Upkeep {
    pub(super) fn new(kept: Kept) -> Self {
        Self {
            kept,
            release: Release::default(),
            discards: Discards::default(),
        }
    }

    /// Whether space is on its way to be free.
    pub(super) fn is_giving_back(&self) -> bool {
        self.release.is_under_way() || self.discards.is_under_way()
    }

    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }

    pub(super) fn kept_mut(&mut self) -> &mut Kept {
        &mut self.kept
    }

    pub(super) fn release(&self) -> &Release {
        &self.release
    }

    pub(super) fn release_mut(&mut self) -> &mut Release {
        &mut self.release
    }

    pub(super) fn discards(&self) -> &Discards {
        &self.discards
    }

    pub(super) fn discards_mut(&mut self) -> &mut Discards {
        &mut self.discards
    }
}
