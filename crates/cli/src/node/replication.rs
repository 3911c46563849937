//! What `ashlar volume show` says of a volume's copies.

use std::time::{SystemTime, UNIX_EPOCH};

use ashlar_node::model::{
    CopyProof, FailoverStatus, ProofResult, ProofStatus, Reads, ReplicaState, ReplicaStatus,
    ReplicationStatus, VolumeName, VolumeStatus,
};

use super::Api;
use super::table::{bytes, duration, word};
use crate::args::ApiOptions;
use crate::exit::Failure;

/// Ranges of a copy that are named one by one.
const MOST_RANGES: usize = 20;

/// `ashlar volume verify`.
pub(super) fn verify(volume: &VolumeName, api: &ApiOptions) -> Result<(), Failure> {
    let api = Api::new(api)?;
    let proof = api.client.verify_volume(volume)?;
    api.show(&proof, proof_text)?;
    verdict(volume, &proof)
}

/// A comparison of nothing proves nothing.
fn verdict(volume: &VolumeName, proof: &ProofStatus) -> Result<(), Failure> {
    if !proof.agrees() {
        return Err(Failure::check(format!("{volume}: copies differ")));
    }
    let is_missing = |copy: &CopyProof| copy.result == ProofResult::NotCompared;
    if !proof.copies.is_empty() && proof.copies.iter().all(is_missing) {
        return Err(Failure::environment(format!(
            "{volume}: no other copy was compared: `ashlar volume show {volume}` says how they are"
        )));
    }
    Ok(())
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
                "node {node}: not compared in full: it is not in sync, was not reached all the time, or the pool of what \
                 hosts read has lost something (`pool status`)\n"
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
    match &volume.replication {
        Some(known) => copies_of(&format!("{}/{}", volume.pool, volume.name), known),
        None => Vec::new(),
    }
}

fn copies_of(volume: &str, known: &ReplicationStatus) -> Vec<(&'static str, String)> {
    let owner = known.owner.as_deref();
    let owner = owner.unwrap_or("none at present: hosts wait").to_owned();
    let mut lines = vec![("owner", owner), ("epoch", known.epoch.to_string())];
    if !known.portals.is_empty() {
        lines.push(("portals", known.portals.join(", ")));
    }
    lines.extend(known.replicas.iter().map(|copy| ("copy", line(copy))));
    let ways = ways_out(volume, known);
    lines.extend(ways.into_iter().map(|way| ("to do", way)));
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
    if known.reads == Reads::Confirmed {
        let what = "confirmed: each waits for a word of all other copies in sync";
        lines.push(("reads", what.to_owned()));
    }
    if let Some(proof) = &known.last_proof {
        let what = match proof.agrees() {
            true => "all copies compared agree",
            false => "copies differed: `volume verify` and `events` say more",
        };
        lines.push(("last proof", what.to_owned()));
    }
    lines
}

/// What leads out of what does not end by itself.
fn ways_out(volume: &str, known: &ReplicationStatus) -> Vec<String> {
    let pool = volume.split('/').next().unwrap_or_default();
    let way = |copy: &ReplicaStatus| {
        let node = &copy.node;
        match copy.state {
            ReplicaState::Absent => Some(format!(
                "start node {node}, or look at `ashlar pool status {pool}` there; if it is gone for good, `ashlar node \
                 replace {node} --with NODE`"
            )),
            ReplicaState::Diverged => Some(format!(
                "node {node} has held something else than the owner: `ashlar pool scrub {pool}` there; `ashlar events` \
                 names the ranges"
            )),
            _ => None,
        }
    };
    let hosts_wait = known.owner.is_none().then(|| match &known.advice {
        Some(advice) => advice.clone(),
        None => format!(
            "wait: a copy in sync takes over within two seconds. If that lasts, `ashlar cluster status`: the quorum has to \
             answer, and a node whose copy was in sync has to run; only if those are gone for good, `ashlar volume \
             run-alone {volume} --accept-data-loss` on one that is left"
        ),
    });
    let ways = known.replicas.iter().filter_map(way);
    hosts_wait.into_iter().chain(ways).collect()
}

/// How far a copy's resync is, as far as that is known.
pub(super) fn resync(copy: &ReplicaStatus) -> String {
    let mut text = format!("{} left", bytes(copy.resync_bytes_left));
    if let Some(percent) = copy.resync_percent {
        text.push_str(&format!(", {percent} % done"));
    }
    if let Some(left) = copy.resync_seconds_left {
        text.push_str(&format!(", {} to go", duration(left)));
    }
    text
}

/// How long ago that is, in seconds: by the clock here, of a time that another node has said.
fn ago(since: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs().saturating_sub(since))
}

