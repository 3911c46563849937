use super::BlockIndex;

/// No node.
const NONE: u32 = u32::MAX;

/// A node of a list in a [`Slab`].
#[derive(Clone, Copy, Debug)]
struct Node {
    block: BlockIndex,
    /// Towards the oldest.
    older: u32,
    /// Towards the youngest.
    younger: u32,
}

/// Nodes of several lists.
#[derive(Debug, Default)]
pub(super) struct Slab {
    nodes: Vec<Node>,
    free: Vec<u32>,
}

/// A list, oldest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    oldest: u32,
    youngest: u32,
    len: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            oldest: NONE,
            youngest: NONE,
            len: 0,
        }
    }
}

impl Slab {
    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.free.capacity() * 4
    }

    /// The block of a node.
    pub(super) fn block(&self, node: u32) -> Option<BlockIndex> {
        self.nodes.get(node as usize).map(|node| node.block)
    }

    fn set_older(&mut self, node: u32, older: u32) {
        if let Some(node) = self.nodes.get_mut(node as usize) {
            node.older = older;
        }
    }

    fn set_younger(&mut self, node: u32, younger: u32) {
        if let Some(node) = self.nodes.get_mut(node as usize) {
            node.younger = younger;
        }
    }

    /// Puts a block at the young end; its node.
    pub(super) fn push(&mut self, queue: &mut Queue, block: BlockIndex) -> u32 {
        let node = Node {
            block,
            older: queue.youngest,
            younger: NONE,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        match queue.youngest {
            NONE => queue.oldest = at,
            youngest => self.set_younger(youngest, at),
        }
        queue.youngest = at;
        queue.len += 1;
        at
    }

    /// Takes a node out of its list.
    pub(super) fn remove(&mut self, queue: &mut Queue, at: u32) {
        let Some(&Node { older, younger, .. }) = self.nodes.get(at as usize) else {
            return;
        };
        match older {
            NONE => queue.oldest = younger,
            older => self.set_younger(older, younger),
        }
        match younger {
            NONE => queue.youngest = older,
            younger => self.set_older(younger, older),
        }
        queue.len -= 1;
        self.free.push(at);
    }
}

impl Slab {
    /// Blocks of a list, oldest first.
    pub(super) fn oldest_first(&self, queue: &Queue) -> impl Iterator<Item = BlockIndex> {
        let mut at = queue.oldest();
        std::iter::from_fn(move || {
            let node = self.nodes.get(at? as usize)?;
            at = (node.younger != NONE).then_some(node.younger);
            Some(node.block)
        })
    }
}

impl Queue {
    /// The oldest node.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// How many nodes it has.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}
