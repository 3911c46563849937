//! The reactor against the real kernel: files, sockets, mail, sleep, and a drop with operations in
//! flight.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ashlar_reactor::{
    Event, Mailbox, Options, Port, Reactor, RecvFrame, SendBatch, What, cpu_time, listen,
    stream_socket,
};

fn reactor() -> Reactor {
    Reactor::new(&Options::default()).expect("io_uring is available")
}

fn next(reactor: &mut Reactor, port: &Port) -> Event {
    let start = Instant::now();
    loop {
        if let Some(event) = port.next() {
            return event;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "no event");
        let deadline = reactor.handle().now() + Duration::from_millis(100);
        reactor.turn(Some(deadline)).expect("turn");
    }
}

#[test]
fn many_operations_start_before_the_turn_ends() {
    let mut reactor = reactor();
    let handle = reactor.handle().clone();
    let port = handle.port();
    let temp = tempfile::tempfile().expect("temporary file");
    let mut seen = temp.try_clone().expect("another descriptor");
    let file = handle.adopt(temp.into());
    let begins = Instant::now();
    for key in 0..64 {
        let mut buffer = handle.buffers().get(4096).expect("buffer");
        buffer.fill(1);
        port.write(&file, key * 4096, buffer, false, key);
    }
    // The thread's turn has not ended.
    while seen.metadata().expect("metadata").len() < 32 * 4096 {
        assert!(begins.elapsed() < Duration::from_secs(10), "nothing began");
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..64 {
        let What::File(Ok(4096), Some(_)) = next(&mut reactor, &port).what else {
            panic!("write")
        };
    }
    let mut bytes = Vec::new();
    seen.read_to_end(&mut bytes).expect("read");
    assert!(bytes.len() == 64 * 4096 && bytes.iter().all(|&byte| byte == 1));
}

#[test]
fn a_drive_that_is_idle_is_given_two_operations_before_the_turn_ends() {
    let mut reactor = reactor();
    let handle = reactor.handle().clone();
    let port = handle.port();
    let temp = tempfile::tempfile().expect("temporary file");
    let seen = temp.try_clone().expect("another descriptor");
    let file = handle.adopt(temp.into());
    // Twice: what has ended leaves the drive idle again.
    for round in 0..2 {
        let begins = Instant::now();
        for key in 2 * round..2 * round + 2 {
            let buffer = handle.buffers().get(4096).expect("buffer");
            port.write(&file, key * 4096, buffer, false, key);
        }
        while seen.metadata().expect("metadata").len() < 2 * (round + 1) * 4096 {
            assert!(begins.elapsed() < Duration::from_secs(10), "nothing began");
            std::thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..2 {
            let What::File(Ok(4096), Some(_)) = next(&mut reactor, &port).what else {
                panic!("write")
            };
        }
    }
}

#[test]
fn a_turn_whose_deadline_has_passed_does_not_wait_and_brings_what_has_happened() {
    let mut reactor = reactor();
    let handle = reactor.handle().clone();
    let port = handle.port();
    let (ours, mut theirs) = UnixStream::pair().expect("sockets");
    let ours = handle.adopt(ours.into());
    port.readable(&ours, 7);
    for _ in 0..100 {
        reactor.turn(Some(handle.now())).expect("turn");
        assert!(port.next().is_none(), "nothing is there");
    }
    theirs.write_all(b"x").expect("sent");
    let start = Instant::now();
    let event = loop {
        assert!(start.elapsed() < Duration::from_secs(10), "no event");
        reactor.turn(Some(handle.now())).expect("turn");
        if let Some(event) = port.next() {
            break event;
        }
    };
    assert!(event.key == 7 && matches!(event.what, What::Readable(Ok(()))));
}

#[test]
fn a_file_is_written_read_synced_and_punched() {
    let mut reactor = reactor();
    let handle = reactor.handle().clone();
    let port = handle.port();
    let temp = tempfile::tempfile().expect("temporary file");
    temp.set_len(1 << 20).expect("resize");
    let file = handle.adopt(temp.into());
    let mut buffer = handle.buffers().get(8192).expect("buffer");
    buffer.fill(0xA5);
    port.write(&file, 4096, buffer, true, 1);
    let Event {
        key: 1,
        what: What::File(Ok(8192), Some(mut buffer)),
    } = next(&mut reactor, &port)
    else {
        panic!("write")
    };
    port.sync(&file, 2);
    assert!(matches!(
        next(&mut reactor, &port).what,
        What::File(Ok(0), None)
    ));
    buffer.fill(0);
    port.read(&file, 4096, buffer, 3);
    let What::File(Ok(8192), Some(buffer)) = next(&mut reactor, &port).what else {
        panic!("read")
    };
    assert!(buffer.iter().all(|&b| b == 0xA5));
    port.punch_hole(&file, 4096, 4096, 4);
    assert!(matches!(
        next(&mut reactor, &port).what,
        What::File(Ok(0), None)
    ));
    port.read(&file, 4096, buffer, 5);
    let What::File(Ok(_), Some(buffer)) = next(&mut reactor, &port).what else {
        panic!("read")
    };
    assert!(buffer[..4096].iter().all(|&b| b == 0) && buffer[4096..].iter().all(|&b| b == 0xA5));
}

#[test]
fn a_connection_carries_batches_and_fills_buffers_directly() {
    let mut reactor = reactor();
    let handle = reactor.handle().clone();
    let port = handle.port();
    let any = "127.0.0.1:0"
        .to_socket_addrs()
        .expect("address")
        .next()
        .expect("one");
    let (listener, bound) = listen(any).expect("listen");
    let listener = handle.adopt(listener);
    port.accept(&listener, 7);
    let client = handle.adopt(stream_socket(bound).expect("socket"));
    port.connect(&client, bound, 8);
    let mut server = None;
    let mut connected = false;
    while server.is_none() || !connected {
        match next(&mut reactor, &port).what {
            What::Accepted(fd) => server = Some(handle.adopt(fd.expect("accepted"))),
            What::Connected(result) => connected = result.map(|()| true).expect("connected"),
            _ => panic!("unexpected event"),
        }
    }
    let server = server.expect("accepted");
    let mut batch = SendBatch::new();
    batch.gather.head(|v| v.extend(b"head"));
    let mut payload = handle.buffers().get(4096).expect("buffer");
    payload.fill(9);
    let place = batch.gather.keep(payload);
    batch.gather.payload(place, 0..4096);
    batch.gather.head(|v| v.extend(b"tail"));
    port.send(&client, batch, 1);
    assert!(matches!(
        next(&mut reactor, &port).what,
        What::Sent(Ok(()), _)
    ));
    let mut frame = RecvFrame::new(handle.buffers().get(4096).expect("buffer"));
    frame.staging_limit = 4;
    port.recv(&server, frame, 2);
    let What::Received(Ok(4), mut frame, more) = next(&mut reactor, &port).what else {
        panic!("head")
    };
    assert!(more && &frame.staging[..4] == b"head");
    frame.direct = Some((handle.buffers().get(8192).expect("buffer"), 100..4196));
    port.recv(&server, frame, 3);
    let What::Received(Ok(4100), frame, _) = next(&mut reactor, &port).what else {
        panic!("rest")
    };
    assert_eq!(
        (frame.direct_part(4100), &frame.staging[..4]),
        (4096, &b"tail"[..])
    );
    let (direct, _) = frame.direct.as_ref().expect("direct");
    assert!(direct[100..4196].iter().all(|&b| b == 9));
    // A pending receive ends when the socket is shut down, and gives its frame back.
    port.recv(&server, frame, 4);
    server.shutdown();
    assert!(matches!(
        next(&mut reactor, &port).what,
        What::Received(Ok(0), _, _)
    ));
}

#[test]
fn an_idle_reactor_sleeps_and_mail_wakes_it() {
    let mut reactor = reactor();
    let mailbox = Mailbox::new(reactor.handle().waker());
    let sender = mailbox.clone();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        sender.post(42);
    });
    let (start, cpu) = (Instant::now(), cpu_time());
    let mut turns = 0;
    let got = loop {
        if let Some(got) = mailbox.take() {
            break got;
        }
        reactor.turn(None).expect("turn");
        turns += 1;
    };
    assert_eq!(got, 42);
    assert!(start.elapsed() >= Duration::from_millis(290));
    assert!(turns < 10, "{turns} turns while idle");
    // Other tests of this process run at the same time, so the bound on CPU time is a loose one.
    assert!(cpu_time() - cpu < Duration::from_secs(5));
    thread.join().expect("sender");
}

