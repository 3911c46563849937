use uuid::Uuid;

use super::{FormatError, Salt};
use crate::Sizes;

/// What a drive is good at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DriveClass {
    /// NVMe flash.
    Nvme,
    /// SATA or SAS flash.
    Ssd,
    /// A disk that seeks.
    Hdd,
}

/// Who a drive is: written twice when it joins a pool, and never changed but for a pool's rename.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Features a reader must know to read (bit set); this version knows none.
    pub incompatible: u64,
    /// The pool.
    pub pool: Uuid,
    /// The pool's name, 1 to 64 bytes of letters, digits, `-`, `_`, `.`.
    pub pool_name: String,
    /// The drive.
    pub drive: Uuid,
    /// Its place among the pool's members.
    pub index: u16,
    /// Its class.
    pub class: DriveClass,
    /// Bytes of it that the pool uses.
    pub bytes: u64,
    /// Seed of every checksum in the pool: users write bytes of the rings, and must not be able to
    /// forge a batch.
    pub salt: Salt,
    /// The pool's units.
    pub sizes: Sizes,
}

impl Label {
    /// 4,096 bytes.
    pub fn encode(&self) -> Vec<u8> {
        unimplemented!()
    }

    /// Reads a label; `Ok(None)` when the bytes are no label of ours at all (another magic).
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, FormatError> {
        unimplemented!()
    }
}
