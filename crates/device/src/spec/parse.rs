use std::str::FromStr;
use std::time::Duration;

use ashlar_block::ErrorKind;

use super::Spec;
use super::text::{
    leading_options, number, query, split_commas, switch, unbracket, unknown_option,
};
use crate::faults::{Action, Affects, FaultPlan, Rule, Trigger};
use crate::media::{ArrayModel, DiskModel, FlashModel, Level};
use crate::record::Recording;
use crate::{DEFAULT_CHUNK_BYTES, FileOptions, NullReads, OpenError, RbdName, parse_size};

/// How deep devices may lie under devices: more is a mistake, and recursion must end.
const MAX_DEPTH: usize = 16;
/// Disks of an array, and what it may have.
const MANY_DISKS: usize = 10;
const MOST_DISKS: usize = 64;
const KINDS: &str = "memory, null, file, stripe, hdd, ssd, faulty, nvme-tcp and rbd";

impl FromStr for Spec {
    type Err = OpenError;

    /// Parses a specification; the error names the piece that is wrong.
    fn from_str(text: &str) -> Result<Self, OpenError> {
        parse(text, 0)
    }
}

fn parse(text: &str, depth: usize) -> Result<Spec, OpenError> {
    if depth > MAX_DEPTH {
        let why = format!("devices are nested more than {MAX_DEPTH} deep");
        return Err(OpenError::usage("device", why));
    }
    if text.is_empty() {
        return Err(OpenError::usage("device", "is missing: the text is empty"));
    }
    if let Some(inside) = unbracket(text)? {
        return parse(inside, depth + 1);
    }
    if text.starts_with(['/', '.']) {
        return file(text);
    }
    let Some((kind, rest)) = text.split_once(':') else {
        let why = format!(
            "is neither a path that starts with / or ., as in file:/p?size=4GiB, nor one of {KINDS}"
        );
        return Err(OpenError::usage(format!("device `{text}`"), why));
    };
    match kind {
        "memory" => Ok(Spec::Memory(parse_size(rest)?)),
        "null" => null(rest),
        "file" => file(rest),
        "stripe" => stripe(rest, depth),
        "hdd" => disk(rest, depth),
        "ssd" => flash(rest, depth),
        "faulty" => faulty(rest, depth),
        "rbd" => rbd(rest),
        "nvme-tcp" if rest.starts_with("//") => Ok(Spec::Remote(text.into())),
        _ => {
            let why = format!("is no kind of device; known are {KINDS}");
            Err(OpenError::usage(format!("`{kind}:` in `{text}`"), why))
        }
    }
}

fn rbd(text: &str) -> Result<Spec, OpenError> {
    let (path, options) = query(text)?;
    let named = path.split_once('/');
    let named = named.filter(|(pool, image)| !pool.is_empty() && !image.is_empty());
    let Some((pool, image)) = named.filter(|(_, image)| !image.contains(['/', '@'])) else {
        let why = "names no image: rbd:POOL/IMAGE is one";
        return Err(OpenError::usage(format!("`rbd:{text}`"), why));
    };
    let mut name = RbdName {
        pool: pool.to_owned(),
        image: image.to_owned(),
        conf: None,
        id: None,
    };
    for (key, value) in options {
        match key {
            "conf" if !value.is_empty() => name.conf = Some(value.into()),
            "id" if !value.is_empty() => name.id = Some(value.to_owned()),
            _ => return Err(unknown_option("rbd", (key, value), "conf=PATH, id=NAME")),
        }
    }
    Ok(Spec::Rbd(name))
}

fn null(text: &str) -> Result<Spec, OpenError> {
    let (size, options) = query(text)?;
    let mut reads = NullReads::default();
    for pair in options {
        reads = match pair {
            ("reads", "zeroes") => NullReads::Zeroes,
            ("reads", "untouched") => NullReads::Untouched,
            pair => {
                return Err(unknown_option(
                    "null",
                    pair,
                    "reads=zeroes, reads=untouched",
                ));
            }
        };
    }
    Ok(Spec::Null(parse_size(size)?, reads))
}

