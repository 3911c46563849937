//! PostgreSQL on an attached volume, its private server in a folder of the mount.

use std::cell::Cell;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ashlar_lab::Progress;
use ashlar_oltp::check::check;
use ashlar_oltp::database::Database as _;
use ashlar_oltp::inputs::{Kind, Mix};
use ashlar_oltp::result::StepResult;
use ashlar_oltp::schema::Shape;
use ashlar_oltp::server::{DATABASE, Server, Settings};
use ashlar_oltp::{
    BuildPlan, Ledger, Logic, Mode, Postgres, RunPlan, begin, build, run_with_ledger,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{TEST_TIMEOUT, can_attach, eventually, has_postgresql};
use crate::rig::Rig;

const USERS: usize = 2;

/// Whether there is a PostgreSQL to run, and somewhere to attach.
pub fn possible_here() -> bool {
    has_postgresql() && can_attach()
}

/// Rows as few as a quick test wants, or those of the specification.
pub fn shape(is_long: bool) -> Shape {
    match is_long {
        true => Shape::tpcc(2),
        false => Shape {
            warehouses: 2,
            items: 2000,
            customers: 300,
        },
    }
}

/// A private server with TPROC-C in it, and everything that it has ever acknowledged.
pub struct Base {
    server: Server,
    url: String,
    shape: Shape,
    ledger: Arc<Ledger>,
    /// Known without a look at files that may be out of reach.
    pid: Cell<u32>,
}

impl Base {
    /// Made in `pg` of the rig's mount, and built.
    pub fn build(rig: &Rig, shape: Shape, set: &[&str]) -> Self {
        // The server is not root's, and has to come through.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(rig.path(""), open).expect("opened");
        let server = Server::at(&rig.path("mnt/pg")).expect("PostgreSQL");
        let settings = Settings {
            memory_bytes: None,
            set: set.iter().map(|&set| set.to_owned()).collect(),
        };
        let status = server.start(Some(settings)).expect("started");
        let base = Self {
            url: server.url(DATABASE),
            server,
            shape,
            ledger: Arc::default(),
            pid: Cell::new(status.pid.expect("it runs")),
        };
        let plan = BuildPlan {
            shape,
            seed: 1,
            users: USERS,
            destroy_data: false,
        };
        build(&base.database(), &plan, &Progress::silent()).expect("built");
        base
    }

    pub fn database(&self) -> Postgres {
        Postgres::new(&self.url, Logic::Functions).expect("a URL")
    }

    /// Orders that were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.ledger.count(Kind::NewOrder)
    }

    /// Users that order until the server is no more.
    pub fn load(&self, seed: u64) -> JoinHandle<StepResult> {
        let (url, ledger) = (self.url.clone(), Arc::clone(&self.ledger));
        std::thread::spawn(move || {
            let plan = RunPlan {
                users: vec![USERS],
                ramp: Duration::ZERO,
                measure: Duration::from_secs(600),
                mode: Mode::Timed,
                mix: Mix::TprocC,
                all_warehouses: true,
                pauses: None,
                repeats: 1,
                seed,
                slow_down: 0.0,
            };
            let database = Postgres::new(&url, Logic::Functions).expect("a URL");
            let database: Arc<dyn ashlar_oltp::database::Database> = Arc::new(database);
            let mut result = begin(database.as_ref(), &plan).expect("it is there");
            let progress = Progress::silent();
            run_with_ledger(&database, &plan, &mut result, &progress, &ledger).expect("built");
            result.steps.pop().expect("a step")
        })
    }

    /// Waits until more is acknowledged.
    pub fn advances(&self, orders: usize) {
        let before = self.acknowledged();
        eventually("orders go on", || self.acknowledged() >= before + orders);
    }

    /// kill -9 of all its processes, without a look at its files; which they are. They end when what they wait for
    /// does.
    pub fn strike(&self) -> Vec<u32> {
        let family = family(self.pid.get());
        for &pid in &family {
            // One that has ended meanwhile is what is wanted.
            let _ = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, Signal::KILL));
        }
        family
    }

    /// The same, and they have ended.
    pub fn kill(&self) {
        have_ended(&self.strike());
    }

    pub fn start(&self) {
        self.try_start().expect("it recovers");
    }

    pub fn try_start(&self) -> Result<(), String> {
        let status = self.server.start(None).map_err(|error| error.to_string())?;
        self.pid.set(status.pid.expect("it runs"));
        Ok(())
    }

    /// Whether its first process is there.
    pub fn runs(&self) -> bool {
        parent(self.pid.get()).is_some()
    }

    /// Everything that was acknowledged is there, and conditions 1 to 12 hold.
    pub fn is_whole(&self, after: &str) {
        let database = self.database();
        database
            .await_ready(TEST_TIMEOUT, &Progress::silent())
            .expect("it is ready");
        let mut watcher = database.watcher().expect("it answers");
        let audit = self.ledger.audit(watcher.as_mut()).expect("it answers");
        for (kind, count) in &audit.kinds {
            assert!(count.acknowledged > 0, "after {after}: no {kind}");
            assert_eq!(
                count.missing, 0,
                "after {after}: {kind}: {:?}",
                audit.examples
            );
        }
        let conditions = check(watcher.as_mut(), &self.shape, &Progress::silent());
        let conditions = conditions.expect("it answers");
        assert_eq!(conditions.0.len(), 12, "after {after}");
        assert_eq!(conditions.complaint(), None, "after {after}");
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        self.strike();
    }
}

/// Waits until these processes have ended.
pub fn have_ended(processes: &[u32]) {
    eventually("the server's processes end", || {
        processes.iter().all(|&pid| parent(pid).is_none())
    });
}

/// Processes of a server that runs; none if it does not.
fn family(pid: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let children = numbers.filter(|&other| parent(other) == Some(pid));
    let server = std::iter::once(pid).filter(|&pid| parent(pid).is_some());
    server.chain(children).collect()
}

/// The parent of a process that lives.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in brackets and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z").then_some(parent)
}
