//! A second user of the ring, which knows nothing of the engine: a shelf on which granules lie until they are
//! taken home. It is crashed at every write to a copy.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use ashlar_block::{BufferPool, ErrorKind, IoBuffer, IoError};
use ashlar_store::format::{Chunk, ChunkCopy, LogId, LogState, Salt, TermStart};
use ashlar_store::ring::{
    Composer, Copies, GranuleKey, Index, LogBatch, Newest, Ring, Source, Span, Stamp, batch_bytes,
    complete_copies, scan,
};
use ashlar_store::sizes::GRANULE;
use ashlar_store::{PoolError, Sizes};

const SIZES: Sizes = Sizes {
    extent_shift: 16,
    chunk_extents: 8,
    ring_chunks: 3,
    map_chunks: 3,
    segment_slots: 16,
    batch_bytes: 128 << 10,
};
const SALT: Salt = Salt(7);
const BATCHES: u64 = 70;
/// Granules that are written again and again.
const GRANULES: u64 = 64;

/// Two drives in memory, which may end in the middle of a write.
struct Disks {
    media: [Option<Vec<u8>>; 2],
    /// Writes until the power goes, and which granules of the last one are written: those of the bits that are set,
    /// over and over.
    left: Option<(usize, u64)>,
    memory: BufferPool,
}

impl Disks {
    fn new() -> Self {
        let bytes = SIZES.extent_at(3 * SIZES.chunk_extents) as usize;
        Self {
            media: [(); 2].map(|()| Some(vec![0; bytes])),
            left: None,
            memory: BufferPool::new(16 << 20),
        }
    }

    /// Writes to one of them; false when the power has gone.
    fn put(&mut self, (drive, at): (usize, u64), bytes: &[u8]) -> bool {
        let mut written = u64::MAX;
        if let Some((left, torn)) = &mut self.left {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            if *left == 0 {
                written = *torn;
            }
        }
        if let Some(medium) = &mut self.media[drive] {
            let granules = medium[at as usize..].chunks_mut(GRANULE);
            for (i, (to, from)) in granules.zip(bytes.chunks(GRANULE)).enumerate() {
                if written >> (i % 64) & 1 == 1 {
                    to.copy_from_slice(from);
                }
            }
        }
        self.left.is_none_or(|(left, _)| left > 0)
    }

    fn get(&self, (drive, at): (usize, u64), bytes: usize) -> Option<&[u8]> {
        self.media[drive]
            .as_deref()?
            .get(at as usize..)?
            .get(..bytes)
    }
}

impl Copies for Disks {
    fn is_here(&self, drive: usize) -> bool {
        self.media[drive].is_some()
    }

    fn read(&mut self, drive: usize, at: u64, bytes: usize) -> Option<Vec<u8>> {
        self.get((drive, at), bytes).map(<[u8]>::to_vec)
    }

    fn read_together(&mut self, places: &[(usize, u64)], bytes: usize) -> Vec<Option<IoBuffer>> {
        let read = |&place: &(usize, u64)| {
            let mut buffer = self.memory.get(bytes)?;
            buffer.copy_from_slice(self.get(place, bytes)?);
            Some(buffer)
        };
        places.iter().map(read).collect()
    }

    fn write(&mut self, places: &[(usize, u64)], bytes: &[u8]) -> Result<(), IoError> {
        let done = places.iter().all(|&place| self.put(place, bytes));
        done.then_some(())
            .ok_or_else(|| IoError::new(ErrorKind::Media, "the power has gone"))
    }
}

/// What the shelf keeps elsewhere, durably and at once.
#[derive(Clone)]
struct Root {
    state: LogState,
    term: u64,
    sequence: u64,
    /// Granules at home: the sequence that they are of, which is also what they hold.
    homes: BTreeMap<GranuleKey, u64>,
}

