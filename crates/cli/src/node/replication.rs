//! What `ashlar volume show` says of a volume's copies.

use ashlar_node::model::{FailoverStatus, ReplicaStatus, VolumeStatus};

use super::table::{bytes, word};

/// Lines of a replicated volume; none of another.
pub(super) fn lines_of(volume: &VolumeStatus) -> Vec<(&'static str, String)> {
    let Some(known) = &volume.replication else {
        return Vec::new();
    };
    let owner = known.owner.as_deref();
    let owner = owner.unwrap_or("none at present: hosts wait").to_owned();
    let mut lines = vec![("owner", owner), ("epoch", known.epoch.to_string())];
    lines.extend(known.replicas.iter().map(|copy| ("copy", line(copy))));
    if let Some(FailoverStatus { gap_ms, cause }) = known.last_failover {
        lines.push(("last failover", format!("{}, {gap_ms} ms", word(cause))));
    }
    let mut follow = match known.follow {
        true => "on: ownership goes to the node by which most commands come".to_owned(),
        false => "off".to_owned(),
    };
    if let Some(why) = &known.followed {
        follow.push_str(&format!("; {why}"));
    }
    lines.push(("follow", follow));
    lines
}

fn line(copy: &ReplicaStatus) -> String {
    let mut text = format!("node {}: {}", copy.node, word(copy.state).replace('_', " "));
    if copy.resync_bytes_left > 0 {
        text.push_str(&format!(", {} left", bytes(copy.resync_bytes_left)));
    }
    if let Some(why) = &copy.reason {
        text.push_str(&format!(" ({why})"));
    }
    text
}
