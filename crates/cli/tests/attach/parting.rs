//! Detaching when something is in the way: a volume that does not answer, a process that lives on.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::common::{can_attach, ended, eventually, send};
use crate::rig::{Rig, Way};

#[test]
fn a_dead_daemon_is_named_and_not_waited_for_without_end() {
    if !can_attach() {
        return;
    }
    let mut rig = Rig::new("320MiB").by(Way::InProcess);
    rig.attach("tank/db", &["--fs", "xfs"]);
    let daemon = rig.pid("daemon");
    let what = vec![7; 1 << 20];
    fs::write(rig.path("mnt/cached"), &what).expect("cached");
    rig.kill_node();
    let mount = rig.mount();
    let dead = format!("its daemon (process {daemon}) is gone");
    rig.refuses(
        &["detach", &mount, "--timeout", "4"],
        3,
        &[
            "waiting up to 4 s",
            "tank/db has not answered for 4 s",
            &dead,
            "is still attached",
            "start the daemon again",
            &format!("`ashlar detach {mount} --force`"),
        ],
    );
    // It is where it was, for a service too, and no write goes to the folder below.
    let mounts = fs::read_to_string("/proc/self/mounts").expect("a table");
    assert!(mounts.contains(&mount), "it is not mounted any more");
    assert_eq!(rig.listed()["condition"], "unserved");
    // The same again: what the first attempt has left is in nothing's way.
    rig.refuses(
        &["detach", &mount, "--timeout", "1"],
        3,
        &["tank/db has not answered for", &dead],
    );
    rig.restart_node();
    assert!(fs::read(rig.path("mnt/cached")).expect("read") == what);
    // As advised.
    eventually("it is detached", || {
        ended(&mut rig.command(&["detach", &mount])).code == 0
    });
    rig.is_clean();
    rig.attach("tank/db", &[]);
    assert!(fs::read(rig.path("mnt/cached")).expect("read") == what);
    rig.detach();
    rig.is_clean();
}

#[test]
fn what_holds_a_file_system_that_was_torn_down_is_named() {
    if !can_attach() {
        return;
    }
    let rig = Rig::new("320MiB");
    rig.attach("tank/db", &["--fs", "xfs"]);
    fs::write(rig.path("mnt/file"), "kept").expect("written");
    File::open(rig.path("mnt/file"))
        .and_then(|file| file.sync_all())
        .expect("durable");
    let sleep = || {
        let mut command = Command::new("sleep");
        command.arg("600").stdout(Stdio::null());
        command
    };
    let file = File::open(rig.path("mnt/file")).expect("a file");
    let reader = sleep().stdin(file).spawn().expect("it starts");
    let worker = sleep().current_dir(rig.path("mnt")).spawn();
    let mut holders = [reader, worker.expect("it starts")];
    let mount = rig.mount();
    rig.ok(&["detach", &mount, "--force"]);
    let [reader, worker] = [0, 1].map(|at: usize| holders[at].id());
    rig.refuses(
        &["attach", "tank/db", "--mount", &mount],
        3,
        &[
            "detach --force",
            &format!("sleep (pid {reader}, open file)"),
            &format!("sleep (pid {worker}, working directory)"),
            "end that, then attach again",
        ],
    );
    for holder in &mut holders {
        holder.kill().expect("killed");
        holder.wait().expect("our child");
    }
    rig.attach("tank/db", &[]);
    assert_eq!(fs::read(rig.path("mnt/file")).expect("read"), b"kept");
    rig.detach();
    rig.is_clean();
}

