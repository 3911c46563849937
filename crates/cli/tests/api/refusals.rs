use std::path::Path;

use crate::common::ended;
use crate::node::{Node, ashlar};

#[test]
fn exit_codes_tell_what_went_wrong() {
    let node = Node::start();
    node.done("pool create tank --drive /dev/a");
    node.control.fill_drive("/dev/full");
    for (words, code, word) in [
        ("pool status lake", 3, "lake"),
        ("pool create tank --drive /dev/b", 3, "already"),
        (
            "pool create lake --drive /dev/full",
            2,
            "/dev/full holds a file system",
        ),
        ("pool create a/b --drive /dev/b", 2, "a/b"),
        ("pool create lake", 2, "--drive"),
        ("pool remove tank --drive /dev/z", 3, "/dev/z"),
        ("pool remove tank --drive /dev/a", 3, "last"),
        (
            "volume create tank --size 1GiB --layout stripe",
            2,
            "tank/db",
        ),
        (
            "volume create tank/db --size 1GiB --layout raid5",
            2,
            "mirror:N",
        ),
        (
            "volume create tank/db --size 1GiB --layout mirror:2",
            2,
            "2 drives",
        ),
        (
            "volume create tank/db --size huge --layout stripe",
            2,
            "huge",
        ),
        (
            "volume create tank/db --size 1GiB --layout stripe --grain 5k",
            2,
            "grain",
        ),
        ("volume show tank/db", 3, "tank/db"),
        ("volume list lake", 3, "lake"),
        (
            "volume create tank/db --size 1GiB --layout stripe --allow-host x --allow-any-host",
            2,
            "--allow-any-host",
        ),
    ] {
        let ended = node.run(words);
        assert_eq!(ended.code, code, "{words}: {}{}", ended.out, ended.error);
        assert!(ended.error.contains(word), "{words}: {}", ended.error);
    }
    node.done("pool create lake --drive /dev/full --destroy-data");
}

#[test]
fn the_daemon_is_found_by_option_then_environment_then_default() {
    let node = Node::start();
    let nowhere = node.dir.path().join("nowhere.sock");
    let run = |words: &str, api: Option<&Path>| {
        let mut command = ashlar(node.dir.path(), words);
        if let Some(api) = api {
            command.env("ASHLAR_API", api);
        }
        ended(&mut command)
    };
    assert_eq!(run("pool list", Some(&node.ready.socket)).code, 0);
    let socket = node.ready.socket.display();
    assert_eq!(
        run(&format!("pool list --api {socket}"), Some(&nowhere)).code,
        0
    );
    let missing = run("pool list", Some(&nowhere));
    assert_eq!(missing.code, 3);
    assert!(missing.error.contains("nowhere.sock"), "{}", missing.error);
    if !Path::new("/run/ashlar/api.sock").exists() {
        let missing = run("pool list", None);
        assert_eq!(missing.code, 3);
        assert!(
            missing.error.contains("/run/ashlar/api.sock"),
            "{}",
            missing.error
        );
    }
    assert_eq!(run("pool list --api https://x:1", None).code, 2);
}

#[test]
fn over_tcp_it_says_the_token() {
    let node = Node::start();
    let words = format!("pool list --api {}", node.url());
    let stranger = ended(&mut ashlar(node.dir.path(), &words));
    assert_eq!(stranger.code, 3);
    assert!(
        stranger.error.contains("--token-file"),
        "{}",
        stranger.error
    );
    let mut option = ashlar(node.dir.path(), &words);
    let option = ended(option.arg("--token-file").arg(node.token()));
    assert_eq!(option.code, 0, "{}", option.error);
    let mut setting = ashlar(node.dir.path(), &words);
    let setting = ended(setting.env("ASHLAR_TOKEN_FILE", node.token()));
    assert_eq!(setting.code, 0, "{}", setting.error);
    let mut missing = ashlar(node.dir.path(), &words);
    let missing = ended(missing.env("ASHLAR_TOKEN_FILE", "/nowhere/token"));
    assert_eq!(missing.code, 3);
    assert!(
        missing.error.contains("/nowhere/token"),
        "{}",
        missing.error
    );
}

#[test]
fn what_is_no_daemon_is_an_error_of_the_environment() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("x.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("free");
    let answers: [&[u8]; 4] = [
        b"",
        b"hello\r\n",
        b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}}",
    ];
    let server = std::thread::spawn(move || {
        for answer in answers {
            use std::io::{Read, Write};
            let (mut stream, _) = listener.accept().expect("a client");
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let _ = stream.write_all(answer);
        }
    });
    for _ in answers {
        let words = format!("pool list --api {}", path.display());
        let ended = ended(&mut ashlar(dir.path(), &words));
        assert_eq!(ended.code, 3, "{}", ended.error);
        assert!(ended.error.contains("x.sock"), "{}", ended.error);
    }
    server.join().expect("it was asked");
}

#[test]
fn completions_know_the_commands() {
    let dir = tempfile::tempdir().expect("directory");
    let script = ended(&mut ashlar(dir.path(), "completions bash")).out;
    for word in [
        "ashlar__subcmd__pool__subcmd__create",
        "ashlar__subcmd__volume__subcmd__resize",
    ] {
        let plain = word.replace("__subcmd__", "__");
        assert!(script.contains(word) || script.contains(&plain), "{word}");
    }
    for option in [
        "--destroy-data",
        "--allow-any-host",
        "--token-file",
        "--when-degraded",
    ] {
        assert!(script.contains(option), "{option}");
    }
}
