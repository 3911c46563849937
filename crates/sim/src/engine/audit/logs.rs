//! Logs: where they begin, where they end, and what lies behind that.

use ashlar_store::format::{Batch, BatchError, LogId, LogState, Salt};
use ashlar_store::sizes::GRANULE;

use super::{Found, Media, Pool, Trust};

/// Bytes of a batch's header.
const HEADER_BYTES: usize = 64;

/// What a batch must be to count: whole, or with records that can be read.
type Decode = fn(&[u8], Salt, LogId, usize) -> Result<(Batch, u32), BatchError>;

/// A batch that counts.
struct Link {
    at: u64,
    bytes: u64,
    first_sequence: u64,
}

/// Where a log's next batch is.
#[derive(Clone, Copy)]
struct Head {
    at: u64,
    number: u64,
    /// Its predecessor's checksum.
    previous: u32,
}

/// A log as it lies there.
struct Chain {
    links: Vec<Link>,
    head: Head,
}

impl Pool {
    fn log(&self, log: LogId) -> &LogState {
        match log {
            LogId::Ring => &self.root.ring,
            LogId::Map => &self.root.map,
        }
    }

    /// The copies of a position: drive, byte, and whether the drive is to be believed.
    pub(super) fn copies_at(&self, log: LogId, at: u64) -> Vec<(usize, u64, Trust)> {
        let chunk_bytes = self.label.sizes.chunk_bytes();
        let chunks = &self.log(log).chunks;
        let chunk = &chunks[(at / chunk_bytes % chunks.len() as u64) as usize];
        let mut places = self.places(&chunk.copies);
        places
            .iter_mut()
            .for_each(|(_, byte, _)| *byte += at % chunk_bytes);
        places
    }

    /// Where the next batch begins after one at `at`: never where the largest one would not fit.
    fn after(&self, at: u64, bytes: u64) -> u64 {
        let chunk = self.label.sizes.chunk_bytes();
        let end = at + bytes;
        let left = end.next_multiple_of(chunk) - end;
        if left < u64::from(self.label.sizes.batch_bytes) {
            end + left
        } else {
            end
        }
    }

    /// The term that a batch of this number has.
    fn term_of(&self, log: LogId, number: u64) -> u64 {
        let begun = self.log(log).terms.iter();
        let begun = begun.filter(|start| start.first_batch <= number);
        begun.map(|start| start.term).max().unwrap_or(0)
    }

    fn batch_at(
        &self,
        media: &Media<'_>,
        log: LogId,
        head: Head,
        decode: Decode,
    ) -> Option<(Batch, u32)> {
        let Head {
            at,
            number,
            previous,
        } = head;
        let (salt, limit) = (self.label.salt, self.label.sizes.batch_bytes as usize);
        let is_next = |batch: &Batch| {
            batch.number == number
                && batch.previous == previous
                && batch.term == self.term_of(log, number)
        };
        self.copies_at(log, at)
            .into_iter()
            .find_map(|(drive, byte, _)| {
                let first = media.read(drive, byte, GRANULE)?;
                let len = Batch::peek(&first, salt, log, limit)?;
                // Where a block cannot be read, the first may say enough.
                let bytes = media.read(drive, byte, len).unwrap_or(first);
                let (batch, crc) = decode(&bytes, salt, log, limit).ok()?;
                is_next(&batch).then_some((batch, crc))
            })
    }

    /// A log from the root's tail to its end.
    fn chain(&self, media: &Media<'_>, log: LogId) -> Chain {
        self.chain_of(media, log, Batch::decode)
    }

    fn chain_of(&self, media: &Media<'_>, log: LogId, decode: Decode) -> Chain {
        let state = self.log(log);
        let mut chain = Chain {
            links: Vec::new(),
            head: Head {
                at: state.tail_at,
                number: state.tail_number,
                previous: state.tail_previous,
            },
        };
        let most = self.label.sizes.chunk_bytes() / GRANULE as u64 * state.chunks.len() as u64;
        while (chain.links.len() as u64) < most
            && let Some((batch, crc)) = self.batch_at(media, log, chain.head, decode)
        {
            let Head { at, number, .. } = chain.head;
            chain.links.push(Link {
                at,
                bytes: batch.bytes() as u64,
                first_sequence: batch.first_sequence,
            });
            chain.head = Head {
                at: self.after(at, batch.bytes() as u64),
                number: number + 1,
                previous: crc,
            };
        }
        chain
    }

