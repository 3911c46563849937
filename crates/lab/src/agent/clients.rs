//! The coordinator's side.

mod other;
mod ready;
mod seats;

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use self::other::{Begun, Onlooker, OtherHome, OtherMeasured};
use self::ready::{Dealt, Moment, begin};
pub use self::seats::ORDER_TAKES;

use super::Link;
use super::clock::{Ahead, Asked, Clock, best};
use super::words::{Answer, Ask, PROTOCOL, Part, hear, refusal, say};
use crate::cpu::CpuTicks;
use crate::live::{Count, Counted};
use crate::machine::boot_id;
use crate::measure::Measured;
use crate::others::Others;
use crate::result::{ClientNote, ClientPart};
use crate::runner::{Fill, Outcome};
use crate::verify::Tally;
use crate::workload::Job;
use crate::{LabError, Machine, PrepareOptions, Prepared, Progress};

/// An agent that works says every second that it lives; silent for so long, it does not.
const SILENCE: Duration = Duration::from_secs(10);
/// Something simple is answered within this time.
const ANSWER: Duration = Duration::from_secs(10);
/// Opening a device, and a network between, take time.
const SET_UP: Duration = Duration::from_secs(60);
/// Whether the run is to end is asked so often.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Between saying when to begin, and the moment.
const LEAD: Duration = Duration::from_millis(30);
/// How often clocks are compared at first, and before each turn.
const FIRST_ASKED: usize = 16;
const ASKED: usize = 4;

/// Agents on other machines, which make the load of a run.
pub struct Clients {
    all: Mutex<Vec<Client>>,
    clock: Clock,
}

/// A link to an agent that has let us in.
pub struct ClientLink {
    /// What it is called: its address.
    pub name: String,
    /// Where it is found to be, if it is elsewhere than in this process.
    pub peer: Option<IpAddr>,
    pub link: Box<dyn Link>,
}

struct Client {
    name: String,
    peer: Option<IpAddr>,
    link: Box<dyn Link>,
    machine: Machine,
    /// It is on this machine: what its load uses, this machine uses.
    is_here: bool,
    first: Ahead,
    ahead: Ahead,
    /// It was given a share, and has not said yet what came of it.
    owes: bool,
    /// Why there is nothing to be had of it any more.
    died: Option<LabError>,
}

/// The load of one turn, before it is dealt out.
pub(crate) struct Load<'a> {
    pub(crate) spec: &'a str,
    pub(crate) size: Option<u64>,
    pub(crate) pin: bool,
    pub(crate) jobs: &'a [Job],
}

