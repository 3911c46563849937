//! A log from its tail to its end.
//!
//! A batch counts if any copy of it has the right number, term and predecessor and verifies. The
//! first that does not ends the log, unless it must have been acknowledged: because a batch of the
//! same term follows it, or because a later term began behind it. Then it is damage, and nothing is
//! changed. A batch of a term later than the root's means that a later root was lost, which is damage, too.
//! Of a damaged batch whose records verify on some copy, block by block is taken from whichever copy is good,
//! where the caller can live with lost blocks ([`salvage`](super::salvage)).

use std::borrow::Cow;

use ashlar_block::{IoBuffer, IoError};

use super::index::{GranuleKey, Newest};
use super::shape::{Head, Shape};
use crate::error::PoolError;
use crate::format::{Batch, BatchError, LogId, LogState, Salt};
use crate::sizes::{GRANULE, Sizes};

/// The drives that a ring's copies are on, by number.
pub trait Copies {
    /// Whether there is such a drive.
    fn is_here(&self, drive: usize) -> bool;

    /// So many bytes at a byte of a drive; `None` where they cannot be read.
    fn read(&mut self, drive: usize, at: u64, bytes: usize) -> Option<Vec<u8>>;

    /// So many bytes, 1 MiB at most, at each of these drives and bytes, all at the same time.
    fn read_together(&mut self, places: &[(usize, u64)], bytes: usize) -> Vec<Option<IoBuffer>>;

    /// Writes the same bytes to several drives and bytes, durably: all of them or an error.
    ///
    /// # Errors
    /// A drive's.
    fn write(&mut self, places: &[(usize, u64)], bytes: &[u8]) -> Result<(), IoError>;
}

/// Which ring is read, as its root describes it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The pool's sizes.
    pub sizes: &'a Sizes,
    /// The pool's salt.
    pub salt: Salt,
    /// Which log.
    pub log: LogId,
    /// Its chunks, its tail and its terms.
    pub state: &'a LogState,
    /// The root's term: none can be later, for a root says so before anything of a term is appended.
    pub newest_term: u64,
    /// Whether the caller looks at what is lost ([`Scanned::lost`]); damage is refused otherwise.
    pub salvages: bool,
}

impl Source<'_> {
    fn shape(&self) -> Shape {
        Shape::new(self.sizes, self.state.chunks.clone())
    }
}

/// A batch that counts.
#[derive(Debug)]
pub struct ScannedBatch {
    pub at: u64,
    pub batch: Batch,
    /// All its bytes, where a copy lacks them or, in the map log, there are blocks of data in it.
    pub bytes: Vec<u8>,
    pub len: u64,
    /// Copies that lack it.
    pub(super) lacking: Vec<usize>,
}

impl ScannedBatch {
    /// Every granule that it has data of, in the order of its records.
    pub fn granules(&self) -> impl Iterator<Item = (GranuleKey, Newest)> {
        let data_at = self.at + self.len - (self.batch.data_blocks() * GRANULE) as u64;
        let first = self.batch.first_sequence;
        let records = (first..).zip(&self.batch.records);
        records.flat_map(move |(sequence, record)| {
            (0..u64::from(record.granules)).map(move |granule| {
                let key = GranuleKey {
                    volume: record.volume,
                    granule: record.first_granule + granule,
                };
                let crc = record.first_crc as usize + granule as usize;
                let block = u64::from(record.block_or_location) + granule;
                let newest = Newest {
                    sequence,
                    at: data_at + block * GRANULE as u64,
                    crc: self.batch.crcs.get(crc).copied().unwrap_or(0),
                };
                (key, newest)
            })
        })
    }
}

/// What one copy holds at a position.
struct Candidate {
    batch: Batch,
    crc: u32,
    len: usize,
    /// Its bytes, if they are needed for certain, or if the window does not have them: what has verified is
    /// not read again.
    bytes: Option<Vec<u8>>,
}

