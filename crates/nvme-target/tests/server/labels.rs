//! Labels of writes, with real sockets: what was in one before is never labelled with what came after.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ashlar_nvme_target::server::Server;

use crate::disk::{Disk, Door};
use crate::rig::{Rig, eventually, export, serve, stop};

const NQN: &str = "nqn.2026-01.io.ashlar:pool:labelled";

fn labelled() -> (Arc<Disk>, Server, Rig) {
    let disk = Disk::new(100);
    disk.label.store(1, Ordering::SeqCst);
    let server = serve();
    let door = Arc::new(Door(disk.clone()));
    server.add(export(NQN, door)).expect("added");
    let mut rig = Rig::connect(&server, NQN, "?queues=1").expect("connected");
    rig.write(0, 1);
    assert_eq!(disk.last_label(), Some(1), "known since it has connected");
    (disk, server, rig)
}

#[test]
fn what_waits_in_a_socket_keeps_its_age() {
    let (disk, server, mut rig) = labelled();
    let held = disk.stop_cores();
    let taken = disk.taken.load(Ordering::SeqCst);
    rig.submit_write(1, 1, 1);
    eventually("the core has it", || {
        rig.turn();
        disk.taken.load(Ordering::SeqCst) > taken
    });
    // The core stands: this one waits in its socket.
    rig.submit_write(2, 2, 1);
    (0..20).for_each(|_| rig.turn());
    disk.label.store(2, Ordering::SeqCst);
    drop(held);
    rig.wait(2);
    rig.done.clear();
    assert_eq!(disk.last_label(), Some(1), "it was sent before");
    eventually("what is sent afterwards is newer", || {
        rig.write(3, 1);
        disk.last_label() == Some(2)
    });
    drop(rig);
    stop(server);
}

#[test]
fn what_comes_after_a_pause_is_new() {
    let (disk, server, mut rig) = labelled();
    // A machine that is slow may take longer than the pause for its look: then there is another.
    eventually("an idle socket is looked at", || {
        let label = disk.label.fetch_add(1, Ordering::SeqCst) + 1;
        std::thread::sleep(Duration::from_millis(700));
        rig.write(0, 1);
        disk.last_label() == Some(label)
    });
    drop(rig);
    stop(server);
}
