//! What must be so, and whether it is.

use ashlar_lab::LabError;
use ashlar_lab::result::Check;

use super::crash::Crashes;

/// All that can be said of the parts that were done.
pub(super) fn checks(disk: Option<&Crashes>, volume: Option<&Crashes>) -> Vec<Check> {
    let mut found = Vec::new();
    if let Some(writes) = disk.and_then(|disk| disk.data_writes.as_ref()) {
        // Both places are reached the same way; only on the disk a write can still be seen as it came.
        found.push(Check {
            name: "split writes".into(),
            passed: writes.splitting_a_page == 0,
            text: format!(
                "{} of {} writes of data split a page on their way{}",
                writes.splitting_a_page,
                writes.writes,
                match writes.splitting_a_page {
                    0 => "",
                    _ => ": on a volume, too, such a page may be torn, however atomic its writes are",
                }
            ),
        });
    }
    // What was broken off proves what it has found, and not that there was nothing to be found.
    if let Some(disk) = disk.filter(|disk| !disk.partial || disk.broken > 0) {
        let (broken, all) = (disk.broken, disk.cuts.len());
        found.push(Check {
            name: "the disk breaks".into(),
            passed: broken > 0,
            text: format!(
                "{broken} of {all} power cuts left a broken database on the plain disk{}",
                match broken {
                    0 => ": nothing was proven, of the volume neither",
                    _ => "",
                }
            ),
        });
    }
    for place in [disk, volume].into_iter().flatten() {
        found.push(Check {
            name: "flushes".into(),
            passed: place.commits_not_made_durable == 0,
            text: format!(
                "{}: {} of {} commits were acknowledged without a flush",
                place.place, place.commits_not_made_durable, place.commits
            ),
        });
    }
    if let Some(volume) = volume.filter(|volume| !volume.partial || !volume.cuts.is_empty()) {
        let complaints = volume.cuts.iter().filter_map(|cut| {
            let text = cut.complaint.as_ref()?;
            Some(format!("; power cut {}: {text}", cut.seed()))
        });
        let complaints: String = complaints.collect();
        let (broken, all) = (volume.broken, volume.cuts.len());
        found.push(Check {
            name: "power cuts".into(),
            passed: broken == 0,
            text: format!("{broken} of {all} left a broken database on the volume{complaints}"),
        });
    }
    found
}

/// A check that failed is a failure of the command.
pub(super) fn verdict(checks: &[Check]) -> Result<(), LabError> {
    let failed = checks.iter().filter(|check| !check.passed);
    let texts: Vec<String> = failed
        .map(|check| format!("{}: {}", check.name, check.text))
        .collect();
    match texts.is_empty() {
        true => Ok(()),
        false => Err(LabError::check(texts.join("; "))),
    }
}

/// How a run ends: a check that has failed counts more than what broke the run off.
pub(super) fn ending(checks: &[Check], others: [Result<(), LabError>; 2]) -> Result<(), LabError> {
    let others: Vec<LabError> = others.into_iter().filter_map(Result::err).collect();
    match verdict(checks) {
        Err(LabError::Check(text)) => {
            let others = others.iter().map(|error| format!("; {error}"));
            Err(LabError::check(text + &others.collect::<String>()))
        }
        verdict => others.into_iter().next().map_or(verdict, Err),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::Cut;

    #[test]
    fn a_run_that_was_broken_off_is_judged_by_what_it_has_found() {
        let interrupted = || [Err(LabError::environment("interrupted")), Ok(())];
        let mut disk = crashes("disk", 0);
        (disk.broken, disk.partial) = (0, true);
        let mut volume = Crashes::none("volume");
        volume.partial = true;
        let found = checks(Some(&disk), Some(&volume));
        assert!(found.iter().all(|check| check.passed), "{found:?}");
        assert!(found.iter().all(|check| check.name != "power cuts"));
        let ended = ending(&found, interrupted()).expect_err("broken off");
        assert_eq!(ended.exit_code(), 3);
        volume.cuts.push(Cut::with(7, Some("a page is torn")));
        volume.broken = 1;
        let found = checks(Some(&disk), Some(&volume));
        let ended = ending(&found, interrupted()).expect_err("broken");
        assert_eq!(ended.exit_code(), 1);
        let text = ended.to_string();
        assert!(
            text.contains("a page is torn") && text.contains("interrupted"),
            "{text}"
        );
        assert!(ending(&[], [Ok(()), Ok(())]).is_ok());
        let left = ending(&[], [Ok(()), Err(LabError::environment("mounted"))]);
        assert_eq!(left.map_err(|error| error.exit_code()), Err(3));
    }
    use crate::recording::DataWrites;

    fn crashes(place: &'static str, splitting_a_page: u64) -> Crashes {
        let mut crashes = Crashes::none(place);
        crashes.broken = 3;
        crashes.data_writes = Some(DataWrites {
            writes: 700,
            splitting_a_page,
            largest_bytes: 16_384,
        });
        crashes
    }

    #[test]
    fn one_write_that_splits_a_page_fails_it() {
        let sound = checks(Some(&crashes("disk", 0)), Some(&Crashes::none("volume")));
        assert_eq!(sound.len(), 5);
        assert!(sound.iter().all(|check| check.passed) && verdict(&sound).is_ok());
        let split = checks(Some(&crashes("disk", 1)), Some(&Crashes::none("volume")));
        assert!(!split[0].passed && split[0].text.starts_with("1 of 700"));
        let failure = verdict(&split).expect_err("it must be 0");
        assert_eq!(failure.exit_code(), 1);
    }

    #[test]
    fn a_disk_that_does_not_break_proves_nothing() {
        let mut disk = crashes("disk", 0);
        disk.broken = 0;
        let found = checks(Some(&disk), Some(&Crashes::none("volume")));
        let failed: Vec<&Check> = found.iter().filter(|check| !check.passed).collect();
        assert_eq!(failed.len(), 1);
        assert!(failed[0].text.contains("nothing was proven"), "{found:?}");
        assert_eq!(verdict(&found).map_err(|error| error.exit_code()), Err(1));
    }

    #[test]
    fn a_commit_without_a_flush_fails_it_and_a_broken_disk_does_not() {
        let disk = crashes("disk", 0);
        assert!(verdict(&checks(Some(&disk), None)).is_ok());
        let mut volume = Crashes::none("volume");
        volume.commits_not_made_durable = 1;
        assert!(verdict(&checks(Some(&disk), Some(&volume))).is_err());
        let mut volume = Crashes::none("volume");
        volume.broken = 1;
        assert!(verdict(&checks(None, Some(&volume))).is_err());
    }
}