/// A log as it was found.
#[derive(Debug)]
pub struct Scanned {
    /// From its tail to its end.
    pub batches: Vec<ScannedBatch>,
    /// Where the next batch goes.
    pub head: Head,
    /// Above every sequence in it.
    pub next_sequence: u64,
    /// Granules of which a record is in it, and no copy of the data is good.
    pub lost: Vec<GranuleKey>,
}

/// Why a hole in a log is damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// A later term began behind it.
    OlderTerm,
    /// A batch follows it.
    Followed,
}

/// Most bytes of a copy that are read at a time.
const WINDOW: u64 = 1 << 20;

/// What was last read of a log.
#[derive(Default)]
struct Window {
    at: u64,
    len: usize,
    /// Of each copy; nothing of one that is not here, or that cannot be read.
    copies: Vec<Option<IoBuffer>>,
}

impl Window {
    fn end(&self) -> u64 {
        self.at + self.len as u64
    }

    /// Whether it has these bytes of both copies, and they are the same.
    fn is_same(&self, copies: [usize; 2], at: u64, len: usize) -> bool {
        let [one, other] = copies;
        let one = self.bytes(one, at, len);
        one.is_some() && one == self.bytes(other, at, len)
    }

    /// Puts with a batch the bytes that were found in this copy.
    fn keep(&self, found: &mut Candidate, copy: usize, at: u64) {
        if found.bytes.is_none() {
            found.bytes = self.bytes(copy, at, found.len).map(<[u8]>::to_vec);
        }
    }

    /// Bytes of a copy, if it has them.
    fn bytes(&self, copy: usize, at: u64, len: usize) -> Option<&[u8]> {
        let from = at.checked_sub(self.at)? as usize;
        self.copies.get(copy)?.as_deref()?.get(from..from + len)
    }
}

pub(super) struct Scanner<'a> {
    pub(super) copies: &'a mut dyn Copies,
    pub(super) of: Source<'a>,
    pub(super) shape: Shape,
    window: Window,
}

/// Reads a log.
///
/// # Errors
/// Damage: a batch that was acknowledged is on no copy.
pub fn scan(copies: &mut dyn Copies, of: Source<'_>) -> Result<Scanned, PoolError> {
    let mut scanner = Scanner {
        copies,
        shape: of.shape(),
        of,
        window: Window::default(),
    };
    scanner.run()
}

