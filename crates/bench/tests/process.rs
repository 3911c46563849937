//! The program as a process: exit codes, and no child without a parent.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const BENCH: &str = env!("CARGO_BIN_EXE_ashlar-bench");

fn code(args: &[&str]) -> (i32, String) {
    let output = Command::new(BENCH)
        .args(args)
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("an exit"), text)
}

#[test]
fn exit_codes_tell_usage_from_environment() {
    assert_eq!(code(&["--only", "everything"]).0, 2);
    assert_eq!(code(&["--rounds", "0"]).0, 2);
    assert_eq!(code(&["--seconds", "0"]).0, 2);
    let dir = tempfile::tempdir().unwrap();
    let (out, missing) = (dir.path().join("out"), dir.path().join("no-ashlar"));
    let (out, missing) = (out.to_str().unwrap(), missing.to_str().unwrap());
    let (three, text) = code(&["--ashlar", missing, "--out", out]);
    assert_eq!(three, 3);
    // Either this machine has one core, or the missing program is named.
    assert!(
        text.contains("no-ashlar") || text.contains("two cores"),
        "{text}"
    );
    // A program that is no ashlar: its end is reported, with its log.
    let (three, text) = code(&["--ashlar", "/bin/false", "--out", out, "--only", "idle"]);
    assert_eq!(three, 3);
    assert!(
        text.contains("ashlar serve") || text.contains("two cores"),
        "{text}"
    );
}

#[test]
fn a_child_dies_with_its_parent() {
    // The shell is the parent; it starts the child as the bench does, says who it is, and is killed.
    let script = format!("{BENCH} spawn --parent $$ -- /bin/sleep 60 & echo $!; wait");
    let mut shell = Command::new("/bin/sh")
        .args(["-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let output = shell.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    let child = line.trim().to_owned();
    let command = format!("/proc/{child}/comm");
    let is =
        |wanted: &str| std::fs::read_to_string(&command).is_ok_and(|name| name.trim() == wanted);
    wait_until(|| is("sleep"));
    shell.kill().unwrap();
    shell.wait().unwrap();
    // Gone, or dead and waiting for the process that adopts orphans here.
    wait_until(|| {
        let status = std::fs::read_to_string(format!("/proc/{child}/status"));
        status.map_or(true, |status| status.contains("State:\tZ"))
    });
}

#[test]
fn a_child_of_another_parent_does_not_start() {
    let (three, text) = code(&["spawn", "--parent", "1", "--", "/bin/true"]);
    assert_eq!(three, 3);
    assert!(text.contains("the parent has ended"), "{text}");
}

fn wait_until(mut what: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while !what() {
        assert!(Instant::now() < give_up, "it did not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}
