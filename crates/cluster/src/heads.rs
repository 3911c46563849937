//! How far pools had come, as the quorum remembers: a pool that comes back with less is an older image of itself.

use ashlar_replica::Revision;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cluster::{ANSWER_TIMEOUT, Cluster};
use crate::problem::Problem;
use crate::store::Swap;

/// What is remembered of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Changes that the pool has made durable, at least.
    pub published: u64,
    /// Volumes whose copies there are of an older image, and were not copied in full since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub old: Vec<Uuid>,
}

/// What the quorum holds of a pool, and how new that is: what is put in its place must be made from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldHead {
    /// 0 if nothing is held yet.
    pub revision: Revision,
    /// What is remembered.
    pub head: Head,
}

impl Cluster {
    /// What is remembered of a pool. Blocks.
    ///
    /// # Errors
    /// Environment: the quorum does not answer, or holds something else there.
    pub fn head(&self, pool: Uuid) -> Result<HeldHead, Problem> {
        let held = self.held_head(pool)?;
        Ok(held.unwrap_or_else(|| HeldHead {
            revision: Revision(0),
            head: Head::default(),
        }))
    }

    /// Remembers this of a pool, if what is held is still what it was made from. Blocks.
    ///
    /// # Errors
    /// Conflict: something else is held by now. Environment: the quorum does not take it, or does not say so.
    pub fn put_head(&self, pool: Uuid, next: &HeldHead) -> Result<(), Problem> {
        let value = serde_json::to_vec(&next.head);
        let value = value.map_err(|error| Problem::internal(error.to_string()))?;
        let (shared, revision) = (self.shared(), next.revision);
        let swap = async move {
            let key = shared.head_key(pool);
            shared.store.swap(&key, revision, &value).await
        };
        match self.wait(ANSWER_TIMEOUT, swap) {
            Ok(Swap::Made(_)) => Ok(()),
            Ok(Swap::NotMade(_)) => Err(Problem::conflict(format!(
                "how far pool {pool} had come was changed meanwhile by another process"
            ))),
            Ok(Swap::Unknown(why)) | Err(why) => Err(failed(pool, &why)),
        }
    }

    fn held_head(&self, pool: Uuid) -> Result<Option<HeldHead>, Problem> {
        let shared = self.shared();
        let read = async move {
            let key = shared.head_key(pool);
            shared.store.read(&key).await
        };
        let held = self.wait(ANSWER_TIMEOUT, read).and_then(|held| held);
        let held = held.map_err(|why| failed(pool, &why))?;
        let head = held.map(|held| {
            let head = serde_json::from_slice(&held.value);
            let revision = held.revision;
            head.map(|head| HeldHead { revision, head })
        });
        head.transpose().map_err(|error| {
            let why = ashlar_plain::reworded(&error.to_string());
            failed(pool, &format!("what it holds is damaged: {why}"))
        })
    }
}

fn failed(pool: Uuid, why: &str) -> Problem {
    Problem::environment(format!(
        "how far pool {pool} had come is not known from the quorum: {why}"
    ))
}
