//! A device as the control plane reads it, with a reactor of its own: what a cache says of itself before it is in
//! service, and what its backing device has after it.

use std::time::Duration;

use ashlar_block::{BlockDevice, BlockRange, Completion, ErrorKind, IoError, Operation, Request};
use ashlar_cache::GRANULE;
use ashlar_reactor::{Opener, Options, Reactor, Spin};

/// Most granules of a read.
const MOST: u64 = 64;
/// How long a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const MEMORY: usize = 8 << 20;

/// A device that is open on this thread.
pub(crate) struct Direct {
    reactor: Reactor,
    device: Box<dyn BlockDevice>,
}

impl Direct {
    /// Opens it.
    ///
    /// # Errors
    /// It cannot be opened, or there is no reactor for it.
    pub(crate) fn open(opener: &dyn Opener) -> Result<Self, IoError> {
        let options = Options {
            entries: 64,
            pool_bytes: MEMORY,
            spin: Spin::Off,
            files: 16,
        };
        let none = |error: &dyn std::fmt::Display| {
            IoError::new(ErrorKind::Exhausted, format!("no reactor: {error}"))
        };
        let reactor = Reactor::new(&options).map_err(|error| none(&error))?;
        let device = opener.open(reactor.handle())?;
        Ok(Self { reactor, device })
    }

    /// Reads granules.
    ///
    /// # Errors
    /// The device's, or a timeout.
    pub(crate) fn read(&mut self, first: u64, granules: u64) -> Result<Vec<u8>, IoError> {
        let mut bytes = Vec::new();
        let mut at = first;
        while at < first + granules {
            let count = (first + granules - at).min(MOST);
            bytes.extend_from_slice(&self.request(
                Operation::Read,
                at,
                &vec![0; count as usize * GRANULE],
            )?);
            at += count;
        }
        Ok(bytes)
    }

    /// Writes granules, durably.
    ///
    /// # Errors
    /// The device's, or a timeout.
    pub(crate) fn write(&mut self, first: u64, data: &[u8]) -> Result<(), IoError> {
        let most = MOST as usize * GRANULE;
        for (part, data) in data.chunks(most).enumerate() {
            let durable = Operation::Write(ashlar_block::Durability::Durable);
            self.request(durable, first + part as u64 * MOST, data)?;
        }
        self.wait(Request::flush(0)).map(drop)
    }

    fn request(&mut self, op: Operation, first: u64, data: &[u8]) -> Result<Vec<u8>, IoError> {
        let shift = 12 - self.device.geometry().block_size.shift();
        let granules = (data.len() / GRANULE) as u64;
        let buffer = self.reactor.handle().buffers().get(data.len());
        let none = || IoError::new(ErrorKind::Exhausted, "no memory");
        let mut buffer = buffer.ok_or_else(none)?;
        buffer.copy_from_slice(data);
        let done = self.wait(Request {
            tag: 0,
            op,
            range: BlockRange::new(first << shift, (granules << shift) as u32),
            buffer: Some(buffer),
        })?;
        Ok(done
            .buffer
            .map(|buffer| buffer.to_vec())
            .unwrap_or_default())
    }

    fn wait(&mut self, request: Request) -> Result<Completion, IoError> {
        let handle = self.reactor.handle().clone();
        let (begun, mut done) = (handle.now(), Vec::new());
        self.device.submit(request);
        loop {
            self.device.poll(handle.now(), &mut done);
            if let Some(mut completion) = done.pop() {
                std::mem::replace(&mut completion.result, Ok(()))?;
                return Ok(completion);
            }
            if handle.now().since(begun) > REQUEST_TIMEOUT {
                let seconds = REQUEST_TIMEOUT.as_secs();
                let why = format!("it has not answered for {seconds} s");
                return Err(IoError::new(ErrorKind::Timeout, why));
            }
            // A ring that fails answers nothing more; the time limit above ends the wait.
            let _ = self
                .reactor
                .turn(Some(handle.now() + Duration::from_millis(10)));
        }
    }
}
