//! Hosts' commands on their way through a replica.

use std::sync::Arc;

use ashlar_block::{Completion, ErrorKind, IoBuffer, IoError, Operation, Request};
use ashlar_replica::{CommandId, Content, Extent, Label, Origin, Outcome, Registrant, Size};
use bytes::Bytes;
use slab::Slab;

/// Most granules of a zeroing that the protocol carries at once: 32 MiB.
const MOST_ZEROES: u32 = 8192;
/// Most of a command's parts that are asked for at once: one that discards a TiB must not keep the core.
const MOST_PARTS: usize = 2;

/// A write's data, which the protocol and the connections to peers hold as long as they need it.
struct Held(Arc<IoBuffer>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

enum Data {
    None,
    /// A read's, to be filled.
    Own(IoBuffer),
    /// A read's, that the engine fills.
    Lent,
    /// A write's.
    Held(Arc<IoBuffer>),
}

/// Whose a command is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) origin: Origin,
    pub(super) registrant: Registrant,
    /// How old it may be, as far as this node knew when it came.
    pub(super) label: Option<Label>,
    /// It came by NVMe, from a host that may have lost its rights since it was let in.
    pub(super) is_judged: bool,
    /// It is not sent on to the owner.
    pub(super) here_only: bool,
}

struct Command {
    tag: u64,
    sender: Sender,
    data: Data,
    /// What is still to be zeroed or read, and was not asked for.
    rest: Option<Extent>,
    /// Where the register is: what lies on both sides of it is asked for in parts.
    register: u64,
    /// Bytes that were read.
    has_read: usize,
    /// Parts without an answer that were asked for.
    left: usize,
    error: Option<IoError>,
}

/// What the protocol is asked for a request.
pub(super) enum Asked {
    Read(Extent),
    Write(Extent, Content),
    /// Everything that was answered is durable: there is nothing to ask.
    Nothing,
}

/// What becomes of a command when a part of it has ended.
pub(super) enum Progress {
    /// It waits for other parts.
    Waits,
    /// The next part is to be asked for.
    Next(Sender, Asked),
    Done(Completion),
}

impl Command {
    /// The next part that is to be asked for.
    fn next(&mut self) -> Option<Asked> {
        match self.data {
            Data::Own(_) | Data::Lent => self.rest.take().map(Asked::Read),
            Data::None | Data::Held(_) => next_zeroes(&mut self.rest, self.register),
        }
    }

    /// A read that had fewer bytes than were asked for has failed.
    fn check(&mut self) {
        if let Data::Own(buffer) = &self.data
            && self.error.is_none()
            && self.has_read != buffer.len()
        {
            let why = "what was read is shorter than what was asked";
            self.error = Some(IoError::new(ErrorKind::Internal, why));
        }
    }

    /// The next part of what is read.
    fn put(&mut self, bytes: &[u8]) {
        let end = self.has_read + bytes.len();
        let room = match &mut self.data {
            Data::Own(buffer) => buffer.get_mut(self.has_read..end),
            Data::None | Data::Held(_) | Data::Lent => None,
        };
        self.has_read = end;
        match room {
            Some(room) => room.copy_from_slice(bytes),
            None => {
                let why = "what was read does not fit what was asked";
                self.error = Some(IoError::new(ErrorKind::Internal, why));
            }
        }
    }
}

/// Commands without an answer.
#[derive(Default)]
pub(super) struct Commands(Slab<Command>);