fn file(text: &str) -> Result<Spec, OpenError> {
    let (path, options) = query(text)?;
    if path.is_empty() {
        return Err(OpenError::usage(format!("`file:{text}`"), "names no path"));
    }
    let mut file = FileOptions::new(path);
    let (mut trace, mut limit, mut reads) = (None, None, None);
    for (key, value) in options {
        match key {
            "size" => file.size = Some(parse_size(value)?),
            "direct" => file.direct = switch(key, value)?,
            "share" => file.share = switch(key, value)?,
            "allocate" => file.allocate = switch(key, value)?,
            "record" => trace = Some(value),
            "record-limit" => limit = Some(parse_size(value)?),
            "record-reads" => reads = Some(switch(key, value)?),
            _ => {
                let known = "size, direct, share, allocate, record, record-limit, record-reads";
                return Err(unknown_option("a file", (key, value), known));
            }
        }
    }
    let spec = Spec::File(file);
    let Some(trace) = trace else {
        let limit = limit.map(|_| "`record-limit`");
        return match limit.or(reads.map(|_| "`record-reads`")) {
            None => Ok(spec),
            Some(option) => Err(OpenError::usage(option, "is for a device with record=")),
        };
    };
    if trace.is_empty() {
        return Err(OpenError::usage("`record=`", "names no file"));
    }
    let usual = Recording::to(trace);
    let recording = Recording {
        limit: limit.unwrap_or(usual.limit),
        reads: reads.unwrap_or(usual.reads),
        ..usual
    };
    Ok(Spec::Recorded(recording, Box::new(spec)))
}

fn stripe(text: &str, depth: usize) -> Result<Spec, OpenError> {
    let (options, devices) = leading_options(text);
    let mut chunk = DEFAULT_CHUNK_BYTES;
    for pair in options {
        chunk = match pair {
            ("chunk", value) => parse_size(value)?,
            pair => return Err(unknown_option("stripe", pair, "chunk")),
        };
    }
    let children: Result<Vec<Spec>, _> = split_commas(devices)
        .into_iter()
        .map(|child| parse(child, depth + 1))
        .collect();
    Ok(Spec::Stripe(chunk, children?))
}

/// The one device under a decorator.
fn child(kind: &str, text: &str, depth: usize) -> Result<Box<Spec>, OpenError> {
    if text.is_empty() {
        let why = "names no device; inside a stripe, put it and its options in brackets";
        return Err(OpenError::usage(format!("`{kind}:`"), why));
    }
    parse(text, depth + 1).map(Box::new)
}

fn disk(text: &str, depth: usize) -> Result<Spec, OpenError> {
    let (options, device) = leading_options(text);
    let mut model = DiskModel::NEARLINE;
    let mut cache = true;
    let (mut level, mut disks) = (None, None);
    for (key, value) in options {
        match (key, value) {
            ("model", "nearline") => model = DiskModel::NEARLINE,
            ("model", "fast") => model = DiskModel::FAST,
            ("model", "10k") => model = DiskModel::TEN_K,
            ("raid", "5") => level = Some(Level::Raid5),
            ("raid", "10") => level = Some(Level::Raid10),
            ("disks", value) => disks = Some(number::<usize>(key, value)?),
            ("write-cache", value) => cache = switch(key, value)?,
            pair => {
                let known =
                    "model=nearline, model=10k, model=fast, raid=5|10, disks=N, write-cache=on|off";
                return Err(unknown_option("hdd", pair, known));
            }
        }
    }
    if !cache {
        model.cached_writes = 0;
    }
    let child = child("hdd", device, depth)?;
    match (level, disks) {
        (None, None) => Ok(Spec::Disk(model, child)),
        (None, Some(disks)) => Err(OpenError::usage(
            format!("`disks={disks}`"),
            "is for an array: raid=5 or raid=10",
        )),
        (Some(level), disks) => Ok(Spec::Array(array(model, level, disks)?, child)),
    }
}

