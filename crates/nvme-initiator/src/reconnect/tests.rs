use ashlar_block::BlockRange;
use ashlar_nvme::Status;
use ashlar_nvme::command::opcode;
use proptest::prelude::*;

use super::*;
use crate::config::Host;
use crate::controller::Purpose;
use crate::scripted::target::World;
use crate::scripted::{buffer, pool};

const BLOCKS: u64 = 256;
pub(super) const SHORT: Duration = Duration::from_secs(1);

pub(super) struct Rig {
    pub(super) world: World,
    pub(super) session: Session,
    pub(super) done: Vec<Completion>,
}

pub(super) fn config() -> Config {
    let mut config = Config::new(
        "10.0.0.1:4420",
        "nqn.2026-01.test:s",
        Host::named("nqn.2026-01.test:h"),
    );
    config.nsid = Some(3);
    config
}

impl Rig {
    fn new() -> Self {
        Self::with(config(), |_| {})
    }

    pub(super) fn with(config: Config, edit: impl FnOnce(&mut World)) -> Self {
        let mut world = World::new(BLOCKS);
        edit(&mut world);
        let config = Arc::new(config);
        let mut first = Association::new(world.now, config.clone(), Purpose::Namespace, pool());
        world.target.each = usize::from(config.queues) + 1;
        for _ in 0..200 {
            first.poll(world.now);
            world.round(&mut first);
            world.now = world.now + Duration::from_millis(1);
        }
        let facts = first.namespace().expect("identified").clone();
        world.peers.clear();
        world.target.connects.clear();
        let session = Session::new(world.now, config, facts, Arc::default(), pool());
        let mut rig = Self {
            world,
            session,
            done: Vec::new(),
        };
        rig.run(SHORT);
        assert!(rig.session.is_ready());
        rig
    }

    pub(super) fn run(&mut self, limit: Duration) {
        let end = self.world.now + limit;
        loop {
            self.session.poll(self.world.now, &mut self.done);
            if self.world.round(&mut self.session) {
                continue;
            }
            match self.session.next_deadline() {
                Some(next) if next <= end => {
                    let tick = self.world.now + Duration::from_millis(1);
                    self.world.now = if next > self.world.now { next } else { tick };
                }
                _ => break,
            }
        }
        self.world.now = end;
        self.session.poll(end, &mut self.done);
    }

    pub(super) fn write(&mut self, tag: u64, value: u8, durability: Durability) {
        let range = BlockRange::new(tag, 1);
        self.session
            .submit(Request::write(tag, range, buffer(4096, value), durability));
    }

    pub(super) fn read(&mut self, tag: u64) {
        self.session
            .submit(Request::read(tag, BlockRange::new(tag, 1), buffer(4096, 0)));
    }

    fn plain(&mut self, tag: u64, op: Operation, range: BlockRange) {
        self.session.submit(Request {
            tag,
            op,
            range,
            buffer: None,
        });
    }

    fn flush(&mut self, tag: u64) {
        self.session.submit(Request::flush(tag));
    }

    fn cut(&mut self) {
        self.world.cut(&mut self.session);
    }

    /// What became of each tag, ascending.
    pub(super) fn results(&mut self) -> Vec<(u64, Option<ErrorKind>)> {
        let mut results: Vec<_> = self
            .done
            .drain(..)
            .map(|done| (done.tag, done.result.err().map(|error| error.kind())))
            .collect();
        results.sort_unstable_by_key(|(tag, _)| *tag);
        results
    }
}

const LOST: Option<ErrorKind> = Some(ErrorKind::Disconnected);

#[test]
fn reads_and_writes_of_all_sizes_reach_the_storage() {
    let mut rig = Rig::new();
    let range = BlockRange::new(10, 20);
    let data = buffer(20 * 4096, 0xAB);
    rig.session
        .submit(Request::write(1, range, data, Durability::Durable));
    rig.run(SHORT);
    assert_eq!(rig.results(), [(1, None)]);
    assert!(
        rig.world.target.storage[10 * 4096..30 * 4096]
            .iter()
            .all(|&byte| byte == 0xAB)
    );
    rig.session
        .submit(Request::read(2, range, buffer(20 * 4096, 0)));
    rig.run(SHORT);
    let read = rig.done.pop().expect("read");
    assert!(
        read.buffer
            .expect("buffer")
            .iter()
            .all(|&byte| byte == 0xAB)
    );
}

