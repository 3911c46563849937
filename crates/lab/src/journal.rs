//! What a run has measured, on the storage as soon as it was: `journal.jsonl` in its directory.
//!
//! The first line says what the run is of; each later one is a turn that was measured, or something that the run
//! made and must know of again. A line is durable before the run goes on, and half a line at the end (a process that
//! was killed, a machine that lost its power) is as if it had not been written: that turn is measured again. So a
//! run that is resumed has every turn once.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::result_file::refuse_finished;
use crate::{LabError, Machine, check_out_dir, differ};

const NAME: &str = "journal.jsonl";
/// The `schema` of journals that this version writes and reads.
const SCHEMA: &str = "ashlar-journal-1";

/// What a run is of, so that it can go on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Which command began it.
    pub command: Command,
    /// The scenario as it is run, with what the command line changed in it; of a command without one what it was asked.
    pub scenario: String,
    /// What the command line changed in it, as it was given.
    #[serde(default)]
    pub changed: Vec<String>,
    /// Its scale, as it was given.
    pub scale: String,
    /// Where its own files are made.
    pub dir: PathBuf,
    /// Storage places of databases, `NAME=DIR`.
    pub places: Vec<String>,
    /// Data that is found may be overwritten.
    pub destroy_data: bool,
    /// The machine that measures.
    pub machine: Machine,
    /// Agents that make the load.
    #[serde(default)]
    pub clients: Agents,
    /// Texts of the scenarios that it is made of, as they are run; each has a directory of its own below.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    /// The scenario whose part it is: what it was measured on is the whole's, so it goes on with that alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub part_of: String,
}

impl Origin {
    /// Of a command that has no scenario, here and now.
    ///
    /// # Errors
    /// What it was asked cannot be kept.
    pub fn asked<T: Serialize>(command: Command, asked: &T) -> Result<Self, LabError> {
        let scenario = serde_json::to_string(asked).map_err(|e| LabError::caused(NAME, e))?;
        Ok(Self {
            command,
            scenario,
            machine: Machine::here(),
            ..Self::default()
        })
    }

    /// What such a command was asked.
    ///
    /// # Errors
    /// It was kept by something else.
    pub fn what<T: DeserializeOwned>(&self) -> Result<T, LabError> {
        let refuse = |error| LabError::caused(format!("{NAME}: what was asked"), error);
        serde_json::from_str(&self.scenario).map_err(refuse)
    }

    /// Refuses a part by itself: what the whole had measured it on is gone.
    ///
    /// # Errors
    /// A usage error that says how to go on.
    pub fn refuse_part(&self, dir: &Path) -> Result<(), LabError> {
        if self.part_of.is_empty() {
            return Ok(());
        }
        let whole = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        Err(LabError::usage(format!(
            "{}: a part of a run of {}, whose storage goes with it: ashlar lab run --resume {}",
            dir.display(),
            self.part_of,
            whole.parent().unwrap_or(&whole).display()
        )))
    }
}

/// Agents that make the load of a run, and how they reach what the run itself serves. Without any, this process does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agents {
    pub addresses: Vec<String>,
    /// The file with the token that lets us in.
    pub token_file: PathBuf,
    /// Where this machine serves remote configurations and pools.
    pub serve_on: IpAddr,
}

impl Default for Agents {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            token_file: PathBuf::new(),
            serve_on: Ipv4Addr::LOCALHOST.into(),
        }
    }
}

/// A command that has runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Command {
    /// `lab sweep`
    Sweep,
    /// `lab run`
    #[default]
    Run,
    /// `lab failover --topology … --fault …`
    Failover,
    /// `lab ha`
    Ha,
    /// `lab torn-pages`
    TornPages,
}

/// One measurement: a configuration, a cell, a repeat. Repeats count from 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Turn {
    /// Position of the configuration.
    pub configuration: usize,
    /// What it is asked: a sweep's cell, a number of users.
    pub cell: String,
    /// Which repeat.
    pub repeat: u32,
}

