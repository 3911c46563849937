//! TPROC-C on configurations that take turns under one load: users stay logged in everywhere and work where
//! it is their turn, for a second or so, and rest elsewhere. Whatever the machine is doing, neighbours meet
//! much the same of it, and what grows meanwhile grows for all.
//!
//! A block of turns goes through all configurations in an order that is drawn at random, and back. So a
//! steady drift is in all alike; and where two configurations do not differ, either is as likely to have the
//! better turns, block by block, whatever noise there is: what [`Ratio`] asks for holds by construction.

use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::stats::{Looks, Ratio};
use ashlar_lab::{Journal, LabError, Turn};

use super::file::{OltpSection, TurnsSection};
use super::keeper::Keeper;
use super::load::{Ready, dialect, open};
use super::result::{ConfigurationResult, ScenarioResult};
use super::{Stage, compared, told};
use crate::database::Database;
use crate::random::Rng;
use crate::remote::{At, Dialect, RemoteUsers};
use crate::result::{OltpResult, StepResult};
use crate::run::{Away, Elsewhere, RunPlan, Users, Window, begin, examine, ready, setting};
use crate::schema::Marker;
use crate::terminal::TerminalSetting;

/// The probability that the statements of a run, each for itself, are wrong, however often it looked.
const RISK: f64 = 0.01;
/// Seeds of orders are not those of anything else.
const ORDER: u64 = 0x7475_726e;

/// When a run looks whether it knows enough.
pub(super) fn looks(repeats: u32) -> Looks {
    Looks::up_to(repeats as usize, RISK)
}

/// Draws the orders of the blocks of a number of users.
pub(super) fn order_of(stage: &Stage<'_>, users: usize) -> Rng {
    Rng::stream(stage.file.measure.seed, &[ORDER, users as u64])
}

/// A place with users, who rest unless it is their turn.
struct Visited<'a> {
    pair: &'a Keeper,
    home: usize,
    database: Arc<dyn Database>,
    marker: Marker,
    plan: RunPlan,
    setting: TerminalSetting,
    speaks: Dialect,
    /// None of users that are at agents.
    all_users: Option<Users<'a>>,
}

impl Visited<'_> {
    /// What is told to agents, in a turn of this plan.
    fn elsewhere<'b>(
        &'b self,
        agents: &RemoteUsers<'_>,
        plan: &'b RunPlan,
    ) -> Result<Elsewhere<'b>, LabError> {
        let unheard = || LabError::environment("a server listens nowhere");
        let address = self.pair.listens().ok_or_else(unheard)?;
        Ok(Elsewhere {
            database: &self.database,
            plan,
            setting: self.setting,
            server: agents.server(address, self.speaks),
            at: At::All,
        })
    }
}

/// All places, and who works there.
struct Places<'a> {
    all: Vec<Visited<'a>>,
    agents: Option<&'a RemoteUsers<'a>>,
    /// Those that are at agents.
    away: Option<Away<'a>>,
}

impl Places<'_> {
    /// Users of a home work for a turn of a configuration, and rest.
    fn turn(&mut self, of: &Ready, settle: Duration) -> Result<Option<Window>, LabError> {
        let Some(place) = self.all.iter().position(|at| at.home == of.home) else {
            return Ok(None);
        };
        let at = &mut self.all[place];
        let (slow_down, time) = (of.plan.slow_down, of.plan.measure);
        if let Some(all_users) = &mut at.all_users {
            return all_users.measure_turn(slow_down, settle, time).map(Some);
        }
        let (Some(agents), Some(away)) = (self.agents, &self.away) else {
            return Ok(None);
        };
        let elsewhere = at.elsewhere(agents, &of.plan)?;
        away.turn(&elsewhere, place, settle).map(Some)
    }

    /// All stop.
    fn stop(&mut self) {
        self.away = None;
        for all_users in self.all.iter().filter_map(|at| at.all_users.as_ref()) {
            all_users.stop();
        }
    }
}

