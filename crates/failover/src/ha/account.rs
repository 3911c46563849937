//! The account of a round that has failed: nothing else is left of it.

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use ashlar_node::client::Client;
use ashlar_node::model::VolumeName;
use ashlar_testbed::nodes::Seat;

use super::round::Scene;

/// Lines of a log that it quotes.
const LINES: usize = 15;
/// How long a node may take to say how a volume is.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

impl Scene<'_> {
    /// Each volume as each node sees it, and what nodes have logged last.
    pub(super) fn account(&self) -> String {
        if self.progress.go_on().is_err() {
            // It was interrupted.
            return String::new();
        }
        let mut lines = Vec::new();
        let other = self.other.iter().map(|other| &other.volume);
        for volume in other.chain([&self.volume]) {
            let names = self.nodes.names.iter();
            lines.extend(names.map(|name| self.seen_at(name, volume)));
        }
        for name in &self.nodes.names {
            let log = self.nodes.folder(&Seat::node(name)).join("log");
            lines.push(format!("the log of {name} ends with"));
            lines.extend(last_lines(&log));
        }
        lines.join("\n")
    }

    fn seen_at(&self, name: &str, volume: &VolumeName) -> String {
        let seen = match self.nodes.client(name) {
            Ok(client) => {
                let volume = volume.clone();
                within(ANSWERS_WITHIN, move || status(&client, &volume))
            }
            Err(error) => error.to_string(),
        };
        format!("node {name} says of {volume}: {seen}")
    }
}

fn status(client: &Client, volume: &VolumeName) -> String {
    let status = client.volume(volume).map_err(|error| error.to_string());
    let told =
        status.and_then(|status| serde_json::to_string(&status).map_err(|error| error.to_string()));
    told.unwrap_or_else(|why| why)
}

/// What is answered in time: a node that has failed may not.
fn within(limit: Duration, ask: impl FnOnce() -> String + Send + 'static) -> String {
    let (said, heard) = channel();
    // Whether or not it is waited for yet.
    std::thread::spawn(move || _ = said.send(ask()));
    let late = |_| format!("nothing within {} s", limit.as_secs());
    heard.recv_timeout(limit).unwrap_or_else(late)
}

/// What a file ends with, or why it cannot be read.
fn last_lines(file: &Path) -> Vec<String> {
    match std::fs::read(file) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().collect();
            let last = lines.iter().skip(lines.len().saturating_sub(LINES));
            last.map(|line| format!("  {line}")).collect()
        }
        Err(error) => vec![format!("  {}: {error}", file.display())],
    }
}

#[cfg(test)]
mod tests {
    use ashlar_lab::OwnFolder;

    use super::*;

    #[test]
    fn a_node_that_does_not_answer_holds_nothing_up() {
        let second = Duration::from_secs(1);
        assert_eq!(within(second * 60, || "well".into()), "well");
        let hung = || {
            std::thread::sleep(Duration::from_secs(60));
            String::new()
        };
        assert_eq!(within(second, hung), "nothing within 1 s");
    }

    #[test]
    fn the_end_of_a_log_is_told_and_why_there_is_none() {
        let folder = OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        let file = folder.path().join("log");
        let all: Vec<String> = (0..40).map(|n| format!("line {n}\n")).collect();
        std::fs::write(&file, all.concat()).expect("written");
        let told = last_lines(&file);
        assert_eq!((told.len(), told[0].as_str()), (LINES, "  line 25"));
        std::fs::write(&file, "one\n").expect("written");
        assert_eq!(last_lines(&file), ["  one"]);
        let none = last_lines(Path::new("/nowhere/log"));
        assert!(none[0].contains("/nowhere/log: No such file"), "{none:?}");
    }
}
