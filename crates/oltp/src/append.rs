//! Runs that take turns with others: a later one's steps become further repeats of the first.

use ashlar_lab::{LabError, UNFINISHED, differ};

use crate::compare::settings_differ;
use crate::database::Description;
use crate::result::{Method, OltpResult};

impl OltpResult {
    /// Adds what a later run of the same plan has measured.
    ///
    /// # Errors
    /// A usage error if it was another plan or another database; nothing is added then.
    pub fn append(&mut self, later: Self) -> Result<(), LabError> {
        self.check_alike(&later)?;
        // Of a run that was killed there are whole steps. If they are whole repeats, nothing is missing from it now.
        if self.is_of_whole_repeats() {
            self.head.problems.retain(|problem| problem != UNFINISHED);
        }
        let done = self.repeats();
        self.steps.extend(later.steps.into_iter().map(|mut step| {
            step.repeat += done;
            step
        }));
        self.method.repeats = done + later.method.repeats;
        self.failed = self.failed.take().or(later.failed);
        // Both are told again from the steps; what ended a run before it had one is not in them.
        self.head.flags.clear();
        let of_steps = |problem: &String| {
            let mut steps = self.steps.iter().flat_map(|step| &step.problems);
            steps.any(|told| problem.ends_with(told.as_str()))
        };
        let all = std::mem::take(&mut self.head.problems).into_iter();
        let all = all.chain(later.head.problems);
        let kept = all.filter(|problem| !of_steps(problem)).collect();
        self.head.problems = kept;
        self.head.partial = self.failed.is_some() || !self.head.problems.is_empty();
        self.sum_up();
        Ok(())
    }

    /// Whether each repeat that it has is of all numbers of users.
    fn is_of_whole_repeats(&self) -> bool {
        let planned = match &self.method.users[..] {
            [] => self.users(),
            users => users.to_vec(),
        };
        let has = |at| {
            let mut steps = self.steps.iter();
            steps.any(|step| (step.users, step.repeat) == at)
        };
        let mut steps = self.steps.iter();
        steps.all(|step| planned.iter().all(|&users| has((users, step.repeat))))
    }

    /// Whether a run of this database and plan would be further repeats of this one: to be asked before
    /// anything is measured, since what was measured is lost if it is not.
    ///
    /// # Errors
    /// A usage error that names what is not alike.
    pub fn check_alike(&self, later: &Self) -> Result<(), LabError> {
        let mut found = unlike(&self.database, &later.database);
        let plan = |result: &Self| Method {
            repeats: 0,
            users: Vec::new(),
            ..result.method.clone()
        };
        let (ours, theirs) = (plan(self), plan(later));
        found.extend(differ("warehouses", ours.warehouses, theirs.warehouses));
        found.extend(differ("--users", planned(self), planned(later)));
        if found.is_empty() && ours != theirs {
            found.push("other options (mode, mix, times, seed, --restore, --think …)".into());
        }
        let (one, other) = (&self.head.machine, &later.head.machine);
        found.extend(differ("processor", &one.cpu_model, &other.cpu_model));
        found.extend(differ("cores", one.cores, other.cores));
        found.extend(differ("kernel", &one.kernel, &other.kernel));
        found.extend(differ("lab", &one.lab_version, &other.lab_version));
        match found.is_empty() {
            true => Ok(()),
            false => Err(LabError::usage(format!(
                "--append: the run that is there is another one, and repeats must be alike: {}",
                found.join("; ")
            ))),
        }
    }
}

/// The numbers of users, whatever their order. A repeat is a block of steps: blocks of others have no partners
/// in the blocks of the run with which this one takes turns, and were measured on another past of the database.
fn planned(result: &OltpResult) -> String {
    let mut users = result.method.users.clone();
    users.sort_unstable();
    if users.is_empty() {
        users = result.users();
    }
    let users: Vec<String> = users.iter().map(usize::to_string).collect();
    users.join(",")
}

/// What two databases differ in, of what a result tells.
fn unlike(one: &Description, other: &Description) -> Vec<String> {
    let of = [
        differ("database", &one.target, &other.target),
        differ("kind", &one.kind, &other.kind),
        differ("version", &one.version, &other.version),
        differ("sql", &one.sql, &other.sql),
    ];
    of.into_iter()
        .flatten()
        .chain(settings_differ(one, other))
        .collect()
}

#[cfg(test)]
mod tests {
    use ashlar_lab::ResultFile;

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
        assert!(!first.head.partial && first.head.problems.is_empty());
    }

    #[test]
    fn what_ended_a_run_is_told_once() {
        let mut first = of(&[10.0]);
        let mut later = of(&[20.0]);
        later.steps[0].partial = true;
        later.steps[0].problems = vec!["connection closed".into()];
        later.head.problems = vec!["the disk is gone".into()];
        later.sum_up();
        first.append(later).expect("alike");
        assert!(first.head.partial);
        let expected = ["the disk is gone", "2 users, repeat 2: connection closed"];
        assert_eq!(first.head.problems, expected);
    }

    #[test]
    fn one_that_was_killed_is_whole_again_when_its_repeats_are() {
        let mut killed = of(&[10.0, 20.0]).so_far();
        let mut now = killed.clone();
        now.append(of(&[30.0]).so_far()).expect("alike");
        assert!(now.head.partial, "the later one goes on");
        assert_eq!(now.head.problems, [UNFINISHED]);
        now = killed.clone();
        now.append(of(&[30.0])).expect("alike");
        assert!(
            !now.head.partial && now.head.problems.is_empty(),
            "{:?}",
            now.head.problems
        );
        // A repeat that lacks a number of users stays so.
        killed.method.users = vec![2, 4];
        let mut later = of(&[30.0]);
        later.method.users = vec![2, 4];
        killed.append(later).expect("alike");
        assert!(killed.head.partial);
        assert_eq!(killed.head.problems, [UNFINISHED]);
        // So does what a check has found.
        let mut first = of(&[10.0]);
        first.failed = Some("not as it was saved".into());
        first.append(of(&[20.0])).expect("alike");
        assert!(first.head.partial && first.complaint().is_some());
    }

    #[test]
    fn another_plan_or_database_is_refused() {
        let mut first = of(&[10.0]);
        let mut refuses = |change: fn(&mut OltpResult), name: &str| {
            let mut other = of(&[20.0]);
            change(&mut other);
            let error = first.append(other).expect_err(name);
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(name), "{error}");
        };
        refuses(|other| other.method.seed = 2, "seed");
        refuses(|other| other.method.warehouses = 7, "warehouses");
        let users = |other: &mut OltpResult| other.method.users = vec![4, 1];
        refuses(users, "--users differs: 2 against 1,4");
        refuses(
            |other| other.steps[0].users = 3,
            "--users differs: 2 against 3",
        );
        refuses(|other| other.database.target = "b".into(), "database");
        refuses(|other| other.database.sql = "client".into(), "sql");
        refuses(|other| other.database.version = "16".into(), "version");
        let set = |other: &mut OltpResult| {
            let settings = &mut other.database.settings;
            settings.insert("full_page_writes".into(), "off".into());
        };
        refuses(set, "full_page_writes differs: - against off");
        refuses(|other| other.head.machine.kernel = "7".into(), "kernel");
        assert_eq!(first, of(&[10.0]));
    }
}