impl Root {
    fn new() -> Self {
        let copy = |drive, chunk: u32| ChunkCopy {
            drive,
            extent: chunk * SIZES.chunk_extents,
        };
        let chunk = |chunk| Chunk {
            copies: [0, 1].map(|drive| copy(drive, chunk)).to_vec(),
        };
        let first = TermStart {
            term: 1,
            first_batch: 1,
        };
        Self {
            state: LogState {
                chunks: (0..3).map(chunk).collect(),
                tail_at: 0,
                tail_number: 1,
                tail_previous: 0,
                terms: vec![first],
            },
            term: 1,
            sequence: 1,
            homes: BTreeMap::new(),
        }
    }

    fn source(&self) -> Source<'_> {
        Source {
            sizes: &SIZES,
            salt: SALT,
            log: LogId::Ring,
            state: &self.state,
            newest_term: self.term,
            salvages: false,
        }
    }
}

struct Shelf {
    ring: Ring,
    index: Index,
    /// Of the next record.
    sequence: u64,
    /// The last that is durable.
    root: Root,
}

impl Shelf {
    /// As a process begins: what is found, a new term, and only then anything else.
    fn open(disks: &mut Disks, root: &Root) -> Result<Self, PoolError> {
        let mut root = root.clone();
        let found = scan(disks, root.source())?;
        complete_copies(disks, root.source(), &found)?;
        let mut index = Index::default();
        for (key, newest) in found.batches.iter().flat_map(|batch| batch.granules()) {
            if root
                .homes
                .get(&key)
                .is_none_or(|&home| home < newest.sequence)
            {
                index.insert(key, newest);
            }
        }
        let batch = |scanned| {
            let mut batch = LogBatch::found_with_spans(scanned);
            batch.live = live(&index, &batch);
            batch
        };
        let batches = found.batches.iter().map(batch).collect();
        root.term += 1;
        root.sequence = root.sequence.max(found.next_sequence);
        root.state.terms.push(TermStart {
            term: root.term,
            first_batch: found.head.number,
        });
        let ring = Ring::found(&SIZES, &root.state, &found, batches);
        Ok(Self {
            ring,
            index,
            sequence: root.sequence,
            root,
        })
    }

    /// One batch; whether it was acknowledged.
    fn append(&mut self, disks: &mut Disks, spans: &[Span]) -> bool {
        let first_sequence = self.sequence;
        let granules = spans.iter().map(|span| usize::from(span.granules)).sum();
        let mut buffer = vec![0; batch_bytes(spans.len(), granules)];
        let mut composer = Composer::new(&mut buffer, (spans.len(), granules), SALT);
        for (sequence, &span) in (first_sequence..).zip(spans) {
            composer.push(span, |to| {
                to.copy_from_slice(&sequence.to_le_bytes().repeat(to.len() / 8))
            });
        }
        let records = composer.done();
        let crcs = records.crcs.clone();
        let stamp = Stamp {
            log: LogId::Ring,
            salt: SALT,
            term: self.root.term,
            first_sequence,
        };
        let at = self
            .ring
            .append(stamp, records, spans.to_vec(), &mut buffer);
        self.sequence += spans.len() as u64;
        let (copies, offset) = self.ring.log.shape.locate(at);
        let place = |copy: &ChunkCopy| {
            (
                usize::from(copy.drive),
                SIZES.extent_at(copy.extent) + offset,
            )
        };
        let mut places: Vec<(usize, u64)> = copies.iter().map(place).collect();
        if self.sequence.is_multiple_of(2) {
            places.reverse();
        }
        self.ring.appending = places.len();
        let mut durable = false;
        for place in places {
            if !disks.put(place, &buffer) {
                break;
            }
            durable = self.ring.copy_done();
            if durable {
                break;
            }
        }
        let data_at = at + (buffer.len() - granules * GRANULE) as u64;
        let keys = (first_sequence..)
            .zip(spans)
            .flat_map(|(sequence, span)| keys(span).map(move |key| (sequence, key)));
        for ((sequence, key), (block, crc)) in keys.zip((0..).zip(crcs)).filter(|_| durable) {
            let at = data_at + block * GRANULE as u64;
            if let Some(old) = self.index.insert(key, Newest { sequence, at, crc }) {
                self.ring.forget(old.at);
            }
        }
        durable
    }

