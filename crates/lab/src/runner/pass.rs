//! Once over everything: the fill before, and the read-back after.

use std::cell::Cell;
use std::time::Duration;

use ashlar_block::{BlockRange, Completion, Durability, IoBuffer, Request};

use crate::verify::{Model, Tally};
use crate::workload::random_fill;
use crate::{LabError, Worker};

/// Largest access of a pass, in bytes.
const CHUNK: u64 = 1 << 20;
/// Accesses in flight.
pub(super) const DEPTH: usize = 8;
/// Nothing completing for this long is a failure.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// One walk over blocks 0 to `blocks`.
pub(super) struct Pass<'a> {
    worker: &'a mut dyn Worker,
    blocks: u64,
    chunk_blocks: u32,
    logical: usize,
    next: u64,
    slots: Vec<Option<BlockRange>>,
    buffers: Vec<IoBuffer>,
}

/// Bytes of buffers that a pass takes.
pub(super) const BUFFER_BYTES: usize = DEPTH * CHUNK as usize;

impl<'a> Pass<'a> {
    pub(super) fn new(worker: &'a mut dyn Worker, blocks: u64) -> Result<Self, LabError> {
        let geometry = worker.device().geometry();
        let logical = u64::from(geometry.block_size.bytes());
        let chunk_blocks = u64::from(geometry.max_blocks).min(CHUNK / logical).max(1);
        let pool = worker.buffers();
        let bytes = (chunk_blocks * logical) as usize;
        let none = || LabError::environment("no memory left for the buffers of a fill");
        let buffers = (0..DEPTH)
            .map(|_| pool.get(bytes).ok_or_else(none))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            worker,
            blocks: blocks.min(geometry.blocks),
            chunk_blocks: chunk_blocks as u32,
            logical: logical as usize,
            next: 0,
            slots: vec![None; DEPTH],
            buffers,
        })
    }

    /// Writes everything: random data, or stamps if there is a model. `tell` is called with the blocks done.
    pub(super) fn fill(
        mut self,
        seed: u64,
        model: Option<&Model>,
        tell: &mut dyn FnMut(u64) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        for (index, buffer) in self.buffers.iter_mut().enumerate() {
            random_fill(buffer, seed ^ index as u64);
        }
        // Told to the model when acknowledged. Shared by the two closures, hence the cells.
        let generations = [const { Cell::new(0) }; DEPTH];
        let mut make = |slot: usize, range: BlockRange, mut buffer: IoBuffer| {
            match model {
                Some(model) => generations[slot].set(model.stamp(&mut buffer, range)),
                None => vary(&mut buffer, range),
            }
            Request::write(slot as u64, range, buffer, Durability::Cached)
        };
        let mut ranges = Vec::new();
        let mut done = Vec::new();
        while self.step(&mut make, &mut done, &mut ranges)? {
            for (completion, range) in done.drain(..).zip(ranges.drain(..)) {
                let completion: Completion = completion;
                completion
                    .result
                    .map_err(|error| LabError::caused("filling", error))?;
                if let Some(model) = model {
                    model.written(range, generations[completion.tag as usize].get());
                }
                self.buffers.extend(completion.buffer);
                tell(u64::from(range.count))?;
            }
        }
        self.flush()
    }

    /// Reads everything and compares it with the model; accesses that failed, with the reason.
    pub(super) fn read_back(
        mut self,
        model: &Model,
        tally: &mut Tally,
        tell: &mut dyn FnMut(u64) -> Result<(), LabError>,
    ) -> Result<Vec<String>, LabError> {
        let mut make = |slot: usize, range, buffer| Request::read(slot as u64, range, buffer);
        let (mut ranges, mut done, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
        while self.step(&mut make, &mut done, &mut ranges)? {
            for (completion, range) in done.drain(..).zip(ranges.drain(..)) {
                let completion: Completion = completion;
                let bytes = completion.buffer.as_deref().unwrap_or_default();
                match completion.result {
                    Ok(()) => model.check(bytes, range, tally),
                    Err(error) => unreadable.push(format!("reading back {range}: {error}")),
                }
                self.buffers.extend(completion.buffer);
                tell(u64::from(range.count))?;
            }
        }
        Ok(unreadable)
    }

    /// Starts what can be started and waits until something is done; false at the end.
    fn step(
        &mut self,
        make: &mut dyn FnMut(usize, BlockRange, IoBuffer) -> Request,
        done: &mut Vec<Completion>,
        ranges: &mut Vec<BlockRange>,
    ) -> Result<bool, LabError> {
        for slot in 0..DEPTH {
            if self.next >= self.blocks || self.slots[slot].is_some() {
                continue;
            }
            let Some(buffer) = self.buffers.pop() else {
                break;
            };
            let count = u64::from(self.chunk_blocks).min(self.blocks - self.next) as u32;
            let range = BlockRange::new(self.next, count);
            self.next += u64::from(count);
            let buffer = self.shortened(buffer, count)?;
            self.slots[slot] = Some(range);
            self.worker.device().submit(make(slot, range, buffer));
        }
        if self.slots.iter().all(Option::is_none) {
            return Ok(false);
        }
        self.wait(done)?;
        for completion in done.iter() {
            let slot = self.slots.get_mut(completion.tag as usize);
            ranges.push(slot.and_then(Option::take).ok_or_else(unknown_tag)?);
        }
        Ok(true)
    }

    /// The last access of all may be a short one.
    fn shortened(&self, mut buffer: IoBuffer, count: u32) -> Result<IoBuffer, LabError> {
        let bytes = count as usize * self.logical;
        if buffer.len() < bytes {
            let none = || LabError::environment("no memory left for a buffer");
            buffer = self.worker.buffers().get(bytes).ok_or_else(none)?;
        }
        buffer.truncate(bytes);
        Ok(buffer)
    }

    fn wait(&mut self, done: &mut Vec<Completion>) -> Result<(), LabError> {
        let begin = self.worker.now();
        loop {
            let now = self.worker.now();
            self.worker.device().poll(now, done);
            if !done.is_empty() {
                return Ok(());
            }
            if now.since(begin) > STALL_TIMEOUT {
                let waited = STALL_TIMEOUT.as_secs();
                return Err(LabError::environment(format!(
                    "nothing completed for {waited} s at block {} of {}",
                    self.next, self.blocks
                )));
            }
            let limit = begin + STALL_TIMEOUT + Duration::from_millis(1);
            let deadline = self
                .worker
                .device()
                .next_deadline()
                .map_or(limit, |d| d.min(limit));
            self.worker.turn(Some(deadline))?;
        }
    }

    fn flush(mut self) -> Result<(), LabError> {
        self.worker.device().submit(Request::flush(0));
        let mut done = Vec::new();
        self.wait(&mut done)?;
        done.into_iter()
            .try_for_each(|completion| completion.result)
            .map_err(|error| LabError::caused("flush after filling", error))
    }
}

fn unknown_tag() -> LabError {
    LabError::environment("the device completed an access that was not in flight")
}

/// Makes every 4 KiB of a random fill different from every other.
fn vary(buffer: &mut [u8], range: BlockRange) {
    for (part, index) in buffer.chunks_mut(4096).zip(0u64..) {
        if let Some(bytes) = part.first_chunk_mut() {
            *bytes = (range.start.0 << 8 | index).to_le_bytes();
        }
    }
}
