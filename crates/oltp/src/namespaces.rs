//! Network namespaces that meet at a bridge in one more, the hub. The machine's own network is not touched.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use ashlar_lab::LabError;
use serde::{Deserialize, Serialize};

use crate::processes;

/// Where `ip` keeps namespaces that have names.
const NAMED: &str = "/run/netns";
/// The name of the hub's namespace, behind the prefix.
const HUB: &str = "h";

/// A namespace, and its address on the bridge.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Its name, behind the prefix.
    pub name: &'a str,
    /// Its address, in a network of 24 bits.
    pub address: Ipv4Addr,
}

/// What of a namespace's traffic is lost without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What it sends.
    Out,
    /// What is sent to it.
    In,
}

/// Namespaces whose names begin with the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// What their names begin with.
    pub prefix: String,
}

impl Namespaces {
    /// Makes them, all connected.
    ///
    /// # Errors
    /// `ip` complains: what was made is removed again.
    pub fn make(prefix: String, hub: &[Ipv4Addr], places: &[Place<'_>]) -> Result<Self, LabError> {
        let all = Self { prefix };
        let made = all.add_all(hub, places);
        if made.is_err() {
            all.remove()?;
        }
        made.map(|()| all)
    }

    /// A prefix that no other directory has.
    pub fn prefix_of(dir: &Path) -> String {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        dir.hash(&mut hasher);
        format!("ashlar-{:08x}-", hasher.finish() as u32)
    }

    fn add_all(&self, hub: &[Ipv4Addr], places: &[Place<'_>]) -> Result<(), LabError> {
        let bridge = self.full(HUB);
        ip(&["netns", "add", &bridge])?;
        ip(&["-n", &bridge, "link", "set", "lo", "up"])?;
        ip(&["-n", &bridge, "link", "add", "hub", "type", "bridge"])?;
        for address in hub {
            let own = format!("{address}/24");
            ip(&["-n", &bridge, "address", "add", &own, "dev", "hub"])?;
        }
        ip(&["-n", &bridge, "link", "set", "hub", "up"])?;
        for place in places {
            let (name, link) = (self.full(place.name), link(place.name));
            let own = format!("{}/24", place.address);
            ip(&["netns", "add", &name])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            ip(&[
                "-n", &bridge, "link", "add", &link, "type", "veth", "peer", "name", "eth0",
                "netns", &name,
            ])?;
            ip(&["-n", &bridge, "link", "set", &link, "master", "hub", "up"])?;
            ip(&["-n", &name, "address", "add", &own, "dev", "eth0"])?;
            ip(&["-n", &name, "link", "set", "eth0", "up"])?;
        }
        Ok(())
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Those that are there, by their full names.
    pub fn names(&self) -> Vec<String> {
        let all = std::fs::read_dir(NAMED).into_iter().flatten().flatten();
        let names = all.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names
            .filter(|name| name.starts_with(&self.prefix))
            .collect();
        names.sort();
        names
    }

    /// What the kernel calls one: a process or thread may enter it.
    pub fn path(&self, name: &str) -> PathBuf {
        Path::new(NAMED).join(self.full(name))
    }

    /// The same of the hub's.
    pub fn hub(&self) -> PathBuf {
        self.path(HUB)
    }

    /// What runs in one, whatever has started it.
    pub fn processes(&self, name: &str) -> Vec<u32> {
        processes::in_network(&self.path(name))
    }

    /// The words before a command that make it run in one.
    pub fn entered(&self, name: &str) -> Vec<String> {
        let path = self.path(name);
        vec![
            "nsenter".into(),
            format!("--net={}", path.display()),
            "--".into(),
        ]
    }

    /// Takes a namespace's link down, or up. What is on its way then is lost without a word.
    ///
    /// # Errors
    /// `ip` complains.
    pub fn set_connected(&self, name: &str, connected: bool) -> Result<(), LabError> {
        let state = if connected { "up" } else { "down" };
        let hub = self.full(HUB);
        ip(&["-n", &hub, "link", "set", &link(name), state])
    }

    /// From now on what goes this way is lost, or not any more.
    ///
    /// # Errors
    /// `tc` complains.
    pub fn set_lost(&self, name: &str, way: Way, is_lost: bool) -> Result<(), LabError> {
        // Only what leaves a device can be dropped everywhere: what is sent to a namespace leaves the bridge.
        let (namespace, device) = match way {
            Way::Out => (self.full(name), "eth0".to_owned()),
            Way::In => (self.full(HUB), link(name)),
        };
        let act = if is_lost { "replace" } else { "delete" };
        let mut words = vec!["-n", &namespace, "qdisc", act, "dev", &device, "root"];
        if is_lost {
            words.push("blackhole");
        }
        run("tc", &words)
    }

    /// From now on what a namespace sends to these addresses is lost, or not any more. What it hears from others stays.
    ///
    /// # Errors
    /// `ip` complains.
    pub fn set_silent_to(
        &self,
        name: &str,
        others: &[Ipv4Addr],
        is_lost: bool,
    ) -> Result<(), LabError> {
        let namespace = self.full(name);
        let act = if is_lost { "replace" } else { "delete" };
        others.iter().try_for_each(|other| {
            let to = format!("{other}/32");
            ip(&["-n", &namespace, "route", act, "blackhole", &to])
        })
    }

    /// Removes them; what is not there is as it should be.
    ///
    /// # Errors
    /// One stays.
    pub fn remove(&self) -> Result<(), LabError> {
        for name in self.names() {
            ip(&["netns", "delete", &name])?;
        }
        Ok(())
    }
}

/// The hub's end of a namespace's link.
fn link(name: &str) -> String {
    format!("to-{name}")
}

fn ip(words: &[&str]) -> Result<(), LabError> {
    run("ip", words)
}

fn run(program: &str, words: &[&str]) -> Result<(), LabError> {
    let output = Command::new(program).args(words).output();
    let output =
        output.map_err(|error| LabError::caused(format!("{program} (package iproute2)"), error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(LabError::environment(format!(
        "{program} {}: {}",
        words.join(" "),
        said.trim()
    )))
}
