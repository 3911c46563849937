//! Old images: after all have lost power, a node's drives come back as they were some time before.

use super::*;

/// How long all are without power: what was asked of the quorum before has been done or not.
const DARK: Duration = Duration::from_secs(2);

impl World<'_> {
    /// A copy of a node's drives is put aside.
    pub(super) fn put_aside(&mut self, node: usize) {
        let image = self.nodes[node].store.image();
        self.nodes[node].image = image;
    }

    /// All lose power, and that node's drives are to come back as they were when they were put aside.
    pub(super) fn turn_back(&mut self, node: usize) {
        let owns = |node: &Node| {
            node.replica
                .as_ref()
                .is_some_and(|one| one.owns().is_some())
        };
        let runs = self.nodes[node].replica.is_some();
        if self.has_healed || !runs || owns(&self.nodes[node]) || self.nodes[node].image.is_none() {
            self.nodes[node].image = None;
            return;
        }
        self.nodes[node].comes_back_old = true;
        for node in 0..self.nodes.len() {
            self.crash(node);
            let after = DARK + self.chance.time(Duration::from_millis(1500));
            let over = Fault::Crash {
                node,
                lasts: DARK,
                is_certified: false,
            };
            self.at(after, Happening::Over(over));
        }
    }

    /// Before its process starts. Only one of several copies in sync can be lost like that; and it is not the owner's,
    /// whose changes of the key may leave it as the only one.
    pub(super) fn restore(&mut self, node: usize) {
        if !std::mem::take(&mut self.nodes[node].comes_back_old) {
            return;
        }
        let Some(image) = self.nodes[node].image.take() else {
            return;
        };
        let key = &self.seen.key;
        let others = key.in_sync.without(position(node));
        let is_owner = key.owner.node == self.nodes[node].config.node;
        let is_alone = others.is_empty() || others.iter().any(|one| self.nodes[one.index()].is_old);
        if is_alone || is_owner {
            return;
        }
        self.say(|| format!("node {node} comes back with an old image"));
        self.summary.old_images += 1;
        let one = &mut self.nodes[node];
        let version = one.store.version();
        one.store = image;
        // It was full then, and what would end that has gone by.
        one.store.set_full(false);
        one.is_old = true;
        if let Err(why) = one.store.crash(&mut self.chance) {
            one.trouble = Some(format!("node {node}: {why}"));
        }
        one.store.count_from(version + 1);
    }
}
