use std::sync::Arc;
use std::time::Duration;

use ashlar_block::ErrorKind;
use ashlar_nvme_target::HostAccess;
use ashlar_nvme_target::server::ServeError;

use crate::disk::{Disk, Door};
use crate::rig::{Rig, eventually, export, serve, stop};

const NQN: &str = "nqn.2026-01.io.ashlar:pool:door";
const FRIEND: &str = "nqn.2026-01.test:friend";
const STRANGER: &str = "nqn.2026-01.test:stranger";

#[test]
fn who_may_connect_changes_while_hosts_are_connected() {
    let server = serve();
    let mut closed = export(NQN, Arc::new(Door(Disk::new(64))));
    closed.access = HostAccess::Listed(Vec::new());
    server.add(closed).expect("added");
    let connect = |who: &str| Rig::connect(&server, NQN, &format!("?hostnqn={who}&loss=600ms"));
    assert_eq!(
        connect(FRIEND).err().expect("refused").kind(),
        ErrorKind::Denied
    );
    server.allow(NQN, HostAccess::Any).expect("allowed");
    let mut friend = connect(FRIEND).expect("allowed");
    let mut stranger = connect(STRANGER).expect("allowed");
    friend.write(1, 1);
    stranger.write(2, 2);
    let listed = HostAccess::Listed(vec![FRIEND.into()]);
    server.allow(NQN, listed).expect("allowed");
    eventually("the stranger is gone", || {
        server.target().hosts_of(NQN).len() == 1
    });
    for tag in 0..4 {
        stranger.submit_write(tag, tag, 3);
    }
    stranger.wait(4);
    for one in stranger.done.drain(..) {
        let error = one.result.expect_err("not any more");
        println!("{error}");
    }
    friend.write(3, 3);
    friend.check(2, 2);
    assert_eq!(friend.device.inner_mut().losses(), 0);
    assert_eq!(
        connect(STRANGER).err().expect("refused").kind(),
        ErrorKind::Denied
    );
    let unknown = server.allow("nqn.2026-01.test:nothing", HostAccess::Any);
    assert!(matches!(unknown, Err(ServeError::Config(_))));
    drop((friend, stranger));
    std::thread::sleep(Duration::from_millis(20));
    stop(server);
}