fn line(copy: &ReplicaStatus) -> String {
    let mut text = format!("node {}: {}", copy.node, word(copy.state).replace('_', " "));
    if let Some(since) = copy.absent_since_seconds {
        text.push_str(&format!(", not in sync for {}", duration(ago(since))));
    }
    if copy.resync_bytes_left > 0 {
        text.push_str(&format!(", {}", resync(copy)));
    }
    if let Some(why) = &copy.reason {
        text.push_str(&format!(" ({why})"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_of_nothing_is_no_success() {
        let volume = VolumeName::new("tank", "db").expect("a name");
        let code = |results: &[ProofResult]| {
            let copy = |&result| CopyProof {
                node: "b".into(),
                result,
                ranges: Vec::new(),
            };
            let proof = ProofStatus {
                seconds: 1,
                asked: 1,
                owner: "a".into(),
                bytes: 0,
                copies: results.iter().map(copy).collect(),
            };
            verdict(&volume, &proof).map_or_else(|failure| failure.code(), |()| 0)
        };
        use ProofResult::{Agrees, Differs, NotCompared};
        assert_eq!(code(&[Agrees, NotCompared]), 0);
        assert_eq!(code(&[Differs, NotCompared]), 1);
        assert_eq!(code(&[NotCompared, NotCompared]), 3);
        assert_eq!(code(&[]), 0);
    }

    fn known(owner: Option<&str>, state: ReplicaState) -> ReplicationStatus {
        let copy = |node: &str, state| ReplicaStatus {
            node: node.into(),
            state,
            resync_bytes_left: 0,
            resync_percent: None,
            resync_seconds_left: None,
            absent_since_seconds: None,
            resynced_bytes: 0,
            reason: None,
        };
        ReplicationStatus {
            owner: owner.map(str::to_owned),
            epoch: 1,
            replicas: vec![copy("a", ReplicaState::InSync), copy("b", state)],
            portals: Vec::new(),
            last_failover: None,
            follow: true,
            followed: None,
            reads: Default::default(),
            last_proof: None,
            written_bytes: None,
            advice: None,
        }
    }

    #[test]
    fn what_does_not_end_by_itself_is_said_with_the_command_that_ends_it() {
        for (owner, state, expected) in [
            (Some("a"), ReplicaState::InSync, &[][..]),
            (Some("a"), ReplicaState::Resync, &[]),
            (Some("a"), ReplicaState::Proving, &[]),
            (
                Some("a"),
                ReplicaState::Absent,
                &["ashlar node replace b --with NODE"],
            ),
            (
                Some("a"),
                ReplicaState::Diverged,
                &["ashlar pool scrub tank"],
            ),
            (
                None,
                ReplicaState::Unknown,
                &["ashlar volume run-alone tank/db --accept-data-loss"],
            ),
        ] {
            let known = known(owner, state);
            let ways = ways_out("tank/db", &known);
            assert_eq!(ways.len(), expected.len(), "{state:?}: {ways:?}");
            for (way, command) in ways.iter().zip(expected) {
                assert!(way.contains(command), "{way}");
            }
        }
        let advice = Some("`volume delete`".to_owned());
        let nowhere = ReplicationStatus {
            advice: advice.clone(),
            ..known(None, ReplicaState::Unknown)
        };
        assert_eq!(ways_out("tank/db", &nowhere), Vec::from_iter(advice));
    }

    #[test]
    fn where_hosts_connect_is_shown_of_all_nodes() {
        let address = |text: &str| text.to_owned();
        let known = ReplicationStatus {
            portals: vec![address("10.0.0.5:4420"), address("10.0.0.6:4420")],
            ..known(Some("a"), ReplicaState::InSync)
        };
        let lines = copies_of("tank/db", &known);
        let shown = lines.iter().find(|(name, _)| *name == "portals");
        let (_, shown) = shown.expect("a line");
        assert_eq!(shown, "10.0.0.5:4420, 10.0.0.6:4420");
    }

    #[test]
    fn a_resync_says_how_far_it_is_as_far_as_that_is_known() {
        let copy = |resync_percent, resync_seconds_left| ReplicaStatus {
            node: "b".into(),
            state: ReplicaState::Resync,
            resync_bytes_left: 4096,
            resync_percent,
            resync_seconds_left,
            absent_since_seconds: None,
            resynced_bytes: 0,
            reason: None,
        };
        for (copy, words) in [
            (copy(None, None), "node b: resync, 4 KiB left"),
            (
                copy(Some(12), None),
                "node b: resync, 4 KiB left, 12 % done",
            ),
            (
                copy(Some(12), Some(90)),
                "node b: resync, 4 KiB left, 12 % done, 1 min 30 s to go",
            ),
        ] {
            assert_eq!(line(&copy), words);
        }
    }

    #[test]
    fn a_copy_that_is_not_in_sync_says_for_how_long() {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a time");
        let known = known(Some("a"), ReplicaState::Absent);
        let copy = ReplicaStatus {
            absent_since_seconds: Some(now.as_secs() - 90_000),
            reason: Some("cut off".into()),
            ..known.replicas[1].clone()
        };
        assert_eq!(
            line(&copy),
            "node b: absent, not in sync for 1 d 1 h (cut off)"
        );
    }
}
