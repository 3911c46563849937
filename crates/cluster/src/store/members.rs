//! The members of etcd itself: who is there, who joins and leaves.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::endpoint::EtcdEndpoint;
use super::etcd::{Etcd, Member};
use super::{Keeper, Store};

/// How long etcd may take for a change of its members.
const CHANGE: Duration = Duration::from_secs(5);
/// How long a member may take to say how it is.
const LOOK: Duration = Duration::from_millis(500);

/// A member, as etcd lists it.
#[derive(Clone, Debug)]
pub(crate) struct MemberInfo {
    pub(crate) id: u64,
    pub(crate) peers: Vec<String>,
    pub(crate) is_learner: bool,
}

/// How a member is.
#[derive(Clone, Debug)]
pub(crate) struct MemberStatus {
    pub(crate) is_leader: bool,
    pub(crate) is_learner: bool,
    /// Why it takes no changes, although it answers.
    pub(crate) alarm: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    members: Vec<ListedMember>,
}

#[derive(Deserialize)]
struct ListedMember {
    #[serde(rename = "ID")]
    id: String,
    #[serde(default, rename = "peerURLs")]
    peers: Vec<String>,
    #[serde(default, rename = "isLearner")]
    is_learner: bool,
}

#[derive(Deserialize)]
struct Status {
    header: StatusHeader,
    #[serde(default)]
    leader: String,
    #[serde(default, rename = "isLearner")]
    is_learner: bool,
    #[serde(default)]
    errors: Vec<String>,
}

/// What etcd says of itself when it is out of space.
const NO_SPACE: &str = "NOSPACE";

impl Status {
    fn alarm(&self) -> Option<String> {
        let alarm = self.errors.iter().find(|error| error.contains("alarm"))?;
        Some(match alarm.contains(NO_SPACE) {
            true => "it is out of space and takes no changes: compact it, `etcdctl defrag`, `etcdctl alarm disarm`, \
                     and give it `--auto-compaction-mode revision --auto-compaction-retention 1000`"
                .to_owned(),
            false => format!("it raises an alarm: {alarm}"),
        })
    }
}

#[derive(Deserialize)]
struct StatusHeader {
    #[serde(default)]
    member_id: String,
}

impl Etcd {
    /// Asks one member after the other, until one does it.
    async fn order<T: DeserializeOwned>(&self, path: &str, what: &Value) -> Result<T, String> {
        let body = Bytes::from(what.to_string());
        let mut failures = Vec::new();
        for member in self.members().iter() {
            match member.order(path, &body, CHANGE).await {
                Ok(answer) => return Ok(answer),
                Err(why) => failures.push(format!("{}: {why}", member.endpoint)),
            }
        }
        Err(failures.join("; "))
    }
}

impl Member {
    async fn order<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Bytes,
        patience: Duration,
    ) -> Result<T, String> {
        let answer = self.post(path, body, patience).await;
        let answer = answer.map_err(|failed| failed.why)?;
        serde_json::from_slice(&answer).map_err(|error| {
            let why = ashlar_plain::reworded(&error.to_string());
            format!("answers what is no answer of etcd: {why}")
        })
    }

    async fn status(&self) -> Result<MemberStatus, String> {
        let nothing = Bytes::from_static(b"{}");
        let path = "/v3/maintenance/status";
        let status: Status = self.order(path, &nothing, LOOK).await?;
        if matches!(status.leader.as_str(), "" | "0") {
            return Err("it knows no leader: too few members are there".into());
        }
        Ok(MemberStatus {
            is_leader: status.leader == status.header.member_id,
            is_learner: status.is_learner,
            alarm: status.alarm(),
        })
    }
}

fn number(id: &str) -> Result<u64, String> {
    id.parse()
        .map_err(|_| format!("etcd has a member with the id {id:?}"))
}

impl Store {
    fn etcd(&self) -> Result<&Etcd, String> {
        match &self.keeper {
            Keeper::Etcd(etcd) => Ok(etcd),
            Keeper::Memory(_) => Err("a store in memory has no members".into()),
        }
    }

    /// Where etcd is asked from now on.
    pub(crate) fn set_endpoints(&self, endpoints: &[EtcdEndpoint]) {
        if let Keeper::Etcd(etcd) = &self.keeper {
            etcd.set_endpoints(endpoints);
        }
    }

    pub(crate) async fn etcd_members(&self) -> Result<Vec<MemberInfo>, String> {
        let listed: Listed = self
            .etcd()?
            .order("/v3/cluster/member/list", &json!({}))
            .await?;
        let members = listed.members.into_iter().map(|member| {
            Ok(MemberInfo {
                id: number(&member.id)?,
                peers: member.peers,
                is_learner: member.is_learner,
            })
        });
        members.collect()
    }

    pub(crate) async fn add_learner(&self, peers: &str) -> Result<(), String> {
        let what = json!({ "peerURLs": [peers], "isLearner": true });
        let path = "/v3/cluster/member/add";
        self.etcd()?.order::<Value>(path, &what).await.map(drop)
    }

    pub(crate) async fn promote_member(&self, id: u64) -> Result<(), String> {
        let what = json!({ "ID": id.to_string() });
        let path = "/v3/cluster/member/promote";
        self.etcd()?.order::<Value>(path, &what).await.map(drop)
    }

    pub(crate) async fn remove_member(&self, id: u64) -> Result<(), String> {
        let what = json!({ "ID": id.to_string() });
        let path = "/v3/cluster/member/remove";
        self.etcd()?.order::<Value>(path, &what).await.map(drop)
    }

    /// How each member is; of a store in memory nothing.
    pub(crate) async fn member_statuses(
        &self,
    ) -> Vec<(EtcdEndpoint, Result<MemberStatus, String>)> {
        let Keeper::Etcd(etcd) = &self.keeper else {
            return Vec::new();
        };
        let members: Arc<Vec<Arc<Member>>> = etcd.members();
        let mut asked = Vec::new();
        for member in members.iter() {
            asked.push((member.endpoint.clone(), member.status().await));
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_out_of_space_says_so_although_it_answers() {
        let status = |errors: &str| {
            let text = format!(
                r#"{{"header":{{"member_id":"7"}},"leader":"7","dbSize":"24576"{errors}}}"#
            );
            serde_json::from_str::<Status>(&text).expect("a status")
        };
        assert_eq!(status("").alarm(), None);
        let alarm = status(r#","errors":["memberID:7 alarm:NOSPACE "]"#).alarm();
        assert!(alarm.expect("one").contains("out of space"));
        let alarm = status(r#","errors":["memberID:7 alarm:CORRUPT "]"#).alarm();
        assert!(alarm.expect("one").contains("alarm:CORRUPT"));
    }
}
