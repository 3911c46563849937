//! How a run ends, whatever it measured: what is printed, and what the exit code says.

use std::path::Path;

use ashlar_lab::{Journal, ResultFile};

use super::interrupt::LastWords;
use super::report_path;
use crate::exit::Failure;
use crate::output::print;

/// Writes result and report, prints what came of it, and fails if a check failed or something did not finish.
pub(super) fn end<R: ResultFile>(result: &R, dir: &Path) -> Result<(), Failure> {
    result.write(dir)?;
    result.write_report(dir)?;
    told(result, Some(dir))?;
    verdict(result)
}

/// The same of a run that can go on; a whole one has ended.
pub(super) fn end_resumable<R: ResultFile>(
    result: &R,
    dir: &Path,
    journal: &mut Journal,
) -> Result<(), Failure> {
    result.write(dir)?;
    result.write_report(dir)?;
    if !result.head().partial {
        journal.end()?;
    }
    told(result, Some(dir))?;
    verdict_of_resumable(result, dir)
}

/// Prints what came of it, and where more of it is.
pub(super) fn told<R: ResultFile>(result: &R, dir: Option<&Path>) -> Result<(), Failure> {
    let mut text = result.text();
    if let Some(dir) = dir {
        let report = report_path(dir);
        let kept = match report.exists() {
            true => report,
            false => dir.join("result.json"),
        };
        text.push_str(&format!("{}\n", kept.display()));
    }
    print(&text)
}

/// A check that failed, or what did not finish.
pub(super) fn verdict<R: ResultFile>(result: &R) -> Result<(), Failure> {
    match result.complaint() {
        Some(text) => Err(Failure::check(text)),
        None if result.head().partial => Err(Failure::environment(problems(result))),
        None => Ok(()),
    }
}

/// The same of a run that can go on.
pub(super) fn verdict_of_resumable<R: ResultFile>(result: &R, dir: &Path) -> Result<(), Failure> {
    verdict(result).map_err(|failure| match result.complaint() {
        Some(_) => failure,
        None => Failure::environment(format!("{}; {}", problems(result), to_go_on(dir))),
    })
}

/// What a run that can go on says in its end.
pub(super) fn to_go_on(dir: &Path) -> String {
    let dir = dir.display();
    format!("what was measured is kept: ashlar lab run --resume {dir}")
}

fn problems<R: ResultFile>(result: &R) -> String {
    result.head().problems.join("; ")
}

/// What is written if the work is left before its end: what was kept, marked as ended.
pub(super) fn last_words<R: ResultFile + Clone + Send + 'static>(
    words: &LastWords,
    so_far: &R,
    dir: &Path,
) {
    let (mut result, dir) = (so_far.clone(), dir.to_owned());
    words.are(move |why| {
        result.head_mut().ended(why);
        // Without a reader there is nothing to tell.
        let _ = result.write(&dir);
        let _ = result.write_report(&dir);
    });
}
