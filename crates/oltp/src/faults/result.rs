//! What came of all faults: `result.json`.

use std::collections::BTreeMap;

use ashlar_lab::short::Short;
use ashlar_lab::stats::median;
use ashlar_lab::{Head, Kind, LabError, ResultFile};
use serde::{Deserialize, Serialize};

use super::FaultsPlan;
use super::epochs::Epoch;
use super::kinds::{Fault, Limit, Topology};
use crate::check::Consistency;
use crate::database::Description;
use crate::ledger::Count;

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultsResult {
    /// What all results have.
    #[serde(flatten)]
    pub head: Head,
    /// What the faults were done to.
    pub systems: Vec<Described>,
    pub warehouses: i32,
    pub users: usize,
    /// Transactions a second that were due, by all clients together.
    pub rate: f64,
    /// Seconds for which all of etcd is down, where that is a fault; absent in old results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_s: Option<f64>,
    /// What the medians of gaps were to be at most, if that was said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_most: Vec<Limit>,
    /// Seed of data and inputs.
    pub seed: u64,
    /// The longest gap of all rounds, milliseconds.
    #[serde(default)]
    pub gap_ms: u64,
    /// New orders, payments and deliveries of all rounds that were acknowledged and are not there.
    #[serde(default)]
    pub lost: u64,
    /// Bytes that copies were given again, of all rounds.
    #[serde(default)]
    pub resynced_bytes: u64,
    /// Blocks of the database that were read in the end, and match their checksums.
    #[serde(default)]
    pub verified_blocks: u64,
    /// One for each topology and fault.
    pub cells: Vec<Cell>,
}

/// What faults were done to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Described {
    /// How the database is kept up.
    pub topology: Topology,
    /// In words.
    pub told: String,
    /// The database, through the listener.
    pub database: Description,
}

/// All rounds of a fault in a topology.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// How the database is kept up.
    pub topology: Topology,
    /// What happened to it.
    pub fault: Fault,
    /// Each time.
    pub rounds: Vec<Round>,
}

/// A fault under load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// From 1.
    pub round: u32,
    /// The primary before.
    pub from: String,
    /// The primary at the end, if there was one.
    pub to: Option<String>,
    /// Whether these are two nodes.
    pub moved: bool,
    /// Whether clients were served as before in the end.
    pub served_again: bool,
    /// Whether they were not until what was broken was mended.
    #[serde(default, skip_serializing_if = "is_no")]
    pub outlasted: bool,
    /// Seconds from the first failure after the fault to the first transaction begun after it that succeeded, or to the
    /// end of the load; the silence if that is longer, and longer than a second; else 0 if nothing failed.
    pub gap_s: f64,
    /// The longest time without any acknowledgement, up to the end of the load, seconds.
    pub silence_s: f64,
    /// The longest wait of a transaction after the fault, from when it was due or, if that was before, from the fault;
    /// seconds.
    pub longest_wait_s: f64,
    /// Attempts that failed, logins among them.
    pub failures: usize,
    /// How often each text.
    pub texts: BTreeMap<String, u64>,
    /// New orders, payments and deliveries that were acknowledged.
    pub acknowledged: usize,
    /// Of these, how many are not there as they were acknowledged.
    pub missing: usize,
    /// Both, by kind of transaction.
    pub kinds: BTreeMap<String, Count>,
    /// The first that are missing.
    pub examples: Vec<String>,
    /// Transactions and writes of our own that a primary took after a later one had acknowledged something.
    pub stale_acknowledged: usize,
    /// All that was acknowledged, by the epoch in which it was taken; absent in old results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<Epoch>,
    /// Seconds for which two servers said at once that they take writes.
    pub both_primaries_s: f64,
    /// Writes of our own, past the listener, that a server acknowledged.
    pub probes: usize,
    /// Of these, how many are not there.
    pub probes_missing: usize,
    /// Bytes that a copy of the volume lacked after the fault, and was given again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resynced_bytes: Option<u64>,
    /// Seconds from when mending began until all was found to be as before; looked for when the clients had ended, so
    /// it is no less than they went on for. Absent in old results, and if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_after_s: Option<f64>,
    /// Why the system was not as before at the end, long after what was broken was mended; it was made anew for the
    /// next round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<String>,
    /// Why what was acknowledged could not be looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaudited: Option<String>,
    /// Conditions 1 to 12 at the end.
    pub consistency: Consistency,
}

