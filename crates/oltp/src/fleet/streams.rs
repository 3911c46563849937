//! How many streams each database of a fleet has.

use std::fmt;

use ashlar_lab::units::grouped;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Streams of each database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Streams {
    /// All have as many.
    Each(u32),
    /// Dealt out to the databases in turn.
    List(Vec<u32>),
    /// From the least, which the first database has, to the most, which the last one has, evenly.
    Range { least: u32, most: u32 },
}

/// What a file may say.
const WORDS: &str = "a number, a list of numbers, or a range such as \"100..250\"";

impl Streams {
    /// Streams of a database by its number from 0, of `databases`.
    pub fn of(&self, number: usize, databases: usize) -> u32 {
        match self {
            Self::Each(count) => *count,
            Self::List(all) => all.get(number % all.len().max(1)).copied().unwrap_or(0),
            Self::Range { least, most } => {
                let steps = databases.saturating_sub(1).max(1);
                let share = number.min(steps) as f64 / steps as f64;
                least + (f64::from(most - least) * share).round() as u32
            }
        }
    }

    /// The same with each number changed.
    pub(super) fn each(&self, change: impl Fn(u32) -> u32) -> Self {
        match self {
            Self::Each(count) => Self::Each(change(*count)),
            Self::List(all) => Self::List(all.iter().copied().map(change).collect()),
            Self::Range { least, most } => Self::Range {
                least: change(*least),
                most: change(*most),
            },
        }
    }

    fn list(all: Vec<u32>) -> Result<Self, String> {
        match all.is_empty() {
            true => Err(format!("an empty list: must be {WORDS}")),
            false => Ok(Self::List(all)),
        }
    }

    fn range(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?}: must be {WORDS}");
        let (least, most) = text.split_once("..").ok_or_else(wrong)?;
        let number = |of: &str| of.trim().parse::<u32>().map_err(|_| wrong());
        let (least, most) = (number(least)?, number(most)?);
        match least <= most {
            true => Ok(Self::Range { least, most }),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Each(count) => write!(f, "{count} streams each"),
            Self::List(all) => {
                let all: Vec<String> = all.iter().map(u32::to_string).collect();
                write!(f, "{} streams in turn", all.join(", "))
            }
            Self::Range { least, most } => write!(f, "{least} to {most} streams"),
        }
    }
}

/// Streams of several databases, in words: how many each has, or from how many to how many.
pub(super) fn told(all: impl Iterator<Item = u32> + Clone) -> Option<String> {
    let (least, most) = (all.clone().min()?, all.max()?);
    let shown = |count: u32| grouped(f64::from(count));
    Some(match least == most {
        true => shown(least),
        false => format!("{} to {}", shown(least), shown(most)),
    })
}

impl Serialize for Streams {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Each(count) => serializer.serialize_u32(*count),
            Self::List(all) => all.serialize(serializer),
            Self::Range { least, most } => serializer.collect_str(&format_args!("{least}..{most}")),
        }
    }
}

impl<'de> Deserialize<'de> for Streams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Streams;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "streams: {WORDS}")
    }

    fn visit_i64<E: Error>(self, count: i64) -> Result<Streams, E> {
        let named = |_| E::custom(format!("streams = {count}: must be {WORDS}"));
        u32::try_from(count).map(Streams::Each).map_err(named)
    }

    fn visit_u64<E: Error>(self, count: u64) -> Result<Streams, E> {
        let named = |_| E::custom(format!("streams = {count}: must be {WORDS}"));
        u32::try_from(count).map(Streams::Each).map_err(named)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Streams, E> {
        Streams::range(text).map_err(|why| E::custom(format!("streams = {why}")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Streams, A::Error> {
        let mut list = Vec::new();
        while let Some(count) = all.next_element()? {
            list.push(count);
        }
        Streams::list(list).map_err(|why| A::Error::custom(format!("streams = {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize, Serialize)]
    struct File {
        streams: Streams,
    }

    fn read(text: &str) -> Result<Streams, String> {
        let read = ashlar_lab::scenario::read::<File>(&format!("streams = {text}"));
        read.map(|of| of.streams).map_err(|error| error.to_string())
    }

    #[test]
    fn streams_are_dealt_out_to_databases() {
        let dealt = |text: &str, databases: usize| -> Vec<u32> {
            let streams = read(text).expect("read");
            let file = File {
                streams: streams.clone(),
            };
            let json = serde_json::to_string(&file).expect("written");
            let again: File = serde_json::from_str(&json).expect("read");
            assert_eq!(again.streams, streams);
            (0..databases).map(|at| streams.of(at, databases)).collect()
        };
        assert_eq!(dealt("200", 3), [200, 200, 200]);
        assert_eq!(dealt("[100, 250]", 3), [100, 250, 100]);
        assert_eq!(dealt("\"100..250\"", 4), [100, 150, 200, 250]);
        assert_eq!(dealt("\"100..250\"", 1), [100]);
        assert_eq!(dealt("\"0..4294967295\"", 2), [0, u32::MAX]);
    }

    #[test]
    fn what_is_none_of_these_is_named() {
        for wrong in [
            "-1",
            "[]",
            "\"250..100\"",
            "\"many\"",
            "\"1..\"",
            "[1, \"x\"]",
            "1.5",
        ] {
            let error = read(wrong).expect_err(wrong);
            assert!(
                error.contains("streams") || wrong.contains('x'),
                "{wrong}: {error}"
            );
        }
    }
}
