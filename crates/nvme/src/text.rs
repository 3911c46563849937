//! Text in fixed fields: space padded ASCII (serial numbers, addresses) and NUL padded NQNs.

/// `text` as it may be shown on a terminal or written to a log, from any peer: what is not printable
/// (control characters, escape sequences, marks that turn the direction of writing, spaces that are none)
/// becomes `\u{…}`, and a backslash two, so that nothing else looks like that.
pub fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\\' => shown.push_str("\\\\"),
            _ if is_printable(char) => shown.push(char),
            _ => shown.extend(char.escape_unicode()),
        }
    }
    shown
}

/// Whether a character is seen as itself and changes nothing around it.
pub(crate) fn is_printable(char: char) -> bool {
    // Those that `escape_debug` escapes although they can be seen.
    matches!(char, '\'' | '"' | '\\') || char.escape_debug().len() == 1
}

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

/// The text of a field that ends with a NUL, as it is; `None` without that NUL, or if it is not UTF-8.
pub(crate) fn terminated(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&field[..end]).ok()
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
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(
            escape("nqn.2024-01.com.example:ü 'a'"),
            "nqn.2024-01.com.example:ü 'a'"
        );
        assert_eq!(escape("a\x1b[31m\r\n"), r"a\u{1b}[31m\u{d}\u{a}");
        // Right to left, no-break space, a mark on what stands before, and one byte of C1.
        assert_eq!(
            escape("\u{202e}x\u{a0}\u{301}\u{9b}"),
            r"\u{202e}x\u{a0}\u{301}\u{9b}"
        );
        assert_eq!(escape(r"\u{1b}"), r"\\u{1b}");
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
