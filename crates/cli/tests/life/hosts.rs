//! Who may connect to a volume, changed under a host that is connected.

use crate::common::eventually;
use crate::host::{BLOCK, Host};
use crate::node::{Node, Room};

/// As whom [`Host`] connects.
const HOST: &str = "nqn.2024-01.com.example:life";
const OTHER: &str = "nqn.2024-01.com.example:other";

#[test]
fn another_host_is_let_in_beside_one_that_is_connected_and_none_is_cut_off_unasked() {
    let room = Room::new();
    let drives = room.drives(2, 96);
    let mut node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    node.ok(&["volume", "deny", "tank/db", "--any-host"]);
    node.ok(&["volume", "allow", "tank/db", "--host", HOST]);
    let mut host = Host::connect(node.address, &nqn).expect("a host");
    let mut writes = |what: &str| {
        host.submit_write(0, 0, vec![7; BLOCK]).expect(what);
        let done = host.next().expect(what);
        assert!(done.status.is_success(), "{what}: {:?}", done.status);
    };
    node.ok(&["volume", "allow", "tank/db", "--host", OTHER]);
    writes("another was let in");
    let deny = ["volume", "deny", "tank/db", "--host", HOST];
    node.refuses(&deny, 2, &[HOST, "is connected", "--disconnect"]);
    writes("it stays");
    node.ok(&["volume", "deny", "tank/db", "--host", OTHER]);
    writes("another was let out");
    let hosts = node.ok(&["volume", "hosts", "tank/db"]);
    assert!(hosts.contains(HOST) && !hosts.contains(OTHER), "{hosts}");
    node.ok(&[&deny[..], &["--disconnect"]].concat());
    eventually("its connection ends", || {
        let asked = host.submit_write(0, 0, vec![7; BLOCK]);
        asked.and_then(|()| host.next()).is_err()
    });
    let volume = node.json(&["volume", "show", "tank/db"]);
    assert_eq!(volume["connected_hosts"], serde_json::json!([]));
    assert_eq!(volume["allow_hosts"], serde_json::json!([]));
    // It is remembered.
    node.ok(&["volume", "allow", "tank/db", "--host", HOST]);
    node.kill();
    node = Node::start(&room);
    Host::connect(node.address, &nqn).expect("a host");
    node.refuses(
        &["volume", "allow", "tank/db", "--host", "foo"],
        2,
        &["\"foo\"", "nqn."],
    );
    node.end();
}
