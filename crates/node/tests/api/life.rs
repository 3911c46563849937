use ashlar_node::model::{CreatePool, ErrorKind};
use ashlar_node::{Config, Daemon};
use serde_json::Value;

use crate::node::{Node, parts};

#[test]
fn nothing_is_left_behind_and_control_is_stopped_once() {
    let node = Node::with_tcp();
    let control = node.control.clone();
    assert_eq!(node.ready.address.to_string(), "127.0.0.1:4420");
    let line = node.ready.to_string();
    let socket = node.ready.socket.display().to_string();
    assert_eq!(
        line,
        format!("ready 127.0.0.1:4420 {socket} http://{}", node.tcp())
    );
    let (dir, error) = node.end();
    assert_eq!((error.kind, control.stops()), (ErrorKind::Internal, 1));
    assert!(error.message.contains("the test is over"), "{error}");
    let mut left: Vec<_> = std::fs::read_dir(dir.path())
        .expect("directory")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    left.sort();
    assert_eq!(left, ["api.token", "lock"]);
    Daemon::open(dir.path(), Config::default())
        .map(drop)
        .expect("the lock is free");
}

#[test]
fn a_second_daemon_is_refused_while_the_first_goes_on() {
    let node = Node::start();
    let error = Daemon::open(node.dir.path(), Config::default())
        .map(drop)
        .expect_err("taken");
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(
        error.message.contains(&std::process::id().to_string()),
        "{error}"
    );
    assert!(node.client().pools().expect("it goes on").is_empty());
    node.end();
}

#[test]
fn a_panic_in_a_request_ends_the_daemon_in_order() {
    let node = Node::start();
    let control = node.control.clone();
    let client = node.client();
    let pool = CreatePool {
        name: "tank".into(),
        drives: vec!["/dev/a".into()],
        ..CreatePool::default()
    };
    client.create_pool(&pool).expect("made");
    node.control.panic_next();
    let error = client.scrub("tank").expect_err("it dies");
    assert_eq!(error.kind, ErrorKind::Internal);
    assert!(error.message.contains("planted"), "{error}");
    let error = node.await_end().expect_err("a death is no success");
    assert!(error.message.contains("planted"), "{error}");
    assert_eq!((error.kind.exit_code(), control.stops()), (1, 1));
}

#[test]
fn an_address_that_is_taken_is_an_error_and_stops_control() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("free");
    let dir = tempfile::tempdir().expect("directory");
    let config = Config::default().overridden(None, taken.local_addr().ok());
    let daemon = Daemon::open(dir.path(), config).expect("it opens");
    let control = std::sync::Arc::new(ashlar_node::testing::FakeControl::new());
    let error = daemon
        .run(control.clone(), |_| panic!("it is not ready"))
        .expect_err("the address is taken");
    assert_eq!((error.kind, control.stops()), (ErrorKind::Environment, 1));
    assert!(!dir.path().join("api.sock").exists());
}

#[test]
fn a_daemon_that_dies_before_it_is_ready_does_not_say_so() {
    let dir = tempfile::tempdir().expect("directory");
    let daemon = Daemon::open(dir.path(), Config::default()).expect("it opens");
    let control = std::sync::Arc::new(ashlar_node::testing::FakeControl::new());
    daemon.alarm().raise("core 1 has died");
    let error = daemon
        .run(control.clone(), |_| panic!("it is not ready"))
        .expect_err("a death is no success");
    assert!(error.message.contains("core 1"), "{error}");
    assert_eq!(control.stops(), 1);
}