impl Commands {
    /// Takes a request in: its parts, each to be asked for with the name given.
    ///
    /// # Errors
    /// The request's completion, for one that makes no sense.
    pub(super) fn take(
        &mut self,
        request: Request,
        sender: Sender,
        size: Size,
    ) -> Result<(CommandId, Vec<Asked>), Box<Completion>> {
        let register = size.register;
        let (tag, op, range) = (request.tag, request.op, request.range);
        let extent = Extent::new(range.start.0, range.count);
        let mut rest = None;
        let (data, asked) = match (op, extent, request.buffer) {
            (Operation::Flush, _, _) => (Data::None, vec![Asked::Nothing]),
            (Operation::Read, Some(extent), Some(buffer)) => {
                let (first, behind) = sides(extent, register);
                rest = behind;
                (Data::Own(buffer), vec![Asked::Read(first)])
            }
            (Operation::Write(_), Some(extent), Some(buffer)) => {
                let buffer = Arc::new(buffer);
                let bytes = Bytes::from_owner(Held(buffer.clone()));
                let (first, behind) = sides(extent, register);
                (Data::Held(buffer), writes(first, behind, bytes))
            }
            (Operation::WriteZeroes { .. } | Operation::Deallocate, Some(extent), _) => {
                rest = Some(extent);
                let pieces = (0..MOST_PARTS).map_while(|_| next_zeroes(&mut rest, register));
                (Data::None, pieces.collect())
            }
            (_, _, buffer) => {
                let error = IoError::new(ErrorKind::InvalidRequest, "an empty range");
                return Err(Box::new(Completion {
                    tag,
                    buffer,
                    result: Err(error),
                }));
            }
        };
        let command = Command {
            tag,
            sender,
            data,
            rest,
            register,
            has_read: 0,
            left: asked.len(),
            error: None,
        };
        Ok((CommandId(self.0.insert(command) as u64), asked))
    }

    /// A part has ended.
    pub(super) fn answered(
        &mut self,
        command: CommandId,
        outcome: Outcome,
        fresh: impl Fn(usize) -> Option<IoBuffer>,
    ) -> Progress {
        let key = command.0 as usize;
        let Some(known) = self.0.get_mut(key) else {
            return Progress::Waits;
        };
        // The engine may have had no memory to give the buffer back.
        if let (Outcome::Read(bytes), Data::Lent) = (&outcome, &known.data)
            && let Some(buffer) = fresh(bytes.len())
        {
            known.data = Data::Own(buffer);
        }
        match (outcome, &mut known.data) {
            (Outcome::Read(bytes), Data::Own(_)) => known.put(&bytes),
            (Outcome::Written, Data::None | Data::Held(_)) => {}
            (Outcome::Read(_), Data::Lent) => {
                let why = "no memory to answer a read";
                known.error = Some(IoError::new(ErrorKind::Exhausted, why));
            }
            (Outcome::Failed, Data::Own(_) | Data::Lent) => {
                let why = "the only copy in sync cannot read it";
                known.error = Some(IoError::new(ErrorKind::Media, why));
            }
            (outcome, _) => known.error = Some(error_of(&outcome)),
        }
        self.part_ended(key, fresh)
    }

    /// A read has ended with this buffer, which takes the place of the host's.
    pub(super) fn filled(&mut self, command: CommandId, buffer: IoBuffer) -> Progress {
        let key = command.0 as usize;
        let Some(known) = self.0.get_mut(key) else {
            return Progress::Waits;
        };
        match &mut known.data {
            Data::Own(own) if own.len() == buffer.len() => {
                known.has_read = buffer.len();
                *own = buffer;
            }
            Data::Lent => {
                known.has_read = buffer.len();
                known.data = Data::Own(buffer);
            }
            _ => known.put(&buffer),
        }
        self.part_ended(key, |_| None)
    }

    fn part_ended(
        &mut self,
        key: usize,
        fresh: impl FnOnce(usize) -> Option<IoBuffer>,
    ) -> Progress {
        let known = &mut self.0[key];
        if known.error.is_none()
            && let Some(next) = known.next()
        {
            return Progress::Next(known.sender, next);
        }
        known.left -= 1;
        if known.left > 0 {
            return Progress::Waits;
        }
        let mut command = self.0.remove(key);
        command.check();
        let buffer = match command.data {
            // A read whose buffer the engine has yet has failed.
            Data::None | Data::Lent => None,
            Data::Own(buffer) => Some(buffer),
            // A peer that lags may hold it yet.
            Data::Held(buffer) => match Arc::try_unwrap(buffer) {
                Ok(buffer) => Some(buffer),
                Err(buffer) => fresh(buffer.len()),
            },
        };
        Progress::Done(Completion {
            tag: command.tag,
            buffer,
            result: command.error.map_or(Ok(()), Err),
        })
    }

