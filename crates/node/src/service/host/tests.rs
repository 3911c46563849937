//! What is done to this machine, as root: services of `sleep` on file systems in memory.

use std::os::unix::fs::PermissionsExt;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;

const EPOCH: u64 = 7;

/// A service, and the folder that has everything of it.
struct World {
    host: Host,
    dir: tempfile::TempDir,
}

/// False, and said so, without the right to mount and to make cgroups.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(is_root || !is_ci, "it is not root");
    if !is_root {
        eprintln!("SKIPPED: this test mounts, and makes cgroups");
    }
    is_root
}

impl World {
    /// One whose commands, but for the start command, leave a file of their name behind.
    fn new(address: Option<&str>) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        let touch = |name: &str| Some(format!("touch {}", at(name).display()));
        let service = CreateService {
            name: "s".into(),
            volumes: vec!["tank/s".into()],
            mounts: vec![at("mnt")],
            user: None,
            start: format!(
                "echo $ASHLAR_EPOCH > {}; exec sleep 100",
                at("start").display()
            ),
            drain: touch("drain"),
            stop: touch("stop"),
            ready: None,
            file_system: None,
            address: address.map(|address| address.parse().expect("an address")),
        };
        let mut host = Host::new(service, dir.path(), false).expect("a cgroup");
        let script = format!(
            "#!/bin/sh\ntouch {}-\"$1\"\n[ \"$1\" = attach ] || umount \"$2\"\n",
            at("ashlar").display()
        );
        std::fs::write(at("ashlar"), script).expect("written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(at("ashlar"), mode).expect("set");
        host.program = at("ashlar");
        std::fs::create_dir(at("mnt")).expect("made");
        let world = Self { host, dir };
        world.mount();
        world
    }

    fn mount(&self) {
        let place = self.dir.path().join("mnt");
        mount("none", &place, "tmpfs", MountFlags::empty(), None).expect("mounted");
    }

    /// Whether a command has run.
    fn has_run(&self, name: &str) -> bool {
        self.dir.path().join(name).exists()
    }

    fn forget_run(&self, name: &str) {
        std::fs::remove_file(self.dir.path().join(name)).expect("it has run");
    }
}

