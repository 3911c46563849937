//! The rules of the house (ARCHITECTURE.md), checked against the tree: which room may depend on
//! which, where `unsafe` may be, who may touch the reactor, what a ring may know, what the binary's lab may do, how long a file
//! may be, what set-up installs, what a parameter is.

use std::fs;
use std::path::{Path, PathBuf};

/// Those of the storage engine.
#[path = "rooms/store.rs"]
mod store;
/// Parameters that have no name.
#[path = "rooms/tuples.rs"]
mod tuples;

/// Room, the rooms it may depend on, and why no others.
const MAY_DEPEND_ON: &[(&str, &[&str], &str)] = &[
    ("block", &[], "the contract knows no other room"),
    (
        "plain",
        &[],
        "words about texts need no other room, so that every room may use them",
    ),
    (
        "nvme",
        &[],
        "words of a protocol need no other room: that keeps them fuzzable",
    ),
    (
        "reactor",
        &["block"],
        "the runtime carries buffers, it knows no protocol and no device",
    ),
    (
        "device",
        &["block", "reactor"],
        "a device knows neither volumes nor protocols",
    ),
    (
        "nvme-target",
        &["block", "nvme", "reactor"],
        "a target does not know where blocks go",
    ),
    (
        "nvme-initiator",
        &["block", "nvme", "reactor"],
        "an initiator is a device, not a server",
    ),
    (
        "store",
        &["block"],
        "the engine takes its I/O, time and randomness as parameters",
    ),
    (
        "replica",
        &["block"],
        "the protocol takes its I/O, time and randomness as parameters",
    ),
    (
        "copy",
        &["block", "replica", "store"],
        "it ties the protocol to the engine, and drives neither",
    ),
    (
        "rights",
        &["block", "nvme", "nvme-target", "replica"],
        "it decides what hosts have reserved, and asks the protocol for nothing itself",
    ),
    (
        "cache",
        &["block"],
        "a cache takes its devices and its time as parameters",
    ),
    (
        "cluster",
        &["block", "plain", "replica"],
        "it carries the protocol's questions and connections, and knows neither volumes nor what serves them",
    ),
    (
        "node",
        &[
            "block",
            "cache",
            "cluster",
            "copy",
            "nvme",
            "plain",
            "replica",
            "rights",
            "store",
            "nvme-target",
            "device",
            "reactor",
        ],
        "the daemon assembles pools and a target, and knows hosts by their NQNs; only the binary, and clients of its API, stand above it",
    ),
    (
        "lab",
        &["block", "plain"],
        "the lab measures whatever it is handed",
    ),
    (
        "oltp",
        &["lab", "plain"],
        "a database's client does not know what its files lie on",
    ),
    (
        "testbed",
        &[
            "attach",
            "block",
            "device",
            "lab",
            "node",
            "nvme-target",
            "oltp",
            "reactor",
        ],
        "how a device is opened is handed in; a daemon is asked by its API",
    ),
    (
        "failover",
        &["device", "lab", "node", "oltp", "testbed"],
        "what is done to a cluster needs its API, and nothing of what serves",
    ),
    (
        "torn",
        &["attach", "block", "device", "lab", "oltp", "testbed"],
        "a power cut needs what drives were told, and nothing of what told them",
    ),
    (
        "attach",
        &["block", "plain", "reactor"],
        "what makes a disk of a device does not know which device it is",
    ),
    (
        "bench",
        &[
            "nvme", "lab", "block", "cache", "device", "reactor", "store",
        ],
        "the bench is outside: it starts the binary and speaks to its sockets; of the engine and the cache's \
         policy it counts the work, over drives and traces of its own",
    ),
    (
        "sim",
        &[
            "block",
            "cache",
            "nvme",
            "nvme-target",
            "nvme-initiator",
            "device",
            "replica",
            "rights",
            "store",
            "copy",
        ],
        "the simulator replaces the reactor",
    ),
    (
        "cli",
        &[
            "attach",
            "block",
            "cluster",
            "nvme",
            "reactor",
            "device",
            "nvme-target",
            "nvme-initiator",
            "lab",
            "oltp",
            "sim",
            "node",
            "failover",
            "testbed",
            "torn",
        ],
        "the binary assembles",
    ),
];

