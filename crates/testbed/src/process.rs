//! This program's own commands, as processes: what is tested is what ships.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ashlar_lab::LabError;
use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take until it is ready, or gone.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);

/// Where this program is.
///
/// # Errors
/// The kernel does not say.
pub fn own_program() -> Result<PathBuf, LabError> {
    std::env::current_exe().map_err(|error| LabError::caused("this program", error))
}

fn this_program() -> Result<Command, LabError> {
    let mut command = Command::new(own_program()?);
    command.stdin(Stdio::null());
    // A terminal's Ctrl-C is for us: without its daemon a mounted volume could not be left in order.
    command.process_group(0);
    Ok(command)
}

/// Runs a command of ours to its end and gives what it prints.
pub fn ashlar(words: &[&str]) -> Result<String, LabError> {
    finished(this_program()?.args(words), words)
}

/// Runs another program to its end and gives what it prints.
pub fn tool(program: &str, words: &[&str]) -> Result<String, LabError> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).process_group(0);
    finished(&mut command, words)
        .map_err(|error| LabError::environment(format!("{program}: {error}")))
}

fn finished(command: &mut Command, words: &[&str]) -> Result<String, LabError> {
    let what = words.join(" ");
    let output = command
        .output()
        .map_err(|error| LabError::caused(&what, error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(LabError::environment(format!(
        "{what}: {} ({})",
        complaint.trim(),
        output.status
    )))
}

/// A server of ours, ended when it is dropped.
pub struct Process {
    child: Child,
    /// The words after `ready`.
    pub ready: Vec<String>,
}

impl Process {
    /// Starts a command that says `ready …`; what it complains about goes into a log.
    pub fn start(words: &[&str], log: &Path) -> Result<Self, LabError> {
        let failed = |why: String| LabError::caused(words.join(" "), why);
        let errors = File::options().create(true).append(true).open(log);
        let errors = errors.map_err(|error| LabError::caused(log.display(), error))?;
        let mut child = this_program()?
            .args(words)
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let Some(out) = child.stdout.take() else {
            return Err(failed("no pipe".into()));
        };
        let mut process = Self {
            child,
            ready: Vec::new(),
        };
        let (say, said) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            if BufReader::new(out).read_line(&mut line).is_ok() {
                // The waiting thread may have given up.
                let _ = say.send(line);
            }
        });
        let line = said.recv_timeout(SERVER_TIMEOUT).unwrap_or_default();
        let mut told = line.split_whitespace().map(str::to_owned);
        if told.next().as_deref() != Some("ready") {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            let last = text.lines().last().unwrap_or("it does not become ready");
            return Err(failed(last.to_owned()));
        }
        process.ready = told.collect();
        Ok(process)
    }

    /// Ends it in order.
    pub fn stop(mut self) -> Result<(), LabError> {
        self.signal(Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < SERVER_TIMEOUT {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    return Err(LabError::environment(format!("a server ended: {status}")));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => return Err(LabError::caused("a server", error)),
            }
        }
        Err(LabError::environment("a server does not end"))
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // One that has ended already is what is wanted.
        let _ = pid.map(|pid| kill_process(pid, signal));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A mounted volume, detached when it is dropped.
pub struct Attached {
    mount: PathBuf,
    is_attached: bool,
}

impl Attached {
    /// Attaches a namespace that has a file system.
    pub fn attach(url: &str, mount: &Path) -> Result<Self, LabError> {
        std::fs::create_dir_all(mount).map_err(|e| LabError::caused(mount.display(), e))?;
        ashlar(&["attach", url, "--mount", &mount.display().to_string()])?;
        Ok(Self {
            mount: mount.to_owned(),
            is_attached: true,
        })
    }

    /// The block device that is mounted.
    pub fn device(&self) -> Option<String> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let place = self.mount.display().to_string();
        mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let device = words.next()?;
            (words.next()? == place).then(|| device.to_owned())
        })
    }

    /// Detaches in order.
    pub fn detach(mut self) -> Result<(), LabError> {
        self.is_attached = false;
        ashlar(&["detach", &self.mount.display().to_string()]).map(drop)
    }

    /// Detaches whatever is wrong with it.
    pub fn detach_by_force(mut self) -> Result<(), LabError> {
        self.is_attached = false;
        let mount = self.mount.display().to_string();
        ashlar(&["detach", &mount, "--force"]).map(drop)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.is_attached {
            let mount = self.mount.display().to_string();
            // What led here is told; this only cleans up after it.
            let _ = ashlar(&["detach", &mount, "--force"]);
        }
    }
}
