//! DISKSPD's command line, as its wiki documents the parameters.

use std::time::Duration;

use super::{ONE_REPEAT, Single, TIMES, Translated, number, seconds};
use crate::units::{parse_block, parse_bytes};
use crate::{LabError, Pattern};

#[derive(Default)]
struct Seen {
    block: Option<u32>,
    random: bool,
    write_pct: Option<u8>,
    threads: Option<u32>,
    outstanding: Option<u32>,
    duration: Option<Duration>,
    warmup: Option<Duration>,
    size: Option<u64>,
    seed: Option<u64>,
    bytes_per_ms: Option<u64>,
    uncached: bool,
    write_through: bool,
    targets: Vec<String>,
    assumed: Vec<String>,
}

pub(super) fn translate(words: &[&str]) -> Result<Translated, LabError> {
    let mut seen = Seen::default();
    words.iter().try_for_each(|word| seen.take(word))?;
    seen.finish()
}

impl Seen {
    fn take(&mut self, word: &str) -> Result<(), LabError> {
        let unknown = || {
            LabError::usage(format!(
                "DISKSPD's {word} has no counterpart in the lab; leave it out"
            ))
        };
        let wrong = |_| LabError::usage(format!("{word}: no size that the lab can use"));
        let Some(flag) = word.strip_prefix(['-', '/']).filter(|_| !is_path(word)) else {
            if word.starts_with('#') || word.ends_with(':') {
                return Err(unknown());
            }
            self.targets.push((*word).to_owned());
            return Ok(());
        };
        let mut chars = flag.chars();
        let letter = chars.next().ok_or_else(unknown)?;
        let value = chars.as_str();
        match letter {
            'b' => self.block = Some(parse_block(value).map_err(wrong)?),
            'r' if value.starts_with(|c: char| c.is_ascii_alphabetic()) => return Err(unknown()),
            'r' => {
                self.random = true;
                self.note_alignment(value);
            }
            's' => self.sequential(value),
            'w' => {
                let pct: u8 = number(word, value)?;
                if pct > 100 {
                    return Err(LabError::usage(format!("{word}: more than 100 %")));
                }
                self.write_pct = Some(pct);
            }
            't' | 'F' => self.threads = Some(number(word, value)?),
            'o' | 'O' => self.outstanding = Some(number(word, value)?),
            'd' => self.duration = Some(seconds(word, value)?),
            'W' => self.warmup = Some(seconds(word, value)?),
            'c' | 'f' => self.size = Some(parse_bytes(value).map_err(wrong)?),
            'z' => {
                self.seed = Some(if value.is_empty() {
                    0
                } else {
                    number(word, value)?
                })
            }
            'g' => {
                let bytes = value.strip_suffix('i').unwrap_or(value);
                self.bytes_per_ms = Some(number(word, bytes)?);
            }
            'h' if value.is_empty() => (self.uncached, self.write_through) = (true, true),
            'S' => self.caching(value),
            // How it reports, affinity, completion, buffers' origin: the lab has its own way.
            'L' | 'D' | 'R' | 'a' | 'n' | 'C' | 'x' | 'Z' | 'v' | 'p' => {
                self.assumed.push(format!("-{flag} changes nothing here"));
            }
            _ => return Err(unknown()),
        }
        Ok(())
    }

    fn note_alignment(&mut self, value: &str) {
        if !value.is_empty() {
            self.assumed.push(format!(
                "random accesses are aligned to the block size, not to {value}"
            ));
        }
    }

    fn sequential(&mut self, value: &str) {
        self.random = false;
        if !value.is_empty() {
            self.assumed.push(format!(
                "-s{value}: each thread walks a region of its own, block after block"
            ));
        }
    }

    fn caching(&mut self, value: &str) {
        self.uncached |= value.is_empty() || value.contains(['h', 'u']);
        self.write_through |= value.contains(['h', 'w']);
    }

    fn finish(mut self) -> Result<Translated, LabError> {
        let mut assumed = std::mem::take(&mut self.assumed);
        let mut default = |given: bool, text: &str| {
            if !given {
                assumed.push(text.to_owned());
            }
        };
        default(self.block.is_some(), "DISKSPD's default block size: 64 KiB");
        default(
            self.write_pct.is_some(),
            "DISKSPD's default mix: reads only",
        );
        default(
            self.threads.is_some(),
            "DISKSPD's default: 1 thread for each target",
        );
        default(
            self.outstanding.is_some(),
            "DISKSPD's default: 2 outstanding accesses a thread",
        );
        default(self.duration.is_some(), TIMES[1]);
        default(self.warmup.is_some(), "DISKSPD's default warm-up: 5 s");
        default(
            self.random,
            "sequential: each thread walks a region of its own (DISKSPD's threads all start at offset 0)",
        );
        default(
            self.uncached,
            "DISKSPD's default is software caching on; the lab always goes past the page cache",
        );
        let write_pct = self.write_pct.unwrap_or(0);
        let pattern = match (self.random, write_pct) {
            (true, 0) => Pattern::RandRead,
            (true, 100) => Pattern::RandWrite,
            (true, _) => Pattern::RandRw,
            (false, 0) => Pattern::Read,
            (false, 100) => Pattern::Write,
            (false, _) => Pattern::Rw,
        };
        let block = self.block.unwrap_or(64 << 10);
        let threads = self.threads.unwrap_or(1);
        let single = Single {
            pattern,
            read_pct: 100 - write_pct,
            block,
            threads,
            depth: self.outstanding.unwrap_or(2),
            targets: self.targets,
        };
        let mut plan = single.plan();
        plan.set_measure(self.duration.unwrap_or(Duration::from_secs(10)));
        plan.warmup = self.warmup.unwrap_or(Duration::from_secs(5));
        plan.repeats = 1;
        plan.size = self.size;
        plan.sync = self.write_through;
        plan.seed = self.seed.unwrap_or(plan.seed);
        plan.rate = self
            .bytes_per_ms
            .map(|bytes| bytes as f64 * 1000.0 * f64::from(threads) / f64::from(block));
        assumed.push(ONE_REPEAT.to_owned());
        Ok(Translated { plan, assumed })
    }
}

/// `/dev/sdb` is a target, `/b8K` a flag.
fn is_path(word: &str) -> bool {
    word.starts_with('/') && (word[1..].contains('/') || std::path::Path::new(word).exists())
}
