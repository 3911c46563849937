//! TPROC-C on configurations that take turns under one load: users stay logged in everywhere and work where
//! it is their turn, for a second or so, and rest elsewhere. Whatever the machine is doing, neighbours meet
//! much the same of it, and what grows meanwhile grows for all.
//!
//! A block of turns goes through all configurations in an order that is drawn at random, and back. So a
//! steady drift is in all alike; and where two configurations do not differ, either is as likely to have the
//! better turns, block by block, whatever noise there is: what [`Ratio`] asks for holds by construction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ashlar_lab::LabError;
use ashlar_lab::stats::{Looks, Ratio};

use super::file::{OltpSection, TurnsSection};
use super::load::{Ready, open};
use super::result::{ConfigurationResult, ScenarioResult};
use super::{Stage, compared, told};
use crate::database::Database;
use crate::random::Rng;
use crate::result::StepResult;
use crate::run::{Crowd, RunPlan, Window, begin, examine, ready, setting};
use crate::schema::Marker;
use crate::server::Pair;

/// The probability that the statements of a run, each for itself, are wrong, however often it looked.
const RISK: f64 = 0.01;
/// Seeds of orders are not those of anything else.
const ORDER: u64 = 0x7475_726e;
/// Blocks between two looks are kept this often: hundreds of them make a file of megabytes.
const KEEP_EVERY: Duration = Duration::from_secs(10);

/// When a run looks whether it knows enough.
pub(super) fn looks(repeats: u32) -> Looks {
    Looks::up_to(repeats as usize, RISK)
}

/// Users at a place, who rest unless it is their turn.
struct Visited<'a> {
    pair: &'a Pair,
    place: usize,
    database: Arc<dyn Database>,
    marker: Marker,
    crowd: Crowd<'a>,
}

