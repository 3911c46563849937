//! Which configuration is measured in which cell, in which order, and carrying that out: the same for devices and
//! for databases.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::journal::{Journal, Turn};
use crate::{LabError, Progress};

/// What is measured, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub configurations: usize,
    /// What each of them is asked.
    pub cells: Vec<Asked>,
    /// What changes more slowly.
    pub nest: Nest,
    /// Seed of the order in which configurations are measured.
    pub seed: u64,
}

/// What a configuration is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The cell: its name in journals.
    pub cell: String,
    /// How often.
    pub repeats: u32,
}

impl Asked {
    /// Cells that are all measured equally often.
    pub fn all<T: ToString>(cells: &[T], repeats: u32) -> Vec<Self> {
        let asked = |cell: &T| Self {
            cell: cell.to_string(),
            repeats,
        };
        cells.iter().map(asked).collect()
    }
}

/// In what order cells and repeats follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nest {
    /// All repeats of a cell, then the next cell: what a cell's writes settled stays so.
    CellByCell,
    /// All cells, then the next repeat.
    RepeatByRepeat,
}

impl Schedule {
    /// All turns. Configurations are neighbours, in an order that is drawn anew for each repeat of a cell: a drift of
    /// the machine, or what the one before leaves behind, favours none.
    pub fn turns(&self) -> Vec<Turn> {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let mut order: Vec<usize> = (0..self.configurations).collect();
        let mut turns = Vec::new();
        let mut neighbours = |asked: &Asked, repeat| {
            rng.shuffle(&mut order);
            turns.extend(order.iter().map(|&configuration| Turn {
                configuration,
                cell: asked.cell.clone(),
                repeat,
            }));
        };
        match self.nest {
            Nest::CellByCell => {
                for asked in &self.cells {
                    (1..=asked.repeats).for_each(|repeat| neighbours(asked, repeat));
                }
            }
            Nest::RepeatByRepeat => {
                let most = self.cells.iter().map(|asked| asked.repeats).max();
                for repeat in 1..=most.unwrap_or(0) {
                    let asked = self.cells.iter().filter(|asked| asked.repeats >= repeat);
                    asked.for_each(|asked| neighbours(asked, repeat));
                }
            }
        }
        turns
    }
}

/// Something that is measured turn by turn.
pub trait Workload {
    /// What a turn gives.
    type Outcome: Serialize + DeserializeOwned;

    /// A turn in words.
    fn name(&self, turn: &Turn) -> String;

    /// Measures a turn.
    ///
    /// # Errors
    /// It could not be measured, which ends the run.
    fn measure(&mut self, turn: &Turn) -> Result<Measurement<Self::Outcome>, LabError>;

    /// Takes in what a turn has given, just now or before the run went on.
    ///
    /// # Errors
    /// It ends the run.
    fn take(&mut self, turn: &Turn, outcome: Self::Outcome) -> Result<(), LabError>;
}

/// What came of measuring a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measurement<T> {
    /// What was asked for, and in a few words.
    Whole(T, String),
    /// A part of it: it is told in the result, ends the run, and is measured again if that goes on.
    Part(T),
    /// Nothing, for this reason, which the result gives; the others are measured.
    Failed(String),
}

