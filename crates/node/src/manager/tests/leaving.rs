//! What is refused, or cannot leave, leaves what others have as it was.

use std::thread;

use super::*;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-00000000000a";

impl Room {
    /// A volume of tank, and its identity.
    fn served(&self) -> (VolumeName, Uuid) {
        self.volume("db", LayoutSpec::Mirror { copies: 1 });
        let name = VolumeName::new("tank", "db").expect("a name");
        let uuid = self.manager.volume(&name).expect("there").uuid;
        (name, uuid)
    }

    /// A volume of tank that caches the file of this name, and its identity.
    fn cached(&self, backing: &str) -> (VolumeName, Uuid) {
        let name = VolumeName::new("tank", "cached").expect("a name");
        let request = CreateCache {
            cache_bytes: Some(8 << 20),
            allow_hosts: vec![HOST.to_owned()],
            ..CreateCache::new(&name, self.drive(backing))
        };
        let uuid = self.manager.create_cache(request).expect("made").uuid;
        (name, uuid)
    }

    fn is_served(&self, volume: Uuid) -> bool {
        let target = self.manager.target.target();
        target.devices_of(&serve::nqn(volume)).is_ok()
    }

    /// How long tank's core may take for an answer from now on; how long that was before.
    pub(super) fn patience(&self, patience: Duration) -> Duration {
        let mut pools = self.manager.lock();
        let Some(Kept::Live(pool)) = pools.get_mut("tank") else {
            panic!("in service")
        };
        std::mem::replace(&mut pool.link.patience, patience)
    }

    fn import(&self, drives: &[String]) -> Result<PoolStatus, ControlError> {
        let request = ImportPool {
            drives: drives.to_vec(),
            ..ImportPool::default()
        };
        self.manager.import_pool("tank", request)
    }

    fn export(&self, force: bool) -> Result<(), ControlError> {
        self.manager.export_pool("tank", ExportPool { force })
    }
}

/// An order that was given twice, while something else had the pools.
#[test]
fn a_refused_order_leaves_the_file_of_a_drive_that_the_same_one_has_made() {
    let room = Room::new();
    room.tank(1);
    let add = |name: &str| {
        let manager = room.manager.clone();
        let drive = format!("file:{}?size=96MiB", room.path(name).display());
        let order = AddDrive {
            drive,
            destroy_data: false,
        };
        thread::spawn(move || manager.add_drive("tank", order).is_ok())
    };
    let held = room.manager.lock();
    let orders = [add("new"), add("new")];
    thread::sleep(Duration::from_millis(200));
    drop(held);
    let done = orders.map(|order| order.join().expect("an answer"));
    assert_ne!(done[0], done[1], "one is refused");
    assert!(room.path("new").exists(), "a drive in service was unlinked");
    // Nor is it taken by a replacement that is refused.
    let new = format!("file:{}?size=96MiB", room.path("new").display());
    let drives = room.drives();
    room.replace(&drives[0].0, &new)
        .expect_err("it is in the pool");
    assert!(room.path("new").exists(), "a drive in service was unlinked");
}

#[test]
fn a_replacement_keeps_its_file_and_one_that_is_refused_leaves_none() {
    let room = Room::new();
    let drives = room.tank(1);
    let new = |name: &str| format!("file:{}?size=96MiB", room.path(name).display());
    room.volume("fast", LayoutSpec::Stripe { columns: Some(1) });
    room.replace(&drives[0], &new("refused"))
        .expect_err("a stripe is on it");
    assert!(!room.path("refused").exists(), "it was left");
    let room = Room::new();
    let drives = room.tank(1);
    let spec = format!("file:{}?size=96MiB", room.path("taken").display());
    room.replace(&drives[0], &spec).expect("begun");
    room.await_drives(&[&spec]);
    assert!(room.path("taken").exists(), "it is the pool's");
}

#[test]
fn a_pool_is_let_go_of_by_force_beside_a_user_here_that_cannot_be_sent_away() {
    let room = Room::new();
    let drives = room.tank(1);
    let (_, uuid) = room.served();
    room.manager.pretend_user(uuid, Some(HOST), false);
    room.export(true).expect("by force");
    assert!(room.manager.pool("tank").is_err() && !room.is_served(uuid));
    room.manager.pretend_user(uuid, None, true);
    room.import(&drives).expect("it is free");
}

