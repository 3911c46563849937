use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ashlar_node::ORDERS;
use tracing::Event;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};

/// How many lines of one kind are logged: some at once, and then one now and then.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    at_once: u32,
    /// After how long there is one more.
    refill: Duration,
}

/// At most about 20,000 lines a day of a fault that never ends.
const USUAL: Allowance = Allowance {
    at_once: 30,
    refill: Duration::from_secs(5),
};

/// What an operator has ordered is a record, not a fault: a script that makes hundreds of volumes is seen whole.
const OF_ORDERS: Allowance = Allowance {
    at_once: 1000,
    refill: Duration::from_millis(200),
};

/// Lines of one kind, that is of one place in the source.
struct Kind {
    credit: u32,
    refilled: Instant,
    left_out: u64,
    /// The first line that was left out since it was last said.
    first: String,
}

/// Lines of one kind that were not logged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub count: u64,
    /// The text of the first of them.
    pub first: String,
}

/// Counts lines by kind.
#[derive(Default)]
pub(super) struct Limiter {
    kinds: Mutex<HashMap<Identifier, Kind>>,
}

impl Limiter {
    /// Whether an event's line may be logged now.
    pub fn admit(&self, event: &Event<'_>, now: Instant) -> bool {
        let metadata = event.metadata();
        let allowance = match metadata.target() {
            ORDERS => OF_ORDERS,
            _ => USUAL,
        };
        let mut kinds = self.lock();
        let kind = kinds
            .entry(metadata.callsite())
            .or_insert_with(|| Kind::new(allowance, now));
        if kind.take(allowance, now) {
            return true;
        }
        if kind.left_out == 0 {
            let mut message = Message::default();
            event.record(&mut message);
            kind.first = message.0;
        }
        kind.left_out += 1;
        false
    }

    /// What was left out since this was asked last.
    pub fn take_left_out(&self) -> Vec<LeftOut> {
        let mut kinds = self.lock();
        let left_out = kinds.values_mut().filter(|kind| kind.left_out > 0);
        let left_out = left_out.map(|kind| LeftOut {
            count: std::mem::take(&mut kind.left_out),
            first: std::mem::take(&mut kind.first),
        });
        left_out.collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identifier, Kind>> {
        // A panic between two of its counters leaves a count that is off by one.
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kind {
    fn new(allowance: Allowance, now: Instant) -> Self {
        Self {
            credit: allowance.at_once,
            refilled: now,
            left_out: 0,
            first: String::new(),
        }
    }

    /// Takes a line's credit, if there is any.
    fn take(&mut self, allowance: Allowance, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.refilled).as_nanos();
        let refills = passed / allowance.refill.as_nanos();
        let refills = u32::try_from(refills).unwrap_or(u32::MAX);
        if refills >= allowance.at_once - self.credit {
            (self.credit, self.refilled) = (allowance.at_once, now);
        } else {
            self.credit += refills;
            self.refilled += allowance.refill * refills;
        }
        let has_some = self.credit > 0;
        self.credit = self.credit.saturating_sub(1);
        has_some
    }
}

/// An event's text.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            // A string takes whatever is written to it.
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
    use tracing_subscriber::registry::Registry;

    use super::*;

    /// Admits events at a moment that the test sets, and counts those that pass.
    struct Clocked {
        limiter: Arc<Limiter>,
        now: Arc<Mutex<Instant>>,
        passed: Arc<Mutex<Vec<u64>>>,
    }

    impl Layer<Registry> for Clocked {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, Registry>) {
            let now = *self.now.lock().expect("clock");
            if self.limiter.admit(event, now) {
                self.passed
                    .lock()
                    .expect("list")
                    .push(u64::from(event.metadata().line().expect("line")));
            }
        }
    }

    #[test]
    fn a_kind_that_comes_too_often_is_cut_and_counted_and_no_other_pays_for_it() {
        let limiter = Arc::new(Limiter::default());
        let now = Arc::new(Mutex::new(Instant::now()));
        let passed = Arc::new(Mutex::new(Vec::new()));
        let log = Registry::default().with(Clocked {
            limiter: limiter.clone(),
            now: now.clone(),
            passed: passed.clone(),
        });
        let count = || std::mem::take(&mut *passed.lock().expect("list")).len() as u32;
        tracing::subscriber::with_default(log, || {
            let fault = |number: u32| tracing::warn!(number, "fault {number}");
            (0..1000).for_each(fault);
            assert_eq!(count(), USUAL.at_once);
            tracing::warn!("something else");
            assert_eq!(count(), 1, "another kind has its own allowance");
            let first = format!("fault {}", USUAL.at_once);
            let left_out = u64::from(1000 - USUAL.at_once);
            let said = limiter.take_left_out();
            assert_eq!(
                said,
                [LeftOut {
                    count: left_out,
                    first
                }]
            );
            assert_eq!(limiter.take_left_out(), [], "it is said once");

            *now.lock().expect("clock") += USUAL.refill * 3;
            (0..10).for_each(fault);
            assert_eq!(count(), 3);
            *now.lock().expect("clock") += USUAL.refill * 3600;
            (0..1000).for_each(fault);
            assert_eq!(count(), USUAL.at_once, "a quiet hour is not saved up");

            (0..500).for_each(|number| tracing::info!(target: ORDERS, "order {number}"));
            assert_eq!(count(), 500, "orders are a record");
        });
    }
}
