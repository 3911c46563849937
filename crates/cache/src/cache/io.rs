//! What is asked of the devices. The backing device may end within a granule: what is asked of that ends with the device, and
//! all else takes it for a granule with zeroes at its end.

use ashlar_block::{BlockRange, Durability, ErrorKind, IoBuffer, IoError, Request};

use super::{Cache, MEMORY, Owner, Side};
use crate::layout::GRANULE;

/// A request that is with a device.
pub(super) struct Sent {
    pub(super) side: Side,
    pub(super) owner: Owner,
    /// What its buffer has beyond the end of the backing device.
    pub(super) beyond: Option<IoBuffer>,
}

/// Which device is written to, and how durably.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) side: Side,
    pub(super) durability: Durability,
}

impl Target {
    /// What the cache says of itself, or has acknowledged.
    pub(super) const FAST: Self = Self {
        side: Side::Fast,
        durability: Durability::Durable,
    };

    pub(super) const fn backing(durability: Durability) -> Self {
        Self {
            side: Side::Backing,
            durability,
        }
    }
}

/// A buffer as it was before it was cut: zeroes are beyond the end of the device. Or that which is not of it.
pub(super) fn joined(
    buffer: Option<IoBuffer>,
    beyond: Option<IoBuffer>,
) -> Result<Option<IoBuffer>, IoBuffer> {
    match (buffer, beyond) {
        (Some(mut whole), Some(mut beyond)) => {
            beyond.fill(0);
            whole.join(beyond).map(|()| Some(whole))
        }
        (buffer, _) => Ok(buffer),
    }
}

impl Cache {
    pub(super) fn send(&mut self, side: Side, owner: Owner, mut request: Request) {
        let beyond = match side {
            Side::Fast => None,
            Side::Backing => self.cut_to_device(&mut request),
        };
        let sent = Sent {
            side,
            owner,
            beyond,
        };
        request.tag = self.sent.insert(sent) as u64;
        self.io.push((side, request));
    }

    /// Of a granule in which the backing device ends only its part goes there. With what the buffer has beyond that.
    fn cut_to_device(&self, request: &mut Request) -> Option<IoBuffer> {
        let shift = self.backing.block_size.shift();
        let range = &mut request.range;
        let end = range.start.0 + u64::from(range.count);
        let beyond = end.saturating_sub(self.layout.bytes() >> shift);
        if beyond == 0 {
            return None;
        }
        range.count = range.count.saturating_sub(beyond as u32);
        let has = (range.count as usize) << shift;
        request.buffer.as_mut().map(|buffer| buffer.split_off(has))
    }

    pub(super) fn buffer(&self, granules: u64) -> Result<IoBuffer, IoError> {
        let bytes = granules as usize * GRANULE;
        let none = || IoError::new(ErrorKind::Exhausted, "memory of the cache");
        let taken = self.buffers.outstanding_bytes() + self.memory_left_out;
        let fits = taken + bytes <= MEMORY;
        fits.then(|| self.buffers.get(bytes))
            .flatten()
            .ok_or_else(none)
    }

    /// A range of granules as the device counts it.
    pub(super) fn range(&self, side: Side, first: u64, granules: u64) -> BlockRange {
        let shift = match side {
            Side::Fast => 0,
            Side::Backing => 12 - self.backing.block_size.shift(),
        };
        BlockRange::new(first << shift, (granules << shift) as u32)
    }

    pub(super) fn read(
        &mut self,
        side: Side,
        owner: Owner,
        first: u64,
        granules: u64,
    ) -> Result<(), IoError> {
        let buffer = self.buffer(granules)?;
        let range = self.range(side, first, granules);
        self.send(side, owner, Request::read(0, range, buffer));
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        to: Target,
        owner: Owner,
        first: u64,
        data: &[u8],
    ) -> Result<(), IoError> {
        let granules = (data.len() / GRANULE) as u64;
        let mut buffer = self.buffer(granules)?;
        buffer.copy_from_slice(data);
        self.write_buffer(to, owner, first, buffer);
        Ok(())
    }

    pub(super) fn write_buffer(&mut self, to: Target, owner: Owner, first: u64, buffer: IoBuffer) {
        let Target { side, durability } = to;
        let granules = (buffer.len() / GRANULE) as u64;
        let range = self.range(side, first, granules);
        if side == Side::Backing {
            self.cleaning.unflushed = true;
        }
        self.send(side, owner, Request::write(0, range, buffer, durability));
    }
}