/// Runs it, for each number of users. What goes wrong is told in the result.
pub(super) fn run(
    stage: &Stage<'_>,
    oltp: &OltpSection,
    (pairs, all): (&[(Keeper, u64)], &[Ready]),
    (result, journal): (&mut ScenarioResult, &mut Journal),
) -> Result<(), LabError> {
    let Some(turns) = &stage.file.turns else {
        return Ok(());
    };
    let blocks = stage.file.measure.repeat as usize;
    stage.progress.start((oltp.users.len() * blocks) as u64);
    for &users in &oltp.users {
        let what = format!("{users} users");
        stage.progress.doing(&what);
        let mut kept = Kept::of(journal, users)?;
        for block in &kept.blocks {
            add(result, block.clone());
        }
        if let Some(last) = kept.checked.take() {
            replace_last(result, last);
            continue;
        }
        let mut all_users = Turns {
            stage,
            turns,
            all,
            users,
            journal,
        };
        let ran = visit(stage, oltp, (pairs, all), users, result)
            .and_then(|mut places| all_users.take(&mut places, kept.blocks.len() as u32, result));
        if let Err(error) = &ran {
            told(result, &what, error);
        }
        let is_part = last(result).flatten().any(|step| step.partial);
        if ran.is_err() || is_part || result.head.partial {
            break;
        }
    }
    stage.progress.finish();
    Ok(())
}

/// All places put back and started, and users logged in, who have worked for the ramp and rest.
fn visit<'a>(
    stage: &Stage<'a>,
    oltp: &OltpSection,
    (pairs, all): (&'a [(Keeper, u64)], &[Ready]),
    users: usize,
    result: &mut ScenarioResult,
) -> Result<Places<'a>, LabError> {
    let mut places = Vec::new();
    for (home, (pair, _)) in pairs.iter().enumerate() {
        stage.progress.go_on()?;
        let here = || all.iter().enumerate().filter(|(_, of)| of.home == home);
        let Some((_, one)) = here().next() else {
            continue;
        };
        pair.restore(one.topology, &one.settings)?;
        let database = open(stage, pair, oltp)?;
        let mut marker = None;
        for (index, of) in here() {
            let run = match &mut result.configurations[index].oltp {
                Some(run) => run,
                empty => empty.insert(begin(database.as_ref(), &of.plan)?),
            };
            run.method.restored = true;
            run.method.in_turns = true;
            marker = Some(ready(database.as_ref(), &of.plan, run)?);
        }
        let Some(marker) = marker else { continue };
        let plan = RunPlan {
            slow_down: 0.0,
            ..one.plan.clone()
        };
        let setting = setting(&plan, &marker, users, 1);
        let all_users = match stage.clients {
            Some(_) => None,
            None => {
                let of = (&plan, &setting);
                let all_users = Users::log_in(&database, of, None, stage.progress)?;
                all_users.ramp(plan.ramp);
                all_users.rest();
                Some(all_users)
            }
        };
        places.push(Visited {
            pair,
            home,
            database,
            marker,
            plan,
            setting,
            speaks: dialect(oltp),
            all_users,
        });
    }
    let away = |agents: &'a RemoteUsers<'a>| {
        let all = places.iter().map(|at| at.elsewhere(agents, &at.plan));
        let all = all.collect::<Result<Vec<Elsewhere<'_>>, LabError>>()?;
        Away::log_in(&all, agents.clients(), stage.progress)
    };
    Ok(Places {
        away: stage.clients.map(away).transpose()?,
        agents: stage.clients,
        all: places,
    })
}

/// What a journal has of a number of users: runs with a step each, for every block, and the last steps as they were
/// after the check.
struct Kept {
    blocks: Vec<Vec<OltpResult>>,
    checked: Option<Vec<Option<StepResult>>>,
}

