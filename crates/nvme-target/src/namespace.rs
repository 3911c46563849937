use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ashlar_block::{BlockRange, BlockSize, Geometry};
use uuid::Uuid;

use crate::config::NamespaceConfig;
use crate::path::Path;
use crate::reservation::Guard;

/// A namespace as hosts see it. Its size may change while they do.
pub(crate) struct Namespace {
    pub(crate) nsid: u32,
    pub(crate) uuid: Uuid,
    /// Number of its device on every core.
    pub(crate) device: usize,
    block_size: BlockSize,
    /// Apart from the rest of the geometry: every command looks at it, on every core.
    blocks: AtomicU64,
    geometry: Mutex<Geometry>,
    /// How it is reached here.
    pub(crate) path: Path,
    /// Who may read and write it; `None` if hosts cannot reserve it.
    pub(crate) guard: Option<Guard>,
}

impl Namespace {
    pub(crate) fn new(nsid: u32, config: &NamespaceConfig, device: usize, path: Path) -> Self {
        Self {
            nsid,
            uuid: config.uuid,
            device,
            block_size: config.geometry.block_size,
            blocks: AtomicU64::new(config.geometry.blocks),
            geometry: Mutex::new(config.geometry),
            path,
            guard: config.reservations.clone().map(Guard::new),
        }
    }

    pub(crate) fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Its shape and promises now.
    pub(crate) fn geometry(&self) -> Geometry {
        *self.geometry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its shape from now on; the block size stays.
    pub(crate) fn reshape(&self, geometry: Geometry) {
        *self.geometry.lock().unwrap_or_else(PoisonError::into_inner) = geometry;
        self.blocks.store(geometry.blocks, Ordering::Relaxed);
    }

    /// Whether the range lies inside. A resize may come right behind the answer: the device has
    /// the last word.
    pub(crate) fn contains(&self, range: BlockRange) -> bool {
        let blocks = self.blocks.load(Ordering::Relaxed);
        range.end().is_some_and(|end| end <= blocks)
    }

    /// Bytes of so many blocks.
    pub(crate) fn bytes_of(&self, blocks: u32) -> usize {
        (blocks as usize) << self.block_size.shift()
    }
}
