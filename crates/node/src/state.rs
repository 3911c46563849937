use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ashlar_store::Membership;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::access::VolumeAccess;
use crate::files;
use crate::model::{ControlError, DriveClass, check_name};

/// The version of the file that this program writes and reads. `[[drive]]` came without another: no
/// program without it was ever released, and one refuses the file by its name rather than by its number.
const VERSION: u32 = 1;
const HEAD: &str = "# Written by `ashlar node`, which replaces it as a whole. \
                    Stop the daemon before editing it.\n\n";

/// A pool that the daemon imports when it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolEntry {
    pub name: String,
    /// Its identity: drives of another pool are not taken for this one.
    pub id: Uuid,
    /// Its drives, as devices are named.
    pub drives: Vec<String>,
}

/// A drive that was a pool's when it was seen last. A drive's label tells all this, and one that is
/// missing has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveEntry {
    /// The pool's identity.
    pub pool: Uuid,
    /// The drive's identity.
    pub drive: Uuid,
    /// As the device was named; empty if it never was here.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub spec: String,
    /// Its class, if it was ever here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<DriveClass>,
    /// An operator has had it removed or replaced: once nothing is on it, it is not shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
}

/// A volume of a pool that is a copy of a replicated one, and who has the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaEntry {
    /// The pool's identity.
    pub pool: Uuid,
    /// The volume's identity, the same on all nodes.
    pub volume: Uuid,
    /// The nodes that have a copy, by position.
    pub members: Vec<Option<u32>>,
    /// Ownership does not follow the volume's hosts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays: bool,
}

/// Which drives of a pool held everything when it was in service last: half of them may go on by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MembershipEntry {
    /// The pool's identity.
    pub pool: Uuid,
    /// The import that it is of, counted.
    pub term: u64,
    /// The first root that named these drives.
    pub generation: u64,
    /// The drives' identities.
    pub drives: BTreeSet<Uuid>,
}

impl MembershipEntry {
    fn of(membership: &Membership) -> Self {
        let Membership {
            pool,
            term,
            generation,
            drives,
        } = membership.clone();
        Self {
            pool,
            term,
            generation,
            drives,
        }
    }

    fn membership(&self) -> Membership {
        let Self {
            pool,
            term,
            generation,
            drives,
        } = self.clone();
        Membership {
            pool,
            term,
            generation,
            drives,
        }
    }
}

/// Files that are kept out of a cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleEntry {
    /// The pool's identity.
    pub pool: Uuid,
    /// The volume's identity.
    pub volume: Uuid,
    /// Which files.
    pub exclude: String,
    /// The machine that looks them up.
    pub host: String,
}

/// What a daemon remembers across restarts, besides what is on the drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    version: u32,
    #[serde(default, rename = "pool", skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolEntry>,
    /// Their drives, and those of pools that were here.
    #[serde(default, rename = "drive", skip_serializing_if = "Vec::is_empty")]
    pub drives: Vec<DriveEntry>,
    /// Who may connect to their volumes.
    #[serde(default, rename = "volume", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeAccess>,
    /// Their volumes that have copies on other nodes.
    #[serde(default, rename = "replica", skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaEntry>,
    /// An operator has had this node drained.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
    /// Which of their drives hold everything.
    #[serde(default, rename = "membership", skip_serializing_if = "Vec::is_empty")]
    pub memberships: Vec<MembershipEntry>,
    /// What is kept out of their caches.
    #[serde(default, rename = "cache_rule", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleEntry>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            version: VERSION,
            pools: Vec::new(),
            drives: Vec::new(),
            volumes: Vec::new(),
            replicas: Vec::new(),
            drained: false,
            memberships: Vec::new(),
            rules: Vec::new(),
        }
    }
}

impl State {
    /// Puts a pool in, in place of what was remembered about it.
    pub fn put_pool(&mut self, entry: PoolEntry) {
        match self.pools.iter_mut().find(|known| known.id == entry.id) {
            Some(known) => *known = entry,
            None => self.pools.push(entry),
        }
    }

    /// Forgets a pool, but not who may connect to its volumes, nor how its drives were called: it may come
    /// back, and then without a drive that only this knows by its name. That is at most 64 entries a pool
    /// that was ever here.
    pub fn forget_pool(&mut self, id: Uuid) {
        self.pools.retain(|pool| pool.id != id);
        self.memberships.retain(|known| known.pool != id);
    }

    /// Puts in which drives of a pool hold everything, in place of what was remembered.
    pub fn put_membership(&mut self, membership: &Membership) {
        self.memberships
            .retain(|known| known.pool != membership.pool);
        self.memberships.push(MembershipEntry::of(membership));
    }

