//! Loads parts with binary COPY, a transaction a part.

use std::pin::Pin;

use ashlar_lab::LabError;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::SinkExt;
use tokio_postgres::CopyInSink;

use super::blocking::Driver;
use super::connection::{Connection, words};
use super::decimal::{numeric_len, put_numeric};
use crate::database::Loader;
use crate::generate::{Part, Recipe, RowSink};

/// COPY's signature, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const END: i16 = -1;
/// Rows are sent in pieces of about this many bytes.
const PIECE: usize = 128 << 10;
/// Microseconds from 1970 to 2000, where PostgreSQL's time begins.
const EPOCH_US: i64 = 946_684_800_000_000;

pub(super) struct CopyLoader {
    connection: Connection,
    target: String,
}

impl CopyLoader {
    pub(super) fn new(connection: Connection, target: String) -> Self {
        Self { connection, target }
    }
}

impl Loader for CopyLoader {
    fn load(&mut self, recipe: &Recipe, part: Part) -> Result<u64, LabError> {
        let table = part.table.name();
        let target = &self.target;
        let caused = |error: tokio_postgres::Error| {
            LabError::caused(format!("{target}: loading {table}"), words(&error))
        };
        let Connection { client, driver, .. } = &self.connection;
        let sql = format!("COPY {table} FROM STDIN (FORMAT binary)");
        let sink = driver.block_on(client.copy_in(&sql)).map_err(caused)?;
        let mut rows = CopyRows {
            driver,
            sink: Box::pin(sink),
            buffer: BytesMut::with_capacity(PIECE + 4096),
            columns: part.table.columns() as i16,
            failed: None,
        };
        rows.buffer.put_slice(HEADER);
        rows.buffer.put_i16(rows.columns);
        let filled = recipe.fill(part, &mut rows);
        if let Some(error) = rows.failed.take() {
            return Err(caused(error));
        }
        let count = filled?;
        rows.finish().map_err(caused)?;
        Ok(count)
    }
}

struct CopyRows<'a> {
    driver: &'a Driver,
    sink: Pin<Box<CopyInSink<Bytes>>>,
    /// What is not sent yet; it ends with the column count of the row that is being made.
    buffer: BytesMut,
    columns: i16,
    failed: Option<tokio_postgres::Error>,
}

impl CopyRows<'_> {
    fn send(&mut self) -> Result<(), tokio_postgres::Error> {
        let fresh = BytesMut::with_capacity(PIECE + 4096);
        let piece = std::mem::replace(&mut self.buffer, fresh).freeze();
        self.driver.block_on(self.sink.send(piece))
    }

    fn finish(mut self) -> Result<(), tokio_postgres::Error> {
        self.buffer.truncate(self.buffer.len() - 2);
        self.buffer.put_i16(END);
        self.send()?;
        self.driver.block_on(self.sink.as_mut().finish()).map(drop)
    }
}

impl RowSink for CopyRows<'_> {
    fn int(&mut self, value: i32) {
        self.buffer.put_i32(4);
        self.buffer.put_i32(value);
    }

    fn decimal(&mut self, units: i64, scale: u8) {
        self.buffer.put_i32(numeric_len(units, scale));
        put_numeric(&mut self.buffer, units, scale);
    }

    fn text(&mut self, value: &[u8]) {
        self.buffer.put_i32(value.len() as i32);
        self.buffer.put_slice(value);
    }

    fn time(&mut self, unix_us: i64) {
        self.buffer.put_i32(8);
        self.buffer.put_i64(unix_us - EPOCH_US);
    }

    fn null(&mut self) {
        self.buffer.put_i32(-1);
    }

    fn end_row(&mut self) -> Result<(), LabError> {
        if self.buffer.len() >= PIECE {
            self.send().map_err(|error| {
                let told = LabError::environment(words(&error));
                self.failed = Some(error);
                told
            })?;
        }
        // Behind what is sent: after the last row it is taken back.
        self.buffer.put_i16(self.columns);
        Ok(())
    }
}