impl Clients {
    /// Makes sure that all speak our language, and compares clocks.
    ///
    /// # Errors
    /// Names the agent that cannot be used, and why.
    pub fn greet(links: Vec<ClientLink>) -> Result<Self, LabError> {
        let clock = Clock::new();
        let mut all = Vec::new();
        for ClientLink { name, peer, link } in links {
            let mut client = Client {
                name,
                peer,
                link,
                machine: Machine::default(),
                is_here: false,
                first: Ahead::default(),
                ahead: Ahead::default(),
                owes: false,
                died: None,
            };
            client.greet(&clock)?;
            all.push(client);
        }
        Ok(Self {
            all: Mutex::new(all),
            clock,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Client>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Those that died, and how.
    pub(crate) fn dead(&self) -> Vec<String> {
        let told = |client: &Client| client.died.as_ref().map(LabError::to_string);
        self.lock().iter().filter_map(told).collect()
    }

    pub(crate) fn notes(&self) -> Vec<ClientNote> {
        self.lock().iter().map(Client::note).collect()
    }

    /// Has all look at a device, which must have the same shape for all of them.
    pub(crate) fn prepare(
        &self,
        spec: &str,
        options: &PrepareOptions,
    ) -> Result<Prepared, LabError> {
        let mut all = self.lock();
        let mut found: Option<Prepared> = None;
        let first = all
            .first()
            .map_or(String::new(), |client| client.name.clone());
        for client in all.iter_mut() {
            let ask = Ask::Prepare {
                spec: spec.to_owned(),
                options: *options,
            };
            let answer = client.ask(&ask, SET_UP)?;
            let Answer::Prepared(theirs) = answer else {
                return Err(client.misunderstood());
            };
            let theirs = theirs.prepared()?;
            match &mut found {
                None => found = Some(theirs),
                Some(ours) if ours.geometry != theirs.geometry => {
                    return Err(LabError::usage(format!(
                        "{spec}: clients see different devices: {} bytes at {first}, {} at {}",
                        ours.geometry.bytes(),
                        theirs.geometry.bytes(),
                        client.name
                    )));
                }
                Some(ours) => {
                    ours.fresh &= theirs.fresh;
                    ours.holds = ours.holds.take().or(theirs.holds);
                }
            }
        }
        found.ok_or_else(|| LabError::usage("no clients"))
    }

    /// Has a device filled: by one of them if it is the same device for all, otherwise by each.
    pub(crate) fn fill(&self, what: &Fill, progress: &Progress) -> Result<(), LabError> {
        let mut all = self.lock();
        let many = if what.is_shared() { 1 } else { all.len() };
        let fill = |client: &mut Client| {
            client.tell(&Ask::Fill(what.clone()))?;
            match client.attend(progress, Counted::Accesses)? {
                Answer::Filled => progress.go_on(),
                _ => Err(client.misunderstood()),
            }
        };
        std::thread::scope(|scope| {
            let fills = all
                .iter_mut()
                .take(many)
                .map(|client| scope.spawn(|| fill(client)));
            let fills: Vec<_> = fills.collect();
            fills
                .into_iter()
                .try_for_each(|fill| fill.join().unwrap_or_else(|_| Err(panicked())))
        })
    }

    /// Has a turn's threads load, dealt out to all, from one moment on.
    pub(crate) fn run(&self, load: &Load<'_>, progress: &Progress) -> Result<Outcome, LabError> {
        let mut all = self.lock();
        let mut hands = deal(&mut all, load);
        let Some(first) = load.jobs.first() else {
            return Err(LabError::usage("no threads"));
        };
        let Moment { at_ns, .. } = begin(&mut hands, &self.clock, || Ok(()))?;
        let watch = Watch {
            clock: &self.clock,
            from_ns: at_ns + first.warmup.as_nanos() as u64,
            until_ns: at_ns + (first.warmup + first.measure).as_nanos() as u64,
        };
        let (homes, used) = std::thread::scope(|scope| {
            let homes = hands
                .iter_mut()
                .map(|hand| scope.spawn(|| hand.client.attend(progress, Counted::Accesses)));
            let homes: Vec<_> = homes.collect();
            let used = watch.used(&|| homes.iter().all(|home| home.is_finished()));
            let homes: Vec<_> = homes
                .into_iter()
                .map(|home| home.join().unwrap_or_else(|_| Err(panicked())))
                .collect();
            (homes, used)
        });
        let mut outcome = Outcome {
            measured: Measured::new(first.shape())?,
            tally: Tally::default(),
            losses: Vec::new(),
            clients: Vec::new(),
        };
        for (hand, home) in hands.iter_mut().zip(homes) {
            hand.bring_home(home, first.measure, &mut outcome)?;
        }
        outcome.measured.cpu_pct = used.as_ref().and_then(|used| used.cpu_pct);
        outcome.measured.machine_cpu_s = used.as_ref().and_then(|used| used.machine_cpu_s);
        outcome.measured.others_cpu_s = used.map(|used| used.others_cpu_s);
        Ok(outcome)
    }
}

/// A client and its share of a turn.
struct Hand<'a> {
    client: &'a mut Client,
    load: &'a Load<'a>,
    jobs: Vec<Job>,
}

impl Dealt for Hand<'_> {
    fn client(&mut self) -> &mut Client {
        self.client
    }

    fn share(&self) -> Ask {
        Ask::Part(Box::new(Part {
            spec: self.load.spec.to_owned(),
            size: self.load.size,
            pin: self.load.pin,
            jobs: self.jobs.clone(),
        }))
    }
}

/// Threads in turn to each, so that parts differ by at most one; a client without any is left out.
fn deal<'a>(all: &'a mut [Client], load: &'a Load<'a>) -> Vec<Hand<'a>> {
    let count = all.len();
    let share = |index: usize| {
        load.jobs
            .iter()
            .skip(index)
            .step_by(count)
            .cloned()
            .collect()
    };
    let hands = all.iter_mut().enumerate().map(|(index, client)| Hand {
        client,
        load,
        jobs: share(index),
    });
    hands.filter(|hand| !hand.jobs.is_empty()).collect()
}