/// Files that may contain `unsafe`, and why.
const MAY_BE_UNSAFE: &[(&str, &str)] = &[
    (
        "crates/block/src/buffer.rs",
        "aligned memory whose parts have different owners",
    ),
    (
        "crates/reactor/src/frame.rs",
        "message headers that point into what they own",
    ),
    (
        "crates/reactor/src/net.rs",
        "a socket option that the system-call library does not have",
    ),
    ("crates/reactor/src/ring.rs", "submissions to the kernel"),
    ("crates/device/src/", "mapped memory and ioctls"),
    (
        "crates/node/src/service/address/packet.rs",
        "an address of a link, which the system-call library does not have",
    ),
];

/// Folders of the protocol rooms that may use the reactor; everything else there is a state machine
/// that takes its I/O, time and randomness as parameters, so that the simulator runs what ships.
const DRIVERS: &[(&str, &str)] = &[
    ("crates/replica/src/", "driver"),
    ("crates/nvme-target/src/", "server"),
    ("crates/nvme-initiator/src/", "driver"),
];

const LONGEST_FILE: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names and texts of the files below a folder whose names end in one of `extensions`.
fn below(folder: &str, extensions: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("readable folder") {
            let path = entry.expect("entry").path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if extension.is_some_and(|extension| extensions.contains(&extension)) {
                found.push((name_of(&path), fs::read_to_string(&path).expect("readable")));
            }
        }
    }
    found
}

fn name_of(path: &Path) -> String {
    let name = path.strip_prefix(root()).expect("inside");
    name.display().to_string()
}

fn sources() -> Vec<(String, String)> {
    let found = below("crates", &["rs"]);
    assert!(found.len() > 20, "the walk found the tree");
    found
}

