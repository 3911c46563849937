//! The toy's log: records of a header block and data blocks, one after the other.

use ashlar_block::{BlockDevice, BlockRange, BufferPool, Durability, Geometry, Request};

use crate::engine::seam::Wait;

pub(super) const GRANULE: u64 = 4096;
const MAGIC: u64 = 0x7079_0a53;

/// A change that the log keeps.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) volume: u32,
    pub(super) first: u64,
    pub(super) count: u32,
    /// Nothing for zeroes.
    pub(super) data: Option<Vec<u8>>,
    /// The volume is made, with this name of at most 8 bytes.
    pub(super) name: Option<String>,
}

impl Record {
    /// One record a granule.
    pub(super) fn split(self) -> Vec<Record> {
        let part = |index: u32| {
            let at = index as usize * GRANULE as usize;
            let data = self
                .data
                .as_deref()
                .and_then(|d| d.get(at..at + GRANULE as usize));
            Record {
                first: self.first + u64::from(index),
                count: 1,
                data: data.map(<[u8]>::to_vec),
                name: None,
                ..self
            }
        };
        (0..self.count).map(part).collect()
    }
}

/// The log. A record's header has magic, check, number, volume, first granule, count, whether there
/// are data, and a name.
pub(super) struct Disk {
    geometry: Geometry,
    /// Where the next record goes.
    pub(super) end: u64,
    number: u64,
}

fn check(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8).map(|word| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        u64::from_le_bytes(bytes)
    });
    words.fold(1, |sum, word| {
        (sum.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let at = bytes.get(index * 8..index * 8 + 8);
    at.and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

impl Disk {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            end: GRANULE,
            number: 1,
        }
    }

    pub(super) fn range(&self, at: u64, bytes: usize) -> BlockRange {
        range(self.geometry, at, bytes)
    }

    /// Passes a record that is on the medium; returns where it begins.
    pub(super) fn advance(&mut self, record: &Record) -> u64 {
        let at = self.end;
        let data = record.data.as_ref().map_or(0, Vec::len) as u64;
        self.end += GRANULE + data;
        self.number += 1;
        at
    }

    pub(super) fn encode(&self, record: &Record) -> Vec<u8> {
        let mut bytes = vec![0; GRANULE as usize];
        let mut name = [0; 8];
        let text = record.name.as_deref().unwrap_or_default().as_bytes();
        name[..text.len()].copy_from_slice(text);
        let words = [
            MAGIC,
            0,
            self.number,
            u64::from(record.volume),
            record.first,
            u64::from(record.count),
            u64::from(record.data.is_some()),
            u64::from_le_bytes(name),
        ];
        for (index, word) in words.into_iter().enumerate() {
            bytes[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes.extend(record.data.iter().flatten());
        let sum = check(&bytes);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The record at the log's end, if there is one.
    pub(super) fn next(
        &self,
        device: &mut dyn BlockDevice,
        pool: &BufferPool,
        wait: &mut Wait,
        trust: bool,
    ) -> Result<Option<Record>, String> {
        let header = read(device, pool, wait, self.end, GRANULE as usize)?;
        if word(&header, 0) != MAGIC || word(&header, 2) != self.number {
            return Ok(None);
        }
        let (count, has_data) = (word(&header, 5) as u32, word(&header, 6) == 1);
        let len = if has_data {
            u64::from(count) * GRANULE
        } else {
            0
        };
        let mut bytes = read(device, pool, wait, self.end, (GRANULE + len) as usize)?;
        let sum = word(&bytes, 1);
        bytes[8..16].fill(0);
        if check(&bytes) != sum && !trust {
            return Ok(None);
        }
        let name = word(&header, 7).to_le_bytes();
        let name = String::from_utf8_lossy(&name)
            .trim_end_matches('\0')
            .to_owned();
        Ok(Some(Record {
            volume: word(&header, 3) as u32,
            first: word(&header, 4),
            count,
            data: has_data.then(|| bytes.split_off(GRANULE as usize)),
            name: (count == 0).then_some(name),
        }))
    }
}

fn range(geometry: Geometry, at: u64, bytes: usize) -> BlockRange {
    let shift = geometry.block_size.shift();
    BlockRange::new(at >> shift, (bytes >> shift) as u32)
}

fn blocking(
    device: &mut dyn BlockDevice,
    wait: &mut Wait,
    request: Request,
) -> Result<Vec<u8>, String> {
    device.submit(request);
    let mut done = Vec::new();
    while done.is_empty() {
        let now = wait();
        device.poll(now, &mut done);
    }
    let completion = done.remove(0);
    completion.result.map_err(|error| error.to_string())?;
    Ok(completion.buffer.as_deref().unwrap_or_default().to_vec())
}

fn read(
    device: &mut dyn BlockDevice,
    pool: &BufferPool,
    wait: &mut Wait,
    at: u64,
    bytes: usize,
) -> Result<Vec<u8>, String> {
    let buffer = pool.get(bytes).ok_or("no memory")?;
    let range = range(device.geometry(), at, bytes);
    blocking(device, wait, Request::read(1, range, buffer))
}

/// Writes who a drive is.
pub(super) fn write_label(
    device: &mut dyn BlockDevice,
    pool: &BufferPool,
    wait: &mut Wait,
    index: usize,
) -> Result<(), String> {
    let mut buffer = pool.get(GRANULE as usize).ok_or("no memory")?;
    buffer.fill(index as u8);
    let range = range(device.geometry(), 0, GRANULE as usize);
    let request = Request::write(1, range, buffer, Durability::Durable);
    blocking(device, wait, request).map(drop)
}

/// Reads who a drive is.
pub(super) fn read_label(
    device: &mut dyn BlockDevice,
    pool: &BufferPool,
    wait: &mut Wait,
) -> Result<usize, String> {
    let label = read(device, pool, wait, 0, GRANULE as usize)?;
    Ok(usize::from(label[0]))
}
