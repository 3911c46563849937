use ashlar_block::{BlockSize, ErrorKind, IoError};
use zerocopy::FromBytes;

use super::super::wire::{AllocateIn, TransferIn, allocate, opcode};
use super::*;

const BLOCK: u64 = 4096;

fn exchange(pool_bytes: usize) -> Exchange {
    let geometry = Geometry {
        volatile_cache: true,
        ..Geometry::plain(BlockSize::B4096, 1 << 20)
    };
    Exchange::new(geometry, pool_bytes, Counters::default())
}

/// Gives the exchange a message as the server does; whether the buffer came back.
fn ask(exchange: &mut Exchange, unique: u64, opcode: u32, body: &[&[u8]]) -> bool {
    let body = body.concat();
    let length = size_of::<InHeader>() + body.len();
    let header = InHeader {
        len: length as u32,
        opcode,
        unique,
        ..InHeader::default()
    };
    let mut buffer = exchange.message_buffer().expect("memory");
    buffer.truncate(length);
    buffer[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
    buffer[size_of::<InHeader>()..].copy_from_slice(&body);
    exchange.received(buffer).is_some()
}

fn transfer(offset: u64, size: usize) -> TransferIn {
    TransferIn {
        offset,
        size: size as u32,
        ..TransferIn::default()
    }
}

/// The only reply: its name, its errno and its body.
fn reply(exchange: &mut Exchange) -> (u64, i32, Vec<u8>) {
    let mut replies: Vec<IoBuffer> = exchange.replies(usize::MAX).collect();
    assert_eq!(replies.len(), 1, "{replies:?}");
    let reply = replies.remove(0);
    let (header, body) = OutHeader::read_from_prefix(&reply).expect("a header");
    assert_eq!(header.len as usize, reply.len());
    (header.unique, -header.error, body.to_vec())
}

fn request(exchange: &mut Exchange) -> Request {
    let mut requests: Vec<Request> = exchange.requests().collect();
    assert_eq!(requests.len(), 1, "{requests:?}");
    requests.remove(0)
}

#[test]
fn a_write_is_answered_when_the_device_has_it() {
    for size in [4096, COPIED, COPIED + 4096, MAX_TRANSFER] {
        let mut exchange = exchange(64 << 20);
        let data: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        let came_back = ask(
            &mut exchange,
            9,
            opcode::WRITE,
            &[transfer(8192, size).as_bytes(), &data],
        );
        assert_eq!(came_back, size <= COPIED, "large data is not copied");
        let request = request(&mut exchange);
        assert_eq!(request.op, Operation::Write(Durability::Cached));
        assert_eq!(
            request.range,
            BlockRange::new(2, (size as u64 / BLOCK) as u32)
        );
        assert_eq!(request.buffer.as_deref(), Some(&data[..]));
        assert_eq!(
            exchange.replies(usize::MAX).len(),
            0,
            "nothing is promised yet"
        );
        exchange.completed(request.complete(Ok(())));
        let (unique, error, body) = reply(&mut exchange);
        assert_eq!((unique, error), (9, 0));
        assert_eq!(body[..4], (size as u32).to_ne_bytes());
    }
}

#[test]
fn a_read_is_answered_with_what_the_device_gave() {
    let mut exchange = exchange(64 << 20);
    ask(
        &mut exchange,
        3,
        opcode::READ,
        &[transfer(4096, 12288).as_bytes()],
    );
    let mut request = request(&mut exchange);
    assert_eq!(request.range, BlockRange::new(1, 3));
    let buffer = request.buffer.as_mut().expect("a buffer");
    assert_eq!(buffer.as_ptr() as usize % PAGE, 0, "whole pages are copied");
    buffer.fill(7);
    exchange.completed(request.complete(Ok(())));
    assert_eq!(reply(&mut exchange), (3, 0, vec![7; 12288]));
}

#[test]
fn reads_wait_for_memory_and_are_not_failed() {
    let mut exchange = exchange(8 << 20);
    let mut waiting = 0;
    for unique in 0..32 {
        let Some(mut message) = exchange.message_buffer() else {
            break;
        };
        let ask = transfer(0, MAX_TRANSFER);
        let header = InHeader {
            len: 80,
            opcode: opcode::READ,
            unique,
            ..InHeader::default()
        };
        message.truncate(80);
        message.copy_from_slice(&[header.as_bytes(), ask.as_bytes()].concat());
        drop(exchange.received(message));
        waiting += 1;
    }
    assert!(waiting > 0 && exchange.replies(usize::MAX).len() == 0);
    let mut answered = 0;
    while answered < waiting {
        let requests: Vec<Request> = exchange.requests().collect();
        assert!(!requests.is_empty(), "{answered} of {waiting}");
        for request in requests {
            exchange.completed(request.complete(Ok(())));
        }
        answered += exchange.replies(usize::MAX).len();
        exchange.resume();
    }
    assert_eq!(exchange.requests().len(), 0);
}

#[test]
fn a_large_hole_is_zeroed_in_parts_and_answered_once() {
    let mut exchange = exchange(64 << 20);
    let blocks = u64::from(exchange.geometry.max_blocks) * 40 + 3;
    let hole = AllocateIn {
        offset: BLOCK,
        length: blocks * BLOCK,
        mode: allocate::PUNCH_HOLE | allocate::KEEP_SIZE,
        ..AllocateIn::default()
    };
    ask(&mut exchange, 5, opcode::FALLOCATE, &[hole.as_bytes()]);
    let mut next = 1;
    loop {
        let requests: Vec<Request> = exchange.requests().collect();
        assert!(requests.len() <= ZEROES_AT_ONCE as usize);
        for request in requests {
            let zeroes = Operation::WriteZeroes {
                durability: Durability::Cached,
                deallocate: true,
            };
            assert_eq!((request.op, request.range.start.0), (zeroes, next));
            next += u64::from(request.range.count);
            assert_eq!(exchange.replies(usize::MAX).len(), 0);
            exchange.completed(request.complete(Ok(())));
        }
        if next == 1 + blocks {
            break;
        }
    }
    assert_eq!(reply(&mut exchange), (5, 0, vec![]));
}

#[test]
fn an_error_of_a_part_is_the_answer() {
    let mut exchange = exchange(64 << 20);
    let hole = AllocateIn {
        length: 64 << 20,
        mode: allocate::ZERO_RANGE,
        ..AllocateIn::default()
    };
    ask(&mut exchange, 5, opcode::FALLOCATE, &[hole.as_bytes()]);
    for (at, request) in exchange
        .requests()
        .collect::<Vec<_>>()
        .into_iter()
        .enumerate()
    {
        let result = match at {
            2 => Err(IoError::new(ErrorKind::NoSpace, "full")),
            _ => Ok(()),
        };
        exchange.completed(request.complete(result));
    }
    let rest: Vec<Request> = exchange.requests().collect();
    for request in rest {
        exchange.completed(request.complete(Ok(())));
    }
    assert_eq!(reply(&mut exchange), (5, 28, vec![]));
}

#[test]
fn what_is_not_whole_blocks_inside_the_device_is_refused() {
    let end = (1u64 << 20) * BLOCK;
    for (offset, size) in [
        (1, 4096),
        (0, 100),
        (end, 4096),
        (end - 4096, 8192),
        (u64::MAX - 4095, 4096),
        (0, 0),
    ] {
        let mut exchange = exchange(64 << 20);
        ask(
            &mut exchange,
            1,
            opcode::READ,
            &[transfer(offset, size).as_bytes()],
        );
        assert_eq!(reply(&mut exchange), (1, EINVAL, vec![]), "{offset}+{size}");
        let hole = AllocateIn {
            offset,
            length: size as u64,
            mode: allocate::PUNCH_HOLE,
            ..AllocateIn::default()
        };
        ask(&mut exchange, 2, opcode::FALLOCATE, &[hole.as_bytes()]);
        assert_eq!(reply(&mut exchange), (2, EINVAL, vec![]));
        assert_eq!(exchange.requests().len(), 0);
    }
}

#[test]
fn a_kernel_that_is_too_old_is_refused_by_its_version() {
    let mut exchange = exchange(64 << 20);
    let init = |minor| InitIn {
        major: 7,
        minor,
        flags: u32::MAX,
        flags2: u32::MAX,
        ..InitIn::default()
    };
    ask(&mut exchange, 1, opcode::INIT, &[init(40).as_bytes()]);
    let (_, error, body) = reply(&mut exchange);
    let out = InitOut::read_from_bytes(&body).expect("whole");
    assert_eq!((error, out.max_write as usize), (0, MAX_TRANSFER));
    assert_eq!(usize::from(out.max_pages) * PAGE, MAX_TRANSFER);
    assert!(exchange.refusal().is_none());
    ask(&mut exchange, 2, opcode::INIT, &[init(19).as_bytes()]);
    assert_eq!(reply(&mut exchange).1, EIO);
    assert!(exchange.refusal().is_some_and(|why| why.contains("7.19")));
}
