use ashlar_block::{ErrorKind, REGION_BYTES};

use super::*;

const KIB_128: usize = 128 << 10;
const GRANULES: u64 = 4096;

fn copy(buffers: BufferPool) -> Copy {
    Copy {
        has_third: false,
        ..Copy::idle(1, GRANULES, Position::new(0).expect("a position"), buffers)
    }
}

fn extent(first: u64, count: u32) -> Extent {
    Extent::new(first, count).expect("an extent")
}

/// So many granules, each of which holds its number and this.
fn data(extent: Extent, fill: u8) -> Vec<u8> {
    let granule = |granule: u64| vec![fill ^ granule as u8; GRANULE];
    extent.granules().flat_map(granule).collect()
}

/// Does what an engine does.
fn carry_out(command: &mut Command, content: &mut [u8]) {
    let request = &mut command.request;
    let first = request.range.start.0 as usize * GRANULE;
    let buffer = request.buffer.as_mut().expect("a buffer");
    let there = &mut content[first..first + request.range.count as usize * GRANULE];
    match request.op {
        Operation::Read => buffer.copy_from_slice(there),
        _ => there.copy_from_slice(buffer),
    }
}

/// Carries out all that goes without anything of the hosts coming to an end; how many commands were under way at once.
fn run(copy: &mut Copy, content: &mut [u8]) -> usize {
    let mut most = 0;
    loop {
        let mut commands: Vec<Command> = std::iter::from_fn(|| copy.next_command()).collect();
        if commands.is_empty() {
            return most;
        }
        most = most.max(commands.len());
        commands
            .iter_mut()
            .for_each(|command| carry_out(command, content));
        for Command { request, .. } in commands {
            copy.completed(Completion {
                tag: request.tag,
                buffer: request.buffer,
                result: Ok(()),
            });
        }
    }
}

/// A core's memory of which hosts have half: writes of 128 KiB that wait for the copy, in every region.
fn used_up() -> (BufferPool, Vec<IoBuffer>) {
    let pool = BufferPool::new(2 * REGION_BYTES);
    let all: Option<Vec<IoBuffer>> = (0..2 * REGION_BYTES / KIB_128)
        .map(|_| pool.get(KIB_128))
        .collect();
    let hosts = all.expect("room").into_iter().step_by(2).collect();
    assert!(pool.get(2 * KIB_128).is_none(), "no region is idle");
    assert!(pool.get(KIB_128).is_some());
    (pool, hosts)
}

#[test]
fn a_large_piece_in_front_goes_on_when_hosts_writes_are_in_every_region() {
    let (pool, _hosts) = used_up();
    let mut copy = copy(pool);
    let mut content = vec![0; GRANULES as usize * GRANULE];
    // A piece of a resync, and the writes of the hosts behind it; one command of the largest size, and several of them.
    let parts = [
        extent(0, 64),
        extent(64, 32),
        extent(96, 32),
        extent(128, PIECE),
        extent(1000, 3 * PIECE + 7),
        extent(3000, 1),
    ];
    for (token, part) in (1..).zip(parts) {
        let content = Content::Data(data(part, 0x5a).into());
        copy.apply(Token(token), part, &content, None);
    }
    run(&mut copy, &mut content);
    let applied: Vec<Event> = std::iter::from_fn(|| copy.next_event()).collect();
    assert_eq!(applied.len(), parts.len(), "{applied:?}");
    assert!(copy.is_drained());
    for part in parts {
        let first = part.first() as usize * GRANULE;
        let written = data(part, 0x5a);
        assert!(content[first..first + written.len()] == written, "{part}");
    }
}

