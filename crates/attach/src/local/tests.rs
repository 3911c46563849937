//! A local session on a reactor, and a socket in the place of /dev/fuse: it keeps messages apart, too.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ashlar_block::{
    BlockDevice, BlockSize, Completion, Description, Geometry, IoError, Moment, Operation, Request,
};
use ashlar_reactor::{Handle, Opener, Options, Reactor};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use zerocopy::{FromBytes, IntoBytes};

use super::{LocalSession, Over, Session};
use crate::fuse::carrier::MESSAGES;
use crate::fuse::wire::{InHeader, NOTIFY_RESEND, OutHeader, TransferIn, opcode};

/// What a device has been given, and whether it answers.
#[derive(Clone, Default)]
struct Disk(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    requests: VecDeque<Request>,
    holds_back: bool,
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        Geometry::plain(BlockSize::B4096, 1024)
    }

    fn submit(&mut self, request: Request) {
        self.0.borrow_mut().requests.push_back(request);
    }

    fn poll(&mut self, _now: Moment, done: &mut Vec<Completion>) {
        let mut state = self.0.borrow_mut();
        if state.holds_back {
            return;
        }
        for mut request in std::mem::take(&mut state.requests) {
            if let (Operation::Read, Some(buffer)) = (request.op, &mut request.buffer) {
                buffer.fill(request.range.start.0 as u8);
            }
            done.push(request.complete(Ok(())));
        }
    }

    fn describe(&self) -> Description {
        Description::leaf("a disk of a test".to_owned())
    }
}

thread_local! {
    static DISK: RefCell<Disk> = RefCell::default();
}

struct Here;

impl Opener for Here {
    fn geometry(&self) -> Geometry {
        DISK.with_borrow(Disk::geometry)
    }

    fn open(&self, _reactor: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
        Ok(Box::new(DISK.with_borrow(Clone::clone)))
    }

    fn describe(&self) -> Description {
        DISK.with_borrow(BlockDevice::describe)
    }
}

struct Rig {
    local: LocalSession,
    reactor: Reactor,
    kernel: Option<OwnedFd>,
    /// Another descriptor of the local session's end.
    fuse: OwnedFd,
    session: Arc<Session>,
    guardian: UnixStream,
    disk: Disk,
}

impl Rig {
    fn new(takes_over: bool) -> Self {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (kernel, fuse) =
            socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).expect("sockets");
        let second = fuse.try_clone().expect("a descriptor");
        let (guardian, peer) = UnixStream::pair().expect("sockets");
        let session = Arc::new(Session::new(peer));
        let reactor = Reactor::new(&Options::default()).expect("io_uring is available");
        let disk = Disk::default();
        DISK.set(disk.clone());
        let handle = reactor.handle();
        let local = LocalSession::new(handle, &Here, fuse, takes_over, session.clone());
        Self {
            local: local.expect("a local session"),
            reactor,
            kernel: Some(kernel),
            fuse: second,
            session,
            guardian,
            disk,
        }
    }

    /// Turns as a core does.
    fn turn(&mut self) {
        let now = self.reactor.handle().now();
        self.local.poll(now);
        let until = now + Duration::from_millis(10);
        let due = self.local.next_deadline().map_or(until, |at| at.min(until));
        self.reactor.turn(Some(due)).expect("turn");
    }

    fn ask(&self, unique: u64, opcode: u32, body: &[u8]) {
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode,
            unique,
            ..InHeader::default()
        };
        let message = [header.as_bytes(), body].concat();
        let kernel = self.kernel.as_ref().expect("open");
        rustix::io::write(kernel, &message).expect("sent");
    }

    fn read(&self, unique: u64, block: u64) {
        let ask = TransferIn {
            offset: block * 4096,
            size: 4096,
            ..TransferIn::default()
        };
        self.ask(unique, opcode::READ, ask.as_bytes());
    }

    /// The next reply, if one comes soon.
    fn reply(&mut self) -> Option<(OutHeader, Vec<u8>)> {
        let start = Instant::now();
        let mut bytes = vec![0; 8192];
        while start.elapsed() < Duration::from_secs(1) {
            self.turn();
            let kernel = self.kernel.as_ref().expect("open");
            rustix::io::ioctl_fionbio(kernel, true).expect("set");
            match rustix::io::read(kernel, &mut bytes) {
                Ok(length) => {
                    let (header, rest) =
                        OutHeader::read_from_prefix(&bytes[..length]).expect("a reply");
                    return Some((header, rest.to_vec()));
                }
                Err(Errno::AGAIN) => {}
                Err(error) => panic!("{error}"),
            }
        }
        None
    }

    fn unanswered(&self) -> usize {
        self.disk.0.borrow().requests.len()
    }
}

#[test]
fn messages_are_answered_and_the_core_sleeps_in_between() {
    let mut rig = Rig::new(false);
    for unique in 1..=200 {
        rig.read(unique, unique % 7);
        let (header, data) = rig.reply().expect("an answer");
        assert_eq!((header.unique, header.error), (unique, 0));
        assert_eq!(data, vec![(unique % 7) as u8; 4096]);
    }
    assert_eq!(rig.local.take_handled(), 200);
    assert_eq!(rig.local.next_deadline(), None, "nothing to do");
    assert_eq!(rig.session.counters().tallies().read.answered, 200);
}

#[test]
fn many_messages_at_once_are_all_answered_in_turns() {
    let mut rig = Rig::new(false);
    rig.turn();
    // More than one turn reads.
    for unique in 1..=150 {
        rig.ask(unique, opcode::FSYNC, &[0; 16]);
    }
    rig.turn();
    rig.local.poll(rig.reactor.handle().now());
    assert!(rig.local.take_handled() < 150, "others have their turn");
    for unique in 1..=150 {
        assert_eq!(rig.reply().expect("an answer").0.unique, unique);
    }
}

