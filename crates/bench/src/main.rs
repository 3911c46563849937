//! `make bench`: ratios between things measured in turn on one machine, never absolute claims.
//!
//! # Where it stands
//!
//! Outside. It starts the `ashlar` binary as any user would (`serve`, `lab sweep`), speaks to it over
//! sockets, and reads what the kernel says about its processor time. Of the other rooms it uses only
//! the words of the protocol (for its own raw client) and the lab's result format; and the storage
//! engine, which it drives itself, over drives that count, and the cache's policy.
//!
//! ```text
//! parts/bare   raw client ─▶ ashlar serve | bare socket server      IOPS, server CPU
//! parts/local  ashlar lab sweep: file | ashlar serve ─▶ file        IOPS
//! parts/idle   no host, or idle ones ─▶ ashlar serve                server CPU
//! parts/cores  1 or 2 connections ─▶ ashlar serve, 1 or 2 cores     server CPU a command
//! parts/hoarders   a writer ─▶ ashlar serve ◀─ 64 queues that owe data   IOPS, longest wait
//! parts/replicas   ashlar lab sweep: a volume of one copy | of two    IOPS, latency, by where hosts are
//!                  raw client ──TCP──▶ the same two, in turn          processor time and bytes a write
//! engine/cost      load ─▶ engine ─▶ drives that count              device bytes a user byte
//! engine/recovery  crash ─▶ import                                  seconds, memory
//! engine/reads     load ─▶ engine ─▶ files | the same files         IOPS
//! policy           traces ─▶ the cache's policy | others             hit ratios
//! slow             load ─▶ cache ─▶ modelled disk | the disk     accesses a modelled second
//! parts/peer   a peer's perf tool ─▶ ashlar serve | a peer's target IOPS, target CPU
//! ```
//!
//! # Invariants
//!
//! * What is compared is measured A, B, A, B …; a ratio is the median of the pairs' ratios, with the
//!   smallest and the largest beside it.
//! * The same client code drives both sides of a comparison.
//! * No child outlives this process, however it ends: see [`child`].
//!
//! # Deliberately not here
//!
//! Pass or fail: goals are printed beside ratios. Latency percentiles and sweeps: they are the lab's.

mod args;
mod bare;
mod child;
mod cpu;
mod engine;
mod failure;
mod figures;
mod parts;
mod policy;
mod raw;
mod report;
mod serve;
mod signals;
mod slow;
mod volume;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Hidden};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers, not errors. Printing fails only if the reader is gone.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let outcome = match &arguments.hidden {
        Some(Hidden::BareServer(shape)) => bare::run(shape),
        Some(Hidden::Spawn(spawn)) => Err(child::become_program(spawn)),
        None => parts::run(&arguments.options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