impl Host {
    fn are_mounted(&self) -> bool {
        let mut mounts = self.service.mounts.iter();
        mounts.all(|mount| is_mounted(mount).expect("a table"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.host.group.end();
        let _ = unmount(self.dir.path().join("mnt"), UnmountFlags::DETACH);
    }
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn what_was_ordered_before_it_was_taken_down_does_nothing_after() {
    if !is_root() {
        return;
    }
    let world = World::new(None);
    let host = &world.host;
    let order = host.fences.order();
    host.fence().expect("taken down");
    assert!(!host.are_mounted() && !host.group.path().exists());
    assert!(world.has_run("ashlar-detach"));
    world.forget_run("ashlar-detach");

    // It has come up again when the threads that were given up come to it.
    world.mount();
    assert!(host.start(order, EPOCH).is_err());
    assert!(!world.has_run("start"), "it was started");
    host.start(host.fences.order(), EPOCH).expect("started");
    let told = std::fs::read_to_string(world.dir.path().join("start"));
    assert_eq!(told.expect("it has run"), format!("{EPOCH}\n"));
    let ended = [
        host.mount(order),
        host.start(order, EPOCH),
        host.drain(order),
        host.stop(order),
        host.kill(order),
        host.unmount(order),
    ];
    for (number, ended) in ended.into_iter().enumerate() {
        let why = ended.expect_err("void");
        assert!(why.contains("taken down meanwhile"), "{number}: {why}");
    }
    for name in ["drain", "stop", "ashlar-attach", "ashlar-detach"] {
        assert!(!world.has_run(name), "{name} has run");
    }
    assert!(host.group.is_alive() && host.are_mounted());
    // Without a stop command it is told to end, which must not come late either.
    let mut told = world.host.clone();
    told.service.stop = None;
    assert!(told.stop(order).is_err());
    std::thread::sleep(Duration::from_millis(50));
    assert!(host.group.is_alive());

    let order = host.fences.order();
    for ended in [host.drain(order), told.stop(order), host.unmount(order)] {
        ended.expect("in order");
    }
    assert!(world.has_run("drain") && world.has_run("ashlar-detach"));
    assert!(!host.group.is_alive() && !host.are_mounted());
    let why = host.start(order, EPOCH).expect_err("nothing is mounted");
    assert!(why.contains("nothing is mounted on"), "{why}");
}

#[test]
fn no_process_is_left_wherever_a_start_is_when_it_is_taken_down() {
    if !is_root() {
        return;
    }
    let world = World::new(None);
    for round in 0..60 {
        let (host, order) = (world.host.clone(), world.host.fences.order());
        let starting = std::thread::spawn(move || host.start(order, EPOCH));
        std::thread::sleep(Duration::from_micros(150 * round));
        world.host.strike();
        world.host.group.kill_by(|| Ok(())).expect("gone");
        // It was there before it was struck, or it never is.
        let _ = starting.join().expect("no panic");
        assert!(!world.host.group.is_alive(), "round {round}");
    }
}

#[test]
fn it_is_killed_before_its_address_is_waited_for_and_a_start_that_waits_does_not_go_on() {
    if !is_root() {
        return;
    }
    let world = World::new(Some("192.0.2.50/24%none-such"));
    let mut before = world.host.clone();
    before.address = None;
    before.start(before.fences.order(), EPOCH).expect("started");
    eventually("it runs", || world.has_run("start"));
    world.forget_run("start");
    let address = world.host.address.as_ref().expect("it has one");
    address.want();
    let busy = address.busy();
    let (host, order) = (world.host.clone(), world.host.fences.order());
    let starting = std::thread::spawn(move || host.start(order, EPOCH));
    std::thread::sleep(Duration::from_millis(50));
    let host = world.host.clone();
    let fencing = std::thread::spawn(move || host.fence());
    eventually("it is killed, whatever `ip` does", || {
        !world.host.group.is_alive()
    });
    eventually("its volumes are gone", || !world.host.are_mounted());
    drop(busy);
    fencing.join().expect("no panic").expect("taken down");
    let why = starting.join().expect("no panic").expect_err("fenced");
    assert!(why.contains("taken down"), "{why}");
    assert!(!world.has_run("start"));
}

#[test]
fn one_that_fails_at_once_was_not_started() {
    if !is_root() {
        return;
    }
    let mut world = World::new(None);
    world.host.service.start = "echo no such thing >&2; exit 7".into();
    for _ in 0..10 {
        let why = world
            .host
            .start(world.host.fences.order(), EPOCH)
            .expect_err("7");
        assert!(
            why.contains("exit status: 7") && why.contains("no such thing"),
            "{why}"
        );
    }
}

#[test]
fn volumes_that_are_being_mounted_are_given_up_and_all_else_is_taken_down_whatever_they_do() {
    if !is_root() {
        return;
    }
    let mut world = World::new(None);
    world.host.service.mounts = vec![world.dir.path().join("other")];
    let (pid, script) = (world.dir.path().join("pid"), world.host.program.clone());
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = attach ] || exit 0\necho $$ > {}.new && mv {}.new {}\nsleep 100; true\n",
        pid.display(),
        pid.display(),
        pid.display()
    );
    std::fs::write(&script, text).expect("written");
    let (host, order) = (world.host.clone(), world.host.fences.order());
    let mounting = std::thread::spawn(move || host.mount(order));
    eventually("it attaches", || pid.exists());
    let begun = Instant::now();
    world.host.fence().expect("taken down");
    assert!(begun.elapsed() < ABANDONED_WITHIN);
    assert!(mounting.join().expect("no panic").is_err());
}

#[test]
fn of_a_log_however_long_the_end_is_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("log");
    assert!(tail(&path).is_err());
    std::fs::write(&path, "one\n").expect("written");
    assert_eq!(tail(&path).expect("read"), "one\n");
    // More than there is memory for: it takes no space.
    let log = File::options().append(true).open(&path).expect("opened");
    log.set_len(1 << 40).expect("a long file");
    std::io::Write::write_all(&mut &log, b"\nthe last\n\n").expect("written");
    let tail = tail(&path).expect("read");
    assert_eq!(tail.len(), LAST_BYTES as usize);
    assert_eq!(run::last_line(&tail), Some("the last"));
}

