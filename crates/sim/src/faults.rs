//! What befalls a world, and when.

use std::time::Duration;

use ashlar_block::Moment;

use crate::cores::Cores;
use crate::env::Env;
use crate::net::{Cut, LinkId};
use crate::profile::Canary;
use crate::report::Summary;

/// Faults happen within this time from the beginning.
const SPAN: Duration = Duration::from_secs(6);
/// Longest time that the target is down.
const DOWN: Duration = Duration::from_secs(2);

/// Something that happens to the network or a core.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Cut(Cut),
    Flip,
    Pause,
}

#[derive(Clone, Copy)]
struct Restart {
    stop: Duration,
    start: Duration,
    power_lost: bool,
}

/// The plan, and how much of it has come to pass.
pub(crate) struct Faults {
    begun: Option<Moment>,
    /// Latest first.
    faults: Vec<(Duration, Fault)>,
    restarts: Vec<Restart>,
    down: Option<Restart>,
    cuts: u64,
    flips: u64,
    stops: u64,
}

impl Faults {
    pub(crate) fn plan(env: &mut Env<'_>) -> Self {
        let profile = env.profile;
        let chance = &mut env.chance;
        let mut faults = Vec::new();
        for _ in 0..chance.between(profile.cuts.min(1), profile.cuts) {
            let kinds: &[Cut] = match (profile.half_open, profile.silent) {
                (true, true) => &[
                    Cut::Both,
                    Cut::Both,
                    Cut::HostUnaware,
                    Cut::TargetUnaware,
                    Cut::Silent,
                ],
                (true, false) => &[Cut::Both, Cut::TargetUnaware],
                _ => &[Cut::Both],
            };
            faults.push((chance.time(SPAN), Fault::Cut(chance.pick(kinds))));
        }
        let flips = if profile.canary == Some(Canary::UndetectedFlip) {
            40
        } else {
            profile.flips
        };
        for _ in 0..flips {
            faults.push((chance.time(SPAN), Fault::Flip));
        }
        for _ in 0..chance.between(0, profile.pauses) {
            faults.push((chance.time(SPAN), Fault::Pause));
        }
        faults.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let mut restarts = Vec::new();
        let mut last = Duration::ZERO;
        for _ in 0..chance.between(profile.restarts.min(1), profile.restarts) {
            let stop = last + chance.time(Duration::from_secs(2)) + Duration::from_micros(1);
            let start = stop + chance.time(DOWN);
            let power_lost = profile.crashes && chance.happens(600);
            restarts.push(Restart {
                stop,
                start,
                power_lost,
            });
            last = start;
        }
        restarts.reverse();
        Self {
            begun: None,
            faults,
            restarts,
            down: None,
            cuts: 0,
            flips: 0,
            stops: 0,
        }
    }

    /// The plan's times count from now on.
    pub(crate) fn begin(&mut self, now: Moment) {
        self.begun = Some(now);
    }

    pub(crate) fn have_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Whether nothing more will happen.
    pub(crate) fn are_over(&self) -> bool {
        self.faults.is_empty() && self.restarts.is_empty() && self.down.is_none()
    }

    /// When something happens next.
    pub(crate) fn next(&self) -> Option<Moment> {
        let begun = self.begun?;
        let fault = self.faults.last().map(|(at, _)| *at);
        let stop = self.restarts.last().map(|restart| restart.stop);
        let start = self.down.map(|restart| restart.start);
        [fault, stop, start]
            .into_iter()
            .flatten()
            .min()
            .map(|after| begun + after)
    }

    fn elapsed(&self, now: Moment) -> Option<Duration> {
        Some(now.since(self.begun?))
    }

    /// The next fault, if it is due.
    pub(crate) fn due(&mut self, now: Moment) -> Option<Fault> {
        let elapsed = self.elapsed(now)?;
        self.faults
            .pop_if(|(at, _)| *at <= elapsed)
            .map(|(_, fault)| fault)
    }

    /// Whether the target is to stop now, and whether by a loss of power.
    pub(crate) fn stop_due(&mut self, now: Moment) -> Option<bool> {
        let elapsed = self.elapsed(now)?;
        let restart = self.restarts.pop_if(|restart| restart.stop <= elapsed)?;
        self.down = Some(restart);
        self.stops += 1;
        Some(restart.power_lost)
    }

    /// Whether the target is to come back now.
    pub(crate) fn start_due(&mut self, now: Moment) -> bool {
        let elapsed = self.elapsed(now).unwrap_or_default();
        self.down
            .take_if(|restart| restart.start <= elapsed)
            .is_some()
    }

    /// Lets a fault happen.
    pub(crate) fn strike(&mut self, env: &mut Env<'_>, cores: Option<&mut Cores>, fault: Fault) {
        match fault {
            Fault::Pause => {
                if let Some(cores) = cores {
                    cores.pause(env);
                }
            }
            Fault::Cut(cut) => {
                if let Some(link) = some_link(env, false) {
                    env.trace
                        .say(env.now, || format!("link {link} is cut: {cut:?}"));
                    env.net.cut(env.now, &mut env.chance, link, cut);
                    self.cuts += 1;
                }
            }
            Fault::Flip => {
                let protected = env.profile.canary != Some(Canary::UndetectedFlip);
                if let Some(link) = some_link(env, protected) {
                    self.flip(env, link);
                }
            }
        }
    }

    fn flip(&mut self, env: &mut Env<'_>, id: LinkId) {
        env.trace
            .say(env.now, || format!("a bit of link {id} will flip"));
        let Some(link) = env.net.links.get_mut(&id) else {
            return;
        };
        self.flips += 1;
        let pipe = if env.chance.happens(500) {
            &mut link.to_host
        } else {
            &mut link.to_target
        };
        pipe.damage(&mut env.chance, 100_000);
    }

    /// Adds what has happened to a summary.
    pub(crate) fn count(&self, summary: &mut Summary) {
        summary.cuts = self.cuts;
        summary.flips = self.flips;
        summary.restarts = self.stops;
    }
}

fn some_link(env: &mut Env<'_>, protected: bool) -> Option<LinkId> {
    let links = env
        .net
        .links
        .iter()
        .filter(|(_, link)| link.digests || !protected);
    let ids: Vec<LinkId> = links.map(|(id, _)| *id).collect();
    (!ids.is_empty()).then(|| env.chance.pick(&ids))
}
