//! Copies beside hosts, over a store that does one thing after the other.

use super::*;

/// What a granule takes.
const TAKES: Duration = Duration::from_micros(10);
/// Hosts write below, and the other copy misses what is above.
const HOSTS: u64 = 1024;
const MISSING: u32 = 4096;
/// Of a host's write.
const WRITE: u32 = 2;

struct Load {
    rig: Rig,
    /// Writes that hosts have at once.
    depth: usize,
    written: u64,
}

impl Load {
    fn new(depth: usize) -> Self {
        Self::of(depth, 2)
    }

    /// Of so many copies.
    fn of(depth: usize, copies: u8) -> Self {
        let mut rig = Rig::of(Plan {
            copies,
            granules: HOSTS + u64::from(MISSING) + 1,
            missing: Extent::new(HOSTS, MISSING).into_iter().collect(),
            ..Plan::default()
        });
        rig.local.takes = TAKES;
        Self {
            rig,
            depth,
            written: 0,
        }
    }

    /// The next thing that happens, happens; hosts write again when they are answered.
    fn step(&mut self) {
        let rig = &mut self.rig;
        let next = rig.local.later.front().map(|(at, _)| *at);
        let tick = rig.replica.next_deadline();
        rig.now = rig.now.max(next.map_or(tick, |at| at.min(tick)));
        rig.pass_to_store();
        if rig.now >= tick {
            rig.handle(Event::Tick);
        }
        rig.other_answers();
        while self.written - (rig.answers.len() as u64) < self.depth as u64 {
            let first = self.written * u64::from(WRITE) % HOSTS;
            rig.write_some(Extent::new(first, WRITE).expect("an extent"));
            self.written += 1;
        }
    }

    /// Resyncs: how long that took, and how many writes were answered in that time.
    fn resync(&mut self) -> (Duration, usize) {
        let (began, answered) = (self.rig.now, self.rig.answers.len());
        self.rig.other_answers();
        while self.rig.replica.missing(at(1)) != Some(0) {
            self.step();
            assert!(self.rig.now - began < Duration::from_secs(10), "never");
        }
        (self.rig.now - began, self.rig.answers.len() - answered)
    }
}

/// How long all copies take with nothing beside them.
fn alone() -> Duration {
    TAKES * MISSING
}

#[test]
fn resync_of_an_idle_owner_goes_as_fast_as_it_can() {
    let (took, _) = Load::new(0).resync();
    assert!(took <= alone().mul_f64(1.02), "{took:?}");
}

#[test]
fn hosts_keep_nine_tenths_beside_a_resync_that_gets_its_twentieth() {
    for depth in [1, 8, 32] {
        let (took, written) = Load::new(depth).resync();
        let could = took.as_secs_f64() / (TAKES * WRITE).as_secs_f64();
        let kept = written as f64 / could;
        assert!(kept >= 0.9, "depth {depth}: {kept:.3} of the rate");
        let got = alone().as_secs_f64() / took.as_secs_f64();
        assert!(got >= 0.05, "depth {depth}: {got:.3} of the speed");
    }
}

#[test]
fn resync_gets_all_again_when_hosts_have_ended() {
    let mut load = Load::new(8);
    load.rig.other_answers();
    (0..2000).for_each(|_| load.step());
    let left = load.rig.replica.missing(at(1)).expect("a learner");
    assert!(left > u64::from(MISSING) / 2, "{left} granules");
    load.depth = 0;
    let began = load.rig.now;
    while load.rig.replica.missing(at(1)) != Some(0) {
        load.step();
    }
    let took = load.rig.now - began;
    let could = TAKES * u32::try_from(left).expect("few");
    assert!(took <= could.mul_f64(1.1), "{took:?} of {could:?}");
}

/// Beside hosts there may be a piece at a time: not all of them are one learner's.
#[test]
fn two_learners_share_what_hosts_leave() {
    let mut load = Load::of(8, 3);
    load.rig.other_answers();
    let missing = |load: &Load, index| load.rig.replica.missing(at(index)).expect("a learner");
    while missing(&load, 1).min(missing(&load, 2)) > u64::from(MISSING) / 2 {
        load.step();
    }
    let (one, other) = (missing(&load, 1), missing(&load, 2));
    let piece = u64::from(Limits::default().piece_granules);
    assert!(
        one.abs_diff(other) <= 2 * piece,
        "{one} and {other} are left"
    );
}
