//! What to know before quoting a figure: what is said of many cells is said once, with the cells below it.

use maud::{Markup, html};

/// From so many places on they are folded away.
const MANY: usize = 12;

/// What was flagged, and everything of which it was.
#[derive(Debug, PartialEq, Eq)]
struct Caveat {
    /// Words, of which a number that is not the same everywhere is left out.
    what: String,
    /// Cells, configurations, users; with the numbers that were left out.
    places: Vec<String>,
}

/// A flag, cut into its place and words.
struct Flag<'a> {
    place: &'a str,
    words: Vec<&'a str>,
}

impl<'a> Flag<'a> {
    /// `PLACE: WORDS`.
    fn read(text: &'a str) -> Self {
        let (place, what) = text.split_once(": ").unwrap_or(("", text));
        Self {
            place,
            words: what.split_whitespace().collect(),
        }
    }

    /// Whether another says the same, besides its numbers.
    fn is_like(&self, other: &Self) -> bool {
        let is_same =
            |(one, other): (&&str, &&str)| one == other || has_number(one) && has_number(other);
        !self.place.is_empty()
            && !other.place.is_empty()
            && self.words.len() == other.words.len()
            && self.words.iter().zip(&other.words).all(is_same)
    }
}

fn has_number(word: &str) -> bool {
    word.contains(|c: char| c.is_ascii_digit())
}

/// Flags that say the same, together, in the order in which they were told.
fn gathered(flags: &[String]) -> Vec<Caveat> {
    let mut groups: Vec<Vec<Flag<'_>>> = Vec::new();
    for flag in flags.iter().map(|text| Flag::read(text)) {
        match groups.iter_mut().find(|group| group[0].is_like(&flag)) {
            Some(group) => group.push(flag),
            None => groups.push(vec![flag]),
        }
    }
    groups.iter().map(|group| caveat(group)).collect()
}

fn caveat(group: &[Flag<'_>]) -> Caveat {
    let words = group.first().map_or(&[][..], |flag| &flag.words);
    let is_common = |at: usize| group.iter().all(|flag| flag.words.get(at) == words.get(at));
    let common: Vec<bool> = (0..words.len()).map(is_common).collect();
    let what = words.iter().zip(&common);
    let what: Vec<String> = what
        .map(|(word, &is_common)| match is_common {
            true => (*word).to_owned(),
            false => left_out(word),
        })
        .collect();
    let place = |flag: &Flag<'_>| {
        let own = flag
            .words
            .iter()
            .zip(&common)
            .filter(|(_, is_common)| !**is_common);
        let own: Vec<&str> = own
            .map(|(word, _)| word.trim_matches(['(', ')', ',', ';', ':']))
            .collect();
        match (flag.place, own.is_empty()) {
            (place, true) => place.to_owned(),
            (place, false) => format!("{place} ({})", own.join(", ")),
        }
    };
    let places = group.iter().map(place).filter(|place| !place.is_empty());
    Caveat {
        what: what.join(" "),
        places: places.collect(),
    }
}

/// What stands for a number that is not the same everywhere: its brackets stay.
fn left_out(word: &str) -> String {
    let begin = if word.starts_with('(') { "(" } else { "" };
    let end = word.trim_start_matches(|c| !",;)".contains(c));
    format!("{begin}…{end}")
}

/// The section of them.
pub fn section(flags: &[String]) -> Markup {
    html! {
        section {
            h2 { "Before you quote a figure" }
            @if flags.is_empty() { p { "Nothing to flag." } }
            @for caveat in gathered(flags) {
                h3 { (caveat.what) }
                @match &caveat.places[..] {
                    [] => {}
                    some if some.len() <= MANY => p.flags { (some.join("; ")) },
                    many => details {
                        summary { (many.len()) " of them" }
                        p.flags { (many.join("; ")) }
                    },
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caveats(flags: &[&str]) -> Vec<(String, Vec<String>)> {
        let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
        let all = gathered(&flags).into_iter();
        all.map(|of| (of.what, of.places)).collect()
    }

    #[test]
    fn what_is_said_of_many_is_said_once_and_numbers_stay_with_their_place() {
        let found = caveats(&[
            "local randread-4k-t1-d1: throughput was not steady",
            "remote randread-4k-t1-d1: throughput was not steady",
            "remote randread-4k-t1-d8: 12 accesses took longer than 100 ms",
            "a schema of a few MB is no TPROC-C",
            "local randread-4k-t1-d8: 7 accesses took longer than 100 ms",
            "8 users: a is 0.9 x b (0.8-1.0 over 3 pairs)",
            "9 users: a is 0.8 x b (0.7-0.9 over 3 pairs)",
        ]);
        let owned = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            found,
            [
                (
                    "throughput was not steady".to_owned(),
                    owned(&["local randread-4k-t1-d1", "remote randread-4k-t1-d1"])
                ),
                (
                    "… accesses took longer than 100 ms".to_owned(),
                    owned(&[
                        "remote randread-4k-t1-d8 (12)",
                        "local randread-4k-t1-d8 (7)"
                    ])
                ),
                ("a schema of a few MB is no TPROC-C".to_owned(), Vec::new()),
                (
                    "a is … x b (… over 3 pairs)".to_owned(),
                    owned(&["8 users (0.9, 0.8-1.0)", "9 users (0.8, 0.7-0.9)"])
                ),
            ]
        );
    }

    #[test]
    fn what_is_not_the_same_stays_apart() {
        let found = caveats(&[
            "a: one thing",
            "b: other thing",
            "c: 5 things",
            "c: five things",
        ]);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(section(&[]).into_string().contains("Nothing to flag"));
        let many: Vec<String> = (0..20).map(|at| format!("cell {at}: not steady")).collect();
        let html = section(&many).into_string();
        assert!(
            html.contains("20 of them") && html.matches("not steady").count() == 1,
            "{html}"
        );
    }
}
