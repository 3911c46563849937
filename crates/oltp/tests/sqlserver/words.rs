//! TDS as a server reads and writes it, as far as tests need it (MS-TDS 2.2). It is written from the specification,
//! not with the driver, so that both have to agree.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// Types of messages.
pub const BATCH: u8 = 1;
pub const CALL: u8 = 3;
pub const FROM_SERVER: u8 = 4;
pub const BULK: u8 = 7;
pub const LOGIN: u8 = 16;
pub const HELLO: u8 = 18;

const HEADER: usize = 8;
const LAST: u8 = 1;
/// SQL_Latin1_General_CP1_CI_AS.
const COLLATION: [u8; 5] = [9, 4, 0xd0, 0, 0x34];

/// A message that a client has sent.
pub struct Message {
    pub kind: u8,
    pub data: Vec<u8>,
    /// How many packets it came in.
    pub packets: usize,
}

/// Reads a message; none when the client has gone.
pub fn read_message(stream: &mut TcpStream) -> io::Result<Option<Message>> {
    let (mut data, mut packets) = (Vec::new(), 0);
    loop {
        let mut header = [0; HEADER];
        match stream.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && packets == 0 => {
                return Ok(None);
            }
            read => read?,
        }
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let mut rest = vec![0; length - HEADER];
        stream.read_exact(&mut rest)?;
        data.append(&mut rest);
        packets += 1;
        if header[1] & LAST != 0 {
            let kind = header[0];
            return Ok(Some(Message {
                kind,
                data,
                packets,
            }));
        }
    }
}

/// Data in packets of up to 4,096 bytes, as servers send it.
pub fn packets(data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let chunks: Vec<&[u8]> = data.chunks(4096 - HEADER).collect();
    for (number, chunk) in chunks.iter().enumerate() {
        let is_last = u8::from(number + 1 == chunks.len());
        let length = u16::try_from(chunk.len() + HEADER).expect("a packet");
        bytes.extend([FROM_SERVER, is_last]);
        bytes.extend(length.to_be_bytes());
        bytes.extend([0, 51, number as u8, 0]);
        bytes.extend(*chunk);
    }
    bytes
}

pub fn write(stream: &mut TcpStream, data: &[u8]) -> io::Result<()> {
    stream.write_all(&packets(data))
}

/// What a client says first: options by their number.
pub fn hello_options(data: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut options = Vec::new();
    for entry in data.chunks(5) {
        if entry[0] == 0xff {
            return options;
        }
        let at = usize::from(u16::from_be_bytes([entry[1], entry[2]]));
        let length = usize::from(u16::from_be_bytes([entry[3], entry[4]]));
        options.push((entry[0], data[at..at + length].to_vec()));
    }
    panic!("options without an end: {data:?}");
}

/// The answer to it of SQL Server 2019.
pub fn hello(encryption: u8) -> Vec<u8> {
    let mut bytes = vec![0, 0, 26, 0, 6, 1, 0, 32, 0, 1, 2, 0, 33, 0, 1];
    bytes.extend([3, 0, 34, 0, 0, 4, 0, 34, 0, 1, 0xff]);
    bytes.extend([15, 0, 7, 0xd0, 0, 0, encryption, 0, 0]);
    bytes
}

/// Who wants to log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub password: String,
    pub application: String,
    pub database: String,
}

impl Login {
    pub fn read(data: &[u8]) -> Self {
        let length = u32::from_le_bytes(data[..4].try_into().expect("four bytes"));
        assert_eq!(length as usize, data.len(), "a login's length");
        let text = |field: usize, change: fn(u8) -> u8| {
            let at = 36 + field * 4;
            let number = |at: usize| usize::from(u16::from_le_bytes([data[at], data[at + 1]]));
            let (start, letters) = (number(at), number(at + 2));
            let bytes = &data[start..start + 2 * letters];
            utf16(&bytes.iter().map(|byte| change(*byte)).collect::<Vec<u8>>())
        };
        let hidden = |byte: u8| (byte ^ 0xa5).rotate_left(4);
        Self {
            user: text(1, |byte| byte),
            password: text(2, hidden),
            application: text(3, |byte| byte),
            database: text(8, |byte| byte),
        }
    }
}

pub fn utf16(bytes: &[u8]) -> String {
    let units: Vec<u16> = bytes
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .collect();
    String::from_utf16(&units).expect("UTF-16")
}

