use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ashlar_node::Token;
use ashlar_node::model::{CreatePool, ErrorKind};

use crate::node::{Node, parts};

#[test]
fn strangers_are_not_let_in_over_tcp() {
    let node = Node::with_tcp();
    let error = node.tcp_client(None).pools().expect_err("no token");
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    assert!(error.message.contains("--token-file"), "{error}");
    let other = node.dir.path().join("other");
    std::fs::write(&other, "0123456789abcdef0123456789abcdef").expect("file");
    let wrong = node.tcp_client(Some(Token::read(&other).expect("a token")));
    assert_eq!(
        wrong.pools().expect_err("another token").kind,
        ErrorKind::Unauthorized
    );
    for path in [
        "/v1/node",
        "/v1/openapi.json",
        "/metrics",
        "/",
        "/v1/pools/tank",
    ] {
        for header in [
            "",
            "authorization: Bearer \r\n",
            "authorization: Basic eDp5\r\n",
        ] {
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{header}\r\n");
            let answer = node.raw_tcp(request.as_bytes());
            assert_eq!(parts(&answer).0, 401, "{path} {header}");
            assert!(answer.contains("www-authenticate: Bearer"), "{answer}");
        }
    }
    let client = node.tcp_client(Some(node.token()));
    assert!(client.pools().expect("the token").is_empty());
    assert_eq!(client.node().expect("the token").pid, std::process::id());
    node.end();
}

#[test]
fn bodies_and_heads_have_limits() {
    let node = Node::start();
    let huge = format!(r#"{{"name":"tank","drives":["{}"]}}"#, "x".repeat(2 << 20));
    let (status, answer) = node.ask("POST", "/v1/pools", &huge);
    assert_eq!(status, 413);
    assert_eq!(answer["error"]["kind"], "usage");
    let head = format!(
        "GET /v1/node HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n",
        "x".repeat(1 << 20)
    );
    assert_eq!(parts(&node.raw(head.as_bytes())).0, 431);
    let many: Vec<String> = (0..65).map(|n| format!("/dev/{n}")).collect();
    let pool = CreatePool {
        name: "tank".into(),
        drives: many,
        ..CreatePool::default()
    };
    assert_eq!(
        node.client().create_pool(&pool).expect_err("too many").kind,
        ErrorKind::Usage
    );
    assert!(node.client().pools().expect("it goes on").is_empty());
    node.end();
}

#[test]
fn what_is_no_request_does_no_harm() {
    let node = Node::start();
    for bytes in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET /v1/node HTTP/9.9\r\n\r\n",
        b"GET nonsense HTTP/1.1\r\nconnection: close\r\n\r\n",
        b"POST /v1/pools HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/pools HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let answer = node.raw(bytes);
        assert!(answer.is_empty() || parts(&answer).0 >= 400, "{answer}");
    }
    let (status, answer) = node.ask("GET", "/v2/pools", "");
    assert_eq!(
        (status, &answer["error"]["kind"]),
        (404, &"not_found".into())
    );
    let (status, answer) = node.ask("PATCH", "/v1/pools", "{}");
    assert_eq!((status, &answer["error"]["kind"]), (405, &"usage".into()));
    let (status, answer) = node.ask("GET", "/v1/pools/%2e%2e", "");
    assert_eq!((status, &answer["error"]["kind"]), (400, &"usage".into()));
    assert!(node.client().pools().expect("it goes on").is_empty());
    node.end();
}

