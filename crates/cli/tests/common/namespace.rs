//! Network namespaces: programs in them are as on machines of their own.

use std::net::Ipv4Addr;
use std::process::Command;

use crate::common::{is_there, ok};

/// A namespace with a link to this one: here it is `.1`, there `.2`.
pub struct Namespace {
    name: String,
    net: u8,
}

impl Namespace {
    /// Its number tells it from others of all test programs; none where there can be none.
    pub fn make(number: u8) -> Option<Self> {
        let is_root = rustix::process::getuid().is_root();
        let has_ip = Command::new("ip").arg("-V").output().is_ok();
        if !is_there("root, with ip", is_root && has_ip) {
            return None;
        }
        let id = std::process::id();
        let (name, net) = (format!("users-{id}-{number}"), number);
        let made = Self { name, net };
        let (name, here, there) = (&made.name, format!("u{id}-{net}"), format!("v{id}-{net}"));
        ip(&format!("netns add {name}"));
        ip(&format!(
            "link add {here} type veth peer name {there} netns {name}"
        ));
        ip(&format!("addr add {}/24 dev {here}", made.here()));
        ip(&format!("link set {here} up"));
        ip(&format!(
            "-n {name} addr add {}/24 dev {there}",
            made.there()
        ));
        ip(&format!("-n {name} link set {there} up"));
        ip(&format!("-n {name} route add default via {}", made.here()));
        Some(made)
    }

    /// This machine's address on its link.
    pub fn here(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 231, self.net, 1)
    }

    pub fn there(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 231, self.net, 2)
    }

    /// A program that runs there.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name));
        command.args(["--", program]);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Its link goes with it.
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .status();
    }
}

fn ip(words: &str) {
    ok(Command::new("ip").args(words.split_whitespace()));
}
