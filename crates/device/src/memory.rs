use std::collections::VecDeque;
use std::sync::Arc;

use ashlar_block::{
    BlockDevice, BlockSize, Completion, Description, Geometry, IoError, Moment, Operation, Request,
};
use ashlar_reactor::{Handle, Opener};
use rustix::system::sysinfo;

use crate::pages::{Pages, SHARD_BYTES};
use crate::size::geometry;
use crate::{OpenError, SizeText};

/// Most bytes zeroed in one `poll`, so that a deallocate of everything does not hold up the core.
const ZERO_STEP_BYTES: u64 = 16 << 20;
/// Bytes populated at a time, so that a dropped device stops the work soon.
const POPULATE_BYTES: usize = 8 << 20;

/// A device in this process's memory, lost with the process.
///
/// Claims no volatile cache: a flush could not make its content any more durable, and hosts that
/// are told of a cache would send flushes for nothing. Takes its memory soon after it is made; deallocated
/// ranges read as zeroes.
pub struct Memory {
    geometry: Geometry,
    pages: Arc<Pages>,
}

impl Memory {
    /// A device of `bytes`, reading as zeroes.
    ///
    /// # Errors
    /// The size is not a whole number of blocks, or exceeds the machine's memory.
    pub fn new(bytes: u64, block_size: BlockSize) -> Result<Arc<Self>, OpenError> {
        let geometry = Geometry {
            deallocates: true,
            // Aligned writes of up to a shard are copied under one lock.
            atomic_blocks: SHARD_BYTES as u32 >> block_size.shift(),
            ..geometry("memory", bytes, block_size)?
        };
        let refuse =
            |why: String| OpenError::environment(format!("memory:{}", compact(bytes)), why);
        let info = sysinfo();
        let installed = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)));
        let bytes = match usize::try_from(bytes) {
            Ok(size) if bytes <= installed => size,
            _ => {
                let text = SizeText(installed >> 20 << 20);
                return Err(refuse(format!("this machine has {text} of memory")));
            }
        };
        let pages = Pages::new(bytes).map_err(|e| refuse("no memory".into()).with_source(e))?;
        let pages = Arc::new(pages);
        populate_behind(&pages, bytes);
        Ok(Arc::new(Self { geometry, pages }))
    }
}

/// Touches the memory in the background. A first touch costs a page fault, and in a virtual machine
/// often another one outside: milliseconds, which a measurement would take for the network's. It is
/// not waited for, and failing changes nothing but speed.
fn populate_behind(pages: &Arc<Pages>, bytes: usize) {
    let pages = Arc::downgrade(pages);
    let touch = move || {
        for offset in (0..bytes).step_by(POPULATE_BYTES) {
            let Some(pages) = pages.upgrade() else { return };
            if !pages.populate(offset, POPULATE_BYTES.min(bytes - offset)) {
                return;
            }
        }
    };
    // Without a thread the memory is touched as it is used.
    let _ = std::thread::Builder::new()
        .name("populate".into())
        .spawn(touch);
}

fn compact(bytes: u64) -> String {
    SizeText(bytes).to_string().replace(' ', "")
}

impl Opener for Memory {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn open(&self, _reactor: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
        Ok(Box::new(MemoryQueue {
            geometry: self.geometry,
            pages: self.pages.clone(),
            done: Vec::new(),
            zeroing: VecDeque::new(),
        }))
    }

    fn describe(&self) -> Description {
        describe(&self.geometry)
    }
}

fn describe(geometry: &Geometry) -> Description {
    Description::leaf(format!(
        "memory, {}, {}-byte blocks",
        SizeText(geometry.bytes()),
        geometry.block_size
    ))
}

struct MemoryQueue {
    geometry: Geometry,
    pages: Arc<Pages>,
    done: Vec<Completion>,
    /// Ranges to zero, and how far each has come, in bytes.
    zeroing: VecDeque<(Request, u64)>,
}

impl MemoryQueue {
    fn zero_some(&mut self) {
        let Some((request, zeroed)) = self.zeroing.front_mut() else {
            return;
        };
        let all = u64::from(request.range.count) << self.geometry.block_size.shift();
        let step = ZERO_STEP_BYTES.min(all - *zeroed);
        let offset = self.geometry.range_offset(request.range) + *zeroed;
        self.pages.zero(offset as usize, step as usize);
        *zeroed += step;
        if *zeroed == all
            && let Some((request, _)) = self.zeroing.pop_front()
        {
            self.done.push(request.complete(Ok(())));
        }
    }
}

impl BlockDevice for MemoryQueue {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, mut request: Request) {
        let offset = self.geometry.range_offset(request.range) as usize;
        match (request.op, &mut request.buffer) {
            (Operation::Read, Some(buffer)) => self.pages.read(offset, buffer),
            (Operation::Write(_), Some(buffer)) => self.pages.write(offset, buffer),
            (Operation::WriteZeroes { .. } | Operation::Deallocate, _) => {
                return self.zeroing.push_back((request, 0));
            }
            _ => {}
        }
        self.done.push(request.complete(Ok(())));
    }

    fn poll(&mut self, _now: Moment, done: &mut Vec<Completion>) {
        self.zero_some();
        done.append(&mut self.done);
    }

    fn next_deadline(&self) -> Option<Moment> {
        (!self.zeroing.is_empty()).then_some(Moment::ORIGIN)
    }

    fn describe(&self) -> Description {
        describe(&self.geometry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use ashlar_block::{BlockRange, Durability, ErrorKind};

    #[test]
    fn queues_share_content_and_zeroing_finishes() {
        let memory = Memory::new(64 << 20, BlockSize::B512).expect("memory");
        let mut a = Bench::open(&*memory);
        let mut b = Bench::open(&*memory);
        a.write(BlockRange::new(7, 3), 0x5A, Durability::Cached)
            .expect("write");
        assert_eq!(b.read(BlockRange::new(6, 5)).expect("read")[..], {
            let mut expected = vec![0; 512];
            expected.extend([0x5A; 3 * 512]);
            expected.extend([0; 512]);
            expected
        });
        let everything = BlockRange::new(0, (64 << 20) / 512);
        b.run(Request {
            tag: 9,
            op: Operation::Deallocate,
            range: everything,
            buffer: None,
        })
        .result
        .expect("deallocate");
        assert!(
            a.read(BlockRange::new(0, 64))
                .expect("read")
                .iter()
                .all(|&b| b == 0)
        );
        a.flush().expect("flush");
        let error = a
            .read(BlockRange::new((64 << 20) / 512, 1))
            .expect_err("beyond");
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
    }

    #[test]
    fn no_block_is_ever_torn() {
        let memory = Memory::new(1 << 20, BlockSize::B4096).expect("memory");
        let writer = memory.clone();
        let thread = std::thread::spawn(move || {
            let mut bench = Bench::open(&*writer);
            for i in 0..4000u32 {
                bench
                    .write(BlockRange::new(0, 4), i as u8, Durability::Cached)
                    .expect("write");
            }
        });
        let mut bench = Bench::open(&*memory);
        while !thread.is_finished() {
            let data = bench.read(BlockRange::new(0, 4)).expect("read");
            for block in data.chunks(4096) {
                assert!(block.iter().all(|&b| b == block[0]), "torn block");
            }
        }
        thread.join().expect("writer");
    }

    #[test]
    fn more_than_the_machine_has_is_refused() {
        let error = Memory::new(1 << 50, BlockSize::B512)
            .err()
            .expect("refused");
        assert!(
            error
                .to_string()
                .contains("memory:1024TiB: this machine has"),
            "{error}"
        );
    }
}