#[test]
fn what_was_in_flight_is_sent_again_after_a_loss() {
    let mut rig = Rig::new();
    rig.world.target.mute = true;
    rig.write(1, 11, Durability::Cached);
    rig.read(2);
    rig.plain(3, Operation::Deallocate, BlockRange::new(3, 2));
    rig.run(Duration::from_millis(10));
    assert!(rig.done.is_empty());
    assert_eq!(
        rig.world.target.executed.len(),
        3,
        "executed, but the answers are lost"
    );
    rig.world.target.mute = false;
    rig.cut();
    rig.run(SHORT);
    assert_eq!(rig.results(), [(1, None), (2, None), (3, None)]);
    assert_eq!(
        rig.world.target.executed.len(),
        6,
        "each was executed twice"
    );
    assert_eq!(
        (rig.session.losses(), rig.world.target.storage[4096]),
        (1, 11)
    );
}

#[test]
fn a_lost_association_is_ended_before_the_next_carries_a_request() {
    const NUMBER: u64 = 0x1122_3344_5566_7788;
    let mut rig = Rig::with(config(), |world| world.target.instance = Some((9, NUMBER)));
    assert!(rig.world.target.resets.is_empty(), "there was none before");
    rig.world.target.stalled = true;
    rig.write(1, 11, Durability::Cached);
    rig.run(Duration::from_millis(10));
    rig.world.target.stalled = false;
    // Under way, too many, and only then complete; the next run of the controller has another name.
    rig.world.target.instance = Some((10, 1));
    let under_way = (Status::SUCCESS, 0);
    let in_progress = (Status::new(1, 0x3f), 0);
    let limit = (Status::new(1, 0x40), 0);
    rig.world.target.reset_answers = [vec![limit, in_progress], vec![under_way; 50]].concat();
    rig.cut();
    rig.run(Duration::from_millis(300));
    assert!(rig.world.target.executed.is_empty() && !rig.session.is_ready());
    rig.run(SHORT);
    assert_eq!(rig.results(), [(1, None)]);
    assert_eq!(rig.world.target.executed, [opcode::io::WRITE]);
    let resets = std::mem::take(&mut rig.world.target.resets);
    assert_eq!(resets.len(), 53);
    let words = [9 << 16 | 5, 0x5566_7788, 0x1122_3344];
    assert!(resets.iter().all(|reset| *reset == words));
    rig.cut();
    rig.run(SHORT);
    assert_eq!(rig.world.target.resets, [[10 << 16 | 5, 1, 0]]);
}

#[test]
fn a_reset_that_never_ends_or_fails_costs_the_attempt_and_not_the_order() {
    let mut config = config();
    config.timeout = Duration::from_millis(200);
    let mut rig = Rig::with(config, |world| world.target.instance = Some((1, 2)));
    rig.world.target.reset_answers = vec![(Status::SUCCESS, 0); 100];
    rig.world
        .target
        .reset_answers
        .push((Status::INTERNAL_ERROR, 0));
    rig.cut();
    rig.write(1, 11, Durability::Cached);
    rig.run(Duration::from_millis(700));
    assert!(rig.world.target.executed.is_empty());
    let attempts = rig.world.target.connects.iter().filter(|qid| **qid == 0);
    assert!(
        attempts.count() >= 3,
        "the first, a refused one, a slow one"
    );
    rig.run(20 * SHORT);
    assert_eq!(rig.results(), [(1, None)]);
}

#[test]
fn a_refused_io_queue_is_a_loss_and_no_verdict() {
    let mut rig = Rig::new();
    rig.world.target.io_connect = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
    rig.cut();
    rig.write(1, 11, Durability::Cached);
    rig.run(SHORT);
    assert!(rig.results().is_empty());
    rig.world.target.io_connect = Status::SUCCESS;
    rig.run(3 * SHORT);
    assert_eq!(rig.results(), [(1, None)]);
}

#[test]
fn the_replay_rule_decides_what_fails() {
    let after_cut = |replay| {
        let mut config = config();
        config.replay = replay;
        let mut rig = Rig::with(config, |_| {});
        rig.world.target.stalled = true;
        rig.write(1, 11, Durability::Cached);
        rig.read(2);
        rig.run(Duration::from_millis(10));
        rig.world.target.stalled = false;
        rig.cut();
        // Not yet sent when the connection breaks: always sent later.
        rig.write(3, 33, Durability::Cached);
        rig.run(SHORT);
        rig.results()
    };
    assert_eq!(after_cut(Replay::All), [(1, None), (2, None), (3, None)]);
    assert_eq!(after_cut(Replay::Reads), [(1, LOST), (2, None), (3, None)]);
    assert_eq!(after_cut(Replay::None), [(1, LOST), (2, LOST), (3, None)]);
}

