use std::str::FromStr;
use std::time::Duration;

use crate::units::human_bytes;
use crate::{CellSpec, LabError, Matrix, SweepPlan};

/// How much of a scenario is run, 0 (the least) to 1 (as written).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale(f64);

/// Less than this is not measured, however small the scale.
const LEAST_SIZE: u64 = 128 << 20;
const LEAST_SECONDS: Duration = Duration::from_millis(200);
const LEAST_REPEATS: u32 = 3;
/// Cells x configurations.
const LEAST_POINTS: usize = 64;

impl Scale {
    /// As written.
    pub const FULL: Scale = Scale(1.0);
    /// The least that still means something: well under two minutes for what ships.
    pub const MIN: Scale = Scale(0.0);

    /// The factor; 0 for `min`.
    pub const fn factor(self) -> f64 {
        self.0
    }

    /// Scales a plan and says what that did:
    /// * size, seconds (with warm-up, settling and preconditioning; of matrices with their own, these) and repeats times the factor, but not below
    ///   128 MiB, 0.2 s and 3, and never above what is written;
    /// * points (cells x configurations) times the factor, but not below 64: the longest thread
    ///   and depth axes are thinned, evenly and keeping both ends, until the cells fit. Cells in
    ///   `keep` are never left out.
    pub(super) fn apply(self, plan: &mut SweepPlan, keep: &[CellSpec]) -> String {
        if self == Self::FULL {
            return "as written".to_owned();
        }
        let cells = plan.cells().len();
        if let Some(size) = &mut plan.size {
            *size = ((*size as f64 * self.0) as u64).max(LEAST_SIZE).min(*size) >> 20 << 20;
        }
        let measure = plan
            .measure
            .mul_f64(self.0)
            .max(LEAST_SECONDS)
            .min(plan.measure);
        let share = measure.as_secs_f64() / plan.measure.as_secs_f64();
        plan.measure = measure;
        plan.warmup = plan.warmup.mul_f64(share);
        plan.precondition.settle_limit = plan.precondition.settle_limit.mul_f64(share);
        let repeats = (f64::from(plan.repeats) * self.0).ceil() as u32;
        plan.repeats = repeats.max(LEAST_REPEATS).min(plan.repeats);
        for matrix in &mut plan.matrices {
            let least = (LEAST_SECONDS, LEAST_REPEATS);
            matrix.procedure.scale(self.0, least);
        }
        let points = cells * plan.configurations.len();
        let most = ((points as f64 * self.0).ceil() as usize).max(LEAST_POINTS);
        thin(
            &mut plan.matrices,
            most / plan.configurations.len().max(1),
            keep,
        );
        format!(
            "{} of {cells} cells, {} s x {} repeats, {}",
            plan.cells().len(),
            plan.measure.as_secs_f64(),
            plan.repeats,
            plan.size
                .map_or_else(|| "whole devices".to_owned(), human_bytes)
        )
    }
}

impl FromStr for Scale {
    type Err = LabError;
    fn from_str(text: &str) -> Result<Self, LabError> {
        if text == "min" {
            return Ok(Self::MIN);
        }
        match text.parse::<f64>() {
            Ok(factor) if (0.01..=1.0).contains(&factor) => Ok(Self(factor)),
            _ => Err(LabError::usage(format!(
                "scale {text}: must be min, or 0.01 to 1"
            ))),
        }
    }
}

/// Shortens the axes of all matrices, one step at a time, until at most `most` cells are left or
/// every axis has a single value.
fn thin(matrices: &mut [Matrix], most: usize, keep: &[CellSpec]) {
    let full = matrices.to_vec();
    let longest = |axis: fn(&Matrix) -> usize| full.iter().map(axis).max().unwrap_or(1).max(1);
    let mut threads = longest(|m| m.threads.len());
    let mut depths = longest(|m| m.depths.len());
    loop {
        for (matrix, full) in matrices.iter_mut().zip(&full) {
            if full.cells().all(|cell| keep.contains(&cell)) {
                continue;
            }
            matrix.threads = evenly(&full.threads, threads);
            matrix.depths = evenly(&full.depths, depths);
        }
        let cells: usize = matrices.iter().map(|matrix| matrix.cells().count()).sum();
        if cells <= most || (threads, depths) == (1, 1) {
            return;
        }
        if threads >= depths {
            threads -= 1
        } else {
            depths -= 1
        }
    }
}

/// At most `count` of the values, evenly spread, with both ends; the first if only one.
fn evenly(values: &[u32], count: usize) -> Vec<u32> {
    if count >= values.len() {
        return values.to_vec();
    }
    if count <= 1 {
        return values.first().copied().into_iter().collect();
    }
    let last = values.len() - 1;
    let step = |index: usize| (index * last + (count - 1) / 2) / (count - 1);
    (0..count).map(|index| values[step(index)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_keep_their_ends() {
        let axis = [1, 2, 4, 8, 16, 32, 64, 128];
        assert_eq!(evenly(&axis, 1), [1]);
        assert_eq!(evenly(&axis, 2), [1, 128]);
        assert_eq!(evenly(&axis, 3), [1, 16, 128]);
        assert_eq!(evenly(&axis, 8), axis);
        assert!(evenly(&[], 3).is_empty());
    }

    #[test]
    fn a_scale_is_min_or_a_share() {
        assert_eq!("min".parse(), Ok(Scale::MIN));
        assert_eq!("1".parse(), Ok(Scale::FULL));
        for bad in ["0", "0.001", "1.1", "-1", "NaN", "most"] {
            assert_eq!(
                bad.parse::<Scale>().map_err(|e| e.exit_code()),
                Err(2),
                "{bad}"
            );
        }
    }
}
