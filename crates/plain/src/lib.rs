//! What is wrong with a file or a request, in the words of those who write one.
//!
//! Parsers say `invalid type: map, expected a sequence`: words of the program that reads. Here they become
//! words of the text that is read: "a table stands where a list belongs". What is not known goes through as
//! it is: our own types say what is wrong with them in a sentence already. No I/O and no dependency, so that
//! every room may use it.

/// Characters of a line that are quoted.
const QUOTED: usize = 60;

/// A parser's message, reworded. Knows those of serde, as serde_json and toml pass them on.
pub fn reworded(message: &str) -> String {
    let (message, place) = split_place(message.trim());
    let said = reworded_here(message).or_else(|| with_path(message));
    let said = said.unwrap_or_else(|| message.to_owned());
    match place {
        Some(place) => format!("{said} ({place})"),
        None => said,
    }
}

/// The same, with the line of `text` that a message is about: the one with the byte at `offset`.
pub fn at_line(text: &str, offset: Option<usize>, message: &str) -> String {
    let said = reworded(message);
    let Some(before) = offset.and_then(|offset| text.get(..offset)) else {
        return said;
    };
    let index = before.matches('\n').count();
    let line = text.lines().nth(index).unwrap_or_default().trim();
    let quoted: String = line.chars().take(QUOTED).collect();
    match quoted.is_empty() {
        true => format!("line {}: {said}", index + 1),
        false => format!("line {}, `{quoted}`: {said}", index + 1),
    }
}

/// `… at line 1 column 15`, as serde_json ends.
fn split_place(message: &str) -> (&str, Option<String>) {
    let parts = message.rsplit_once(" at line ").and_then(|(said, place)| {
        let (line, column) = place.split_once(" column ")?;
        let (line, column): (u64, u64) = (line.parse().ok()?, column.parse().ok()?);
        Some((said, format!("line {line}, column {column}")))
    });
    parts.map_or((message, None), |(said, place)| (said, Some(place)))
}

/// `drives[1]: invalid type: …`, as serde_path_to_error begins.
fn with_path(message: &str) -> Option<String> {
    let (path, rest) = message.split_once(": ")?;
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_-.[]".contains(c);
    let said = path.chars().all(is_path).then(|| reworded_here(rest))?;
    Some(format!("`{path}`: {}", said?))
}

fn reworded_here(message: &str) -> Option<String> {
    if let Some(rest) = message.strip_prefix("missing field ") {
        return Some(format!("{rest} is missing"));
    }
    if let Some(rest) = message.strip_prefix("duplicate field ") {
        return Some(format!("{rest} is there twice"));
    }
    if let Some((name, known)) = unexpected(message, "unknown field ") {
        return Some(match known {
            "there are no fields" => format!("there is no {name}, and nothing else is known here"),
            known => format!("there is no {name}; known: {}", choices(known)),
        });
    }
    if let Some((name, known)) = unexpected(message, "unknown variant ") {
        return Some(format!("{name} is unknown; known: {}", choices(known)));
    }
    if let Some((found, wanted)) = unexpected(message, "invalid type: ") {
        return Some(format!(
            "{} stands where {} belongs",
            thing(found),
            wish(wanted)
        ));
    }
    if let Some((found, wanted)) = unexpected(message, "invalid value: ") {
        return Some(format!("{} is not {}", thing(found), wish(wanted)));
    }
    if let Some((count, wanted)) = unexpected(message, "invalid length ") {
        return Some(format!(
            "{count} entries stand where {} belongs",
            wish(wanted)
        ));
    }
    let untagged = message.starts_with("data did not match any variant of untagged enum");
    untagged.then(|| "it has none of the forms that it may have".to_owned())
}

/// What stands there, and what was expected.
fn unexpected<'a>(message: &'a str, beginning: &str) -> Option<(&'a str, &'a str)> {
    let rest = message.strip_prefix(beginning)?;
    let expected = rest.rsplit_once(", expected ");
    expected.or_else(|| rest.rsplit_once(", "))
}

