//! What a volume may hold: by block, the write that was acknowledged last, and those after it whose
//! end was not seen.

use crate::host::BLOCK;

/// The number of a write; 0 is what was never written, or deallocated.
pub type Seq = u64;

/// The bytes of one block of a write.
pub fn fill(block: u64, seq: Seq, into: &mut [u8]) {
    if seq == 0 {
        return into.fill(0);
    }
    let mut word =
        block.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seq.wrapping_mul(0xd6e8_feb8_6659_fd93);
    for (i, bytes) in into.chunks_exact_mut(8).enumerate() {
        let value = match i {
            0 => seq,
            1 => block,
            _ => {
                word = word.rotate_left(23).wrapping_add(0xa076_1d64_78bd_642f);
                word
            }
        };
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

/// The write that a block is of.
pub fn read_back(block: u64, bytes: &[u8]) -> Result<Seq, String> {
    let word = |i: usize| {
        bytes[i * 8..][..8]
            .iter()
            .rev()
            .fold(0, |n, &b| n << 8 | u64::from(b))
    };
    let seq = word(0);
    let mut expected = [0; BLOCK];
    fill(block, seq, &mut expected);
    if bytes == expected {
        return Ok(seq);
    }
    let wrong = bytes.iter().zip(&expected).filter(|(a, b)| a != b).count();
    Err(format!(
        "block {block} holds nothing that was ever written there: it begins with {:#x} {:#x}, \
         {wrong} bytes are not of write {seq}",
        word(0),
        word(1)
    ))
}

#[derive(Clone, Default)]
struct Block {
    acknowledged: Seq,
    /// May be there instead.
    maybe: Vec<Seq>,
}

/// A write that ended unseen.
struct Unseen {
    at: u64,
    blocks: u64,
    seq: Seq,
}

/// The part of a volume that one writer has for itself.
pub struct Ledger {
    pub first: u64,
    blocks: Vec<Block>,
    unseen: Vec<Unseen>,
    last: Seq,
    pub acknowledged: u64,
}

impl Ledger {
    /// `salt` makes this ledger's numbers differ from others'.
    pub fn new(first: u64, blocks: u64, salt: u64) -> Self {
        Self {
            first,
            blocks: vec![Block::default(); blocks as usize],
            unseen: Vec::new(),
            last: salt << 40,
            acknowledged: 0,
        }
    }

    pub fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    fn block(&mut self, block: u64) -> &mut Block {
        &mut self.blocks[(block - self.first) as usize]
    }

    /// A number for a new write.
    pub fn number(&mut self) -> Seq {
        self.last += 1;
        self.last
    }

    /// From now on these blocks may hold `seq`.
    pub fn begin(&mut self, at: u64, blocks: u64, seq: Seq) {
        (at..at + blocks).for_each(|block| self.block(block).maybe.push(seq));
    }

    /// From now on they hold nothing else.
    pub fn acknowledge(&mut self, at: u64, blocks: u64, seq: Seq) {
        self.acknowledged += 1;
        for block in at..at + blocks {
            let block = self.block(block);
            block.acknowledged = seq;
            block.maybe.clear();
        }
    }

    /// How this one ended is not known.
    pub fn lose(&mut self, at: u64, blocks: u64, seq: Seq) {
        self.unseen.push(Unseen { at, blocks, seq });
    }

    /// What each of these blocks may hold now.
    pub fn allowed(&self, at: u64, blocks: u64) -> Vec<Vec<Seq>> {
        let from = (at - self.first) as usize;
        let all = self.blocks[from..from + blocks as usize].iter();
        all.map(|block| [&[block.acknowledged], &block.maybe[..]].concat())
            .collect()
    }

    /// What a read must not have found.
    pub fn check(at: u64, data: &[u8], allowed: &[Vec<Seq>]) -> Result<Vec<Seq>, String> {
        if data.len() != allowed.len() * BLOCK {
            return Err(format!(
                "a read of {} blocks gave {} bytes",
                allowed.len(),
                data.len()
            ));
        }
        let blocks = data.chunks_exact(BLOCK).zip(allowed).zip(at..);
        let found = blocks.map(|((bytes, allowed), block)| {
            let seq = read_back(block, bytes)?;
            if allowed.contains(&seq) {
                return Ok(seq);
            }
            Err(format!(
                "block {block} holds write {seq:#x}, and may hold {allowed:#x?}"
            ))
        });
        found.collect()
    }

    /// What is there after a restart, when nothing is on its way: from now on it stays.
    pub fn settle(&mut self, found: &[Seq], atomic_blocks: u64) -> Result<(), String> {
        for write in std::mem::take(&mut self.unseen) {
            let from = (write.at - self.first) as usize;
            let is = |seq: &&Seq| **seq == write.seq;
            let there = found[from..from + write.blocks as usize]
                .iter()
                .filter(is)
                .count() as u64;
            let aligned = write.at % write.blocks == 0 && write.blocks <= atomic_blocks;
            if write.seq != 0 && aligned && there != 0 && there != write.blocks {
                return Err(format!(
                    "of a write of {} blocks at {} (number {:#x}) {there} are there",
                    write.blocks, write.at, write.seq
                ));
            }
        }
        for (block, &seq) in self.blocks.iter_mut().zip(found) {
            block.acknowledged = seq;
            block.maybe.clear();
        }
        Ok(())
    }
}
