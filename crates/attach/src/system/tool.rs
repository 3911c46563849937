//! Tools of the system, run with a time limit: what they do may hang when a volume does.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::AttachError;

/// How often a child is looked after.
const LOOK: Duration = Duration::from_millis(2);
/// How often it is asked whether to wait on.
const WATCH: Duration = Duration::from_millis(100);
/// Where administrators' tools are, whatever the caller's path says.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// How much of a tool's output is kept.
const LONGEST: u64 = 64 << 10;

/// How a tool ended.
pub(crate) struct Ended {
    /// Its exit code; nothing if it was killed.
    pub(crate) code: Option<i32>,
    /// What it printed.
    pub(crate) out: String,
    /// What it complained of, in one line.
    pub(crate) complaint: String,
}

/// Where a tool is.
///
/// # Errors
/// Environment: it is not installed; the message names the package.
pub(crate) fn find(name: &str, package: &str) -> Result<PathBuf, AttachError> {
    let places = FOLDERS
        .iter()
        .map(|folder| PathBuf::from(folder).join(name));
    places
        .into_iter()
        .find(|path| path.exists())
        .ok_or_else(|| {
            AttachError::environment(format!("{name} is not installed (package {package})"))
        })
}

/// Runs a tool to its end, for at most `limit`.
///
/// # Errors
/// Environment: it cannot be started, or took longer. Then it was told to end and is not waited for.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<Ended, AttachError> {
    run_watched(command, limit, || Ok(()))
}

/// As [`run`], and `watch` is asked now and then whether to wait on.
///
/// # Errors
/// Environment: as for [`run`], and what `watch` says.
pub(crate) fn run_watched(
    command: &mut Command,
    limit: Duration,
    mut watch: impl FnMut() -> Result<(), AttachError>,
) -> Result<Ended, AttachError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |why: String| AttachError::environment(format!("{name}: {why}"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env("LC_ALL", "C");
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let out = child.stdout.take().map(collect);
    let complaint = child.stderr.take().map(collect);
    let until = Instant::now() + limit;
    let status = loop {
        let left = until.saturating_duration_since(Instant::now());
        let waited = wait(&mut child, left.min(WATCH));
        let given_up = match waited.map_err(|error| failed(error.to_string()))? {
            Some(status) => break status,
            None if left.is_zero() => failed(format!("not done within {} s", limit.as_secs())),
            None => match watch() {
                Ok(()) => continue,
                Err(why) => why,
            },
        };
        // One that waits for a device goes when the device answers.
        let _ = child.kill();
        return Err(given_up);
    };
    Ok(Ended {
        code: status.code(),
        out: text(out),
        complaint: shortened(&text(complaint)),
    })
}

/// As [`run`], for a tool that must succeed.
///
/// # Errors
/// Environment: with what the tool complained of.
pub(crate) fn succeed(command: &mut Command, limit: Duration) -> Result<String, AttachError> {
    succeed_watched(command, limit, || Ok(()))
}

/// As [`succeed`], and `watch` is asked now and then whether to wait on.
///
/// # Errors
/// Environment: as for [`succeed`], and what `watch` says.
pub(crate) fn succeed_watched(
    command: &mut Command,
    limit: Duration,
    watch: impl FnMut() -> Result<(), AttachError>,
) -> Result<String, AttachError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ended = run_watched(command, limit, watch)?;
    match ended.code {
        Some(0) => Ok(ended.out),
        code => {
            let how = code.map_or("was killed".into(), |code| format!("exit code {code}"));
            let why = match ended.complaint.is_empty() {
                true => ended.out,
                false => ended.complaint,
            };
            let why = format!("{name}: {how}: {}", why.trim());
            Err(AttachError::environment(why))
        }
    }
}

/// Waits for a child; nothing if it has not ended within `limit`.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let until = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}

/// In one line, and without the list of all options that some tools add.
fn shortened(complaint: &str) -> String {
    let lines = complaint
        .lines()
        .take_while(|line| !line.starts_with("Usage"));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    words.join(" ")
}

/// Reads in a thread: a child whose output is not read would wait.
fn collect(from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What could be read until an error is what there is.
        let _ = from.take(LONGEST).read_to_end(&mut bytes);
        bytes
    })
}

fn text(bytes: Option<JoinHandle<Vec<u8>>>) -> String {
    let bytes = bytes.and_then(|thread| thread.join().ok());
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_hangs_is_not_waited_for() {
        let start = Instant::now();
        let mut sleep = Command::new("sleep");
        let ended = run(sleep.arg("30"), Duration::from_millis(50));
        let why = ended.err().expect("it took too long").to_string();
        assert!(why.contains("sleep"), "{why}");
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_tool_that_fails_is_quoted() {
        let mut shell = Command::new("sh");
        let result = succeed(
            shell.args(["-c", "echo no such thing >&2; exit 7"]),
            Duration::from_secs(10),
        );
        let why = result.expect_err("it failed").to_string();
        assert!(why.contains("exit code 7: no such thing"), "{why}");
    }
}
