//! The pool manager over a real target and files as drives.

mod leaving;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ashlar_block::Moment;
use ashlar_nvme_target::Timeouts;
use ashlar_nvme_target::server::{CoreDeath, Resident, Server, ServerConfig};
use ashlar_reactor::{Options, available_cores};
use tempfile::TempDir;

use super::serve::CORE;
use super::*;
use crate::model::{DriveState, ErrorKind, LayoutSpec, PoolState, VolumeState};
use crate::pool::{NewDrive, open_drives};

pub(super) struct Room {
    dir: Rc<TempDir>,
    pub(super) manager: Arc<PoolManager>,
    server: Option<Server>,
}

impl Room {
    pub(super) fn new() -> Self {
        Self::of(None)
    }

    /// That of a node of a cluster.
    pub(super) fn of(cluster: Option<Cluster>) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        Self::in_folder(Rc::new(dir), &Config::default(), cluster)
    }

    /// After a restart of the daemon.
    pub(super) fn again(self, config: &Config) -> Self {
        self.again_after(config, || ())
    }

    /// The same; something happens between the two daemons.
    pub(super) fn again_after(self, config: &Config, meanwhile: impl FnOnce()) -> Self {
        let dir = self.dir.clone();
        drop(self);
        meanwhile();
        Self::in_folder(dir, config, None)
    }

    fn in_folder(dir: Rc<TempDir>, config: &Config, cluster: Option<Cluster>) -> Self {
        let server = Server::start(ServerConfig {
            listen: "127.0.0.1:0".parse().expect("an address"),
            cores: available_cores().into_iter().take(1).collect(),
            reactor: Options::default(),
            exports: Vec::new(),
            timeouts: Timeouts::default(),
            hold: false,
            on_core_death: CoreDeath::Report,
        });
        let server = server.expect("a target");
        let state = StateFile::open(&dir.path().join("state.toml")).expect("none yet");
        let manager = PoolManager::new(
            &server,
            Arc::new(state),
            config,
            Box::new(ashlar_device::open),
            cluster,
        )
        .expect("a pool manager");
        Self {
            dir,
            manager,
            server: Some(server),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// An empty file, as a drive is named.
    pub(super) fn drive(&self, name: &str) -> String {
        let file = File::create(self.path(name)).expect("a file");
        file.set_len(96 << 20).expect("a sparse file");
        format!("file:{}", self.path(name).display())
    }

    /// Pool tank of this many drives, d0 and so on.
    pub(super) fn tank(&self, count: usize) -> Vec<String> {
        let drives: Vec<String> = (0..count).map(|i| self.drive(&format!("d{i}"))).collect();
        let request = CreatePool {
            name: "tank".into(),
            drives: drives.clone(),
            ..CreatePool::default()
        };
        self.manager.create_pool(request).expect("made");
        drives
    }

    fn volume(&self, name: &str, layout: LayoutSpec) {
        let name = VolumeName::new("tank", name).expect("a name");
        let request = CreateVolume::new(&name, 8 << 20, layout);
        self.manager.create_volume(request).expect("made");
    }

    /// The drives that are shown, and how they are.
    fn drives(&self) -> Vec<(String, DriveState)> {
        let drives = self.manager.pool("tank").expect("there").drives.into_iter();
        drives.map(|drive| (drive.spec, drive.state)).collect()
    }

    fn await_drives(&self, expected: &[&String]) {
        let begun = Instant::now();
        loop {
            let found = self.drives();
            if found
                .iter()
                .map(|(spec, _)| spec)
                .eq(expected.iter().copied())
            {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{found:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Keeps the core from anything else for a while, once this drive has a label.
    fn hold_core(&self, drive: &str) {
        let drive = self.path(drive);
        let hog = move |_: &ashlar_reactor::Handle| {
            Ok(Box::new(Hog {
                drive,
                now: Moment::ORIGIN,
                has_held: false,
            }) as Box<dyn Resident>)
        };
        let settled = self.manager.target.settle_in(CORE, "hog", Box::new(hog));
        settled.expect("settled");
    }

    fn remembered(&self) -> Vec<String> {
        self.manager.state.read().pools[0].drives.clone()
    }

    fn replace(&self, old: &str, new: &str) -> Result<PoolStatus, ControlError> {
        let request = ReplaceDrive {
            old: old.to_owned(),
            new: new.to_owned(),
            destroy_data: true,
        };
        self.manager.replace_drive("tank", request)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let stopped = self.manager.stop();
        if let Some(server) = self.server.take() {
            let ended = server.wait();
            if !std::thread::panicking() {
                stopped.expect("an orderly end");
                ended.expect("an orderly end");
            }
        }
    }
}

/// Whether a sparse file has nothing in it.
fn is_untouched(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    path.metadata().is_ok_and(|found| found.blocks() == 0)
}

/// Whether the beginning of a drive, with the label, is as it was made.
fn is_blank(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let file = File::open(path).expect("a file");
    file.take(64 << 10).read_to_end(&mut bytes).expect("bytes");
    bytes.iter().all(|&byte| byte == 0)
}

/// What is left to the end of the process is closed when the kernel comes to it.
#[test]
fn an_end_has_closed_connections_and_drives() {
    let mut room = Room::new();
    room.tank(1);
    let server = room.server.take().expect("a target");
    assert!(
        !server.control().has_ended_within(Duration::ZERO),
        "it serves"
    );
    room.manager.stop().expect("an orderly end");
    assert!(
        server.control().has_ended_within(Duration::ZERO),
        "cores still close what they have"
    );
    let drive = File::open(room.path("d0")).expect("a file");
    drive.try_lock().expect("free for the next daemon");
    server.wait().expect("an orderly end");
}

#[test]
fn a_drive_that_holds_a_part_of_a_stripe_is_not_replaced_and_nothing_is_touched() {
    let room = Room::new();
    let drives = room.tank(2);
    room.volume("fast", LayoutSpec::Stripe { columns: Some(2) });
    let spare = room.drive("spare");
    let error = room.replace(&drives[1], &spare).expect_err("a stripe");
    let whole = error.message.contains(&drives[1]) && error.message.contains("volume fast");
    assert!(whole && error.kind == ErrorKind::Usage, "{error}");
    assert!(!error.message.contains("drive 1 "), "{error}");
    assert_eq!(room.drives().len(), 2);
    assert!(is_blank(&room.path("spare")), "it was given a label");
    let remove = RemoveDrive {
        drive: drives[0].clone(),
    };
    let error = room
        .manager
        .remove_drive("tank", remove)
        .expect_err("a stripe");
    assert!(error.message.contains(&drives[0]), "{error}");
}

#[test]
fn a_drive_is_named_by_the_path_of_its_file_and_a_wrong_name_is_told_the_right_ones() {
    let room = Room::new();
    let drives = room.tank(3);
    let spare = room.drive("spare");
    let error = room
        .replace("/dev/none", &spare)
        .expect_err("no such drive");
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    let names_all = drives.iter().all(|drive| error.message.contains(drive));
    assert!(names_all, "{error}");
    let path = room.path("d1").display().to_string();
    room.replace(&path, &spare).expect("it is one drive's file");
    room.await_drives(&[&drives[0], &drives[2], &spare]);
}

#[test]
fn beside_a_stripe_another_drive_can_be_replaced() {
    let room = Room::new();
    let drives = room.tank(2);
    room.volume("db", LayoutSpec::Mirror { copies: 2 });
    // It takes the one drive that has most room: the one that is added last.
    let spares = [room.drive("more"), room.drive("spare")];
    let add = AddDrive {
        drive: spares[0].clone(),
        destroy_data: false,
    };
    room.manager.add_drive("tank", add).expect("added");
    room.volume("fast", LayoutSpec::Stripe { columns: Some(1) });
    let refused = |old: &String| room.replace(old, &spares[1]).is_err();
    let holders = [&drives[0], &drives[1], &spares[0]];
    let refused = holders.iter().filter(|old| refused(old)).count();
    // The spare is the pool's once one was replaced, and refused from then on.
    assert_eq!(refused, 2, "{:?}", room.drives());
    assert!(room.drives().iter().any(|(spec, _)| *spec == spares[1]));
}

#[test]
fn a_full_pool_beside_a_stripe_gets_the_new_drive_first() {
    let room = Room::new();
    let drives = room.tank(2);
    room.volume("fast", LayoutSpec::Stripe { columns: Some(1) });
    let spare = room.drive("spare");
    let one = room.replace(&drives[0], &spare);
    let two = room.replace(&drives[1], &spare);
    let left = match (&one, &two) {
        (Ok(_), Err(_)) => &drives[1],
        (Err(_), Ok(_)) => &drives[0],
        _ => panic!("{one:?} {two:?}"),
    };
    room.await_drives(&[left, &spare]);
}

#[test]
fn a_replacement_that_would_leave_too_few_drives_is_refused_before_it_begins() {
    let status = |staying: usize| {
        let room = Room::new();
        room.tank(staying);
        let pools = room.manager.lock();
        let view = live(&pools, "tank").expect("in service").link.view();
        view.expect("a view").status
    };
    let mut two = status(2);
    assert!(drives::refuse_too_few(&two, 0, "a").is_ok());
    two.members[1].leaving = true;
    let error = drives::refuse_too_few(&two, 0, "a").expect_err("one is left");
    assert!(error.message.contains("drive a "), "{error}");
    // One that is dead is what a replacement is for.
    two.members[0].in_service = false;
    assert!(drives::refuse_too_few(&two, 0, "a").is_ok());
}

#[test]
fn a_smaller_drive_replaces_one_if_what_the_pool_holds_has_room() {
    let room = Room::new();
    room.tank(2);
    let mut status = {
        let pools = room.manager.lock();
        let view = live(&pools, "tank").expect("in service").link.view();
        view.expect("a view").status
    };
    let is_mirror = |home: &&mut ashlar_store::HomeStatus| {
        home.layout == ashlar_store::Layout::Mirror { copies: 2 }
    };
    let mirror = status.homes.iter_mut().find(is_mirror);
    mirror.expect("of two drives").used_bytes = 32 << 20;
    let (bytes, class) = (33 << 20, status.members[0].class);
    let room = drives::Room { bytes, class };
    assert!(drives::holds_the_rest(&status, 0, room));
    // The other one has room, and it may not have both copies.
    let bytes = 31 << 20;
    assert!(!drives::holds_the_rest(
        &status,
        0,
        drives::Room { bytes, ..room }
    ));
    // Nor is any drive good enough for what lies on those of a class.
    let other = Some(ashlar_store::format::DriveClass::Nvme).filter(|nvme| Some(*nvme) != class);
    let other = other.or(Some(ashlar_store::format::DriveClass::Hdd));
    let mirror = status.homes.iter_mut().find(is_mirror);
    mirror.expect("of two drives").class = class;
    assert!(drives::holds_the_rest(&status, 0, room));
    assert!(!drives::holds_the_rest(
        &status,
        0,
        drives::Room {
            class: other,
            ..room
        }
    ));
}

#[test]
fn an_import_of_a_pool_in_service_is_of_its_drives_only() {
    let room = Room::new();
    let drives = room.tank(3);
    let import = |drives: &[&String], id| {
        let request = ImportPool {
            drives: drives.iter().map(|drive| drive.to_string()).collect(),
            id,
            ..ImportPool::default()
        };
        room.manager.import_pool("tank", request)
    };
    let [a, b, c] = &drives[..] else {
        panic!("three")
    };
    let id = import(&[a, b, c], None).expect("in service").id;
    import(&[b], Some(id)).expect("in service");
    let error = import(&[], Some(Uuid::from_u128(7))).expect_err("another");
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    let remove = RemoveDrive { drive: c.clone() };
    room.manager.remove_drive("tank", remove).expect("begun");
    room.await_drives(&[a, b]);
    import(&[a, b], None).expect("in service");
    let error = import(&[a, b, c], None).expect_err("it is out");
    assert!(error.message.contains(&c[..]), "{error}");
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
}

#[test]
fn a_drive_that_the_engine_refuses_does_not_take_the_place_of_the_next() {
    let room = Room::new();
    room.tank(2);
    let refused = open_drives(&[room.drive("refused")], room.manager.opening(false)).expect("open");
    {
        let pools = room.manager.lock();
        let pool = live(&pools, "tank").expect("in service");
        // A member already, by its identity.
        let twice = pool.link.add_drive(NewDrive {
            uuid: pool.drives[0].id,
            member: 2,
            class: refused[0].class,
            opener: refused[0].opener.clone(),
        });
        twice.expect_err("there is one of that name");
    }
    let next = room.drive("next");
    let add = AddDrive {
        drive: next.clone(),
        destroy_data: false,
    };
    room.manager.add_drive("tank", add).expect("added");
    room.volume("db", LayoutSpec::Mirror { copies: 3 });
    let state = |spec: &String| {
        let mut drives = room.drives().into_iter();
        drives
            .find(|(known, _)| known == spec)
            .map(|(_, state)| state)
    };
    assert_eq!(state(&next), Some(DriveState::Online));
    assert!(is_untouched(&room.path("refused")), "it was written to");
}

#[test]
fn an_import_by_another_identity_is_not_of_the_pool_that_is_known() {
    let room = Room::new();
    let lost = Kept::Failed {
        id: Uuid::from_u128(3),
        drives: vec![room.drive("lost")],
        why: "its drives hold nothing".into(),
        ending: Ending::ByOrder,
    };
    room.manager.lock().insert("lost".into(), lost);
    let unknown = room.manager.import_pool("none", ImportPool::default());
    let error = unknown.expect_err("nothing is known of it");
    assert!(
        error.message.contains("`pool import none --drive"),
        "{error}"
    );
    let import = |id| {
        let request = ImportPool {
            id: Some(Uuid::from_u128(id)),
            ..ImportPool::default()
        };
        let error = room.manager.import_pool("lost", request);
        error.expect_err("no such drives")
    };
    let error = import(4);
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    assert!(error.message.contains("name the drives"), "{error}");
    // It is looked for, and not found.
    assert!(!import(3).message.contains("name the drives"));
}

/// Keeps its core from anything else for a while, once a drive has a label.
struct Hog {
    drive: PathBuf,
    now: Moment,
    has_held: bool,
}

impl Resident for Hog {
    fn poll(&mut self, now: Moment) {
        self.now = now;
        if !self.has_held && !is_blank(&self.drive) {
            self.has_held = true;
            std::thread::sleep(Duration::from_secs(5));
        }
    }

    fn next_deadline(&self) -> Option<Moment> {
        (!self.has_held).then(|| self.now + Duration::from_millis(1))
    }
}

#[test]
fn a_drive_is_kept_whose_joining_is_answered_too_late() {
    let room = Room::new();
    let drives = room.tank(2);
    let late = room.drive("late");
    room.hold_core("late");
    let usual = room.patience(Duration::from_secs(2));
    let add = || AddDrive {
        drive: late.clone(),
        destroy_data: false,
    };
    let error = room.manager.add_drive("tank", add()).expect_err("too late");
    assert!(error.message.contains("may become a member"), "{error}");
    assert!(room.remembered().contains(&late), "{:?}", room.remembered());
    room.patience(usual);
    // It has become one, and is known by its name.
    room.await_drives(&[&drives[0], &drives[1], &late]);
    assert_eq!(room.remembered(), [&drives[0][..], &drives[1], &late]);
    let error = room.manager.add_drive("tank", add()).expect_err("it is in");
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    room.manager.target.move_out("hog").expect("gone");
}

#[test]
fn a_file_that_is_deleted_replaced_or_cut_short_is_told_of_and_so_is_its_return() {
    let room = Room::new();
    room.tank(3);
    let warned = |drive: &str, word: &str| {
        room.manager.look_at_files();
        let status = room.manager.pool("tank").expect("there");
        let of_it = |warning: &&String| {
            warning.contains(&room.path(drive).display().to_string())
                && warning.contains("pool replace tank")
        };
        let mut warnings = status.warnings.iter().filter(of_it);
        warnings.any(|warning| warning.contains(word))
    };
    let state = || {
        let status = room.manager.pool("tank").expect("there");
        (status.state, status.reason.unwrap_or_default())
    };
    assert!(!warned("d0", "deleted") && !warned("d1", "cut short"));
    assert_eq!(state(), (PoolState::Healthy, String::new()));
    std::fs::rename(room.path("d0"), room.path("elsewhere")).expect("renamed");
    let file = File::options()
        .write(true)
        .open(room.path("d1"))
        .expect("there");
    file.set_len(95 << 20).expect("cut");
    assert!(
        warned("d0", "deleted or renamed") && warned("d1", "cut short, from 100663296 to 99614720")
    );
    assert!(!warned("d2", "deleted"));
    let (degraded, why) = state();
    assert_eq!(degraded, PoolState::Degraded);
    assert!(
        why.contains("deleted or renamed") && why.contains("cut short"),
        "{why}"
    );
    // One of the same size in its place is not the drive.
    let another = File::create_new(room.path("d0")).expect("made");
    another.set_len(96 << 20).expect("grown");
    drop(another);
    assert!(warned("d0", "is another file now"));
    std::fs::rename(room.path("elsewhere"), room.path("d0")).expect("renamed");
    file.set_len(96 << 20).expect("grown");
    assert!(!warned("d0", "deleted") && !warned("d1", "cut short"));
    assert_eq!(state(), (PoolState::Healthy, String::new()));
}

/// What is kept of a volume for which a host has registered.
pub(super) fn reserved() -> Vec<u8> {
    let mut table = ashlar_nvme_target::Table::default();
    let asks = ashlar_nvme::reservation::Ask::Register {
        action: ashlar_nvme::reservation::RegisterAction::Register,
        ignores_key: false,
        persistence: ashlar_nvme::reservation::Persistence::On,
        current: 0,
        new: 7,
    };
    let host = ashlar_block::Registrant([1; 16]);
    let verdict = table.decide(host, ashlar_nvme_target::Wants::Change(asks));
    assert!(verdict.status.is_success(), "{verdict:?}");
    table.encode()
}

#[test]
fn reservations_lie_beside_the_state_and_go_with_their_volume() {
    let room = Room::new();
    let drives = room.tank(2);
    room.volume("db", LayoutSpec::Mirror { copies: 2 });
    let name = VolumeName::new("tank", "db").expect("a name");
    let uuid = room.manager.volume(&name).expect("there").uuid;
    let file = room.path("reservations").join(uuid.to_string());
    let import = || {
        let request = ImportPool {
            drives: drives.clone(),
            ..ImportPool::default()
        };
        room.manager.import_pool("tank", request)
    };
    let export = || room.manager.export_pool("tank", ExportPool::default());
    export().expect("no host uses it");
    std::fs::write(&file, "no reservations").expect("written");
    let error = import().expect_err("damaged");
    let shown = file.display().to_string();
    assert!(error.message.contains(&shown), "{error}");
    assert!(error.message.contains("Move it away"), "{error}");
    assert_eq!(std::fs::read(&file).expect("left"), b"no reservations");
    std::fs::write(&file, ashlar_nvme_target::Table::default().encode()).expect("written");
    import().expect("in service");
    let request = DeleteVolume {
        destroy_data: true,
        ..DeleteVolume::default()
    };
    room.manager.delete_volume(&name, request).expect("gone");
    assert!(!file.exists());
}

/// One that cannot be served lets go of its devices, so that it can be taken up again, and its pool can.
#[test]
fn a_cache_whose_reservations_are_damaged_is_taken_up_again_without_them() {
    let room = Room::new();
    let drives = room.tank(2);
    let name = VolumeName::new("tank", "db").expect("a name");
    let request = CreateCache {
        cache_bytes: Some(8 << 20),
        ..CreateCache::new(&name, room.drive("backing"))
    };
    let uuid = room.manager.create_cache(request).expect("made").uuid;
    let state = || room.manager.volume(&name).expect("there").state;
    let import = || {
        let request = ImportPool {
            drives: drives.clone(),
            ..ImportPool::default()
        };
        room.manager.import_pool("tank", request).expect("there")
    };
    let export = || room.manager.export_pool("tank", ExportPool::default());
    let file = room.path("reservations").join(uuid.to_string());
    for _ in 0..2 {
        export().expect("no host uses it");
        std::fs::write(&file, "no reservations").expect("written");
        import();
        assert_eq!(state(), VolumeState::Failed);
        std::fs::remove_file(&file).expect("moved away");
    }
    let reopened = room.manager.reopen_volume(&name, ReopenCache::default());
    assert_eq!(reopened.expect("in service").state, state());
    assert_ne!(state(), VolumeState::Failed);
}
