//! Against servers of our own, which answer what a test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ashlar_replica::Revision;
use tokio::runtime::Builder;

use super::{Store, Swap};
use crate::config::QuorumConfig;

const MADE: &str =
    r#"{"header":{"revision":"7"},"succeeded":true,"responses":[{"response_put":{}}]}"#;
const HELD: &str =
    r#"{"header":{"revision":"7"},"succeeded":true,"responses":[{"response_range":{}}]}"#;

/// What a member does with a request.
#[derive(Clone, Copy)]
enum Member {
    Answers(&'static str),
    /// And ends the connection.
    AnswersOnce(&'static str),
    Complains,
    HangsUp,
    Hangs,
    /// Answers questions, and does this with a swap.
    WithSwaps(&'static Member),
}

/// Runs it; counts the requests that it has got.
fn run(member: Member) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, counter) = (stream.expect("a connection"), counter.clone());
            std::thread::spawn(move || serve(stream, member, &counter));
        }
    });
    (address, seen)
}

fn serve(stream: TcpStream, member: Member, seen: &AtomicUsize) {
    let mut stream = BufReader::new(stream);
    while let Some(length) = head(&mut stream) {
        let mut body = vec![0; length];
        stream.read_exact(&mut body).expect("a body");
        seen.fetch_add(1, Ordering::Relaxed);
        let is_swap = String::from_utf8_lossy(&body).contains("request_put");
        let does = match member {
            Member::WithSwaps(member) if is_swap => *member,
            Member::WithSwaps(_) => Member::Answers(HELD),
            other => other,
        };
        let (status, text) = match does {
            Member::Answers(text) | Member::AnswersOnce(text) => ("200 OK", text),
            Member::Complains => ("503 Unavailable", r#"{"error":"etcdserver: no leader"}"#),
            Member::HangsUp => return,
            Member::Hangs | Member::WithSwaps(_) => continue,
        };
        let length = text.len();
        let is_last = matches!(member, Member::AnswersOnce(_));
        let end = if is_last { "Connection: close\r\n" } else { "" };
        let answer = format!("HTTP/1.1 {status}\r\n{end}Content-Length: {length}\r\n\r\n{text}");
        let sent = stream.get_mut().write_all(answer.as_bytes());
        if sent.is_err() || is_last {
            return;
        }
    }
}

/// The length of the body that follows; `None` at the end.
fn head(stream: &mut impl BufRead) -> Option<usize> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|&read| read > 0)?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            return Some(length);
        }
        if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse().expect("a length");
        }
    }
}

fn store(members: &[SocketAddr]) -> Store {
    let endpoints = members.iter().map(|&address| address.into()).collect();
    Store::of(&QuorumConfig::Etcd(endpoints), super::Caller::default())
}

fn on_a_runtime<T>(work: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

/// A port at which there is nothing: other tests listen elsewhere.
fn closed() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.2:0").expect("a port");
    listener.local_addr().expect("an address")
}

#[test]
fn a_swap_that_may_have_arrived_is_sent_to_no_other() {
    for member in [&Member::HangsUp, &Member::Hangs, &Member::Complains] {
        let (first, seen) = run(Member::WithSwaps(member));
        let (second, also_seen) = run(Member::Answers(MADE));
        let store = store(&[first, second]);
        let swap = on_a_runtime(store.swap("/x", Revision(0), b"x"));
        assert!(matches!(swap, Swap::Unknown(_)), "{swap:?}");
        assert!(!store.status().reachable);
        let counts = [seen, also_seen].map(|seen| seen.load(Ordering::Relaxed));
        // The question that shows that answers arrive, and the swap.
        assert_eq!(counts, [2, 0]);
    }
}

#[test]
fn a_swap_that_cannot_have_arrived_goes_to_the_next() {
    let (second, seen) = run(Member::AnswersOnce(MADE));
    let store = store(&[closed(), second]);
    on_a_runtime(async {
        // Each has its connection closed behind it, and so the next finds one that is of no use.
        for _ in 0..20 {
            let swap = store.swap("/x", Revision(0), b"x").await;
            assert_eq!(swap, Swap::Made(Revision(7)));
        }
    });
    // A question before each.
    assert_eq!(seen.load(Ordering::Relaxed), 40);
    assert!(store.status().reachable);
}

#[test]
fn a_read_is_asked_until_one_answers() {
    for member in [
        Member::HangsUp,
        Member::Hangs,
        Member::Complains,
        Member::Answers("{}"),
    ] {
        let (first, _) = run(member);
        let (second, seen) = run(Member::Answers(HELD));
        let store = store(&[first, closed(), second]);
        let held = on_a_runtime(store.read("/x"));
        assert_eq!(held, Ok(None));
        assert_eq!(seen.load(Ordering::Relaxed), 1);
    }
    let (only, seen) = run(Member::Complains);
    let store = store(&[only]);
    let why = on_a_runtime(store.read("/x")).expect_err("no answer");
    assert!(
        why.contains("no leader") && why.contains(&only.to_string()),
        "{why}"
    );
    assert_eq!(seen.load(Ordering::Relaxed), 2, "two rounds");
}
