//! PostgreSQL's binary `numeric`: a sign, groups of four decimal digits, and where the point is.

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// An amount of money in cents, as `numeric(…,2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cents(pub(super) i64);

const GROUP: u64 = 10_000;
const NEGATIVE: u16 = 0x4000;

/// Appends `units` of 10^-`scale` (2 or 4) as a binary `numeric`, without its length.
pub(super) fn put_numeric(out: &mut impl BufMut, units: i64, scale: u8) {
    let ten_thousandths = units.unsigned_abs() * if scale == 2 { 100 } else { 1 };
    let fraction = ten_thousandths % GROUP;
    // Whole groups, least significant first: 16 digits are more than any amount has.
    let mut whole = [0u16; 5];
    let mut count = 0;
    let mut left = ten_thousandths / GROUP;
    while left > 0 {
        whole[count] = (left % GROUP) as u16;
        left /= GROUP;
        count += 1;
    }
    let groups = count + usize::from(fraction > 0);
    out.put_i16(groups as i16);
    out.put_i16(if ten_thousandths == 0 {
        0
    } else {
        count as i16 - 1
    });
    out.put_u16(if units < 0 { NEGATIVE } else { 0 });
    out.put_u16(scale.into());
    whole[..count]
        .iter()
        .rev()
        .for_each(|&group| out.put_u16(group));
    if fraction > 0 {
        out.put_u16(fraction as u16);
    }
}

/// Bytes that [`put_numeric`] writes for the same number.
pub(super) fn numeric_len(units: i64, scale: u8) -> i32 {
    let ten_thousandths = units.unsigned_abs() * if scale == 2 { 100 } else { 1 };
    let mut groups = i32::from(!ten_thousandths.is_multiple_of(GROUP));
    let mut left = ten_thousandths / GROUP;
    while left > 0 {
        left /= GROUP;
        groups += 1;
    }
    8 + 2 * groups
}

type AnyError = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Cents {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, AnyError> {
        put_numeric(out, self.0, 2);
        Ok(IsNull::No)
    }

    accepts!(NUMERIC);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Cents {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, AnyError> {
        cents(raw).ok_or_else(|| "a numeric that is no amount of money".into())
    }

    accepts!(NUMERIC);
}

fn cents(raw: &[u8]) -> Option<Cents> {
    let words: Vec<i64> = raw
        .chunks_exact(2)
        .map(|pair| i64::from(u16::from_be_bytes([pair[0], pair[1]])))
        .collect();
    let (head, groups) = words.split_at_checked(4)?;
    let [_, weight, sign, _] = head else {
        return None;
    };
    let mut weight = *weight as u16 as i16;
    let mut total = 0i64;
    for group in groups {
        // A group of weight w counts 10000^w, so 100 x 10000^w cents.
        let part = match weight {
            0.. => group.checked_mul(100i64.checked_mul(10_000i64.checked_pow(weight as u32)?)?)?,
            -1 => group / 100,
            _ => 0,
        };
        total = total.checked_add(part)?;
        weight = weight.checked_sub(1)?;
    }
    match *sign as u16 {
        0 => Some(Cents(total)),
        NEGATIVE => Some(Cents(-total)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_come_back_and_have_the_length_that_was_told() {
        for units in [
            0,
            1,
            99,
            100,
            101,
            9_999,
            10_000,
            1_000_000,
            123_456_789_012,
            -1,
            -1000,
            -999_999,
        ] {
            let mut out = BytesMut::new();
            put_numeric(&mut out, units, 2);
            assert_eq!(out.len() as i32, numeric_len(units, 2), "{units}");
            assert_eq!(cents(&out), Some(Cents(units)), "{units}");
        }
    }

    #[test]
    fn a_numeric_is_as_postgres_writes_it() {
        let bytes = |units, scale| {
            let mut out = BytesMut::new();
            put_numeric(&mut out, units, scale);
            out.to_vec()
        };
        // 12345.67: groups 1, 2345, 6700; weight 1.
        assert_eq!(
            bytes(1_234_567, 2),
            [0, 3, 0, 1, 0, 0, 0, 2, 0, 1, 0x09, 0x29, 0x1A, 0x2C]
        );
        // 0.1999: one group, weight -1, four places.
        assert_eq!(bytes(1999, 4), [0, 1, 0xFF, 0xFF, 0, 0, 0, 4, 0x07, 0xCF]);
        assert_eq!(bytes(0, 2), [0, 0, 0, 0, 0, 0, 0, 2]);
        // What is no amount of money is refused, not guessed.
        assert_eq!(cents(&[0, 0, 0, 0, 0xC0, 0, 0, 0]), None);
        assert_eq!(cents(&[0, 1]), None);
    }
}