/// A type of a column or a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Int { is_null: bool },
    Decimal { precision: u8, scale: u8 },
    Char(u16),
    VarChar(u16),
    NVarChar(u16),
    Moment { digits: u8 },
    BigInt,
}

/// A value of a column or a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Null,
    Int(i64),
    Decimal {
        units: i64,
        scale: u8,
    },
    Text(String),
    /// Microseconds since the first of January of year 1.
    Moment(i64),
}

pub struct Column {
    pub name: String,
    pub of: Type,
}

pub fn column(name: &str, of: Type) -> Column {
    Column {
        name: name.to_owned(),
        of,
    }
}

impl Type {
    pub fn write(self, to: &mut Vec<u8>) {
        match self {
            Self::Int { is_null: false } => to.push(0x38),
            Self::Int { is_null: true } => to.extend([0x26, 4]),
            Self::BigInt => to.extend([0x26, 8]),
            Self::Decimal { precision, scale } => {
                let size = match precision {
                    1..=9 => 5,
                    10..=19 => 9,
                    _ => 17,
                };
                to.extend([0x6a, size, precision, scale]);
            }
            Self::Char(length) => sized(to, 0xaf, length),
            Self::VarChar(length) => sized(to, 0xa7, length),
            Self::NVarChar(letters) => sized(to, 0xe7, letters * 2),
            Self::Moment { digits } => to.extend([0x2a, digits]),
        }
    }
}

fn sized(to: &mut Vec<u8>, kind: u8, length: u16) {
    to.push(kind);
    to.extend(length.to_le_bytes());
    to.extend(COLLATION);
}

pub fn short_text(to: &mut Vec<u8>, text: &str) {
    let units: Vec<u16> = text.encode_utf16().collect();
    to.push(u8::try_from(units.len()).expect("a short text"));
    to.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
}

fn long_text(to: &mut Vec<u8>, text: &str) {
    let units: Vec<u16> = text.encode_utf16().collect();
    to.extend((units.len() as u16).to_le_bytes());
    to.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
}

/// COLMETADATA. Whether a column can be written is unknown, which is what servers say.
pub fn columns(to: &mut Vec<u8>, columns: &[Column]) {
    to.push(0x81);
    to.extend((columns.len() as u16).to_le_bytes());
    for column in columns {
        let is_null = matches!(column.of, Type::Int { is_null: true } | Type::BigInt);
        to.extend([0, 0, 0, 0, 8 | u8::from(is_null), 0]);
        column.of.write(to);
        short_text(to, &column.name);
    }
}

/// ROW.
pub fn row(to: &mut Vec<u8>, columns: &[Column], values: &[Value]) {
    assert_eq!(columns.len(), values.len());
    to.push(0xd1);
    for (column, value) in columns.iter().zip(values) {
        match (column.of, value) {
            (Type::Int { is_null: false }, Value::Int(number)) => {
                to.extend((*number as i32).to_le_bytes());
            }
            (Type::Int { .. }, Value::Int(number)) => {
                to.push(4);
                to.extend((*number as i32).to_le_bytes());
            }
            (Type::BigInt, Value::Int(number)) => {
                to.push(8);
                to.extend(number.to_le_bytes());
            }
            (Type::Int { is_null: true } | Type::BigInt, Value::Null) => to.push(0),
            (Type::NVarChar(_), Value::Text(text)) => {
                to.extend((text.encode_utf16().count() as u16 * 2).to_le_bytes());
                to.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
            }
            (Type::VarChar(_) | Type::Char(_), Value::Text(text)) => {
                to.extend((text.len() as u16).to_le_bytes());
                to.extend(text.bytes());
            }
            (Type::NVarChar(_) | Type::VarChar(_) | Type::Char(_), Value::Null) => {
                to.extend([0xff, 0xff]);
            }
            other => panic!("no such value: {other:?}"),
        }
    }
}

/// The ends of results.
pub const DONE: u8 = 0xfd;
pub const DONE_PROC: u8 = 0xfe;
const HAS_MORE: u16 = 1;
const HAS_FAILED: u16 = 2;
const HAS_COUNT: u16 = 16;

pub fn done(to: &mut Vec<u8>, token: u8, rows: u64) {
    end(to, token, HAS_COUNT, rows);
}