#[test]
fn the_description_names_every_path_and_its_schemas() {
    let node = Node::start();
    let (status, openapi) = node.ask("GET", "/v1/openapi.json", "");
    assert_eq!(status, 200);
    assert!(
        openapi["openapi"]
            .as_str()
            .expect("a version")
            .starts_with("3.")
    );
    let paths = openapi["paths"].as_object().expect("paths");
    for (path, methods) in [
        ("/v1/node", &["get"][..]),
        ("/v1/pools", &["get", "post"]),
        ("/v1/pools/{pool}", &["get"]),
        ("/v1/pools/{pool}/import", &["post"]),
        ("/v1/pools/{pool}/export", &["post"]),
        ("/v1/pools/{pool}/scrub", &["post"]),
        ("/v1/pools/{pool}/drives", &["post"]),
        ("/v1/pools/{pool}/drives/replace", &["post"]),
        ("/v1/pools/{pool}/drives/remove", &["post"]),
        ("/v1/volumes", &["get", "post"]),
        ("/v1/volumes/{pool}/{volume}", &["get", "delete"]),
        ("/v1/volumes/{pool}/{volume}/size", &["put"]),
        ("/v1/volumes/{pool}/{volume}/hosts", &["put"]),
        ("/v1/volumes/{pool}/{volume}/stats", &["get"]),
    ] {
        let found = paths
            .get(path)
            .unwrap_or_else(|| panic!("{path} is not described"));
        for method in methods {
            assert!(
                found.get(method).is_some(),
                "{method} {path} is not described"
            );
        }
    }
    let schemas = openapi["components"]["schemas"]
        .as_object()
        .expect("schemas");
    assert!(
        all_references(&openapi)
            .iter()
            .all(|name| schemas.contains_key(name))
    );
    assert_eq!(schemas["LayoutSpec"]["type"], "string");
    assert_eq!(
        openapi["components"]["securitySchemes"]["token"]["scheme"],
        "bearer"
    );
    node.end();
}

fn all_references(value: &Value) -> Vec<String> {
    match value {
        Value::Object(map) => map
            .iter()
            .flat_map(|(key, value)| match (key.as_str(), value) {
                ("$ref", Value::String(text)) => {
                    vec![text.rsplit('/').next().unwrap_or_default().to_owned()]
                }
                _ => all_references(value),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(all_references).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn what_is_measured_is_text_for_prometheus() {
    let node = Node::start();
    let drive = r#"file:/a\"b?size=1GiB"#;
    let pool = format!(r#"{{"name":"tank","drives":["{drive}","/dev/b"]}}"#);
    assert_eq!(node.ask("POST", "/v1/pools", &pool).0, 201);
    let volume = r#"{"pool":"tank","name":"db","bytes":1048576,"layout":"mirror:2"}"#;
    assert_eq!(node.ask("POST", "/v1/volumes", volume).0, 201);
    let answer = node.raw(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(
        answer.contains("content-type: application/openmetrics-text"),
        "{answer}"
    );
    let (status, text) = parts(&answer);
    assert_eq!(status, 200);
    for line in [
        "# TYPE ashlar_pool_raw_bytes gauge",
        "# TYPE ashlar_pool_free_bytes gauge",
        "ashlar_pool_raw_bytes{pool=\"tank\"} 137438953472",
        "ashlar_pool_state{pool=\"tank\",state=\"healthy\"} 1",
        "ashlar_pool_state{pool=\"tank\",state=\"failed\"} 0",
        "ashlar_pool_log_fill_ratio{pool=\"tank\",log=\"data_ring\"} 0.25",
        "ashlar_volume_size_bytes{pool=\"tank\",volume=\"db\"} 1048576",
        "ashlar_volume_operations_total{pool=\"tank\",volume=\"db\",operation=\"read\"} 10",
        "ashlar_volume_transferred_bytes_total{pool=\"tank\",volume=\"db\",operation=\"write\"} 40960",
        "ashlar_volume_latency_seconds_total{pool=\"tank\",volume=\"db\",operation=\"read\"} 0.001",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line}\nis not in\n{text}"
        );
    }
    assert!(
        text.contains(r#"spec="file:/a\"b?size=1GiB",kind="checksum"} 0"#),
        "escaped: {text}"
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
    node.end();
}