impl Hand<'_> {
    /// Adds what the client measured, or marks that it is missing.
    fn bring_home(
        &mut self,
        home: Result<Answer, LabError>,
        measure: Duration,
        outcome: &mut Outcome,
    ) -> Result<(), LabError> {
        let threads = self.jobs.len() as u32;
        let mut part = ClientPart {
            client: self.client.name.clone(),
            threads,
            ..ClientPart::default()
        };
        match home {
            Ok(Answer::Measured(home)) => {
                let measured = home.measured(self.client.is_here);
                let measured = measured.map_err(|error| self.client.sent(&error))?;
                part.iops = measured.count() as f64 / measure.as_secs_f64();
                part.cpu_pct = home.cpu_pct;
                part.late_us = home.late_ns as f64 / 1000.0;
                outcome.measured.merge(&measured)?;
                let name = &self.client.name;
                let named = |loss: &String| LabError::environment(format!("client {name}: {loss}"));
                outcome.losses.extend(home.losses.iter().map(named));
            }
            Ok(_) => return Err(self.client.misunderstood()),
            Err(error) => {
                part.lost = true;
                let lost = &mut outcome.measured.lost_workers;
                *lost = lost.saturating_add(threads);
                let why = format!("{error}; its {threads} threads are missing");
                outcome.losses.push(LabError::environment(why));
            }
        }
        outcome.clients.push(part);
        Ok(())
    }
}

impl Client {
    fn greet(&mut self, clock: &Clock) -> Result<(), LabError> {
        let hello = Ask::Hello {
            protocol: PROTOCOL.to_owned(),
        };
        match self.ask(&hello, ANSWER)? {
            Answer::Hello {
                protocol,
                machine,
                boot,
            } if protocol == PROTOCOL => {
                self.machine = machine;
                self.is_here = !boot.is_empty() && boot == boot_id();
            }
            _ => return Err(self.misunderstood()),
        }
        self.compare_clocks(clock, FIRST_ASKED)?;
        self.first = self.ahead;
        Ok(())
    }

    fn note(&self) -> ClientNote {
        let drift = self.ahead.steady_ns.saturating_sub(self.first.steady_ns);
        ClientNote {
            name: self.name.clone(),
            machine: self.machine.clone(),
            clock_ahead_us: self.ahead.wall_ns as f64 / 1000.0,
            clock_error_us: self.ahead.error_ns as f64 / 1000.0,
            clock_drift_us: drift as f64 / 1000.0,
            died: self.died.as_ref().map(LabError::to_string),
        }
    }

    fn compare_clocks(&mut self, clock: &Clock, times: usize) -> Result<(), LabError> {
        let mut found = Vec::with_capacity(times);
        for _ in 0..times {
            let before = clock.now();
            let Answer::Clock(theirs) = self.ask(&Ask::Clock, ANSWER)? else {
                return Err(self.misunderstood());
            };
            let asked = Asked {
                before,
                theirs,
                after: clock.now(),
            };
            found.push(asked.ahead());
        }
        self.ahead = best(found).unwrap_or(self.ahead);
        Ok(())
    }

    fn ask(&mut self, ask: &Ask, patience: Duration) -> Result<Answer, LabError> {
        self.tell(ask)?;
        self.heard(patience)
    }

    fn tell(&mut self, ask: &Ask) -> Result<(), LabError> {
        self.is_alive()?;
        say(&mut *self.link, ask).map_err(|error| self.dies(&error))
    }

    /// Tells it the moment, by our clock, at which it is to begin.
    fn go(&mut self, at_ns: u64) {
        let at_ns = at_ns.saturating_add_signed(self.ahead.steady_ns);
        // One that does not hear it is found to be dead when it is attended to.
        let _ = self.tell(&Ask::Go { at_ns });
    }

