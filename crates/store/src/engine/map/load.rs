//! Reading pages of level 0 from the drives: from one copy after the other, until one is good.

use ashlar_block::{IoBuffer, IoError, Request};
use tracing::warn;

use super::{Content, FIRST_VOLUME, Map};
use crate::engine::Owner;
use crate::engine::base::{Base, To};
use crate::engine::identity::Identity;
use crate::engine::journal::logs::Logs;
use crate::engine::space::{Space, segment_and_unit, unit_at};
use crate::error::lost_page;
use crate::format::{ChunkCopy, Leaf, PageId};
use crate::sizes::GRANULE;

/// What the reading of a page may use.
pub(in crate::engine) struct Loader<'a> {
    pub(in crate::engine) identity: &'a Identity,
    pub(in crate::engine) base: &'a mut Base,
    pub(in crate::engine) space: &'a mut Space,
    pub(in crate::engine) logs: &'a mut Logs,
    pub(in crate::engine) map: &'a mut Map,
}

/// What has become of a page that was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(in crate::engine) enum Load {
    /// A drive is asked for it, or the engine has stopped.
    OnItsWay,
    /// It is here, or known to be lost: what waits for it goes on.
    Ended,
}

/// A copy of a page that was asked for.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Asked {
    pub(in crate::engine) id: PageId,
    /// Drives whose copies are not good, as bits.
    pub(in crate::engine) tried: u64,
    pub(in crate::engine) drive: usize,
}

impl Loader<'_> {
    /// Reads a page from a drive that has not been `tried`.
    pub(in crate::engine) fn read(&mut self, id: PageId, tried: u64) -> Load {
        let (segment, unit) = segment_and_unit(self.map.entry(id).place);
        let columns = self.space.meta_columns(segment);
        let mut untried = columns.iter().filter(|copy| tried & 1 << copy.drive == 0);
        let quick = |copy: &&ChunkCopy| !self.base.drive_io.is_slow(usize::from(copy.drive));
        let Some(&place) = untried.clone().find(quick).or_else(|| untried.next()) else {
            return self.lost(id);
        };
        let drive = usize::from(place.drive);
        let Some(buffer) = self.base.buffer(self.logs, GRANULE) else {
            return Load::OnItsWay;
        };
        let byte = unit_at(self.identity.sizes(), place, unit, GRANULE as u64);
        let range = self.space.drives.range(drive, byte, GRANULE);
        let to = To::of(&self.space.drives, drive, Owner::LoadPage { id, tried });
        self.base.send(to, |tag| Request::read(tag, range, buffer));
        Load::OnItsWay
    }

    /// A drive has answered: takes the page, or asks the next one.
    pub(in crate::engine) fn answered(
        &mut self,
        asked: Asked,
        buffer: Option<IoBuffer>,
        result: &Result<(), IoError>,
    ) -> Load {
        let Asked { id, tried, drive } = asked;
        let crc = self.map.entry(id).crc;
        let salt = self.identity.salt();
        let good = buffer.filter(|buffer| result.is_ok() && id.crc(salt, buffer) == crc);
        match good.map(|buffer| Leaf::decode(&buffer)) {
            Some(Ok(leaf)) if leaf.grain() != self.map.grain(id.node) => {
                self.base.fail(format!(
                    "the map's {id:?} has another grain than its volume"
                ));
                Load::OnItsWay
            }
            Some(Ok(leaf)) => {
                self.base.counters.loaded += 1;
                self.map.loaded(id, Content::Leaf(leaf));
                Load::Ended
            }
            Some(Err(error)) => {
                self.base.fail(error.to_string());
                Load::OnItsWay
            }
            None => {
                self.space.note_bad(drive, &mut self.base.counters);
                self.read(id, tried | 1 << drive)
            }
        }
    }

    /// No copy of a leaf can be read. Without the system's pages nothing works; without a leaf all else does.
    fn lost(&mut self, id: PageId) -> Load {
        let (segment, _) = segment_and_unit(self.map.entry(id).place);
        let places = self.space.meta_columns(segment);
        let places = places.iter().map(|copy| {
            let member = self.space.drives.member(copy.drive.into());
            member.map_or_else(String::new, |member| format!("drive {}", member.drive))
        });
        let lost = lost_page(id, places);
        if id.node < FIRST_VOLUME {
            self.base.fail(format!(
                "{lost}. Nothing is written any more. If that may pass, import the pool again"
            ));
        } else {
            warn!("{lost}: its blocks are errors until they are written");
            self.map.lose(id);
        }
        Load::Ended
    }
}
