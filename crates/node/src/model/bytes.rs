/// Bytes as people read them: three digits, in powers of 1,024.
pub fn readable_bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = match value {
        v if v < 10.0 && v.fract() != 0.0 => 2,
        v if v < 100.0 && v.fract() != 0.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.50 KiB"),
            (100 << 30, "100 GiB"),
            (1023 << 20, "1.00 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(readable_bytes(count), text);
        }
    }
}