#[test]
fn a_volume_whose_user_here_cannot_be_sent_away_is_served_until_it_has_left() {
    let room = Room::new();
    room.tank(1);
    for (name, uuid) in [room.served(), room.cached("backing")] {
        let delete = || {
            let request = DeleteVolume {
                destroy_data: true,
                force: true,
                ..DeleteVolume::default()
            };
            room.manager.delete_volume(&name, request)
        };
        let is_known = || {
            let pools = room.manager.lock();
            let pool = live(&pools, "tank").expect("in service");
            let nqn = serve::nqn(uuid);
            pool.volumes.values().any(|served| served.nqn == nqn)
        };
        room.manager.pretend_user(uuid, Some(HOST), false);
        let error = delete().expect_err("it stays");
        assert!(error.message.contains("cannot be sent away"), "{error}");
        assert!(room.is_served(uuid) && is_known(), "{name} is half out");
        room.manager.pretend_user(uuid, None, true);
        delete().expect("it has left");
        assert!(!room.is_served(uuid) && !is_known(), "{name}");
    }
}

#[test]
fn an_export_whose_logs_do_not_get_empty_takes_no_volume_away() {
    let room = Room::new();
    let drives = room.tank(1);
    let (_, uuid) = room.served();
    let usual = room.patience(Duration::from_secs(1));
    room.hold_core("d0");
    let error = room.export(false).expect_err("its core is held");
    assert!(error.message.contains("--force"), "{error}");
    assert!(room.is_served(uuid), "its volume is gone");
    room.patience(usual);
    room.export(false).expect("its core goes on");
    assert!(!room.is_served(uuid));
    room.import(&drives).expect("in service");
    room.manager.target.move_out("hog").expect("gone");
}

/// A pool whose name cannot be written is none that only its core knows of.
#[test]
fn a_pool_that_cannot_be_remembered_is_not_left_on_its_core() {
    let room = Room::new();
    let drives = [room.drive("d0")];
    let in_the_way = room.path(".state.toml.new");
    let create = CreatePool {
        name: "tank".into(),
        drives: drives.to_vec(),
        ..CreatePool::default()
    };
    std::fs::create_dir(&in_the_way).expect("a folder");
    let error = room.manager.create_pool(create).expect_err("not written");
    assert!(error.message.contains("state.toml"), "{error}");
    assert!(error.message.contains("pool import tank"), "{error}");
    std::fs::remove_dir(&in_the_way).expect("there");
    room.import(&drives).expect("nothing has its drive");
    let (_, uuid) = room.served();
    room.export(false).expect("no host uses it");
    std::fs::create_dir(&in_the_way).expect("a folder");
    room.import(&drives).expect_err("not written");
    assert!(!room.is_served(uuid), "nothing knows of it");
    std::fs::remove_dir(&in_the_way).expect("there");
    room.import(&drives).expect("nothing has its drive");
    assert!(room.is_served(uuid));
}

#[test]
fn a_user_here_of_a_cache_without_its_device_waits_for_it() {
    let room = Room::new();
    let drives = room.tank(1);
    let (name, uuid) = room.cached("backing");
    let wish = |uuid| LocalWish {
        volume: name.clone(),
        uuid,
        bytes: 0,
        host: HOST.to_owned(),
        place: "/mnt".to_owned(),
    };
    let may = |uuid| room.manager.may_use_locally(&wish(uuid));
    may(uuid).expect("in service");
    room.export(false).expect("no host uses it");
    std::fs::rename(room.path("backing"), room.path("away")).expect("there");
    room.import(&drives).expect("there");
    let refusal = may(uuid).expect_err("its device is away");
    let names_it = refusal.why.contains("backing");
    assert!(refusal.may_change && names_it, "{refusal:?}");
    let unknown = may(Uuid::from_u128(7)).expect_err("no such volume");
    assert!(!unknown.may_change, "{unknown:?}");
    std::fs::rename(room.path("away"), room.path("backing")).expect("there");
    let reopened = room.manager.reopen_volume(&name, ReopenCache::default());
    reopened.expect("in service");
    may(uuid).expect("in service");
}
