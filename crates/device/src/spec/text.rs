//! Taking texts apart: commas outside brackets, options, brackets.

use crate::OpenError;

/// An option: its key and its value.
pub(super) type Pair<'a> = (&'a str, &'a str);

/// Splits at the commas that no bracket encloses.
pub(super) fn split_commas(text: &str) -> Vec<&str> {
    let mut depth = 0usize;
    text.split(|c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

/// The options `key=value,` at the start, and the rest.
pub(super) fn leading_options(text: &str) -> (Vec<Pair<'_>>, &str) {
    let mut options = Vec::new();
    let mut rest = text;
    while let Some(pair) = rest.split(',').next().and_then(option) {
        options.push(pair);
        let used = pair.0.len() + 1 + pair.1.len();
        rest = rest[used..].strip_prefix(',').unwrap_or("");
    }
    (options, rest)
}

fn option(text: &str) -> Option<Pair<'_>> {
    let (key, value) = text.split_once('=')?;
    let is_key = |c: char| c.is_ascii_lowercase() || c == '-';
    (!key.is_empty() && key.chars().all(is_key)).then_some((key, value))
}

/// Splits `body?key=value&…`.
pub(super) fn query(text: &str) -> Result<(&str, Vec<Pair<'_>>), OpenError> {
    let Some((body, query)) = text.split_once('?') else {
        return Ok((text, Vec::new()));
    };
    let pair = |part| {
        option(part).ok_or_else(|| {
            OpenError::usage(
                format!("`{part}` in `{text}`"),
                "is no option of the form key=value",
            )
        })
    };
    let pairs: Result<_, _> = query.split('&').map(pair).collect();
    Ok((body, pairs?))
}

/// The inside of `[…]`, if the brackets enclose the whole text.
pub(super) fn unbracket(text: &str) -> Result<Option<&str>, OpenError> {
    if !text.starts_with('[') {
        return Ok(None);
    }
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            if at + 1 == text.len() {
                return Ok(Some(&text[1..at]));
            }
            let rest = &text[at + 1..];
            return Err(OpenError::usage(
                format!("`{rest}` in `{text}`"),
                "follows a closing bracket",
            ));
        }
    }
    Err(OpenError::usage(
        format!("`{text}`"),
        "has no closing bracket",
    ))
}

/// `on` or `off`.
pub(super) fn switch(key: &str, value: &str) -> Result<bool, OpenError> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(OpenError::usage(
            format!("`{key}={value}`"),
            "is neither on nor off",
        )),
    }
}

/// A number of any kind.
pub(super) fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, OpenError> {
    let bad = |_| OpenError::usage(format!("`{key}={value}`"), "is no such number");
    value.parse().map_err(bad)
}

/// That `key` is not known; `known` lists what is.
pub(super) fn unknown_option(device: &str, pair: Pair<'_>, known: &str) -> OpenError {
    let (key, value) = pair;
    OpenError::usage(
        format!("`{key}={value}`"),
        format!("is no option of {device}; known are {known}"),
    )
}