impl Turn {
    /// Its cell, where that is a number: of users, of readers.
    ///
    /// # Errors
    /// It is none: the journal was written by something else.
    pub fn number<T: FromStr>(&self) -> Result<T, LabError> {
        let cell = &self.cell;
        let refuse = |_| LabError::environment(format!("{NAME}: cell {cell:?}: no number"));
        cell.parse().map_err(refuse)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Began {
        schema: String,
        of: Box<Origin>,
    },
    Turn {
        of: Turn,
        outcome: Value,
    },
    /// A folder that the run made, and removes at its end.
    Folder(PathBuf),
    /// A device that held nothing when the run began.
    Fresh(String),
    /// The result has been written.
    Ended,
}

/// The journal of a run that goes on.
#[derive(Debug, Default)]
pub struct Journal {
    file: Option<(File, PathBuf)>,
    turns: HashMap<Turn, Value>,
    folders: Vec<PathBuf>,
    fresh: Vec<String>,
    goes_on: bool,
}

/// What a journal's file says.
#[derive(Default)]
struct Told {
    origin: Option<Origin>,
    journal: Journal,
    has_ended: bool,
    /// Bytes up to the end of the last whole line.
    whole: u64,
}

impl Told {
    fn refuse_unfinished(&self, dir: &Path) -> Result<(), LabError> {
        let measured = self.journal.turns.len();
        if self.has_ended || measured == 0 {
            return Ok(());
        }
        let origin = self.origin.as_ref();
        let whole = match origin.is_some_and(|of| !of.part_of.is_empty()) {
            true => dir.parent().unwrap_or(dir),
            false => dir,
        };
        Err(LabError::usage(format!(
            "{} has {measured} measurements of a run that has not reached its end: go on with it (`ashlar lab run \
             --resume {}`), or name another directory",
            dir.display(),
            whole.display()
        )))
    }
}

impl Journal {
    /// One that keeps nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// Begins the journal of a run in `dir`, which is made.
    ///
    /// # Errors
    /// A usage error if a finished result is there, or an unfinished run, which this would throw away, or one that goes
    /// on.
    pub fn begin(dir: &Path, origin: &Origin) -> Result<Self, LabError> {
        refuse_finished(dir)?;
        check_out_dir(dir)?;
        let path = dir.join(NAME);
        let file = lock(&path, true)?;
        let told = read(&path)?;
        told.refuse_unfinished(dir)?;
        file.set_len(0)
            .map_err(|error| LabError::caused(path.display(), error))?;
        let mut journal = Self {
            file: Some((file, path)),
            ..Self::default()
        };
        journal.write(&Line::Began {
            schema: SCHEMA.to_owned(),
            of: Box::new(origin.clone()),
        })?;
        Ok(journal)
    }

    /// Refuses a directory with what a new run would throw away: a finished result, or an unfinished run.
    ///
    /// # Errors
    /// A usage error that says what is there, and how to go on.
    pub fn refuse_used(dir: &Path) -> Result<(), LabError> {
        refuse_finished(dir)?;
        let path = dir.join(NAME);
        if !path.exists() {
            return Ok(());
        }
        let _locked = lock(&path, false)?;
        read(&path)?.refuse_unfinished(dir)
    }

    /// Whether a directory has one of a run that has begun and not reached its end.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn is_unfinished(dir: &Path) -> Result<bool, LabError> {
        let path = dir.join(NAME);
        if !path.exists() {
            return Ok(false);
        }
        let told = read(&path)?;
        Ok(told.origin.is_some() && !told.has_ended)
    }

    /// Goes on with the run in `dir`, on this `machine`.
    ///
    /// # Errors
    /// A usage error if there is no run that could go on, if it goes on already, or if the scenario or the machine is
    /// another one by now: it names what differs.
    pub fn resume(dir: &Path, machine: &Machine) -> Result<(Self, Origin), LabError> {
        let path = dir.join(NAME);
        let at = dir.display();
        if !path.exists() {
            return Err(LabError::usage(format!(
                "{at}: no run that could go on: there is no {NAME} in it"
            )));
        }
        let file = lock(&path, false)?;
        let told = read(&path)?;
        let origin = told.origin.ok_or_else(|| {
            LabError::usage(format!("{}: does not say what it is of", path.display()))
        })?;
        if told.has_ended {
            return Err(LabError::usage(format!(
                "{at}: the run has reached its end; nothing is left to be measured"
            )));
        }
        let others: Vec<String> = origin.machine.differences(machine).collect();
        if !others.is_empty() {
            return Err(LabError::usage(format!(
                "{at}: cannot go on, this is another machine: {}",
                others.join("; ")
            )));
        }
        let refuse = |error| LabError::caused(path.display(), error);
        file.set_len(told.whole).map_err(refuse)?;
        let mut journal = told.journal;
        journal.file = Some((file, path));
        journal.goes_on = true;
        Ok((journal, origin))
    }

