//! Reads the columns of a slot, or some rows of them, and puts them together. First only the columns
//! that have what is wanted; when something of it is bad or missing, the others too.

use std::ops::Range;

use super::row::{Row, Wanted};
use crate::Canary;
use crate::engine::access::locks::SlotKey;
use crate::engine::class::Shape;
use crate::engine::invariant::invariant;
use crate::engine::mending::{Around, Made, Mending};
use crate::engine::salvage::{Reader, Strip};
use crate::engine::space::{DriveByte, segment_and_slot};
use crate::format::ChunkCopy;
use crate::sizes::{GRANULE, UNIT_GRANULES};

/// Who wants a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum For {
    /// A part of a read.
    Read { op: usize, at: u32 },
    /// A slot on its way home, for what it keeps.
    Destage { job: usize },
    /// A scrub or rebuild, which wants every column.
    Walk { job: usize },
}

/// What is wanted of a slot.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Wish {
    pub(in crate::engine) who: For,
    pub(in crate::engine) key: SlotKey,
    pub(in crate::engine) location: u32,
    /// Granules that are wanted, as bits.
    pub(in crate::engine) granules: u16,
    /// Columns that are known to be bad where they are wanted, as bits.
    pub(in crate::engine) bad: u8,
    /// Checksums of its granules that the asker knows; 0 for others, which the map may know.
    pub(in crate::engine) crcs: [u32; UNIT_GRANULES as usize],
}

/// A slot that was put together.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) location: u32,
    shape: Shape,
    /// Granules that were wanted, as bits.
    wanted: u16,
    pub(crate) rows: Vec<Row>,
}

impl Gathered {
    /// The bytes of a granule of the slot; none if it is lost, or was not asked for.
    pub(in crate::engine) fn granule(&self, granule: usize) -> Option<&[u8]> {
        let (column, row) = self.shape.place(granule);
        let row = self.rows.iter().find(|found| found.number == row)?;
        if row.lost.contains(&column) || row.said_lost.contains(&column) {
            return None;
        }
        row.columns.get(column)?.as_deref()
    }

    /// How many of the granules that were wanted are lost.
    pub(in crate::engine) fn lost(&self) -> usize {
        self.wanted_of(|row| &row.said_lost) + self.newly_lost()
    }

    /// The same without those of which the map says so.
    pub(in crate::engine) fn newly_lost(&self) -> usize {
        self.wanted_of(|row| &row.lost)
    }

    fn wanted_of(&self, columns: impl Fn(&Row) -> &Vec<usize>) -> usize {
        let granules = self.rows.iter().flat_map(|row| {
            let columns = columns(row).iter();
            columns.filter_map(|&column| self.shape.granule(column, row.number))
        });
        granules.filter(|i| self.wanted & 1 << i != 0).count()
    }

    /// How many granules of its columns were bad.
    pub(in crate::engine) fn bad(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().flat_map(|row| row.bad.iter().copied())
    }
}

/// A slot that is being put together.
pub(in crate::engine) struct Gather {
    wish: Wish,
    shape: Shape,
    columns: Vec<ChunkCopy>,
    /// The column whose drive returns: what it holds may be old, and only its data say so.
    returning: Option<usize>,
    rows: Range<usize>,
    /// Of each granule of the slot: its checksum, if it has one.
    crcs: [Option<u32>; UNIT_GRANULES as usize],
    asked: Vec<bool>,
    strips: Vec<Option<Strip>>,
    pending: usize,
}

impl Gather {
    /// How many granules its slot has.
    pub(in crate::engine) fn granules(&self) -> usize {
        self.shape.granules()
    }

    fn column_wanted(&self, column: usize) -> bool {
        let rows = self.rows.clone();
        let mut granules = rows.filter_map(|row| self.shape.granule(column, row));
        granules.any(|granule| self.wish.granules & 1 << granule != 0)
    }

    /// What a column was found to hold in a row.
    fn found(&self, column: usize, row: usize) -> Option<&[u8]> {
        self.strips[column].as_ref()?.granule(row - self.rows.start)
    }

    /// Whether a granule is here as it should be.
    fn is_here(&self, granule: usize, crc: impl Fn(&[u8]) -> u32) -> bool {
        let (column, row) = self.shape.place(granule);
        let found = self.found(column, row);
        found.is_some_and(|bytes| self.crcs[granule] == Some(crc(bytes)))
    }

