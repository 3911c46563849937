//! Loads parts by bulk insert, which is a transaction a part.

use std::borrow::Cow;

use ashlar_lab::LabError;
use tiberius::error::Error;
use tiberius::numeric::Numeric;
use tiberius::time::{Date, DateTime2, Time};
use tiberius::{BulkLoadRequest, ColumnData, TokenRow};

use super::link::{Link, words};
use super::stream::Blocking;
use crate::database::Loader;
use crate::generate::{Part, Recipe, RowSink};
use crate::schema::Table;
use crate::socket::at_once;

const MICROS_OF_A_DAY: i64 = 24 * 60 * 60 * 1_000_000;
/// Days from the first of January of year 1 to that of 1970.
const TO_1970: i64 = 719_162;
/// Digits of a second that columns have.
const SECOND_DIGITS: u8 = 6;

pub(super) struct BulkLoader {
    link: Link,
    target: String,
}

impl BulkLoader {
    pub(super) fn new(link: Link, target: String) -> Self {
        Self { link, target }
    }
}

impl Loader for BulkLoader {
    fn load(&mut self, recipe: &Recipe, part: Part) -> Result<u64, LabError> {
        let table = part.table.name();
        let what = format!("{}: loading {table}", self.target);
        let caused = |error: Error| LabError::caused(&what, words(&error));
        let request = at_once(self.link.client.bulk_insert(table)).map_err(caused)?;
        let mut rows = Rows {
            request,
            row: TokenRow::with_capacity(part.table.columns()),
            table: part.table,
            failed: None,
        };
        let filled = recipe.fill(part, &mut rows);
        if let Some(error) = rows.failed.take() {
            return Err(caused(error));
        }
        let count = filled?;
        let stored = at_once(rows.request.finalize()).map_err(caused)?.total();
        match stored == count {
            true => Ok(count),
            false => Err(LabError::environment(format!(
                "{what}: {count} rows were sent, and {stored} stored"
            ))),
        }
    }
}

struct Rows<'a> {
    request: BulkLoadRequest<'a, Blocking>,
    row: TokenRow<'a>,
    table: Table,
    failed: Option<Error>,
}

impl RowSink for Rows<'_> {
    fn int(&mut self, value: i32) {
        self.row.push(ColumnData::I32(Some(value)));
    }

    fn decimal(&mut self, units: i64, scale: u8) {
        let value = Numeric::new_with_scale(units.into(), scale);
        self.row.push(ColumnData::Numeric(Some(value)));
    }

    fn text(&mut self, value: &[u8]) {
        let text = String::from_utf8_lossy(value).into_owned();
        self.row.push(ColumnData::String(Some(Cow::Owned(text))));
    }

    fn time(&mut self, unix_us: i64) {
        self.row.push(ColumnData::DateTime2(Some(moment(unix_us))));
    }

    fn null(&mut self) {
        let null = match self.table {
            // When it was delivered.
            Table::OrderLine => ColumnData::DateTime2(None),
            // An order's carrier.
            _ => ColumnData::I32(None),
        };
        self.row.push(null);
    }

    fn end_row(&mut self) -> Result<(), LabError> {
        let row = std::mem::replace(&mut self.row, TokenRow::with_capacity(self.table.columns()));
        at_once(self.request.send(row)).map_err(|error| {
            let told = LabError::environment(words(&error));
            self.failed = Some(error);
            told
        })
    }
}

/// A moment as SQL Server counts days and their parts; before year 1 and after 9999 there is none.
fn moment(unix_us: i64) -> DateTime2 {
    let days = unix_us.div_euclid(MICROS_OF_A_DAY) + TO_1970;
    let days = u32::try_from(days).unwrap_or(0).min(3_652_058);
    let micros = unix_us.rem_euclid(MICROS_OF_A_DAY).unsigned_abs();
    DateTime2::new(Date::new(days), Time::new(micros, SECOND_DIGITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_from_year_1() {
        let of = |unix_us| {
            let moment = moment(unix_us);
            (moment.date().days(), moment.time().increments())
        };
        assert_eq!(of(0), (719_162, 0));
        assert_eq!(of(-1), (719_161, 86_399_999_999));
        assert_eq!(of(951_782_400_000_001), (730_178, 1), "2000-02-29");
        assert_eq!(of(i64::MIN).0, 0);
        assert_eq!(of(i64::MAX).0, 3_652_058);
    }
}