    /// Takes everything home; the root knows, so what is behind may be written over.
    fn take_home(&mut self) {
        for key in (0..GRANULES).map(key) {
            if let Some(newest) = self.index.remove_older(key, u64::MAX) {
                self.root.homes.insert(key, newest.sequence);
                self.ring.forget(newest.at);
            }
        }
        self.ring.trim(self.sequence);
        let tail = self.ring.tail_at();
        self.root.state = self.ring.state(tail);
        self.root.sequence = self.sequence;
        self.ring.drop_terms();
        self.ring.log.free_below = tail;
    }

    /// What a granule holds: the sequence of the record that wrote it.
    fn read(&self, disks: &Disks, key: GranuleKey) -> Option<u64> {
        let Some(newest) = self.index.get(key) else {
            return self.root.homes.get(&key).copied();
        };
        let (copies, offset) = self.ring.log.shape.locate(newest.at);
        let places = copies.iter().map(|copy| {
            (
                usize::from(copy.drive),
                SIZES.extent_at(copy.extent) + offset,
            )
        });
        let good = |place| {
            disks
                .get(place, GRANULE)
                .filter(|bytes| SALT.crc(bytes) == newest.crc)
        };
        let found: Vec<&[u8]> = places.filter_map(good).collect();
        let here = disks.media.iter().flatten().count();
        assert_eq!(found.len(), here, "every copy has what is found");
        Some(u64::from_le_bytes(found[0][..8].try_into().unwrap()))
    }
}

fn key(granule: u64) -> GranuleKey {
    GranuleKey {
        volume: 16,
        granule,
    }
}

fn keys(span: &Span) -> impl Iterator<Item = GranuleKey> {
    (span.first..span.first + u64::from(span.granules)).map(key)
}

fn live(index: &Index, batch: &LogBatch) -> u32 {
    let inside = batch.at..batch.at + batch.bytes;
    let is_here = |key: &GranuleKey| {
        index
            .get(*key)
            .is_some_and(|newest| inside.contains(&newest.at))
    };
    let here: BTreeSet<GranuleKey> = batch.spans.iter().flat_map(keys).filter(is_here).collect();
    here.len() as u32
}

/// The records of a batch: one to three, of up to eight granules, no two of the same.
fn spans(number: u64) -> Vec<Span> {
    let span = |part: u64| Span {
        volume: 16,
        first: (number * 7 + part * 9) % (GRANULES - 8),
        granules: 1 + ((number * 5 + part * 3) % 8) as u16,
    };
    let mut seen = BTreeSet::new();
    let spans = (0..1 + number % 3).map(span);
    spans
        .filter(|span| keys(span).all(|key| seen.insert(key)))
        .collect()
}

/// What must be there: what was acknowledged, and what the batch that was not would have left.
#[derive(Clone, Default)]
struct Model {
    acknowledged: BTreeMap<GranuleKey, u64>,
    in_flight: BTreeMap<GranuleKey, u64>,
}

/// Batches until the power goes, or so many.
fn live_through(disks: &mut Disks, shelf: &mut Shelf, from: u64) -> Model {
    let mut model = Model::default();
    model.acknowledged.extend(
        (0..GRANULES)
            .map(key)
            .filter_map(|key| Some((key, shelf.read(disks, key)?))),
    );
    for number in from..from + BATCHES {
        if !shelf.ring.log.has_room() {
            shelf.take_home();
        }
        let spans = spans(number);
        let of = (shelf.sequence..).zip(&spans);
        model.in_flight = of
            .flat_map(|(sequence, span)| keys(span).map(move |key| (key, sequence)))
            .collect();
        if !shelf.append(disks, &spans) {
            return model;
        }
        let done = std::mem::take(&mut model.in_flight);
        model.acknowledged.extend(done);
    }
    model
}

/// Everything that was acknowledged is there, and of what was not all or nothing.
fn check(model: &Model, disks: &Disks, shelf: &Shelf) {
    let all: BTreeMap<GranuleKey, u64> = (0..GRANULES)
        .map(key)
        .filter_map(|key| Some((key, shelf.read(disks, key)?)))
        .collect();
    let mut with = model.acknowledged.clone();
    with.extend(&model.in_flight);
    assert!(
        all == model.acknowledged || all == with,
        "{all:?}\n{:?}\n{:?}",
        model.acknowledged,
        model.in_flight
    );
}

