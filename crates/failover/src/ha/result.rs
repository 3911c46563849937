//! What `lab ha` writes: `result.json`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use ashlar_lab::result::{Check, VerifyResult};
use ashlar_lab::short::Short;
use ashlar_lab::{Endured, Example, Found, Head, Kind, LabError, ResultFile};
use serde::Serialize;

use super::is_clean;
use super::kept::Kept;
use super::round::Round;

/// More rounds than these are shown by kind.
const MOST_ROWS: usize = 40;

/// What came of all rounds. `gap_ms`, `lost`, `resynced_bytes` and `verified_blocks` are a contract.
#[derive(Clone, Debug, Serialize)]
pub struct HaResult {
    /// What all results have: of the problems the first.
    #[serde(flatten)]
    head: Head,
    /// The longest time in which the client had no answer.
    gap_ms: u64,
    /// Blocks that do not hold what was acknowledged.
    lost: u64,
    /// Blocks that hold less than what was read of them before.
    reverted: u64,
    /// Bytes that copies were given again, as owners count them, of all rounds.
    resynced_bytes: u64,
    /// Blocks that were read and compared, under load and at the end.
    verified_blocks: u64,
    /// Whether all copies were in sync at the end.
    in_sync: bool,
    /// Accesses that the client had an answer to, and those that ended with an error.
    answers: u64,
    errors: u64,
    /// The slowest access, in milliseconds.
    slowest_ms: u64,
    rounds: Vec<Round>,
    examples: Vec<Example>,
    /// Where nodes' logs are kept, if something is wrong.
    #[serde(skip)]
    pub(super) logs: Option<PathBuf>,
    #[serde(skip)]
    is_clean: bool,
    #[serde(skip)]
    unreadable: u64,
}

/// All rounds of one fault.
struct KindOfFault<'a> {
    fault: &'a str,
    /// What the time without an answer is meant to be.
    meant: &'a str,
    /// Times without an answer in milliseconds, ascending.
    gaps: Vec<u64>,
}

impl KindOfFault<'_> {
    fn median(&self) -> u64 {
        self.gaps.get(self.gaps.len() / 2).copied().unwrap_or(0)
    }

    fn longest(&self) -> u64 {
        self.gaps.last().copied().unwrap_or(0)
    }

    fn short(&self) -> Short {
        let (times, meant) = (self.gaps.len(), self.meant);
        Short::alone(
            format!("How long is there no answer: {}", self.fault),
            format!("{times} rounds"),
            format!(
                "{} ms, at most {}; meant: {meant}",
                self.median(),
                self.longest()
            ),
        )
    }
}

impl HaResult {
    pub(super) fn of(kept: &Kept<'_>, loads: &[(Endured, VerifyResult)], in_sync: bool) -> Self {
        let mut result = Self::with(kept.rounds.clone(), loads, in_sync);
        result.add(kept.found_before);
        if kept.before > 0 {
            result.head.flags.push(format!(
                "the first {} faults were before an interruption, on another cluster: blocks were checked when they \
                 were read, and not read back; answers and blocks verified are of the others",
                kept.before
            ));
        }
        result
    }

    /// Of a run that this has ended: it can go on.
    pub(super) fn broken_off(kept: &Kept<'_>, why: &LabError) -> Self {
        let mut result = Self::with(kept.rounds.clone(), &[], false);
        result.add(kept.all_found());
        let failed = |name: &str, text: String| Check {
            name: name.to_owned(),
            passed: false,
            text,
        };
        if let LabError::Check(text) = why {
            result.head.checks.push(failed("faults", text.clone()));
        }
        let found = result.found();
        if !found.is_empty() {
            result.head.checks.push(failed("blocks", found.join("; ")));
        }
        result.head.broke_off(why.to_string());
        result
    }

    /// Logs that cannot be kept are no reason to leave a cluster there, and what was found untold.
    pub(super) fn keep_logs(&mut self, out: &Path, keep: impl Fn(&Path) -> Result<(), LabError>) {
        match keep(out) {
            Ok(()) => self.logs = Some(out.to_owned()),
            Err(error) => self.head.problems.push(format!("the nodes' logs: {error}")),
        }
    }