/// Measures all turns that the journal does not have, and keeps each as soon as it was measured.
///
/// # Errors
/// What ends the run; what was taken in until then is right.
pub fn carry_out<W: Workload>(
    schedule: &Schedule,
    workload: &mut W,
    journal: &mut Journal,
    progress: &Progress,
) -> Result<(), LabError> {
    let turns = schedule.turns();
    progress.start(turns.len() as u64);
    let mut missing = Vec::new();
    for turn in turns {
        match journal.outcome(&turn)? {
            Some(outcome) => workload.take(&turn, outcome)?,
            None => missing.push(turn),
        }
    }
    if journal.turns() > 0 {
        progress.have(journal.turns() as u64);
    }
    for turn in missing {
        progress.go_on()?;
        let what = workload.name(&turn);
        progress.doing(&what);
        match workload.measure(&turn)? {
            Measurement::Whole(outcome, words) => {
                journal.keep(&turn, &outcome)?;
                workload.take(&turn, outcome)?;
                progress.step(&format!("{what}: {words}"));
            }
            Measurement::Part(outcome) => {
                workload.take(&turn, outcome)?;
                progress.go_on()?;
                return Ok(());
            }
            Measurement::Failed(why) => progress.step(&format!("{what}: {why}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;
    use crate::journal::Origin;

    fn schedule(nest: Nest) -> Schedule {
        Schedule {
            configurations: 3,
            cells: Asked::all(&["a", "b"], 4),
            nest,
            seed: 5,
        }
    }

    #[test]
    fn neighbours_differ_in_the_configuration_and_their_order_is_drawn() {
        for nest in [Nest::CellByCell, Nest::RepeatByRepeat] {
            let turns = schedule(nest).turns();
            assert_eq!(turns, schedule(nest).turns(), "the same seed");
            assert_eq!(turns.len(), 24);
            let mut orders = std::collections::HashSet::new();
            for three in turns.chunks(3) {
                assert!(
                    three
                        .iter()
                        .all(|t| (&t.cell, t.repeat) == (&three[0].cell, three[0].repeat))
                );
                let order: Vec<usize> = three.iter().map(|turn| turn.configuration).collect();
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, [0, 1, 2]);
                orders.insert(order);
            }
            assert!(orders.len() > 2, "{orders:?}");
            let second = &turns[3];
            let expected = match nest {
                Nest::CellByCell => ("a", 2),
                Nest::RepeatByRepeat => ("b", 1),
            };
            assert_eq!((&*second.cell, second.repeat), expected);
        }
    }

    #[test]
    fn a_cell_is_measured_as_often_as_it_is_asked_to_be() {
        for nest in [Nest::CellByCell, Nest::RepeatByRepeat] {
            let mut schedule = schedule(nest);
            schedule.cells[1].repeats = 2;
            let count = |cell: &str| schedule.turns().iter().filter(|t| t.cell == cell).count();
            assert_eq!((count("a"), count("b")), (12, 6));
        }
    }

    /// Counts, and is killed after some turns.
    struct Counting {
        taken: Vec<(Turn, u32)>,
        measured: u32,
        ends_after: u32,
    }

    impl Workload for Counting {
        type Outcome = u32;

        fn name(&self, turn: &Turn) -> String {
            format!("{turn:?}")
        }

        fn measure(&mut self, _: &Turn) -> Result<Measurement<u32>, LabError> {
            if self.measured == self.ends_after {
                return Err(LabError::environment("killed"));
            }
            self.measured += 1;
            Ok(Measurement::Whole(self.measured, String::new()))
        }

        fn take(&mut self, turn: &Turn, outcome: u32) -> Result<(), LabError> {
            self.taken.push((turn.clone(), outcome));
            Ok(())
        }
    }

    #[test]
    fn a_run_that_went_on_has_every_turn_once() {
        let schedule = schedule(Nest::CellByCell);
        for killed_after in 1..24 {
            let dir = tempfile::tempdir().expect("folder");
            let origin = Origin {
                machine: Machine::here(),
                ..Origin::default()
            };
            let run = |mut journal: Journal, ends_after| {
                let mut counting = Counting {
                    taken: Vec::new(),
                    measured: 0,
                    ends_after,
                };
                let quiet = Progress::silent();
                let ran = carry_out(&schedule, &mut counting, &mut journal, &quiet);
                (ran, counting)
            };
            let journal = Journal::begin(dir.path(), &origin).expect("begun");
            let (ran, _) = run(journal, killed_after);
            assert!(ran.is_err());
            let (journal, _) = Journal::resume(dir.path(), &origin.machine).expect("goes on");
            let (ran, second) = run(journal, 100);
            assert_eq!((ran, second.measured), (Ok(()), 24 - killed_after));
            let mut taken: Vec<Turn> = second.taken.into_iter().map(|(turn, _)| turn).collect();
            let mut all = schedule.turns();
            let key = |turn: &Turn| (turn.configuration, turn.cell.clone(), turn.repeat);
            taken.sort_by_key(key);
            all.sort_by_key(key);
            assert_eq!(taken, all, "every turn once");
        }
    }
}
