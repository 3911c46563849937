//! Deletions of caches that are killed somewhere: the device is whole then, or the cache is there and can be deleted.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cache::{HEAD, backing, check_old, is_marked, read, write};
use crate::common::Running;
use crate::common::eventually;
use crate::host::BLOCK;
use crate::node::{Node, Room, bytes_of, text};
use crate::random::{Random, rounds};

/// Blocks that are written: one in what the mark turns over, and one behind it.
const WRITTEN: [u64; 2] = [3, 3000];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Flushed,
    GivenUp,
}

impl How {
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Flushed => &["volume", "delete", "tank/db"],
            Self::GivenUp => &["volume", "delete", "tank/db", "--accept-data-loss"],
        }
    }
}

/// The device, and what it has by itself.
struct Device {
    path: PathBuf,
    spec: String,
    begins: Vec<u8>,
    has: [u8; 2],
}

impl Device {
    /// A slow one, so that each step of a deletion takes long enough to die in.
    fn new(room: &Room) -> Self {
        let (path, spec) = backing(room, "old");
        Self {
            begins: bytes_of(&path)[..HEAD].to_vec(),
            path,
            spec: format!("faulty:delay=10ms,{spec}"),
            has: [0; 2],
        }
    }

    /// A new cache begins with what the device has, whatever those before it had; then it has what is newer.
    fn is_cached(&self, node: &Node, byte: u8) {
        let create = ["volume", "create", "tank/db", "--allow-any-host"];
        node.ok(&[&create[..], &["--backing", &self.spec]].concat());
        for (block, has) in WRITTEN.into_iter().zip(self.has) {
            assert!(read(node, block) == vec![has; BLOCK], "block {block}");
        }
        for block in WRITTEN {
            write(node, block, byte);
        }
        assert!(is_marked(&self.path));
    }

    /// No sector is turned over. What was flushed is there; of what was given up, any of it.
    fn is_whole(&mut self, how: How, byte: u8) {
        let found = bytes_of(&self.path);
        for (block, has) in WRITTEN.into_iter().zip(&mut self.has) {
            let found = &found[block as usize * BLOCK..][..BLOCK];
            let is_new = found == [byte; BLOCK];
            let is_old = found == [*has; BLOCK] && how == How::GivenUp;
            assert!(is_new || is_old, "{how:?}: block {block}");
            *has = found[0];
            let place = block as usize * BLOCK;
            if let Some(begins) = self.begins.get_mut(place..place + BLOCK) {
                begins.fill(*has);
            }
        }
        assert!(found[..HEAD] == self.begins, "{how:?}: its head");
        check_old(&self.path);
    }
}

/// The state of the only volume, if there is one.
fn state(node: &Node) -> Option<String> {
    let volumes = node.json(&["volume", "list"]);
    let first = volumes.get(0).map(|volume| text(&volume["state"]));
    first.filter(|_| volumes != Value::Null)
}

#[test]
fn a_deletion_that_is_killed_leaves_a_whole_device_or_a_cache_that_can_be_deleted() {
    let mut random = Random::of_this_run("cache deletion");
    let room = Room::new();
    let mut device = Device::new(&room);
    let mut node = Node::start(&room);
    let drives = room.drives(2, 96);
    let create = ["pool", "create", "tank", "--drive", &drives[0]];
    node.ok(&[&create[..], &["--drive", &drives[1]]].concat());
    let mut takes = [Duration::ZERO; 2];
    let mut left = std::collections::BTreeMap::<String, usize>::new();
    for round in 0..rounds(14, 100) {
        let how = [How::Flushed, How::GivenUp][round as usize % 2];
        let byte = round as u8 + 1;
        device.is_cached(&node, byte);
        if how == How::Flushed {
            node.ok(&["volume", "flush", "tank/db"]);
        }
        let begun = Instant::now();
        let mut deletion = Running::start(&mut node.command_to(how.words()));
        let takes = &mut takes[round as usize % 2];
        if takes.is_zero() {
            assert!(deletion.wait().success());
            *takes = begun.elapsed();
        } else {
            let after = random.below(takes.as_micros() as u64);
            std::thread::sleep(Duration::from_micros(after));
            node.kill();
            deletion.wait();
            node = Node::start(&room);
        }
        let found = state(&node);
        if found.as_ref().is_some_and(|state| state != "deleting") {
            node.ok(how.words());
        }
        *left.entry(format!("{how:?}: {found:?}")).or_default() += 1;
        eventually("it is gone", || state(&node).is_none());
        device.is_whole(how, byte);
    }
    println!("whole deletions take {takes:?}, killed ones leave {left:?}");
    node.end();
}