    /// Which drives of a pool hold everything.
    pub fn membership(&self, pool: Uuid) -> Option<Membership> {
        let mut known = self.memberships.iter();
        let known = known.find(|known| known.pool == pool)?;
        Some(known.membership())
    }

    /// Puts in what is known of a pool's drives, in place of what was.
    pub fn put_drives(&mut self, pool: Uuid, drives: Vec<DriveEntry>) {
        let known = self.drives.iter().filter(|known| known.pool == pool);
        // Not even their order changes when nothing does: the file is written for less.
        if !known.eq(&drives) {
            self.drives.retain(|known| known.pool != pool);
            self.drives.extend(drives);
        }
    }

    /// A drive that was a pool's.
    pub fn drive(&self, pool: Uuid, drive: Uuid) -> Option<&DriveEntry> {
        let mut known = self.drives.iter();
        known.find(|known| known.pool == pool && known.drive == drive)
    }

    /// Puts in who may connect to a volume, in place of what was remembered.
    pub fn put_volume(&mut self, access: VolumeAccess) {
        let same =
            |known: &&mut VolumeAccess| known.pool == access.pool && known.volume == access.volume;
        match self.volumes.iter_mut().find(same) {
            Some(known) => *known = access,
            None => self.volumes.push(access),
        }
    }

    /// Puts in who has copies of a volume, in place of what was remembered.
    pub fn put_replica(&mut self, entry: ReplicaEntry) {
        self.forget_replica(entry.pool, entry.volume);
        self.replicas.push(entry);
    }

    /// A volume is no copy, or not any more.
    pub fn forget_replica(&mut self, pool: Uuid, volume: Uuid) {
        let other = |known: &ReplicaEntry| known.pool != pool || known.volume != volume;
        self.replicas.retain(other);
    }

    /// Whether ownership of a volume does not follow its hosts.
    pub fn stays(&self, volume: Uuid) -> bool {
        let mut known = self.replicas.iter();
        known.any(|known| known.volume == volume && known.stays)
    }

    /// Who has copies of a volume; `None` if it is not known to have any.
    pub fn replica(&self, pool: Uuid, volume: Uuid) -> Option<&ReplicaEntry> {
        let mut known = self.replicas.iter();
        known.find(|known| known.pool == pool && known.volume == volume)
    }

    /// Forgets a volume.
    pub fn forget_volume(&mut self, pool: Uuid, volume: Uuid) {
        self.forget_replica(pool, volume);
        self.volumes
            .retain(|known| known.pool != pool || known.volume != volume);
        self.rules.retain(|rule| rule.volume != volume);
    }

    /// Puts in a rule of a cache, in place of one of the same files.
    pub fn put_rule(&mut self, rule: RuleEntry) {
        self.forget_rule(rule.volume, &rule.exclude);
        self.rules.push(rule);
    }

    /// Forgets a rule; whether it was there.
    pub fn forget_rule(&mut self, volume: Uuid, exclude: &str) -> bool {
        let before = self.rules.len();
        self.rules
            .retain(|rule| rule.volume != volume || rule.exclude != exclude);
        self.rules.len() < before
    }

    /// Who may connect to a volume; `None` for one that is not known.
    pub fn access(&self, pool: Uuid, volume: Uuid) -> Option<&VolumeAccess> {
        self.volumes
            .iter()
            .find(|known| known.pool == pool && known.volume == volume)
    }

    fn check(&self) -> Result<(), ControlError> {
        if self.version != VERSION {
            return Err(ControlError::usage(format!(
                "version {}; this program knows version {VERSION}",
                self.version
            )));
        }
        let (mut names, mut ids) = (BTreeSet::new(), BTreeSet::new());
        for pool in &self.pools {
            check_name("pool", &pool.name)?;
            if !names.insert(&pool.name) || !ids.insert(pool.id) {
                return Err(ControlError::usage(format!(
                    "pool {} ({}) is there twice",
                    pool.name, pool.id
                )));
            }
            if pool.drives.is_empty() || pool.drives.iter().any(String::is_empty) {
                return Err(ControlError::usage(format!(
                    "pool {} has no drives, or one without a name",
                    pool.name
                )));
            }
        }
        let mut drives = BTreeSet::new();
        for entry in &self.drives {
            if !drives.insert((entry.pool, entry.drive)) {
                return Err(ControlError::usage(format!(
                    "drive {} of pool {} is there twice",
                    entry.drive, entry.pool
                )));
            }
        }
        let mut volumes = BTreeSet::new();
        for access in &self.volumes {
            if !volumes.insert((access.pool, access.volume)) {
                return Err(ControlError::usage(format!(
                    "volume {} of pool {} is there twice",
                    access.volume, access.pool
                )));
            }
            access.check()?;
        }
        Ok(())
    }
}