    /// What was measured in a turn, if it was.
    ///
    /// # Errors
    /// It was written by something else.
    pub fn outcome<T: DeserializeOwned>(&self, turn: &Turn) -> Result<Option<T>, LabError> {
        let found = self.turns.get(turn).cloned();
        found
            .map(serde_json::from_value)
            .transpose()
            .map_err(|error| LabError::caused(format!("{NAME}: {turn:?}"), error))
    }

    /// The outcomes of a cell of a configuration, from its first repeat to the first that is not there.
    ///
    /// # Errors
    /// One was written by something else.
    pub fn outcomes<T: DeserializeOwned>(&self, first: &Turn) -> Result<Vec<T>, LabError> {
        let mut all = Vec::new();
        let mut turn = first.clone();
        while let Some(outcome) = self.outcome(&turn)? {
            all.push(outcome);
            turn.repeat += 1;
        }
        Ok(all)
    }

    /// Whether it is that of a run that was interrupted or killed.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// How many turns were measured before it went on.
    pub fn turns(&self) -> usize {
        self.turns.len()
    }

    /// Keeps what a turn has given.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep<T: Serialize>(&mut self, turn: &Turn, outcome: &T) -> Result<(), LabError> {
        if self.file.is_none() {
            return Ok(());
        }
        let outcome = serde_json::to_value(outcome).map_err(|e| LabError::caused(NAME, e))?;
        self.write(&Line::Turn {
            of: turn.clone(),
            outcome,
        })
    }

    /// Keeps that the run has made a folder of its own.
    pub fn made(&mut self, folder: &Path) -> Result<(), LabError> {
        self.write(&Line::Folder(folder.to_owned()))
    }

    /// Folders that the run had made before it was killed.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Keeps that a device held nothing when the run began.
    pub fn was_fresh(&mut self, spec: &str) -> Result<(), LabError> {
        if self.has_filled(spec) {
            return Ok(());
        }
        self.write(&Line::Fresh(spec.to_owned()))
    }

    /// Whether what a device holds is this run's own.
    pub fn has_filled(&self, spec: &str) -> bool {
        self.fresh.iter().any(|fresh| fresh == spec)
    }

    /// The result is there: there is nothing to go on with.
    pub fn end(&mut self) -> Result<(), LabError> {
        self.write(&Line::Ended)
    }

    fn write(&mut self, line: &Line) -> Result<(), LabError> {
        let Some((file, path)) = &mut self.file else {
            return Ok(());
        };
        let refuse = |error: std::io::Error| LabError::caused(path.display(), error);
        let mut text = serde_json::to_string(line).map_err(|e| LabError::caused(NAME, e))?;
        text.push('\n');
        file.write_all(text.as_bytes()).map_err(refuse)?;
        file.sync_data().map_err(refuse)
    }
}

/// Opens a journal that no other process writes, to be appended to.
fn lock(path: &Path, create: bool) -> Result<File, LabError> {
    let file = OpenOptions::new().append(true).create(create).open(path);
    let file = file.map_err(|error| LabError::caused(path.display(), error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LabError::usage(format!(
            "{}: another process measures into this directory",
            path.display()
        ))),
        Err(TryLockError::Error(error)) => Err(LabError::caused(path.display(), error)),
    }
}

fn read(path: &Path) -> Result<Told, LabError> {
    let bytes = std::fs::read(path).map_err(|error| LabError::caused(path.display(), error))?;
    let mut told = Told::default();
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        // The last line may be a part of one; nothing comes after it.
        let Some(line) = line.strip_suffix(b"\n") else {
            break;
        };
        let number = told.journal.turns.len() + 1;
        let named = |error| LabError::caused(format!("{}, turn {number}", path.display()), error);
        match serde_json::from_slice(line).map_err(named)? {
            Line::Began { schema, of } if schema == SCHEMA => told.origin = Some(*of),
            Line::Began { schema, .. } => {
                return Err(LabError::usage(format!(
                    "{}: {schema} is not {SCHEMA}, which this version reads",
                    path.display()
                )));
            }
            Line::Turn { of, outcome } => {
                told.journal.turns.insert(of, outcome);
            }
            Line::Folder(folder) => told.journal.folders.push(folder),
            Line::Fresh(spec) => told.journal.fresh.push(spec),
            Line::Ended => told.has_ended = true,
        }
        told.whole += line.len() as u64 + 1;
    }
    Ok(told)
}