/// A procedure's query ends, and the procedure goes on.
pub fn done_in_proc(to: &mut Vec<u8>, rows: u64) {
    end(to, 0xff, HAS_COUNT | HAS_MORE, rows);
}

pub fn failed(to: &mut Vec<u8>, token: u8) {
    end(to, token, HAS_FAILED, 0);
}

fn end(to: &mut Vec<u8>, token: u8, status: u16, rows: u64) {
    to.push(token);
    to.extend(status.to_le_bytes());
    to.extend([0xc1, 0]);
    to.extend(rows.to_le_bytes());
}

pub fn return_status(to: &mut Vec<u8>) {
    to.extend([0x79, 0, 0, 0, 0]);
}

/// An error as a server tells it.
#[derive(Clone, Debug)]
pub struct Told {
    pub code: u32,
    pub class: u8,
    pub text: String,
    pub procedure: String,
}

pub fn error(to: &mut Vec<u8>, told: &Told) {
    message(to, 0xaa, told);
}

fn message(to: &mut Vec<u8>, token: u8, told: &Told) {
    let mut body = told.code.to_le_bytes().to_vec();
    body.extend([51, told.class]);
    long_text(&mut body, &told.text);
    short_text(&mut body, "DBHOST");
    short_text(&mut body, &told.procedure);
    body.extend(7u32.to_le_bytes());
    to.push(token);
    to.extend((body.len() as u16).to_le_bytes());
    to.extend(body);
}

/// ENVCHANGE with texts: 1 is the database, 4 the size of packets.
fn changed(to: &mut Vec<u8>, kind: u8, new: &str, old: &str) {
    let mut body = vec![kind];
    short_text(&mut body, new);
    short_text(&mut body, old);
    to.push(0xe3);
    to.extend((body.len() as u16).to_le_bytes());
    to.extend(body);
}

/// ENVCHANGE of a transaction, which a procedure begins (8) and commits (9).
pub fn transaction(to: &mut Vec<u8>, kind: u8) {
    let descriptor = [8, 0x51, 0, 0, 0, 1, 0, 0, 0];
    let body: Vec<u8> = match kind {
        8 => [kind].into_iter().chain(descriptor).chain([0]).collect(),
        _ => [kind, 0].into_iter().chain(descriptor).collect(),
    };
    to.push(0xe3);
    to.extend((body.len() as u16).to_le_bytes());
    to.extend(body);
}

/// What follows a login: the database, its message, the acknowledgement of TDS 7.4, the size of packets.
pub fn welcome(database: &str) -> Vec<u8> {
    let mut to = Vec::new();
    changed(&mut to, 1, database, "master");
    let told = Told {
        code: 5701,
        class: 0,
        text: format!("Changed database context to '{database}'."),
        procedure: String::new(),
    };
    message(&mut to, 0xab, &told);
    let mut body = vec![1, 0x74, 0, 0, 4];
    short_text(&mut body, "Microsoft SQL Server\0\0");
    body.extend([15, 0, 7, 0xd0]);
    to.push(0xad);
    to.extend((body.len() as u16).to_le_bytes());
    to.extend(body);
    changed(&mut to, 4, "32767", "4096");
    end(&mut to, DONE, 0, 0);
    to
}

