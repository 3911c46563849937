use std::os::unix::net::UnixListener;

use super::*;
use crate::Events;
use crate::model::VolumeName;
use crate::service::entry::Told;

/// The node that has the volumes.
const OWNER: &str = "owner";
/// It has the volumes, and they must stay there.
const KEEPER: &str = "keeper";
/// Why.
const NO_QUORUM: &str = "the quorum does not answer";

/// The volumes are another node's, but for that one: there is nothing to be done here.
struct Elsewhere {
    me: &'static str,
    events: Events,
    /// Node b, where it is there.
    other: Option<Arc<Services>>,
}

impl Elsewhere {
    fn open(dir: &tempfile::TempDir) -> Arc<Services> {
        Self::open_as("a", None, dir)
    }

    fn open_as(
        me: &'static str,
        other: Option<Arc<Services>>,
        dir: &tempfile::TempDir,
    ) -> Arc<Services> {
        let (events, dir) = (Events::default(), dir.path());
        Services::open(dir, Arc::new(Self { me, events, other })).expect("opened")
    }
}

impl Ownership for Elsewhere {
    fn node(&self) -> String {
        self.me.into()
    }

    fn peers(&self) -> Vec<String> {
        self.other.iter().map(|_| "b".into()).collect()
    }

    fn owner(&self, _: &[VolumeName]) -> Owner {
        if [OWNER, KEEPER].contains(&self.me) {
            return Owner::Here { epoch: 1 };
        }
        Owner::Elsewhere {
            node: "b".into(),
            epoch: 1,
        }
    }

    fn silence(&self, _: &[VolumeName]) -> Option<Duration> {
        None
    }

    fn nodes(&self, _: &[VolumeName]) -> Result<Vec<String>, ControlError> {
        Ok(vec!["a".into(), "b".into()])
    }

    fn takers(&self, _: &[VolumeName]) -> Vec<String> {
        vec!["b".into(), "c".into()]
    }

    fn preferred(&self, mut nodes: Vec<String>) -> Vec<String> {
        nodes.reverse();
        nodes
    }

    fn let_in(&self, _: &[VolumeName]) -> Result<(), ControlError> {
        Ok(())
    }

    fn may_give(&self, _: &[VolumeName], _: &str) -> Result<(), ControlError> {
        match self.me {
            KEEPER => Err(ControlError::environment(NO_QUORUM)),
            _ => Ok(()),
        }
    }

    fn give(&self, volumes: &[VolumeName], _: &str) -> Result<(), ControlError> {
        Err(one_copy(volumes))
    }

    fn gather(&self, _: &[VolumeName]) -> Result<(), ControlError> {
        Ok(())
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn say(&self, node: &str, words: Words) -> Result<Answer, ControlError> {
        let away = || ControlError::environment(format!("node {node} is not there"));
        self.other.as_ref().ok_or_else(away)?.answer(words)
    }
}

fn service(name: &str, mounts: Vec<PathBuf>) -> CreateService {
    CreateService {
        name: name.into(),
        volumes: vec![format!("tank/{name}")],
        mounts,
        user: None,
        start: "true".into(),
        drain: None,
        stop: None,
        ready: None,
        file_system: None,
        address: None,
    }
}

/// False, and said so, without the right to make one.
fn can_have_a_cgroup() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(is_root || !is_ci, "it is not root");
    if !is_root {
        eprintln!("SKIPPED: this test makes a cgroup");
    }
    is_root
}

