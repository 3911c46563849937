//! `[measure]` of a scenario of databases, and which of its keys a scenario has a use for.

use ashlar_lab::scenario::seconds;
use ashlar_lab::{LabError, Scale};
use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::file::OltpScenario;

/// Of a step, unless the scenario says so.
const USUAL_SECONDS: f64 = 60.0;
const USUAL_RAMP: f64 = 10.0;

/// Less than this is not measured, however small the scale; nor more than is written.
const LEAST_SECONDS: f64 = 2.0;
const LEAST_RAMP: f64 = 0.5;
const LEAST_REPEATS: u32 = 3;

/// `[measure]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MeasureSection {
    /// Measured seconds of a step, 60 if absent; fixed work and scans have none.
    pub seconds: Option<f64>,
    /// Seconds of load before, from the last login on, 10 if absent; fixed work and scans have none.
    pub ramp: Option<f64>,
    /// Repeats, interleaved.
    pub repeat: u32,
    /// Seed of data and inputs.
    pub seed: u64,
}

impl Default for MeasureSection {
    fn default() -> Self {
        Self {
            seconds: None,
            ramp: None,
            repeat: 3,
            seed: 1,
        }
    }
}

impl MeasureSection {
    /// Measured seconds of a step.
    pub fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(USUAL_SECONDS)
    }

    /// Seconds of load before.
    pub fn ramp(&self) -> f64 {
        self.ramp.unwrap_or(USUAL_RAMP)
    }

    pub(super) fn measured(&self) -> Result<Duration, LabError> {
        seconds("seconds", self.seconds())
    }

    pub(super) fn ramped(&self) -> Result<Duration, LabError> {
        seconds("ramp", self.ramp())
    }

    /// Its times and repeats at a scale.
    pub(super) fn scale(&mut self, scale: Scale) {
        self.seconds = Some(shrink(self.seconds(), LEAST_SECONDS, scale));
        self.ramp = Some(shrink(self.ramp(), LEAST_RAMP, scale));
        let repeats = (f64::from(self.repeat) * scale.factor()).ceil() as u32;
        self.repeat = repeats.max(LEAST_REPEATS).min(self.repeat);
    }
}

/// A figure at a scale: not below the least, nor above what is written.
pub(super) fn shrink(value: f64, least: f64, scale: Scale) -> f64 {
    (value * scale.factor()).max(least).min(value)
}

impl OltpScenario {
    /// Refuses times of what goes on until its work is done: they would say what is not so.
    pub(super) fn check_times(&self) -> Result<(), String> {
        let work = match (&self.scan, &self.oltp) {
            (Some(_), _) => "a scan takes as long as it takes to read all of scan.rows",
            (None, Some(oltp)) if oltp.transactions.is_some() => {
                "fixed work takes as long as oltp.transactions of each user take"
            }
            _ => return Ok(()),
        };
        let MeasureSection { seconds, ramp, .. } = self.measure;
        for (key, given) in [("seconds", seconds), ("ramp", ramp)] {
            if let Some(given) = given {
                return Err(format!("measure.{key} = {given}: {work}, and has no {key}"));
            }
        }
        Ok(())
    }
}
