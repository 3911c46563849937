use std::sync::Arc;

use ashlar_block::{
    BlockDevice, BlockSize, Completion, Description, Geometry, IoError, Moment, Operation, Request,
};
use ashlar_reactor::{Handle, Opener};

use crate::size::geometry;
use crate::{OpenError, SizeText};

/// What a null device's reads give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NullReads {
    /// Zeroes. The only choice that may be served to others.
    #[default]
    Zeroes,
    /// Whatever the buffer held: costs nothing at all, and leaks what earlier requests carried.
    Untouched,
}

/// A device without content: writes vanish. What is measured on it is whatever stands above.
pub struct Null {
    geometry: Geometry,
    reads: NullReads,
}

impl Null {
    /// A device that claims to have `bytes`.
    ///
    /// # Errors
    /// The size is not a whole number of blocks.
    pub fn new(
        bytes: u64,
        block_size: BlockSize,
        reads: NullReads,
    ) -> Result<Arc<Self>, OpenError> {
        let geometry = Geometry {
            deallocates: true,
            ..geometry("null", bytes, block_size)?
        };
        Ok(Arc::new(Self { geometry, reads }))
    }
}

impl Opener for Null {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn open(&self, _reactor: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
        Ok(Box::new(NullQueue {
            geometry: self.geometry,
            reads: self.reads,
            done: Vec::new(),
        }))
    }

    fn describe(&self) -> Description {
        describe(&self.geometry)
    }
}

fn describe(geometry: &Geometry) -> Description {
    Description::leaf(format!(
        "null, {}, {}-byte blocks",
        SizeText(geometry.bytes()),
        geometry.block_size
    ))
}

struct NullQueue {
    geometry: Geometry,
    reads: NullReads,
    done: Vec<Completion>,
}

impl BlockDevice for NullQueue {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, mut request: Request) {
        if let (Operation::Read, NullReads::Zeroes, Some(buffer)) =
            (request.op, self.reads, &mut request.buffer)
        {
            buffer.fill(0);
        }
        self.done.push(request.complete(Ok(())));
    }

    fn poll(&mut self, _now: Moment, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }

    fn describe(&self) -> Description {
        describe(&self.geometry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use ashlar_block::{BlockRange, Durability};

    #[test]
    fn writes_vanish_and_reads_leak_nothing() {
        let null = Null::new(1 << 40, BlockSize::B4096, NullReads::Zeroes).expect("null");
        let mut bench = Bench::open(&*null);
        let range = BlockRange::new((1 << 28) - 2, 2);
        bench
            .write(range, 0xEE, Durability::Durable)
            .expect("write");
        assert!(bench.read(range).expect("read").iter().all(|&b| b == 0));
        bench.flush().expect("flush");
        assert_eq!(null.describe().to_string(), "null, 1 TiB, 4096-byte blocks");
    }
}
