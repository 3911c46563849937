use std::sync::atomic::{AtomicUsize, Ordering};

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
    /// the fewest are. Counts it until [`leave`](Self::leave).
    pub(super) fn place(&self, qid: u16) -> usize {
        if qid == 0 {
            return 0;
        }
        let load = |core: &usize| self.queues[*core].load(Ordering::Relaxed);
        // Of equally loaded cores the last: the first has the admin queues.
        let core = (0..self.queues.len()).rev().min_by_key(load).unwrap_or(0);
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
        let cores: Vec<usize> = [0, 1, 2, 0, 1, 2]
            .iter()
            .map(|&q| placement.place(q))
            .collect();
        assert_eq!(cores, [0, 1, 0, 0, 1, 0]);
        placement.leave(1);
        assert_eq!(placement.place(3), 1);
    }
}
