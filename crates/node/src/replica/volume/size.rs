//! How large the volume is, as hosts here see it.

use ashlar_block::Moment;
use ashlar_replica::{Event, Growth, Revision, Size};

use super::{Ground, News, Replicated};

impl Replicated {
    /// How large the volume is.
    pub(crate) const fn size(&self) -> Size {
        self.size
    }

    /// As the volume's key says. An owner goes by what it serves, which follows the key.
    pub(crate) fn measure(&mut self, revision: Revision, size: Option<Size>, now: Moment) {
        let Some(size) = size.filter(|_| revision > self.sized) else {
            return self.measure_own(now);
        };
        self.sized = revision;
        match self.replica.size(now) {
            Some(_) => self.measure_own(now),
            None => self.show(size),
        }
    }

    /// As this node serves it, if it owns the volume.
    pub(super) fn measure_own(&mut self, now: Moment) {
        if let Some(size) = self.replica.size(now) {
            self.show(size);
        }
    }

    fn show(&mut self, size: Size) {
        if self.size != size {
            self.size = size;
            self.outside.tell(News::Size);
        }
    }

    /// The copy has more room in its pool.
    pub(crate) fn grown(&mut self, ground: &mut Ground<'_>) {
        let Some(granules) = ground.engine.geometry(self.copy.volume()) else {
            return;
        };
        let granules = granules.blocks;
        self.copy.has_grown(granules);
        self.hear(Event::Grown { granules }, ground);
    }

    /// An operator wants the volume to be larger.
    pub(crate) fn resize(&mut self, growth: Growth, ground: &mut Ground<'_>) {
        self.hear(Event::Resize(growth), ground);
    }
}
