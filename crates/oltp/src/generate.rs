//! The initial rows of TPC-C clause 4.3.3, table by table and warehouse by warehouse. A part's rows
//! depend on the seed and the part only, so parts can be made in any order and by anyone.

use ashlar_lab::LabError;

use crate::random::{Constants, Rng, push_last_name};
use crate::schema::{DISTRICTS, Shape, Table};

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
    /// Nothing.
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
    /// Cardinalities.
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
    /// The table.
    pub table: Table,
    /// The warehouse.
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
        let mut maker = Maker {
            recipe: *self,
            warehouse: part.warehouse,
            rng: Rng::stream(self.seed, &numbers),
            text: Vec::with_capacity(512),
            rows: 0,
        };
        match part.table {
            Table::Item => maker.items(sink),
            Table::Warehouse => maker.warehouse(sink),
            Table::District => maker.districts(sink),
            Table::Customer => maker.customers(sink),
            Table::History => maker.history(sink),
            Table::Stock => maker.stock(sink),
            Table::Orders => maker.orders(sink),
            Table::NewOrder => maker.new_orders(sink),
            Table::OrderLine => maker.order_lines(sink),
            Table::Scan => maker.scanned(sink),
        }?;
        Ok(maker.rows)
    }

    /// The numbers of lines of a district's orders: orders and order lines must agree on them.
    fn line_counts(&self, warehouse: i32, district: i32) -> impl Iterator<Item = i32> + use<> {
        const LINE_COUNTS: u64 = 99;
        let numbers = [LINE_COUNTS, warehouse as u64, district as u64];
        let mut rng = Rng::stream(self.seed, &numbers);
        (0..self.shape.customers).map(move |_| rng.within(5, 15))
    }
}

struct Maker {
    recipe: Recipe,
    warehouse: i32,
    rng: Rng,
    text: Vec<u8>,
    rows: u64,
}

type Made = Result<(), LabError>;

impl Maker {
    fn end(&mut self, sink: &mut impl RowSink) -> Made {
        self.rows += 1;
        sink.end_row()
    }

    fn letters(&mut self, sink: &mut impl RowSink, least: i32, most: i32) {
        self.text.clear();
        self.rng.letters(&mut self.text, least, most);
        sink.text(&self.text);
    }

    fn data(&mut self, sink: &mut impl RowSink) {
        self.text.clear();
        self.rng.data(&mut self.text);
        sink.text(&self.text);
    }

    /// Street twice, city, state, zip.
    fn address(&mut self, sink: &mut impl RowSink) {
        for _ in 0..3 {
            self.letters(sink, 10, 20);
        }
        self.letters(sink, 2, 2);
        self.text.clear();
        self.rng.zip(&mut self.text);
        sink.text(&self.text);
    }

    fn items(&mut self, sink: &mut impl RowSink) -> Made {
        for item in 1..=self.recipe.shape.items {
            sink.int(item);
            sink.int(self.rng.within(1, 10_000));
            self.letters(sink, 14, 24);
            sink.decimal(self.rng.within(100, 10_000).into(), 2);
            self.data(sink);
            self.end(sink)?;
        }
        Ok(())
    }

    fn warehouse(&mut self, sink: &mut impl RowSink) -> Made {
        sink.int(self.warehouse);
        self.letters(sink, 6, 10);
        self.address(sink);
        sink.decimal(self.rng.within(0, 2000).into(), 4);
        sink.decimal(self.paid_in_district() * i64::from(DISTRICTS), 2);
        self.end(sink)
    }

    /// What the initial history adds up to: 30,000.00 for 3,000 customers.
    fn paid_in_district(&self) -> i64 {
        i64::from(self.recipe.shape.customers) * FIRST_PAYMENT
    }

    fn districts(&mut self, sink: &mut impl RowSink) -> Made {
        for district in 1..=DISTRICTS {
            sink.int(district);
            sink.int(self.warehouse);
            self.letters(sink, 6, 10);
            self.address(sink);
            sink.decimal(self.rng.within(0, 2000).into(), 4);
            sink.decimal(self.paid_in_district(), 2);
            sink.int(self.recipe.shape.customers + 1);
            self.end(sink)?;
        }
        Ok(())
    }