/// Runs it, for each number of users. What goes wrong is told in the result.
pub(super) fn run(
    stage: &Stage<'_>,
    oltp: &OltpSection,
    (pairs, all): (&[(Pair, u64)], &[Ready]),
    result: &mut ScenarioResult,
) -> Result<(), LabError> {
    let Some(turns) = &stage.file.turns else {
        return Ok(());
    };
    let blocks = stage.file.measure.repeat as usize;
    stage.progress.start((oltp.users.len() * blocks) as u64);
    for &users in &oltp.users {
        let what = format!("{users} users");
        stage.progress.doing(&what);
        let ran = visit(stage, oltp, (pairs, all), users, result)
            .and_then(|mut places| take_turns(stage, turns, (&mut places, all), users, result));
        if let Err(error) = &ran {
            told(result, &what, error);
        }
        stage.keep(result)?;
        if ran.is_err() || result.partial {
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
    (pairs, all): (&'a [(Pair, u64)], &[Ready]),
    users: usize,
    result: &mut ScenarioResult,
) -> Result<Vec<Visited<'a>>, LabError> {
    let mut places = Vec::new();
    for (place, (pair, _)) in pairs.iter().enumerate() {
        stage.progress.go_on()?;
        let here = || all.iter().enumerate().filter(|(_, of)| of.place == place);
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
        let crowd = Crowd::log_in(
            &database,
            (&plan, &setting(&plan, &marker, users, 1)),
            None,
            stage.progress,
        )?;
        crowd.ramp(plan.ramp);
        crowd.rest();
        places.push(Visited {
            pair,
            place,
            database,
            marker,
            crowd,
        });
    }
    Ok(places)
}

/// Blocks of turns, until it is known well enough; then the check.
fn take_turns(
    stage: &Stage<'_>,
    turns: &TurnsSection,
    (places, all): (&mut [Visited<'_>], &[Ready]),
    users: usize,
    result: &mut ScenarioResult,
) -> Result<(), LabError> {
    let most = stage.file.measure.repeat;
    let looks = looks(most);
    let mut order: Vec<usize> = (0..all.len()).collect();
    let mut rng = Rng::stream(stage.file.measure.seed, &[ORDER, users as u64]);
    let mut failed = None;
    let mut kept = Instant::now();
    for block in 1..=most {
        rng.shuffle(&mut order);
        let steps = turn(stage, turns, (places, all), &order);
        let steps = match steps {
            Ok(steps) => steps,
            Err(error) => {
                failed = Some(error);
                break;
            }
        };
        let mut ends = false;
        for (of, mut step) in result.configurations.iter_mut().zip(steps) {
            step.users = users;
            step.repeat = block;
            ends |= step.partial;
            if let Some(run) = &mut of.oltp {
                run.steps.push(step);
            }
        }
        stage
            .progress
            .step(&line(&result.configurations, users, block));
        let looks_now = looks.is_at(block as usize);
        if looks_now || kept.elapsed() >= KEEP_EVERY {
            stage.keep(result)?;
            kept = Instant::now();
        }
        if looks_now {
            ends |= is_known(stage, turns, &result.configurations, users);
        }
        if ends {
            break;
        }
    }
    for at in places.iter() {
        at.crowd.stop();
        if failed.is_none() {
            check(stage, at, all, result)?;
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Every configuration in this order, and back; a step of each.
fn turn(
    stage: &Stage<'_>,
    turns: &TurnsSection,
    (places, all): (&mut [Visited<'_>], &[Ready]),
    order: &[usize],
) -> Result<Vec<StepResult>, LabError> {
    let settle = Duration::try_from_secs_f64(turns.settle).unwrap_or_default();
    let mut seen: Vec<Option<Window>> = all.iter().map(|_| None).collect();
    for &index in order.iter().chain(order.iter().rev()) {
        stage.progress.go_on()?;
        let of = &all[index];
        let Some(at) = places.iter_mut().find(|at| at.place == of.place) else {
            continue;
        };
        let window = at
            .crowd
            .measure_turn(of.plan.slow_down, settle, of.plan.measure)?;
        match &mut seen[index] {
            Some(first) => first.follow(window)?,
            empty => *empty = Some(window),
        }
    }
    let steps = seen.into_iter().flatten().map(Window::step);
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

/// Whether every configuration's ratio to the first is known as precisely as was asked for.
fn is_known(
    stage: &Stage<'_>,
    turns: &TurnsSection,
    all: &[ConfigurationResult],
    users: usize,
) -> bool {
    let Some((first, others)) = all.split_first() else {
        return true;
    };
    let looks = looks(stage.file.measure.repeat);
    let ratio = |of: &ConfigurationResult| -> Option<Ratio> {
        let (_, base, ours) = compared::figures(first, of)
            .into_iter()
            .find(|(of, ..)| *of == users)?;
        Ratio::at_look(&base, &ours, &looks)
    };
    let ratios: Vec<Option<Ratio>> = others.iter().map(ratio).collect();
    for (of, ratio) in others.iter().zip(&ratios) {
        let known = ratio
            .as_ref()
            .map(|ratio| ratio.words(&of.name, &first.name));
        stage
            .progress
            .say(&known.unwrap_or_else(|| format!("{}: not known yet", of.name)));
    }
    let known = |ratio: &Option<Ratio>| {
        let ratio = ratio.as_ref();
        ratio.is_some_and(|ratio| ratio.is_within(turns.precision_pct))
    };
    !others.is_empty() && ratios.iter().all(known)
}

/// The check of a place, told in the last step of each of its configurations.
fn check(
    stage: &Stage<'_>,
    at: &Visited<'_>,
    all: &[Ready],
    result: &mut ScenarioResult,
) -> Result<(), LabError> {
    at.pair.primary().lift_limit()?;
    let mut checked = StepResult::default();
    examine(&at.database, &at.marker, &mut checked, stage.progress);
    let here = result.configurations.iter_mut().zip(all);
    for (of, _) in here.filter(|(_, of)| of.place == at.place) {
        let last = of.oltp.as_mut().and_then(|run| run.steps.last_mut());
        if let Some(last) = last {
            last.consistency = checked.consistency.clone();
            last.partial |= checked.partial;
            last.problems.extend(checked.problems.iter().cloned());
        }
    }
    Ok(())
}