#[test]
fn what_is_read_goes_to_the_volume_before_all_is_read_and_answers_go_out_in_parts() {
    let mut rig = Rig::new(false);
    rig.disk.0.borrow_mut().holds_back = true;
    rig.turn();
    // No more than the socket has room for answers to.
    let parts = 3;
    let all = (parts * MESSAGES) as u64;
    for unique in 1..=all {
        rig.read(unique, 0);
    }
    rig.turn();
    for part in 1..=parts {
        rig.local.poll(rig.reactor.handle().now());
        assert_eq!(rig.unanswered(), part * MESSAGES);
    }
    rig.disk.0.borrow_mut().holds_back = false;
    // It has nothing to read any more that could keep its core awake.
    rig.session.end(Over::ForNow("for a test".into()));
    let start = rig.reactor.handle().now();
    rig.local.poll(start);
    let due = rig.local.next_deadline();
    assert_eq!(due, Some(start), "the core must not sleep on answers");
    for unique in 1..=all {
        assert_eq!(rig.reply().expect("an answer").0.unique, unique);
    }
    rig.turn();
    assert!(rig.session.over().is_some());
}

#[test]
fn a_turn_that_ends_with_a_large_write_is_followed_by_another() {
    let mut rig = Rig::new(false);
    rig.turn();
    let most = MESSAGES as u64;
    for unique in 1..most {
        rig.ask(unique, opcode::FSYNC, &[0; 16]);
    }
    // Too large to be copied: it keeps the buffer that it was read into.
    let size = 68 << 10;
    let head = TransferIn {
        size,
        ..TransferIn::default()
    };
    let body = [head.as_bytes(), &vec![1; size as usize]].concat();
    rig.ask(most, opcode::WRITE, &body);
    rig.ask(most + 1, opcode::FSYNC, &[0; 16]);
    rig.turn();
    rig.local.poll(rig.reactor.handle().now());
    assert_eq!(rig.local.take_handled() as u64, most, "one is left");
    assert_eq!(rig.unanswered(), 0, "so no completion will wake the core");
    assert!(rig.local.next_deadline().is_some());
    rig.local.poll(rig.reactor.handle().now());
    assert_eq!(rig.local.take_handled(), 1);
}

#[test]
fn one_that_takes_over_asks_before_it_reads() {
    let mut rig = Rig::new(true);
    rig.read(5, 0);
    let (header, _) = rig.reply().expect("a notice");
    assert_eq!((header.unique, header.error), (0, NOTIFY_RESEND));
    assert_eq!(rig.reply().expect("an answer").0.unique, 5);
}

#[test]
fn who_is_sent_away_answers_what_it_has_read_and_reads_no_more() {
    let mut rig = Rig::new(false);
    rig.disk.0.borrow_mut().holds_back = true;
    rig.read(1, 0);
    while rig.unanswered() == 0 {
        rig.turn();
    }
    let why = Over::ForNow("for a test".into());
    rig.session.end(why.clone());
    rig.session.end(Over::Unmounted);
    rig.read(2, 0);
    for _ in 0..20 {
        rig.turn();
    }
    assert_eq!(rig.session.over(), None, "the volume still has a request");
    assert_eq!(rig.unanswered(), 1);
    rig.disk.0.borrow_mut().holds_back = false;
    assert_eq!(rig.reply().expect("an answer").0.unique, 1);
    rig.turn();
    assert_eq!(rig.session.over(), Some(why), "the first reason counts");
    assert!(rig.session.has_ended_within(Duration::ZERO));
    assert!(rig.reply().is_none(), "that is for the next one");
    // The guardian's thread is woken, and can say why.
    drop(rig.guardian);
}

#[test]
fn an_end_of_the_kernels_connection_ends_the_local_session() {
    let mut rig = Rig::new(false);
    rig.turn();
    drop(rig.kernel.take());
    let start = Instant::now();
    while rig.session.over().is_none() {
        assert!(start.elapsed() < Duration::from_secs(5));
        rig.turn();
    }
    assert_eq!(rig.local.next_deadline(), None);
}

#[test]
fn a_message_that_is_taken_back_does_not_keep_the_thread() {
    let mut rig = Rig::new(false);
    // A local session that waits inside a read is cut off, so that the test ends.
    let kernel = rig.kernel.as_ref().expect("open");
    let kernel = kernel.try_clone().expect("a descriptor");
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let slept = is_over.recv_timeout(Duration::from_secs(10)).is_err();
        if slept {
            rustix::net::shutdown(&kernel, rustix::net::Shutdown::Both).expect("cut off");
        }
        slept
    });
    rig.disk.0.borrow_mut().holds_back = true;
    rig.read(1, 0);
    while rig.unanswered() == 0 && rig.session.over().is_none() {
        rig.turn();
    }
    // The local session is told of a message that is gone when it looks.
    rig.turn();
    rig.read(2, 0);
    rig.reactor.turn(None).expect("turn");
    let mut taken = [0; 8192];
    rustix::io::read(&rig.fuse, &mut taken).expect("the message");
    rig.local.poll(rig.reactor.handle().now());
    rig.disk.0.borrow_mut().holds_back = false;
    assert_eq!(rig.reply().expect("an answer").0.unique, 1);
    over.send(()).expect("it listens");
    assert!(
        !watchdog.join().expect("it ends"),
        "it waited inside a read"
    );
}