#[test]
fn a_flush_that_covers_a_loss_fails_once() {
    let mut rig = Rig::new();
    rig.write(1, 1, Durability::Cached);
    rig.run(SHORT);
    rig.cut();
    rig.run(SHORT);
    rig.flush(2);
    rig.run(SHORT);
    assert_eq!(rig.results(), [(1, None), (2, LOST)]);
    rig.flush(3);
    rig.run(SHORT);
    assert_eq!(rig.results(), [(3, None)], "the next one is judged afresh");
    assert_eq!(rig.world.target.executed.last(), Some(&opcode::io::FLUSH));
}

#[test]
fn a_flush_in_flight_at_a_loss_fails_if_it_covers_anything() {
    for covers in [true, false] {
        let mut rig = Rig::new();
        if covers {
            rig.write(1, 1, Durability::Cached);
            rig.run(SHORT);
        }
        rig.world.target.mute = true;
        rig.flush(2);
        rig.run(Duration::from_millis(10));
        rig.world.target.mute = false;
        rig.cut();
        rig.run(SHORT);
        rig.done.retain(|done| done.tag == 2);
        let verdict = if covers { LOST } else { None };
        assert_eq!(rig.results(), [(2, verdict)]);
        // Asked for before the loss, it cannot speak for what was acknowledged after it.
        rig.flush(3);
        rig.run(SHORT);
        assert_eq!(rig.results(), [(3, verdict)]);
        rig.flush(4);
        rig.run(SHORT);
        assert_eq!(rig.results(), [(4, None)]);
    }
}

#[test]
fn flushes_do_not_fail_for_what_was_durable() {
    let mut rig = Rig::new();
    rig.write(1, 1, Durability::Durable);
    rig.write(2, 1, Durability::Cached);
    rig.run(SHORT);
    rig.flush(3);
    rig.run(SHORT);
    rig.write(4, 1, Durability::Durable);
    rig.run(SHORT);
    rig.cut();
    rig.run(SHORT);
    rig.flush(5);
    rig.run(SHORT);
    assert!(rig.results().iter().all(|(_, error)| error.is_none()));

    let mut rig = Rig::with(config(), |world| world.target.controller.vwc = 0);
    rig.write(1, 1, Durability::Cached);
    rig.run(SHORT);
    rig.cut();
    rig.run(SHORT);
    rig.flush(2);
    rig.run(SHORT);
    assert_eq!(
        rig.results(),
        [(1, None), (2, None)],
        "there is no volatile cache"
    );
    assert!(!rig.world.target.executed.contains(&opcode::io::FLUSH));
}

#[test]
fn a_flush_of_another_object_covers_the_writes_of_this_one() {
    let mut rig = Rig::new();
    rig.write(1, 1, Durability::Cached);
    rig.run(SHORT);
    let number = rig.session.unflushed.begin();
    rig.session.unflushed.flushed(number);
    rig.cut();
    rig.run(SHORT);
    rig.flush(2);
    rig.run(SHORT);
    assert_eq!(rig.results(), [(1, None), (2, None)]);
}

#[test]
fn a_namespace_that_has_grown_is_the_same_one() {
    let mut rig = Rig::new();
    let blocks = rig.session.geometry().blocks as usize;
    rig.world.target.storage.resize(2 * blocks * 4096, 0);
    rig.cut();
    rig.write(1, 1, Durability::Cached);
    rig.read(2);
    rig.run(SHORT);
    assert_eq!(rig.results(), [(1, None), (2, None)]);
    assert_eq!(rig.session.geometry().blocks as usize, blocks);
}

#[test]
fn another_namespace_under_the_same_name_fails_everything() {
    let changes: [fn(&mut World); 2] = [
        |world| world.target.uuid = [8; 16],
        |world| world.target.storage.truncate(100 * 4096),
    ];
    for change in changes {
        let mut rig = Rig::new();
        rig.world.target.stalled = true;
        rig.write(1, 1, Durability::Cached);
        rig.run(Duration::from_millis(10));
        rig.world.target.stalled = false;
        change(&mut rig.world);
        rig.cut();
        rig.read(2);
        rig.run(SHORT);
        rig.read(3);
        rig.run(SHORT);
        let errors: Vec<String> = rig
            .done
            .iter()
            .map(|done| done.result.as_ref().expect_err("failed").to_string())
            .collect();
        assert_eq!(errors.len(), 3);
        assert!(
            errors
                .iter()
                .all(|e| e.contains("another namespace answers at 10.0.0.1:4420"))
        );
        let unsent = Some(ErrorKind::NotSent);
        assert_eq!(rig.results(), [(1, LOST), (2, unsent), (3, unsent)]);
        assert!(
            rig.world.target.executed.is_empty(),
            "nothing reached the other namespace"
        );
        assert!(rig.session.is_over());
    }
}