fn array(disk: DiskModel, level: Level, disks: Option<usize>) -> Result<ArrayModel, OpenError> {
    let (fewest, is_odd) = (ArrayModel::fewest(level), level == Level::Raid10);
    let disks = disks.unwrap_or(MANY_DISKS);
    if !(fewest..=MOST_DISKS).contains(&disks) || is_odd && disks % 2 == 1 {
        let why = match level {
            Level::Raid5 => format!("RAID-5 has {fewest} to {MOST_DISKS} disks"),
            Level::Raid10 => format!("RAID-10 has {fewest} to {MOST_DISKS} disks, in pairs"),
        };
        return Err(OpenError::usage(format!("`disks={disks}`"), why));
    }
    Ok(ArrayModel { disk, level, disks })
}

fn flash(text: &str, depth: usize) -> Result<Spec, OpenError> {
    let (options, device) = leading_options(text);
    let mut model = FlashModel::DATA_CENTRE;
    for (key, value) in options {
        match key {
            "random-writes" => model.random_writes = number::<u64>(key, value)?.max(1),
            "channels" => model.channels = number::<usize>(key, value)?.clamp(1, 1024),
            _ => {
                return Err(unknown_option(
                    "ssd",
                    (key, value),
                    "random-writes, channels",
                ));
            }
        }
    }
    Ok(Spec::Flash(model, child("ssd", device, depth)?))
}

fn faulty(text: &str, depth: usize) -> Result<Spec, OpenError> {
    let (options, device) = leading_options(text);
    let mut plan = FaultPlan::default();
    for pair in options {
        match pair {
            ("seed", value) => plan.seed = number("seed", value)?,
            ("switch", value) => plan.switch = Some(value.into()),
            (key, value) => plan.rules.push(rule(key, value)?),
        }
    }
    Ok(Spec::Faulty(plan, child("faulty", device, depth)?))
}

fn rule(key: &str, value: &str) -> Result<Rule, OpenError> {
    let error = Action::Error(ErrorKind::Media);
    let (affects, action) = match key {
        "read-error" => (Affects::Reads, error),
        "write-error" => (Affects::Writes, error),
        "flush-error" => (Affects::Flushes, error),
        "bit-flip" => (Affects::Reads, Action::FlipBit),
        "drop-write" => (Affects::Writes, Action::Drop),
        "delay" => {
            return Ok(Rule::always(
                Affects::All,
                Action::Delay(duration(key, value)?),
            ));
        }
        "hang-after" => {
            let first = number::<u64>(key, value)?;
            return Ok(Rule::always(Affects::All, Action::Hang).when(Trigger::From(first)));
        }
        _ => {
            let known = "seed, switch, read-error, write-error, flush-error, bit-flip, drop-write, delay, \
                         hang-after";
            return Err(unknown_option("faulty", (key, value), known));
        }
    };
    let chance: f64 = number(key, value)?;
    if !(0.0..=1.0).contains(&chance) {
        let why = "is no probability between 0 and 1";
        return Err(OpenError::usage(format!("`{key}={value}`"), why));
    }
    Ok(Rule::always(affects, action).when(Trigger::Chance(chance)))
}

/// `200us`, `5ms` or `1s`.
fn duration(key: &str, value: &str) -> Result<Duration, OpenError> {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (amount, unit) = value.split_at(digits);
    let amount: u32 = number(key, amount)?;
    match unit {
        "us" => Ok(Duration::from_micros(amount.into())),
        "ms" => Ok(Duration::from_millis(amount.into())),
        "s" => Ok(Duration::from_secs(amount.into())),
        _ => Err(OpenError::usage(
            format!("`{key}={value}`"),
            "needs a unit of us, ms or s",
        )),
    }
}
