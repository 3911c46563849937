//! Attachments as people read them.

use ashlar_attach::{Attachment, Condition, Means, PathStatus, State};

use crate::node::{bytes, table, word};

/// What `attach` says.
pub(super) fn attached(state: &State) -> String {
    let device = state.device.as_ref().map(|path| path.display().to_string());
    format!(
        "{} is at {}: {} on {}, {}\nby {}\n{}",
        state.volume,
        state.mount.display(),
        state.file_system.as_deref().unwrap_or("nothing"),
        device.as_deref().unwrap_or("no device"),
        bytes(state.bytes),
        state.why,
        match state.reserved {
            true => "reserved for this host: no other can write to it\n",
            false => "",
        }
    )
}

/// What `attach --list` says.
pub(super) fn list(attachments: &[Attachment]) -> String {
    if attachments.is_empty() {
        return "nothing is attached\n".into();
    }
    let head = [
        "volume", "mount", "state", "device", "size", "reads", "writes", "flushes", "by",
    ];
    let rows: Vec<Vec<String>> = attachments.iter().map(row).collect();
    let mut text = table(&head, &rows);
    for one in attachments {
        if let Some(note) = note(one) {
            text.push_str(&format!("{}: {note}\n", one.state.mount.display()));
        }
        if let Some(left) = &one.left {
            let mount = one.state.mount.display();
            text.push_str(&format!(
                "{mount}: what is left: {left}. `ashlar detach {mount}` clears that once nothing uses it\n"
            ));
        }
        if let Some(why) = &one.fenced {
            text.push_str(&format!("{}: {why}\n", one.state.mount.display()));
        }
        if let Some(paths) = paths(&one.paths) {
            text.push_str(&format!("{}: {paths}\n", one.state.mount.display()));
        }
    }
    text
}

/// By which paths the volume is reached, where there is something to tell of them.
fn paths(all: &[PathStatus]) -> Option<String> {
    let is_told = all.len() > 1 || all.iter().any(|path| !path.in_use);
    let told: Vec<String> = all.iter().map(path).collect();
    is_told.then(|| match all.iter().any(|path| path.in_use) {
        true => told.join("; "),
        false => format!("no path, I/O waits: {}", told.join("; ")),
    })
}

fn path(one: &PathStatus) -> String {
    let used = if one.in_use { ", in use" } else { "" };
    let why = one.failure.as_ref();
    let why = why.map_or(String::new(), |why| format!(": {why}"));
    format!("{} {}{used}{why}", one.address, one.state)
}

fn row(one: &Attachment) -> Vec<String> {
    let state = &one.state;
    let count = |of: fn(&ashlar_attach::Tallies) -> u64| {
        one.requests
            .as_ref()
            .map_or("-".to_owned(), |requests| of(requests).to_string())
    };
    let device = state.device.as_ref();
    vec![
        state.volume.clone(),
        state.mount.display().to_string(),
        word(one.condition),
        device.map_or("-".into(), |path| path.display().to_string()),
        bytes(state.bytes),
        count(|requests| requests.read.arrived),
        count(|requests| requests.write.arrived),
        count(|requests| requests.flush.arrived),
        state.why.clone(),
    ]
}

