use std::sync::Arc;
use std::time::Instant;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::REPORTS;
use super::limit::Limiter;

/// A layer that is not given what comes too often. It is a layer and no filter: where the only filter refuses an event
/// after it enabled its kind, the registry of a debug build takes the next event for a fault of its own and panics.
pub(super) struct Limited<L> {
    inner: L,
    limiter: Arc<Limiter>,
}

impl<L> Limited<L> {
    pub fn new(inner: L, limiter: Arc<Limiter>) -> Self {
        Self { inner, limiter }
    }
}

impl<S: Subscriber, L: Layer<S>> Layer<S> for Limited<L> {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        // Debug and trace are for a short while, by an order that means all of it.
        if *metadata.level() > Level::INFO
            || metadata.target() == REPORTS
            || self.limiter.admit(event, Instant::now())
        {
            self.inner.on_event(event, context);
        }
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        self.inner.on_new_span(attributes, id, context);
    }

    fn on_record(&self, span: &Id, values: &Record<'_>, context: Context<'_, S>) {
        self.inner.on_record(span, values, context);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing_subscriber::filter::Targets;
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::registry::Registry;

    use super::*;

    /// Counts what it is given.
    struct Counted(Arc<Mutex<u32>>);

    impl<S: Subscriber> Layer<S> for Counted {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            *self.0.lock().expect("count") += 1;
        }
    }

    #[test]
    fn what_is_left_out_does_not_keep_the_next_from_being_logged() {
        let count = Arc::new(Mutex::new(0));
        let layer = Limited::new(Counted(count.clone()), Arc::default());
        let filter = Targets::new().with_default(Level::TRACE);
        let log = Registry::default().with(layer.with_filter(filter));
        let taken = || std::mem::take(&mut *count.lock().expect("count"));
        tracing::subscriber::with_default(log, || {
            (0..1000).for_each(|number| tracing::warn!(number, "a fault"));
            assert!((1..100).contains(&taken()));
            tracing::warn!("something else");
            assert_eq!(taken(), 1);
            (0..1000).for_each(|number| tracing::debug!(number, "a step"));
            assert_eq!(taken(), 1000, "what was asked for is not limited");
        });
    }
}
