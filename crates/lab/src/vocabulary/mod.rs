//! Sweeps in the words of fio and DISKSPD, for people who have these in their fingers and their
//! scripts. What the words leave unsaid is said: the tools' silent defaults become a list.

mod diskspd;
mod fio;
mod job_file;

pub use job_file::translate_job_file;

use std::time::Duration;

use crate::{Configuration, LabError, Matrix, Pattern, SweepPlan};

/// Assumed where nothing else says how often.
const ONE_REPEAT: &str = "one repeat; --repeat 3 or more says what variation is normal";
/// Assumed where nothing else says how long.
const TIMES: [&str; 2] = [
    "time-based: 2 s after 0.5 s of warm-up (fio would run once over the size)",
    "DISKSPD's default duration: 10 s",
];

/// A command line or job text as a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Translated {
    /// The sweep. It has configurations only if the words named targets.
    pub plan: SweepPlan,
    /// What was assumed or is done differently, a line each.
    pub assumed: Vec<String>,
}

impl Translated {
    /// Measures each cell so often, and each repeat for so long, whatever the words say or leave to be assumed; a warm-up
    /// stays as they have it.
    pub fn measured(&mut self, times: Option<u32>, time: Option<Duration>) {
        if let Some(times) = times {
            self.plan.repeats = times;
            self.assumed.retain(|line| line != ONE_REPEAT);
        }
        if let Some(time) = time {
            let warmup = self.plan.warmup;
            self.plan.set_measure(time);
            self.plan.warmup = warmup;
            self.assumed.retain(|line| !TIMES.contains(&line.as_str()));
        }
    }
}

/// Reads `-b8K -r -w30 -t4 -o8` (DISKSPD) or `bs=8k rw=randrw iodepth=8` (fio; `--` before a
/// word and `name=` are allowed), told apart by the first word.
///
/// # Errors
/// A usage error that names the first word that is not understood.
pub fn translate(words: &str) -> Result<Translated, LabError> {
    let words: Vec<&str> = words.split_whitespace().collect();
    match words.first() {
        None => Err(LabError::usage("no words to translate")),
        Some(first) if first.contains('=') || first.starts_with("--") => fio::translate(&words),
        Some(_) => diskspd::translate(&words),
    }
}

/// A plan of a single cell for each target.
struct Single {
    pattern: Pattern,
    read_pct: u8,
    block: u32,
    threads: u32,
    depth: u32,
    targets: Vec<String>,
}

impl Single {
    fn plan(self) -> SweepPlan {
        let matrix = Matrix {
            role: String::new(),
            pattern: self.pattern,
            read_pct: self.read_pct,
            blocks: vec![self.block],
            threads: vec![self.threads],
            depths: vec![self.depth],
            procedure: crate::Procedure::default(),
        };
        let on = |target: String| {
            // A bare path is a file; what has a scheme is opened as it stands.
            let bare = target.starts_with(['/', '.']) || !target.contains(':');
            Configuration::on(if bare {
                format!("file:{target}")
            } else {
                target
            })
        };
        SweepPlan::new(self.targets.into_iter().map(on).collect(), vec![matrix])
    }
}

fn number<T: std::str::FromStr>(word: &str, value: &str) -> Result<T, LabError> {
    value
        .parse()
        .map_err(|_| LabError::usage(format!("{word}: {value:?} is not a number in range")))
}

