use ashlar_block::Moment;
use rustix::time::{ClockId, clock_gettime};

/// The machine's clock since it was started, the same for all threads of the process. It goes on while the machine is
/// suspended: a promise of another node is not longer for that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    pub fn now(self) -> Moment {
        let time = clock_gettime(ClockId::Boottime);
        Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}
