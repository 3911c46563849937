use std::sync::atomic::{AtomicUsize, Ordering};

use crate::core::Placing;

/// How many I/O queues each core has.
pub(super) struct Placement {
    queues: Vec<AtomicUsize>,
}

impl Placement {
    pub(super) fn new(cores: usize) -> Self {
        Self {
            queues: (0..cores).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// The core for a queue: admin queues, which do little, share the first; an I/O queue goes where
    /// it must, or where the fewest are. Counts it until [`leave`](Self::leave).
    pub(super) fn place(&self, placing: Placing) -> usize {
        if placing.queue == 0 {
            return 0;
        }
        let load = |core: &usize| self.queues[*core].load(Ordering::Relaxed);
        // Of equally loaded cores the last: the first has the admin queues.
        let freest = || (0..self.queues.len()).rev().min_by_key(load).unwrap_or(0);
        let only = placing.only.filter(|&core| core < self.queues.len());
        let core = only.unwrap_or_else(freest);
        self.queues[core].fetch_add(1, Ordering::Relaxed);
        core
    }

    /// An I/O queue of `core` has ended.
    pub(super) fn leave(&self, core: usize) {
        self.queues[core].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_queues_spread_and_admin_queues_stay() {
        let placement = Placement::new(2);
        let place = |queue, only| placement.place(Placing { queue, only });
        let cores = [0, 1, 2, 0, 1, 2].map(|queue| place(queue, None));
        assert_eq!(cores, [0, 1, 0, 0, 1, 0]);
        placement.leave(1);
        assert_eq!(place(3, None), 1);
        assert_eq!([place(4, Some(0)), place(5, Some(0))], [0, 0]);
        assert_eq!([place(6, None), place(7, None)], [1, 1], "those count");
    }
}
