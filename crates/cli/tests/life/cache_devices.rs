//! What a cache is put over: a device that something uses is refused by name, and one that ends anywhere is cached whole.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::cache::{backing, check_old, is_marked, make, shown};
use crate::common::{can_attach, ended, eventually};
use crate::host::Host;
use crate::node::{Node, Room, bytes_of};

const SECTOR: usize = 512;

/// A loop device, and what is mounted of it.
struct Loop {
    device: String,
    mount: Option<String>,
}

fn run(program: &str, arguments: &[&str]) {
    let done = ended(Command::new(program).args(arguments));
    assert_eq!(done.code, 0, "{program} {arguments:?}: {}", done.said());
}

impl Loop {
    fn over(image: &Path) -> Self {
        // Another process may take the device that it has found to be free: then it finds another one.
        let mut device = String::new();
        eventually("a loop device", || {
            let done = ended(Command::new("losetup").args(["-f", "--show"]).arg(image));
            device = done.out.trim().to_owned();
            done.code == 0
        });
        Self {
            device,
            mount: None,
        }
    }

    fn mount(&mut self, place: &Path) {
        let place = place.display().to_string();
        std::fs::create_dir(&place).expect("a folder");
        run("mount", &[&self.device, &place]);
        self.mount = Some(place);
    }

    fn unmount(&mut self) {
        if let Some(place) = self.mount.take() {
            run("umount", &[&place]);
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some(place) = &self.mount {
            let _ = Command::new("umount").arg(place).status();
        }
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

fn create(backing: &str) -> [&str; 6] {
    [
        "volume",
        "create",
        "tank/db",
        "--allow-any-host",
        "--backing",
        backing,
    ]
}

#[test]
fn a_device_that_something_uses_is_refused_and_cached_when_it_is_free() {
    if !can_attach() {
        return;
    }
    let room = Room::new();
    let image = room.path("image");
    let file = File::create(&image).expect("a file");
    file.set_len((16 << 20) + 1024).expect("a sparse file");
    let place = image.display().to_string();
    run("mkfs.ext4", &["-q", "-F", "-b", "1024", &place]);
    let mut device = Loop::over(&image);
    device.mount(&room.path("mnt"));
    let node = Node::start(&room);
    let drives = room.drives(2, 96);
    node.ok(&[
        "pool", "create", "tank", "--drive", &drives[0], "--drive", &drives[1],
    ]);
    let mounted = [device.device.as_str(), "is mounted on", "mnt"];
    node.refuses(&create(&device.device), 3, &mounted);
    let below = [place.as_str(), "is attached as", "is mounted on"];
    node.refuses(&create(&place), 3, &below);
    device.unmount();
    let attached = [place.as_str(), "is attached as", &device.device];
    node.refuses(&create(&place), 3, &attached);
    node.ok(&create(&device.device));
    assert_eq!(shown(&node)["bytes"], (16 << 20) + 1024);
    // The kernel has it to itself now.
    let taken = ended(Command::new("mount").args([
        &device.device,
        &format!("{}/mnt", room.dir.path().display()),
    ]));
    assert_ne!(taken.code, 0, "{}", taken.said());
    node.ok(&["volume", "delete", "tank/db"]);
    node.end();
    run("e2fsck", &["-fn", &device.device]);
}

/// A last partition up to the end of a GPT is such a device.
#[test]
fn a_device_that_ends_within_4_kib_is_cached_to_its_end() {
    let room = Room::new();
    let (path, spec) = backing(&room, "old");
    let bytes = bytes_of(&path).len() + 3 * SECTOR;
    let file = File::options().write(true).open(&path).expect("a file");
    file.set_len(bytes as u64).expect("grown");
    let last = (bytes / SECTOR - 1) as u64;
    let written = file.write_all_at(&[5; SECTOR], last * SECTOR as u64);
    written.expect("written");
    let mut node = Node::start(&room);
    make(&room, &node, &spec, &[]);
    let volume = shown(&node);
    assert_eq!(volume["bytes"], bytes, "{volume:#}");
    assert_eq!(volume["block_bytes"], SECTOR, "{volume:#}");
    let host = |node: &Node| {
        let host = Host::connect(node.address, &node.nqn());
        host.expect("served").of_blocks(SECTOR)
    };
    let read = |host: &mut Host, at: u64| {
        host.submit_read(0, at, 1).expect("sent");
        host.next().expect("an answer")
    };
    let mut first = host(&node);
    assert_eq!(read(&mut first, last).data, [5; SECTOR]);
    let beyond = read(&mut first, last + 1).status;
    assert!(!beyond.is_success(), "there is nothing behind it");
    let write = first.submit_write(0, last - 1, [[7; SECTOR], [8; SECTOR]].concat());
    write.expect("sent");
    assert!(first.next().expect("an answer").status.is_success());
    let newer = node.ok(&["volume", "newer", "tank/db"]);
    let at = bytes / 4096 * 4096;
    assert!(newer.contains(&format!("{at} {}", bytes - at)), "{newer}");
    node.kill();
    node = Node::start(&room);
    assert_eq!(read(&mut host(&node), last - 1).data, [7; SECTOR]);
    assert!(is_marked(&path));
    node.ok(&["volume", "flush", "tank/db"]);
    node.ok(&["volume", "delete", "tank/db"]);
    let found = bytes_of(&path);
    assert_eq!(found.len(), bytes);
    assert!(found.ends_with(&[[7; SECTOR], [8; SECTOR]].concat()));
    check_old(&path);
    node.end();
}
