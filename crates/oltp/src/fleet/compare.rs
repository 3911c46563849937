//! Two runs of a fleet side by side: what it kept up with, and how long transactions took, before and after.

use std::collections::BTreeSet;

use ashlar_lab::{A_RUN_IS_PARTIAL, Comparable, Figure, Figures, Row, differ, machine_cautions};

use super::result::{FleetResult, FleetStep};
use crate::compare::repeat_by_repeat;
use crate::inputs::Kind;

impl Comparable for FleetResult {
    /// Two for each share of the streams that both have: transactions a second, and new orders' 95th percentile.
    fn rows(&self, other: &Self) -> Vec<Row> {
        let row = |figure: Figure| {
            let of = move |percent: u32| {
                let (ours, theirs) = (
                    self.figures(percent, figure),
                    other.figures(percent, figure),
                );
                let all = |of: &[(u32, f64)]| of.iter().map(|(_, figure)| *figure).collect();
                let figures = Figures {
                    all: [all(&ours), all(&theirs)],
                    pairs: repeat_by_repeat(&ours, &theirs),
                };
                Row::of(format!("{percent} % of the streams"), figure, &figures)
            };
            self.percents().into_iter().filter_map(of)
        };
        row(Figure::Tps).chain(row(Figure::NewOrderP95Us)).collect()
    }

    fn cautions(&self, other: &Self) -> Vec<String> {
        let kept = |of: &Self| {
            of.steps
                .iter()
                .all(|step| step.kept() >= super::result::KEPT_UP)
        };
        let databases = |of: &Self| of.databases.len();
        let streams = |of: &Self| {
            let step = of.steps.iter().max_by_key(|step| step.percent);
            step.map_or_else(String::new, FleetStep::streams_told)
        };
        let engine = |of: &Self| format!("{:?}", of.engine);
        let memory = |of: &Self| {
            of.memory_pct
                .map_or("no limit".to_owned(), |pct| pct.to_string())
        };
        let own = [
            differ("engine", engine(self), engine(other)),
            differ("databases", databases(self), databases(other)),
            differ("streams", streams(self), streams(other)),
            differ("rate", self.rate, other.rate),
            differ("warehouses", self.warehouses, other.warehouses),
            differ("sessions", self.sessions, other.sessions),
            differ("memory %", memory(self), memory(other)),
            differ("seconds", self.seconds, other.seconds),
            (!kept(self) || !kept(other)).then(|| {
                "a fleet did not keep up: latencies, counted from when a transaction was due, grow with time".to_owned()
            }),
            (self.head.partial || other.head.partial).then(|| A_RUN_IS_PARTIAL.to_owned()),
        ];
        machine_cautions(&self.head.machine, &other.head.machine)
            .chain(own.into_iter().flatten())
            .collect()
    }

    fn contents(&self) -> String {
        let percents = self.percents();
        let percents: Vec<String> = percents.iter().rev().map(u32::to_string).collect();
        format!("{} % of the streams", percents.join(", "))
    }
}

impl FleetResult {
    /// Shares of the streams, the largest first.
    fn percents(&self) -> Vec<u32> {
        let all: BTreeSet<u32> = self.steps.iter().map(|step| step.percent).collect();
        all.into_iter().rev().collect()
    }

    /// A figure of each whole repeat.
    fn figures(&self, percent: u32, figure: Figure) -> Vec<(u32, f64)> {
        let new_orders = Kind::NewOrder.name();
        let of = |step: &FleetStep| match figure {
            Figure::NewOrderP95Us => Some(step.transactions.get(new_orders)?.latency_us.p95),
            _ => Some(step.tps),
        };
        let steps = self.steps.iter();
        let whole = steps.filter(|step| step.percent == percent && !step.partial);
        whole
            .filter_map(|step| Some((step.repeat, of(step)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use ashlar_lab::Comparison;

    use super::*;
    use crate::result::{KindResult, LatencyUs};

    /// Repeats with these transactions a second, and these percentiles in milliseconds.
    fn of(tps: [f64; 3], p95_ms: [f64; 3]) -> FleetResult {
        let mut run = super::super::result::sample();
        let first = run.steps.remove(0);
        let step = |(repeat, (tps, ms)): (u32, (f64, f64))| {
            let mut step = FleetStep {
                repeat,
                tps,
                offered_tps: 200.0,
                ..first.clone()
            };
            let latency_us = LatencyUs {
                p95: 1000.0 * ms,
                ..LatencyUs::default()
            };
            let kind = KindResult {
                latency_us,
                ..KindResult::default()
            };
            step.transactions.insert("new_order".into(), kind);
            step
        };
        run.steps = (1..).zip(tps.into_iter().zip(p95_ms)).map(step).collect();
        run
    }

    const TPS: [f64; 3] = [200.0, 199.0, 200.5];
    const MS: [f64; 3] = [10.0, 10.1, 9.9];

    #[test]
    fn a_fleet_that_takes_longer_is_worse_although_it_keeps_up() {
        let before = of(TPS, MS);
        let after = of(TPS, MS.map(|ms| 1.3 * ms));
        let found = Comparison::of(&before, &after).expect("compared");
        let below = found.below(0.95);
        assert_eq!(below.len(), 1, "{below:?}");
        assert!(
            below[0].contains("1.30 x the 95th percentile of the first"),
            "{below:?}"
        );
        let text = found.to_string();
        assert!(
            text.contains("TPS 1") && text.contains("p95 ms 2") && text.contains("13.00"),
            "{text}"
        );
        assert!(
            Comparison::of(&after, &before)
                .expect("compared")
                .below(0.95)
                .is_empty()
        );
        let fewer = of(TPS.map(|tps| 0.8 * tps), MS);
        let found = Comparison::of(&before, &fewer).expect("compared");
        assert!(found.below(0.95)[0].contains("0.80 x the first"), "{found}");
        assert!(found.to_string().contains("did not keep up"), "{found}");
    }

    #[test]
    fn fleets_that_are_not_alike_are_told_and_those_without_a_common_step_refused() {
        let (before, mut after) = (of(TPS, MS), of(TPS, MS));
        (after.rate, after.warehouses) = (2.0, 7);
        let found = Comparison::of(&before, &after)
            .expect("compared")
            .to_string();
        assert!(found.contains("rate differs: 1 against 2"), "{found}");
        assert!(
            found.contains("warehouses differs: 100 against 7"),
            "{found}"
        );
        after.steps.iter_mut().for_each(|step| step.percent = 90);
        let refused = Comparison::of(&before, &after).expect_err("nothing common");
        assert!(
            refused
                .to_string()
                .contains("100 % of the streams against 90 %"),
            "{refused}"
        );
    }
}