/// Which granules of the last write are written: a beginning, an end, or here and there.
fn torn(budget: usize) -> u64 {
    let some = 1 << (budget * 5 % 27);
    [some - 1, !(some - 1), 0x9E37_79B9_7F4A_7C15 << (budget % 7)][budget % 3]
}

#[test]
fn nothing_acknowledged_is_lost_whatever_write_is_the_last() {
    let (mut crashes, mut cuts, mut positions) = (0, 0, BTreeSet::new());
    for budget in 1.. {
        let mut disks = Disks::new();
        let mut shelf = Shelf::open(&mut disks, &Root::new()).unwrap();
        disks.left = Some((budget, torn(budget)));
        let model = live_through(&mut disks, &mut shelf, 0);
        if disks.left.is_some_and(|(left, _)| left > 0) {
            break;
        }
        crashes += 1;
        positions.insert(shelf.ring.log.head.at / SIZES.chunk_bytes());
        disks.left = None;
        let before = disks.media.clone();
        for missing in [None, Some(0), Some(1)] {
            let mut disks = Disks {
                media: disks.media.clone(),
                ..Disks::new()
            };
            if let Some(drive) = missing {
                disks.media[drive] = None;
            }
            // Whatever recovery writes, it may be its last.
            disks.left = Some((1, !torn(budget)));
            let cut = Shelf::open(&mut disks, &shelf.root);
            cuts += usize::from(cut.is_err());
            disks.left = None;
            let mut shelf = Shelf::open(&mut disks, &shelf.root).unwrap();
            check(&model, &disks, &shelf);
            if let Some(drive) = missing {
                // What only the copy that comes back has was not there, and must not be now.
                let mut all = Disks::new();
                all.media.clone_from(&disks.media);
                all.media[drive].clone_from(&before[drive]);
                let later = Shelf::open(&mut all, &shelf.root).unwrap();
                for key in (0..GRANULES).map(key) {
                    assert_eq!(later.read(&all, key), shelf.read(&disks, key), "{key:?}");
                }
            }
            // It goes on, and what the crash has left behind its end is nothing's, whichever copy is lost then.
            let model = live_through(&mut disks, &mut shelf, 100);
            let lost = 1 - missing.unwrap_or(0);
            disks.media[lost] = disks.media[lost].take().filter(|_| missing.is_some());
            let shelf = Shelf::open(&mut disks, &shelf.root).unwrap();
            check(&model, &disks, &shelf);
        }
    }
    assert!(crashes > 130 && cuts > 20, "{crashes} {cuts}");
    assert!(positions.len() > 6, "several laps: {positions:?}");
}

/// The third batch, damaged on these copies, and what comes of it.
fn damaged(copies: &[usize]) -> Result<Shelf, PoolError> {
    let mut disks = Disks::new();
    let mut shelf = Shelf::open(&mut disks, &Root::new()).unwrap();
    for number in 0..5 {
        assert!(shelf.append(&mut disks, &spans(number)));
    }
    let (of, offset) = shelf.ring.log.shape.locate(shelf.ring.batches[2].at);
    let at = SIZES.extent_at(of[0].extent) + offset;
    for &copy in copies {
        disks.media[copy].as_mut().unwrap()[at as usize + GRANULE] ^= 1;
    }
    let opened = Shelf::open(&mut disks, &shelf.root)?;
    for key in (0..GRANULES).map(key) {
        assert_eq!(opened.read(&disks, key), shelf.read(&disks, key));
    }
    Ok(opened)
}

#[test]
fn a_batch_that_another_follows_is_damage_when_no_copy_is_good() {
    damaged(&[0]).unwrap();
    damaged(&[1]).unwrap();
    let Err(error) = damaged(&[0, 1]) else {
        panic!("it was opened without the third batch");
    };
    let text = error.to_string();
    assert!(text.contains("batch 3 was acknowledged"), "{text}");
}
