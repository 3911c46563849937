//! Whether to spin before sleeping: where waking up would cost more than what it is for.
//!
//! Sleeping lets the processor halt, and waking it again costs several microseconds, in a virtual
//! machine tens: more than a depth-1 round trip, little beside the commands that have gathered in a
//! deep queue meanwhile. Measured on a two-core virtual machine, remote reads of a file at depth 1
//! came to 46-65 % of local ones when waits were slept through, and to 83 % when they were spun
//! through; at depth 32 both gave the same, and spinning only burnt what the batch had saved.
//!
//! Neither cost is known beforehand, so both are measured while running, as medians:
//!
//! * the *work* of a cycle, from the end of one wait to the beginning of the next;
//! * the *wake-up*: how much longer waits are that are slept through than those that are spun
//!   through. A few of the one kind are made in a run of the other to keep both known.
//!
//! It spins while the wake-up exceeds the work: then a sleep would more than double what a cycle
//! takes of this thread's time. And it spins while so few commands share a wake-up that nothing else is
//! in flight to cover it, however long the work: the submission of a drive's command may take as long
//! as a wake-up itself. How many they are is what the reactor's user tells of; one who does not is taken
//! to have few.
//!
//! Besides, spinning for an event that comes later than the limit is pure waste: a score is kept of
//! spins that caught an event against those that ran out, and nothing is spun for after a wake-up
//! without events: an idle reactor sleeps.

use std::time::Duration;

use crate::options::Spin;

/// Longest time to spin where nothing else is said.
const AUTO_LIMIT: Duration = Duration::from_micros(200);
const HIGH: i32 = 64;
/// Waits from one measurement of what is not being done to the next. A spin too many costs little; a
/// sleep too many may cost the processor, where others want it, so there are fewer of these.
const PROBE_WHEN_SLEEPING: u32 = 64;
const PROBE_WHEN_SPINNING: u32 = 512;

/// As many commands a wake-up are few.
const FEW: u32 = 4;
/// The mean of commands a wake-up is kept in parts of this size.
const SHARE_UNIT: u32 = 16;

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Spin for at most this long, then sleep.
    Spin(Duration),
    /// Sleep, and tell how long that took.
    Timed,
    Sleep,
}

/// A running median in nanoseconds: up or down by an eighth with every sample, whatever its size.
/// A few waits that are a thousand times as long as the others do not move it.
#[derive(Clone, Copy, Default)]
struct Median(Option<u64>);

impl Median {
    fn add(&mut self, sample: Duration) {
        let sample = sample.as_nanos() as u64;
        let old = self.0.unwrap_or(sample);
        let step = (old / 8).max(16);
        self.0 = Some(match sample {
            up if up > old => old + step,
            down if down < old => old.saturating_sub(step),
            _ => old,
        });
    }
}

pub(crate) struct SpinPolicy {
    mode: Spin,
    score: i32,
    waits: u32,
    work: Median,
    spun: Median,
    slept: Median,
    /// Commands that lately shared a wake-up, in parts of a [`SHARE_UNIT`]th.
    share: u32,
}

impl SpinPolicy {
    pub(crate) fn new(mode: Spin) -> Self {
        Self {
            mode,
            score: HIGH / 2,
            waits: 0,
            work: Median::default(),
            spun: Median::default(),
            slept: Median::default(),
            share: 0,
        }
    }

    /// How to wait after a turn that had `last_batch` events.
    pub(crate) fn plan(&self, last_batch: usize) -> Wait {
        let limit = match self.mode {
            _ if last_batch == 0 => return Wait::Sleep,
            Spin::Off => return Wait::Sleep,
            Spin::Auto => AUTO_LIMIT,
            Spin::For(limit) => limit,
        };
        let pays = self.pays();
        let period = if pays {
            PROBE_WHEN_SPINNING
        } else {
            PROBE_WHEN_SLEEPING
        };
        match self.waits % period {
            // The sleep's end is where the work begins that the next wait tells of.
            0 => Wait::Timed,
            1 => Wait::Spin(limit),
            _ if pays => Wait::Spin(limit),
            _ => Wait::Sleep,
        }
    }

    fn pays(&self) -> bool {
        let longer = match (self.slept.0, self.spun.0, self.work.0) {
            (Some(slept), Some(spun), Some(work)) => slept.saturating_sub(spun) > work,
            _ => true,
        };
        let few = self.share <= FEW * SHARE_UNIT;
        let is_told = matches!(self.mode, Spin::For(_));
        (is_told || few || longer) && self.score > 0
    }

    /// `commands` were handled since the last wait; without any there was nothing to share.
    pub(crate) fn shared(&mut self, commands: usize) {
        let commands = u32::try_from(commands).unwrap_or(u32::MAX).min(1 << 16);
        if commands > 0 {
            self.share = (7 * self.share + commands * SHARE_UNIT) / 8;
        }
    }