    /// What loads have found of which nothing else is known.
    fn add(&mut self, found: Found) {
        self.lost += found.lost;
        self.reverted += found.reverted;
        self.errors += found.errors;
    }

    fn with(rounds: Vec<Round>, loads: &[(Endured, VerifyResult)], in_sync: bool) -> Self {
        let sum = |of: &dyn Fn(&Endured, &VerifyResult) -> u64| {
            let each = loads
                .iter()
                .map(|(endured, verified)| of(endured, verified));
            each.sum::<u64>()
        };
        let slowest = loads.iter().map(|(endured, _)| endured.slowest).max();
        let slowest = slowest.unwrap_or_default().as_millis();
        let problems = loads
            .iter()
            .flat_map(|(endured, _)| endured.problems.clone());
        let examples = loads
            .iter()
            .flat_map(|(_, verified)| verified.examples.clone());
        Self {
            head: Head {
                problems: problems.collect(),
                ..Head::new(Kind::Ha, "A replicated volume on nodes that fail")
            },
            gap_ms: rounds.iter().map(|round| round.gap_ms).max().unwrap_or(0),
            lost: sum(&|_, one| one.failures.total() - one.failures.stale),
            reverted: sum(&|_, one| one.failures.stale),
            resynced_bytes: rounds.iter().map(|round| round.resynced_bytes).sum(),
            verified_blocks: sum(&|_, one| one.blocks_checked + one.blocks_read_back),
            in_sync,
            answers: sum(&|endured, _| endured.answers),
            errors: sum(&|endured, _| endured.errors),
            slowest_ms: u64::try_from(slowest).unwrap_or(u64::MAX),
            rounds,
            examples: examples.collect(),
            logs: None,
            is_clean: loads.iter().all(|(endured, _)| is_clean(endured)),
            unreadable: sum(&|_, one| one.unreadable),
        }
    }

    /// What is wrong with blocks and accesses.
    fn found(&self) -> Vec<String> {
        let mut all = Vec::new();
        let mut add = |count: u64, what: &str| {
            if count > 0 {
                all.push(format!("{count} {what}"));
            }
        };
        add(self.lost, "blocks do not hold what was acknowledged");
        add(self.reverted, "blocks reverted after they were read");
        add(self.unreadable, "accesses could not be read back");
        add(self.errors, "accesses failed");
        all
    }

    fn what_is_wrong(&self) -> Option<String> {
        let mut all = self.found();
        if !self.in_sync {
            all.push("the copies are not in sync".into());
        }
        if all.is_empty() && !self.is_clean {
            all.extend(self.head.problems.first().cloned());
        }
        let first = self.examples.first();
        all.extend(first.map(|one| {
            let (lba, expected, found) = (one.lba, &one.expected, &one.found);
            format!("block {lba}: {expected} was expected, {found} found")
        }));
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn each(&self) -> String {
        let mut text = String::from(
            "| fault | node | no answer, ms | meant | in sync after, ms | copied, bytes |\n|-|-|-:|-|-:|-:|\n",
        );
        for round in &self.rounds {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", round.row());
        }
        text
    }

    /// A row for each kind of fault.
    fn by_kind(&self) -> String {
        let mut text = String::from(
            "| fault | times | no answer, ms: median | longest | meant |\n|-|-:|-:|-:|-|\n",
        );
        for of in self.kinds() {
            let (kind, times, meant) = (of.fault, of.gaps.len(), of.meant);
            let (median, longest) = (of.median(), of.longest());
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {kind} | {times} | {median} | {longest} | {meant} |"
            );
        }
        text
    }

