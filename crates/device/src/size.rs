//! Sizes as people write them, always in powers of 1,024, as fio and DISKSPD have them.

use std::fmt;

use ashlar_block::{BlockSize, Geometry};

use crate::OpenError;

const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// Parses `4096`, `4k`, `64KiB`, `1.5g`, `1TiB`: a whole number of bytes, with a unit of 1,024s in
/// either case.
pub fn parse_size(text: &str) -> Result<u64, OpenError> {
    let bad = |why: &str| OpenError::usage(format!("size `{text}`"), why);
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let digits = text.bytes().take_while(is_of_number).count();
    let (number, unit) = text.split_at(digits);
    let (number, part) = number.split_once('.').unwrap_or((number, "0"));
    if number.is_empty() || part.is_empty() || part.contains('.') {
        return Err(bad("does not start with a number"));
    }
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(bad("unknown unit; use KiB, MiB, GiB or TiB")),
    };
    let number: u64 = number.parse().map_err(|_| bad("is too large"))?;
    let whole = number.checked_mul(1 << shift);
    let part = part_of(part, shift)
        .ok_or_else(|| bad("is no whole number of bytes; say it in a smaller unit"))?;
    whole
        .and_then(|whole| whole.checked_add(part))
        .ok_or_else(|| bad("is too large"))
}

/// Digits behind a point, of a unit of so many bits; none if that is not whole.
fn part_of(digits: &str, shift: u32) -> Option<u64> {
    let digits = digits.trim_end_matches('0');
    let tens = 10_u128.checked_pow(u32::try_from(digits.len()).ok()?)?;
    let part = match digits {
        "" => 0,
        digits => digits.parse::<u128>().ok()?,
    };
    let bytes = part.checked_mul(1 << shift)?;
    (bytes % tens == 0).then(|| u64::try_from(bytes / tens).ok())?
}

/// Prints a size in the largest unit that divides it.
#[derive(Clone, Copy, Debug)]
pub struct SizeText(pub u64);

impl fmt::Display for SizeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |shift: u32| self.0 != 0 && self.0.is_multiple_of(1 << shift);
        let (unit, shift) = UNITS
            .into_iter()
            .find(|&(_, shift)| divides(shift))
            .unwrap_or(("B", 0));
        write!(f, "{} {unit}", self.0 >> shift)
    }
}

/// A plain geometry of `bytes`; `what` names the device in the error.
pub(crate) fn geometry(
    what: &str,
    bytes: u64,
    block_size: BlockSize,
) -> Result<Geometry, OpenError> {
    let block = u64::from(block_size.bytes());
    let refuse = |why| {
        Err(OpenError::usage(
            format!("{what} of {}", SizeText(bytes)),
            why,
        ))
    };
    if bytes < block {
        return refuse(format!("is smaller than one block of {block} bytes"));
    }
    if !bytes.is_multiple_of(block) {
        return refuse(format!(
            "its {bytes} bytes are not a multiple of the block size of {block} bytes"
        ));
    }
    if bytes > i64::MAX as u64 {
        return refuse("is larger than an address can be".into());
    }
    Ok(Geometry::plain(block_size, bytes / block))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_print() {
        for (text, bytes, printed) in [
            ("512", 512, "512 B"),
            ("4k", 4096, "4 KiB"),
            ("64KiB", 65536, "64 KiB"),
            ("3m", 3 << 20, "3 MiB"),
            ("2G", 2 << 30, "2 GiB"),
            ("1TiB", 1 << 40, "1 TiB"),
            ("0", 0, "0 B"),
            ("1025k", 1025 << 10, "1025 KiB"),
            ("1.5GiB", 3 << 29, "1536 MiB"),
            ("0.25m", 256 << 10, "256 KiB"),
            ("2.0", 2, "2 B"),
        ] {
            assert_eq!(parse_size(text).expect(text), bytes);
            assert_eq!(SizeText(bytes).to_string(), printed);
        }
        for text in [
            "",
            "GiB",
            "4kb",
            "4 k",
            "-1",
            "1.5",
            "1.1GiB",
            "1.g",
            ".5g",
            "1.2.3g",
            "0.0000000000000000000000000000000000000000000001g",
            "99999999999999999999",
            "99999999TiB",
        ] {
            let error = parse_size(text).expect_err(text).to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn a_size_must_be_whole_blocks() {
        let of = |bytes| geometry("memory", bytes, BlockSize::B4096).map(|g| g.blocks);
        assert_eq!(of(8192).expect("two"), 2);
        assert!(of(0).is_err() && of(512).is_err() && of(4096 + 512).is_err());
        assert!(of(u64::MAX - 4095).is_err());
    }
}