/// One that has told another node of a service may be told of it before it has begun it itself.
#[test]
fn a_service_is_watched_once_however_often_it_is_begun() {
    if !can_have_a_cgroup() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    // Watchers wait for it.
    let _api = UnixListener::bind(dir.path().join("api.sock")).expect("bound");
    let services = Elsewhere::open(&dir);
    let entry = Entry::new(service("once", Vec::new()), vec!["a".into(), "b".into()], 1);
    let begin = |entry: &Entry| {
        services.begin(entry.clone()).expect("begun");
        let all = services.lock();
        let running = all.get("once").and_then(|one| one.running.as_ref());
        running.expect("it is watched").watcher()
    };
    let first = begin(&entry);
    assert_eq!(begin(&entry), first);
    let newer = Entry {
        revision: 2,
        ..entry
    };
    assert_ne!(begin(&newer), first, "it is watched as that");
    let user_of = |name| services.user_of(&VolumeName::new("tank", name).expect("a name"));
    assert_eq!(user_of("once").as_deref(), Some("once"));
    assert_eq!(user_of("other"), None);
    if let Some(running) = services.lock().remove("once").and_then(|one| one.running) {
        running.end();
    }
}

#[test]
fn a_mount_point_that_would_hide_something_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let there = dir.path().join("there");
    is_free(&there).expect("it is made");
    std::fs::create_dir(&there).expect("made");
    is_free(&there).expect("it is empty");
    std::fs::write(there.join("file"), "x").expect("written");
    for (mount, words) in [
        (there.clone(), "it is not empty"),
        (there.join("file"), "Not a directory"),
    ] {
        let refused = is_free(&mount).expect_err("it is in use");
        assert!(refused.message.contains(words), "{}", refused.message);
    }
}

#[test]
fn a_mount_point_by_a_link_is_refused_and_its_real_path_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let services = Elsewhere::open(&dir);
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("real")).expect("made");
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, at(name)).expect("a link");
    link("real", "link");
    link("nothing", "dangling");
    let check = |mount: PathBuf| services.check(&service("s", vec![mount]));
    check(at("real")).expect("it is empty");
    check(at("real/below/it")).expect("it is made");
    let real = at("real").canonicalize().expect("it is there");
    for (mount, words) in [
        (at("link"), format!("; say {}", real.display())),
        (at("link/below"), "link is a symbolic link".into()),
        (at("dangling"), "dangling is a symbolic link".into()),
    ] {
        let refused = check(mount).expect_err("a link");
        assert!(refused.message.contains(&words), "{}", refused.message);
    }
}

/// One that was on nodes b and c, and was deleted at revision 3.
fn deleted(name: &str) -> Entry {
    let nodes = vec!["b".into(), "c".into()];
    Entry {
        deleted: true,
        ..Entry::new(service(name, Vec::new()), nodes, 3)
    }
}

#[test]
fn a_new_service_is_newer_than_what_is_remembered_of_a_deleted_one() {
    let (dir, dir_b) = (tempfile::tempdir(), tempfile::tempdir());
    let (dir, dir_b) = (dir.expect("a folder"), dir_b.expect("a folder"));
    let b = Elsewhere::open_as("b", None, &dir_b);
    b.begin(deleted("s")).expect("remembered");
    let nodes = ["a".to_owned(), "b".to_owned()];
    let old = Entry::new(service("s", Vec::new()), nodes.to_vec(), 1);
    let other = Entry::new(service("other", Vec::new()), nodes.to_vec(), 0);
    let one = |entry: &Entry| One {
        entry: entry.clone(),
        running: None,
    };
    b.lock().insert("other".into(), one(&other));
    let entry_of = |name: &str| b.lock().get(name).map(|one| one.entry.clone());

    let offer = Words::Offer {
        entry: Box::new(old),
    };
    let refused = b.answer(offer).expect_err("it would be ended at once");
    assert!(
        refused.message.contains("one of this name was deleted"),
        "{refused}"
    );
    let a = Elsewhere::open_as("a", Some(b.clone()), &dir);
    let first = |name: &str| a.first_revision(&service(name, Vec::new()), &nodes);
    assert_eq!(first("s"), Ok(order_after(3)));
    // The question itself changes nothing.
    let newest = Ok(order_after(0));
    assert_eq!((first("other"), first("new")), (newest.clone(), newest));
    assert_eq!(entry_of("s"), Some(deleted("s")));
    assert_eq!((entry_of("other"), entry_of("new")), (Some(other), None));

    let alone = Elsewhere::open(&dir);
    assert_eq!(
        alone.first_revision(&service("s", Vec::new()), &nodes),
        Ok(order_after(0))
    );
}

