//! A daemon inside the test, and the binary that asks it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use ashlar_node::testing::FakeControl;
use ashlar_node::{Alarm, Config, Daemon, Ready};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{self, Ended, TEST_TIMEOUT, ended};

pub struct Node {
    pub dir: TempDir,
    pub control: Arc<FakeControl>,
    pub ready: Ready,
    alarm: Alarm,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let config = Config::default().overridden(None, "127.0.0.1:0".parse().ok());
        let daemon = Daemon::open(dir.path(), config).expect("it opens");
        let control = Arc::new(FakeControl::new());
        let (alarm, run) = (daemon.alarm(), control.clone());
        let (sender, ready) = channel();
        let thread = std::thread::spawn(move || {
            let result = daemon.run(run, |ready| {
                sender.send(ready.clone()).expect("the test waits");
                Ok(())
            });
            assert!(result.is_err(), "it ends by the alarm");
        });
        let ready = ready.recv_timeout(TEST_TIMEOUT).expect("it gets ready");
        Self {
            dir,
            control,
            ready,
            alarm,
            thread: Some(thread),
        }
    }

    pub fn token(&self) -> PathBuf {
        self.dir.path().join("api.token")
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.ready.api.expect("it listens on TCP"))
    }

    /// Runs the binary with these words and this daemon.
    pub fn run(&self, words: &str) -> Ended {
        let mut command = ashlar(self.dir.path(), words);
        ended(command.arg("--api").arg(&self.ready.socket))
    }

    /// The same where it must succeed; what it prints.
    pub fn done(&self, words: &str) -> String {
        let ended = self.run(words);
        assert_eq!(ended.code, 0, "{words}: {}", ended.error);
        ended.out
    }

    /// The same with `--json`.
    pub fn json(&self, words: &str) -> Value {
        let out = self.done(&format!("{words} --json"));
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{words}: {error}: {out}"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.alarm.raise("the test is over");
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || std::thread::panicking());
    }
}

/// The binary with these words, in a directory.
pub fn ashlar(folder: &Path, words: &str) -> Command {
    let mut command = common::ashlar(words.split_whitespace());
    command.current_dir(folder);
    command
}
