//! The machine that a result belongs to.

use std::fs::read_to_string;

use serde::{Deserialize, Serialize};

/// Description of the measuring machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Processor model.
    pub cpu_model: String,
    /// Processors the lab may use.
    pub cores: u32,
    /// Main memory in bytes.
    pub memory_bytes: u64,
    /// Operating system kernel and release.
    pub kernel: String,
    /// Kinds of the file systems that hold backing files; empty if there are none.
    pub file_systems: Vec<String>,
    /// Version of the lab.
    pub lab_version: String,
    /// Start of the run, seconds since 1970 (UTC).
    pub started_unix_s: u64,
}

impl Machine {
    /// This machine, now.
    pub fn here() -> Self {
        let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = read_to_string("/proc/meminfo").unwrap_or_default();
        let uname = rustix::system::uname();
        let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
        Self {
            cpu_model: field(&cpuinfo, "model name")
                .unwrap_or("unknown")
                .to_owned(),
            cores: crate::cpu::usable_cpus().len() as u32,
            memory_bytes: field(&meminfo, "MemTotal").map_or(0, kib),
            kernel: format!("{} {}", text(uname.sysname()), text(uname.release())),
            file_systems: Vec::new(),
            lab_version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_s: std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        }
    }
}

/// Which start of which kernel this is: the same in all containers of a machine, and in no other machine. Empty if it is
/// not told.
pub(crate) fn boot_id() -> String {
    let text = read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

fn kib(text: &str) -> u64 {
    let number = text
        .split_whitespace()
        .next()
        .and_then(|n| n.parse::<u64>().ok());
    number.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let here = Machine::here();
        assert!(here.cores >= 1 && here.memory_bytes > 1 << 20, "{here:?}");
        assert!(here.kernel.starts_with("Linux "));
        assert_eq!(field("model name\t: X 1\n", "model name"), Some("X 1"));
        assert_eq!(kib("16 kB"), 16384);
        assert_eq!(boot_id().len(), 36, "{}", boot_id());
    }
}
