use ashlar_node::model::{
    AllowHosts, CreatePool, CreateVolume, DeleteVolume, DenyHosts, ErrorKind, ExportPool,
    LayoutSpec, ResizeVolume, SetHosts, VolumeName, VolumeStatus,
};

use crate::node::Node;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
const OTHER: &str = "nqn.2026-01.io.example:other";

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
        "no host is let in by default"
    );
    assert_eq!(client.volumes().expect("a list"), [made]);
    let allowed = client.allow_hosts(&name(), &allow(&[HOST]));
    assert_eq!(allowed.expect("allowed").allow_hosts, [HOST]);
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
        ..DeleteVolume::default()
    };
    client.delete_volume(&name(), &meant).expect("gone");
    assert_eq!(
        client.volume(&name()).expect_err("gone").kind,
        ErrorKind::NotFound
    );
    node.end();
}

fn texts(hosts: &[&str]) -> Vec<String> {
    hosts.iter().map(ToString::to_string).collect()
}

fn allow(hosts: &[&str]) -> AllowHosts {
    AllowHosts {
        hosts: texts(hosts),
        any_host: false,
    }
}

fn deny(hosts: &[&str]) -> DenyHosts {
    DenyHosts {
        hosts: texts(hosts),
        ..DenyHosts::default()
    }
}

#[test]
fn hosts_are_let_in_and_out_one_by_one() {
    let node = with_pool();
    let client = node.client();
    client.create_volume(&mirror()).expect("made");
    let list = |volume: VolumeStatus| (volume.allow_hosts, volume.allow_any_host);
    let allowed = |request: &AllowHosts| list(client.allow_hosts(&name(), request).expect("done"));
    let denied = |request: &DenyHosts| list(client.deny_hosts(&name(), request).expect("done"));
    allowed(&allow(&[HOST]));
    assert_eq!(
        allowed(&allow(&[OTHER, HOST])),
        (texts(&[HOST, OTHER]), false)
    );
    assert_eq!(denied(&deny(&[HOST])), (texts(&[OTHER]), false));
    let error = client.deny_hosts(&name(), &deny(&[OTHER, HOST]));
    let error = error.expect_err("not on the list");
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.message.contains(HOST), "{error}");
    // Any host, and back to those that are listed.
    let any = AllowHosts {
        any_host: true,
        ..allow(&[HOST])
    };
    assert_eq!(allowed(&any), (texts(&[OTHER, HOST]), true));
    let error = client.deny_hosts(&name(), &deny(&[OTHER]));
    let error = error.expect_err("it may, as any host");
    assert_eq!(error.kind, ErrorKind::Conflict);
    let no_other = DenyHosts {
        any_host: true,
        ..deny(&[OTHER])
    };
    assert_eq!(denied(&no_other), (texts(&[HOST]), false));
    for body in [r#"{}"#, r#"{"hosts":[]}"#, r#"{"hosts":["foo"]}"#] {
        let (status, answer) = node.ask("POST", "/v1/volumes/tank/db/hosts/allow", body);
        assert_eq!(
            (status, &answer["error"]["kind"]),
            (400, &"usage".into()),
            "{body}"
        );
    }
    node.end();
}

#[test]
fn a_connected_host_is_not_cut_off_unasked() {
    let node = with_pool();
    let client = node.client();
    let listed = CreateVolume {
        allow_hosts: texts(&[HOST]),
        ..mirror()
    };
    client.create_volume(&listed).expect("made");
    node.control.use_volume(&name(), HOST, 4096);
    let list = |hosts: &[&str], disconnect| SetHosts {
        allow_hosts: texts(hosts),
        allow_any_host: false,
        disconnect,
    };
    let cut_off = [
        client.set_hosts(&name(), &list(&[OTHER], false)),
        client.set_hosts(&name(), &list(&[], false)),
        client.deny_hosts(&name(), &deny(&[HOST])),
    ];
    for error in cut_off {
        let error = error.expect_err("it is connected");
        assert_eq!(error.kind, ErrorKind::Refused);
        let says = error.message.contains(HOST) && error.message.contains("--disconnect");
        assert!(says, "{error}");
    }
    let volume = client.volume(&name()).expect("there");
    assert_eq!(volume.allow_hosts, [HOST], "nothing was changed");
    // What leaves it in needs no such word.
    let both = client.set_hosts(&name(), &list(&[OTHER, HOST], false));
    both.expect("it stays");
    client
        .deny_hosts(&name(), &deny(&[OTHER]))
        .expect("it stays");
    let meant = DenyHosts {
        disconnect: true,
        ..deny(&[HOST])
    };
    let volume = client.deny_hosts(&name(), &meant).expect("said so");
    assert_eq!(
        (volume.allow_hosts.len(), volume.connected_hosts.len()),
        (0, 0)
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
        accept_data_loss: false,
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
            "there is no `colour`",
        ),
        (
            r#"{"pool":"tank","name":"..","bytes":4096,"layout":"stripe"}"#,
            "..",
        ),
        (r#"{"pool":"tank"}"#, "`name` is missing"),
        (
            r#"{"pool":"tank","name":"db","bytes":"1","layout":"stripe"}"#,
            "`bytes`: the text \"1\" stands where a whole number",
        ),
        (
            r#"{"pool":"tank","name":"db","bytes":4096,"layout":"parity:4+1"}"#,
            "5 drives",
        ),
        ("{", "it is not JSON"),
        (
            "7",
            "the body of the request: 7 stands where a table belongs",
        ),
        ("[]", "the body of the request"),
    ] {
        let (status, answer) = node.ask("POST", "/v1/volumes", body);
        assert_eq!(status, 400, "{body}: {answer}");
        assert_eq!(answer["error"]["kind"], "usage", "{body}");
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.contains(word), "{body}: {message}");
        for programs in ["struct", "u64", "deserialize", "expected"] {
            assert!(!message.contains(programs), "{body}: {message}");
        }
    }
    let (status, answer) = node.ask("DELETE", "/v1/volumes/tank/db?destroy=true", "");
    assert_eq!(status, 400, "{answer}");
    let message = answer["error"]["message"].as_str().expect("a message");
    assert!(
        message.contains("there is no `destroy`; known: "),
        "{message}"
    );
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