    fn customers(&mut self, sink: &mut impl RowSink) -> Made {
        for district in 1..=DISTRICTS {
            for customer in 1..=self.recipe.shape.customers {
                sink.int(customer);
                sink.int(district);
                sink.int(self.warehouse);
                self.letters(sink, 8, 16);
                sink.text(b"OE");
                self.last_name(sink, customer);
                self.address(sink);
                self.text.clear();
                self.rng.digits(&mut self.text, 16);
                sink.text(&self.text);
                sink.time(self.recipe.now_us);
                sink.text(if self.rng.percent(10) { b"BC" } else { b"GC" });
                sink.decimal(5_000_000, 2);
                sink.decimal(self.rng.within(0, 5000).into(), 4);
                sink.decimal(-FIRST_PAYMENT, 2);
                sink.decimal(FIRST_PAYMENT, 2);
                sink.int(1);
                sink.int(0);
                self.letters(sink, 300, 500);
                self.end(sink)?;
            }
        }
        Ok(())
    }

    /// The first thousand customers have all names, the others random ones.
    fn last_name(&mut self, sink: &mut impl RowSink, customer: i32) {
        let number = if customer <= 1000 {
            customer - 1
        } else {
            let Recipe {
                constants, shape, ..
            } = &self.recipe;
            self.rng.last(constants, shape.customers)
        };
        self.text.clear();
        push_last_name(&mut self.text, number);
        sink.text(&self.text);
    }

    fn history(&mut self, sink: &mut impl RowSink) -> Made {
        for district in 1..=DISTRICTS {
            for customer in 1..=self.recipe.shape.customers {
                for number in [customer, district, self.warehouse, district, self.warehouse] {
                    sink.int(number);
                }
                sink.time(self.recipe.now_us);
                sink.decimal(FIRST_PAYMENT, 2);
                self.letters(sink, 12, 24);
                self.end(sink)?;
            }
        }
        Ok(())
    }

    fn stock(&mut self, sink: &mut impl RowSink) -> Made {
        for item in 1..=self.recipe.shape.items {
            sink.int(item);
            sink.int(self.warehouse);
            sink.int(self.rng.within(10, 100));
            // One draw for all ten: fewer calls for what is most of a load.
            self.text.clear();
            self.rng.letters(&mut self.text, 240, 240);
            for info in self.text.chunks_exact(24) {
                sink.text(info);
            }
            sink.int(0);
            sink.int(0);
            sink.int(0);
            self.data(sink);
            self.end(sink)?;
        }
        Ok(())
    }

    fn orders(&mut self, sink: &mut impl RowSink) -> Made {
        let Shape { customers, .. } = self.recipe.shape;
        let mut permutation: Vec<i32> = (1..=customers).collect();
        for district in 1..=DISTRICTS {
            self.rng.shuffle(&mut permutation);
            let lines = self.recipe.line_counts(self.warehouse, district);
            for ((order, customer), lines) in (1..).zip(&permutation).zip(lines) {
                for number in [order, district, self.warehouse, *customer] {
                    sink.int(number);
                }
                sink.time(self.recipe.now_us);
                if order <= self.recipe.shape.delivered() {
                    sink.int(self.rng.within(1, 10));
                } else {
                    sink.null();
                }
                sink.int(lines);
                sink.int(1);
                self.end(sink)?;
            }
        }
        Ok(())
    }

    fn new_orders(&mut self, sink: &mut impl RowSink) -> Made {
        for district in 1..=DISTRICTS {
            for order in self.recipe.shape.delivered() + 1..=self.recipe.shape.customers {
                for number in [order, district, self.warehouse] {
                    sink.int(number);
                }
                self.end(sink)?;
            }
        }
        Ok(())
    }

    fn scanned(&mut self, sink: &mut impl RowSink) -> Made {
        let first = self.warehouse * SCAN_PIECE;
        for row in first
            ..self
                .recipe
                .shape
                .items
                .min(first.saturating_add(SCAN_PIECE))
        {
            sink.int(row);
            self.letters(sink, SCAN_FILLER, SCAN_FILLER);
            self.end(sink)?;
        }
        Ok(())
    }

    fn order_lines(&mut self, sink: &mut impl RowSink) -> Made {
        for district in 1..=DISTRICTS {
            let lines = self.recipe.line_counts(self.warehouse, district);
            for (order, lines) in (1..).zip(lines) {
                for number in 1..=lines {
                    self.order_line(sink, (district, order, number))?;
                }
            }
        }
        Ok(())
    }

    fn order_line(
        &mut self,
        sink: &mut impl RowSink,
        (district, order, number): (i32, i32, i32),
    ) -> Made {
        let item = self.rng.within(1, self.recipe.shape.items);
        for number in [
            order,
            district,
            self.warehouse,
            number,
            item,
            self.warehouse,
        ] {
            sink.int(number);
        }
        let delivered = order <= self.recipe.shape.delivered();
        if delivered {
            sink.time(self.recipe.now_us);
        } else {
            sink.null();
        }
        sink.int(5);
        let amount = if delivered {
            0
        } else {
            self.rng.within(1, 999_999)
        };
        sink.decimal(amount.into(), 2);
        self.letters(sink, 24, 24);
        self.end(sink)
    }
}