#[test]
fn silent_clients_do_not_keep_others_out() {
    let node = Node::start();
    let idle: Vec<UnixStream> = (0..40)
        .map(|_| {
            let mut stream = UnixStream::connect(&node.ready.socket).expect("it listens");
            stream.write_all(b"GET /v1/no").expect("taken");
            stream
        })
        .collect();
    assert!(node.client().pools().expect("an answer").is_empty());
    let (dir, _) = node.end();
    assert!(
        !dir.path().join("api.sock").exists(),
        "the end does not wait for them for ever"
    );
    for mut stream in idle {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
}

/// They have no token, or say nothing: who has one is answered at once, and who was let in stays.
#[test]
fn strangers_do_not_keep_out_who_has_the_token() {
    let node = Node::with_tcp();
    let address = node.ready.api.expect("TCP");
    let mut known = TcpStream::connect(address).expect("it listens");
    let ask = format!(
        "GET /v1/node HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        std::fs::read_to_string(node.dir.path().join("api.token"))
            .expect("a token")
            .trim()
    );
    let mut answer = [0; 4096];
    known.write_all(ask.as_bytes()).expect("taken");
    assert!(known.read(&mut answer).expect("an answer") > 0);
    let mut strangers = Vec::new();
    let client = node.tcp_client(Some(node.token()));
    for round in 0..4 {
        for number in 0..70 {
            let mut stream = TcpStream::connect(address).expect("it listens");
            if number % 2 == 0 {
                stream.write_all(b"GET /v1/no").expect("taken");
            }
            strangers.push(stream);
        }
        let begun = Instant::now();
        assert!(client.pools().expect("an answer").is_empty());
        assert!(begun.elapsed() < Duration::from_secs(8), "round {round}");
        known.write_all(ask.as_bytes()).expect("still there");
        assert!(known.read(&mut answer).expect("an answer") > 0);
    }
    // Those that are over go at once, the others when their time is over.
    for mut stranger in strangers {
        let limit = Some(Duration::from_secs(60));
        stranger.set_read_timeout(limit).expect("a limit");
        let mut rest = Vec::new();
        match stranger.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
    node.end();
}

#[test]
fn bodies_that_are_nearly_right_are_refused_or_done() {
    let node = Node::start();
    node.ask(
        "POST",
        "/v1/pools",
        r#"{"name":"tank","drives":["/dev/a","/dev/b"]}"#,
    );
    let bodies = [
        (
            "POST",
            "/v1/pools",
            r#"{"name":"x","drives":["/dev/c"],"reserve":"none"}"#,
        ),
        (
            "POST",
            "/v1/pools/tank/drives",
            r#"{"drive":"/dev/d","destroy_data":true}"#,
        ),
        (
            "POST",
            "/v1/volumes",
            r#"{"pool":"tank","name":"v","bytes":4096,"layout":"mirror:2"}"#,
        ),
        (
            "PUT",
            "/v1/volumes/tank/v/size",
            r#"{"bytes":8192,"destroy_data":true}"#,
        ),
        (
            "PUT",
            "/v1/volumes/tank/v/hosts",
            r#"{"allow_hosts":["nqn.2026-01.io.example:a"],"allow_any_host":false}"#,
        ),
        (
            "POST",
            "/v1/volumes/tank/v/hosts/allow",
            r#"{"hosts":["nqn.2026-01.io.example:b"]}"#,
        ),
        (
            "POST",
            "/v1/volumes/tank/v/hosts/deny",
            r#"{"hosts":["nqn.2026-01.io.example:b"],"disconnect":true}"#,
        ),
    ];
    let mut chance = fastrand::Rng::with_seed(7);
    for round in 0..400 {
        let (method, path, body) = bodies[round % bodies.len()];
        let mut bytes = body.as_bytes().to_vec();
        for _ in 0..chance.usize(1..4) {
            let at = chance.usize(..bytes.len());
            match chance.u8(..3) {
                0 => bytes[at] = chance.u8(b' '..127),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, chance.u8(b' '..127)),
            }
        }
        let body = String::from_utf8(bytes).expect("plain characters");
        let (status, answer) = node.ask(method, path, &body);
        assert!(status < 500, "{method} {path} {body}: {status} {answer}");
        if status >= 400 {
            assert!(
                answer["error"]["kind"].is_string(),
                "{body}: {status} {answer}"
            );
        }
    }
    node.end();
}

#[test]
fn many_at_once_are_all_answered() {
    let node = Node::start();
    std::thread::scope(|scope| {
        for worker in 0..100 {
            let node = &node;
            scope.spawn(move || {
                let pool = CreatePool {
                    name: format!("pool-{worker}"),
                    drives: vec![format!("/dev/{worker}")],
                    ..CreatePool::default()
                };
                node.client().create_pool(&pool).expect("made");
                node.client().pools().expect("a list");
            });
        }
    });
    assert_eq!(node.client().pools().expect("a list").len(), 100);
    node.end();
}
