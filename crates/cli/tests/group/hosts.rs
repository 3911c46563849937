//! A group on given hosts: three agents at addresses of one machine, as on machines of their own.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ashlar_oltp::namespaces::{Namespaces, Place};
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{
    Running, ashlar, ended, eventually_within, is_there, lab, ok, open_folder, refuses,
};
use crate::{has_group, result, working_in};

/// What a group may take to be ready on a busy machine: etcd its minute, the databases three, and what is between.
const READY_WITHIN: Duration = Duration::from_secs(300);
/// What was run at three hosts has ended, and is removed, within so long on a busy machine.
const GONE_WITHIN: Duration = Duration::from_secs(240);

/// An agent, and where its part of a group has its folder.
struct Host {
    agent: Running,
    address: String,
    dir: PathBuf,
}

impl Host {
    fn start(room: &Path, number: u8) -> Self {
        Self::start_at(room, number, &format!("127.0.0.{number}"), &[])
    }

    /// Behind these words, which may lead elsewhere.
    fn start_at(room: &Path, number: u8, ip: &str, entered: &[String]) -> Self {
        let dir = room.join(format!("h{number}"));
        std::fs::create_dir_all(&dir).expect("made");
        let listen = format!("{ip}:0");
        let words = ["lab", "agent", "--listen", &listen, "--token-file", "token"];
        let mut command = behind(entered, words.into_iter().chain(["--dir"]));
        command.arg(&dir).current_dir(room);
        let mut agent = Running::start(&mut command);
        let address = agent.ready().swap_remove(0);
        Self {
            agent,
            address,
            dir,
        }
    }

    /// Nothing that was run there is left, and nothing that it made.
    fn is_empty(&self) -> bool {
        let mut left = std::fs::read_dir(&self.dir).expect("list");
        left.next().is_none() && working_in(&self.dir).is_empty()
    }
}

/// This program, behind words that may lead elsewhere.
fn behind<'a>(entered: &[String], words: impl Iterator<Item = &'a str>) -> Command {
    let own = ashlar(words);
    let Some((first, rest)) = entered.split_first() else {
        return own;
    };
    let mut command = Command::new(first);
    command
        .args(rest)
        .arg(own.get_program())
        .args(own.get_args());
    command
}

fn holder(room: &Path, hosts: &[Host]) -> Running {
    let mut command = ashlar(["lab", "cluster", "start", "--tuning", "fast", "--dir", "g"]);
    command.args(["--token-file", "token", "--set", "fsync=off"]);
    for host in hosts {
        command.args(["--host", &host.address]);
    }
    let mut holder = Running::start(command.current_dir(room));
    assert_eq!(holder.first_words_within(READY_WITHIN)[0], "listener:");
    holder
}

fn status(room: &Path) -> Value {
    let mut command = ashlar(["lab", "cluster", "status", "--json", "--dir", "g"]);
    let said = ok(command.current_dir(room));
    serde_json::from_str(&said).expect("JSON")
}

