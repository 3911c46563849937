//! Runs that take turns with others: a later one's steps become further repeats of the first.

use ashlar_lab::LabError;

use crate::result::{Method, OltpResult};

impl OltpResult {
    /// Adds what a later run of the same plan has measured.
    ///
    /// # Errors
    /// A usage error if it was another plan or another database; nothing is added then.
    pub fn append(&mut self, later: Self) -> Result<(), LabError> {
        self.check_alike(&later)?;
        let done = self.steps.iter().map(|step| step.repeat).max().unwrap_or(0);
        self.steps.extend(later.steps.into_iter().map(|mut step| {
            step.repeat += done;
            step
        }));
        self.method.repeats = done + later.method.repeats;
        self.partial |= later.partial;
        // Both are told again from the steps; what ended a run before it had one is not in them.
        self.flags.clear();
        let of_steps = |problem: &String| {
            let mut steps = self.steps.iter().flat_map(|step| &step.problems);
            steps.any(|told| problem.ends_with(told.as_str()))
        };
        let all = std::mem::take(&mut self.problems).into_iter();
        let all = all.chain(later.problems);
        let kept = all.filter(|problem| !of_steps(problem)).collect();
        self.problems = kept;
        self.sum_up();
        Ok(())
    }

    fn check_alike(&self, later: &Self) -> Result<(), LabError> {
        let plan = |result: &Self| Method {
            repeats: 0,
            ..result.method.clone()
        };
        if self.database.target != later.database.target {
            return Err(LabError::usage(format!(
                "--append: the run that is there is of {}, and not of {}",
                self.database.target, later.database.target
            )));
        }
        if plan(self) != plan(later) {
            return Err(LabError::usage(
                "--append: the run that is there had other options (warehouses, mode, mix, times, seed, \
                 --restore …): repeats must be alike",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nopm: &[f64]) -> OltpResult {
        OltpResult::sample(2, nopm)
    }

    #[test]
    fn later_steps_are_further_repeats() {
        let mut first = of(&[10.0, 20.0]);
        first.append(of(&[40.0])).expect("alike");
        let repeats: Vec<u32> = first.steps.iter().map(|step| step.repeat).collect();
        assert_eq!(repeats, [1, 2, 3]);
        assert_eq!(first.method.repeats, 3);
        assert_eq!((first.summary[0].repeats, first.summary[0].nopm), (3, 20.0));
        assert!(!first.partial && first.problems.is_empty());
    }

    #[test]
    fn what_ended_a_run_is_told_once() {
        let mut first = of(&[10.0]);
        let mut later = of(&[20.0]);
        later.steps[0].partial = true;
        later.steps[0].problems = vec!["connection closed".into()];
        later.problems = vec!["the disk is gone".into()];
        later.sum_up();
        first.append(later).expect("alike");
        assert!(first.partial);
        let expected = ["the disk is gone", "2 users, repeat 2: connection closed"];
        assert_eq!(first.problems, expected);
    }

    #[test]
    fn another_plan_or_database_is_refused() {
        let mut first = of(&[10.0]);
        let mut other = of(&[20.0]);
        other.method.seed = 2;
        assert!(first.append(other).is_err());
        let mut other = of(&[20.0]);
        other.database.target = "b".into();
        assert!(first.append(other).is_err());
        assert_eq!(first, of(&[10.0]));
    }
}
