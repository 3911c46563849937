//! Text in fixed fields: space padded ASCII (serial numbers, addresses) and NUL padded NQNs.

/// Fills `field` with `text`, then spaces. What does not fit is cut; bytes that are not printable
/// ASCII become `?`, since the specification allows only 20h..7Eh.
pub(crate) fn set_padded(field: &mut [u8], text: &str) {
    field.fill(b' ');
    for (slot, byte) in field.iter_mut().zip(text.bytes()) {
        *slot = if (0x20..=0x7e).contains(&byte) {
            byte
        } else {
            b'?'
        };
    }
}

/// Fills `field` with `text`, then NULs, keeping at least one NUL; what does not fit is cut.
pub(crate) fn set_terminated(field: &mut [u8], text: &str) {
    field.fill(0);
    let room = field.len().saturating_sub(1);
    for (slot, byte) in field.iter_mut().take(room).zip(text.bytes()) {
        *slot = byte;
    }
}

/// The text of a field padded by spaces or NULs; bytes that are not UTF-8 become U+FFFD.
pub(crate) fn get(field: &[u8]) -> String {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end])
        .trim_end_matches(' ')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_text_is_cut_cleaned_and_read_back() {
        let mut field = [0; 6];
        set_padded(&mut field, "ab\n");
        assert_eq!(&field, b"ab?   ");
        assert_eq!(get(&field), "ab?");
        set_padded(&mut field, "longer than that");
        assert_eq!(&field, b"longer");
    }

    #[test]
    fn terminated_text_keeps_its_nul() {
        let mut field = [0xff; 4];
        set_terminated(&mut field, "abcdef");
        assert_eq!(&field, b"abc\0");
        assert_eq!(get(&field), "abc");
        assert_eq!(get(&[0xff, 0, b'x']), "\u{fffd}");
    }
}