    /// What was read is what was wanted: nothing to solve.
    fn as_read(&self) -> Gathered {
        let row = |number: usize| Row {
            number,
            columns: (0..self.columns.len())
                .map(|column| self.found(column, number).map(<[u8]>::to_vec))
                .collect(),
            bad: Vec::new(),
            lost: Vec::new(),
            said_lost: Vec::new(),
        };
        self.gathered(self.rows.clone().map(row).collect())
    }

    /// The good copy of each granule, where every column has all of them.
    fn choose(&self, crc: impl Fn(&[u8]) -> u32) -> Gathered {
        let row = |number: usize| {
            let expected = self.crcs[number];
            let good = |bytes: &&[u8]| expected.is_none_or(|expected| crc(bytes) == expected);
            let copies = 0..self.columns.len();
            let found = copies.clone().filter_map(|copy| self.found(copy, number));
            let chosen = found.filter(|bytes| good(bytes)).map(<[u8]>::to_vec).next();
            let is_bad =
                |&copy: &usize| self.asked[copy] && self.found(copy, number).filter(good).is_none();
            Row {
                number,
                bad: copies.filter(is_bad).collect(),
                lost: chosen.is_none().then_some(0).into_iter().collect(),
                said_lost: Vec::new(),
                columns: vec![chosen],
            }
        };
        self.gathered(self.rows.clone().map(row).collect())
    }

    fn gathered(&self, rows: Vec<Row>) -> Gathered {
        Gathered {
            location: self.wish.location,
            shape: self.shape,
            wanted: self.wish.granules,
            rows,
        }
    }

    fn solve(&self, salt: crate::format::Salt) -> Gathered {
        if self.shape.is_mirror() {
            return self.choose(|bytes| salt.crc(bytes));
        }
        let data = usize::from(self.shape.data);
        let solve_row = |row: usize| {
            let granules: Vec<Option<usize>> =
                (0..data).map(|c| self.shape.granule(c, row)).collect();
            let crc = |granule: &Option<usize>| granule.and_then(|granule| self.crcs[granule]);
            let wanted = Wanted {
                number: row,
                crcs: &granules.iter().map(crc).collect::<Vec<Option<u32>>>(),
                padding: &granules.iter().map(Option::is_none).collect::<Vec<bool>>(),
                parity: usize::from(self.shape.parity),
                salt,
            };
            let found: Vec<Option<&[u8]>> = (0..self.columns.len())
                .map(|column| self.found(column, row))
                .collect();
            match self.returning {
                Some(back) => wanted.solve_beside(&found, &self.asked, back),
                None => wanted.solve(&found, &self.asked),
            }
        };
        self.gathered(self.rows.clone().map(solve_row).collect())
    }
}

impl Mending {
    /// Begins to put slots together, as many as may be at a time.
    pub(in crate::engine) fn begin_gathers(&mut self, around: &mut Around<'_>) {
        while let Some(wish) = self.next_wish() {
            self.open_gather(wish, around);
        }
    }

    fn open_gather(&mut self, wish: Wish, around: &mut Around<'_>) {
        let segment = segment_and_slot(wish.location).0;
        let Some(found) = around.space.segments.get(segment) else {
            return invariant!(
                around.base,
                "a slot of segment {segment} is wanted, which is not there"
            );
        };
        let (shape, columns) = (found.shape, found.columns.to_vec());
        let rows = match wish.who {
            For::Walk { .. } => 0..shape.rows(),
            _ => rows_of(shape, wish.granules),
        };
        // A granule that reads as zeroes has none.
        let has_one = |crc: u32| (crc != 0).then_some(crc);
        let mut crcs = wish.crcs.map(has_one);
        for (crc, granule) in crcs.iter_mut().zip(around.map.granules_of(wish.key)) {
            // What the map says of another location tells nothing about this one.
            if let Some((location, known)) = around.map.granule(wish.key.volume, granule)
                && location == wish.location
                && crc.is_none()
            {
                *crc = has_one(known);
            }
        }
        let is_walk = matches!(wish.who, For::Walk { .. })
            && !around.identity.sings(Canary::ReadmitStaleParity);
        let returning =
            |copy: &ChunkCopy| is_walk && around.rebuild.returns().is(usize::from(copy.drive));
        let gather = Gather {
            returning: columns.iter().position(returning),
            asked: vec![false; columns.len()],
            strips: columns.iter().map(|_| None).collect(),
            wish,
            shape,
            columns,
            rows,
            crcs,
            pending: 0,
        };
        let everything = gather.wish.bad != 0 || matches!(gather.wish.who, For::Walk { .. });
        let id = self.begin_gather(gather);
        self.ask(id, everything, around);
    }

