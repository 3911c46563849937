use std::time::Duration;

use ashlar_nvme::Status;
use ashlar_nvme::command::SglDescriptor;
use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::feature::fid;

use super::*;
use crate::config::Host;
use crate::queue_pair::Outcome;
use crate::scripted::target::World;
use crate::scripted::{buffer, pool};

fn config() -> Config {
    let mut config = Config::new(
        "10.0.0.1:4420",
        "nqn.2026-01.test:s",
        Host::named("nqn.2026-01.test:h"),
    );
    config.queues = 2;
    config.timeout = Duration::from_secs(30);
    config
}

fn start(world: &World, config: Config, purpose: Purpose) -> Association {
    Association::new(world.now, Arc::new(config), purpose, pool())
}

/// Runs until nothing moves, letting time pass from deadline to deadline for `limit` in all.
fn run(world: &mut World, association: &mut Association, limit: Duration) {
    let end = world.now + limit;
    loop {
        association.poll(world.now);
        if world.round(association) {
            continue;
        }
        match association.next_deadline() {
            Some(next) if next <= end => world.now = world.now.max(next),
            _ => break,
        }
    }
    world.now = end;
    association.poll(end);
}

const SHORT: Duration = Duration::from_secs(1);

fn ready() -> (World, Association) {
    let mut world = World::new(64);
    let mut association = start(&world, config(), Purpose::Namespace);
    run(&mut world, &mut association, SHORT);
    assert_eq!(association.failure(), None);
    assert!(association.is_ready());
    (world, association)
}

#[test]
fn bring_up_ends_with_queues_and_the_first_namespace() {
    let (world, association) = ready();
    assert_eq!(world.target.connects, [0, 1, 2]);
    assert_eq!(association.io_queues(), 2);
    let facts = association.namespace().expect("identified");
    assert_eq!((facts.nsid, facts.identity.ids.uuid), (3, Some([7; 16])));
    assert_eq!((facts.geometry.blocks, facts.geometry.max_blocks), (64, 32));
    assert!(facts.geometry.volatile_cache && facts.geometry.deallocates);
    assert!(world.target.event_cid.is_some(), "an event was asked for");
}

#[test]
fn a_target_that_may_hand_commands_on_is_told_not_to_where_it_knows_that() {
    for forwards in [true, false] {
        let mut world = World::new(64);
        let config = Config {
            forwards,
            ..config()
        };
        let mut association = start(&world, config, Purpose::Namespace);
        run(&mut world, &mut association, SHORT);
        assert!(association.is_ready(), "one that does not is used as it is");
        let told: &[u8] = match forwards {
            true => &[],
            false => &[fid::HERE_ONLY],
        };
        assert_eq!(world.target.unknown_features, told);
    }
}

#[test]
fn commands_go_to_the_emptier_queue() {
    let (mut world, mut association) = ready();
    world.target.stalled = true;
    let mut used = Vec::new();
    for user in 0..4 {
        let queue = association.roomiest().expect("room");
        let submission = Submission {
            user,
            command: Command::read(3, user, 1, SglDescriptor::transport(0)),
            data: Data::ToHost(buffer(4096, 0)),
            timed: true,
        };
        association
            .submit(world.now, queue, submission)
            .expect("room");
        used.push(queue);
    }
    assert_eq!(used, [1, 2, 1, 2]);
    world.target.stalled = false;
    run(&mut world, &mut association, SHORT);
    let ended = std::iter::from_fn(|| association.finished());
    assert_eq!(
        ended
            .filter(|f| matches!(f.outcome, Outcome::Answered(_)))
            .count(),
        4
    );
}

#[test]
fn fewer_queues_than_asked_for_are_taken() {
    let mut world = World::new(64);
    let mut wanted = config();
    wanted.queues = 9;
    let mut association = start(&world, wanted, Purpose::Namespace);
    run(&mut world, &mut association, SHORT);
    assert!(association.is_ready());
    assert_eq!(association.io_queues(), 4);
}

#[test]
fn an_admin_association_has_no_queues_and_takes_calls() {
    let mut world = World::new(64);
    let mut association = start(&world, config(), Purpose::Admin);
    run(&mut world, &mut association, SHORT);
    assert!(association.is_ready());
    assert_eq!(world.target.connects, [0]);
    let command = Command::identify(
        0,
        ashlar_nvme::command::Identify {
            cns: ashlar_nvme::identify::cns::ACTIVE_NAMESPACES,
            ..Default::default()
        },
    );
    association
        .call(world.now, command, Data::ToHost(buffer(4096, 9)))
        .expect("room");
    run(&mut world, &mut association, SHORT);
    let page = association
        .called()
        .and_then(|called| called.buffer)
        .expect("answered");
    assert_eq!(page[..8], [3, 0, 0, 0, 4, 0, 0, 0]);
}

