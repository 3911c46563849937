//! The agent's side.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::Link;
use super::clock::Clock;
use super::other::{OtherLoad, Start};
use super::seats::Seats;
use super::words::{Answer, Ask, Found, Home, PROTOCOL, Part, hear, say};
use crate::cpu::usable_cpus;
use crate::live::{Count, Counter};
use crate::runner::{Fill, Outcome, Threads};
use crate::{LabError, Machine, Progress, Stacks};

/// How often a coordinator that waits gets a sign that the work goes on.
const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked, during a load, whether it should end.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The same, while there is nothing to do.
const IDLE: Duration = Duration::from_millis(500);
/// A coordinator has begun a turn within this time, or it never will.
const GO_TIMEOUT: Duration = Duration::from_secs(120);
/// A moment that is further away is none: those of coordinators are some milliseconds away.
const MOST_AHEAD: Duration = Duration::from_secs(10);
/// A moment is awaited asleep up to here, then awake: sleeping ends late.
const AWAKE: Duration = Duration::from_millis(2);

/// Why an agent has nothing more to do for a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The coordinator has gone.
    Gone,
    /// The agent itself is to end.
    Stopped,
}

/// What an agent makes load with.
#[derive(Clone, Copy)]
pub struct Makes<'a> {
    /// Of devices.
    pub stacks: &'a dyn Stacks,
    /// Of another kind.
    pub other: &'a dyn OtherLoad,
    /// What runs programs.
    pub seats: &'a dyn Seats,
}

/// Does what a coordinator says until it goes, or until `progress` says that this process is to end.
pub fn serve(link: &mut dyn Link, makes: Makes<'_>, progress: &Progress) -> Ended {
    let mut agent = Agent {
        link,
        stacks: makes.stacks,
        other: makes.other,
        seats: makes.seats,
        progress,
        clock: Clock::new(),
        counters: Vec::new(),
    };
    loop {
        if progress.go_on().is_err() {
            return Ended::Stopped;
        }
        agent.seats.look_after();
        let did = match hear(agent.link, IDLE) {
            Ok(Some(ask)) => agent.answer(ask),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if did.is_err() {
            return Ended::Gone;
        }
    }
}

struct Agent<'a> {
    link: &'a mut dyn Link,
    stacks: &'a dyn Stacks,
    other: &'a dyn OtherLoad,
    seats: &'a dyn Seats,
    progress: &'a Progress,
    clock: Clock,
    /// Of the threads of its last turn.
    counters: Vec<Arc<Counter>>,
}