impl Machine {
    /// In what another machine differs from this one, as far as it measures.
    pub fn differences(&self, other: &Self) -> impl Iterator<Item = String> {
        [
            differ("processor", &self.cpu_model, &other.cpu_model),
            differ("cores", self.cores, other.cores),
            differ("memory", self.memory_bytes, other.memory_bytes),
            differ("kernel", &self.kernel, &other.kernel),
            differ("version of the lab", &self.lab_version, &other.lab_version),
        ]
        .into_iter()
        .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(repeat: u32) -> Turn {
        Turn {
            configuration: 1,
            cell: "randread-4k-t1-d1".into(),
            repeat,
        }
    }

    fn origin() -> Origin {
        Origin {
            scenario: "name = 'x'".into(),
            machine: Machine::here(),
            ..Origin::default()
        }
    }

    #[test]
    fn half_a_line_is_as_if_it_had_not_been_written() {
        let dir = tempfile::tempdir().expect("folder");
        let mut journal = Journal::begin(dir.path(), &origin()).expect("begun");
        journal.keep(&turn(1), &11u32).expect("kept");
        journal.keep(&turn(2), &22u32).expect("kept");
        journal.was_fresh("file:a").expect("kept");
        drop(journal);
        let path = dir.path().join(NAME);
        let whole = std::fs::read(&path).expect("there");
        let first = whole.iter().position(|&b| b == b'\n').expect("a line") + 1;
        // Wherever it is cut, what is left is a whole number of turns, and it goes on.
        for cut in first..=whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("cut");
            let (mut journal, _) = Journal::resume(dir.path(), &Machine::here()).expect("goes on");
            let kept = journal.turns();
            assert!(kept <= 2, "{cut}");
            assert_eq!(journal.outcome(&turn(1)), Ok((kept > 0).then_some(11u32)));
            journal.keep(&turn(3), &33u32).expect("kept");
            drop(journal);
            let (journal, _) = Journal::resume(dir.path(), &Machine::here()).expect("goes on");
            assert_eq!(journal.turns(), kept + 1, "{cut}");
            assert_eq!(journal.has_filled("file:a"), cut == whole.len());
        }
    }

    #[test]
    fn what_is_unfinished_is_not_thrown_away_and_what_has_ended_does_not_go_on() {
        let dir = tempfile::tempdir().expect("folder");
        let here = Machine::here();
        let begin = || Journal::begin(dir.path(), &origin());
        let mut journal = begin().expect("begun");
        let error = begin().expect_err("it goes on");
        assert!(error.to_string().contains("another process"), "{error}");
        journal.keep(&turn(1), &1).expect("kept");
        drop(journal);
        let error = begin().expect_err("unfinished");
        assert!(
            error.exit_code() == 2 && error.to_string().contains("--resume"),
            "{error}"
        );
        let other = Machine {
            cores: here.cores + 1,
            ..here.clone()
        };
        let error = Journal::resume(dir.path(), &other).expect_err("another machine");
        assert!(error.to_string().contains("cores differs"), "{error}");
        let (mut journal, of) = Journal::resume(dir.path(), &here).expect("goes on");
        assert_eq!(of.scenario, "name = 'x'");
        journal.end().expect("ended");
        drop(journal);
        let error = Journal::resume(dir.path(), &here).expect_err("ended");
        assert!(error.to_string().contains("reached its end"), "{error}");
        // What has ended may be replaced where no result is, or none that is whole; a result is not.
        begin().expect("no result");
        let result = |text: &str| {
            std::fs::write(dir.path().join("result.json"), text).expect("written");
        };
        result(r#"{"schema":"ashlar-result-2","kind":"scan","partial":true}"#);
        begin().expect("a part of one");
        Journal::refuse_used(dir.path()).expect("a part of one");
        for (text, what) in [
            (
                r#"{"schema":"ashlar-result-2","kind":"scan"}"#,
                "of `lab scan`",
            ),
            (
                r#"{"schema":"ashlar-oltp-1"}"#,
                "of `lab oltp` (its `--append`",
            ),
            ("not ours", "result.json"),
        ] {
            result(text);
            for refused in [begin().map(drop), Journal::refuse_used(dir.path())] {
                let error = refused.expect_err(text);
                let said = error.to_string();
                assert!(
                    error.exit_code() == 2 && said.contains(what) && said.contains("--out"),
                    "{error}"
                );
            }
            let kept = std::fs::read_to_string(dir.path().join("result.json"));
            assert_eq!(kept.expect("there"), text);
        }
    }
}