impl Scanner<'_> {
    fn run(&mut self) -> Result<Scanned, PoolError> {
        let mut head = Head {
            at: self.of.state.tail_at,
            number: self.of.state.tail_number,
            previous: self.of.state.tail_previous,
        };
        let mut batches = Vec::new();
        let (first_chunk, chunks) = (
            self.shape.chunk_number(head.at),
            self.shape.chunks.len() as u64,
        );
        let mut lost = Vec::new();
        while self.shape.chunk_number(head.at) < first_chunk + chunks {
            let (found, crc) = match self.next(head)? {
                Some(found) => found,
                None if !self.of.salvages => break,
                None => match self.salvage(head) {
                    Some(salvaged) => {
                        lost.extend(salvaged.lost);
                        (salvaged.batch, salvaged.crc)
                    }
                    None => break,
                },
            };
            head = Head {
                at: self.shape.after(found.at, found.len),
                number: head.number + 1,
                previous: crc,
            };
            batches.push(found);
        }
        self.refuse_damage(head)?;
        let ends = batches
            .iter()
            .map(|b| b.batch.first_sequence + b.batch.records.len() as u64);
        let next_sequence = ends.max().unwrap_or(0);
        Ok(Scanned {
            batches,
            head,
            next_sequence,
            lost,
        })
    }

    /// The term that batch `number` must have.
    fn term_of(&self, number: u64) -> u64 {
        let begun = self
            .of
            .state
            .terms
            .iter()
            .filter(|start| start.first_batch <= number);
        begun.map(|start| start.term).max().unwrap_or(0)
    }

    /// The batch at the head, if there is one, and which copies lack it.
    fn next(&mut self, head: Head) -> Result<Option<(ScannedBatch, u32)>, PoolError> {
        let copies = self.shape.locate(head.at).0.to_vec();
        let mut found: Option<(usize, Candidate)> = None;
        let mut lacking = Vec::new();
        for (copy, place) in copies.iter().enumerate() {
            if !self.copies.is_here(usize::from(place.drive)) {
                continue;
            }
            let is_same = |(first, one): &(usize, Candidate)| {
                self.window.is_same([*first, copy], head.at, one.len)
            };
            if found.as_ref().is_some_and(is_same) {
                continue;
            }
            if let Some((first, one)) = &mut found {
                // A look at this copy may move the window, and another read of the good one fail.
                self.window.keep(one, *first, head.at);
            }
            match self.candidate(copy, head.at) {
                Some(candidate) if self.is_next(&candidate.batch, head) => {
                    found.get_or_insert((copy, candidate));
                }
                _ => lacking.push(copy),
            }
        }
        let Some((copy, mut found)) = found else {
            return Ok(None);
        };
        if lacking.is_empty() && !Self::is_kept(self.of.log, &found.batch) {
            found.bytes = None;
        } else {
            self.window.keep(&mut found, copy, head.at);
            if found.bytes.is_none() {
                let name = format!("{:?} log, batch {}", self.of.log, head.number);
                return Err(PoolError::Damaged(format!(
                    "{name} was read, and cannot be had again for the copies that lack it"
                )));
            }
        }
        let batch = ScannedBatch {
            at: head.at,
            batch: found.batch,
            bytes: found.bytes.unwrap_or_default(),
            len: found.len as u64,
            lacking,
        };
        Ok(Some((batch, found.crc)))
    }

    /// Whether a batch is of use with all its bytes only. A log may be larger than memory.
    fn is_kept(log: LogId, batch: &Batch) -> bool {
        log == LogId::Map && batch.data_blocks() > 0
    }

    pub(super) fn is_next(&self, batch: &Batch, head: Head) -> bool {
        batch.number == head.number
            && batch.previous == head.previous
            && batch.term == self.term_of(head.number)
    }

    /// The batch that a copy holds at a position, if it verifies.
    fn candidate(&mut self, copy: usize, at: u64) -> Option<Candidate> {
        let limit = self.of.sizes.batch_bytes as usize;
        let left = self.shape.left_in_chunk(at) as usize;
        let (salt, log) = (self.of.salt, self.of.log);
        let first = self.bytes(copy, at, GRANULE)?;
        let len = Batch::peek(&first, salt, log, limit.min(left))?;
        let bytes = self.bytes(copy, at, len)?;
        match Batch::decode(&bytes, salt, log, limit) {
            Ok((batch, crc)) => Some(Candidate {
                bytes: match bytes {
                    Cow::Borrowed(_) if !Self::is_kept(log, &batch) => None,
                    bytes => Some(bytes.into_owned()),
                },
                batch,
                crc,
                len,
            }),
            Err(BatchError::NotABatch | BatchError::NotTheNext | BatchError::Torn(_)) => None,
        }
    }

    /// Bytes of a copy; `None` when they cannot be read.
    fn bytes(&mut self, copy: usize, at: u64, len: usize) -> Option<Cow<'_, [u8]>> {
        let is_inside = at >= self.window.at && at + len as u64 <= self.window.end();
        if !is_inside {
            self.load(at);
        }
        // What cannot be read as a whole is tried piece by piece.
        if let Some(bytes) = self.window.bytes(copy, at, len) {
            return Some(Cow::Borrowed(bytes));
        }
        let (drive, start) = self.place(copy, at)?;
        self.copies.read(drive, start, len).map(Cow::Owned)
    }

    /// Drive and offset of a position in a copy.
    pub(super) fn place(&self, copy: usize, at: u64) -> Option<(usize, u64)> {
        let (copies, offset) = self.shape.locate(at);
        let place = copies.get(copy)?;
        let start = self.of.sizes.extent_at(place.extent) + offset;
        Some((usize::from(place.drive), start))
    }

    /// Reads what follows a position in its chunk from every copy that is here, all at the same time:
    /// small batches follow each other.
    fn load(&mut self, at: u64) {
        let len = self.shape.left_in_chunk(at).min(WINDOW) as usize;
        let copies = self.shape.locate(at).0.len();
        let places = (0..copies).filter_map(|copy| Some((copy, self.place(copy, at)?)));
        let here = places.filter(|&(_, (drive, _))| self.copies.is_here(drive));
        let (here, places): (Vec<usize>, Vec<(usize, u64)>) = here.unzip();
        let mut window = Window {
            at,
            len,
            copies: (0..copies).map(|_| None).collect(),
        };
        for (copy, bytes) in here
            .into_iter()
            .zip(self.copies.read_together(&places, len))
        {
            window.copies[copy] = bytes;
        }
        self.window = window;
    }

    /// Refuses a log whose end is a hole.
    fn refuse_damage(&mut self, head: Head) -> Result<(), PoolError> {
        let name = format!("{:?} log, batch {}", self.of.log, head.number);
        match self.damage(head) {
            None => Ok(()),
            Some(Damage::OlderTerm) => Err(PoolError::Damaged(format!(
                "{name} was acknowledged, and no copy of it is good"
            ))),
            Some(Damage::Followed) => Err(PoolError::Damaged(format!(
                "{name} was acknowledged, for another follows it, and no copy of it is good"
            ))),
        }
    }

    /// Why what no copy has here is not the log's end, if it is not.
    pub(super) fn damage(&mut self, head: Head) -> Option<Damage> {
        let terms = self.of.state.terms.iter();
        let newest = terms.map(|start| start.first_batch).max();
        if newest.is_some_and(|first| head.number < first) {
            return Some(Damage::OlderTerm);
        }
        self.has_successor(head).then_some(Damage::Followed)
    }

    /// Whether a batch of the same term with a higher number lies behind the end, or one of a term that the root does
    /// not know: then that root is not the newest that there was. In the next chunk, too, and not only at its beginning:
    /// the first batch there may be as bad as the last one here.
    fn has_successor(&mut self, head: Head) -> bool {
        let term = self.term_of(head.number);
        let next_chunk = head.at + self.shape.left_in_chunk(head.at);
        [head.at, next_chunk].into_iter().any(|from| {
            let most = self.shape.left_in_chunk(from).min(2 << 20);
            let mut places = (from..from + most).step_by(GRANULE);
            places.any(|at| self.is_later(at, head.number, term))
        })
    }

    fn is_later(&mut self, at: u64, number: u64, term: u64) -> bool {
        let copies = self.shape.locate(at).0.len();
        (0..copies).any(|copy| {
            let found = self.candidate(copy, at);
            found.is_some_and(|one| {
                let batch = &one.batch;
                batch.term == term && batch.number > number || batch.term > self.of.newest_term
            })
        })
    }
}

/// Writes what one copy holds to the copies that lack it: before anything else is appended, or a later crash
/// with another copy missing could find less.
///
/// # Errors
/// A drive's.
pub fn complete_copies(
    drives: &mut dyn Copies,
    of: Source<'_>,
    scanned: &Scanned,
) -> Result<(), PoolError> {
    let shape = of.shape();
    for batch in scanned
        .batches
        .iter()
        .filter(|batch| !batch.lacking.is_empty())
    {
        let (copies, offset) = shape.locate(batch.at);
        let place = |&copy: &usize| {
            let copy = copies[copy];
            (
                usize::from(copy.drive),
                of.sizes.extent_at(copy.extent) + offset,
            )
        };
        let places: Vec<_> = batch.lacking.iter().map(place).collect();
        drives.write(&places, &batch.bytes)?;
    }
    Ok(())
}