fn choices(known: &str) -> String {
    let known = known.strip_prefix("one of ").unwrap_or(known);
    known.replace(" or ", ", ")
}

/// What stands there, as serde names it.
fn thing(found: &str) -> String {
    let bare = |kind: &str| {
        let rest = found.strip_prefix(kind)?;
        Some(rest.trim_matches('`').to_owned())
    };
    match found {
        "sequence" => "a list".into(),
        "map" => "a table".into(),
        "null" | "unit value" | "Option value" => "nothing (null)".into(),
        _ => bare("integer ")
            .or_else(|| bare("floating point "))
            .or_else(|| bare("boolean "))
            .or_else(|| bare("string ").map(|text| format!("the text {text}")))
            .unwrap_or_else(|| found.to_owned()),
    }
}

/// What was expected, as serde names it.
fn wish(wanted: &str) -> String {
    let to = |most: u64| format!("a whole number from 0 to {most}");
    match wanted {
        "u8" => to(u8::MAX.into()),
        "u16" => to(u16::MAX.into()),
        "u32" => to(u32::MAX.into()),
        "u64" | "usize" => "a whole number from 0".into(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        "a boolean" => "true or false".into(),
        "a string" | "string" => "a text".into(),
        "a sequence" => "a list".into(),
        "a map" => "a table".into(),
        _ if wanted.starts_with("struct ") => "a table".into(),
        _ if wanted.starts_with("a tuple of size ") => {
            let count = wanted.trim_start_matches("a tuple of size ");
            format!("a list of {count}")
        }
        _ => wanted.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_serde_says_is_said_in_words_of_the_text() {
        for (serde, plain) in [
            ("missing field `name`", "`name` is missing"),
            (
                "missing field `name` at line 1 column 15",
                "`name` is missing (line 1, column 15)",
            ),
            (
                "unknown field `colour`, expected one of `name`, `drives`",
                "there is no `colour`; known: `name`, `drives`",
            ),
            (
                "unknown field `destroy`, expected `destroy_data` or `force`",
                "there is no `destroy`; known: `destroy_data`, `force`",
            ),
            (
                "unknown field `x`, there are no fields",
                "there is no `x`, and nothing else is known here",
            ),
            (
                "unknown variant `stopp`, expected `continue` or `stop`",
                "`stopp` is unknown; known: `continue`, `stop`",
            ),
            (
                "invalid type: map, expected a sequence",
                "a table stands where a list belongs",
            ),
            (
                "invalid type: string \"5, expected u8\", expected u32 at line 2 column 3",
                "the text \"5, expected u8\" stands where a whole number from 0 to 4294967295 belongs \
                 (line 2, column 3)",
            ),
            (
                "invalid value: integer `-1`, expected u64",
                "-1 is not a whole number from 0",
            ),
            (
                "invalid type: sequence, expected struct CreatePool",
                "a list stands where a table belongs",
            ),
            (
                "invalid length 1, expected a tuple of size 2",
                "1 entries stand where a list of 2 belongs",
            ),
            ("duplicate field `name`", "`name` is there twice"),
            (
                "drives[1]: invalid type: integer `7`, expected a string at line 1 column 9",
                "`drives[1]`: 7 stands where a text belongs (line 1, column 9)",
            ),
            (
                "layout `raid5`: there are mirror:N, parity:K+M, stripe and stripe:N",
                "layout `raid5`: there are mirror:N, parity:K+M, stripe and stripe:N",
            ),
        ] {
            assert_eq!(reworded(serde), plain);
        }
    }

    #[test]
    fn a_line_is_named() {
        let text = "a = 1\nb = 2\ncolour = 3\n";
        let said = at_line(
            text,
            text.find("colour"),
            "unknown field `colour`, expected `a` or `b`",
        );
        assert_eq!(
            said,
            "line 3, `colour = 3`: there is no `colour`; known: `a`, `b`"
        );
        assert_eq!(at_line(text, None, "missing field `c`"), "`c` is missing");
        assert_eq!(at_line("ä", Some(1), "missing field `c`"), "`c` is missing");
    }
}