#[test]
fn what_holds_the_rest_of_a_detach_is_named_until_it_lets_go() {
    if !can_attach() {
        return;
    }
    let rig = Rig::new("320MiB");
    rig.attach("tank/db", &["--fs", "xfs"]);
    fs::write(rig.path("mnt/file"), "kept").expect("written");
    let device = rig.listed()["device"]
        .as_str()
        .expect("a device")
        .to_owned();
    let open = File::open(&device).expect("a device");
    // The command would keep the device open itself.
    let holder = Command::new("sleep")
        .arg("600")
        .stdin(open)
        .stdout(Stdio::null())
        .spawn();
    let mut holder = holder.expect("it starts");
    let (mount, who) = (
        rig.mount(),
        format!("sleep (pid {}, open device)", holder.id()),
    );
    let again = format!("`ashlar detach {mount}`");
    rig.refuses(
        &["detach", &mount],
        3,
        &["is not mounted any more", &device, &who, &again],
    );
    let listed = rig.listed();
    assert_eq!(listed["condition"], "unmounted");
    let left = listed["left"].as_str().expect("what is left");
    assert!(left.contains(&device) && left.contains(&who), "{left}");
    let list = rig.ok(&["attach", "--list"]);
    assert!(list.contains(&who) && list.contains(&again), "{list}");
    holder.kill().expect("killed");
    holder.wait().expect("our child");
    rig.detach();
    rig.is_clean();
    rig.attach("tank/db", &[]);
    assert_eq!(fs::read(rig.path("mnt/file")).expect("read"), b"kept");
    rig.detach();
    rig.is_clean();
}

/// A container that is killed takes its mount namespace with it. The server is the last to go, so it unmounts the
/// file system, and waits for answers that only itself could give.
#[test]
fn what_went_with_its_mount_namespace_is_cleared() {
    if !can_attach() {
        return;
    }
    let rig = Rig::new("320MiB");
    let mount = rig.mount();
    let attach = rig.command(&[
        "attach",
        "tank/db",
        "--mount",
        &mount,
        "--fs",
        "xfs",
        "--via",
        "initiator",
    ]);
    let mut container = Command::new("unshare");
    container.args(["--mount", "--propagation", "private", "sh", "-ec"]);
    container.arg("mount=$1; shift; \"$@\"; echo kept > $mount/file; sync -f $mount; echo lost > $mount/other");
    container
        .args(["sh", &mount])
        .arg(attach.get_program())
        .args(attach.get_args());
    for (name, value) in attach.get_envs() {
        match value {
            Some(value) => container.env(name, value),
            None => container.env_remove(name),
        };
    }
    assert!(container.status().expect("it starts").success());
    let listed = rig.listed();
    assert_eq!(listed["condition"], "unmounted");
    let left = listed["left"].as_str().expect("what is left");
    let device = listed["device"].as_str().expect("a device").to_owned();
    let (guardian, server) = (rig.pid("guardian"), rig.pid("server"));
    assert!(left.contains("its server"), "{left}");
    // What was written last is still to be written.
    send(server, Signal::STOP);
    send(guardian, Signal::KILL);
    send(server, Signal::KILL);
    eventually("the server waits for itself", || waits_for_itself(server));
    let listed = rig.listed();
    assert!(
        listed["left"]
            .as_str()
            .is_some_and(|left| left.contains(&device)),
        "{listed}"
    );
    let told = ended(&mut rig.command(&["detach", &mount])).said();
    assert!(told.contains("went with the mount namespace"), "{told}");
    eventually("the server is gone", || !waits_for_itself(server));
    let file = format!(
        "/sys/block/{}/loop/backing_file",
        device.trim_start_matches("/dev/")
    );
    assert!(!Path::new(&file).exists(), "{device} is still there");
    rig.is_clean();
    rig.attach("tank/db", &[]);
    assert_eq!(fs::read(rig.path("mnt/file")).expect("read"), b"kept\n");
    rig.detach();
    rig.is_clean();
}

/// Whether the process was killed, and the last of its threads unmounts.
fn waits_for_itself(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let stacks = threads.into_iter().flatten().flatten();
    stacks
        .filter_map(|thread| fs::read_to_string(thread.path().join("stack")).ok())
        .any(|stack| stack.contains("cleanup_mnt"))
}