#[test]
fn dropping_a_reactor_with_operations_in_flight_waits_for_the_kernel() {
    let mut reactor = reactor();
    let handle = reactor.handle().clone();
    let any = "[::1]:0"
        .to_socket_addrs()
        .expect("address")
        .next()
        .expect("one");
    let (listener, bound) = listen(any).expect("listen");
    let mut peer = TcpStream::connect(bound).expect("connect");
    let port = handle.port();
    let listener = handle.adopt(listener);
    port.accept(&listener, 0);
    let What::Accepted(Ok(fd)) = next(&mut reactor, &port).what else {
        panic!("accept")
    };
    let socket = handle.adopt(fd);
    let pool = handle.buffers();
    port.recv(&socket, RecvFrame::new(pool.get(65536).expect("buffer")), 1);
    reactor.turn(Some(handle.now())).expect("turn");
    let start = Instant::now();
    drop((listener, socket, port, handle, reactor));
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(pool.outstanding_bytes(), 0, "the frame came back");
    let _ = peer.write(b"late");
    assert!(
        matches!(peer.read(&mut [0; 8]), Ok(0) | Err(_)),
        "the socket is closed"
    );
}

#[test]
fn a_port_in_use_is_named() {
    let any = "127.0.0.1:0"
        .to_socket_addrs()
        .expect("address")
        .next()
        .expect("one");
    let (_held, bound) = listen(any).expect("listen");
    let error = listen(bound).expect_err("in use").to_string();
    assert!(
        error.contains(&bound.to_string()) && error.contains("in use"),
        "{error}"
    );
}