/// The block of a number of users; all configurations are in it.
pub(super) fn block_of(users: usize, block: u32) -> Turn {
    Turn {
        configuration: 0,
        cell: users.to_string(),
        repeat: block,
    }
}

fn check_of(users: usize) -> Turn {
    Turn {
        configuration: 0,
        cell: format!("{users}, checked"),
        repeat: 1,
    }
}

impl Kept {
    fn of(journal: &Journal, users: usize) -> Result<Self, LabError> {
        let mut blocks = Vec::new();
        while let Some(block) = journal.outcome(&block_of(users, blocks.len() as u32 + 1))? {
            blocks.push(block);
        }
        Ok(Self {
            blocks,
            checked: journal.outcome(&check_of(users))?,
        })
    }
}

fn add(result: &mut ScenarioResult, block: Vec<OltpResult>) {
    for (of, run) in result.configurations.iter_mut().zip(block) {
        of.add(run);
    }
}

/// The last step of every configuration.
fn last(result: &mut ScenarioResult) -> impl Iterator<Item = Option<&mut StepResult>> {
    let all = result.configurations.iter_mut();
    all.map(|of| of.oltp.as_mut().and_then(|run| run.steps.last_mut()))
}

fn replace_last(result: &mut ScenarioResult, steps: Vec<Option<StepResult>>) {
    for (of, step) in last(result).zip(steps) {
        if let (Some(of), Some(step)) = (of, step) {
            *of = step;
        }
    }
}

/// Turns of a number of users.
struct Turns<'a> {
    stage: &'a Stage<'a>,
    turns: &'a TurnsSection,
    all: &'a [Ready],
    users: usize,
    journal: &'a mut Journal,
}

