//! What is measured, as OpenMetrics text. `series` says what there is; here it is written.

mod replicas;
mod series;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::model::{ControlError, MetricsSnapshot, ServiceStatus};

/// What the text is.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The text that Prometheus scrapes.
pub(super) fn render(
    snapshot: &MetricsSnapshot,
    services: &[ServiceStatus],
    uptime: Duration,
) -> Result<String, ControlError> {
    let mut registry = Registry::default();
    let mut all = series::all(snapshot, uptime);
    all.extend(series::services(services));
    registry.register_collector(Box::new(All(all)));
    let mut out = String::new();
    text::encode(&mut out, &registry)
        .map_err(|error| ControlError::internal(format!("metrics: {error}")))?;
    Ok(out)
}

/// One metric with all its series. A counter's name is written with `_total`, and a unit's after
/// its name.
#[derive(Debug)]
struct Metric {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
    samples: Vec<(Labels, f64)>,
}

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
struct All(Vec<Metric>);

impl Collector for All {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        self.0
            .iter()
            .filter(|metric| !metric.samples.is_empty())
            .try_for_each(|metric| metric.encode(&mut encoder))
    }
}

impl Metric {
    fn encode(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let unit = self.unit.as_ref();
        let mut family = encoder.encode_descriptor(self.name, self.help, unit, self.kind)?;
        for (labels, value) in &self.samples {
            let mut sample = family.encode_family(labels)?;
            match (self.kind, whole(*value)) {
                (MetricType::Counter, Some(value)) => {
                    sample.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
                }
                (MetricType::Counter, None) => {
                    sample.encode_counter::<NoLabelSet, _, u64>(value, None)?;
                }
                (_, Some(value)) => sample.encode_gauge(&value)?,
                (_, None) => sample.encode_gauge(value)?,
            }
        }
        Ok(())
    }
}

/// A value that is a whole number is written as one.
fn whole(value: f64) -> Option<u64> {
    let fits = value >= 0.0 && value.fract() == 0.0 && value < 2f64.powi(63);
    fits.then_some(value as u64)
}