impl Round {
    /// What is not as it must be; nothing if all is.
    pub fn complaint(&self) -> Option<String> {
        let mut found = Vec::new();
        if !self.served_again {
            found.push("clients were not served again".to_owned());
        }
        if self.outlasted {
            let text = "clients were not served before what was broken was mended";
            found.push(text.to_owned());
        }
        if self.missing > 0 {
            let named = self.examples.join(", ");
            found.push(format!(
                "{} of {} acknowledged are missing: {named}",
                self.missing, self.acknowledged
            ));
        }
        if self.stale_acknowledged > 0 {
            found.push(format!(
                "{} were acknowledged by an older primary beside a newer one",
                self.stale_acknowledged
            ));
        }
        for one in self.epochs.iter().filter(|one| one.nodes.len() > 1) {
            let nodes = one.nodes.join(" and ");
            found.push(format!("in epoch {} nodes {nodes} took writes", one.epoch));
        }
        if self.probes_missing > 0 {
            found.push(format!(
                "{} of {} probes are missing: two servers took writes",
                self.probes_missing, self.probes
            ));
        }
        found.extend(self.consistency.complaint());
        found.extend(self.not_ready.clone());
        let unaudited = self.unaudited.as_ref();
        found.extend(unaudited.map(|why| format!("what it holds could not be looked at: {why}")));
        (!found.is_empty()).then(|| found.join("; "))
    }

    /// In a line.
    pub fn text(&self) -> String {
        let to = self.to.as_deref().unwrap_or("none");
        let lost = self.complaint().unwrap_or_else(|| "nothing lost".into());
        let whole = self.whole_after_s;
        let whole = whole.map_or(String::new(), |time| format!("whole after {time:.1} s, "));
        format!(
            "{} -> {to}, gap {:.2} s, silence {:.2} s, longest wait {:.2} s, {whole}{} failures, {} acknowledged; {lost}",
            self.from,
            self.gap_s,
            self.silence_s,
            self.longest_wait_s,
            self.failures,
            self.acknowledged
        )
    }
}

fn is_no(said: &bool) -> bool {
    !said
}

/// Smallest, median and largest of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

impl Cell {
    /// What is not as it must be in a round of this fault.
    fn complaint(&self, round: &Round) -> Option<String> {
        let moved = self.fault == Fault::EtcdDown && round.moved;
        let moved = moved.then(|| "the primary moved, while nothing but etcd was down".to_owned());
        let both = self.has_both(round).then(|| {
            let seconds = round.both_primaries_s;
            format!("two servers took writes at once for {seconds} s")
        });
        let own = moved.into_iter().chain(both);
        let found: Vec<String> = own.chain(round.complaint()).collect();
        (!found.is_empty()).then(|| found.join("; "))
    }

    /// Two servers of one volume had writes acknowledged at once. Of a group, missing probes tell: what a primary of the
    /// past took is there if it was replicated.
    fn has_both(&self, round: &Round) -> bool {
        self.topology == Topology::Fci && round.both_primaries_s > 0.0
    }

    /// Rounds of which that is so.
    pub(crate) fn both(&self) -> usize {
        self.sum(|round| usize::from(self.has_both(round)))
    }

    pub(crate) fn spread(&self, figure: impl Fn(&Round) -> f64) -> Spread {
        let mut values: Vec<f64> = self.rounds.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        Spread {
            least: values.first().copied().unwrap_or_default(),
            median: if values.is_empty() {
                0.0
            } else {
                median(&values)
            },
            most: values.last().copied().unwrap_or_default(),
        }
    }

    pub(crate) fn sum(&self, figure: impl Fn(&Round) -> usize) -> usize {
        self.rounds.iter().map(figure).sum()
    }
}

impl ResultFile for FaultsResult {
    const KIND: Kind = Kind::Faults;

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
        crate::report::short::of_faults(self)
    }

    fn html(&self) -> Result<String, LabError> {
        Ok(crate::report::of_faults(self))
    }

    fn complaint(&self) -> Option<String> {
        self.what_is_wrong()
    }
}

