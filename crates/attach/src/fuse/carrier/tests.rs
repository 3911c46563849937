//! A carrier with little memory, and a socket in the place of /dev/fuse.

use ashlar_block::{BlockSize, BufferPool, Description, Geometry, REGION_BYTES, Request};
use ashlar_reactor::{Options, Reactor};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use zerocopy::IntoBytes;

use super::*;
use crate::counters::Counters;
use crate::fuse::wire::{InHeader, TransferIn, opcode};

const READ_BYTES: usize = 16 << 10;

/// A device that answers when it is polled.
#[derive(Default)]
struct Prompt(Vec<Request>);

impl BlockDevice for Prompt {
    fn geometry(&self) -> Geometry {
        Geometry::plain(BlockSize::B4096, 1024)
    }

    fn submit(&mut self, request: Request) {
        self.0.push(request);
    }

    fn poll(&mut self, _now: Moment, done: &mut Vec<Completion>) {
        let answers = self.0.drain(..).map(|request| request.complete(Ok(())));
        done.extend(answers);
    }

    fn describe(&self) -> Description {
        Description::leaf("a device of a test".to_owned())
    }
}

fn read(unique: u64) -> Vec<u8> {
    let ask = TransferIn {
        offset: 0,
        size: READ_BYTES as u32,
        ..TransferIn::default()
    };
    let header = InHeader {
        len: (size_of::<InHeader>() + size_of::<TransferIn>()) as u32,
        opcode: opcode::READ,
        unique,
        ..InHeader::default()
    };
    [header.as_bytes(), ask.as_bytes()].concat()
}

#[test]
fn what_has_waited_for_memory_goes_on_when_the_last_answer_is_out() {
    let (kernel, fuse) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .expect("sockets");
    let reactor = Reactor::new(&Options::default()).expect("io_uring is available");
    let device = Box::new(Prompt::default());
    // One region for what is read, one for answers: all but three of them are taken.
    let exchange = Exchange::new(device.geometry(), 2 * REGION_BYTES, Counters::default());
    let carrier = Carrier::new(reactor.handle(), device, exchange, fuse);
    let mut carrier = carrier.expect("a carrier");
    let pool: &BufferPool = carrier.exchange.pool();
    let one = 2 * READ_BYTES;
    let taken: Vec<IoBuffer> = (3..REGION_BYTES / one)
        .filter_map(|_| pool.get(one))
        .collect();
    assert_eq!(taken.len(), REGION_BYTES / one - 3);
    let all = MESSAGES as u64;
    for unique in 1..=all {
        rustix::io::write(&kernel, &read(unique)).expect("sent");
    }
    carrier.readable = true;
    let mut answered = 0;
    while answered < all {
        let now = reactor.handle().now();
        carrier.poll(now);
        let mut bytes = vec![0; 2 * READ_BYTES];
        while rustix::io::read(&kernel, &mut bytes[..]).is_ok() {
            answered += 1;
        }
        let due = carrier.next_deadline();
        assert!(
            answered == all || due.is_some_and(|at| at <= now),
            "{answered} of {all} are answered, and nothing wakes the thread for the others"
        );
    }
}
