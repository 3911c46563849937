//! What the database and the machine counted between two moments.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ashlar_lab::LabError;

use super::measured::Measured;
use crate::database::{ServerPlace, Watcher};
use crate::inputs::Kind;
use crate::result::StepResult;
use crate::usage::{Usage, Used};

/// What is read at the beginning and at the end of the measured time.
pub(super) struct Mark {
    at: Instant,
    /// The same by the clock.
    clock: SystemTime,
    orders: Option<i64>,
    transactions: Option<u64>,
    usage: Usage,
}

impl Mark {
    /// Of a database that does not answer, whose storage may not either.
    pub(super) fn unanswered(place: &ServerPlace, why: &LabError) -> Self {
        let place = ServerPlace {
            storage: Err(why.to_string()),
            ..place.clone()
        };
        Self {
            usage: Usage::now(&place),
            at: Instant::now(),
            clock: SystemTime::now(),
            orders: None,
            transactions: None,
        }
    }

    pub(super) fn now(watcher: &mut dyn Watcher, place: &ServerPlace) -> Self {
        let usage = Usage::now(place);
        let transactions = watcher.transactions().ok().flatten();
        let orders = watcher.next_orders().ok();
        Self {
            at: Instant::now(),
            clock: SystemTime::now(),
            orders,
            transactions,
            usage,
        }
    }
}

/// What passed between two marks, or between several pairs of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Span {
    /// Seconds of Unix time.
    began_unix_s: f64,
    pub(crate) elapsed_s: f64,
    /// New orders, if the database could be asked.
    orders: Option<u64>,
    /// Transactions by the database's count, if it has one.
    transactions: Option<u64>,
    used: Used,
}

impl Span {
    /// Users were elsewhere, and used so many processor seconds there.
    pub(super) fn loaded_from_elsewhere(&mut self, cpu_s: f64) {
        self.used.client_cpu_s = cpu_s;
    }

    pub(super) fn between(first: &Mark, last: Mark) -> Self {
        let orders = first.orders.zip(last.orders);
        let transactions = first.transactions.zip(last.transactions);
        let began = first.clock.duration_since(UNIX_EPOCH);
        Self {
            began_unix_s: began.unwrap_or_default().as_secs_f64(),
            elapsed_s: (last.at - first.at).as_secs_f64(),
            orders: orders.map(|(from, to)| (to - from).max(0).unsigned_abs()),
            transactions: transactions.map(|(from, to)| to.saturating_sub(from)),
            used: last.usage.since(&first.usage),
        }
    }

    /// Adds a later one.
    pub(crate) fn add(&mut self, later: Self) {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        self.elapsed_s += later.elapsed_s;
        self.orders = sum(self.orders, later.orders);
        self.transactions = sum(self.transactions, later.transactions);
        self.used.add(later.used);
    }

    /// The figures of what users saw in it.
    pub(crate) fn step(self, measured: &Measured) -> StepResult {
        let elapsed_s = self.elapsed_s;
        // Never nothing, so that no figure is infinite.
        let minutes = (elapsed_s / 60.0).max(1e-9);
        let (orders, nopm_source) = match self.orders {
            Some(orders) => (orders as f64, "d_next_o_id"),
            None => (measured.new_orders() as f64, "client"),
        };
        let (transactions, tpm_source) = match self.transactions {
            Some(transactions) => (transactions as f64, "database"),
            None => (measured.transactions() as f64, "client"),
        };
        let Used {
            client_cpu_s,
            server_cpu_s,
            server_reason,
            machine_cpu_pct,
            device,
        } = self.used;
        let each = |bytes: u64| bytes as f64 / (measured.transactions().max(1)) as f64;
        StepResult {
            nopm: orders / minutes,
            nopm_source: nopm_source.into(),
            tpm: transactions / minutes,
            tpm_source: tpm_source.into(),
            began_unix_s: self.began_unix_s,
            elapsed_s,
            transactions: Kind::ALL
                .into_iter()
                .map(|kind| (kind.name().to_owned(), measured.of(kind)))
                .collect(),
            server_cpu_s,
            server_cpu_reason: server_reason,
            client_cpu_s,
            machine_cpu_pct,
            new_orders_per_client_cpu_s: orders / client_cpu_s.max(1e-9),
            new_orders_per_server_cpu_s: server_cpu_s.filter(|&s| s > 0.0).map(|s| orders / s),
            device_bytes_per_transaction: device
                .read_bytes
                .zip(device.write_bytes)
                .map(|(read, written)| (each(read), each(written))),
            device,
            series: measured.series().to_vec(),
            lateness_us: measured.lateness(),
            lost_users: measured.lost_users,
            problems: measured.problems().to_vec(),
            latencies: measured.latencies(),
            ..StepResult::default()
        }
    }
}