    /// The next answer, which must come within `patience`; a refusal is an error that names the client.
    fn heard(&mut self, patience: Duration) -> Result<Answer, LabError> {
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if let Some(answer) = self.next(left)? {
                return Ok(answer);
            }
            if left.is_zero() {
                let silent = LabError::environment(format!("no answer within {patience:?}"));
                return Err(self.dies(&silent));
            }
        }
    }

    /// The answer to what takes long: it says that it lives meanwhile. If the run is to end, it is told to stop.
    fn attend(&mut self, progress: &Progress, counted: Counted) -> Result<Answer, LabError> {
        let (mut lived, mut before, mut told) = (Instant::now(), Count::default(), false);
        loop {
            match self.word(LOOK_EVERY)? {
                Some(Answer::Alive(count)) => {
                    let tempo = counted.tempo(count.since(before, lived.elapsed()));
                    (lived, before) = (Instant::now(), count);
                    // Some loads have nothing to count.
                    if count != Count::default() {
                        progress.tempo(&self.name, "", tempo);
                    }
                }
                Some(answer) => return Ok(answer),
                None if lived.elapsed() > SILENCE => {
                    let silent = format!("silent for {} s", SILENCE.as_secs());
                    return Err(self.dies(&LabError::environment(silent)));
                }
                None => {}
            }
            if !told && progress.go_on().is_err() {
                told = true;
                self.tell(&Ask::Stop)?;
            }
        }
    }

    fn next(&mut self, patience: Duration) -> Result<Option<Answer>, LabError> {
        let word = self.word(patience)?;
        Ok(word.filter(|answer| !matches!(answer, Answer::Alive(_))))
    }

    fn word(&mut self, patience: Duration) -> Result<Option<Answer>, LabError> {
        self.is_alive()?;
        match hear(&mut *self.link, patience) {
            Ok(Some(Answer::Refused { code, text })) => {
                // There is nothing more to come.
                self.owes = false;
                Err(refusal(code, format!("client {}: {text}", self.name)))
            }
            Ok(answer) => {
                let is_last = matches!(answer, Some(Answer::Measured(_) | Answer::Other { .. }));
                self.owes &= !is_last;
                Ok(answer)
            }
            Err(error) => Err(self.dies(&error)),
        }
    }

    fn is_alive(&self) -> Result<(), LabError> {
        self.died.clone().map_or(Ok(()), Err)
    }

    fn dies(&mut self, why: &LabError) -> LabError {
        let error = LabError::environment(format!("client {} died: {why}", self.name));
        self.died = Some(error.clone());
        error
    }

    /// What it sent is of no use.
    fn sent(&self, why: &LabError) -> LabError {
        LabError::environment(format!("client {} sent {why}", self.name))
    }

    fn misunderstood(&self) -> LabError {
        LabError::environment(format!(
            "client {}: answers something that was not asked",
            self.name
        ))
    }
}

/// This machine's processors, in the time that is measured.
struct Watch<'a> {
    clock: &'a Clock,
    from_ns: u64,
    until_ns: u64,
}

/// What this machine did meanwhile.
struct UsedHere {
    cpu_pct: Option<f64>,
    machine_cpu_s: Option<f64>,
    others_cpu_s: f64,
}

impl Watch<'_> {
    fn used(&self, is_done: &dyn Fn() -> bool) -> Option<UsedHere> {
        let begin = self.at(self.from_ns, is_done)?;
        let others = Others::now();
        let end = self.at(self.until_ns, is_done)?;
        Some(UsedHere {
            cpu_pct: end.pct_since(begin),
            machine_cpu_s: end.seconds_since(begin),
            others_cpu_s: Others::now().seconds_since(&others),
        })
    }

    /// The counters at a moment; none if all has ended before.
    fn at(&self, moment_ns: u64, is_done: &dyn Fn() -> bool) -> Option<CpuTicks> {
        loop {
            let left = moment_ns.saturating_sub(self.clock.steady_ns());
            if left == 0 {
                return CpuTicks::now();
            }
            if is_done() {
                return None;
            }
            std::thread::sleep(Duration::from_nanos(left).min(LOOK_EVERY));
        }
    }
}

fn panicked() -> LabError {
    LabError::environment("a thread panicked")
}