impl FaultsResult {
    pub(super) fn begun(plan: &FaultsPlan) -> Self {
        Self {
            head: Head::new(Kind::Faults, "Faults under TPROC-C"),
            warehouses: plan.shape.warehouses,
            users: plan.users,
            rate: plan.rate,
            hold_s: Some(plan.hold.as_secs_f64()),
            at_most: plan.limits.clone(),
            seed: plan.seed,
            ..Self::default()
        }
    }

    /// What there is of one that goes on, marked as such.
    pub(super) fn so_far(&self) -> Self {
        let mut result = self.clone();
        result.head.unfinished();
        result
    }

    pub(super) fn describe(&mut self, system: Described) {
        let mut known = self.systems.iter();
        if known.all(|one| one.topology != system.topology) {
            self.systems.push(system);
        }
    }

    pub(super) fn add(&mut self, topology: Topology, fault: Fault, round: Round) {
        let gap_ms = (round.gap_s * 1000.0).round() as u64;
        self.gap_ms = self.gap_ms.max(gap_ms);
        self.lost += round.missing as u64;
        self.resynced_bytes += round.resynced_bytes.unwrap_or(0);
        let same = |cell: &&mut Cell| cell.topology == topology && cell.fault == fault;
        match self.cells.iter_mut().find(same) {
            Some(cell) => cell.rounds.push(round),
            None => self.cells.push(Cell {
                topology,
                fault,
                rounds: vec![round],
            }),
        }
    }

    /// What is not as it must be; nothing if all is.
    fn what_is_wrong(&self) -> Option<String> {
        let mut found = Vec::new();
        for cell in &self.cells {
            for round in &cell.rounds {
                if let Some(text) = cell.complaint(round) {
                    found.push(format!(
                        "{}, {}, round {}: {text}",
                        cell.topology, cell.fault, round.round
                    ));
                }
            }
        }
        for (cell, limit) in self.too_slow() {
            let gap = cell.spread(|round| round.gap_s).median;
            found.push(format!(
                "{}, {}: clients were not served for {gap:.2} s (median), and {} s were to be the most",
                cell.topology, cell.fault, limit.gap_s
            ));
        }
        found.extend(self.head.failed_checks());
        (!found.is_empty()).then(|| found.join("\n"))
    }

    /// Faults whose gaps are longer than was said.
    fn too_slow(&self) -> impl Iterator<Item = (&Cell, &Limit)> {
        let of = |cell: &Cell| self.at_most.iter().find(|one| one.fault == cell.fault);
        let limited = self
            .cells
            .iter()
            .filter_map(move |cell| Some((cell, of(cell)?)));
        limited.filter(|(cell, limit)| cell.spread(|round| round.gap_s).median > limit.gap_s)
    }

    /// A fault in words, with how long it lasts where that was said.
    pub(crate) fn named(&self, fault: Fault) -> String {
        match self.hold_s.filter(|_| fault == Fault::EtcdDown) {
            Some(hold) => format!("{fault}, for {hold} s"),
            None => fault.to_string(),
        }
    }