#[test]
fn a_file_that_can_be_read_from_is_told_of_once_and_a_wait_can_be_ended() {
    let mut reactor = reactor();
    let handle = reactor.handle().clone();
    let (port, other) = (handle.port(), handle.port());
    let (mut here, there) = UnixStream::pair().expect("sockets");
    let there = handle.adopt(there.into());
    port.readable(&there, 7);
    let soon = handle.now() + Duration::from_millis(50);
    reactor.turn(Some(soon)).expect("turn");
    assert!(port.next().is_none(), "nothing was said yet");
    here.write_all(b"x").expect("said");
    let told = next(&mut reactor, &port);
    assert!(matches!((told.key, told.what), (7, What::Readable(Ok(())))));
    // What is there already is told of, too.
    port.readable(&there, 8);
    assert_eq!(next(&mut reactor, &port).key, 8);
    assert_eq!(rustix::io::read(&there, &mut [0; 8]), Ok(1));
    port.readable(&there, 9);
    port.readable(&there, 10);
    other.readable(&there, 9);
    reactor.turn(Some(handle.now())).expect("turn");
    port.cancel_readable(9);
    let ended = next(&mut reactor, &port);
    assert!(matches!(
        (ended.key, ended.what),
        (9, What::Readable(Err(_)))
    ));
    assert!(
        port.next().is_none() && other.next().is_none(),
        "theirs go on"
    );
    drop(here);
    assert!(matches!(
        next(&mut reactor, &other).what,
        What::Readable(Ok(()))
    ));
    assert_eq!(next(&mut reactor, &port).key, 10);
}
