use ashlar_node::model::{
    AddDrive, CreatePool, DriveState, ErrorKind, ExportPool, ImportPool, RemoveDrive, ReplaceDrive,
    WorkKind,
};

use crate::node::{Node, parts};

fn create(name: &str, drives: &[&str]) -> CreatePool {
    CreatePool {
        name: name.into(),
        drives: drives.iter().map(ToString::to_string).collect(),
        ..CreatePool::default()
    }
}

#[test]
fn a_pool_from_its_making_to_its_export() {
    let node = Node::start();
    let client = node.client();
    assert!(client.pools().expect("a list").is_empty());
    let made = client
        .create_pool(&create("tank", &["/dev/a", "/dev/b", "/dev/c"]))
        .expect("made");
    assert_eq!(made.drives.len(), 3);
    assert_eq!(client.pool("tank").expect("there"), made);
    assert_eq!(client.pools().expect("a list"), std::slice::from_ref(&made));

    let add = AddDrive {
        drive: "/dev/d".into(),
        destroy_data: false,
    };
    let grown = client.add_drive("tank", &add).expect("added");
    assert!(grown.space.raw_bytes > made.space.raw_bytes);
    let replace = ReplaceDrive {
        old: made.drives[0].id.to_string(),
        new: "/dev/e".into(),
        destroy_data: false,
    };
    let replaced = client.replace_drive("tank", &replace).expect("begun");
    assert_eq!(replaced.work[0].what, WorkKind::Evacuate);
    let remove = RemoveDrive {
        drive: "/dev/b".into(),
    };
    let removed = client.remove_drive("tank", &remove).expect("begun");
    assert_eq!(removed.drives[1].state, DriveState::Evacuating);
    let scrubbed = client.scrub("tank").expect("begun");
    assert_eq!(scrubbed.work.last().expect("work").what, WorkKind::Scrub);

    client
        .export_pool("tank", &ExportPool::default())
        .expect("let go");
    assert_eq!(
        client.pool("tank").expect_err("gone").kind,
        ErrorKind::NotFound
    );
    let import = ImportPool {
        new_name: Some("lake".into()),
        degraded: false,
        ..ImportPool::default()
    };
    assert_eq!(
        client.import_pool("tank", &import).expect("back").id,
        made.id
    );
    assert_eq!(client.pool("lake").expect("renamed").name, "lake");
    node.end();
}

#[test]
fn errors_keep_their_kind_and_name_the_thing() {
    let node = Node::start();
    let client = node.client();
    client
        .create_pool(&create("tank", &["/dev/a"]))
        .expect("made");
    node.control.fill_drive("/dev/full");
    for (error, kind, word) in [
        (
            client.pool("lake").expect_err("none"),
            ErrorKind::NotFound,
            "lake",
        ),
        (
            client
                .create_pool(&create("tank", &["/dev/b"]))
                .expect_err("taken"),
            ErrorKind::Conflict,
            "tank",
        ),
        (
            client
                .create_pool(&create("lake", &["/dev/full"]))
                .expect_err("full"),
            ErrorKind::Refused,
            "/dev/full",
        ),
        (
            client
                .create_pool(&create("a b", &["/x"]))
                .expect_err("name"),
            ErrorKind::Usage,
            "a b",
        ),
        (
            client.create_pool(&create("lake", &[])).expect_err("none"),
            ErrorKind::Usage,
            "lake",
        ),
        (
            client.pool("../volumes").expect_err("no name"),
            ErrorKind::Usage,
            "volumes",
        ),
        (
            client
                .remove_drive(
                    "tank",
                    &RemoveDrive {
                        drive: "/dev/z".into(),
                    },
                )
                .expect_err("none"),
            ErrorKind::NotFound,
            "/dev/z",
        ),
    ] {
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(word), "{error}");
    }
    let meant = CreatePool {
        destroy_data: true,
        ..create("lake", &["/dev/full"])
    };
    client.create_pool(&meant).expect("said so");
    node.end();
}

#[test]
fn what_needs_no_body_takes_none() {
    let node = Node::start();
    node.client()
        .create_pool(&create("tank", &["/dev/a"]))
        .expect("made");
    let bare = |path: &str| {
        let request = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        parts(&node.raw(request.as_bytes())).0
    };
    assert_eq!(bare("/v1/pools/tank/scrub"), 200);
    assert_eq!(bare("/v1/pools/tank/export"), 204);
    assert_eq!(bare("/v1/pools/tank/import"), 200);
    assert_eq!(bare("/v1/pools/tank/drives"), 415);
    assert_eq!(
        node.ask("POST", "/v1/pools/tank/export", r#"{"forced":true}"#)
            .0,
        400
    );
    node.end();
}

#[test]
fn the_json_of_a_pool_is_stable() {
    let node = Node::start();
    let body = r#"{"name":"tank","drives":["file:/a?class=hdd","/dev/b"]}"#;
    let (status, _) = node.ask("POST", "/v1/pools", body);
    assert_eq!(status, 201);
    node.client().scrub("tank").expect("begun");
    let (status, pool) = node.ask("GET", "/v1/pools/tank", "");
    assert_eq!(status, 200);
    let keys = |value: &serde_json::Value| -> Vec<String> {
        value
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect()
    };
    assert_eq!(
        keys(&pool),
        [
            "name", "id", "state", "drives", "space", "layouts", "work", "log_fill", "features",
            "counters", "warnings"
        ]
    );
    assert_eq!(
        keys(&pool["drives"][0]),
        [
            "spec",
            "id",
            "class",
            "state",
            "bytes",
            "used_bytes",
            "errors",
            "slow_requests",
            "unmatched_bytes"
        ]
    );
    assert_eq!(
        keys(&pool["space"]),
        [
            "raw_bytes",
            "advertised_bytes",
            "used_bytes",
            "provisioned_bytes",
            "reserved_bytes",
            "reserves",
            "repair_reserve",
            "efficiency_with_reserves",
            "efficiency_without_reserves"
        ]
    );
    assert_eq!(
        keys(&pool["layouts"][0]),
        [
            "layout",
            "grain_bytes",
            "advertised_bytes",
            "free_bytes",
            "efficiency_with_reserves",
            "efficiency_without_reserves",
            "survives"
        ]
    );
    assert_eq!(
        keys(&pool["work"][0]),
        ["what", "subject", "state", "progress", "eta_seconds"]
    );
    assert_eq!(pool["state"], "healthy");
    assert_eq!(pool["drives"][0]["class"], "hdd");
    assert_eq!(pool["drives"][0]["errors"]["checksum"], 0);
    assert_eq!(pool["layouts"][1]["layout"], "mirror:2");
    assert_eq!(pool["layouts"][1]["survives"]["drive_losses"], 1);
    assert_eq!(pool["work"][0]["what"], "scrub");
    node.end();
}