    /// There was a wait.
    pub(crate) fn waited(&mut self) {
        self.waits = self.waits.wrapping_add(1);
    }

    /// There was `work` between two waits.
    pub(crate) fn worked(&mut self, work: Duration) {
        self.work.add(work);
    }

    /// A timed wait has taken `gap`.
    pub(crate) fn slept(&mut self, gap: Duration) {
        self.slept.add(gap);
    }

    /// An event has come after `gap` of spinning, or none within the limit.
    pub(crate) fn spun(&mut self, gap: Option<Duration>) {
        let step = if gap.is_some() { 4 } else { -8 };
        self.score = (self.score + step).clamp(0, HIGH);
        if let Some(gap) = gap {
            self.spun.add(gap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn deep() -> SpinPolicy {
        let mut policy = SpinPolicy::new(Spin::Auto);
        (0..64).for_each(|_| policy.shared(16));
        policy
    }

    /// How many microseconds events take to come, waking up takes, and the work.
    #[derive(Clone, Copy)]
    struct World {
        gap: u64,
        wake_up: u64,
        work: u64,
    }

    const fn world(gap: u64, work: u64) -> World {
        World {
            gap,
            wake_up: 30,
            work,
        }
    }

    /// How many of `waits` waits were spun.
    fn run(policy: &mut SpinPolicy, waits: u32, world: World) -> u32 {
        let World { gap, wake_up, work } = world;
        let mut spins = 0;
        for _ in 0..waits {
            match policy.plan(1) {
                Wait::Spin(limit) => {
                    spins += 1;
                    policy.worked(us(work));
                    policy.spun((us(gap) <= limit).then_some(us(gap)));
                }
                Wait::Timed => policy.slept(us(gap + wake_up)),
                Wait::Sleep => {}
            }
            policy.waited();
        }
        spins
    }

    #[test]
    fn spins_while_a_wake_up_costs_more_than_the_work() {
        let mut policy = deep();
        let shallow = world(10, 6);
        let deep = world(20, 60);
        let all_but_probes = 5120 - 10;
        assert_eq!(run(&mut policy, 5120, shallow), all_but_probes);
        run(&mut policy, 2560, deep);
        assert_eq!(run(&mut policy, 6400, deep), 100, "only probes are left");
        run(&mut policy, 2560, shallow);
        assert_eq!(run(&mut policy, 5120, shallow), all_but_probes);
    }

    #[test]
    fn spins_while_few_commands_share_a_wake_up() {
        let mut policy = deep();
        let slow_drive = world(40, 100);
        run(&mut policy, 2560, slow_drive);
        assert_eq!(run(&mut policy, 6400, slow_drive), 100, "many share it");
        (0..64).for_each(|_| policy.shared(2));
        assert!(run(&mut policy, 5120, slow_drive) >= 5100);
        (0..64).for_each(|_| policy.shared(0));
        assert!(run(&mut policy, 5120, slow_drive) >= 5100);
    }

    #[test]
    fn spins_only_while_events_come_in_time() {
        let mut policy = SpinPolicy::new(Spin::Auto);
        assert_eq!(
            policy.plan(0),
            Wait::Sleep,
            "nothing happened: nothing to wait for"
        );
        let rare = world(500, 6);
        run(&mut policy, 64, rare);
        assert_eq!(run(&mut policy, 6400, rare), 100, "only probes are left");
        run(&mut policy, 2048, world(10, 6));
        assert!(run(&mut policy, 64, world(10, 6)) >= 63);
    }

    #[test]
    fn a_median_ignores_how_far_off_the_others_are() {
        let mut median = Median::default();
        for i in 0..1000 {
            median.add(if i % 4 == 0 { us(100_000) } else { us(10) });
        }
        let nanos = median.0.expect("sampled");
        assert!((8_000..14_000).contains(&nanos), "{nanos}");
    }

    #[test]
    fn what_is_off_never_spins() {
        let mut policy = SpinPolicy::new(Spin::Off);
        assert_eq!(run(&mut policy, 640, world(1, 1)), 0);
    }

    #[test]
    fn what_is_told_to_spins_for_all_that_comes_in_time() {
        let mut policy = SpinPolicy::new(Spin::For(us(2000)));
        (0..64).for_each(|_| policy.shared(16));
        let (deep, rare) = (world(1000, 60), world(3000, 60));
        assert_eq!(run(&mut policy, 5120, deep), 5120 - 10, "all but probes");
        run(&mut policy, 64, rare);
        assert_eq!(run(&mut policy, 6400, rare), 100, "only probes are left");
        assert_eq!(policy.plan(0), Wait::Sleep, "nothing happened");
    }
}
