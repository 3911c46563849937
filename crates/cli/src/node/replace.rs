//! `ashlar node replace`: asked again and again, until nothing is left to be done.

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_node::model::{ReplaceNode, ReplaceReply, ReplaceState, ReplacedVolume};
use uuid::Uuid;

use super::Api;
use super::table::bytes;
use crate::args::ApiOptions;
use crate::exit::Failure;
use crate::output::print;

const ASK_EVERY: Duration = Duration::from_secs(1);

/// Goes on until every copy of a node is another's.
pub(super) fn replace(node: &str, with: &str, api: &ApiOptions) -> Result<(), Failure> {
    let api_options = api;
    let api = Api::new(api)?;
    let request = ReplaceNode {
        node: node.to_owned(),
        with: with.to_owned(),
    };
    let mut all: BTreeMap<Uuid, ReplacedVolume> = BTreeMap::new();
    loop {
        let reply = api.client.replace_node(&request)?;
        all.values_mut()
            .for_each(|known| conclude(known, &reply.volumes));
        for one in reply.volumes {
            let before = all.insert(one.uuid, one.clone());
            if before.as_ref() != Some(&one) && !api_options.json {
                print(&line(&one, with))?;
            }
        }
        if !all.values().any(|one| one.state == ReplaceState::Copying) {
            break;
        }
        std::thread::sleep(ASK_EVERY);
    }
    let reply = ReplaceReply {
        volumes: all.into_values().collect(),
    };
    let refused = reply.volumes.iter();
    let refused = refused.filter(|one| one.state == ReplaceState::Refused);
    let refused = refused.count();
    api.show(&reply, |reply| end(reply, (node, with)))?;
    match refused {
        0 => Ok(()),
        count => Err(Failure::environment(format!(
            "node {with} has not taken the place of node {node} for {count} volumes"
        ))),
    }
}

/// What the old node has no copy of any more is done, unless that was refused: its copy may have gone without another in
/// its place.
fn conclude(known: &mut ReplacedVolume, listed: &[ReplacedVolume]) {
    let is_listed = listed.iter().any(|one| one.uuid == known.uuid);
    if !is_listed && known.state == ReplaceState::Copying {
        known.state = ReplaceState::Replaced;
        known.resync_bytes_left = 0;
    }
}

fn line(one: &ReplacedVolume, with: &str) -> String {
    let volume = &one.volume;
    match (one.state, &one.reason) {
        (ReplaceState::Replaced, _) => format!("{volume}: node {with} has it\n"),
        (ReplaceState::Copying, _) => {
            format!("{volume}: {} left to copy\n", bytes(one.resync_bytes_left))
        }
        (ReplaceState::Refused, Some(why)) => format!("{volume}: {why}\n"),
        (ReplaceState::Refused, None) => format!("{volume}: refused\n"),
    }
}

fn end(reply: &ReplaceReply, (node, with): (&str, &str)) -> String {
    let done = reply.volumes.iter();
    let done = done.filter(|one| one.state == ReplaceState::Replaced);
    match (done.count(), reply.volumes.len()) {
        (_, 0) => format!(
            "node {node} has no copy of a volume. One that has fewer copies than it should gets another by `ashlar volume \
             replicate`\n"
        ),
        (done, all) if done == all => {
            format!(
                "node {with} has taken the place of node {node}: `ashlar node forget {node}` if it is gone\n"
            )
        }
        (done, all) => format!("{done} of {all} volumes\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_being_copied_is_replaced_when_it_is_not_listed_any_more() {
        let volume = |state| ReplacedVolume {
            volume: "tank/db".into(),
            uuid: Uuid::from_u128(1),
            state,
            resync_bytes_left: 1,
            reason: None,
        };
        let after = |state, listed: &[ReplacedVolume]| {
            let mut known = volume(state);
            conclude(&mut known, listed);
            known.state
        };
        let listed = [volume(ReplaceState::Copying)];
        assert_eq!(after(ReplaceState::Copying, &listed), ReplaceState::Copying);
        assert_eq!(after(ReplaceState::Copying, &[]), ReplaceState::Replaced);
        assert_eq!(after(ReplaceState::Refused, &[]), ReplaceState::Refused);
    }
}
