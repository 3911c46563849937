//! What is refused, by name, with nothing done.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::common::{can_attach, ended, eventually, open_folder, refuses};
use crate::rig::Rig;

#[test]
fn without_root_nothing_is_done() {
    if !can_attach() {
        return;
    }
    let dir = open_folder();
    // The user `nobody` may not be allowed to enter the folder where it was built.
    let program = dir.path().join("ashlar");
    fs::copy(env!("CARGO_BIN_EXE_ashlar"), &program).expect("copied");
    let state = dir.path().join("state");
    let mount = dir.path().display().to_string();
    for arguments in [
        &["attach", "tank/db", "--mount", &mount][..],
        &["detach", &mount],
    ] {
        let mut command = Command::new(&program);
        command.args(arguments).env("ASHLAR_ATTACH_STATE", &state);
        refuses(command.uid(65534), 3, &["needs root"]);
    }
    assert!(!state.exists());
}

#[test]
fn mount_points_and_volumes_that_cannot_be_are_named() {
    if !can_attach() {
        return;
    }
    let rig = Rig::new("320MiB");
    let mount = rig.mount();
    let missing = rig.path("nowhere").display().to_string();
    let full = rig.path("full");
    fs::create_dir(&full).expect("a folder");
    fs::write(full.join("x"), "x").expect("a file");
    let full = full.display().to_string();
    let attach = |volume, mount: &str, code, names: &[&str]| {
        rig.refuses(
            &["attach", volume, "--mount", mount, "--fs", "xfs"],
            code,
            names,
        );
    };
    attach("tank/db", &missing, 3, &[&missing, "No such file"]);
    attach("tank/db", &full, 3, &[&full, "not empty"]);
    attach("tank/db", "/proc", 3, &["/proc", "mounted"]);
    attach("tank/nix", &mount, 3, &["nix"]);
    attach("tank", &mount, 2, &["POOL/VOLUME"]);
    attach(
        "nvme-tcp://127.0.0.1:1/nqn.2026-01.x:y",
        &mount,
        3,
        &["127.0.0.1:1"],
    );
    rig.refuses(
        &["attach", "tank/db", "--mount", &mount, "--via", "nvme"],
        3,
        &["--via nvme"],
    );
    rig.refuses(
        &["attach", "tank/db", "--mount", &mount, "--timeout", "soon"],
        2,
        &["--timeout soon"],
    );
    rig.refuses(&["detach", &mount], 3, &["nothing is attached", &mount]);
    rig.is_clean();
}

/// A host that was let in for an attachment that is refused is let out again; one that was let in before is not.
#[test]
fn a_refused_attachment_leaves_no_host_allowed() {
    if !can_attach() {
        return;
    }
    let rig = Rig::new("320MiB");
    let allowed = || {
        let text = rig.ok(&["volume", "show", "tank/db", "--json"]);
        let volume: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        volume["allow_hosts"].to_string()
    };
    let nqn = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
    let mount = rig.mount();
    let attach = |more: &[&str]| {
        let words = ["attach", "tank/db", "--mount", &mount, "--hostnqn", nqn];
        rig.command(&[&words, more].concat())
    };
    let wrong = ["--fs", "xfs", "--options", "no-such-option"];
    // After the volume was asked, after it was made, after a file system was.
    for (more, why) in [
        (
            &["--trace", &rig.path("mnt/t").display().to_string()][..],
            "--trace",
        ),
        (&[], "holds no file system"),
        (&wrong, "bad option"),
        (&["--fs", "ext4", "--via", "initiator"], "holds"),
    ] {
        let refused = ended(&mut attach(more));
        assert!(
            refused.code > 1 && refused.error.contains(why),
            "{}",
            refused.error
        );
        let told = "tank/db does not let this host connect any more";
        assert!(refused.error.contains(told), "{}", refused.error);
        assert_eq!(allowed(), "[]", "{why}");
        rig.is_clean();
    }
    let one = ["volume", "allow", "tank/db", "--host"];
    rig.ok(&[&one[..], &[nqn]].concat());
    let refused = ended(&mut attach(&["--fs", "ext4"]));
    assert!(
        refused.code > 1 && !refused.error.contains("any more"),
        "{}",
        refused.error
    );
    assert_eq!(allowed(), format!("[\"{nqn}\"]"));
    // Other hosts stay, and the one that is attached.
    let other = "nqn.2026-01.io.example:other";
    rig.ok(&[&one[..], &[other]].concat());
    rig.ok(&["volume", "deny", "tank/db", "--host", nqn]);
    ended(&mut attach(&["--fs", "ext4"]));
    assert_eq!(allowed(), format!("[\"{other}\"]"));
    let attached = ended(&mut attach(&[]));
    assert_eq!(attached.code, 0, "{}", attached.error);
    assert_eq!(allowed(), format!("[\"{other}\",\"{nqn}\"]"));
    rig.detach();
    rig.is_clean();
}

#[test]
fn a_volume_is_attached_once_and_stays_while_it_is_used() {
    if !can_attach() {
        return;
    }
    let rig = Rig::new("320MiB");
    let mount = rig.mount();
    rig.attach("tank/db", &["--fs", "xfs"]);
    let other = rig.path("other");
    fs::create_dir(&other).expect("a folder");
    let other = other.display().to_string();
    rig.refuses(
        &["attach", "tank/db", "--mount", &mount],
        3,
        &["has an attachment already"],
    );
    let detach = format!("`ashlar detach {mount}`");
    rig.refuses(
        &["detach", "tank/db"],
        3,
        &["tank/db is attached at", &detach],
    );
    let connected = ["tank/db is in use", "connected", "nqn."];
    rig.refuses(&["attach", "tank/db", "--mount", &other], 3, &connected);
    // Even where the daemon is not asked.
    rig.refuses(
        &["attach", "tank/db", "--mount", &other, "--shared"],
        3,
        &["tank/db is attached already", &mount],
    );
    let mut user = Command::new("sleep")
        .arg("300")
        .current_dir(&mount)
        .stdin(Stdio::null())
        .spawn()
        .expect("it starts");
    let pid = format!("pid {}", user.id());
    rig.refuses(
        &["detach", &mount],
        3,
        &[&mount, "sleep", &pid, "working directory"],
    );
    assert_eq!(rig.listed()["condition"], "attached");
    fs::write(rig.path("mnt/x"), "still there").expect("written");
    user.kill().expect("our child");
    user.wait().expect("our child");
    eventually("it lets go", || {
        ended(&mut rig.command(&["detach", &mount])).code == 0
    });
    rig.is_clean();
}