#[test]
fn a_namespace_that_promises_less_fails_everything() {
    let mut rig = Rig::new();
    rig.world.target.controller.mdts = 4;
    rig.cut();
    rig.read(1);
    rig.run(SHORT);
    let error = rig.done[0].result.as_ref().expect_err("failed").to_string();
    assert!(error.contains("promises less"), "{error}");
}

#[test]
fn it_gives_up_after_the_loss_time_out_and_not_before() {
    let mut rig = Rig::new();
    rig.world.target.stalled = true;
    rig.write(1, 1, Durability::Cached);
    rig.run(Duration::from_millis(10));
    rig.world.target.down = true;
    rig.cut();
    rig.read(2);
    rig.run(Duration::from_secs(59));
    assert!(rig.done.is_empty());
    rig.run(Duration::from_secs(2));
    let error = rig.done[0].result.as_ref().expect_err("failed").to_string();
    assert!(
        error.contains("10.0.0.1:4420 nqn.2026-01.test:s"),
        "{error}"
    );
    assert!(
        error.contains("60000 ms") && error.contains("refused"),
        "{error}"
    );
    assert_eq!(rig.results(), [(1, LOST), (2, Some(ErrorKind::NotSent))]);
    assert!(rig.done.iter().all(|done| done.buffer.is_some()));
    rig.world.target.down = false;
    rig.read(3);
    rig.run(SHORT);
    assert_eq!(rig.results(), [(3, Some(ErrorKind::NotSent))], "for good");
}

#[test]
fn a_long_outage_within_the_limit_is_only_a_delay() {
    let mut rig = Rig::new();
    rig.world.target.down = true;
    rig.cut();
    rig.write(1, 9, Durability::Durable);
    rig.run(Duration::from_secs(50));
    assert!(rig.done.is_empty());
    rig.world.target.down = false;
    rig.run(Duration::from_secs(3));
    assert_eq!(rig.results(), [(1, None)]);
}

#[test]
fn a_refused_reconnect_that_will_not_pass_ends_it_at_once() {
    let mut rig = Rig::new();
    rig.world.target.connect = Status::CONNECT_INVALID_HOST.with_dnr();
    rig.cut();
    rig.read(1);
    rig.run(SHORT);
    assert_eq!(rig.results(), [(1, Some(ErrorKind::Denied))]);
}

fn patient(loss: Duration) -> Config {
    Config {
        patient: true,
        loss,
        ..config()
    }
}

#[test]
fn one_that_is_patient_waits_until_it_is_let_in_again() {
    let mut rig = Rig::with(patient(Duration::from_secs(600)), |_| {});
    rig.world.target.connect = Status::new(1, 0x82).with_dnr();
    rig.cut();
    rig.write(1, 9, Durability::Durable);
    rig.run(Duration::from_secs(590));
    assert!(rig.done.is_empty());
    rig.world.target.connect = Status::SUCCESS;
    rig.run(Duration::from_secs(3));
    assert_eq!(rig.results(), [(1, None)]);
    rig.world.target.connect = Status::CONNECT_INVALID_HOST.with_dnr();
    rig.cut();
    rig.write(2, 9, Durability::Durable);
    rig.run(Duration::from_secs(599));
    assert!(rig.done.is_empty());
    rig.run(Duration::from_secs(2));
    assert_eq!(rig.results(), [(2, Some(ErrorKind::NotSent))], "in time");
}

#[test]
fn one_that_is_patient_bears_silence_and_refusals_for_as_long() {
    let mut rig = Rig::with(patient(Duration::from_secs(600)), |_| {});
    rig.world.target.stalled = true;
    rig.read(1);
    rig.run(Duration::from_secs(300));
    assert!(rig.done.is_empty());
    rig.world.target.stalled = false;
    rig.run(Duration::from_secs(40));
    assert_eq!(rig.results(), [(1, None)]);
    rig.world.target.refusals = vec![Status::NAMESPACE_NOT_READY; 1000];
    rig.write(1, 6, Durability::Cached);
    rig.run(Duration::from_secs(110));
    assert_eq!(rig.results(), [(1, None)]);
}