impl Agent<'_> {
    /// Does one thing. What fails is sent to the coordinator; an error means that the coordinator is gone.
    fn answer(&mut self, ask: Ask) -> Result<(), LabError> {
        let done = match ask {
            Ask::Hello { protocol } => hello(&protocol),
            Ask::Clock => Ok(Answer::Clock(self.clock.now())),
            Ask::Prepare { spec, options } => {
                let prepared = self.stacks.prepare(&spec, &options);
                prepared.map(|found| Answer::Prepared(Box::new(Found::of(found))))
            }
            Ask::Fill(what) => self.fill(&what).map(|()| Answer::Filled),
            Ask::Part(part) => return self.part(&part),
            Ask::Look(words) => self.look(&words).map(|()| Answer::Looked),
            Ask::Other(words) => return self.other(&words),
            Ask::Order(words) => self.seats.order(&words).map(Answer::Ordered),
            // Of a turn that has ended by itself meanwhile.
            Ask::Go { .. } | Ask::Stop => return Ok(()),
        };
        say(
            self.link,
            &done.unwrap_or_else(|error| Answer::refused(&error)),
        )
    }

    fn fill(&mut self, what: &Fill) -> Result<(), LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        let quiet = Progress::silent().until(Arc::clone(&stop));
        self.progress.say(&format!("filling {}", what.spec));
        let stacks = self.stacks;
        self.attended(&stop, || what.carry_out(stacks, &quiet))?
    }

    /// One turn's load.
    fn part(&mut self, part: &Part) -> Result<(), LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        let jobs = part.jobs.iter().cloned();
        let jobs: Vec<_> = jobs
            .map(|mut job| {
                job.stop = Some(Arc::clone(&stop));
                job.live = Some(Arc::default());
                job
            })
            .collect();
        self.counters = jobs.iter().filter_map(|job| job.live.clone()).collect();
        let Some(first) = jobs.first() else {
            return say(self.link, &Answer::refused(&LabError::usage("no threads")));
        };
        let what = format!("{} {}", part.spec, first.cell.slug());
        let many = jobs.len();
        self.progress.say(&format!("{what}: {many} threads"));
        let cpus = if part.pin { usable_cpus() } else { Vec::new() };
        let threads = Threads {
            stacks: self.stacks,
            spec: &part.spec,
            size: part.size,
            cpus: &cpus,
            model: None,
        };
        let (outcome, late) = self.turn(&stop, |begin| threads.run_when(&jobs, begin))?;
        let outcome = outcome.unwrap_or_else(|_| Err(LabError::environment("a thread panicked")));
        let answer = outcome.and_then(|outcome| home(outcome, late));
        say(
            self.link,
            &answer.unwrap_or_else(|error| Answer::refused(&error)),
        )
    }

    /// Whether a load of another kind can be made from here.
    fn look(&mut self, words: &str) -> Result<(), LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        let other = self.other;
        self.attended(&stop, || other.look(words))?
    }

    /// A share of a load of another kind.
    fn other(&mut self, words: &str) -> Result<(), LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        let counter = Arc::<Counter>::default();
        self.counters = vec![Arc::clone(&counter)];
        let other = self.other;
        let (measured, late) = self.turn(&stop, |begin| {
            let mut start = Start {
                begin,
                stop: Arc::clone(&stop),
                counter,
            };
            other.carry_out(words, &mut start)
        })?;
        let measured = measured.unwrap_or_else(|_| Err(LabError::environment("a thread panicked")));
        let answer = match measured {
            Ok(words) => Answer::Other {
                words,
                late_ns: u64::try_from(late.as_nanos()).unwrap_or(u64::MAX),
            },
            Err(error) => Answer::refused(&error),
        };
        say(self.link, &answer)
    }

    /// Work that says when it stands ready, and begins at the moment that the coordinator says; how long after that it
    /// began.
    fn turn<T: Send>(
        &mut self,
        stop: &Arc<AtomicBool>,
        work: impl FnOnce(&mut dyn FnMut() -> bool) -> T + Send,
    ) -> Result<(std::thread::Result<T>, Duration), LabError> {
        let (tell_ready, ready) = channel();
        let (tell_go, go) = channel();
        let mut begin = move || {
            // If the receiver is gone, nothing begins.
            let _ = tell_ready.send(());
            go.recv().unwrap_or(false)
        };
        std::thread::scope(|scope| {
            let work = scope.spawn(move || work(&mut begin));
            let mut late = Duration::ZERO;
            let begun = self.until_ready(&ready, &work);
            let begun = begun.and_then(|is_ready| match is_ready {
                true => self.until_go(stop).map(|at| {
                    late = at.unwrap_or_default();
                    at.is_some()
                }),
                false => Ok(false),
            });
            let _ = tell_go.send(matches!(begun, Ok(true)));
            drop(tell_go);
            let watched = begun.and_then(|_| self.watch(stop, &|| work.is_finished()));
            if watched.is_err() {
                stop.store(true, Ordering::SeqCst);
            }
            let outcome = work.join();
            watched?;
            Ok((outcome, late))
        })
    }

    /// Waits until all threads stand ready, and says so; false if they have given up.
    fn until_ready<T>(
        &mut self,
        ready: &std::sync::mpsc::Receiver<()>,
        work: &std::thread::ScopedJoinHandle<'_, T>,
    ) -> Result<bool, LabError> {
        let mut told = Instant::now();
        loop {
            match ready.recv_timeout(LOOK_EVERY) {
                Ok(()) => {
                    say(self.link, &Answer::Ready)?;
                    return Ok(true);
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
                Err(RecvTimeoutError::Timeout) if work.is_finished() => return Ok(false),
                Err(RecvTimeoutError::Timeout) => self.alive(&mut told)?,
            }
        }
    }

    /// Waits for the moment at which all begin; how long after it that was. None: do not begin.
    fn until_go(&mut self, stop: &AtomicBool) -> Result<Option<Duration>, LabError> {
        let since = Instant::now();
        let at_ns = loop {
            match hear(self.link, LOOK_EVERY)? {
                Some(Ask::Go { at_ns }) => break at_ns,
                Some(Ask::Clock) => say(self.link, &Answer::Clock(self.clock.now()))?,
                Some(_) => return Ok(None),
                None if since.elapsed() > GO_TIMEOUT || self.progress.go_on().is_err() => {
                    stop.store(true, Ordering::SeqCst);
                    return Ok(None);
                }
                None => {}
            }
        };
        loop {
            let now = self.clock.steady_ns();
            if now >= at_ns {
                return Ok(Some(Duration::from_nanos(now - at_ns)));
            }
            let left = Duration::from_nanos(at_ns - now);
            if left > MOST_AHEAD || self.progress.go_on().is_err() {
                stop.store(true, Ordering::SeqCst);
                return Ok(None);
            }
            if left > AWAKE {
                std::thread::sleep((left - AWAKE).min(LOOK_EVERY));
            }
            std::hint::spin_loop();
        }
    }

    /// Tells the coordinator that this lives, until the work is done; has it stop when it is told so.
    fn watch(&mut self, stop: &AtomicBool, is_done: &dyn Fn() -> bool) -> Result<(), LabError> {
        let mut told = Instant::now();
        while !is_done() {
            if self.progress.go_on().is_err() {
                stop.store(true, Ordering::SeqCst);
            }
            if let Some(Ask::Stop) = hear(self.link, LOOK_EVERY)? {
                stop.store(true, Ordering::SeqCst);
            }
            self.alive(&mut told)?;
        }
        Ok(())
    }

    fn alive(&mut self, told: &mut Instant) -> Result<(), LabError> {
        if told.elapsed() >= ALIVE_EVERY {
            *told = Instant::now();
            say(self.link, &Answer::Alive(Count::of(&self.counters)))?;
        }
        Ok(())
    }

    /// Work that takes long, on a thread of its own.
    fn attended<T: Send>(
        &mut self,
        stop: &AtomicBool,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, LabError> {
        std::thread::scope(|scope| {
            let work = scope.spawn(work);
            let watched = self.watch(stop, &|| work.is_finished());
            if watched.is_err() {
                stop.store(true, Ordering::SeqCst);
            }
            let done = work.join();
            watched?;
            done.map_err(|_| LabError::environment("a thread panicked"))
        })
    }
}

fn hello(protocol: &str) -> Result<Answer, LabError> {
    if protocol != PROTOCOL {
        return Err(LabError::usage(format!(
            "this agent speaks {PROTOCOL}, not {protocol}: have the same version of ashlar on both"
        )));
    }
    Ok(Answer::Hello {
        protocol: PROTOCOL.to_owned(),
        machine: Machine::here(),
        boot: crate::machine::boot_id(),
    })
}

fn home(outcome: Outcome, late: Duration) -> Result<Answer, LabError> {
    let losses = outcome.losses.iter().map(LabError::to_string).collect();
    let home = Home::of(outcome.measured, losses, late)?;
    Ok(Answer::Measured(Box::new(home)))
}
