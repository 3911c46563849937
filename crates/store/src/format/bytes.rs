use std::fmt;

use crc_fast::{CrcAlgorithm, Digest};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Seed of a pool's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Salt(pub u32);

impl Salt {
    /// CRC-32C of `bytes` under this seed, never 0 (0 becomes `FFFFFFFF`): in maps, 0 stands for
    /// "reads as zeroes".
    pub fn crc(self, bytes: &[u8]) -> u32 {
        match append(self.0, bytes) {
            0 => u32::MAX,
            crc => crc,
        }
    }

    /// [`Salt::crc`] of `bytes` with the four bytes at `at`, where the checksum itself is kept,
    /// counted as zeroes. `at + 4` must be within `bytes`.
    pub(super) fn crc_around(self, bytes: &[u8], at: usize) -> u32 {
        let before = append(self.0, &bytes[..at]);
        let field = append(before, &[0; 4]);
        Salt(field).crc(&bytes[at + 4..])
    }

    /// Writes [`Salt::crc_around`] to where it belongs, and returns it.
    pub(super) fn seal(self, bytes: &mut [u8], at: usize) -> u32 {
        let crc = self.crc_around(bytes, at);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        crc
    }
}

/// CRC-32C of what `crc` is of, and `bytes` behind it. Folded 512 bits at a time where the processor can, for
/// it is taken of all that is read and written: half the time that the CRC instructions take.
pub(super) fn append(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    digest.finalize() as u32
}

/// One above every counter that is accepted from a disk (terms, numbers, sequences, positions), so
/// that adding to one cannot overflow. No pool lives to see it.
pub const COUNTER_LIMIT: u64 = 1 << 63;

/// Why bytes are not the structure they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// Which structure: "label", "root", ….
    pub what: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unusable {}: {}", self.what, self.why)
    }
}

impl std::error::Error for FormatError {}

/// A structure's decoder: what it reads, by the name that its refusals carry.
pub(super) struct Reader<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes }
    }

    /// The next structure.
    pub(super) fn take<T>(&mut self) -> Result<&'a T, FormatError>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let (taken, rest) = T::ref_from_prefix(self.rest).map_err(|_| self.too_short())?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `count` structures; refused before anything is allocated when they are not there.
    pub(super) fn take_all<T>(&mut self, count: usize) -> Result<&'a [T], FormatError>
    where
        T: FromBytes + Immutable + Unaligned,
    {
        let (taken, rest) =
            <[T]>::ref_from_prefix_with_elems(self.rest, count).map_err(|_| self.too_short())?;
        self.rest = rest;
        Ok(taken)
    }

    /// Bytes not read yet.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// What is left must be padding.
    pub(super) fn finish(self) -> Result<(), FormatError> {
        zeroes(self.what, "padding", self.rest)
    }

    fn too_short(&self) -> FormatError {
        FormatError::new(self.what, "too short")
    }
}

impl FormatError {
    pub(super) fn new(what: &'static str, why: impl Into<String>) -> Self {
        Self {
            what,
            why: why.into(),
        }
    }
}

/// Refuses `what` unless `holds`.
pub(super) fn ensure(holds: bool, what: &'static str, why: &str) -> Result<(), FormatError> {
    if holds {
        Ok(())
    } else {
        Err(FormatError::new(what, why))
    }
}

/// Refuses `what` when the `part` of it that this version keeps at zero is not.
pub(super) fn zeroes(what: &'static str, part: &str, bytes: &[u8]) -> Result<(), FormatError> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    Err(FormatError::new(what, format!("its {part} must be zero")))
}

/// Refuses a counter at or above [`COUNTER_LIMIT`].
pub(super) fn counter(what: &'static str, name: &str, value: u64) -> Result<(), FormatError> {
    if value < COUNTER_LIMIT {
        return Ok(());
    }
    Err(FormatError::new(
        what,
        format!("its {name} {value} is out of bounds"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum is a format: whatever computes it, of whatever length and from wherever in memory.
    #[test]
    fn checksums_are_crc_32c() {
        let bytes: Vec<u8> = (0..5000_u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        let lengths = (0..600).chain([1023, 4092, 4096, 4900]);
        for length in lengths {
            for seed in [0, 1, 0xdead_beef, u32::MAX] {
                let piece = &bytes[length % 67..][..length];
                let expected = crc32c::crc32c_append(seed, piece);
                assert_eq!(append(seed, piece), expected, "{length} bytes, seed {seed}");
            }
        }
    }
}
