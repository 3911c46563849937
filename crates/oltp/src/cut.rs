//! A host that is cut off from others: the kernel drops what comes from their ports, and goes there. All else goes on, so
//! that who has ordered this can end it.
//!
//! What is dropped has its end in the kernel (elements of a set with a timeout), which needs no process for it.

use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use ashlar_lab::LabError;

/// Packets that are dropped, by the name of a table of netfilter's.
pub struct Cut {
    table: String,
}

/// From whom a host is cut off.
pub struct Sides {
    /// Its own address.
    pub own: IpAddr,
    pub others: Vec<IpAddr>,
    /// At which all of them listen.
    pub ports: Vec<u16>,
    pub seconds: u32,
}

impl Cut {
    /// That of the seat with this folder.
    pub fn of(folder: &Path) -> Self {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        // Words of `nft` are none of a name's.
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
        Self {
            table: name.chars().filter(is_plain).collect(),
        }
    }

    /// # Errors
    /// The host's kernel, or this user, cannot.
    pub fn try_out(ip: IpAddr) -> Result<(), LabError> {
        let cut = Self {
            table: format!("ashlar-try-{}", std::process::id()),
        };
        let [make, end] = [cut.words(ip, "", ""), cut.end_words()];
        nft(&(make + &end))
    }

    /// Nothing comes or goes from now on.
    ///
    /// # Errors
    /// The others cannot be told from this host; `nft` complains.
    pub fn begin(&self, sides: &Sides) -> Result<(), LabError> {
        check_apart(sides.own, &sides.others)?;
        let hosts = sides.others.iter();
        let hosts = hosts.map(|ip| format!("{ip} timeout {}s", sides.seconds));
        let ports = sides.ports.iter().map(u16::to_string);
        let [hosts, ports] = [list(hosts), list(ports)];
        nft(&self.words(sides.own, &hosts, &ports))
    }

    /// What is not there is as it should be.
    ///
    /// # Errors
    /// `nft` complains.
    pub fn end(&self) -> Result<(), LabError> {
        nft(&self.end_words())
    }

    fn words(&self, ip: IpAddr, hosts: &str, ports: &str) -> String {
        let (family, kind) = match ip {
            IpAddr::V4(_) => ("ip", "ipv4_addr"),
            IpAddr::V6(_) => ("ip6", "ipv6_addr"),
        };
        let chain = |name: &str, hook: &str, side: &str| {
            let drop = |port| format!("{family} {side} @hosts tcp {port} @ports drop;");
            let rules = ["dport", "sport"].map(drop).concat();
            format!("chain {name} {{ type filter hook {hook} priority -300; {rules} }}\n")
        };
        format!(
            "table inet {} {{\nset hosts {{ type {kind}; flags timeout; {hosts} }}\n\
             set ports {{ type inet_service; {ports} }}\n{}{}}}\n",
            self.table,
            chain("in", "input", "saddr"),
            chain("out", "output", "daddr"),
        )
    }

    fn end_words(&self) -> String {
        // Where there is none, there is one to be deleted.
        format!("table inet {0} {{ }}\ndelete table inet {0}\n", self.table)
    }
}

/// What the others send would come from this host itself, where they share it.
fn check_apart(own: IpAddr, others: &[IpAddr]) -> Result<(), LabError> {
    let is_apart = |ip: IpAddr| ip != own && !ip.is_loopback() && ip.is_ipv4() == own.is_ipv4();
    match others.iter().find(|ip| !is_apart(**ip)) {
        None => Ok(()),
        Some(ip) => Err(LabError::usage(format!(
            "cut-network: the host at {own} is not to be cut off from {ip}, which is no other machine in its network"
        ))),
    }
}

fn list(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = words.collect();
    words.sort();
    words.dedup();
    format!("elements = {{ {} }}", words.join(", "))
}

fn nft(script: &str) -> Result<(), LabError> {
    let failed = |why: &str| {
        LabError::environment(format!(
            "cut-network: nft (package nftables): {}",
            why.trim()
        ))
    };
    let caused = |error: std::io::Error| failed(&error.to_string());
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped());
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(caused)?;
    if let Some(mut input) = child.stdin.take() {
        // One that does not read says why.
        let _ = input.write_all(script.as_bytes());
    }
    let output = child.wait_with_output().map_err(caused)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(&String::from_utf8_lossy(&output.stderr))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_plain_name_and_drops_both_ways_until_its_time_is_over() {
        let cut = Cut::of(Path::new("/srv/ashlar-12-0 { } flush ruleset"));
        assert_eq!(cut.table, "ashlar-12-0flushruleset");
        let hosts = list(
            ["10.0.0.2 timeout 9s", "10.0.0.2 timeout 9s"]
                .map(String::from)
                .into_iter(),
        );
        assert_eq!(hosts, "elements = { 10.0.0.2 timeout 9s }");
        let words = cut.words([10, 0, 0, 1].into(), &hosts, "");
        for rule in [
            "input",
            "output",
            "ip saddr @hosts tcp sport",
            "ip daddr @hosts tcp dport",
        ] {
            assert!(words.contains(rule), "{words}");
        }
        let at = |ip: [u8; 4]| IpAddr::from(ip);
        let own = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(check_apart(own, &[at([10, 0, 0, 2])]), Ok(()));
        for wrong in [[10, 0, 0, 1], [127, 0, 0, 1]] {
            let why = check_apart(own, &[at(wrong)]).expect_err("not apart");
            assert!(why.to_string().contains("cut-network"), "{why}");
        }
    }
}
