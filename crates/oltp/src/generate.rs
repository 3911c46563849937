//! The initial rows of TPC-C clause 4.3.3, table by table and warehouse by warehouse. A part's rows
//! depend on the seed and the part only, so parts can be made in any order and by any thread.

mod rows;
#[cfg(test)]
mod tests;

use ashlar_lab::LabError;

use crate::random::{Constants, Rng};
use crate::schema::{Shape, Table};

/// Takes rows, value by value in the order of the table's columns.
pub trait RowSink {
    /// A whole number.
    fn int(&mut self, value: i32);
    /// A decimal: `units` of 10^-`scale`.
    fn decimal(&mut self, units: i64, scale: u8);
    /// Text, ASCII.
    fn text(&mut self, value: &[u8]);
    /// A moment in microseconds since 1970 (UTC).
    fn time(&mut self, unix_us: i64);
    fn null(&mut self);
    /// The row is complete.
    ///
    /// # Errors
    /// What the database says to it.
    fn end_row(&mut self) -> Result<(), LabError>;
}

/// What is to be generated.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub shape: Shape,
    /// Seed of the data.
    pub seed: u64,
    /// NURand's constants.
    pub constants: Constants,
    /// The time of the load, microseconds since 1970 (UTC).
    pub now_us: i64,
}

/// A table's rows of one warehouse; items belong to warehouse 0, and of the table that is scanned it
/// is the number of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub table: Table,
    pub warehouse: i32,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.table, self.warehouse) {
            (Table::Item, _) => f.write_str(self.table.name()),
            (Table::Scan, piece) => write!(f, "{}, piece {piece}", self.table.name()),
            (table, warehouse) => write!(f, "{} of warehouse {warehouse}", table.name()),
        }
    }
}

impl Recipe {
    /// All parts, longest first.
    pub fn parts(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        for table in Table::ALL {
            let warehouses = match table {
                Table::Item => 0..=0,
                _ => 1..=self.shape.warehouses,
            };
            parts.extend(warehouses.map(|warehouse| Part { table, warehouse }));
        }
        parts
    }

    /// The parts of the table that is scanned, which has `shape.items` rows.
    pub fn scan_parts(&self) -> Vec<Part> {
        let pieces = (self.shape.items - 1) / SCAN_PIECE + 1;
        let piece = |warehouse| Part {
            table: Table::Scan,
            warehouse,
        };
        (0..pieces).map(piece).collect()
    }

    /// Gives a part's rows to `sink`; how many there were.
    ///
    /// # Errors
    /// The sink's.
    pub fn fill(&self, part: Part, sink: &mut impl RowSink) -> Result<u64, LabError> {
        let numbers = [part.table as u64, part.warehouse as u64];
        rows::rows(self, part, Rng::stream(self.seed, &numbers), sink)
    }

    /// The numbers of lines of a district's orders: orders and order lines must agree on them.
    fn line_counts(&self, warehouse: i32, district: i32) -> impl Iterator<Item = i32> + use<> {
        const LINE_COUNTS: u64 = 99;
        let numbers = [LINE_COUNTS, warehouse as u64, district as u64];
        let mut rng = Rng::stream(self.seed, &numbers);
        (0..self.shape.customers).map(move |_| rng.within(5, 15))
    }
}

/// Letters of a row that is scanned: a million rows are 0.75 GB, as in the published measurement.
pub(crate) const SCAN_FILLER: i32 = 740;
/// Rows of a part of the table that is scanned.
const SCAN_PIECE: i32 = 10_000;