#[test]
fn a_group_is_on_given_hosts_for_as_long_as_it_is_held() {
    let is_root = rustix::process::geteuid().is_root();
    let needed = "root, whose agents leave nothing running when they are killed";
    if !has_group() || !is_there(needed, is_root) {
        return;
    }
    let room = open_folder();
    let dir = room.path();
    let mut hosts = [1, 2, 3].map(|number| Host::start(dir, number));
    let mut first = holder(dir, &hosts);
    let found = status(dir);
    let of = |number: usize, key: &str| found["hosts"][number][key].clone();
    let roles = [of(0, "role"), of(1, "role")];
    assert!(
        roles.contains(&"primary".into()) && roles.contains(&"sync-standby".into()),
        "{found}"
    );
    assert!(
        (0..3).all(|number| of(number, "processes").as_u64() > Some(1)),
        "{found}"
    );
    assert!(
        (0..3).all(|number| of(number, "trouble").is_null()),
        "{found}"
    );
    // Through the listener, with the password; as any client does, and as one who may do nothing to the hosts.
    let url = found["url"].as_str().expect("a URL").to_owned();
    let psql = |url: &str, sql: &str| {
        let mut command = Command::new("psql");
        ended(command.args([url, "-Atc", sql]))
    };
    let runs = "copy (select 1) to program 'cat > /dev/null'";
    assert_eq!(psql(&url, "create table mine (id int)").error, "");
    let refused = psql(&url, runs).error;
    assert!(refused.contains("external program"), "{refused}");
    let superuser = found["superuser_url"].as_str().expect("a URL");
    let ran = psql(superuser, runs);
    assert_eq!((&*ran.out, &*ran.error), ("COPY 1\n", ""));
    psql(&url, "drop table mine");
    let load = |url: &str, out: &str| {
        let words = format!("oltp run --db {url} --users 2 --mode fixed:5 --out {out}");
        lab(dir, words.split_whitespace())
    };
    let (code, said) = lab(dir, ["oltp", "build", "--db", &url, "--warehouses", "1"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = load(&url, "o");
    assert_eq!(code, 0, "{said}");
    let (credentials, rest) = url.split_once('@').expect("a password");
    let user = credentials.rsplit_once(':').expect("a password").0;
    let (code, said) = load(&format!("{user}:wrong@{rest}"), "p");
    assert!(code == 3 && said.contains("password"), "{code} {said}");
    // Another run of these agents is refused.
    let mut second = ashlar([
        "lab",
        "cluster",
        "start",
        "--dir",
        "g",
        "--token-file",
        "token",
    ]);
    for host in &hosts {
        second.args(["--host", &host.address]);
    }
    refuses(second.current_dir(dir), 3, &["busy with another run"]);
    let mut moved = ashlar(["lab", "cluster", "move", "--dir", "g"]);
    refuses(moved.current_dir(dir), 2, &["not moved yet"]);
    // Who holds it is killed: each host ends its part.
    first.kill();
    let gone = |hosts: &[Host]| {
        eventually_within(GONE_WITHIN, "all ends", || hosts.iter().all(Host::is_empty))
    };
    gone(&hosts);
    let mut asked = ashlar(["lab", "cluster", "status", "--dir", "g"]);
    refuses(asked.current_dir(dir), 3, &["its hosts have ended it"]);

    // An agent is killed: the kernel ends its programs, the others go on, and the host says so.
    let mut held = holder(dir, &hosts);
    hosts[1].agent.kill();
    eventually_within(GONE_WITHIN, "what it ran ends", || {
        working_in(&hosts[1].dir).is_empty()
    });
    eventually_within(GONE_WITHIN, "it is told", || {
        let now = status(dir);
        let lost = now["hosts"][1]["trouble"]
            .as_str()
            .is_some_and(|why| why.contains("died"));
        lost && now["hosts"][0]["role"] == "primary"
    });
    let stopped = ok(ashlar(["lab", "cluster", "stop", "--dir", "g"]).current_dir(dir));
    assert!(stopped.contains("nothing of it is left"), "{stopped}");
    // One host could not be told.
    assert_eq!(held.wait().code(), Some(3));
    assert!(!dir.join("g").exists());
    // What the killed one has made goes with the next group.
    assert!(hosts[0].is_empty() && hosts[2].is_empty() && !hosts[1].is_empty());
    hosts[1] = Host::start(dir, 2);
    let mut held = holder(dir, &hosts);
    assert_eq!(held.end(Signal::TERM).code(), Some(0));
    gone(&hosts);
}

/// Machines of their own: a namespace each, and one for the lab.
struct Machines(Namespaces);

impl Machines {
    fn make(room: &Path) -> Self {
        let names = ["a", "b", "w"];
        let at = |last| Ipv4Addr::new(10, 78, 0, last);
        let places = [0, 1, 2].map(|index| Place {
            name: names[usize::from(index)],
            address: at(index + 1),
        });
        Self(Namespaces::make(Namespaces::prefix_of(room), &[at(9)], &places).expect("made"))
    }

    fn agents(&self, room: &Path) -> [Host; 3] {
        [("a", 1), ("b", 2), ("w", 3)].map(|(name, number)| {
            Host::start_at(
                room,
                number,
                &format!("10.78.0.{number}"),
                &self.0.entered(name),
            )
        })
    }

    /// `ashlar lab` with these words, from none of them.
    fn lab(&self, room: &Path, words: &str) -> Command {
        let hub = self.0.hub().display().to_string();
        let entered = [
            "nsenter".to_owned(),
            format!("--net={hub}"),
            "--".to_owned(),
        ];
        let words = ["lab"].into_iter().chain(words.split_whitespace());
        let mut command = behind(&entered, words);
        command.current_dir(room);
        command
    }

    /// Rules by which a host drops packets.
    fn rules(&self, name: &str) -> String {
        let entered = self.0.entered(name);
        ok(Command::new(&entered[0])
            .args(&entered[1..])
            .args(["nft", "list", "ruleset"]))
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        // What is left says what was wrong.
        let _ = self.0.remove();
    }
}

#[test]
fn faults_are_done_by_agents_to_their_hosts() {
    let is_root = rustix::process::geteuid().is_root();
    let has_nft = is_root && Command::new("nft").arg("-v").output().is_ok();
    if !has_group() || !is_there("root, and nft (package nftables)", has_nft) {
        return;
    }
    let room = open_folder();
    let dir = room.path();
    let machines = Machines::make(dir);
    let hosts = machines.agents(dir);
    let named: Vec<&str> = hosts.iter().map(|host| &*host.address).collect();
    let words = |faults: &str, rest: &str| {
        let hosts = named.join(",");
        format!(
            "failover --topology group --tuning fast --fault {faults} --host {hosts} --token-file token {rest}"
        )
    };
    // What an agent does not do is refused before anything is there.
    for (faults, rest, name) in [
        (
            "move,drive-dies",
            "--out r",
            "drive-dies: the host's drives",
        ),
        ("move", "--out r --standby .", "--standby: each agent"),
        ("move", "--out r --set archive_command=x", "archive_command"),
        (
            "etcd-down",
            "--out r --hold 241s",
            "--hold: on given hosts 240 s",
        ),
    ] {
        refuses(&mut machines.lab(dir, &words(faults, rest)), 2, &[name]);
        assert!(!dir.join("r").join("result.json").exists());
    }
    let long = "--rounds 1 --before 2s --after 2s";
    let faults = "kill-daemon,cut-network,kill-node,move";
    let rest = format!("{long} --set fsync=off --out o");
    let ran = ended(&mut machines.lab(dir, &words(faults, &rest)));
    assert_eq!(ran.code, 0, "{}", ran.said());
    // An instance's.
    let of_instance = words("kill-daemon,kill-node", &format!("{long} --out i"))
        .replace("--topology group --tuning fast", "--topology fci");
    let ran = ended(&mut machines.lab(dir, &of_instance));
    assert_eq!(ran.code, 0, "{}", ran.said());
    for (out, faults) in [
        ("o", &["cut-network", "kill-node", "move"][..]),
        ("i", &["kill-daemon", "kill-node"]),
    ] {
        is_whole(&result(dir, out)["cells"], faults);
    }
    assert!(hosts.iter().all(Host::is_empty));
    // The lab is killed while a host is cut off: it is connected again, and all of it ends.
    let cut = words(
        "cut-network",
        "--rounds 1 --before 1s --after 60s --set fsync=off --out k",
    );
    let mut killed = Running::start(&mut machines.lab(dir, &cut));
    eventually_within(READY_WITHIN, "a host is cut off", || {
        ["a", "b"]
            .iter()
            .any(|name| machines.rules(name).contains("timeout"))
    });
    killed.kill();
    eventually_within(GONE_WITHIN, "all ends", || hosts.iter().all(Host::is_empty));
    let left = ["a", "b", "w"].map(|name| machines.rules(name));
    assert_eq!(left, ["", "", ""]);
}

/// Each fault was done once, and nothing is lost.
fn is_whole(cells: &Value, faults: &[&str]) {
    let cells = cells.as_array().expect("cells");
    let done: Vec<&str> = cells
        .iter()
        .filter_map(|cell| cell["fault"].as_str())
        .collect();
    assert_eq!(done, faults);
    for cell in cells {
        let round = &cell["rounds"][0];
        assert_eq!(
            (&round["moved"], &round["missing"]),
            (&true.into(), &0.into()),
            "{round}"
        );
        assert!(round["acknowledged"].as_u64() > Some(20), "{round}");
        assert!(round["probes"].as_u64() > Some(20), "{round}");
    }
}
