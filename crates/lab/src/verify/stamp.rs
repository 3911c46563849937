//! The stamp, byte by byte (little endian), in every logical block:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic `ASHLRLAB` |
//! | 8 | 8 | run: a number that tells this run's blocks from any other's |
//! | 16 | 8 | logical block address |
//! | 24 | 8 | generation: the number of the write, from 1 |
//! | 32 | 4 | CRC-32C of the block with these four bytes zero |
//! | 36 | 4 | zero |
//! | n x 512 + 504 | 8 | generation again, at the end of each 512-byte sector |
//!
//! The rest is random. The generation in each sector shows which sectors of a torn block are new.

const MAGIC: [u8; 8] = *b"ASHLRLAB";
const CRC_AT: usize = 32;
const HEADER: usize = 40;
const SECTOR: usize = 512;
const TAIL_AT: usize = SECTOR - 8;
const _: () = assert!(HEADER <= TAIL_AT);

/// Who wrote a block, where, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) run: u64,
    pub(super) lba: u64,
    pub(super) generation: u64,
}

/// What a block turns out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The checksum holds.
    Intact(Stamp),
    /// Nothing but zeroes.
    Zeroes,
    /// The checksum does not hold, and its sectors are of different generations.
    Mixed {
        /// Smallest generation among its sectors.
        oldest: u64,
        newest: u64,
    },
    /// The checksum does not hold.
    Damaged(Stamp),
    /// No stamp.
    Unstamped,
}

impl Stamp {
    /// Writes the stamp into `block` (512 or 4096 bytes).
    pub(super) fn put(self, block: &mut [u8]) {
        put_u64(block, 0, u64::from_le_bytes(MAGIC));
        put_u64(block, 8, self.run);
        put_u64(block, 16, self.lba);
        put_u64(block, 24, self.generation);
        put_u64(block, CRC_AT, 0);
        for tail in (TAIL_AT..block.len()).step_by(SECTOR) {
            put_u64(block, tail, self.generation);
        }
        let crc = crc32c::crc32c(block);
        block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// The stamp that `block` must be intact with, compared the fast way.
pub(super) fn inspect(block: &[u8]) -> Found {
    let stamp = Stamp {
        run: get_u64(block, 8),
        lba: get_u64(block, 16),
        generation: get_u64(block, 24),
    };
    let stamped = block.starts_with(&MAGIC);
    if stamped && checksum_holds(block) {
        return Found::Intact(stamp);
    }
    if block.iter().all(|&byte| byte == 0) {
        return Found::Zeroes;
    }
    let tails = (TAIL_AT..block.len())
        .step_by(SECTOR)
        .map(|at| get_u64(block, at));
    let head = if stamped { stamp.generation } else { 0 };
    let oldest = tails.clone().fold(head, u64::min);
    let newest = tails.fold(head, u64::max);
    match stamped {
        _ if oldest != newest => Found::Mixed { oldest, newest },
        true => Found::Damaged(stamp),
        false => Found::Unstamped,
    }
}

fn checksum_holds(block: &[u8]) -> bool {
    let crc = crc32c::crc32c(&block[..CRC_AT]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    let crc = crc32c::crc32c_append(crc, &block[CRC_AT + 4..]);
    block[CRC_AT..CRC_AT + 4] == crc.to_le_bytes()
}

fn put_u64(block: &mut [u8], at: usize, value: u64) {
    block[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn get_u64(block: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&block[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamped(generation: u64, len: usize) -> Vec<u8> {
        let mut block = vec![0xA5; len];
        Stamp {
            run: 9,
            lba: 77,
            generation,
        }
        .put(&mut block);
        block
    }

    #[test]
    fn a_stamp_comes_back_and_any_flipped_bit_shows() {
        for len in [512, 4096] {
            let block = stamped(3, len);
            assert_eq!(
                inspect(&block),
                Found::Intact(Stamp {
                    run: 9,
                    lba: 77,
                    generation: 3
                })
            );
            for at in [0, 9, 17, 25, 33, 39, 41, len / 2, len - 1] {
                let mut bad = block.clone();
                bad[at] ^= 0x10;
                assert!(
                    !matches!(inspect(&bad), Found::Intact(_)),
                    "byte {at} of {len}"
                );
            }
        }
    }

    #[test]
    fn torn_empty_and_strange_blocks_are_told_apart() {
        let (old, new) = (stamped(3, 4096), stamped(8, 4096));
        let mut torn = new.clone();
        torn[1024..].copy_from_slice(&old[1024..]);
        assert_eq!(
            inspect(&torn),
            Found::Mixed {
                oldest: 3,
                newest: 8
            }
        );
        let mut half = vec![0; 4096];
        half[2048..].copy_from_slice(&new[2048..]);
        assert_eq!(
            inspect(&half),
            Found::Mixed {
                oldest: 0,
                newest: 8
            }
        );
        assert_eq!(inspect(&[0; 4096]), Found::Zeroes);
        let mut damaged = new.clone();
        damaged[100] ^= 1;
        assert!(matches!(inspect(&damaged), Found::Damaged(s) if s.generation == 8));
        let mut unstamped = vec![7; 512];
        unstamped[504..].fill(0);
        assert_eq!(inspect(&unstamped), Found::Unstamped);
    }
}