    /// Reads the columns that have what is wanted, or all.
    fn ask(&mut self, id: usize, everything: bool, around: &mut Around<'_>) {
        let Some(gather) = self.gather_mut(id) else {
            return invariant!(around.base, "gather {id} is not there in ask");
        };
        let (shape, rows) = (gather.shape, gather.rows.clone());
        let slot = segment_and_slot(gather.wish.location).1;
        let gather_returning = gather.returning;
        let mut places = Vec::new();
        for (which, &column) in gather.columns.iter().enumerate() {
            let known_bad = gather.wish.bad & 1 << which != 0;
            let wanted = everything || gather.column_wanted(which);
            if wanted && !known_bad && !gather.asked[which] {
                places.push((which, column));
            }
        }
        for (which, column) in places {
            let drive = usize::from(column.drive);
            let returns = gather_returning == Some(which);
            if !around.space.drives.in_service(column.drive) && !returns {
                continue;
            }
            let Some(buffer) = around.buffer(rows.len() * GRANULE) else {
                break;
            };
            let at = shape.strip_at(around.identity.sizes(), column, slot)
                + (rows.start * GRANULE) as u64;
            if let Some(gather) = self.gather_mut(id) {
                gather.asked[which] = true;
                gather.pending += 1;
            }
            let reader = Reader::Gather {
                gather: id,
                column: which,
            };
            self.read_strip(reader, DriveByte { drive, byte: at }, buffer, around);
        }
        self.end_gather_if_read(id, everything, around);
    }

    pub(in crate::engine) fn column_read(
        &mut self,
        id: usize,
        column: usize,
        strip: Option<Strip>,
        around: &mut Around<'_>,
    ) {
        let Some(gather) = self.gather_mut(id) else {
            return invariant!(around.base, "gather {id} is not there in column_read");
        };
        gather.strips[column] = strip;
        gather.pending -= 1;
        // Nothing but the second question asks for parity.
        let everything = gather.asked[usize::from(gather.shape.data)..].contains(&true);
        self.end_gather_if_read(id, everything, around);
    }

    fn end_gather_if_read(&mut self, id: usize, everything: bool, around: &mut Around<'_>) {
        let Some(gather) = self.gather(id) else {
            return invariant!(
                around.base,
                "gather {id} is not there in end_gather_if_read"
            );
        };
        if gather.pending > 0 {
            return;
        }
        let salt = around.identity.salt();
        let granules = 0..gather.shape.granules();
        let wanted = granules.filter(|i| gather.wish.granules & 1 << i != 0);
        let all_here = wanted
            .into_iter()
            .all(|i| gather.is_here(i, |b| salt.crc(b)));
        // A reader is served while that is possible, also when the engine has stopped.
        let goes_on = around.base.failed.is_none() || matches!(gather.wish.who, For::Read { .. });
        if !all_here && !everything && goes_on {
            return self.ask(id, true, around);
        }
        let Some(gather) = self.end_gather(id) else {
            return invariant!(around.base, "gather {id} is not there to end");
        };
        let found = match everything {
            true => gather.solve(salt),
            false => gather.as_read(),
        };
        for which in found.bad() {
            let column = gather.columns[which];
            if gather.asked[which] {
                around
                    .space
                    .note_bad(usize::from(column.drive), &mut around.base.counters);
            }
        }
        let who = gather.wish.who;
        self.has_made(Made::Slot { who, found });
    }
}

/// The rows that some granules lie in, from the first to the last.
fn rows_of(shape: Shape, granules: u16) -> Range<usize> {
    let wanted = (0..shape.granules()).filter(|i| granules & 1 << i != 0);
    let rows: Vec<usize> = wanted.map(|granule| shape.place(granule).1).collect();
    let first = rows.iter().min().copied().unwrap_or(0);
    let last = rows.iter().max().copied().unwrap_or(0);
    first..last + 1
}
