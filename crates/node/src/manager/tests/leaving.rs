//! What is refused, or cannot leave, leaves what others have as it was.

use std::thread;

use super::*;

impl Room {
    /// How long tank's core may take for an answer from now on; how long that was before.
    pub(super) fn patience(&self, patience: Duration) -> Duration {
        let mut pools = self.manager.lock();
        let Some(Kept::Live(pool)) = pools.get_mut("tank") else {
            panic!("in service")
        };
        std::mem::replace(&mut pool.link.patience, patience)
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
