//! What blocks hold: every 16 bytes name the write and the block, so that lost, stale, torn and
//! misplaced data are told apart.

/// What a block that was never written, or zeroed, holds.
pub(crate) const ZERO: u64 = 0;

/// Fills whole blocks from `lba` on with the content of write `value`.
pub(crate) fn fill(bytes: &mut [u8], block: usize, lba: u64, value: u64) {
    for (index, block) in bytes.chunks_mut(block).enumerate() {
        let mut unit = [0; 16];
        if value != ZERO {
            unit[..8].copy_from_slice(&value.to_le_bytes());
            unit[8..].copy_from_slice(&(lba + index as u64).to_le_bytes());
        }
        // Doubling copies: a loop over units is slow without optimisation.
        let Some(first) = block.get_mut(..16) else {
            return;
        };
        first.copy_from_slice(&unit);
        let mut have = 16;
        while have < block.len() {
            let (done, rest) = block.split_at_mut(have);
            let more = done.len().min(rest.len());
            rest[..more].copy_from_slice(&done[..more]);
            have += more;
        }
    }
}

/// Which write a block's content is of.
pub(crate) fn read(block: &[u8], lba: u64) -> Result<u64, String> {
    let word = |at: usize| {
        let bytes = block.get(at..at + 8).and_then(|b| b.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    let (value, at) = (word(0), word(8));
    let uniform = block[..block.len() - 16] == block[16..];
    if !uniform {
        let last = word(block.len() - 16);
        return Err(format!(
            "torn: begins as write {value}, ends as write {last}"
        ));
    }
    if value != ZERO && at != lba {
        return Err(format!("misplaced: write {value} of LBA {at}"));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_tells_what_it_is() {
        let mut bytes = vec![7; 1024];
        fill(&mut bytes, 512, 40, 3);
        assert_eq!(read(&bytes[..512], 40), Ok(3));
        assert_eq!(read(&bytes[512..], 41), Ok(3));
        assert!(read(&bytes[512..], 40).is_err_and(|e| e.contains("misplaced")));
        fill(&mut bytes[16..512], 496, 40, 4);
        assert!(read(&bytes[..512], 40).is_err_and(|e| e.contains("torn")));
        fill(&mut bytes, 512, 40, ZERO);
        assert_eq!(read(&bytes[..512], 9), Ok(ZERO));
    }
}
