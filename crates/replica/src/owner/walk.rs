//! A walk through all leaves of a volume, question by question.
//!
//! A question is about a run of leaves: a long one where nothing is written here, which costs next to nothing to know,
//! and a few leaves elsewhere. Where a run's digests differ, its leaves are asked for one by one.

use std::collections::VecDeque;

use crate::event::{Shape, Turn};
use crate::ids::Leaf;
use crate::leaves::Leaves;

/// Questions under way at once, as fast as it goes.
pub(super) const AT_ONCE: usize = 4;

/// How far a walk is.
#[derive(Debug, Default)]
pub(super) struct Walk {
    next: Leaf,
    /// To be asked again, leaf by leaf: not more runs than questions were under way.
    again: VecDeque<Leaves>,
}

impl Walk {
    /// Whether all leaves were taken.
    pub(super) fn is_over(&self, leaves: u64) -> bool {
        self.again.is_empty() && self.next.0 >= leaves
    }

    /// What the next question is about: at most so many leaves of a volume of this shape.
    pub(super) fn take(&mut self, turn: &Turn<'_>, shape: Shape, most: u32) -> Option<Leaves> {
        if let Some(run) = self.again.pop_front() {
            let (leaf, rest) = run.split();
            rest.into_iter()
                .for_each(|rest| self.again.push_front(rest));
            return Some(leaf);
        }
        let limits = turn.config.limits;
        let left = shape.leaves().saturating_sub(self.next.0);
        let left = u32::try_from(left).unwrap_or(u32::MAX).min(most);
        let unwritten = left.min(limits.unwritten_leaves).min(Leaves::MOST);
        let count = match turn.local.unwritten(self.next, unwritten) {
            0 => left.min(limits.written_leaves),
            count => count.min(unwritten),
        };
        let run = Leaves::new(self.next, count)?;
        self.next = run.end();
        Some(run)
    }

    /// These differ.
    pub(super) fn differ(&mut self, leaves: Leaves) {
        self.again.push_back(leaves);
    }
}