    /// A line for each topology and fault.
    fn table(&self) -> String {
        let mut text = format!(
            "{:<11} {:<14} {:>6} {:>22} {:>22} {:>9} {:>5}\n",
            "topology", "fault", "rounds", "gap s (least..most)", "longest wait s", "acked", "lost"
        );
        for cell in &self.cells {
            let shown = |spread: Spread| {
                format!(
                    "{:.2} ({:.2}..{:.2})",
                    spread.median, spread.least, spread.most
                )
            };
            text.push_str(&format!(
                "{:<11} {:<14} {:>6} {:>22} {:>22} {:>9} {:>5}\n",
                cell.topology.word(),
                cell.fault.word(),
                cell.rounds.len(),
                shown(cell.spread(|round| round.gap_s)),
                shown(cell.spread(|round| round.longest_wait_s)),
                cell.sum(|round| round.acknowledged),
                cell.sum(|round| round.missing),
            ));
        }
        if self.verified_blocks > 0 {
            let acknowledged: usize = self
                .cells
                .iter()
                .map(|cell| cell.sum(|round| round.acknowledged))
                .sum();
            text.push_str(&format!(
                "longest gap {:.2} s; {} of {acknowledged} acknowledged lost; {:.1} MB resynced; {} blocks read in the end \
                 match their checksums\n",
                self.gap_ms as f64 / 1e3,
                self.lost,
                self.resynced_bytes as f64 / 1e6,
                self.verified_blocks
            ));
        }
        for problem in &self.head.problems {
            text.push_str(&format!("{problem}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Round {
        Round {
            round: 1,
            from: "a".into(),
            served_again: true,
            acknowledged: 10,
            ..Round::default()
        }
    }

    #[test]
    fn each_kind_of_harm_is_a_complaint() {
        assert_eq!(good().complaint(), None);
        type Harm = fn(&mut Round);
        let harm: [(&str, Harm); 7] = [
            ("could not be looked at: invalid page", |round| {
                round.unaudited = Some("invalid page".into())
            }),
            ("not ready", |round| {
                round.not_ready = Some("it is not ready".into())
            }),
            ("not served", |round| round.served_again = false),
            ("missing", |round| round.missing = 1),
            ("older primary", |round| round.stale_acknowledged = 1),
            ("in epoch 3 nodes a and b", |round| {
                round.epochs = vec![Epoch {
                    epoch: 3,
                    nodes: vec!["a".into(), "b".into()],
                    ..Epoch::default()
                }];
            }),
            ("two servers", |round| round.probes_missing = 1),
        ];
        for (word, harm) in harm {
            let mut round = good();
            harm(&mut round);
            let text = round.complaint().expect("a complaint");
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn a_primary_that_moves_while_nothing_but_etcd_is_down_is_a_complaint() {
        let moved = Round {
            moved: true,
            ..good()
        };
        for (fault, is_wrong) in [(Fault::EtcdDown, true), (Fault::KillNode, false)] {
            let mut result = FaultsResult::default();
            result.add(Topology::Fci, fault, moved.clone());
            assert_eq!(result.what_is_wrong().is_some(), is_wrong, "{fault}");
        }
    }

    #[test]
    fn two_servers_of_one_volume_that_take_writes_at_once_are_a_complaint() {
        let both = Round {
            both_primaries_s: 0.2,
            ..good()
        };
        for (topology, is_wrong) in [(Topology::Fci, true), (Topology::Group, false)] {
            let mut result = FaultsResult::default();
            result.add(topology, Fault::CutNetwork, both.clone());
            let told = result.what_is_wrong();
            assert_eq!(told.is_some(), is_wrong, "{topology}: {told:?}");
            assert!(told.is_none_or(|told| told.contains("at once")));
        }
    }

    #[test]
    fn gaps_that_are_longer_than_was_said_are_a_complaint() {
        let mut result = FaultsResult {
            at_most: vec!["move=1.5".parse().expect("a limit")],
            ..FaultsResult::default()
        };
        for gap_s in [1.0, 9.0, 1.4] {
            for fault in [Fault::Move, Fault::KillNode] {
                result.add(Topology::Fci, fault, Round { gap_s, ..good() });
            }
        }
        assert_eq!(result.what_is_wrong(), None, "the median counts");
        let slow = Round {
            gap_s: 1.8,
            ..good()
        };
        result.add(Topology::Fci, Fault::Move, slow.clone());
        result.add(Topology::Fci, Fault::Move, slow);
        let told = result.what_is_wrong().expect("too long");
        assert_eq!(
            told,
            "fci, move: clients were not served for 1.80 s (median), and 1.5 s were to be the most"
        );
    }

    #[test]
    fn rounds_of_the_same_kind_are_a_cell() {
        let mut result = FaultsResult {
            hold_s: Some(20.0),
            ..FaultsResult::default()
        };
        assert_eq!(result.named(Fault::EtcdDown), "etcd-down, for 20 s");
        assert_eq!(result.named(Fault::Move), "move");
        for (gap_s, fault) in [
            (3.0, Fault::Move),
            (1.0, Fault::KillNode),
            (1.0, Fault::Move),
            (2.0, Fault::Move),
        ] {
            result.add(Topology::Group, fault, Round { gap_s, ..good() });
        }
        assert_eq!(result.cells.len(), 2);
        let spread = result.cells[0].spread(|round| round.gap_s);
        let wanted = Spread {
            least: 1.0,
            median: 2.0,
            most: 3.0,
        };
        assert_eq!(spread, wanted);
    }
}