/// `DIR/state.toml`.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    /// Held while the file is changed, which takes as long as its disk does.
    changing: Mutex<()>,
    /// Held for moments only.
    state: Mutex<State>,
}

impl StateFile {
    /// A file or folder beside it.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }

    /// Reads it; a file that is not there is an empty state.
    ///
    /// # Errors
    /// Environment: it cannot be read, or is damaged. It is left as it is.
    pub fn open(path: &Path) -> Result<Self, ControlError> {
        let state = match files::read(path)? {
            None => State::default(),
            Some(text) => parse(&text).map_err(|why| {
                ControlError::environment(format!(
                    "{} is damaged and was left as it is: {why}\n\
                     repair it, or move it away and import the pools again",
                    path.display()
                ))
            })?,
        };
        Ok(Self {
            path: path.to_owned(),
            changing: Mutex::default(),
            state: Mutex::new(state),
        })
    }

    /// What is remembered now. Waits for no disk: what is being changed is as it was until that is durable.
    pub fn read(&self) -> State {
        self.lock().clone()
    }

    /// Changes what is remembered, and returns when that is durable. If it fails, nothing has
    /// changed.
    ///
    /// # Errors
    /// Usage: the change makes no sense. Environment: the file cannot be written.
    pub fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T, ControlError> {
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.read();
        let mut next = before.clone();
        let result = change(&mut next);
        if next == before {
            return Ok(result);
        }
        next.check()?;
        let text = toml::to_string(&next)
            .map_err(|error| ControlError::internal(format!("state.toml: {error}")))?;
        files::replace(&self.path, format!("{HEAD}{text}").as_bytes())?;
        *self.lock() = next;
        Ok(result)
    }

    /// All that reads it waits.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> std::sync::MutexGuard<'_, State> {
        self.lock()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // It is replaced in one assignment, so a panic elsewhere cannot have left half of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse(text: &str) -> Result<State, String> {
    let state: State = toml::from_str(text).map_err(|error| files::bad_toml(text, &error))?;
    state.check().map_err(|error| error.message)?;
    Ok(state)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::ErrorKind;

    fn pool(name: &str, id: u128) -> PoolEntry {
        PoolEntry {
            name: name.into(),
            id: Uuid::from_u128(id),
            drives: vec!["file:/p?size=8GiB&class=hdd".into(), "/dev/x".into()],
        }
    }

    fn access(pool: u128, volume: u128, host: &str) -> VolumeAccess {
        VolumeAccess {
            pool: Uuid::from_u128(pool),
            volume: Uuid::from_u128(volume),
            allow_hosts: vec![host.into()],
            allow_any_host: false,
            changes: BTreeMap::default(),
        }
    }

    fn rule(volume: u128, exclude: &str, host: &str) -> RuleEntry {
        RuleEntry {
            pool: Uuid::from_u128(1),
            volume: Uuid::from_u128(volume),
            exclude: exclude.into(),
            host: host.into(),
        }
    }

