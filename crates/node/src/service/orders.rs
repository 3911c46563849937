//! What operators want of a service on this node.

use super::machine::{Owner, Wanted};

/// What is remembered, and what is wanted for now.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    /// As is remembered on all its nodes: to run, or to be stopped.
    pub(super) wanted: Wanted,
    /// The daemon ends: it goes down, and does not come up.
    pub(super) ends: bool,
    /// Where it is to move from here. That says nothing of whether it runs there, nor here when it comes back.
    pub(super) move_to: Option<String>,
}

impl Orders {
    pub(super) fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            ends: false,
            move_to: None,
        }
    }

    /// What has gone from here has not to move any more, however it went.
    pub(super) fn saw(&mut self, owner: &Owner) {
        if !matches!(owner, Owner::Here { .. }) {
            self.move_to = None;
        }
    }

    /// Its volumes are being given away: where to, if an operator has said so. Then it is any node's that has them.
    pub(super) fn give(&mut self) -> Option<String> {
        self.move_to.take()
    }

    /// What is to be done.
    pub(super) fn seen(&self) -> Wanted {
        match (self.ends, &self.move_to) {
            (true, _) => Wanted::Stopped,
            (false, Some(_)) => Wanted::Moved,
            (false, None) => self.wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stopped_stays_so_when_it_has_moved_or_has_not() {
        let mut orders = Orders::new(Wanted::Stopped);
        orders.move_to = Some("b".into());
        orders.saw(&Owner::Here { epoch: 1 });
        assert_eq!(orders.seen(), Wanted::Moved);
        // That may fail, and they may come back.
        assert_eq!(orders.give().as_deref(), Some("b"));
        assert_eq!(orders.seen(), Wanted::Stopped);

        let mut orders = Orders::new(Wanted::Run);
        orders.move_to = Some("b".into());
        orders.wanted = Wanted::Stopped;
        assert_eq!(orders.seen(), Wanted::Moved, "stopped meanwhile");
        let (node, epoch) = ("b".into(), 2);
        orders.saw(&Owner::Elsewhere { node, epoch });
        orders.saw(&Owner::Here { epoch: 3 });
        assert_eq!(orders.seen(), Wanted::Stopped);
        orders.wanted = Wanted::Run;
        assert_eq!(orders.seen(), Wanted::Run, "it does not go once more");
        orders.ends = true;
        assert_eq!(orders.seen(), Wanted::Stopped);
    }
}