    fn kinds(&self) -> Vec<KindOfFault<'_>> {
        let mut kinds: BTreeMap<&str, KindOfFault<'_>> = BTreeMap::new();
        for round in &self.rounds {
            let empty = || KindOfFault {
                fault: &round.fault,
                meant: &round.budget,
                gaps: Vec::new(),
            };
            let of = kinds.entry(&round.fault).or_insert_with(empty);
            of.gaps.push(round.gap_ms);
        }
        let mut kinds: Vec<KindOfFault<'_>> = kinds.into_values().collect();
        kinds.iter_mut().for_each(|of| of.gaps.sort_unstable());
        kinds
    }

    fn table(&self) -> String {
        let mut text = match self.rounds.len() > MOST_ROWS {
            true => self.by_kind(),
            false => self.each(),
        };
        if self.head.partial {
            let _ = self.head.write_end(&mut text);
            return text;
        }
        let _ = writeln!(
            text,
            "\n{} accesses, {} blocks verified: {} lost, {} reverted, {} errors; the copies are {}in sync",
            self.answers,
            self.verified_blocks,
            self.lost,
            self.reverted,
            self.errors,
            if self.in_sync { "" } else { "not " }
        );
        text
    }
}

impl ResultFile for HaResult {
    const KIND: Kind = Kind::Ha;

    fn head(&self) -> &Head {
        &self.head
    }

    fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    fn text(&self) -> String {
        self.table()
    }

    fn short(&self) -> Vec<Short> {
        let mut all: Vec<Short> = self.kinds().iter().map(KindOfFault::short).collect();
        if self.head.partial {
            return all;
        }
        all.push(Short::alone(
            "Is what was acknowledged there?",
            "all rounds",
            format!(
                "{} lost, {} reverted, {} errors",
                self.lost, self.reverted, self.errors
            ),
        ));
        all
    }

    fn complaint(&self) -> Option<String> {
        let wrong = match self.head.partial {
            true => self.head.failed_checks(),
            false => self.what_is_wrong(),
        }?;
        Some(match &self.logs {
            Some(dir) => format!("{wrong}; the nodes' logs are in {}", dir.display()),
            None => wrong,
        })
    }
}

impl Round {
    fn row(&self) -> String {
        let Self {
            fault,
            gap_ms,
            resynced_bytes,
            ..
        } = self;
        let (node, budget, in_sync) = (&self.node, &self.budget, self.in_sync_ms);
        format!("| {fault} | {node} | {gap_ms} | {budget} | {in_sync} | {resynced_bytes} |")
    }
}

#[cfg(test)]
mod tests {
    use ashlar_lab::{Command, Journal, Origin, OwnFolder};

    use super::*;

    #[test]
    fn what_was_found_before_an_interruption_is_wrong_to_the_end() {
        let dir = OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        let origin = Origin::asked(Command::Ha, &1).expect("kept");
        let mut journal = Journal::begin(dir.path(), &origin).expect("begun");
        let mut kept = Kept::of(&mut journal).expect("empty");
        let interrupted = LabError::environment("interrupted");
        let clean = HaResult::broken_off(&kept, &interrupted);
        assert_eq!(clean.complaint(), None);
        for reverted in [1, 2] {
            let found = Found {
                reverted,
                ..Found::default()
            };
            kept.find(found).expect("kept");
        }
        let told = Some("2 blocks reverted after they were read".to_owned());
        let broken = HaResult::broken_off(&kept, &interrupted);
        let named = told.as_ref().map(|told| format!("blocks: {told}"));
        assert_eq!((broken.complaint(), broken.reverted), (named, 2));
        let (mut untold, file) = (broken.clone(), dir.path().join("journal.jsonl"));
        let make = |out: &Path| {
            std::fs::create_dir_all(out).map_err(|error| LabError::caused(out.display(), error))
        };
        untold.keep_logs(&file.join("out"), make);
        assert_eq!(untold.complaint(), broken.complaint());
        assert!(untold.head.problems[1].starts_with("the nodes' logs: "));
        drop(journal);
        let (mut journal, _) = Journal::resume(dir.path(), &origin.machine).expect("goes on");
        let kept = Kept::of(&mut journal).expect("readable");
        let whole = HaResult::of(&kept, &[], true);
        assert_eq!((whole.complaint(), whole.reverted), (told, 2));
    }
}
