//! Volumes in doubt: the quorum's majority was lost for good, one machine's etcd goes on with what it knew, and nothing
//! says what the lost ones have decided after that. A copy that they have left out, or made owner, may be the one that
//! is here.
//!
//! `cluster recover` marks each volume of which this node's copy is not certainly current, in the quorum, before another
//! node can reach it. It leaves a file in the node's directory before it touches etcd: if it is broken off, the first
//! daemon after it marks them, before it serves any; then the file goes.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ashlar_replica::{Key, NodeId, Positions, Revision};
use tokio::time::timeout;
use uuid::Uuid;

use crate::cluster::{ANSWER_TIMEOUT, Cluster};
use crate::members::{Home, ask};
use crate::problem::Problem;
use crate::shared::{doubt_key, volumes_prefix};
use crate::store::{Store, Swap};

/// How long it may take to mark all volumes.
const MARK_WITHIN: Duration = Duration::from_secs(60);
/// What a mark holds: that it is there says all.
const MARK: &[u8] = b"{}";

fn path(dir: &Path) -> PathBuf {
    dir.join("recovered")
}

/// From now on the next daemon of this directory takes the quorum for one that has lost its majority. Durable.
///
/// # Errors
/// Environment: it cannot be written.
pub fn expect_recovery(dir: &Path) -> Result<(), Problem> {
    let path = path(dir);
    let write = || {
        File::create(&path)?.sync_all()?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|error| failed(&path, "cannot be written", &error))
}

/// All that is in doubt is marked.
///
/// # Errors
/// Environment: the file cannot be removed.
pub fn expect_no_recovery(dir: &Path) -> Result<(), Problem> {
    let path = path(dir);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(failed(&path, "cannot be removed", &error))
        }
        _ => Ok(()),
    }
}

fn failed(path: &Path, what: &str, error: &std::io::Error) -> Problem {
    Problem::environment(format!("{} {what}: {error}", path.display()))
}

/// Whether a node knows by its own etcd alone that its copy has all that was acknowledged. Within an epoch only the
/// owner adds copies, and only one in sync becomes owner: so if this copy is the only one in sync, no other can have
/// acknowledged anything. That it was the owner alone says nothing: the others may have left it out since.
fn is_certain(value: &[u8], me: NodeId) -> bool {
    // One that cannot be read says nothing.
    Key::decode(value).is_ok_and(|key| {
        let mine = key.position(me).filter(|_| key.owner.node == me);
        mine.is_some_and(|mine| key.in_sync == Positions::NONE.with(mine))
    })
}

impl Cluster {
    /// What [`expect_recovery`] has said is looked at: the volumes that are in doubt from now on. Nothing, if it has
    /// not, or other members of etcd are there: then the recovery was broken off before anything was lost. Blocks.
    ///
    /// # Errors
    /// Environment: the quorum does not answer, or the file cannot be removed. Nothing may be served then.
    pub fn settle_recovery(&self, dir: &Path) -> Result<Vec<Uuid>, Problem> {
        let path = path(dir);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let shared = self.shared();
        let members = async move { shared.store.etcd_members().await };
        let members = self.wait(ANSWER_TIMEOUT, members).and_then(|all| all);
        let members = members.map_err(|why| unknown("who is in etcd", &why))?;
        let marked = match members.len() {
            1 => self.doubt_volumes()?,
            _ => Vec::new(),
        };
        expect_no_recovery(dir).map(|()| marked)
    }

    /// Marks all volumes of which this node's copy is not certainly current. Done again, it marks what is not marked.
    /// Blocks.
    ///
    /// # Errors
    /// Environment: the quorum does not answer.
    pub fn doubt_volumes(&self) -> Result<Vec<Uuid>, Problem> {
        let (shared, me) = (self.shared(), self.me());
        let mark_all = async move { mark_all(&shared.store, &shared.name, me).await };
        let marked = self.wait(MARK_WITHIN, mark_all).and_then(|marked| marked);
        marked.map_err(|why| unknown("which volumes are in doubt", &why))
    }

    /// Whether nothing says that a copy of this volume has all that was acknowledged. Blocks.
    ///
    /// # Errors
    /// Environment: the quorum does not answer.
    pub fn is_in_doubt(&self, volume: Uuid) -> Result<bool, Problem> {
        let shared = self.shared();
        let read = async move {
            let mark = shared.doubt_key(volume);
            shared.store.read(&mark).await
        };
        let held = self.wait(ANSWER_TIMEOUT, read).and_then(|held| held);
        let held = held.map_err(|why| unknown("whether a volume is in doubt", &why))?;
        Ok(held.is_some())
    }

    /// An operator has decided, or the volume is gone. Blocks.
    ///
    /// # Errors
    /// Environment: the quorum does not answer.
    pub fn end_doubt(&self, volume: Uuid) -> Result<(), Problem> {
        let shared = self.shared();
        let delete = async move {
            let mark = shared.doubt_key(volume);
            shared.store.delete(&mark).await
        };
        let deleted = self.wait(ANSWER_TIMEOUT, delete).and_then(|done| done);
        deleted.map_err(|why| unknown("that a volume is in doubt no more", &why))
    }
}