/// A time in seconds, or with a unit.
fn seconds(word: &str, value: &str) -> Result<Duration, LabError> {
    let units = [
        ("us", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ];
    let found = units.into_iter().find_map(|(unit, factor)| {
        let plain = value.strip_suffix(unit)?;
        Some((plain, factor))
    });
    let (plain, factor) = found.unwrap_or((value, 1.0));
    let time = number::<f64>(word, plain).map(|number| number * factor);
    Duration::try_from_secs_f64(time?).map_err(|error| LabError::usage(format!("{word}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slug(words: &str) -> String {
        translate(words).expect(words).plan.cells()[0].slug()
    }

    #[test]
    fn both_vocabularies_name_the_same_cell() {
        assert_eq!(slug("-b8K -r -w30 -t4 -o8 -d10"), "randrw70-8k-t4-d8");
        assert_eq!(
            slug("bs=8k rw=randrw rwmixread=70 iodepth=8 numjobs=4"),
            "randrw70-8k-t4-d8"
        );
        assert_eq!(slug("-b64K -w100 x.dat"), "write-64k-t1-d2");
        assert_eq!(slug("--bs=64k --rw=write"), "write-64k-t1-d1");
        assert_eq!(slug("-r -w0"), "randread-64k-t1-d2");
        assert_eq!(slug("-r4K -b8K -w100"), "randwrite-8k-t1-d2");
        assert_eq!(slug("-si -w40 -b60K"), "rw60-60k-t1-d2");
        assert_eq!(slug("rw=randwrite bs=4k,4k"), "randwrite-4k-t1-d1");
    }

    #[test]
    fn silent_defaults_are_said() {
        let it = translate("-r -c4G -Z1M #1")
            .map(|_| ())
            .expect_err("#1 is a drive number");
        assert!(it.to_string().contains("#1"), "{it}");
        let it = translate("-r -c4G -t2 /d/a").expect("translates");
        let said = it.assumed.join("\n");
        for words in ["64 KiB", "5 s", "10 s", "2 outstanding", "caching"] {
            assert!(said.contains(words), "{words} not in {said}");
        }
        assert_eq!(it.plan.measure, Duration::from_secs(10));
        assert_eq!(it.plan.warmup, Duration::from_secs(5));
        assert_eq!(it.plan.size, Some(4 << 30));
        assert_eq!(it.plan.configurations[0].spec, "file:/d/a");
        let it = translate("-Sh -b4K -o1 -W0 -d3 -w0 -s").expect("translates");
        assert!(
            it.plan.sync && !it.assumed.join(" ").contains("caching"),
            "{:?}",
            it.assumed
        );
    }

    #[test]
    fn rates_times_and_targets() {
        let it = translate("rw=randread bs=4k numjobs=4 rate_iops=500 runtime=7 ramp_time=2s filename=/dev/x:memory:1g")
            .expect("translates");
        assert_eq!(it.plan.rate, Some(2000.0));
        assert_eq!(
            (it.plan.measure, it.plan.warmup),
            (Duration::from_secs(7), Duration::from_secs(2))
        );
        assert_eq!(it.plan.configurations.len(), 1);
        let it = translate("rw=write verify=crc32c sync=1 size=1g").expect("translates");
        assert!(it.plan.verify && it.plan.sync);
        let it = translate("-g8192 -b8K -t2").expect("translates");
        assert_eq!(it.plan.rate, Some(2000.0), "8192 bytes a ms and thread");
    }

    #[test]
    fn how_often_and_how_long_may_be_said_besides() {
        let mut it = translate("rw=randread bs=4k iodepth=1 ramp_time=1").expect("translates");
        assert!((it.plan.repeats, it.assumed.len()) == (1, 2), "{it:?}");
        it.measured(None, None);
        assert_eq!((it.plan.repeats, it.assumed.len()), (1, 2));
        let seconds = Duration::from_secs;
        it.measured(Some(4), Some(seconds(3)));
        assert_eq!((it.plan.repeats, it.plan.measure), (4, seconds(3)));
        assert_eq!(it.plan.warmup, seconds(1));
        assert!(it.assumed.is_empty(), "{:?}", it.assumed);
    }

    #[test]
    fn what_differs_from_fio_s_is_said() {
        let it = translate("rw=randrw rate_iops=100 thinktime=5 fdatasync=8").expect("translates");
        let said = it.assumed.join("\n");
        for words in ["reads and writes together", "its own", "fdatasync"] {
            assert!(said.contains(words), "{words} not in {said}");
        }
        let it = translate("rw=randread rate_iops=100 fsync=8").expect("translates");
        let said = it.assumed.join("\n");
        assert!(
            !said.contains("together") && !said.contains("fdatasync"),
            "{said}"
        );
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (words, named) in [
            ("-b8K -q", "-q"),
            ("-bx", "-bx"),
            ("-w101", "-w101"),
            ("-rs50", "-rs50"),
            ("rw=trim", "trim"),
            ("rw=randread fsync=x", "fsync"),
            (
                "rw=randread random_distribution=zoned:50/5",
                "random_distribution",
            ),
            ("rw=randread end_fsync=1", "end_fsync"),
            ("rw=randread iodepth=many", "iodepth"),
            ("bs=8k,4k", "bs"),
            ("", "no words"),
        ] {
            let error = translate(words).map(|t| t.plan.cells()).expect_err(words);
            assert!(
                error.exit_code() == 2 && error.to_string().contains(named),
                "{words}: {error}"
            );
        }
    }
}