    /// The buffer of a read of one part, so that the engine fills it.
    pub(super) fn lend(&mut self, command: CommandId) -> Option<IoBuffer> {
        let known = self.0.get_mut(command.0 as usize)?;
        let is_whole = known.rest.is_none() && known.has_read == 0;
        match std::mem::replace(&mut known.data, Data::Lent) {
            Data::Own(buffer) if is_whole => Some(buffer),
            other => {
                known.data = other;
                None
            }
        }
    }

    /// A buffer that was lent is back, and nothing that counts was read. Whose the command is, if it has no answer yet.
    pub(super) fn give_back(
        &mut self,
        command: CommandId,
        buffer: Option<IoBuffer>,
    ) -> Option<Sender> {
        let known = self.0.get_mut(command.0 as usize)?;
        if let (Data::Lent, Some(buffer)) = (&known.data, buffer) {
            known.data = Data::Own(buffer);
        }
        Some(known.sender)
    }

    /// Ends all: the copy has stopped. One answer ends each, whatever its parts.
    pub(super) fn end(&mut self) -> Vec<CommandId> {
        for (_, command) in &mut self.0 {
            (command.left, command.rest) = (1, None);
        }
        self.0
            .iter()
            .map(|(key, _)| CommandId(key as u64))
            .collect()
    }
}

/// Takes the next part off what is to be zeroed.
fn next_zeroes(rest: &mut Option<Extent>, register: u64) -> Option<Asked> {
    let whole = rest.take()?;
    let most = match register.checked_sub(whole.first()) {
        None | Some(0) => MOST_ZEROES,
        Some(before) => u32::try_from(before).map_or(MOST_ZEROES, |most| most.min(MOST_ZEROES)),
    };
    let (piece, behind) = whole.split(most);
    *rest = behind;
    Some(Asked::Write(piece, Content::Zeroes))
}

/// What lies before the register, and behind it.
fn sides(extent: Extent, register: u64) -> (Extent, Option<Extent>) {
    match extent.first() < register && register < extent.end() {
        // Less than the extent has.
        true => extent.split((register - extent.first()) as u32),
        false => (extent, None),
    }
}

/// A write of what lies on one side of the register, or on both.
fn writes(first: Extent, behind: Option<Extent>, mut bytes: Bytes) -> Vec<Asked> {
    let Some(behind) = behind else {
        return vec![Asked::Write(first, Content::Data(bytes))];
    };
    let each = bytes.len() / (first.count() + behind.count()) as usize;
    let rest = bytes.split_off(first.count() as usize * each);
    vec![
        Asked::Write(first, Content::Data(bytes)),
        Asked::Write(behind, Content::Data(rest)),
    ]
}

