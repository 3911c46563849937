//! What becomes of a piece for which the fast device has no room, or that it refuses; and of what that has taken there.

use ashlar_block::{IoBuffer, IoError};

use super::{Piece, Step};
use crate::cache::io::Target;
use crate::cache::pages::State;
use crate::cache::space::is_about_room;
use crate::cache::{BLOCK, Cache, News, Owner, Side};
use crate::layout::GRANULE;
use crate::locks::Hold;

impl Cache {
    pub(super) fn takes_space(&mut self, op: usize, takes: bool) {
        if let Some(piece) = self.piece(op) {
            piece.takes_space |= takes;
        }
    }

    /// The fast device takes nothing: it is full, or worse. What is newer there stays the newest.
    pub(super) fn was_not_written(&mut self, op: usize, error: IoError) {
        let range = self.range_of(op);
        if is_about_room(&error) {
            self.has_no_room(&error);
        }
        let any_dirty = range.clone().any(|granule| self.is_dirty(granule));
        if !any_dirty && range.start >= self.head() {
            return self.drop_cached(op);
        }
        // What was recorded as newer for it is not: a crash would find there what a neighbour has given back meanwhile.
        let mut changed = false;
        for granule in range {
            if !self.is_dirty(granule) && self.looked_up(granule, |page| &page.cached) {
                changed |= self.record(granule, State::Absent);
            }
        }
        if !changed {
            return self.was_refused(op, error);
        }
        if let Some(piece) = self.piece(op) {
            piece.error = Some((Side::Fast, error));
        }
        self.wait_recorded(op, Step::Refusing);
    }

    /// A write of which some is newer was refused. Had it to have new room for the rest, that goes around, and only what is
    /// newer is written here.
    pub(super) fn was_refused(&mut self, op: usize, error: IoError) {
        let mut range = self.range_of(op);
        let had_tried = self.piece(op).map(|piece| piece.step) == Some(Step::Rewriting);
        let in_head = range.start < self.head();
        let is_all = range.all(|granule| self.is_dirty(granule));
        if had_tried || is_all || in_head || !is_about_room(&error) {
            return self.end_in_order(op, Err(error));
        }
        self.rewrite_newer(op);
    }

    /// Writes of a piece what is newer.
    pub(super) fn rewrite_newer(&mut self, op: usize) {
        let newer = self.range_of(op);
        let newer: Vec<u64> = newer.filter(|&granule| self.is_dirty(granule)).collect();
        let buffers: Result<Vec<IoBuffer>, IoError> =
            newer.iter().map(|_| self.buffer(1)).collect();
        let Ok(buffers) = buffers else {
            return self.waits_for_memory(op, Step::Rewriting);
        };
        let (first, data) = (self.range_of(op).start, self.data_of(op));
        self.step(op, Step::Rewriting, newer.len() as u8);
        for (&granule, mut buffer) in newer.iter().zip(buffers) {
            let from = (granule - first) as usize * GRANULE;
            buffer.copy_from_slice(&data[from..from + GRANULE]);
            self.write_buffer(Target::FAST, Owner::Op(op), granule, buffer);
        }
    }

    /// There is no room for the page that it waits for.
    pub(super) fn has_no_page(&mut self, op: usize, is_new: bool) {
        let page = self.piece(op).map(|piece| (piece.step, piece.page()));
        match page {
            // What it has written here, and is not newer, goes around: nothing durable says that it is here.
            Some((Step::Recording, _)) => self.drop_cached(op),
            Some((Step::Marking, _)) if is_new => {
                // What was clean is still there.
                self.takes_space(op, true);
                self.drop_cached(op);
            }
            Some(_) if is_new => self.piece_news(op, News::Recorded),
            Some((_, page)) => self.wait_for_page(page, op),
            None => {}
        }
    }

    /// Ends a piece that has its unit alone; what it took and did not use is given back before.
    pub(super) fn end_in_order(&mut self, op: usize, result: Result<(), IoError>) {
        let takes = |piece: &mut Piece| piece.takes_space && piece.hold == Hold::Alone;
        let takes = self.piece(op).is_some_and(takes) && self.failure.is_none();
        if !takes || !self.gives_back(op, Step::GivingBack) {
            return self.end_piece(op, result);
        }
        if let Some(piece) = self.piece(op) {
            piece.error = result.err().map(|error| (Side::Fast, error));
        }
    }

    /// Gives back the blocks of a piece that nothing is in; false if there are none.
    pub(super) fn gives_back(&mut self, op: usize, step: Step) -> bool {
        let range = self.range_of(op);
        let mut empty = Vec::new();
        for block in Self::blocks(range.start, range.end) {
            let first = u64::from(block.0) * BLOCK;
            let used = (first..first + BLOCK).any(|granule| self.is_present(granule));
            if !used && self.policy.has(block) {
                self.policy.forget(block);
                empty.push(first);
            }
        }
        if empty.is_empty() {
            return false;
        }
        self.step(op, step, empty.len() as u8);
        for first in empty {
            self.give_back(Owner::Op(op), first, BLOCK);
        }
        true
    }

    /// What is on the fast device is not read: nothing says that it is there.
    pub(super) fn was_not_filled(&mut self, op: usize, error: &IoError) {
        if is_about_room(error) {
            self.has_no_room(error);
        }
        self.end_in_order(op, Ok(()));
    }
}
