//! Sizes and figures as people write and read them.

use crate::LabError;

const KIB: u64 = 1 << 10;

/// Bytes named by `text`: a whole number with an optional unit. `k`, `m`, `g`, `t` (either case,
/// with or without `iB`/`B`) are powers of 1024, as fio, DISKSPD and the papers have it.
pub fn parse_bytes(text: &str) -> Result<u64, LabError> {
    let invalid = || LabError::usage(format!("{text:?} is no size (such as 8k, 64KiB, 4GiB)"));
    let trimmed = text.trim();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let number: u64 = number.parse().map_err(|_| invalid())?;
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => KIB,
        "m" | "mb" | "mib" => KIB.pow(2),
        "g" | "gb" | "gib" => KIB.pow(3),
        "t" | "tb" | "tib" => KIB.pow(4),
        _ => return Err(invalid()),
    };
    number.checked_mul(factor).ok_or_else(invalid)
}

/// A block size from [`parse_bytes`] that fits a request: 512 bytes to 2 MiB, in multiples of 512.
pub fn parse_block(text: &str) -> Result<u32, LabError> {
    let bytes = parse_bytes(text)?;
    match u32::try_from(bytes) {
        Ok(block) if (512..=2 << 20).contains(&block) && block % 512 == 0 => Ok(block),
        _ => Err(LabError::usage(format!(
            "block size {text}: must be a multiple of 512 bytes, at most 2 MiB"
        ))),
    }
}

/// Bytes as the shortest exact name: `8k`, `60k`, `1m`, `700`.
pub fn short_bytes(bytes: u64) -> String {
    for (unit, shift) in [("g", 30), ("m", 20), ("k", 10)] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Bytes for people: `4.0 GiB`.
pub fn human_bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// A count with thousands separators: `1,023,902`.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0.0 && digits != "0" {
        format!("-{out}")
    } else {
        out
    }
}

/// Microseconds for people: three figures, changing to milliseconds above 10,000.
pub fn human_us(us: f64) -> String {
    match us {
        us if us >= 10_000.0 => format!("{:.1} ms", us / 1000.0),
        us if us >= 100.0 => format!("{us:.0} us"),
        us if us >= 10.0 => format!("{us:.1} us"),
        us => format!("{us:.2} us"),
    }
}

/// Seconds since 1970 as a date and a time of UTC, by the proleptic Gregorian calendar.
pub fn moment(unix_s: u64) -> String {
    let (days, seconds) = (unix_s / 86_400, unix_s % 86_400);
    // Eras of 400 years that begin in March: leap days come last.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds % 3600 / 60, seconds % 60);
    format!("{year}-{month:02}-{date:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        for (unix_s, date) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_795_391_947, "2026-11-22 23:59:07"),
            (4_107_542_399, "2100-02-28 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(moment(unix_s), date);
        }
    }

    #[test]
    fn sizes_parse_as_powers_of_1024() {
        assert_eq!(parse_bytes("8k"), Ok(8192));
        assert_eq!(parse_bytes("8K"), Ok(8192));
        assert_eq!(parse_bytes("4GiB"), Ok(4 << 30));
        assert_eq!(parse_bytes("512"), Ok(512));
        for bad in [
            "",
            "k",
            "8x",
            "-1",
            "99999999999999999999",
            "18446744073709551615k",
        ] {
            assert_eq!(parse_bytes(bad).map_err(|e| e.exit_code()), Err(2), "{bad}");
        }
        assert!(parse_block("60k").is_ok());
        assert!(parse_block("700").is_err());
        assert!(parse_block("0").is_err());
        assert!(parse_block("4m").is_err());
    }

    #[test]
    fn figures_print_briefly() {
        assert_eq!(short_bytes(61440), "60k");
        assert_eq!(short_bytes(1 << 20), "1m");
        assert_eq!(grouped(1_023_902.4), "1,023,902");
        assert_eq!(grouped(999.0), "999");
        assert_eq!(human_bytes(4 << 30), "4.0 GiB");
        assert_eq!(human_us(12.345), "12.3 us");
    }
}