#[test]
fn a_node_that_gets_copies_does_not_end_a_service_that_has_the_name_of_a_deleted_one() {
    if !can_have_a_cgroup() {
        return;
    }
    let (dir, dir_b) = (tempfile::tempdir(), tempfile::tempdir());
    let (dir, dir_b) = (dir.expect("a folder"), dir_b.expect("a folder"));
    let b = Elsewhere::open_as("b", None, &dir_b);
    b.begin(deleted("s")).expect("remembered");
    let a = Elsewhere::open_as("a", Some(b.clone()), &dir);
    let _apis = [&dir, &dir_b].map(|dir| UnixListener::bind(dir.path().join("api.sock")));
    let entry = Entry::new(service("s", Vec::new()), vec!["a".into()], 1);
    a.begin(entry).expect("begun");
    assert_eq!(a.follow_copies("s"), Vec::<String>::new());
    for services in [&a, &b] {
        let all = services.lock();
        let one = all.get("s").expect("it is known");
        assert!(one.running.is_some() && !one.entry.deleted);
        let revision = order_after(3);
        assert_eq!((one.entry.revision, one.entry.nodes.len()), (revision, 2));
    }
    for services in [a, b] {
        if let Some(running) = services.lock().remove("s").and_then(|one| one.running) {
            running.end();
        }
    }
}

#[test]
fn volumes_of_a_service_that_is_still_being_stopped_are_not_taken_from_it() {
    if !can_have_a_cgroup() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let services = Elsewhere::open_as(OWNER, None, &dir);
    // Its watcher waits for the API, so it stays as it is.
    let nodes = vec![OWNER.into(), "b".into()];
    let entry = Entry::new(service("s", Vec::new()), nodes, 1);
    services.begin(entry).expect("begun");
    let left = || services.drain_within(Duration::ZERO);
    assert_eq!(left(), [], "it is down");
    let pretend = |one: &One| one.running.as_ref().map(Running::pretend_to_run);
    services.lock().get("s").and_then(pretend).expect("watched");
    let left = left();
    assert_eq!((left.len(), left[0].volume.as_str()), (1, "tank/s"));
    assert!(left[0].reason.contains("service s is still being stopped"));
    if let Some(running) = services.lock().remove("s").and_then(|one| one.running) {
        running.end();
    }
}

/// It would be stopped, and started again where it was.
#[test]
fn a_service_whose_volumes_must_stay_is_not_moved_and_a_drain_does_not_wait_for_it() {
    if !can_have_a_cgroup() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let services = Elsewhere::open_as(KEEPER, None, &dir);
    let nodes = vec![KEEPER.into(), "b".into()];
    let entry = Entry::new(service("s", Vec::new()), nodes, 1);
    services.begin(entry).expect("begun");
    let is_moving = || {
        let all = services.lock();
        let running = all.get("s").and_then(|one| one.running.as_ref());
        running.expect("it is watched").moves_to().is_some()
    };
    let refused = services.move_to("s", &MoveService::default());
    let refused = refused.expect_err("its volumes stay");
    assert_eq!(refused.kind, ErrorKind::Environment);
    assert!(
        refused.message == format!("service s: {NO_QUORUM}"),
        "{refused}"
    );
    assert!(!is_moving());
    let begun = Instant::now();
    let kept = services.drain_within(Duration::from_secs(60));
    let kept: Vec<_> = kept
        .iter()
        .map(|one| (&*one.volume, &*one.reason))
        .collect();
    // None of them is given away by itself.
    assert_eq!(kept, [("tank/s", &*format!("service s: {NO_QUORUM}"))]);
    assert!(begun.elapsed() < Duration::from_secs(30) && !is_moving());
    if let Some(running) = services.lock().remove("s").and_then(|one| one.running) {
        running.end();
    }
}