#[test]
fn what_was_read_takes_none_of_the_copys_own_memory_however_long_it_is_kept() {
    let (pool, _hosts) = used_up();
    let mut copy = copy(pool);
    let mut content = data(extent(0, GRANULES as u32), 0x33);
    // To peers that are slow to take it.
    let mut kept = Vec::new();
    for token in 1..=10 {
        let part = extent(token * 300, 64);
        copy.read(Token(token), part);
        run(&mut copy, &mut content);
        let event = copy.next_event();
        let Some(Event::Read {
            result: Ok(bytes), ..
        }) = event
        else {
            panic!("{token}: {event:?}");
        };
        assert!(bytes == data(part, 0x33), "{part}");
        kept.push(bytes);
    }
    // It is no buffer of the core that a host's read could be answered with.
    let bytes = kept.pop().expect("one");
    assert!(copy.take_buffer(bytes).is_err());
}

#[test]
fn two_commands_of_any_size_go_on_without_the_cores_memory() {
    let (pool, mut hosts) = used_up();
    let rest: Vec<IoBuffer> = std::iter::from_fn(|| pool.get(4096)).collect();
    hosts.extend(rest);
    let mut copy = copy(pool);
    let mut content = data(extent(0, GRANULES as u32), 0x77);
    for token in 1..=20 {
        copy.read(Token(token), extent(token, 1 + 13 * token as u32));
    }
    assert_eq!(run(&mut copy, &mut content), 2);
    assert_eq!(std::iter::from_fn(|| copy.next_event()).count(), 20);
    drop(hosts);
    for token in 1..=20 {
        copy.read(Token(token), extent(token, 1));
    }
    assert_eq!(run(&mut copy, &mut content), 20, "hosts have ended");
}

/// What a pool answers of a copy that was stopped says nothing of what the next one has asked for.
#[test]
fn a_late_answer_of_a_copy_that_was_stopped_is_not_taken_for_anothers() {
    let count = NameCount::default();
    let next = || Copy {
        names: Names::new(1, count.clone()),
        ..copy(BufferPool::new(2 * REGION_BYTES))
    };
    let write = |copy: &mut Copy, fill| {
        let part = extent(0, 1);
        let content = Content::Data(data(part, fill).into());
        copy.apply(Token(1), part, &content, None);
        copy.order(Token(2), Entry::default());
        copy.next_command().expect("a command").request
    };
    let mut stopped = next();
    let late = write(&mut stopped, 1);
    let order = *stopped.orders.keys().next().expect("an order");
    drop(stopped);
    let mut copy = next();
    let own = write(&mut copy, 2);
    copy.completed(late.complete(Ok(())));
    copy.managed(order, Ok(Managed::Done));
    let early = copy.next_event();
    assert!(early.is_none(), "nothing of its own is durable: {early:?}");
    copy.completed(own.complete(Ok(())));
    assert!(matches!(copy.next_event(), Some(Event::Applied { .. })));
}

/// The engine can read nothing.
fn lose_all(copy: &mut Copy) {
    while let Some(Command { request, .. }) = copy.next_command() {
        copy.completed(Completion {
            tag: request.tag,
            buffer: request.buffer,
            result: Err(IoError::new(ErrorKind::Corrupt, "lost")),
        });
    }
}

/// Digests are of the map's checksums: the granule that is read to have them in memory may itself be lost.
#[test]
fn a_lost_granule_does_not_end_a_proof_of_its_leaf() {
    let leaf = extent(0, LEAF_GRANULES);
    for (found, is_told) in [
        (Found::Sums(vec![Some(7); LEAF_GRANULES as usize]), true),
        (Found::Elsewhere, false),
    ] {
        let mut copy = copy(BufferPool::new(2 * REGION_BYTES));
        copy.prove(Token(1), leaf);
        let proof = copy.next_proof().expect("a leaf");
        copy.found(proof, Found::Elsewhere);
        lose_all(&mut copy);
        let proof = copy.next_proof().expect("the same leaf");
        copy.found(proof, found);
        lose_all(&mut copy);
        let event = copy.next_event();
        let Some(Event::Digested { result, .. }) = event else {
            panic!("{event:?}");
        };
        assert_eq!(result.is_ok(), is_told);
    }
}
