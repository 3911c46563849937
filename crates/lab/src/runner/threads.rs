//! The threads of one repeat: opened, started together, watched, and brought home whatever
//! happens to one of them.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::cpu::{CpuTicks, pin, thread_cpu_s};
use crate::measure::Measured;
use crate::others::Others;
use crate::result::ClientPart;
use crate::verify::{Model, Tally};
use crate::workload::{Content, Job, Load, Watcher};
use crate::{LabError, OpenOptions, Stacks};

/// What all threads of a repeat share.
pub(crate) struct Threads<'a> {
    pub(crate) stacks: &'a dyn Stacks,
    pub(crate) spec: &'a str,
    pub(crate) size: Option<u64>,
    /// Processors to pin to; empty: do not pin.
    pub(crate) cpus: &'a [usize],
    pub(crate) model: Option<&'a Arc<Model>>,
}

/// What came of a repeat.
pub(crate) struct Outcome {
    pub(crate) measured: Measured,
    pub(crate) tally: Tally,
    /// Why workers did not finish.
    pub(crate) losses: Vec<LabError>,
    /// What each client had of it; empty if this process made the load.
    pub(crate) clients: Vec<ClientPart>,
}

/// Holds the threads back until all are ready.
#[derive(Default)]
struct Gate {
    go: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Gate {
    fn open(&self, go: bool) {
        *self.go.lock().unwrap_or_else(PoisonError::into_inner) = Some(go);
        self.changed.notify_all();
    }

    /// Waits; false: do not start.
    fn pass(&self) -> bool {
        let mut go = self.go.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *go {
                Some(go) => return go,
                None => {
                    go = self
                        .changed
                        .wait(go)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        }
    }
}

/// Says "not ready" when a thread leaves, in whatever way, before it was ready.
struct Readiness(Option<Sender<bool>>);

impl Readiness {
    fn ready(mut self) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(true);
        }
    }
}

impl Drop for Readiness {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(false);
        }
    }
}

/// What a thread needs to stand ready.
struct Post<'a> {
    gate: &'a Gate,
    readiness: Readiness,
    /// It reads the machine's counters for all.
    watches: bool,
}

/// Reads processor time at both ends: the thread's own, and for one of them the machine's.
#[derive(Default)]
struct CpuWatch {
    of_machine: bool,
    begin: Option<CpuTicks>,
    end: Option<CpuTicks>,
    own: (f64, f64),
}

impl CpuWatch {
    fn ticks(&self) -> Option<CpuTicks> {
        self.of_machine.then(CpuTicks::now).flatten()
    }

    fn tell(&self, measured: &mut Measured) {
        let machine = self.begin.zip(self.end);
        measured.cpu_pct = machine.and_then(|(from, to)| to.pct_since(from));
        measured.machine_cpu_s = machine.and_then(|(from, to)| to.seconds_since(from));
        measured.load_cpu_s = (self.own.1 - self.own.0).max(0.0);
    }
}

impl Watcher for CpuWatch {
    fn begins(&mut self) {
        self.begin = self.ticks();
        self.own.0 = thread_cpu_s();
    }

    fn ends(&mut self) {
        self.own.1 = thread_cpu_s();
        self.end = self.ticks();
    }
}

type Home = (Measured, Option<Tally>, Option<LabError>);

impl Threads<'_> {
    /// Runs the jobs, one thread each. An error before the start stops all; a worker lost later
    /// leaves the others' figures standing.
    pub(crate) fn run(&self, jobs: &[Job]) -> Result<Outcome, LabError> {
        self.run_when(jobs, &mut || true)
    }

    /// The same; when all stand ready, `begin` returns when they are to begin, or false: they are not to.
    pub(crate) fn run_when(
        &self,
        jobs: &[Job],
        begin: &mut dyn FnMut() -> bool,
    ) -> Result<Outcome, LabError> {
        let gate = Gate::default();
        let (homes, others) = std::thread::scope(|scope| {
            let (sender, receiver) = channel();
            let mut handles = Vec::with_capacity(jobs.len());
            let mut spawned = Ok(());
            for job in jobs {
                let post = Post {
                    gate: &gate,
                    readiness: Readiness(Some(sender.clone())),
                    watches: handles.is_empty(),
                };
                match self.spawn(scope, job, post) {
                    Ok(handle) => handles.push(handle),
                    Err(error) => spawned = Err(LabError::caused("starting a load thread", error)),
                }
            }
            drop(sender);
            let ready = receiver
                .iter()
                .take(jobs.len())
                .filter(|&ready| ready)
                .count();
            let goes = spawned.is_ok() && ready == jobs.len() && begin();
            gate.open(goes);
            let all_done = || handles.iter().all(|handle| handle.is_finished());
            let others = goes
                .then(|| Others::watch(jobs[0].warmup, jobs[0].measure, &all_done))
                .flatten();
            let homes: Vec<_> = handles.into_iter().map(|handle| handle.join()).collect();
            spawned.map(|()| (homes, others))
        })?;
        let mut outcome = Outcome {
            measured: Measured::new(jobs[0].shape())?,
            tally: Tally::default(),
            losses: Vec::new(),
            clients: Vec::new(),
        };
        for home in homes {
            outcome.take(home)?;
        }
        outcome.measured.others_cpu_s = others;
        Ok(outcome)
    }

    fn spawn<'scope, 'env: 'scope>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        job: &'env Job,
        post: Post<'env>,
    ) -> std::io::Result<ScopedJoinHandle<'scope, Result<Home, LabError>>> {
        Builder::new()
            .name(format!("load-{}", job.thread))
            .spawn_scoped(scope, move || self.work(job, post))
    }

    fn work(&self, job: &Job, post: Post<'_>) -> Result<Home, LabError> {
        let Post {
            gate,
            readiness,
            watches,
        } = post;
        let cpu = pin(job.thread as usize, self.cpus);
        let depth = job.cell.depth as usize;
        let kinds = usize::from(job.cell.read_pct > 0) + usize::from(job.cell.writes());
        // As if all were as large as the largest: a pool cuts its memory by size.
        let largest = job.access.largest(job.cell.block_bytes) as usize;
        let all_sizes = job.sizes().len() * largest.next_power_of_two();
        let mut worker = self.stacks.open(
            self.spec,
            &OpenOptions {
                thread: job.thread as usize,
                threads: job.cell.threads as usize,
                cpu,
                size: self.size,
                depth,
                buffer_bytes: depth * kinds * all_sizes,
                writes: job.cell.writes(),
            },
        )?;
        let content = match self.model {
            Some(model) => Content::verified(model.clone(), job),
            None => Content::random(job.seed),
        };
        let load = Load::new(&mut *worker, job, content)?;
        readiness.ready();
        if !gate.pass() {
            return Ok((Measured::new(job.shape())?, None, None));
        }
        let mut watch = CpuWatch {
            of_machine: watches,
            ..CpuWatch::default()
        };
        let (mut measured, content, loss) = load.run(&mut watch);
        watch.tell(&mut measured);
        Ok((measured, content.into_tally(), loss))
    }
}

impl Outcome {
    fn take(&mut self, home: std::thread::Result<Result<Home, LabError>>) -> Result<(), LabError> {
        let Ok(home) = home else {
            self.measured.lost_workers += 1;
            self.losses
                .push(LabError::environment("a load thread panicked"));
            return Ok(());
        };
        let (measured, tally, loss) = home?;
        self.measured.merge(&measured)?;
        self.tally.merge(tally.unwrap_or_default());
        if let Some(loss) = loss {
            self.measured.lost_workers += 1;
            self.losses.push(loss);
        }
        Ok(())
    }
}
