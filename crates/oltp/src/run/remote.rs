//! A step whose users are at agents: this process looks at the database meanwhile, and adds up what they saw.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ashlar_lab::agent::{Begun, Onlooker, OtherHome, OtherMeasured};
use ashlar_lab::{LabError, Progress};

use super::looker::Looker;
use super::measured::Measured;
use super::plan::{Mode, RunPlan};
use super::span::{Mark, Span};
use super::users::{Part, Worked};
use super::{Place, setting};
use crate::database::Database;
use crate::postgres::Logic;
use crate::remote::{COUNTED, HomeWords, RemoteUsers, ShareWords, read, text};
use crate::result::{ClientShare, StepResult};
use crate::schema::Marker;
use crate::terminal::TerminalSetting;
use crate::usage::DeviceSeries;

/// Whether it is time is looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A part that has measured less than this share of its time was ended.
const WHOLE: f64 = 0.98;

/// Where the users of a step are, and what they work on.
pub(crate) struct Elsewhere<'a> {
    pub(crate) users: &'a RemoteUsers<'a>,
    /// The server's address for them.
    pub(crate) address: SocketAddr,
    pub(crate) logic: Logic,
}

/// One step, unchecked, of users that are elsewhere.
pub(crate) fn drive_elsewhere(
    database: &Arc<dyn Database>,
    (plan, marker): (&RunPlan, &Marker),
    place: &Place,
    (elsewhere, progress): (&Elsewhere<'_>, &Progress),
) -> Result<StepResult, LabError> {
    let setting = setting(plan, marker, place.users, place.repeat);
    let looker = Looker::new(database, progress)?;
    let shares = shares(elsewhere, plan, &setting)?;
    let words: Result<Vec<Option<String>>, LabError> = shares
        .iter()
        .map(|share| share.as_ref().map(text).transpose())
        .collect();
    let mut eyes = Eyes {
        looker: &looker,
        plan,
        progress,
        first: None,
        seen: None,
    };
    let clients = elsewhere.users.clients();
    let homes = clients.carry_out(&words?, progress, &mut eyes)?;
    let unseen = || LabError::environment("the step was not looked at");
    let seen = eyes.seen.ok_or_else(unseen)??;
    let shares: Vec<&ShareWords> = shares.iter().flatten().collect();
    let mut home = Home::new()?;
    for (of, share) in homes.into_iter().zip(shares) {
        home.add(of, share.part.numbers(place.users).count(), plan);
    }
    let mut step = home.step(seen, plan);
    step.users = place.users;
    step.repeat = place.repeat;
    if progress.go_on().is_err() {
        step.problems.push("interrupted".to_owned());
        step.partial = true;
    }
    Ok(step)
}

/// Numbers of users in turn to each agent; one without any is left out.
fn shares(
    elsewhere: &Elsewhere<'_>,
    plan: &RunPlan,
    setting: &TerminalSetting,
) -> Result<Vec<Option<ShareWords>>, LabError> {
    plan.check()?;
    let of = elsewhere.users.clients().count();
    let server = elsewhere.users.server(elsewhere.address, elsewhere.logic);
    let share = |index| {
        let part = Part { index, of };
        let has_any = part.numbers(setting.users).next().is_some();
        has_any.then(|| ShareWords::of(&server, (plan, setting), part))
    };
    Ok((0..of).map(share).collect())
}

/// What this process saw of a step.
struct Seen {
    span: Span,
    device_series: Vec<(u64, u64)>,
    unanswered: Option<LabError>,
}

/// What looks on at a step.
struct Eyes<'a> {
    looker: &'a Looker<'a>,
    plan: &'a RunPlan,
    progress: &'a Progress,
    first: Option<Mark>,
    seen: Option<Result<Seen, LabError>>,
}

impl Onlooker for Eyes<'_> {
    /// Of fixed work everything counts: the mark is before the first transaction.
    fn before(&mut self) -> Result<(), LabError> {
        if self.is_fixed() {
            self.first = Some(self.looker.mark()?);
        }
        Ok(())
    }

    fn meanwhile(&mut self, begun: &Begun<'_>) {
        self.seen = Some(self.watch(begun));
    }
}