/// It would be killed there, and what is mounted there be mounted here.
#[test]
fn a_service_is_not_stopped_nor_deleted_while_another_node_still_stops_it() {
    if !can_have_a_cgroup() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let services = Elsewhere::open(&dir);
    let entry = Entry::new(service("s", Vec::new()), vec!["a".into(), "b".into()], 1);
    services.begin(entry).expect("begun");
    let hears = |state: ServiceState| {
        let mut there = services.show("s").expect("it is known");
        (there.state, there.reason) = (state, None);
        let told = Told {
            node: "b".into(),
            here: vec![there],
            ..Told::default()
        };
        services.answer(Words::Tell { told }).expect("heard");
    };
    hears(ServiceState::Running);
    let stopped = services.stop("s").expect("heard");
    assert_eq!(stopped.state, ServiceState::Stopping);
    let refused = services.delete("s").expect_err("it runs on b");
    assert!(refused.message.contains("is being stopped"), "{refused}");
    hears(ServiceState::Stopped);
    let state = services.show("s").map(|status| status.state);
    assert_eq!(state, Ok(ServiceState::Stopped));
    services.delete("s").expect("it is stopped");
}

#[test]
fn a_service_that_is_no_more_has_its_volumes_until_it_is_down() {
    if !can_have_a_cgroup() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let services = Elsewhere::open_as(OWNER, None, &dir);
    let nodes = vec![OWNER.into(), "b".into()];
    let entry = Entry::new(service("s", Vec::new()), nodes, 1);
    services.begin(entry.clone()).expect("begun");
    let pretend = |one: &One| one.running.as_ref().map(Running::pretend_to_run);
    services.lock().get("s").and_then(pretend).expect("watched");
    let told = Entry {
        revision: 2,
        deleted: true,
        ..entry
    };
    services.take(vec![told]);
    let volume = VolumeName::new("tank", "s").expect("a name");
    assert_eq!(services.user_of(&volume).as_deref(), Some("s"));
    let left = services.drain_within(Duration::ZERO);
    assert_eq!((left.len(), left[0].volume.as_str()), (1, "tank/s"));
    services.leaving().iter().for_each(Running::end);
}

#[test]
fn a_service_that_cannot_be_made_here_is_taken_back_from_the_others() {
    if !can_have_a_cgroup() {
        return;
    }
    let (dir, dir_b) = (tempfile::tempdir(), tempfile::tempdir());
    let (dir, dir_b) = (dir.expect("a folder"), dir_b.expect("a folder"));
    let b = Elsewhere::open_as("b", None, &dir_b);
    let a = Elsewhere::open_as("a", Some(b.clone()), &dir);
    std::fs::create_dir(dir.path().join("services.json")).expect("made");
    let refused = a.create(service("s", Vec::new()));
    refused.expect_err("it cannot be remembered");
    let is_gone = |services: &Services| {
        let all = services.lock();
        all.get("s").is_none_or(|one| one.entry.deleted)
    };
    assert!(is_gone(&a));
    let begun = Instant::now();
    while !is_gone(&b) {
        assert!(begun.elapsed() < Duration::from_secs(60), "b keeps it");
        std::thread::sleep(Duration::from_millis(10));
    }
    for services in [a, b] {
        services.leaving().iter().for_each(Running::end);
    }
}

#[test]
fn a_service_that_moves_goes_to_the_node_that_is_preferred_or_named() {
    if !can_have_a_cgroup() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let services = Elsewhere::open_as(OWNER, None, &dir);
    let nodes = vec![OWNER.into(), "b".into(), "c".into()];
    let entry = Entry::new(service("s", Vec::new()), nodes, 1);
    services.begin(entry).expect("begun");
    for (to, goes) in [(None, "c"), (Some("b"), "b")] {
        let to = to.map(str::to_owned);
        services.move_to("s", &MoveService { to }).expect("ordered");
        let all = services.lock();
        let running = all.get("s").and_then(|one| one.running.as_ref());
        let moves_to = running.expect("it is watched").moves_to();
        assert_eq!(moves_to.as_deref(), Some(goes));
    }
    if let Some(running) = services.lock().remove("s").and_then(|one| one.running) {
        running.end();
    }
}
