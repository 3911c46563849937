//! RAID-0: blocks spread over several devices, in place, without redundancy.
//!
//! `layout` says where blocks are; `queue` splits requests and joins their buffers again.

mod layout;
mod queue;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ashlar_block::{BlockDevice, Description, Geometry, IoError};
use ashlar_reactor::{Handle, Opener};

use crate::{OpenError, SizeText};
use layout::Layout;

/// Bytes on one device before the next one's turn, unless said otherwise: what mdraid and the
/// published comparisons use.
pub const DEFAULT_CHUNK_BYTES: u64 = 64 << 10;

/// Several devices as one, as large as the smallest times their number.
///
/// Every device that fails takes the whole with it. What the devices hold is used in place: no
/// label, no checksum. After a flush failed on any of them, the stripe refuses everything.
pub struct Stripe {
    children: Vec<Arc<dyn Opener>>,
    layout: Layout,
    geometry: Geometry,
    latched: Arc<AtomicBool>,
}

impl Stripe {
    /// A stripe over `children` in chunks of `chunk_bytes`.
    ///
    /// # Errors
    /// No devices, devices of different block sizes, a chunk that is not whole blocks, or devices
    /// smaller than a chunk.
    pub fn new(children: Vec<Arc<dyn Opener>>, chunk_bytes: u64) -> Result<Arc<Self>, OpenError> {
        let shapes: Vec<Geometry> = children.iter().map(|child| child.geometry()).collect();
        let Some(first) = shapes.first() else {
            return Err(OpenError::usage("stripe", "needs at least one device"));
        };
        if let Some(other) = shapes.iter().find(|g| g.block_size != first.block_size) {
            let why = format!(
                "its devices have blocks of {} and of {} bytes",
                first.block_size, other.block_size
            );
            return Err(OpenError::usage("stripe", why));
        }
        let chunk = chunk_blocks(chunk_bytes, first)?;
        let smallest = shapes.iter().map(|g| g.blocks).min().unwrap_or(0);
        let rows = smallest / chunk;
        if rows == 0 {
            let why = format!(
                "one of its devices is smaller than a chunk of {}",
                SizeText(chunk_bytes)
            );
            return Err(OpenError::usage("stripe", why));
        }
        let layout = Layout {
            chunk,
            children: shapes.len() as u64,
        };
        let geometry = combine(&shapes, first, chunk, rows);
        Ok(Arc::new(Self {
            children,
            layout,
            geometry,
            latched: Arc::default(),
        }))
    }
}

fn chunk_blocks(chunk_bytes: u64, geometry: &Geometry) -> Result<u64, OpenError> {
    let block = u64::from(geometry.block_size.bytes());
    if chunk_bytes == 0 || !chunk_bytes.is_multiple_of(block) || chunk_bytes > 1 << 30 {
        let why = format!("is not a multiple of the block size of {block} bytes up to 1 GiB");
        return Err(OpenError::usage(
            format!("stripe chunk of {}", SizeText(chunk_bytes)),
            why,
        ));
    }
    Ok(chunk_bytes / block)
}

fn combine(shapes: &[Geometry], first: &Geometry, chunk: u64, rows: u64) -> Geometry {
    let least = |of: fn(&Geometry) -> u32| shapes.iter().map(of).min().unwrap_or(1).max(1);
    // An aligned write must stay inside one chunk and be aligned on its device too.
    let atomic = least(|g| g.atomic_blocks);
    let power = 1u32 << (31 - atomic.leading_zeros());
    let chunk_power = 1u64 << chunk.trailing_zeros().min(31);
    Geometry {
        block_size: first.block_size,
        blocks: rows * chunk * shapes.len() as u64,
        atomic_blocks: power.min(chunk_power as u32),
        max_blocks: least(|g| g.max_blocks),
        optimal_blocks: shapes.iter().map(|g| g.optimal_blocks).max().unwrap_or(1),
        volatile_cache: shapes.iter().any(|g| g.volatile_cache),
        deallocates: shapes.iter().any(|g| g.deallocates),
    }
}

fn title(geometry: &Geometry, layout: Layout) -> String {
    let chunk = layout.chunk << geometry.block_size.shift();
    format!(
        "stripe of {}, {}, chunks of {}",
        layout.children,
        SizeText(geometry.bytes()),
        SizeText(chunk)
    )
}

impl Opener for Stripe {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn open(&self, reactor: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
        let children: Result<Vec<_>, _> = self
            .children
            .iter()
            .map(|child| child.open(reactor))
            .collect();
        Ok(Box::new(queue::StripeQueue::new(self, children?)))
    }

    fn describe(&self) -> Description {
        let below = self.children.iter().map(|child| child.describe()).collect();
        Description::over(title(&self.geometry, self.layout), below)
    }

    fn names(&self) -> Vec<String> {
        self.children
            .iter()
            .flat_map(|child| child.names())
            .collect()
    }
}
