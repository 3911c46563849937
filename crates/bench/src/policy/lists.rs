use std::collections::HashMap;

const NONE: u32 = u32::MAX;

/// Which list of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List(pub(super) usize);

#[derive(Clone, Copy)]
struct Node {
    block: u32,
    list: List,
    older: u32,
    younger: u32,
}

#[derive(Clone, Copy)]
struct Ends {
    oldest: u32,
    youngest: u32,
    len: usize,
}

/// Blocks in several lists, oldest first; each block is in one of them at most.
pub(super) struct Lists {
    nodes: Vec<Node>,
    free: Vec<u32>,
    places: HashMap<u32, u32>,
    ends: Vec<Ends>,
}

impl Lists {
    pub(super) fn new(lists: usize) -> Self {
        let empty = Ends {
            oldest: NONE,
            youngest: NONE,
            len: 0,
        };
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            places: HashMap::new(),
            ends: vec![empty; lists],
        }
    }

    /// The list that has a block.
    pub(super) fn of(&self, block: u32) -> Option<List> {
        let at = *self.places.get(&block)?;
        Some(self.nodes[at as usize].list)
    }

    pub(super) fn len(&self, list: List) -> usize {
        self.ends[list.0].len
    }

    pub(super) fn oldest(&self, list: List) -> Option<u32> {
        let at = self.ends[list.0].oldest;
        (at != NONE).then(|| self.nodes[at as usize].block)
    }

    /// Puts a block at the young end of a list, wherever it was.
    pub(super) fn push(&mut self, list: List, block: u32) {
        self.remove(block);
        let ends = &mut self.ends[list.0];
        let node = Node {
            block,
            list,
            older: ends.youngest,
            younger: NONE,
        };
        let at = self.free.pop().unwrap_or(self.nodes.len() as u32);
        match self.nodes.get_mut(at as usize) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        match ends.youngest {
            NONE => ends.oldest = at,
            youngest => self.nodes[youngest as usize].younger = at,
        }
        ends.youngest = at;
        ends.len += 1;
        self.places.insert(block, at);
    }

    pub(super) fn remove(&mut self, block: u32) {
        let Some(at) = self.places.remove(&block) else {
            return;
        };
        let node = self.nodes[at as usize];
        let ends = &mut self.ends[node.list.0];
        ends.len -= 1;
        match node.older {
            NONE => ends.oldest = node.younger,
            older => self.nodes[older as usize].younger = node.younger,
        }
        match node.younger {
            NONE => ends.youngest = node.older,
            younger => self.nodes[younger as usize].older = node.older,
        }
        self.free.push(at);
    }

    /// Takes the oldest block out of a list.
    pub(super) fn pop(&mut self, list: List) -> Option<u32> {
        let block = self.oldest(list)?;
        self.remove(block);
        Some(block)
    }
}