/// Reads what a client has sent, from the front.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    pub fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes(self.take(2).try_into().expect("two bytes"))
    }

    pub fn number(&mut self, length: usize) -> i64 {
        let mut bytes = [0; 8];
        let taken = self.take(length);
        bytes[..length].copy_from_slice(taken);
        // All that is signed has four or eight bytes here.
        match length {
            4 => i64::from(i32::from_le_bytes(taken.try_into().expect("four bytes"))),
            _ => i64::from_le_bytes(bytes),
        }
    }

    /// The headers before a batch or a call; nothing of them is used.
    pub fn headers(&mut self) {
        let length = u32::from_le_bytes(self.0[..4].try_into().expect("four bytes"));
        assert_eq!(length, 22, "one header: the transaction's");
        self.take(length as usize);
    }

    pub fn text(&mut self, letters: usize) -> String {
        utf16(self.take(2 * letters))
    }

    /// A parameter's or a column's type, as a client writes it.
    pub fn type_of(&mut self) -> Option<Type> {
        Some(match self.byte() {
            0x1f => return None,
            0x38 => Type::Int { is_null: false },
            0x26 => match self.byte() {
                4 => Type::Int { is_null: true },
                8 => Type::BigInt,
                other => panic!("an integer of {other} bytes"),
            },
            0x6a | 0x6c => {
                self.byte();
                let (precision, scale) = (self.byte(), self.byte());
                Type::Decimal { precision, scale }
            }
            0xaf => Type::Char(self.sized()),
            0xa7 => Type::VarChar(self.sized()),
            0xe7 => Type::NVarChar(self.sized() / 2),
            0x2a => Type::Moment {
                digits: self.byte(),
            },
            other => panic!("a type {other:#x} that no client of ours sends"),
        })
    }

    fn sized(&mut self) -> u16 {
        let length = self.short();
        self.take(COLLATION.len());
        length
    }

    pub fn value(&mut self, of: Type) -> Value {
        match of {
            Type::Int { is_null: false } => Value::Int(self.number(4)),
            Type::Int { .. } | Type::BigInt => match self.byte() {
                0 => Value::Null,
                length => Value::Int(self.number(length.into())),
            },
            Type::Decimal { precision, scale } => {
                let length = usize::from(self.byte());
                let sign = if self.byte() == 0 { -1 } else { 1 };
                let units = self.number_unsigned(length - 1) * sign;
                let digits = units.unsigned_abs().to_string().len();
                assert!(digits <= precision.into(), "{units} in {precision} digits");
                Value::Decimal { units, scale }
            }
            Type::Char(most) | Type::VarChar(most) => match self.short() {
                0xffff => Value::Null,
                length => {
                    assert!(length <= most, "{length} letters of {most}");
                    let bytes = self.take(length.into()).to_vec();
                    Value::Text(String::from_utf8(bytes).expect("ASCII"))
                }
            },
            Type::NVarChar(_) => match self.short() {
                0xffff => Value::Null,
                length => Value::Text(self.text(usize::from(length) / 2)),
            },
            Type::Moment { digits } => match usize::from(self.byte()) {
                0 => Value::Null,
                length => {
                    assert_eq!(digits, 6, "microseconds");
                    let time = self.number_unsigned(length - 3);
                    let days = self.number_unsigned(3);
                    Value::Moment(days * 86_400_000_000 + time)
                }
            },
        }
    }

    fn number_unsigned(&mut self, length: usize) -> i64 {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(self.take(length));
        i64::from_le_bytes(bytes)
    }
}

/// A call of a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    pub values: Vec<(String, Value)>,
}

impl Call {
    /// One by name, or number 10, which runs a statement with parameters.
    pub fn read(data: &[u8]) -> Self {
        let mut reader = Reader(data);
        reader.headers();
        let name = match reader.short() {
            0xffff => match reader.short() {
                10 => "sp_executesql".to_owned(),
                other => panic!("procedure {other}"),
            },
            letters => reader.text(letters.into()),
        };
        assert_eq!(reader.short(), 0, "no options");
        let mut values = Vec::new();
        while !reader.0.is_empty() {
            let letters = reader.byte();
            let name = reader.text(letters.into());
            assert_eq!(reader.byte(), 0, "an input");
            let value = match reader.type_of() {
                None => Value::Null,
                Some(of) => reader.value(of),
            };
            values.push((name, value));
        }
        Self { name, values }
    }
}

/// Rows of a bulk insert, with the columns' names.
pub struct Bulk {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Value>>,
}

impl Bulk {
    pub fn read(data: &[u8]) -> Self {
        let mut reader = Reader(data);
        assert_eq!(reader.byte(), 0x81, "columns come first");
        let count = reader.short();
        let columns: Vec<Column> = (0..count)
            .map(|_| {
                reader.take(6);
                let of = reader.type_of().expect("a column's type");
                let letters = reader.byte();
                let name = reader.text(letters.into());
                Column { name, of }
            })
            .collect();
        let mut rows = Vec::new();
        loop {
            match reader.byte() {
                0xd1 => rows.push(columns.iter().map(|c| reader.value(c.of)).collect()),
                DONE => break,
                other => panic!("token {other:#x} in a bulk insert"),
            }
        }
        assert_eq!(reader.take(12).len(), 12);
        assert!(
            reader.0.is_empty(),
            "{} bytes after its end",
            reader.0.len()
        );
        Self { columns, rows }
    }
}
