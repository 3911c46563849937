use ashlar_block::Moment;
use rustix::time::{ClockId, clock_gettime};

/// The machine's monotonic clock, the same for all threads of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// Now.
    pub fn now(self) -> Moment {
        let time = clock_gettime(ClockId::Monotonic);
        Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}
