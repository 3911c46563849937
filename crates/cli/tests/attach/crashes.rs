//! PostgreSQL under TPROC-C, and kill -9 for what is below it and for itself: no acknowledged order is lost.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::send;
use crate::database::{Base, have_ended, possible_here, shape};
use crate::rig::{Rig, Way};

/// So long some work goes on before something dies.
const BEFORE: Duration = Duration::from_millis(400);
/// Orders that are acknowledged before it, and after it by what survives.
const ORDERS: usize = 25;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Daemon,
    Server,
    /// No process is left then that would start another server, or wait for another daemon.
    Guardian,
    Database,
    All,
}

impl Victim {
    /// Those that there are.
    fn all(way: Way) -> [Self; 4] {
        let own = match way {
            Way::InProcess => Self::Guardian,
            Way::Initiator => Self::Server,
        };
        [Self::Daemon, own, Self::Database, Self::All]
    }
}

/// Who dies in a round, and by whom the volume is served.
#[derive(Clone, Copy)]
pub struct Death {
    pub number: usize,
    pub way: Way,
    pub victim: Victim,
}

impl Death {
    /// Each in turn.
    fn of_round(number: usize, way: Way) -> Self {
        let victims = Victim::all(way);
        Self {
            number,
            way,
            victim: victims[number % victims.len()],
        }
    }

    /// Under load; leaves PostgreSQL dead and nothing attached, so that what comes next is read from the volume.
    pub fn under_load(self, rig: &mut Rig, base: &Base) {
        let Self {
            number,
            way,
            victim,
        } = self;
        let load = base.load(number as u64);
        base.advances(ORDERS);
        std::thread::sleep(BEFORE + Duration::from_millis(number as u64 * 97 % 300));
        let at = Instant::now();
        self.comes(rig, base);
        let until = at.elapsed();
        // The load ends with the database, whichever was to die.
        base.kill();
        let step = load.join().expect("the load");
        let errors: u64 = step.transactions.values().map(|kind| kind.errors).sum();
        let longest = step
            .transactions
            .values()
            .map(|kind| kind.latency_us.max)
            .fold(0.0, f64::max);
        eprintln!(
            "{way:?}, round {number}, {victim:?}: {} orders until now, longest transaction {:.0} ms, {ORDERS} more after \
             {until:?}, {errors} failed transactions",
            base.acknowledged(),
            longest / 1000.0,
        );
        if victim == Victim::All {
            rig.ok(&["detach", &rig.mount(), "--force"]);
            rig.restart_node();
        } else {
            assert_eq!(errors, 0, "{victim:?}: only a pause: {:?}", step.problems);
            rig.detach();
        }
        rig.is_clean();
    }

    fn comes(self, rig: &mut Rig, base: &Base) {
        match self.victim {
            Victim::Daemon => {
                rig.kill_node();
                rig.restart_node();
                base.advances(ORDERS);
            }
            Victim::Server => {
                send(rig.pid("server"), Signal::KILL);
                base.advances(ORDERS);
            }
            Victim::Guardian => {
                send(rig.pid("guardian"), Signal::KILL);
                base.advances(ORDERS);
            }
            Victim::Database => {}
            Victim::All => self.of_everything(rig, base),
        }
    }

    /// At once, in an order that is another each time.
    fn of_everything(self, rig: &mut Rig, base: &Base) {
        let guardian = rig.pid("guardian");
        let server = (self.way == Way::Initiator).then(|| rig.pid("server"));
        let mut struck = Vec::new();
        for part in 0..3 {
            match (self.number / Victim::all(self.way).len() + part) % 3 {
                0 => {
                    send(guardian, Signal::KILL);
                    if let Some(server) = server {
                        send(server, Signal::KILL);
                    }
                }
                1 => rig.kill_node(),
                // They may wait for the daemon until the attachment is gone, too.
                _ => struck = base.strike(),
            }
        }
        have_ended(&struck);
    }
}

#[test]
fn no_acknowledged_order_is_lost_whatever_dies_below_a_database() {
    if possible_here() {
        rounds(Way::InProcess);
    }
}

#[test]
fn no_acknowledged_order_is_lost_over_the_initiator_either() {
    if possible_here() {
        rounds(Way::Initiator);
    }
}

fn rounds(way: Way) {
    let is_long = std::env::var_os("ASHLAR_SOAK").is_some();
    let rounds = if is_long { 24 } else { 4 };
    let mut rig = Rig::new("700MiB").by(way);
    rig.attach("tank/db", &["--fs", "xfs"]);
    let set = [
        "max_wal_size=96MB",
        "min_wal_size=32MB",
        "shared_buffers=16MB",
    ];
    let base = Base::build(&rig, shape(is_long), &set);
    for number in 0..rounds {
        Death::of_round(number, way).under_load(&mut rig, &base);
        rig.attach("tank/db", &[]);
        base.start();
        base.is_whole(&format!("round {number}"));
    }
    base.kill();
    rig.detach();
    rig.is_clean();
}
