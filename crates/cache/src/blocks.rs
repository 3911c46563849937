//! The size of blocks that hosts must see, by what a device holds.

use ashlar_block::BlockSize;

/// Where an ext file system begins to describe itself.
const EXT: usize = 1024;

/// The largest blocks in which what begins like this can be used: a file system that was made on a disk with sectors
/// of 512 bytes is not mounted where sectors are larger.
pub fn blocks_for(head: &[u8]) -> BlockSize {
    let is_small = xfs_sector(head).is_some_and(|bytes| bytes < 4096)
        || ext_block(head).is_some_and(|bytes| bytes < 4096)
        || has(head, 510, &[0x55, 0xaa])
        || (0..4).any(|sector| has(head, sector * 512, b"LABELONE"));
    match is_small {
        true => BlockSize::B512,
        false => BlockSize::B4096,
    }
}

fn has(head: &[u8], at: usize, bytes: &[u8]) -> bool {
    head.get(at..at + bytes.len()) == Some(bytes)
}

fn xfs_sector(head: &[u8]) -> Option<u32> {
    let &[high, low] = head.get(102..104)? else {
        return None;
    };
    has(head, 0, b"XFSB").then(|| u32::from(u16::from_be_bytes([high, low])))
}

fn ext_block(head: &[u8]) -> Option<u32> {
    let &log = head.get(EXT + 24)?;
    has(head, EXT + 56, &[0x53, 0xef]).then(|| 1024 << log.min(20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(put: &[(usize, &[u8])]) -> BlockSize {
        let mut head = vec![0; 128 << 10];
        for (at, bytes) in put {
            head[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        blocks_for(&head)
    }

    #[test]
    fn what_was_made_on_small_sectors_keeps_them() {
        let (small, large) = (BlockSize::B512, BlockSize::B4096);
        assert_eq!(head(&[]), large);
        assert_eq!(head(&[(0, b"XFSB"), (102, &[2, 0])]), small);
        assert_eq!(head(&[(0, b"XFSB"), (102, &[16, 0])]), large);
        let ext: (usize, &[u8]) = (EXT + 56, &[0x53, 0xef]);
        assert_eq!(head(&[ext]), small);
        assert_eq!(head(&[ext, (EXT + 24, &[2])]), large);
        assert_eq!(head(&[(510, &[0x55, 0xaa])]), small);
        assert_eq!(head(&[(512, b"LABELONE")]), small);
        assert_eq!(blocks_for(&[]), large);
    }
}
