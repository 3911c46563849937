//! How long an answer may be owed, and when silence does not count against the member that owes it.
//!
//! A process that got no processor for a while has heard nothing in that time, whatever was said: the others are
//! given time to be heard before it judges them, once. One that is silent then is taken for dead as always, so a
//! process that is held up again and again does not keep a dead member.

use std::time::Duration;

use ashlar_block::Moment;

use crate::lease::GRANT_EVERY;

/// Nothing of what is owed has come for so long: the member that owes it hangs.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(2);
/// One answer is owed for so long, though others come: hosts do not wait any longer.
pub const SLOW_AFTER: Duration = Duration::from_secs(8);
/// A process that is woken so much later than it had asked for was held up.
pub(crate) const HELD_UP: Duration = Duration::from_millis(100);
/// How long others have to be heard after that: they are asked at once, and once more.
pub(crate) const HEARING: Duration = GRANT_EVERY.saturating_mul(2);

/// When another was heard last, or has answered last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    at: Moment,
    is_excused: bool,
}

impl Heard {
    pub(crate) const fn new(at: Moment) -> Self {
        let is_excused = false;
        Self { at, is_excused }
    }

    /// How long that is ago.
    pub(crate) fn ago(self, now: Moment) -> Duration {
        now - self.at
    }

    /// Who looks was held up: of what is allowed, some is left. A second time in a row it counts.
    pub(crate) fn excuse(&mut self, now: Moment, allowed: Duration) {
        if !std::mem::replace(&mut self.is_excused, true) {
            let spent = allowed.saturating_sub(HEARING).as_nanos();
            let spent = u64::try_from(spent).unwrap_or(u64::MAX);
            let at = Moment::from_nanos(now.as_nanos().saturating_sub(spent));
            self.at = self.at.max(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Duration = Duration::from_millis(500);

    #[test]
    fn silence_over_a_pause_is_excused_once() {
        let start = Moment::from_nanos(1_000_000_000);
        let woken = start + Duration::from_secs(3);
        let mut heard = Heard::new(start);
        heard.excuse(woken, ALLOWED);
        assert_eq!(heard.ago(woken), ALLOWED - HEARING);
        let again = woken + Duration::from_secs(1);
        heard.excuse(again, ALLOWED);
        assert!(heard.ago(again) > ALLOWED, "it was not heard meanwhile");

        let mut heard = Heard::new(start);
        let soon = start + Duration::from_millis(10);
        heard.excuse(soon, ALLOWED);
        assert_eq!(heard.ago(soon), Duration::from_millis(10), "never longer");
    }
}