fn error_of(outcome: &Outcome) -> IoError {
    let (kind, why) = match outcome {
        Outcome::NotOwner => (
            ErrorKind::PathInaccessible,
            "another node serves the volume, or none yet",
        ),
        Outcome::Stale => (
            ErrorKind::PathChanging,
            "the command may be a late duplicate: send it again",
        ),
        Outcome::PathGone => (
            ErrorKind::PathChanging,
            "another node takes the volume over",
        ),
        Outcome::Failed => (
            ErrorKind::NoSpace,
            "the pool has no space for it, or cannot write there",
        ),
        Outcome::OutOfRange => (ErrorKind::OutOfRange, "beyond the volume"),
        Outcome::Reserved => (ErrorKind::Reserved, "another host has reserved the volume"),
        Outcome::Written | Outcome::Read(_) | Outcome::Advice(_) => {
            (ErrorKind::Internal, "an answer to another question")
        }
    };
    IoError::new(kind, why)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use ashlar_block::{AssociationId, BlockRange, BufferPool, Durability, HostId};

    use super::*;

    fn sender() -> Sender {
        Sender {
            origin: Origin {
                host: HostId(1),
                association: AssociationId(2),
            },
            registrant: Registrant::default(),
            label: None,
            is_judged: true,
            here_only: false,
        }
    }

    fn size() -> Size {
        Size {
            granules: u64::MAX,
            register: 1 << 50,
        }
    }

    #[test]
    fn what_lies_on_both_sides_of_the_register_is_asked_for_in_parts() {
        let (pool, mut commands) = (pool(), Commands::default());
        let size = Size {
            granules: 100,
            register: 16,
        };
        let range = BlockRange::new(14, 4);
        let mut buffer = pool.get(4 * 4096).expect("a buffer");
        (0..4).for_each(|at| buffer[at * 4096..][..4096].fill(at as u8));
        let write = Request::write(7, range, buffer, Durability::Durable);
        let (_, asked) = commands.take(write, sender(), size).expect("fine");
        let parts: Vec<(Extent, u8)> = asked
            .into_iter()
            .map(|part| match part {
                Asked::Write(extent, Content::Data(bytes)) => (extent, bytes[0]),
                _ => panic!("a write is asked for"),
            })
            .collect();
        let extent = |first| Extent::new(first, 2).expect("an extent");
        assert_eq!(parts, [(extent(14), 0), (extent(16), 2)]);

        let read = Request::read(5, range, pool.get(4 * 4096).expect("a buffer"));
        let (command, _) = commands.take(read, sender(), size).expect("fine");
        let first = Outcome::Read(Bytes::from(vec![1; 2 * 4096]));
        let next = commands.answered(command, first, |_| None);
        assert!(matches!(next, Progress::Next(_, Asked::Read(part)) if part == extent(16)));
        let mut behind = pool.get(2 * 4096).expect("a buffer");
        behind.fill(2);
        let done = done(commands.filled(command, behind)).expect("both");
        let buffer = done.buffer.expect("a buffer");
        assert!(done.result.is_ok() && buffer[..8192] == [1; 8192] && buffer[8192..] == [2; 8192]);

        let mut zeroes = zeroing(1);
        zeroes.range = range;
        let (_, asked) = commands.take(zeroes, sender(), size).expect("fine");
        assert_eq!(asked.len(), 2);
    }

    fn done(progress: Progress) -> Option<Completion> {
        match progress {
            Progress::Done(completion) => Some(completion),
            Progress::Waits | Progress::Next(..) => None,
        }
    }

    fn pool() -> BufferPool {
        BufferPool::new(1 << 20)
    }

    #[test]
    fn a_write_gives_its_buffer_back_even_while_a_peer_holds_it() {
        let (pool, mut commands) = (pool(), Commands::default());
        let buffer = pool.get(4096).expect("a buffer");
        let range = BlockRange::new(3, 1);
        let request = Request::write(7, range, buffer, Durability::Durable);
        let (command, mut asked) = commands.take(request, sender(), size()).expect("fine");
        let Some(Asked::Write(extent, held)) = asked.pop() else {
            panic!("a write is asked for");
        };
        assert_eq!(extent.granules(), 3..4);
        let fresh = |len| pool.get(len);
        let progress = commands.answered(command, Outcome::Written, fresh);
        let done = done(progress).expect("the only part");
        assert!(done.result.is_ok() && done.tag == 7);
        assert_eq!(done.buffer.map(|buffer| buffer.len()), Some(4096));
        drop(held);
    }

    #[test]
    fn a_read_ends_with_the_buffer_that_was_read_into() {
        let (pool, mut commands) = (pool(), Commands::default());
        let own = pool.get(4096).expect("a buffer");
        let request = Request::read(5, BlockRange::new(3, 1), own);
        let (command, _) = commands.take(request, sender(), size()).expect("fine");
        let mut read = pool.get(4096).expect("a buffer");
        read.fill(9);
        let done = done(commands.filled(command, read)).expect("the only part");
        assert!(done.result.is_ok() && done.tag == 5);
        assert_eq!(done.buffer.expect("a buffer")[..], [9; 4096]);
    }

    /// The engine, short of memory, has kept the host's buffer, and what was read instead is no buffer of its own.
    #[test]
    fn a_read_whose_buffer_does_not_come_back_ends_with_another_or_for_want_of_memory() {
        let bytes = || Outcome::Read(Bytes::from(vec![9; 4096]));
        let ends = |outcome: Outcome, has_memory: bool| {
            let (pool, mut commands) = (pool(), Commands::default());
            let own = pool.get(4096).expect("a buffer");
            let request = Request::read(5, BlockRange::new(3, 1), own);
            let (command, _) = commands.take(request, sender(), size()).expect("fine");
            drop(commands.lend(command).expect("its buffer"));
            assert!(commands.give_back(command, None).is_some());
            let fresh = |len| pool.get(len).filter(|_| has_memory);
            done(commands.answered(command, outcome, fresh)).expect("the only part")
        };
        let read = ends(bytes(), true);
        assert!(read.result.is_ok());
        assert_eq!(read.buffer.expect("a buffer")[..], [9; 4096]);
        let kind = |done: Completion| done.result.expect_err("no data").kind();
        assert_eq!(kind(ends(bytes(), false)), ErrorKind::Exhausted);
        assert_eq!(kind(ends(Outcome::Failed, true)), ErrorKind::Media);
    }

    fn zeroing(parts: u32) -> Request {
        Request {
            tag: 9,
            op: Operation::Deallocate,
            range: BlockRange::new(0, parts * MOST_ZEROES - 1),
            buffer: None,
        }
    }

    #[test]
    fn a_large_zeroing_asks_for_a_few_parts_at_a_time() {
        let mut commands = Commands::default();
        let (command, asked) = commands.take(zeroing(5), sender(), size()).expect("fine");
        let mut open: VecDeque<Asked> = asked.into();
        let mut zeroed = 0;
        loop {
            assert!(open.len() <= MOST_PARTS);
            let Some(Asked::Write(extent, Content::Zeroes)) = open.pop_front() else {
                panic!("a zeroing is asked for");
            };
            assert_eq!(extent.first(), zeroed);
            zeroed = extent.end();
            match commands.answered(command, Outcome::Written, |_| None) {
                Progress::Next(_, part) => open.push_back(part),
                Progress::Waits => {}
                Progress::Done(completion) => {
                    assert!(completion.result.is_ok() && open.is_empty());
                    break;
                }
            }
        }
        assert_eq!(zeroed, u64::from(5 * MOST_ZEROES - 1));
    }

    #[test]
    fn a_large_zeroing_asks_for_no_more_once_a_part_has_failed() {
        let mut commands = Commands::default();
        let (command, asked) = commands.take(zeroing(5), sender(), size()).expect("fine");
        assert_eq!(asked.len(), 2);
        let progress = commands.answered(command, Outcome::Failed, |_| None);
        assert!(matches!(progress, Progress::Waits));
        let progress = commands.answered(command, Outcome::Written, |_| None);
        let error = done(progress)
            .expect("over")
            .result
            .expect_err("one failed");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }

    #[test]
    fn a_large_zeroing_ends_at_once_when_its_copy_stops() {
        let mut commands = Commands::default();
        let (command, _) = commands.take(zeroing(5), sender(), size()).expect("fine");
        let progress = commands.answered(command, Outcome::Written, |_| None);
        assert!(matches!(progress, Progress::Next(..)));
        assert_eq!(commands.end(), [command]);
        let progress = commands.answered(command, Outcome::PathGone, |_| None);
        let error = done(progress).expect("all of it").result;
        let error = error.expect_err("it has ended");
        assert_eq!(error.kind(), ErrorKind::PathChanging);
        assert!(commands.end().is_empty());
    }

    #[test]
    fn a_read_that_fails_is_not_told_as_a_want_of_space() {
        let (pool, mut commands) = (pool(), Commands::default());
        let buffer = pool.get(4096).expect("a buffer");
        let request = Request::read(1, BlockRange::new(0, 1), buffer);
        let (command, _) = commands.take(request, sender(), size()).expect("fine");
        let progress = commands.answered(command, Outcome::Failed, |_| None);
        let error = done(progress).expect("done").result.expect_err("failed");
        assert_eq!(error.kind(), ErrorKind::Media);
    }

    #[test]
    fn what_another_node_serves_was_certainly_not_done() {
        let (pool, mut commands) = (pool(), Commands::default());
        let buffer = pool.get(4096).expect("a buffer");
        let request = Request::read(1, BlockRange::new(0, 1), buffer);
        let (command, _) = commands.take(request, sender(), size()).expect("fine");
        let progress = commands.answered(command, Outcome::NotOwner, |_| None);
        let error = done(progress).expect("done").result.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::PathInaccessible);
    }
}