/// Of these attachments those of volumes of these NQNs, and what ends them.
pub(super) fn holders(attached: impl Iterator<Item = State>, nqns: &[String]) -> Option<String> {
    let theirs = attached.filter(|state| nqns.iter().any(|nqn| is_of(&state.url, nqn)));
    let told: Vec<String> = theirs.map(|state| holder(&state)).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Whether a namespace's URL names this subsystem: `nvme-tcp://ADDRESSES/NQN?…`.
fn is_of(url: &str, nqn: &str) -> bool {
    let place = url.split('?').next().unwrap_or_default();
    let place = place.split_once("://").map_or(place, |(_, place)| place);
    place.split_once('/').is_some_and(|(_, named)| named == nqn)
}

fn holder(state: &State) -> String {
    let (volume, mount) = (&state.volume, state.mount.display());
    format!("{volume} is attached here at {mount}: `ashlar detach {mount}` lets go of it")
}

/// What is left to be done where a volume has grown that is attached at this machine.
pub(super) fn grown(state: &State) -> String {
    let (volume, mount) = (&state.volume, state.mount.display());
    let device = state.device.as_ref().map(|path| path.display().to_string());
    let grow = match (state.file_system.as_deref(), state.means) {
        (Some("ext4"), Means::Nvme) => {
            format!("resize2fs {}", device.as_deref().unwrap_or("DEVICE"))
        }
        // Its loop device may be another one when it is attached again.
        (Some("ext4"), Means::Fuse) => format!("resize2fs $(findmnt -no SOURCE {mount})"),
        _ => format!("xfs_growfs {mount}"),
    };
    match state.means {
        Means::Nvme => format!("it is attached at {mount}. To grow the file system: {grow}\n"),
        Means::Fuse => format!(
            "it is attached at {mount}, which keeps the old size until it is attached again. End what uses it, then: \
             ashlar detach {mount} && ashlar attach {volume} --mount {mount} && {grow}\n"
        ),
    }
}

fn note(one: &Attachment) -> Option<&'static str> {
    match one.condition {
        Condition::Attaching | Condition::Attached => None,
        Condition::Unguarded => Some(
            "its guardian is gone: if the server dies, all I/O fails; `ashlar detach`, and attach again, when it \
             suits",
        ),
        Condition::Stopped => Some(
            "its server was stopped by a signal: I/O waits until it is continued (`kill -CONT`); \
             `ashlar detach --force` ends it",
        ),
        Condition::Unserved => Some(
            "it has no server: start the daemon (`ashlar node`); while there is a guardian I/O waits, and goes on then. \
             If it stays so, I/O fails: end what uses the mount, `ashlar detach --force`, and attach again",
        ),
        Condition::Reconnecting => Some(
            "the kernel tries to reach its target again: I/O waits until the daemon is back; `ashlar detach --force` \
             gives up",
        ),
        Condition::Fenced => Some(
            "another host has taken the volume over (`attach --preempt`): all I/O fails; `ashlar detach --force`, and \
             attach again when that host has detached",
        ),
        Condition::Unmounted => Some("its file system is not mounted; `ashlar detach` clears it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_told_by_the_subsystem_and_not_by_a_name_that_others_use_too() {
        let state = |nqn: &str, mount: &str| -> State {
            let text = serde_json::json!({
                "volume": "tank/db",
                "url": format!("nvme-tcp://a:4420,b:4420/{nqn}?ns=1&hostnqn=nqn.host"),
                "identity": "uuid 1",
                "bytes": 4096,
                "block_bytes": 4096,
                "volatile_cache": false,
                "mount": mount,
                "file_system": null,
                "means": "fuse",
                "why": "",
                "device": null,
                "always_flush": false,
                "limit_seconds": null,
                "trace": null,
                "phase": "attached",
            });
            serde_json::from_value(text).expect("a state")
        };
        let told = |nqns: &[&str]| {
            let attached = [state("nqn.ours", "/mnt/ours"), state("nqn.ours2", "/mnt/2")];
            let nqns: Vec<String> = nqns.iter().map(|nqn| nqn.to_string()).collect();
            holders(attached.into_iter(), &nqns)
        };
        assert_eq!(told(&["nqn.elsewhere"]), None);
        assert_eq!(told(&[]), None);
        let ours = told(&["nqn.ours"]).expect("it is attached");
        assert!(ours.contains("`ashlar detach /mnt/ours` lets go"), "{ours}");
        assert!(!ours.contains("/mnt/2"), "{ours}");
    }

    #[test]
    fn paths_are_told_where_there_is_something_to_tell() {
        let path = |address: &str, state: &str, in_use| PathStatus {
            address: address.into(),
            state: state.into(),
            in_use,
            failure: (state == "down").then(|| "connection refused".into()),
        };
        assert_eq!(paths(&[]), None);
        assert_eq!(paths(&[path("a:1", "optimized", true)]), None);
        let two = [path("a:1", "optimized", true), path("b:1", "down", false)];
        assert_eq!(
            paths(&two).as_deref(),
            Some("a:1 optimized, in use; b:1 down: connection refused")
        );
        assert_eq!(
            paths(&two[1..]).as_deref(),
            Some("no path, I/O waits: b:1 down: connection refused")
        );
    }
}
