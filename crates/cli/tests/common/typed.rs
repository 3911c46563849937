//! A run that a person types, and ends by Ctrl-C.

#![allow(dead_code)] // Each test program has its own use of it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::common::ashlar;

/// How long a run may take, of those that tests make.
pub const RUN_TIMEOUT: Duration = Duration::from_secs(120);

/// A run in a process group of its own, as a shell makes one for what is typed.
pub struct Typed {
    child: Child,
    said: String,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Typed {
    pub fn start(dir: &Path, words: &str) -> Self {
        let mut child = ashlar(["lab"])
            .args(words.split_whitespace())
            .current_dir(dir)
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let pipe = BufReader::new(child.stderr.take().expect("a pipe"));
        let (tell, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in pipe.lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            said: String::new(),
            lines,
        }
    }

    /// Waits until it says something.
    pub fn says(&mut self, what: &str) {
        let patience = Instant::now() + RUN_TIMEOUT;
        loop {
            let left = patience.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.said += &(line.clone() + "\n"),
                Err(error) => panic!("{what}: {error}: {}", self.said),
            }
            if self.said.contains(what) {
                return;
            }
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to all of the group.
    pub fn signal(&self, signal: Signal) {
        let group = Pid::from_raw(self.child.id() as i32).expect("a number");
        kill_process_group(group, signal).expect("sent");
    }

    /// Kills all of the group, as nothing can be done about.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("it was there");
    }

    /// The same, and waits for the end: an exit code of 3.
    pub fn interrupt(self, signal: Signal) {
        self.signal(signal);
        self.ends();
    }

    /// Waits for the end of what was interrupted: an exit code of 3.
    pub fn ends(self) {
        let said = self.ends_with(3);
        assert!(said.contains("interrupted"), "{said}");
    }

    /// Waits for the end with an exit code; what it said.
    pub fn ends_with(mut self, code: i32) -> String {
        let patience = Instant::now() + RUN_TIMEOUT;
        let status = loop {
            match self.child.try_wait().expect("asked") {
                Some(status) => break status,
                None if Instant::now() > patience => {
                    let _ = self.child.kill();
                    panic!("it does not end: {}", self.said);
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        self.said.extend(self.lines.iter());
        assert_eq!(status.code(), Some(code), "{}", self.said);
        self.said
    }
}

/// Processes that work somewhere below a folder.
pub fn processes_in(dir: &Path) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_in = |number: &u32| {
        let place = std::fs::read_link(format!("/proc/{number}/cwd"));
        place.is_ok_and(|place| place.starts_with(dir))
    };
    numbers.filter(is_in).collect()
}
