use std::fmt;

/// Seed of a pool's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Salt(pub u32);

impl Salt {
    /// CRC-32C of `bytes` under this seed, never 0 (0 becomes `FFFFFFFF`): in maps, 0 stands for
    /// "reads as zeroes".
    pub fn crc(self, bytes: &[u8]) -> u32 {
        match crc32c::crc32c_append(self.0, bytes) {
            0 => u32::MAX,
            crc => crc,
        }
    }
}

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
        write!(f, "damaged {}: {}", self.what, self.why)
    }
}

impl std::error::Error for FormatError {}
