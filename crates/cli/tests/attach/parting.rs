//! Detaching when something is in the way: a volume that does not answer, a process that lives on.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::common::{can_attach, ended, eventually};
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
    // As advised. The kernel may be done with it before the command is.
    rig.restart_node();
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
