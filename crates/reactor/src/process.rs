//! What is left of a process that was killed.

use std::time::Duration;

/// How long what a process had may stay in use after its end: the kernel takes its rings down, and what they hold,
/// after the process is gone.
pub const AFTERLIFE: Duration = Duration::from_secs(5);
/// Of the kernel's flags of a task: it is on its way out, and still holds its files.
const PF_EXITING: u32 = 4;

/// Whether a process has ended or is ending. Its files may not be free yet.
pub fn has_ended(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => is_end(&stat),
        Err(_) => true,
    }
}

fn is_end(stat: &str) -> bool {
    // The name, in parentheses, may hold anything.
    let Some((_, words)) = stat.rsplit_once(") ") else {
        return false;
    };
    let mut words = words.split_ascii_whitespace();
    let state = words.next().unwrap_or_default();
    // Behind the state: parent, group, session, terminal, its group, flags.
    let flags = words.nth(5).and_then(|word| word.parse().ok());
    matches!(state, "Z" | "X") || flags.is_some_and(|flags: u32| flags & PF_EXITING != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel frees the memory of a process first, and its files after that.
    #[test]
    fn one_that_gives_its_memory_back_has_ended() {
        let script = "b = bytearray(256 << 20); print(1, flush=True); import time; time.sleep(99)";
        let mut child = std::process::Command::new("python3")
            .args(["-c", script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("python3");
        let mut said = [0; 2];
        let mut out = child.stdout.take().expect("a pipe");
        std::io::Read::read_exact(&mut out, &mut said).expect("it has its memory");
        let pid = child.id();
        assert!(!has_ended(pid));
        child.kill().expect("killed");
        let program = format!("/proc/{pid}/exe");
        while std::fs::read_link(&program).is_ok() {
            std::hint::spin_loop();
        }
        assert!(
            has_ended(pid),
            "{:?}",
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
        );
        child.wait().expect("ended");
    }

    #[test]
    fn one_that_lives_is_told_from_one_that_ends() {
        assert!(!has_ended(std::process::id()));
        assert!(has_ended(u32::MAX));
        let stat = |state, flags| format!("7 (a) b) {state} 1 7 7 0 -1 {flags} 100 0 0");
        for (state, flags, ends) in [
            ("S", 4_194_560, false),
            ("D", 4_194_564, true),
            ("Z", 4_194_560, true),
            ("X", 0, true),
        ] {
            assert_eq!(is_end(&stat(state, flags)), ends, "{state} {flags}");
        }
        assert!(!is_end(""), "nothing is known of it");
    }
}
