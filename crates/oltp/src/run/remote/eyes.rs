//! What looks on at databases while their users work elsewhere.

use std::time::{Duration, Instant};

use ashlar_lab::agent::{Begun, Onlooker};
use ashlar_lab::{LabError, Progress};

use super::Elsewhere;
use crate::remote::COUNTED;
use crate::run::looker::Looker;
use crate::run::plan::{Mode, RunPlan};
use crate::run::span::{Mark, Span};
use crate::usage::DeviceSeries;

/// Whether it is time is looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is looked at beside the databases, in the time of the first of them.
pub(crate) trait Beside {
    /// It counts from now on.
    fn begins(&mut self) {}

    /// It does not count any more.
    fn ends(&mut self) {}
}

/// Nothing is.
impl Beside for () {}

/// What this process saw of a database.
pub(super) struct Seen {
    pub(super) span: Span,
    pub(super) device_series: Vec<(u64, u64)>,
    pub(super) unanswered: Option<LabError>,
}

/// One that looks on at a database.
struct Eye<'a> {
    looker: Looker<'a>,
    plan: &'a RunPlan,
    progress: &'a Progress,
    first: Option<Mark>,
}

/// One for each database; all look at once.
pub(super) struct Eyes<'a> {
    all: Vec<Eye<'a>>,
    beside: &'a mut dyn Beside,
    /// What each saw, in their order.
    pub(super) seen: Vec<Result<Seen, LabError>>,
}

impl<'a> Eyes<'a> {
    /// Logs in to each.
    ///
    /// # Errors
    /// One does not let it in.
    pub(super) fn open(
        all: &'a [Elsewhere<'_>],
        beside: &'a mut dyn Beside,
        progress: &'a Progress,
    ) -> Result<Self, LabError> {
        let eye = |of: &'a Elsewhere<'_>| {
            Ok(Eye {
                looker: Looker::new(of.database, progress)?,
                plan: of.plan,
                progress,
                first: None,
            })
        };
        let all = all.iter().map(eye).collect::<Result<_, LabError>>()?;
        Ok(Self {
            all,
            beside,
            seen: Vec::new(),
        })
    }
}

impl Onlooker for Eyes<'_> {
    /// Of fixed work everything counts: the mark is before the first transaction.
    fn before(&mut self) -> Result<(), LabError> {
        let fixed = self.all.iter_mut().filter(|eye| eye.is_fixed());
        for eye in fixed {
            eye.first = Some(eye.looker.mark()?);
        }
        Ok(())
    }

    fn meanwhile(&mut self, begun: &Begun<'_>) {
        let Some((first, others)) = self.all.split_first_mut() else {
            return;
        };
        self.seen = std::thread::scope(|scope| {
            let others = others
                .iter_mut()
                .map(|eye| scope.spawn(|| eye.watch(begun, &mut ())));
            let others: Vec<_> = others.collect();
            let mut seen = vec![first.watch(begun, self.beside)];
            let lost = |_| Err(LabError::environment("a thread panicked"));
            let others = others.into_iter();
            seen.extend(others.map(|eye| eye.join().unwrap_or_else(lost)));
            seen
        });
    }
}

impl Eye<'_> {
    fn is_fixed(&self) -> bool {
        matches!(self.plan.mode, Mode::Fixed(_))
    }

    /// Looks on from when it counts to the end.
    fn watch(&mut self, begun: &Begun<'_>, beside: &mut dyn Beside) -> Result<Seen, LabError> {
        let (from, first) = match self.first.take() {
            Some(first) => {
                beside.begins();
                (begun.at, first)
            }
            None => {
                let from = begun.at + self.plan.ramp + COUNTED;
                self.wait_until(from, begun);
                // A mark may take long.
                beside.begins();
                (from, self.looker.mark()?)
            }
        };
        let time = match self.is_fixed() {
            true => Duration::MAX,
            false => self.plan.measure,
        };
        let mut device = DeviceSeries::new(Some(self.looker.place()));
        for second in 1.. {
            let next = time.min(Duration::from_secs(second));
            if !self.wait_until(from + next, begun) {
                break;
            }
            if next == Duration::from_secs(second) {
                device.second_has_passed();
            }
            if next == time {
                break;
            }
        }
        beside.ends();
        let (last, unanswered) = self.looker.last_mark();
        Ok(Seen {
            span: Span::between(&first, last),
            device_series: device.seconds,
            unanswered,
        })
    }

    /// False: it has ended before.
    fn wait_until(&self, moment: Instant, begun: &Begun<'_>) -> bool {
        loop {
            let left = moment.saturating_duration_since(Instant::now());
            let is_to_end = !self.is_fixed() && self.progress.go_on().is_err();
            if left.is_zero() || is_to_end || begun.has_ended() {
                return left.is_zero();
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}