    #[test]
    fn what_was_written_is_read_again() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("state.toml");
        let file = StateFile::open(&path).expect("none yet");
        assert_eq!(file.read(), State::default());
        assert!(!path.exists(), "reading writes nothing");
        let drive = |drive: u128, spec: &str| DriveEntry {
            pool: Uuid::from_u128(1),
            drive: Uuid::from_u128(drive),
            spec: spec.into(),
            class: (!spec.is_empty()).then_some(DriveClass::Hdd),
            removed: drive == 9,
        };
        let drives = vec![drive(8, "/dev/x"), drive(9, ""), drive(7, "/dev/y")];
        file.update(|state| {
            state.put_pool(pool("tank", 1));
            state.put_drives(Uuid::from_u128(1), vec![drive(5, "/dev/z")]);
            state.put_drives(Uuid::from_u128(1), drives.clone());
            state.put_volume(access(1, 2, "nqn.a"));
            state.put_volume(access(1, 3, "nqn.b"));
            state.put_rule(rule(2, "/srv/wal/**", "old"));
            state.put_rule(rule(2, "/srv/wal/**", "new"));
            state.put_rule(rule(3, "/srv/wal/**", "new"));
        })
        .expect("written");
        file.update(|state| {
            state.put_pool(PoolEntry {
                name: "renamed".into(),
                ..pool("", 1)
            });
            state.put_volume(access(1, 2, "nqn.c"));
            state.forget_volume(Uuid::from_u128(1), Uuid::from_u128(3));
        })
        .expect("written");
        let again = StateFile::open(&path).expect("whole").read();
        assert_eq!(again, file.read());
        assert_eq!(again.pools.len(), 1);
        assert_eq!(again.pools[0].name, "renamed");
        assert_eq!(again.volumes, [access(1, 2, "nqn.c")]);
        assert_eq!(again.drives, drives);
        assert_eq!(again.rules, [rule(2, "/srv/wal/**", "new")]);
        let known = again.drive(Uuid::from_u128(1), Uuid::from_u128(9));
        assert!(known.is_some_and(|known| known.removed));
        assert_eq!(again.drive(Uuid::from_u128(2), Uuid::from_u128(9)), None);
        let only: Vec<_> = std::fs::read_dir(dir.path()).expect("directory").collect();
        assert_eq!(only.len(), 1, "nothing is left beside it: {only:?}");
    }

    #[test]
    fn a_damaged_file_is_refused_and_kept() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("state.toml");
        let id = Uuid::from_u128(7);
        let drive = format!("[[drive]]\npool = '{id}'\ndrive = '{id}'\n");
        for (text, word) in [
            ("version = 1\n[[pool", "line 2"),
            ("", "`version` is missing"),
            ("version = 2\n", "version 2"),
            (
                "version = 1\ncolour = 3\n",
                "line 2, `colour = 3`: there is no `colour`",
            ),
            (
                "version = 1\n[[pool]]\nname = 'tank'\nid = 'x'\ndrives = ['/a']\n",
                "UUID",
            ),
            (
                &format!("version = 1\n[[pool]]\nname = 'a/b'\nid = '{id}'\ndrives = ['/a']\n"),
                "a/b",
            ),
            (
                &format!("version = 1\n[[pool]]\nname = 'tank'\nid = '{id}'\ndrives = []\n"),
                "no drives",
            ),
            (&format!("version = 1\n{drive}{drive}"), "twice"),
            (
                &format!("version = 1\n[[volume]]\npool = '{id}'\nvolume = '{id}'\nhosts = []\n"),
                "hosts",
            ),
        ] {
            std::fs::write(&path, text).expect("file");
            let error = StateFile::open(&path).expect_err(text);
            assert_eq!(error.kind, ErrorKind::Environment);
            let named = error.message.contains(word) && error.message.contains("state.toml");
            assert!(named, "{text}: {error}");
            for programs in ["field", "expected one of", "struct", "TOML parse"] {
                assert!(!error.message.contains(programs), "{text}: {error}");
            }
            assert_eq!(std::fs::read_to_string(&path).expect("kept"), text);
        }
        std::fs::write(&path, [0xff, 0xfe]).expect("file");
        assert!(StateFile::open(&path).is_err(), "no text at all");
    }

    #[test]
    fn a_change_that_fails_changes_nothing() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("state.toml");
        let file = StateFile::open(&path).expect("none yet");
        file.update(|state| state.put_pool(pool("tank", 1)))
            .expect("written");
        let before = file.read();
        let twice = file.update(|state| state.put_pool(pool("tank", 2)));
        assert_eq!(twice.expect_err("two of one name").kind, ErrorKind::Usage);
        assert_eq!(file.read(), before);
        // A folder in the way of the new file makes writing impossible, for root too.
        std::fs::create_dir(dir.path().join(".state.toml.new")).expect("folder");
        let error = file
            .update(|state| state.put_pool(pool("lake", 2)))
            .expect_err("no place");
        assert_eq!(error.kind, ErrorKind::Environment);
        assert_eq!(file.read(), before);
        assert_eq!(StateFile::open(&path).expect("whole").read(), before);
    }

    #[test]
    fn what_is_remembered_is_read_while_a_change_waits_for_its_disk() {
        use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
        let dir = tempfile::tempdir().expect("directory");
        let file = StateFile::open(&dir.path().join("state.toml")).expect("none yet");
        // A pipe in place of the new file: opening it waits until it is read.
        let slow = dir.path().join(".state.toml.new");
        mknodat(CWD, &slow, FileType::Fifo, Mode::from(0o600), 0).expect("a pipe");
        let (tell, told) = std::sync::mpsc::channel();
        let limit = std::time::Duration::from_secs(20);
        let file = &file;
        std::thread::scope(|scope| {
            let began = tell.clone();
            let writer = scope.spawn(move || {
                file.update(|state| {
                    state.put_pool(pool("tank", 1));
                    let _ = began.send(());
                })
            });
            told.recv_timeout(limit).expect("the change has begun");
            // It is past that, and in the file, most of the time.
            std::thread::sleep(std::time::Duration::from_millis(20));
            scope.spawn(move || {
                let _ = (file.read(), tell.send(()));
            });
            let read = told.recv_timeout(limit);
            // A pipe cannot be synced: the change fails, and nothing has changed.
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            let _pipe = rustix::fs::open(&slow, flags, Mode::empty()).expect("a pipe");
            assert!(writer.join().expect("it ends").is_err());
            read.expect("it is read at once");
        });
        assert_eq!(file.read(), State::default());
    }
}
