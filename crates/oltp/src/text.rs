//! Results in words and tables, for a terminal.

use std::fmt::Write;

use ashlar_lab::units::{grouped, human_bytes, human_us};

use crate::inputs::Kind;
use crate::load::BuildResult;
use crate::result::{OltpResult, StepResult, Summary};

impl BuildResult {
    /// What building cost, in a line.
    pub fn line(&self) -> String {
        let server = self
            .server_cpu_s
            .map(|s| format!(", server {s:.1} s"))
            .unwrap_or_default();
        format!(
            "built {} warehouses, {} rows in {:.1} s (all {:.1} s; client CPU {:.2} s{server}): {} \
             rows a client CPU-second",
            self.warehouses,
            grouped(self.rows as f64),
            self.load_s,
            self.seconds,
            self.client_cpu_s,
            grouped(self.rows_per_client_cpu_s),
        )
    }
}

impl StepResult {
    /// The step in a line.
    pub fn line(&self) -> String {
        let orders = self.transactions.get(Kind::NewOrder.name());
        let p95 = orders.map_or(0.0, |orders| orders.latency_us.p95);
        let partial = if self.partial { " (partial)" } else { "" };
        format!(
            "{} users, repeat {}: {} NOPM, {} TPM, new order p95 {}{partial}",
            self.users,
            self.repeat,
            grouped(self.nopm),
            grouped(self.tpm),
            human_us(p95)
        )
    }
}

impl Summary {
    /// All repeats in a line.
    pub fn line(&self) -> String {
        format!(
            "{} users: median {} NOPM, {} TPM over {} repeats, spread {:.1} %",
            self.users,
            grouped(self.nopm),
            grouped(self.tpm),
            self.repeats,
            self.spread * 100.0
        )
    }
}

impl OltpResult {
    /// The result as a table for a terminal.
    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_text(&mut out);
        out
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        let d = &self.database;
        writeln!(out, "{}, {} ({})", d.target, d.version, d.sql)?;
        if let Some(build) = &self.build {
            writeln!(out, "{}", build.line())?;
        }
        if !self.steps.is_empty() {
            writeln!(
                out,
                "{:>5} {:>6} {:>10} {:>10} {:>9} {:>9} {:>11} {:>11} {:>10} {:>10}  consistency",
                "users",
                "repeat",
                "NOPM",
                "TPM",
                "client s",
                "server s",
                "NO/client s",
                "NO/server s",
                "read/tx",
                "write/tx"
            )?;
        }
        for step in &self.steps {
            self.write_step(out, step)?;
        }
        for summary in self.summary.iter().filter(|summary| summary.repeats > 1) {
            writeln!(out, "{}", summary.line())?;
        }
        for (what, texts) in [("flag", &self.head.flags), ("problem", &self.head.problems)] {
            texts
                .iter()
                .try_for_each(|text| writeln!(out, "{what}: {text}"))?;
        }
        Ok(())
    }

    fn write_step(&self, out: &mut String, step: &StepResult) -> std::fmt::Result {
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        let failed = step.consistency.failed();
        let consistency = match (step.consistency.0.len(), failed.is_empty()) {
            (0, _) => "not checked".to_owned(),
            (_, true) => "pass".to_owned(),
            _ => format!("FAIL {failed:?}"),
        };
        let bytes = step.device_bytes_per_transaction;
        writeln!(
            out,
            "{:>5} {:>6} {:>10} {:>10} {:>9.2} {:>9} {:>11} {:>11} {:>10} {:>10}  {consistency}",
            step.users,
            step.repeat,
            grouped(step.nopm),
            grouped(step.tpm),
            step.client_cpu_s,
            or_dash(step.server_cpu_s.map(|s| format!("{s:.2}"))),
            grouped(step.new_orders_per_client_cpu_s),
            or_dash(step.new_orders_per_server_cpu_s.map(grouped)),
            or_dash(bytes.map(|(read, _)| human_bytes(read as u64))),
            or_dash(bytes.map(|(_, written)| human_bytes(written as u64))),
        )?;
        for kind in Kind::ALL {
            let Some(of) = step.transactions.get(kind.name()) else {
                continue;
            };
            let l = &of.latency_us;
            writeln!(
                out,
                "      {:<13} {:>9}  p50 {:>8}  p95 {:>8}  p99 {:>8}  errors {}  retries {}",
                kind.name(),
                grouped(of.count as f64),
                human_us(l.p50),
                human_us(l.p95),
                human_us(l.p99),
                of.errors,
                of.retries
            )?;
        }
        Ok(())
    }
}
