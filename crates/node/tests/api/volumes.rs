use ashlar_node::model::{
    CreatePool, CreateVolume, DeleteVolume, ErrorKind, ExportPool, LayoutSpec, ResizeVolume,
    SetHosts, VolumeName,
};

use crate::node::Node;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:1";

fn name() -> VolumeName {
    VolumeName::new("tank", "db").expect("a name")
}

fn with_pool() -> Node {
    let node = Node::start();
    let pool = CreatePool {
        name: "tank".into(),
        drives: vec!["/dev/a".into(), "/dev/b".into()],
        ..CreatePool::default()
    };
    node.client().create_pool(&pool).expect("made");
    node
}

fn mirror() -> CreateVolume {
    CreateVolume::new(&name(), 1 << 30, LayoutSpec::Mirror { copies: 2 })
}

#[test]
fn a_volume_from_its_making_to_its_end() {
    let node = with_pool();
    let client = node.client();
    let made = client.create_volume(&mirror()).expect("made");
    assert_eq!(
        (made.bytes, made.atomic_bytes, made.grain_bytes),
        (1 << 30, 16384, 65536)
    );
    assert!(
        made.allow_hosts.is_empty() && !made.allow_any_host,
        "nobody unless somebody says so"
    );
    assert_eq!(client.volumes().expect("a list"), [made]);
    let hosts = SetHosts {
        allow_hosts: vec![HOST.into()],
        allow_any_host: false,
    };
    assert_eq!(
        client.set_hosts(&name(), &hosts).expect("set").allow_hosts,
        [HOST]
    );
    let larger = ResizeVolume {
        bytes: 2 << 30,
        destroy_data: false,
    };
    assert_eq!(
        client.resize_volume(&name(), &larger).expect("grown").bytes,
        2 << 30
    );
    assert_eq!(
        client
            .volume_stats(&name())
            .expect("counters")
            .read
            .operations,
        10
    );
    let meant = DeleteVolume {
        destroy_data: true,
        force: false,
    };
    client.delete_volume(&name(), &meant).expect("gone");
    assert_eq!(
        client.volume(&name()).expect_err("gone").kind,
        ErrorKind::NotFound
    );
    node.end();
}

#[test]
fn data_and_hosts_are_not_lost_unasked() {
    let node = with_pool();
    let client = node.client();
    client.create_volume(&mirror()).expect("made");
    node.control.use_volume(&name(), HOST, 12345);
    let smaller = ResizeVolume {
        bytes: 4096,
        destroy_data: false,
    };
    let delete = |destroy_data, force| DeleteVolume {
        destroy_data,
        force,
    };
    for (error, word) in [
        (
            client
                .resize_volume(&name(), &smaller)
                .expect_err("shrinks"),
            "--destroy-data",
        ),
        (
            client
                .delete_volume(&name(), &delete(true, false))
                .expect_err("in use"),
            HOST,
        ),
        (
            client
                .delete_volume(&name(), &delete(false, true))
                .expect_err("data"),
            "12345 bytes",
        ),
        (
            client
                .export_pool("tank", &ExportPool { force: false })
                .expect_err("in use"),
            HOST,
        ),
    ] {
        assert_eq!(error.kind, ErrorKind::Refused);
        assert!(error.message.contains(word), "{error}");
    }
    client.volume(&name()).expect("still there");
    client
        .delete_volume(&name(), &delete(true, true))
        .expect("said so");
    node.end();
}

#[test]
fn a_request_that_makes_no_sense_is_the_callers_fault() {
    let node = with_pool();
    for (body, word) in [
        (
            r#"{"pool":"tank","name":"db","bytes":4096,"layout":"raid5"}"#,
            "raid5",
        ),
        (
            r#"{"pool":"tank","name":"db","bytes":1,"layout":"stripe"}"#,
            "multiple",
        ),
        (
            r#"{"pool":"tank","name":"db","bytes":-1,"layout":"stripe"}"#,
            "bytes",
        ),
        (
            r#"{"pool":"tank","name":"db","bytes":4096,"layout":"stripe","colour":1}"#,
            "colour",
        ),
        (
            r#"{"pool":"tank","name":"..","bytes":4096,"layout":"stripe"}"#,
            "..",
        ),
        (r#"{"pool":"tank"}"#, "name"),
        (
            r#"{"pool":"tank","name":"db","bytes":4096,"layout":"parity:4+1"}"#,
            "5 drives",
        ),
        ("{", "JSON"),
        ("[]", "tank"),
    ] {
        let (status, answer) = node.ask("POST", "/v1/volumes", body);
        assert_eq!(status, 400, "{body}: {answer}");
        assert_eq!(answer["error"]["kind"], "usage", "{body}");
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.contains(word) || body == "[]", "{body}: {message}");
    }
    let (status, answer) = node.ask("DELETE", "/v1/volumes/tank/db?destroy=true", "");
    assert_eq!(status, 400, "{answer}");
    node.end();
}

#[test]
fn the_json_of_a_volume_is_stable() {
    let node = with_pool();
    let body = r#"{"pool":"tank","name":"db","bytes":1048576,"layout":"mirror:2"}"#;
    let (status, made) = node.ask("POST", "/v1/volumes", body);
    assert_eq!(status, 201);
    let (_, volume) = node.ask("GET", "/v1/volumes/tank/db", "");
    assert_eq!(volume, made);
    let keys: Vec<&String> = volume.as_object().expect("an object").keys().collect();
    assert_eq!(
        keys,
        [
            "pool",
            "name",
            "nqn",
            "nsid",
            "uuid",
            "address",
            "layout",
            "bytes",
            "used_bytes",
            "block_bytes",
            "grain_bytes",
            "atomic_bytes",
            "volatile_cache",
            "state",
            "when_degraded",
            "allow_hosts",
            "allow_any_host",
            "connected_hosts"
        ]
    );
    assert_eq!(volume["state"], "online");
    assert_eq!(volume["when_degraded"], "continue");
    node.end();
}
