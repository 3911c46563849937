//! What `ashlar volume show` says of a volume's copies.

use ashlar_node::model::{
    CopyProof, FailoverStatus, ProofResult, ProofStatus, ReplicaStatus, VolumeName, VolumeStatus,
};

use super::Api;
use super::table::{bytes, word};
use crate::args::ApiOptions;
use crate::exit::Failure;

/// Ranges of a copy that are named one by one.
const MOST_RANGES: usize = 20;

/// `ashlar volume verify`.
pub(super) fn verify(volume: &VolumeName, api: &ApiOptions) -> Result<(), Failure> {
    let api = Api::new(api)?;
    let proof = api.client.verify_volume(volume)?;
    api.show(&proof, proof_text)?;
    match proof.agrees() {
        true => Ok(()),
        false => Err(Failure::check(format!("{volume}: copies differ"))),
    }
}

fn proof_text(proof: &ProofStatus) -> String {
    let mut text = format!(
        "{} compared with the copy of node {}, which hosts read\n",
        bytes(proof.bytes),
        proof.owner
    );
    proof
        .copies
        .iter()
        .for_each(|copy| text.push_str(&proof_of(copy)));
    text
}

fn proof_of(copy: &CopyProof) -> String {
    let node = &copy.node;
    match copy.result {
        ProofResult::Agrees => format!("node {node}: all digests agree\n"),
        ProofResult::NotCompared => {
            format!(
                "node {node}: not compared: it is not in sync, or was not reached all the time\n"
            )
        }
        ProofResult::Differs => {
            let count = copy.ranges.len();
            let mut text = format!("node {node}: {count} ranges differ; it is given them again\n");
            for range in copy.ranges.iter().take(MOST_RANGES) {
                text.push_str(&format!("  {} at {}\n", bytes(range.bytes), range.offset));
            }
            if count > MOST_RANGES {
                text.push_str(&format!("  and {} more\n", count - MOST_RANGES));
            }
            text
        }
    }
}

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
    let follow = match (known.follow, &known.followed) {
        (_, Some(why)) => why.clone(),
        (true, None) => "ownership goes to the node by which most commands come".to_owned(),
        (false, None) => "off".to_owned(),
    };
    lines.push(("follow", follow));
    if let Some(proof) = &known.last_proof {
        let what = match proof.agrees() {
            true => "all copies compared agree",
            false => "copies differed: `volume verify` and `events` say more",
        };
        lines.push(("last proof", what.to_owned()));
    }
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