#[test]
fn nothing_is_mounted_by_a_link_and_what_was_is_seen() {
    if !is_root() {
        return;
    }
    let mut world = World::new(None);
    let link = world.dir.path().join("link");
    std::os::unix::fs::symlink("mnt", &link).expect("a link");
    world.host.service.mounts = vec![link.clone()];
    assert!(world.host.are_mounted(), "by an earlier version");
    unmount(world.dir.path().join("mnt"), UnmountFlags::DETACH).expect("unmounted");
    assert!(!world.host.are_mounted());
    let refused = world.host.mount(world.host.fences.order());
    let why = refused.expect_err("what is mounted there would not be found again");
    assert!(why.contains("link is a symbolic link; say "), "{why}");
    assert!(!world.has_run("ashlar-attach"));
}

#[test]
fn a_mount_is_found_however_its_path_is_said() {
    let is_mounted = |at: &str| is_mounted(Path::new(at)).expect("a table");
    assert!(["/proc", "/proc/", "//proc"].into_iter().all(is_mounted));
    assert!(!is_mounted("/proc/self"));
}

/// What is mounted there and is none of `attach`'s is not the service's.
#[test]
fn what_a_daemon_has_left_is_told_from_what_is_mounted_by_others() {
    if !is_root() {
        return;
    }
    let world = World::new(None);
    let host = &world.host;
    let lists = |text: &str| {
        let script = format!("#!/bin/sh\necho '{text}'\n");
        std::fs::write(&host.program, script).expect("written");
    };
    host.group.ensure().expect("a cgroup");
    assert_eq!(
        host.left(),
        Left::Parts,
        "it lists nothing that is understood"
    );
    lists("[]");
    assert_eq!(host.left(), Left::Nothing);
    host.group.ensure().expect("a cgroup");
    lists(&format!(
        "[{{\"mount\":\"{}\",\"bytes\":1}}]",
        host.service.mounts[0].display()
    ));
    assert_eq!(host.left(), Left::Parts);
    host.start(host.fences.order(), EPOCH).expect("started");
    assert_eq!(host.left(), Left::Whole);
    unmount(&host.service.mounts[0], UnmountFlags::DETACH).expect("unmounted");
    assert_eq!(host.left(), Left::Parts);
    host.kill(host.fences.order()).expect("killed");
    assert_eq!(host.left(), Left::Nothing);
}

/// As for a restore, or a check: a restart of the daemon leaves it there.
#[test]
fn what_is_attached_by_hand_at_a_stopped_service_s_mount_point_is_none_of_its_parts() {
    if !is_root() {
        return;
    }
    let world = World::new(None);
    let host = &world.host;
    let restarted = || {
        let again = Host::new(host.service.clone(), world.dir.path(), false).expect("a cgroup");
        let program = host.program.clone();
        Host { program, ..again }.left()
    };
    host.unmount(host.fences.order()).expect("stopped");
    let list = format!("[{{\"mount\":\"{}\"}}]", host.service.mounts[0].display());
    std::fs::write(&host.program, format!("#!/bin/sh\necho '{list}'\n")).expect("written");
    world.mount();
    for _ in 0..2 {
        assert_eq!(restarted(), Left::Nothing, "it is an operator's");
    }
    // Its own: a daemon has died while it mounted.
    unmount(&host.service.mounts[0], UnmountFlags::DETACH).expect("unmounted");
    host.mount(host.fences.order()).expect("mounted");
    world.mount();
    assert_eq!(restarted(), Left::Parts);
}

/// As after an unmount that was given up half way: what is left has something to write yet.
#[test]
fn it_is_not_unmounted_while_something_of_it_is_attached() {
    if !is_root() {
        return;
    }
    let world = World::new(None);
    let host = &world.host;
    unmount(&host.service.mounts[0], UnmountFlags::DETACH).expect("unmounted");
    let lists = |text: &str| {
        let script = format!("#!/bin/sh\n[ \"$1\" = attach ] || exit 3\necho '{text}'\n");
        std::fs::write(&host.program, script).expect("written");
    };
    let place = host.service.mounts[0].display();
    lists(&format!("[{{\"mount\":\"{place}\"}}]"));
    let order = || host.fences.order();
    host.unmount(order()).expect_err("it is attached");
    lists("[]");
    host.unmount(order()).expect("nothing is there");
}