/// Marks all volumes of which this node's copy is not certainly current, by a quorum that no other node reaches yet.
///
/// # Errors
/// Environment: the quorum does not answer.
pub fn doubt_volumes_at(home: &Home) -> Result<Vec<Uuid>, Problem> {
    let me = home.node().map(|node| node.id);
    let me = me.ok_or_else(|| Problem::environment("this is no node"))?;
    let marked = ask(home, async |store| {
        let marking = mark_all(store, &home.config.name, me);
        let late = |_| format!("no answer within {MARK_WITHIN:?}");
        timeout(MARK_WITHIN, marking).await.map_err(late)?
    });
    marked.map_err(|why| unknown("which volumes are in doubt", &why))
}

/// Marks them in the cluster of this name.
async fn mark_all(store: &Store, name: &str, me: NodeId) -> Result<Vec<Uuid>, String> {
    let prefix = volumes_prefix(name);
    let mut marked = Vec::new();
    for (key, value) in store.list(&prefix).await? {
        let volume = Uuid::parse_str(key.trim_start_matches(&prefix));
        let Some(volume) = volume.ok().filter(|_| !is_certain(&value, me)) else {
            continue;
        };
        match store
            .swap(&doubt_key(name, volume), Revision(0), MARK)
            .await
        {
            Swap::Made(_) | Swap::NotMade(Some(_)) => marked.push(volume),
            Swap::NotMade(None) => return Err("it has not taken a mark".to_owned()),
            Swap::Unknown(why) => return Err(why),
        }
    }
    Ok(marked)
}

fn unknown(what: &str, why: &str) -> Problem {
    Problem::environment(format!("the quorum does not say {what}: {why}"))
}

#[cfg(test)]
mod tests {
    use ashlar_replica::{Epoch, Incarnation, MemberId, Members, OwnerId, Position, ReplicaUuid};

    use super::*;
    use crate::members::tests::cluster;

    fn key(owner: u32, in_sync: &[usize], nodes: [u32; 2]) -> Vec<u8> {
        let member = |node| MemberId {
            node: NodeId(node),
            replica: ReplicaUuid([node as u8; 16]),
        };
        let at = |index: &usize| Position::new(*index).expect("a position");
        let key = Key {
            epoch: Epoch(4),
            owner: OwnerId {
                node: NodeId(owner),
                incarnation: Incarnation(3),
            },
            in_sync: in_sync.iter().map(at).collect(),
            members: Members::first(nodes.map(member)).expect("two"),
            forced: 0,
            size: None,
        };
        key.encode()
    }

    /// The node that was asked is number 1.
    #[test]
    fn only_what_no_other_copy_can_have_changed_is_certain() {
        let me = NodeId(1);
        assert!(is_certain(&key(1, &[0], [1, 2]), me), "alone in sync");
        assert!(!is_certain(&key(2, &[0], [1, 2]), me), "another's epoch");
        // The other may have left this one out, also where this one owned it.
        assert!(!is_certain(&key(1, &[0, 1], [1, 2]), me));
        assert!(!is_certain(&key(2, &[0, 1], [1, 2]), me));
        assert!(!is_certain(&key(2, &[1], [1, 2]), me), "absent here");
        assert!(!is_certain(&key(2, &[0], [2, 3]), me), "no copy here");
        assert!(!is_certain(b"{", me), "of a newer format");
    }

    #[test]
    fn volumes_stay_in_doubt_until_that_is_ended() {
        let (_dir, cluster) = cluster(61);
        let [certain, doubtful] = [1, 2].map(Uuid::from_u128);
        let shared = cluster.shared();
        for (volume, value) in [
            (certain, key(1, &[0], [1, 2])),
            (doubtful, key(1, &[0, 1], [1, 2])),
        ] {
            let shared = shared.clone();
            let put = async move {
                let key = shared.volume_key(volume);
                shared.store.swap(&key, Revision(0), &value).await
            };
            let put = cluster.wait(ANSWER_TIMEOUT, put);
            assert!(matches!(put, Ok(Swap::Made(_))), "{put:?}");
        }
        for _ in 0..2 {
            assert_eq!(cluster.doubt_volumes(), Ok(vec![doubtful]));
        }
        assert_eq!(cluster.is_in_doubt(certain), Ok(false));
        assert_eq!(cluster.is_in_doubt(doubtful), Ok(true));
        assert_eq!(cluster.end_doubt(doubtful), Ok(()));
        assert_eq!(cluster.is_in_doubt(doubtful), Ok(false));
        cluster.stop();
    }

    /// A daemon goes by the file once, and leaves it where the quorum does not say who is in it.
    #[test]
    fn what_recover_has_left_is_kept_until_it_is_settled() {
        let (dir, cluster) = cluster(62);
        assert_eq!(cluster.settle_recovery(dir.path()), Ok(Vec::new()));
        expect_recovery(dir.path()).expect("written");
        // A store in memory has no members of etcd.
        assert!(cluster.settle_recovery(dir.path()).is_err());
        assert!(path(dir.path()).exists());
        cluster.stop();
    }
}