/// Letters of a row that is scanned: a million rows are 0.75 GB, as in the published measurement.
pub(crate) const SCAN_FILLER: i32 = 740;
/// Rows of a part of the table that is scanned.
const SCAN_PIECE: i32 = 10_000;

/// What every customer has paid at first, in cents.
const FIRST_PAYMENT: i64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows as text, with values in the order in which they came.
    #[derive(Default)]
    struct Lines {
        row: Vec<String>,
        rows: Vec<Vec<String>>,
    }

    impl RowSink for Lines {
        fn int(&mut self, value: i32) {
            self.row.push(value.to_string());
        }
        fn decimal(&mut self, units: i64, scale: u8) {
            self.row.push(format!("{units}e-{scale}"));
        }
        fn text(&mut self, value: &[u8]) {
            self.row
                .push(String::from_utf8(value.to_vec()).expect("ASCII"));
        }
        fn time(&mut self, unix_us: i64) {
            self.row.push(format!("@{unix_us}"));
        }
        fn null(&mut self) {
            self.row.push("-".into());
        }
        fn end_row(&mut self) -> Result<(), LabError> {
            self.rows.push(std::mem::take(&mut self.row));
            Ok(())
        }
    }

    fn recipe(customers: i32) -> Recipe {
        Recipe {
            shape: Shape {
                warehouses: 1,
                items: 1000,
                customers,
            },
            seed: 42,
            constants: Constants::for_load(&mut Rng::new(42)),
            now_us: 5,
        }
    }

    fn rows(recipe: &Recipe, table: Table) -> Vec<Vec<String>> {
        let warehouse = i32::from(table != Table::Item);
        let mut lines = Lines::default();
        let count = recipe
            .fill(Part { table, warehouse }, &mut lines)
            .expect("filled");
        assert_eq!(count as usize, lines.rows.len());
        assert!(
            lines.rows.iter().all(|row| row.len() == table.columns()),
            "{table:?}"
        );
        lines.rows
    }

    #[test]
    fn cardinalities_are_those_of_the_specification() {
        let recipe = recipe(3000);
        for (table, count) in [
            (Table::Item, 1000),
            (Table::Warehouse, 1),
            (Table::District, 10),
            (Table::Customer, 30_000),
            (Table::History, 30_000),
            (Table::Stock, 1000),
            (Table::Orders, 30_000),
            (Table::NewOrder, 9000),
        ] {
            assert_eq!(rows(&recipe, table).len(), count, "{table:?}");
        }
        let lines = rows(&recipe, Table::OrderLine);
        let orders = rows(&recipe, Table::Orders);
        let promised: usize = orders
            .iter()
            .map(|o| o[6].parse::<usize>().expect("count"))
            .sum();
        assert_eq!(lines.len(), promised);
        assert!((290_000..310_000).contains(&lines.len()));
    }

    #[test]
    fn every_customer_has_one_order_and_900_orders_are_new() {
        let recipe = recipe(3000);
        let orders = rows(&recipe, Table::Orders);
        let mut customers: Vec<i32> = orders[..3000]
            .iter()
            .map(|order| order[3].parse().expect("number"))
            .collect();
        assert_ne!(customers, (1..=3000).collect::<Vec<i32>>(), "a permutation");
        customers.sort_unstable();
        assert_eq!(customers, (1..=3000).collect::<Vec<i32>>());
        let new = orders[..3000]
            .iter()
            .filter(|order| order[5] == "-")
            .count();
        assert_eq!(new, 900);
        let line = &rows(&recipe, Table::OrderLine)[0];
        assert_eq!((line[6].as_str(), line[8].as_str()), ("@5", "0e-2"));
    }

    #[test]
    fn a_tenth_of_the_customers_has_bad_credit_and_names_repeat() {
        let customers = rows(&recipe(3000), Table::Customer);
        let bad = customers.iter().filter(|c| c[13] == "BC").count();
        assert!((2700..3300).contains(&bad), "{bad}");
        assert_eq!(customers[371][5], "PRICALLYOUGHT");
        assert!(customers.iter().all(|c| (300..=500).contains(&c[20].len())));
        assert_eq!(rows(&recipe(3000), Table::Customer), customers, "seeded");
    }
}