    /// Whether a byte of a drive is in the map's log.
    pub(crate) fn is_in_map_log(&self, drive: usize, byte: u64) -> bool {
        let chunks = self.root.map.chunks.iter();
        let mut places = chunks.flat_map(|chunk| self.places(&chunk.copies));
        let bytes = self.label.sizes.chunk_bytes();
        places.any(|(on, at, _)| on == drive && (at..at + bytes).contains(&byte))
    }

    /// Where the last batches of both logs lie, so many of each: drive, first byte and the one behind the last.
    /// What damages the only copy of the last one cannot be told from a crash.
    pub(crate) fn last_batches(&self, media: &Media<'_>, count: usize) -> Vec<(usize, u64, u64)> {
        let last = [LogId::Ring, LogId::Map].into_iter().flat_map(|log| {
            // An import goes on behind a batch whose data is damaged.
            let links = self.chain_of(media, log, Batch::decode_records).links;
            links.into_iter().rev().take(count).map(move |l| (log, l))
        });
        last.flat_map(|(log, Link { at, bytes, .. })| {
            let copies = self.copies_at(log, at).into_iter();
            copies.map(move |(drive, byte, _)| (drive, byte, byte + bytes))
        })
        .collect()
    }
}

impl Found {
    pub(super) fn check_logs(&self, media: &Media<'_>) -> Result<(), String> {
        for log in [LogId::Ring, LogId::Map] {
            let chain = self.pool.chain(media, log);
            if let Some(link) = chain.links.first() {
                let (at, count) = (link.at, chain.links.len());
                return Err(format!(
                    "the pool has settled, but the {log:?} log has {count} batches from {at} on"
                ));
            }
            self.check_terms(log)?;
            self.check_behind(media, log, &chain)?;
        }
        Ok(())
    }

    fn check_terms(&self, log: LogId) -> Result<(), String> {
        let terms = &self.pool.log(log).terms;
        let grow = terms.windows(2).all(|pair| pair[0].term < pair[1].term);
        let last = terms.last().map_or(0, |start| start.term);
        match grow && last <= self.pool.root.term {
            true => Ok(()),
            false => Err(format!("the {log:?} log's terms do not grow: {terms:?}")),
        }
    }

    /// Nothing behind the log's end was written in this term, or in one that the root does not know.
    fn check_behind(&self, media: &Media<'_>, log: LogId, chain: &Chain) -> Result<(), String> {
        let pool = &self.pool;
        let head = chain.head.number;
        let now = pool.term_of(log, head);
        let (salt, sizes) = (pool.label.salt, pool.label.sizes);
        let limit = sizes.batch_bytes as usize;
        let copies = pool.log(log).chunks.iter();
        let copies = copies.flat_map(|chunk| pool.places(&chunk.copies));
        for (drive, at, _) in copies.filter(|(_, _, trust)| *trust == Trust::Good) {
            for at in (at..at + sizes.chunk_bytes()).step_by(GRANULE) {
                // Most granules are no header, and seen to be none by their first bytes.
                let header = media.read(drive, at, HEADER_BYTES);
                let length = header.as_deref().map(|header| {
                    let known = Batch::peek_number_and_term(header);
                    (Batch::peek(header, salt, log, limit), known)
                });
                let Some((Some(length), Some((number, term)))) = length else {
                    continue;
                };
                let strange = term > pool.root.term || term == now && number > head;
                let batch = strange.then(|| media.read(drive, at, length)).flatten();
                if batch.is_some_and(|bytes| Batch::decode(&bytes, salt, log, limit).is_ok()) {
                    return Err(format!(
                        "drive {drive} holds batch {number} of term {term} of the {log:?} log, which \
                         ends before batch {head} of term {now}; the root's term is {}",
                        pool.root.term
                    ));
                }
            }
        }
        Ok(())
    }
}

/// At any moment, settled or not: no record of the ring that recovery would replay is older than what
/// the map has let go of.
pub(crate) fn check_order(media: &Media<'_>) -> Result<Option<(u64, u64)>, String> {
    let Some(pool) = Pool::read(media) else {
        return Ok(None);
    };
    let oldest = pool.chain(media, LogId::Ring);
    let oldest = oldest.links.first().map(|link| link.first_sequence);
    let let_go = pool.root.map_sequence;
    match oldest {
        Some(oldest) if oldest < let_go => Err(format!(
            "a root says that the map has all changes below {let_go}, but the ring begins at {oldest}"
        )),
        _ => Ok(Some((pool.root.term, pool.root.generation))),
    }
}
