use std::os::unix::net::UnixListener;

use super::*;
use crate::Events;
use crate::model::VolumeName;

/// The volumes are another node's: there is nothing to be done here.
#[derive(Default)]
struct Elsewhere(Events);

impl Ownership for Elsewhere {
    fn node(&self) -> String {
        "a".into()
    }

    fn peers(&self) -> Vec<String> {
        Vec::new()
    }

    fn owner(&self, _: &[VolumeName]) -> Owner {
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
        Vec::new()
    }

    fn let_in(&self, _: &[VolumeName]) -> Result<(), ControlError> {
        Ok(())
    }

    fn give(&self, volumes: &[VolumeName], _: &str) -> Result<(), ControlError> {
        Err(one_copy(volumes))
    }

    fn gather(&self, _: &[VolumeName]) -> Result<(), ControlError> {
        Ok(())
    }

    fn events(&self) -> &Events {
        &self.0
    }

    fn say(&self, node: &str, _: Words) -> Result<Answer, ControlError> {
        Err(ControlError::environment(format!(
            "node {node} is not there"
        )))
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

/// One that has told another node of a service may be told of it before it has begun it itself.
#[test]
fn a_service_is_watched_once_however_often_it_is_begun() {
    if !rustix::process::geteuid().is_root() {
        let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(!is_ci, "it is not root");
        eprintln!("SKIPPED: this test makes a cgroup");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    // Watchers wait for it.
    let _api = UnixListener::bind(dir.path().join("api.sock")).expect("bound");
    let services = Services::open(dir.path(), Arc::new(Elsewhere::default())).expect("opened");
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
    let services = Services::open(dir.path(), Arc::new(Elsewhere::default())).expect("opened");
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