#[test]
fn what_is_never_answered_times_out() {
    let mut rig = Rig::new();
    rig.world.target.stalled = true;
    rig.read(1);
    rig.run(Duration::from_secs(89));
    assert!(rig.done.is_empty(), "sent again after 30 s, and after 60 s");
    rig.run(Duration::from_secs(3));
    assert_eq!(rig.results(), [(1, Some(ErrorKind::Timeout))]);
    assert!(rig.world.target.connects.len() >= 6);
}

#[test]
fn passing_refusals_are_tried_again_and_others_are_not() {
    let mut rig = Rig::new();
    rig.world.target.refusals = vec![Status::ANA_TRANSITION, Status::TRANSIENT_TRANSPORT_ERROR];
    rig.write(1, 5, Durability::Cached);
    rig.run(SHORT);
    assert_eq!(
        (rig.results(), rig.world.target.storage[4096]),
        (vec![(1, None)], 5)
    );
    rig.world.target.refusals = vec![Status::WRITE_FAULT.with_dnr()];
    rig.write(1, 6, Durability::Cached);
    rig.run(SHORT);
    assert_eq!(rig.results(), [(1, Some(ErrorKind::Media))]);
    rig.world.target.refusals = vec![Status::NAMESPACE_NOT_READY; 100];
    rig.write(1, 6, Durability::Cached);
    rig.run(Duration::from_secs(10));
    assert_eq!(rig.results(), [(1, Some(ErrorKind::Exhausted))]);
}

#[test]
fn operations_that_the_controller_lacks_are_emulated_or_skipped() {
    let mut rig = Rig::with(config(), |world| world.target.controller.oncs.set(0));
    rig.world.target.storage.fill(0xFF);
    let zeroes = Operation::WriteZeroes {
        durability: Durability::Durable,
        deallocate: true,
    };
    rig.plain(1, zeroes, BlockRange::new(10, 200));
    rig.plain(2, Operation::Deallocate, BlockRange::new(0, 5));
    rig.run(SHORT);
    assert_eq!(rig.results(), [(1, None), (2, None)]);
    let storage = &rig.world.target.storage;
    assert!(storage[10 * 4096..210 * 4096].iter().all(|&byte| byte == 0));
    assert!(
        storage[..10 * 4096]
            .iter()
            .chain(&storage[210 * 4096..])
            .all(|&b| b == 0xFF)
    );
    assert!(
        rig.world
            .target
            .executed
            .iter()
            .all(|&code| code == opcode::io::WRITE)
    );
}

#[test]
fn long_zeroes_go_in_parts() {
    let mut rig = Rig::new();
    rig.world.target.storage.fill(0xFF);
    let op = Operation::WriteZeroes {
        durability: Durability::Cached,
        deallocate: false,
    };
    rig.plain(1, op, BlockRange::new(0, BLOCKS as u32));
    rig.run(SHORT);
    assert_eq!(rig.results(), [(1, None)]);
    assert!(rig.world.target.storage.iter().all(|&byte| byte == 0));
    assert_eq!(rig.world.target.executed, [opcode::io::WRITE_ZEROES; 8]);
}

#[test]
fn shutdown_is_orderly_and_completes_what_is_left() {
    let mut rig = Rig::new();
    rig.world.target.stalled = true;
    rig.read(1);
    rig.run(Duration::from_millis(10));
    rig.session.shutdown(rig.world.now);
    rig.run(SHORT);
    assert!(rig.session.is_over());
    assert_eq!(rig.world.target.shutdowns, 1);
    assert_eq!(rig.results(), [(1, LOST)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the target says, at whatever stage: every request completes once, with its buffer.
    #[test]
    fn no_answer_makes_it_panic_or_forget_a_request(
        noise in proptest::collection::vec((0..40usize, 0..2usize, proptest::collection::vec(any::<u8>(), 1..200)), 1..6),
        flips in proptest::collection::vec((0..2000usize, any::<u8>()), 0..4),
    ) {
        let mut rig = Rig::new();
        rig.cut();
        rig.write(1, 1, Durability::Cached);
        rig.read(2);
        rig.flush(3);
        for round in 0..40 {
            rig.session.poll(rig.world.now, &mut rig.done);
            for (at, stream, bytes) in &noise {
                if *at == round {
                    rig.session.receive(*stream, bytes);
                }
            }
            rig.world.flips.clone_from(&flips);
            rig.world.round(&mut rig.session);
            rig.world.now = rig.world.now + Duration::from_millis(20);
        }
        rig.world.flips.clear();
        rig.run(Duration::from_secs(200));
        let tags: Vec<u64> = rig.results().iter().map(|(tag, _)| *tag).collect();
        prop_assert_eq!(tags, vec![1, 2, 3]);
    }
}
