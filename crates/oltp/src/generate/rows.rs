//! The rows of each table, value by value.

use ashlar_lab::LabError;

use super::{Part, Recipe, RowSink, SCAN_FILLER, SCAN_PIECE};
use crate::random::{Rng, push_last_name};
use crate::schema::{DISTRICTS, Shape, Table};

/// What every customer has paid at first, in cents.
const FIRST_PAYMENT: i64 = 1000;

/// Gives a part's rows to `sink`; how many there were.
pub(super) fn rows(
    recipe: &Recipe,
    part: Part,
    rng: Rng,
    sink: &mut impl RowSink,
) -> Result<u64, LabError> {
    let mut maker = Maker {
        recipe: *recipe,
        warehouse: part.warehouse,
        rng,
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

struct Maker {
    recipe: Recipe,
    warehouse: i32,
    rng: Rng,
    text: Vec<u8>,
    rows: u64,
}

type Made = Result<(), LabError>;

/// Which line of an order.
#[derive(Clone, Copy)]
struct Line {
    district: i32,
    order: i32,
    number: i32,
}

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
                    let line = Line {
                        district,
                        order,
                        number,
                    };
                    self.order_line(sink, line)?;
                }
            }
        }
        Ok(())
    }

    fn order_line(&mut self, sink: &mut impl RowSink, line: Line) -> Made {
        let Line {
            district,
            order,
            number,
        } = line;
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