#[test]
fn refusals_are_named() {
    let failure = |edit: fn(&mut World)| {
        let mut world = World::new(64);
        edit(&mut world);
        let mut association = start(&world, config(), Purpose::Namespace);
        run(&mut world, &mut association, Duration::from_secs(60));
        assert!(association.is_over());
        association.failure().cloned().expect("refused")
    };
    let host = failure(|world| world.target.connect = Status::CONNECT_INVALID_HOST.with_dnr());
    assert!(host.to_string().contains("Connect Invalid Host"), "{host}");
    assert!(!host.may_pass());
    let busy = failure(|world| world.target.connect = Status::CONNECT_CONTROLLER_BUSY);
    assert!(busy.may_pass());
    let stuck = failure(|world| world.target.stuck = true);
    assert!(
        stuck.to_string().contains("enabling the controller"),
        "{stuck}"
    );
    let down = failure(|world| world.target.down = true);
    assert!(down.to_string().contains("refused") && down.may_pass());
    let empty = failure(|world| world.target.storage.clear());
    assert!(empty.to_string().contains("not active"), "{empty}");
}

#[test]
fn keep_alive_is_sent_at_half_its_time_and_silence_ends_the_association() {
    let (mut world, mut association) = ready();
    run(&mut world, &mut association, Duration::from_secs(60));
    assert_eq!(association.failure(), None);
    let sent = world.target.keep_alives;
    assert!((7..=9).contains(&sent), "{sent} in 61 s at 15 s");
    world.target.deaf = true;
    run(&mut world, &mut association, Duration::from_secs(25));
    let failure = association.failure().expect("silence").to_string();
    assert!(failure.contains("Keep Alive within 15000 ms"), "{failure}");
}

#[test]
fn a_controller_without_keep_alive_gets_none() {
    let mut world = World::new(64);
    world.target.controller.kas.set(0);
    let mut association = start(&world, config(), Purpose::Namespace);
    run(&mut world, &mut association, Duration::from_secs(60));
    assert!(association.is_ready());
    assert_eq!(world.target.keep_alives, 0);
}

#[test]
fn a_changed_namespace_ends_the_association_and_an_unchanged_one_does_not() {
    let (mut world, mut association) = ready();
    let notice = |world: &mut World, association: &mut Association| {
        let cid = world.target.event_cid.take().expect("asked for");
        let event = AsyncEvent::NamespaceAttributeChanged.dw0();
        let answer = ashlar_nvme::Completion::new(cid, Status::SUCCESS).with_dw0(event);
        world.peers[0].as_mut().expect("up").answer(&answer);
        run(world, association, SHORT);
    };
    notice(&mut world, &mut association);
    assert_eq!(association.failure(), None);
    assert!(world.target.event_cid.is_some(), "asked for again");
    world.target.storage.resize(200 * 4096, 0);
    notice(&mut world, &mut association);
    assert_eq!(association.failure(), None, "it has only grown");
    world.target.storage.truncate(32 * 4096);
    notice(&mut world, &mut association);
    let failure = association.failure().expect("changed").to_string();
    assert!(failure.contains("changed"), "{failure}");
}

#[test]
fn shutdown_is_orderly_and_bounded() {
    let (mut world, mut association) = ready();
    association.shutdown(world.now);
    run(&mut world, &mut association, SHORT);
    assert_eq!(world.target.shutdowns, 1);
    assert!(association.is_over());
    assert_eq!(association.failure(), Some(&Failure::Shutdown));

    let (mut world, mut association) = ready();
    world.target.stuck = true;
    association.shutdown(world.now);
    run(&mut world, &mut association, Duration::from_secs(6));
    assert!(
        association.is_over(),
        "a controller that never finishes is left"
    );
}

#[test]
fn the_loss_of_any_stream_ends_the_association() {
    for lost in 0..3 {
        let (mut world, mut association) = ready();
        world.peers[lost] = None;
        association.lost(lost, Failure::Closed);
        run(&mut world, &mut association, SHORT);
        assert!(association.is_over());
        assert!(world.peers.iter().all(Option::is_none));
    }
}