/// Lines of code without comments and string-free enough for a word search.
fn code_lines(source: &str) -> impl Iterator<Item = (usize, &str)> {
    source
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn rooms_depend_only_on_the_rooms_they_may() {
    for folder in fs::read_dir(root().join("crates")).expect("crates") {
        let folder = folder.expect("entry").path();
        let room = folder
            .file_name()
            .expect("name")
            .to_string_lossy()
            .into_owned();
        let rule = MAY_DEPEND_ON.iter().find(|(name, ..)| *name == room);
        let (_, allowed, why) = rule.unwrap_or_else(|| panic!("room `{room}` has no rule: add it"));
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("manifest");
        let manifest: toml::Table = manifest.parse().expect("valid manifest");
        let Some(dependencies) = manifest.get("dependencies").and_then(|d| d.as_table()) else {
            continue;
        };
        for dependency in dependencies
            .keys()
            .filter_map(|key| key.strip_prefix("ashlar-"))
        {
            assert!(
                allowed.contains(&dependency),
                "room `{room}` depends on `{dependency}`, but may not: {why}"
            );
        }
    }
}

#[test]
fn unsafe_stays_where_it_may_be() {
    for (name, source) in sources() {
        let allowed = MAY_BE_UNSAFE
            .iter()
            .any(|(prefix, _)| name.starts_with(prefix));
        let is_test = name.contains("/tests/");
        for (line, text) in code_lines(&source) {
            let has_it = text.contains("unsafe {") || text.contains("unsafe impl");
            assert!(
                !has_it || allowed || is_test,
                "{name}:{}: unsafe belongs in {MAY_BE_UNSAFE:?}",
                line + 1
            );
        }
    }
}

#[test]
fn protocol_state_machines_do_not_see_the_reactor() {
    for (name, source) in sources() {
        let Some((prefix, driver)) = DRIVERS.iter().find(|(prefix, _)| name.starts_with(prefix))
        else {
            continue;
        };
        if name[prefix.len()..].starts_with(driver) {
            continue;
        }
        for (line, text) in code_lines(&source) {
            let seen = [
                "ashlar_reactor",
                "std::time::Instant",
                "SystemTime",
                "std::net::Tcp",
            ]
            .iter()
            .find(|word| text.contains(**word));
            assert!(
                seen.is_none(),
                "{name}:{}: `{}` outside `{driver}`: state machines take I/O and time as parameters",
                line + 1,
                seen.unwrap_or(&"")
            );
        }
    }
}

#[test]
fn the_ring_knows_neither_engine_nor_map() {
    let mut files = 0;
    for (name, source) in sources() {
        if !name.starts_with("crates/store/src/ring/") {
            continue;
        }
        files += 1;
        let words = [
            "crate::engine",
            "crate::recover",
            "crate::create",
            "crate::drives",
            "super::super",
        ];
        for (line, text) in code_lines(&source) {
            let seen = words.iter().find(|word| text.contains(**word));
            assert!(
                seen.is_none(),
                "{name}:{}: `{}`: a ring is for others than the engine, too",
                line + 1,
                seen.unwrap_or(&"")
            );
        }
    }
    assert!(files > 4, "{files} files");
}

/// Lines of the binary's lab, which reads arguments, calls and prints. Workloads and procedures go to libraries; the
/// number may only fall.
const LAB_LINES: usize = 1900;

/// What only a workload or a procedure needs: to start something, to wait for it, to drive a device or a network.
const OF_A_WORKLOAD: &[&str] = &[
    "process::Command",
    "Command::new",
    "thread::sleep",
    "std::net::Tcp",
    "ashlar_attach",
    "ashlar_block",
    "ashlar_node",
    "ashlar_nvme",
    "ashlar_reactor",
    "rustix::",
];

#[test]
fn the_lab_of_the_binary_holds_no_workload() {
    let mut lines = 0;
    for (name, source) in sources() {
        if !name.starts_with("crates/cli/src/lab/") {
            continue;
        }
        lines += source.lines().count();
        for (line, text) in code_lines(&source) {
            let seen = OF_A_WORKLOAD.iter().find(|word| text.contains(**word));
            assert!(
                seen.is_none(),
                "{name}:{}: `{}`: a workload or procedure belongs in a library",
                line + 1,
                seen.unwrap_or(&"")
            );
        }
    }
    assert!(lines > 100, "{lines} lines: the lab is elsewhere");
    assert!(
        lines <= LAB_LINES,
        "the binary's lab has {lines} lines, {LAB_LINES} before: it reads arguments, calls and prints"
    );
}

/// The lab's rooms that ask daemons, and what they see of `node`: what an operator sees, and what takes away what a daemon
/// has left that is gone.
const ASK_DAEMONS: &[&str] = &[
    "crates/testbed/src/",
    "crates/failover/src/",
    "crates/torn/src/",
];
const SEEN_OF_NODE: &[&str] = &[
    "client",
    "model",
    "service::end_left_behind",
    "service::haproxy",
    "service::postgres",
    "service::quick_recovery",
    "Token",
];

#[test]
fn the_lab_asks_daemons_by_their_api() {
    let mut seen = 0;
    for (name, source) in sources() {
        if !ASK_DAEMONS.iter().any(|folder| name.starts_with(folder)) {
            continue;
        }
        for (line, text) in code_lines(&source) {
            for (at, word) in text.match_indices("ashlar_node::") {
                let rest = &text[at + word.len()..];
                assert!(
                    SEEN_OF_NODE.iter().any(|may| rest.starts_with(may)),
                    "{name}:{}: `{rest}`: of a daemon only {SEEN_OF_NODE:?} are seen here",
                    line + 1
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "{seen} uses: the walk found them");
}

#[test]
fn the_command_line_is_read_by_programs_only() {
    for folder in fs::read_dir(root().join("crates")).expect("crates") {
        let folder = folder.expect("entry").path();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("manifest");
        let manifest: toml::Table = manifest.parse().expect("valid manifest");
        let dependencies = manifest.get("dependencies").and_then(|all| all.as_table());
        let has_clap = dependencies.is_some_and(|all| all.contains_key("clap"));
        let is_program = folder.join("src/main.rs").exists();
        assert!(
            !has_clap || is_program,
            "{}: a library; `clap` belongs in the program",
            folder.display()
        );
    }
}

#[test]
fn files_stay_small_enough_to_hold_in_the_head() {
    let mut lengths: Vec<usize> = Vec::new();
    for (name, source) in sources() {
        let lines = source.lines().count();
        assert!(
            lines <= LONGEST_FILE,
            "{name} has {lines} lines: split it by idea"
        );
        lengths.push(lines);
    }
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    assert!(median <= 250, "the median file has {median} lines");
}

/// Folders and files whose words are read, of these kinds.
const WORDS_IN: &[&str] = &["crates", "docs", "fuzz", "scenarios", "scripts", "tests"];
const WORDS_OF: &[&str] = &["md", "py", "rs", "sh", "sql", "toml"];
const WORDS_AT_THE_ROOT: &[&str] = &[
    ".ci/run",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "Makefile",
    "README.md",
];

/// Words that leave open who it is, in halves: this file is read, too.
const VAGUE: &[[&str; 2]] = &[
    ["any", "body"],
    ["any", "one"],
    ["no", "body"],
    ["some", "body"],
    ["some", "one"],
    ["who", "ever"],
];

/// Files that may name the user of the system who bears the third of them, in quotes.
const MAY_NAME_THE_USER: &[&str] = &[
    "crates/cli/src/args/lab.rs",
    "crates/cli/tests/attach/refusals.rs",
    "crates/oltp/src/mariadb/server.rs",
    "crates/oltp/src/server/mod.rs",
    "crates/oltp/src/server/programs.rs",
    "crates/oltp/tests/postgres/cluster.rs",
    "docs/oltp.md",
];

/// A reader who is tired wants to know who: the host, the node, the operator, the process.
#[test]
fn documents_and_code_name_who_does_something() {
    let mut texts: Vec<(String, String)> = WORDS_AT_THE_ROOT
        .iter()
        .map(|name| (*name, fs::read_to_string(root().join(name))))
        .map(|(name, text)| (name.to_owned(), text.expect("readable")))
        .collect();
    texts.extend(WORDS_IN.iter().flat_map(|folder| below(folder, WORDS_OF)));
    for of in WORDS_OF {
        let is_there = |(name, _): &(String, String)| name.ends_with(&format!(".{of}"));
        assert!(texts.iter().any(is_there), "no .{of}: the walk found them");
    }
    let vague = VAGUE.iter().map(|word| word.concat()).collect::<Vec<_>>();
    for (name, text) in texts {
        let mut text = text.to_lowercase();
        if MAY_NAME_THE_USER.contains(&name.as_str()) {
            let user = VAGUE[2].concat();
            for quote in ['"', '`'] {
                text = text.replace(&format!("{quote}{user}{quote}"), "");
            }
        }
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split(|c: char| !c.is_alphabetic());
            let found = words.find(|word| vague.iter().any(|vague| word.starts_with(vague)));
            assert!(
                found.is_none(),
                "{name}:{}: {found:?}: who is it?",
                number + 1
            );
        }
    }
}

#[test]
fn what_the_tests_need_is_installed_before_they_run() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("a Makefile");
    let rule = |name: &str| -> String {
        let lines = makefile.lines().skip_while(|line| !line.starts_with(name));
        let lines = lines.take_while(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join("\n")
    };
    assert!(rule("test:").starts_with("test: setup-test"));
    let words = rule("setup-test:");
    let words = words.split_once("scripts/setup.sh ").expect("the script").1;
    assert!(words.split_whitespace().any(|word| word == "test"));
    // The script does what it is told to the last word: one that it does not know is an error.
    let setup = |word: &str| {
        let mut command = std::process::Command::new(root().join("scripts/setup.sh"));
        command
            .args(["list", word])
            .output()
            .expect("the script runs")
    };
    let (known, unknown) = (setup("list"), setup("nonsense"));
    assert_eq!(unknown.status.code(), Some(2));
    assert!(unknown.stdout.is_empty(), "it began nevertheless");
    let once = known.stdout.len() / 2;
    assert!(known.status.success() && once > 0 && known.stdout[..once] == known.stdout[once..]);
}