impl Turns<'_> {
    /// Blocks of turns after `had` of them, until it is known well enough; then the check.
    fn take(
        &mut self,
        places: &mut Places<'_>,
        had: u32,
        result: &mut ScenarioResult,
    ) -> Result<(), LabError> {
        let most = self.stage.file.measure.repeat;
        let looks = looks(most);
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        let mut rng = order_of(self.stage, self.users);
        let mut failed = None;
        for block in 1..=most {
            rng.shuffle(&mut order);
            if block > had {
                let taken = self.block((places, &order), block, result);
                match taken {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
            let looks_now = looks.is_at(block as usize) && block >= had;
            if looks_now && is_known(self.stage, self.turns, &result.configurations, self.users) {
                break;
            }
        }
        places.stop();
        if let Some(error) = failed {
            return Err(error);
        }
        for at in &places.all {
            check(self.stage, at, self.all, result)?;
        }
        let steps: Vec<Option<StepResult>> = last(result).map(|step| step.cloned()).collect();
        if steps.iter().flatten().all(|step| !step.partial) {
            self.journal.keep(&check_of(self.users), &steps)?;
        }
        Ok(())
    }

    /// One block; whether all of it was measured.
    fn block(
        &mut self,
        (places, order): (&mut Places<'_>, &[usize]),
        block: u32,
        result: &mut ScenarioResult,
    ) -> Result<bool, LabError> {
        let steps = turn(self.stage, self.turns, (places, self.all), order)?;
        let is_kept = |step: &Option<StepResult>| step.as_ref().is_some_and(|step| !step.partial);
        let is_kept = steps.len() == self.all.len() && steps.iter().all(is_kept);
        let mut runs = Vec::new();
        for (index, (of, step)) in result.configurations.iter_mut().zip(steps).enumerate() {
            let (Some(mut step), Some(run)) = (step, &of.oltp) else {
                continue;
            };
            step.users = self.users;
            step.repeat = block;
            // A block that is not is measured again.
            if is_kept {
                step.log(&self.stage.log, Some(index))?;
            }
            let own = OltpResult {
                steps: vec![step],
                ..OltpResult {
                    steps: Vec::new(),
                    ..run.clone()
                }
            };
            runs.push(own.clone());
            of.add(own);
        }
        let is_part = |run: &OltpResult| run.steps.iter().any(|step| step.partial);
        let is_whole = runs.len() == self.all.len() && !runs.iter().any(is_part);
        if is_whole {
            self.journal.keep(&block_of(self.users, block), &runs)?;
        }
        let line = line(&result.configurations, self.users, block);
        self.stage.progress.step(&line);
        Ok(is_whole)
    }
}

/// Every configuration in this order, and back; a step of each that had a turn. One that has lost users is the last.
fn turn(
    stage: &Stage<'_>,
    turns: &TurnsSection,
    (places, all): (&mut Places<'_>, &[Ready]),
    order: &[usize],
) -> Result<Vec<Option<StepResult>>, LabError> {
    let settle = Duration::try_from_secs_f64(turns.settle()).unwrap_or_default();
    let mut seen: Vec<Option<Window>> = all.iter().map(|_| None).collect();
    for &index in order.iter().chain(order.iter().rev()) {
        stage.progress.go_on()?;
        let Some(window) = places.turn(&all[index], settle)? else {
            continue;
        };
        let has_lost = window.has_lost_users();
        match &mut seen[index] {
            Some(first) => first.follow(window)?,
            empty => *empty = Some(window),
        }
        if has_lost {
            break;
        }
    }
    let steps = seen.into_iter().map(|of| of.map(Window::step));
    Ok(steps.collect())
}

/// What every configuration did in a block.
fn line(all: &[ConfigurationResult], users: usize, block: u32) -> String {
    let of = |of: &ConfigurationResult| {
        let step = of.oltp.as_ref()?.steps.last()?;
        Some(format!("{} {:.0}", of.name, step.nopm))
    };
    let told: Vec<String> = all.iter().filter_map(of).collect();
    format!("{users} users, block {block}: NOPM {}", told.join(", "))
}

/// Whether every ratio that is asked for is known as precisely as was asked for: of pairs that the scenario names, or
/// of every configuration to the first.
pub(super) fn is_known(
    stage: &Stage<'_>,
    turns: &TurnsSection,
    all: &[ConfigurationResult],
    users: usize,
) -> bool {
    let pairs: Vec<(usize, usize)> = match stage.file.configuration.is_empty() {
        true => (1..all.len()).map(|ours| (0, ours)).collect(),
        false => compared::pairs(all, &stage.file)
            .into_iter()
            .map(|of| (of.base, of.ours))
            .collect(),
    };
    let looks = looks(stage.file.measure.repeat);
    let mut are_known = !pairs.is_empty();
    for (base, ours) in pairs.iter().map(|&(base, ours)| (&all[base], &all[ours])) {
        let (first, second) = compared::pairs_of(base, ours, users);
        let ratio = Ratio::at_look(&first, &second, &looks);
        let told = match &ratio {
            Some(ratio) => ratio.words(&ours.name, &base.name),
            None => format!("{}: not known yet", ours.name),
        };
        stage.progress.say(&told);
        are_known &= ratio.is_some_and(|ratio| ratio.is_within(turns.precision_pct));
    }
    are_known
}

/// The check of a place, told in the last step of each of its configurations.
fn check(
    stage: &Stage<'_>,
    at: &Visited<'_>,
    all: &[Ready],
    result: &mut ScenarioResult,
) -> Result<(), LabError> {
    at.pair.lift_limit()?;
    let mut checked = StepResult::default();
    examine(&at.database, &at.marker, &mut checked, stage.progress);
    let here = result.configurations.iter_mut().zip(all);
    for (of, _) in here.filter(|(_, of)| of.home == at.home) {
        let last = of.oltp.as_mut().and_then(|run| run.steps.last_mut());
        if let Some(last) = last {
            last.consistency = checked.consistency.clone();
            last.partial |= checked.partial;
            last.problems.extend(checked.problems.iter().cloned());
        }
    }
    Ok(())
}
