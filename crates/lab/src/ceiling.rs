//! The lab measures itself: how fast its load generator is against a device that does nothing,
//! and against one that only copies memory. A result near these says more about the lab than
//! about the storage.

use std::time::{Duration, Instant};

use ashlar_block::{
    BlockDevice, BlockSize, BufferPool, Completion, Description, Geometry, IoBuffer, Moment,
    Request,
};

use crate::result::Ceiling;
use crate::workload::{Area, Job};
use crate::{CellSpec, LabError, OpenOptions, Pattern, PrepareOptions, Prepared, Stacks, Worker};

/// How long each figure is measured.
const MEASURE: Duration = Duration::from_millis(60);
const BYTES: u64 = 64 << 20;

/// The ceilings for these thread counts.
pub(crate) fn ceilings(threads: &[u32], cpus: &[usize]) -> Result<Vec<Ceiling>, LabError> {
    let of = |&threads: &u32| {
        let null_iops = measure(threads, 4096, false, cpus)?;
        let copies = measure(threads, 65536, true, cpus)?;
        Ok(Ceiling {
            threads,
            null_iops,
            copy_mib_s: copies / 16.0,
        })
    };
    threads.iter().map(of).collect()
}

/// Reads a second of `block_bytes` at depth 32.
fn measure(threads: u32, block_bytes: u32, copies: bool, cpus: &[usize]) -> Result<f64, LabError> {
    let cell = CellSpec {
        pattern: Pattern::RandRead,
        read_pct: 100,
        block_bytes,
        threads,
        depth: 32,
        sync: false,
    };
    let job = |thread| {
        Ok(Job {
            cell,
            thread,
            logical: 4096,
            area: Area::of(&cell, thread, BYTES, false)?,
            sync: false,
            access: crate::access::Access::default(),
            rate: None,
            warmup: Duration::from_millis(10),
            measure: MEASURE,
            seed: u64::from(thread),
            stop: None,
            pulse: None,
            live: None,
        })
    };
    let jobs = (0..threads)
        .map(job)
        .collect::<Result<Vec<_>, LabError>>()?;
    let stacks = Own { copies };
    let threads = crate::runner::Threads {
        stacks: &stacks,
        spec: "null",
        size: None,
        cpus,
        model: None,
    };
    Ok(threads.run(&jobs)?.measured.count() as f64 / MEASURE.as_secs_f64())
}

/// The lab's own devices.
struct Own {
    copies: bool,
}

impl Stacks for Own {
    fn prepare(&self, _: &str, _: &PrepareOptions) -> Result<Prepared, LabError> {
        Ok(Prepared {
            geometry: geometry(),
            description: "null".into(),
            holds: None,
            fresh: false,
            file_system: None,
        })
    }

    fn open(&self, _: &str, options: &OpenOptions) -> Result<Box<dyn Worker>, LabError> {
        let pool = BufferPool::new(options.buffer_bytes + (4 << 20));
        let source = if self.copies { pool.get(1 << 20) } else { None };
        Ok(Box::new(Spinning {
            device: Idle {
                queue: Vec::with_capacity(options.depth),
                source,
            },
            pool,
            origin: Instant::now(),
        }))
    }
}

fn geometry() -> Geometry {
    Geometry::plain(BlockSize::B4096, BYTES / 4096)
}

/// A worker without an event loop.
struct Spinning {
    device: Idle,
    pool: BufferPool,
    origin: Instant,
}

/// Completes everything at once, after a copy from `source` if it has one.
struct Idle {
    queue: Vec<Request>,
    source: Option<IoBuffer>,
}

impl Worker for Spinning {
    fn device(&mut self) -> &mut dyn BlockDevice {
        &mut self.device
    }

    fn buffers(&self) -> BufferPool {
        self.pool.clone()
    }

    fn now(&self) -> Moment {
        Moment::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }

    fn turn(&mut self, _: Option<Moment>) -> Result<(), LabError> {
        Ok(())
    }
}

impl BlockDevice for Idle {
    fn geometry(&self) -> Geometry {
        geometry()
    }

    fn submit(&mut self, request: Request) {
        self.queue.push(request);
    }

    fn poll(&mut self, _: Moment, done: &mut Vec<Completion>) {
        for mut request in self.queue.drain(..) {
            if let (Some(source), Some(buffer)) = (&self.source, request.buffer.as_mut()) {
                let from = (request.range.start.0 as usize * 4096) % (source.len() - 65536);
                if let Some(bytes) = source.get(from..from + buffer.len()) {
                    buffer.copy_from_slice(bytes);
                }
            }
            done.push(request.complete(Ok(())));
        }
    }

    fn describe(&self) -> Description {
        Description::leaf("null")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_measures_itself() {
        let all = ceilings(&[1, 2], &[]).expect("runs");
        assert_eq!(all.len(), 2);
        // A debug build on a loaded machine still does far more than any drive asks for.
        assert!(all[0].null_iops > 50_000.0, "{all:?}");
        assert!(all[0].copy_mib_s > 50.0, "{all:?}");
    }

    /// `cargo test --release -p ashlar-lab -- --ignored --nocapture generator_speed`
    #[test]
    #[ignore = "a measurement, not a check"]
    fn generator_speed() {
        println!("{:#?}", ceilings(&[1, 2], &crate::cpu::usable_cpus()));
    }
}