impl Eyes<'_> {
    fn is_fixed(&self) -> bool {
        matches!(self.plan.mode, Mode::Fixed(_))
    }

    /// Looks on from when it counts to the end.
    fn watch(&mut self, begun: &Begun<'_>) -> Result<Seen, LabError> {
        let looker = self.looker;
        let (from, first) = match self.first.take() {
            Some(first) => (begun.at, first),
            None => {
                let from = begun.at + self.plan.ramp + COUNTED;
                self.wait_until(from, begun);
                (from, looker.mark()?)
            }
        };
        let time = match self.is_fixed() {
            true => Duration::MAX,
            false => self.plan.measure,
        };
        let mut device = DeviceSeries::new(Some(looker.place()));
        for second in 1.. {
            let next = time.min(Duration::from_secs(second));
            if !self.wait_until(from + next, begun) {
                break;
            }
            if next == Duration::from_secs(second) {
                device.second_has_passed();
            }
            if next == time {
                break;
            }
        }
        let (last, unanswered) = looker.last_mark();
        Ok(Seen {
            span: Span::between(&first, last),
            device_series: device.seconds,
            unanswered,
        })
    }

    /// False: it has ended before.
    fn wait_until(&self, moment: Instant, begun: &Begun<'_>) -> bool {
        loop {
            let left = moment.saturating_duration_since(Instant::now());
            let is_to_end = !self.is_fixed() && self.progress.go_on().is_err();
            if left.is_zero() || is_to_end || begun.has_ended() {
                return left.is_zero();
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}

/// What agents bring home.
struct Home {
    all: Measured,
    parts: Vec<ClientShare>,
    problems: Vec<String>,
    /// Until the last user had done its share.
    longest: Duration,
    cpu_s: f64,
}

/// What was added of an agent.
struct Taken {
    share: ClientShare,
    /// Its users ended before their time, after this.
    ended: Option<Duration>,
}

impl Home {
    fn new() -> Result<Self, LabError> {
        Ok(Self {
            all: Measured::new()?,
            parts: Vec::new(),
            problems: Vec::new(),
            longest: Duration::ZERO,
            cpu_s: 0.0,
        })
    }

    /// Adds what an agent measured, or marks that it is missing.
    fn add(&mut self, home: OtherHome, users: usize, plan: &RunPlan) {
        let mut part = ClientShare {
            client: home.client,
            users,
            ..ClientShare::default()
        };
        let added = home.measured.and_then(|measured| {
            let sent = |error| LabError::caused(format!("client {}", part.client), error);
            self.take(&measured, plan).map_err(sent)
        });
        match added {
            Ok(Taken { share, ended }) => {
                part = ClientShare {
                    client: part.client,
                    users,
                    ..share
                };
                if let Some(ended) = ended {
                    part.lost = true;
                    let seconds = ended.as_secs_f64();
                    self.problems.push(format!(
                        "client {}: its {users} users ended after {seconds:.1} s",
                        part.client
                    ));
                }
            }
            Err(error) => {
                part.lost = true;
                self.all.lost_users = self.all.lost_users.saturating_add(users);
                self.problems
                    .push(format!("{error}; its {users} users are missing"));
            }
        }
        self.parts.push(part);
    }

    /// Adds what can be read, whole or not at all.
    fn take(&mut self, home: &OtherMeasured, plan: &RunPlan) -> Result<Taken, LabError> {
        let Worked {
            measured,
            elapsed,
            cpu_s,
        } = read(&home.words).and_then(HomeWords::worked)?;
        let mut all = self.all.clone();
        all.merge(&measured)?;
        self.all = all;
        self.cpu_s += cpu_s;
        self.longest = self.longest.max(home.late.saturating_add(elapsed));
        let is_short = elapsed.as_secs_f64() < WHOLE * plan.measure.as_secs_f64();
        let is_timed = !matches!(plan.mode, Mode::Fixed(_));
        Ok(Taken {
            share: ClientShare {
                transactions: measured.transactions(),
                new_orders: measured.new_orders(),
                cpu_s,
                late_us: home.late.as_secs_f64() * 1e6,
                ..ClientShare::default()
            },
            ended: (is_short && is_timed).then_some(elapsed),
        })
    }

    fn step(self, seen: Seen, plan: &RunPlan) -> StepResult {
        let mut span = seen.span;
        span.loaded_from_elsewhere(self.cpu_s);
        if matches!(plan.mode, Mode::Fixed(_)) {
            span.elapsed_s = self.longest.as_secs_f64();
        }
        let mut step = span.step(&self.all);
        step.device_series = seen.device_series;
        step.problems.extend(self.problems);
        step.problems
            .extend(seen.unanswered.map(|error| error.to_string()));
        let is_missing = self.parts.iter().any(|part| part.lost);
        step.partial = is_missing || step.lost_users > 0 || step.nopm_source == "client";
        step.clients = self.parts;
        step
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;
    use crate::inputs::Kind;

    #[test]
    fn every_user_is_at_one_agent() {
        for (users, of) in [(7, 3), (2, 5), (1, 1)] {
            let mut all: Vec<usize> = (0..of)
                .flat_map(|index| Part { index, of }.numbers(users))
                .collect();
            all.sort_unstable();
            assert_eq!(all, (0..users).collect::<Vec<_>>());
        }
    }

    fn timed() -> RunPlan {
        plan(&[3], Mode::Timed, 1000)
    }

    fn sent(words: String) -> OtherHome {
        OtherHome {
            client: "agent".into(),
            measured: Ok(OtherMeasured {
                words,
                late: Duration::from_nanos(u64::MAX),
            }),
        }
    }

    #[test]
    fn what_an_agent_sends_spoils_nothing_of_the_others() {
        let mut measured = Measured::new().expect("new");
        let us = Duration::from_micros;
        measured.done(Kind::NewOrder, us(100), us(5), true);
        let worked = Worked {
            measured,
            elapsed: Duration::MAX,
            cpu_s: 1.0,
        };
        let words = text(&HomeWords::of(&worked).expect("packs")).expect("text");
        let most = words.replace("\"rolled_back\":1", "\"rolled_back\":18446744073709551615");
        let mut home = Home::new().expect("new");
        for words in ["nonsense".to_owned(), words.clone(), most.clone(), most] {
            home.add(sent(words), 2, &timed());
        }
        let lost: Vec<bool> = home.parts.iter().map(|part| part.lost).collect();
        assert_eq!(lost, [true, false, false, false]);
        assert_eq!((home.all.lost_users, home.all.transactions()), (2, 3));
        assert_eq!((home.all.new_orders(), home.parts[2].new_orders), (0, 0));
        let problem = &home.problems[0];
        assert!(
            problem.contains("client agent: ") && problem.contains("2 users are missing"),
            "{problem}"
        );
    }
}
