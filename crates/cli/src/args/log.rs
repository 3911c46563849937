//! What a long-running command logs, and how.

use std::process::Command;

use clap::{Args, ValueEnum};

use crate::log::LogFilter;

const FILTER_VARIABLE: &str = "ASHLAR_LOG";
const FORMAT_VARIABLE: &str = "ASHLAR_LOG_FORMAT";

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Time, level, part of the program, text
    Plain,
    /// A JSON object a line
    Json,
}

/// The log goes to standard error.
#[derive(Args, Clone, Debug)]
pub(crate) struct LogOptions {
    /// What is logged: error, warn, info, debug, trace or off; or by part of the program:
    /// info,ashlar_store=debug
    #[arg(
        long = "log",
        env = FILTER_VARIABLE,
        value_name = "LEVEL|FILTER",
        default_value = "info",
        hide_env_values = true
    )]
    pub(crate) filter: LogFilter,
    /// How a line of the log is written
    #[arg(
        long = "log-format",
        env = FORMAT_VARIABLE,
        value_name = "FORMAT",
        default_value = "plain",
        hide_env_values = true
    )]
    pub(crate) format: LogFormat,
}

impl LogOptions {
    /// Has a process that is to be started log as this one does.
    pub(crate) fn pass_on(&self, command: &mut Command) {
        let format = match self.format {
            LogFormat::Plain => "plain",
            LogFormat::Json => "json",
        };
        command
            .env(FILTER_VARIABLE, self.filter.to_string())
            .env(FORMAT_VARIABLE, format);
    }
}
