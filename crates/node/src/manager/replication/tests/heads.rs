//! How far copies' pools had come, as nodes tell each other, and as pools keep it.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ashlar_block::{AssociationId, BlockDevice, HostId, IoError, Provenance, Registrant};
use ashlar_nvme_target::{Petition, ReservationDecider, Wants, answer_to};
use ashlar_reactor::{Options, Reactor};
use ashlar_replica::quorum::Reply;
use ashlar_store::{Drives, ImportOptions, ReplicaMark};

use super::*;
use crate::manager::PoolManager;
use crate::pool::{CopyDecider, open_drives};

/// What is said of a copy that was set back.
const LAGS: &str = "acknowledged what it does not have";
/// What is written is in the grant after it, and that in the pool, by then.
const HEARD: Duration = Duration::from_secs(1);

impl Nodes {
    fn node(&self, node: usize) -> &PoolManager {
        &self.rooms[node].manager
    }

    fn place(&self, node: usize) -> CopyPlace {
        self.node(node).copies().remove(0)
    }

    fn view(&self, node: usize) -> ReplicaView {
        let place = self.place(node);
        let look = |reply| ReplicaMail::Look { reply };
        let view = place.pool.ask_replica(place.number, look).expect("asked");
        view.expect("a copy")
    }

    /// Something that all copies in sync acknowledge, so many times.
    fn write(&self, owner: usize, times: usize) {
        let place = self.place(owner);
        let decider = CopyDecider {
            pool: place.pool,
            volume: place.number,
        };
        for _ in 0..times {
            let provenance = Provenance {
                host: HostId(1),
                registrant: Registrant([1; 16]),
                association: AssociationId(1),
                label: None,
                here_only: false,
            };
            let (answer, verdict) = answer_to();
            let wants = Wants::Succeed;
            decider.decide(Petition { provenance, wants }, answer);
            let found = std::cell::Cell::new(None);
            until("it is written", || {
                found.set(verdict().map(|verdict| verdict.status.is_success()));
                found.get().is_some()
            });
            assert_eq!(found.get(), Some(true));
        }
    }

    /// What the only copy in a pool that is not in service keeps of others.
    fn kept(&self, node: usize, drives: &[String]) -> [ReplicaMark; 3] {
        let opened = open_drives(drives, self.node(node).opening(false)).expect("opened");
        let mut reactor = Reactor::new(&Options::default()).expect("a reactor");
        let handle = reactor.handle().clone();
        let devices = opened.iter().map(|drive| drive.opener.open(&handle));
        let devices: Result<Vec<Box<dyn BlockDevice>>, IoError> = devices.collect();
        let wait = move || {
            let soon = handle.now() + Duration::from_millis(10);
            reactor.turn(Some(soon)).expect("a turn");
            handle.now()
        };
        let drives = Drives::new(devices.expect("opened"), Box::new(wait));
        let options = ImportOptions::default();
        let engine = ashlar_store::import(drives, &options).expect("a pool");
        let copies = engine.engine.replicas().list();
        engine.engine.replicas().marks(copies[0].0)
    }

    /// All of them end together, and nothing is said to the quorum of it. Drives by node.
    fn dark(&self) -> [Vec<String>; 2] {
        self.quorum.set_away(true);
        for node in [0, 1] {
            let place = self.place(node);
            let stop = |reply| ReplicaMail::Stop { reply };
            place.pool.ask_replica(place.number, stop).expect("stopped");
        }
        self.quorum.set_away(false);
        [0, 1].map(|node| self.export(node))
    }
}

/// Files of drives, and what they were once, beside them.
fn put_aside(drives: &[String]) {
    for drive in drives {
        let path = drive.strip_prefix("file:").expect("a file");
        let mut cp = Command::new("cp");
        let copied = cp.args(["--sparse=always", path, &format!("{path}.old")]);
        assert!(copied.status().expect("cp").success());
    }
}

fn set_back(drives: &[String]) {
    for drive in drives {
        let path = drive.strip_prefix("file:").expect("a file");
        std::fs::rename(format!("{path}.old"), path).expect("renamed");
    }
}

#[test]
fn pools_keep_how_far_other_copies_had_come() {
    let nodes = Nodes::new(2);
    nodes.volume(2);
    let before = [0, 1].map(|node| nodes.view(node));
    let replication = nodes.node(0).replication().expect("in a cluster");
    let keeps = replication.keeps_heads.load(Relaxed);
    assert!(keeps, "no version is older: from the beginning");
    nodes.write(0, 3);
    std::thread::sleep(HEARD);
    let after = [0, 1].map(|node| nodes.view(node));
    let drives = nodes.dark();
    for (node, other) in [(0, 1), (1, 0)] {
        let mark = nodes.kept(node, &drives[node])[other];
        assert_eq!(mark.uuid, before[other].uuid.0);
        let known = before[other].published + 1..=after[other].published;
        assert!(
            known.contains(&mark.head),
            "node {node}: {mark:?} {known:?}"
        );
    }
}

/// The quorum was not told of what is missing: the other copy knows of it.
#[test]
fn a_copy_that_was_set_back_a_little_serves_nothing_until_it_is_equal() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let place = nodes.place(0);
    let replication = nodes.node(0).replication().expect("in a cluster");
    let head = || replication.cluster.head(place.pool_id).expect("held");
    let drives = nodes.export(0);
    put_aside(&drives);
    let old = head().head;
    nodes.import(0, drives);
    nodes.await_all(&name, 2);
    nodes.write(nodes.owner(&name), 20);
    std::thread::sleep(HEARD);
    let [drives, others] = nodes.dark();
    set_back(&drives);
    until("the quorum was told nothing since", || {
        let mut held = head();
        held.head = old.clone();
        replication.cluster.put_head(place.pool_id, &held).is_ok()
    });

    nodes.import(0, drives);
    until("it prepares to serve", || nodes.view(0).owns.is_some());
    assert!(!nodes.view(0).is_old_image, "the quorum does not know");
    let is_marked = || head().head.old.contains(&place.volume);
    let is_over = AtomicBool::new(false);
    let was_marked = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let end = Instant::now() + Duration::from_secs(60);
            // It is for some tenths of a second.
            while !is_marked() && !is_over.load(Relaxed) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            !is_over.load(Relaxed) && Instant::now() < end
        });
        nodes.import(1, others);
        nodes.await_all(&name, 2);
        until("it is forgiven", || !is_marked());
        is_over.store(true, Relaxed);
        watch.join().expect("no panic")
    });
    assert!(was_marked, "the quorum remembers it meanwhile");
    assert_eq!(nodes.owner(&name), 1);
    let events = replication.events.after(0).into_iter();
    let said = events.filter(|event| event.text.contains(LAGS));
    assert_eq!(said.count(), 1);
    assert!(!nodes.view(0).is_old_image);
}

/// Nothing says which copy is newer when the quorum was recovered from one machine.
#[test]
fn a_volume_in_doubt_is_served_by_none_until_an_operator_says_where() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let volume = nodes.place(1).volume;
    let replication = nodes.node(1).replication().expect("in a cluster");
    let cluster = &replication.cluster;
    let held = || replication.read_newest(volume).expect("read");
    let before = held().key;
    for to in ["n2", "n1"] {
        let request = MoveVolume { to: to.into() };
        nodes.node(0).move_volume(&name, request).expect("moved");
        nodes.await_all(&name, 2);
    }
    let drives = nodes.dark();
    // As the etcd of a machine has it that was cut off then: copies have promised more.
    let question = Question::Swap {
        revision: held().revision,
        value: before.encode(),
    };
    let reply = replication.ask(volume, question);
    assert!(matches!(reply, Reply::Swapped(_)), "{reply:?}");
    assert_eq!(cluster.doubt_volumes(), Ok(vec![volume]));
    for (node, drives) in drives.into_iter().enumerate() {
        nodes.import(node, drives);
    }
    let known = |node: usize| nodes.look(node, &name).replication.expect("copies");
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        for node in [0, 1] {
            let known = known(node);
            assert_eq!(known.owner, None, "node {node}");
            let states = known.replicas.iter().map(|copy| copy.state);
            assert_eq!(states.collect::<Vec<_>>(), [ReplicaState::InDoubt; 2]);
            let advice = known.advice.expect("a way out");
            let command = "`ashlar volume run-alone tank/db --accept-data-loss`";
            assert!(advice.contains(command), "{advice}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let alone = |force| {
        let request = RunAlone {
            accept_data_loss: true,
            force,
        };
        nodes.node(1).run_alone(&name, &request)
    };
    let error = alone(false).expect_err("the other may be newer");
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(
        error.message.contains("nothing says which is newer"),
        "{error}"
    );
    // Which copies are in sync is just what an old key does not know.
    let here = ReplicaView {
        connected: Positions::NONE,
        ..nodes.view(1)
    };
    let older = ashlar_replica::Key {
        in_sync: Positions::NONE.with(here.position),
        ..held().key
    };
    let asked = replication.none_has_more(&nodes.place(1), &here, &older);
    let error = asked.expect_err("the other has a copy");
    assert!(error.message.contains("node n1 is there"), "{error}");
    alone(true).expect("an operator has decided");
    assert_eq!(nodes.owner(&name), 1);
    nodes.await_all(&name, 2);
    assert_eq!(cluster.is_in_doubt(volume), Ok(false));
}

/// It was served through the recovery: an order ends the doubt, which would strike at the next start of a daemon.
#[test]
fn a_node_that_serves_a_volume_in_doubt_goes_on_when_it_is_told_to() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let volume = nodes.place(0).volume;
    let replication = nodes.node(0).replication().expect("in a cluster");
    let cluster = &replication.cluster;
    assert_eq!(cluster.doubt_volumes(), Ok(vec![volume]));
    let alone = |accept_data_loss| {
        let request = RunAlone {
            accept_data_loss,
            force: false,
        };
        nodes.node(0).run_alone(&name, &request)
    };
    let error = alone(false).expect_err("an operator is to know what it says");
    assert!(error.message.contains("which is in doubt"), "{error}");
    assert_eq!(cluster.is_in_doubt(volume), Ok(true));
    let shown = alone(true).expect("told to");
    assert_eq!(
        shown.replication.and_then(|known| known.owner),
        Some("n1".into())
    );
    assert_eq!(cluster.is_in_doubt(volume), Ok(false));
    let events = replication.events.after(0).into_iter();
    let said = events.filter(|event| event.text.contains("in doubt no more"));
    assert_eq!(said.count(), 1);
    let error = alone(true).expect_err("there is nothing to decide");
    assert!(error.message.contains("this node serves"), "{error}");
}

/// A node whose daemon runs through the recovery does not know that its copy is in doubt; the quorum does.
#[test]
fn a_copy_that_was_in_service_before_the_doubt_takes_nothing_over() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let volume = nodes.place(0).volume;
    let replication = nodes.node(1).replication().expect("in a cluster");
    assert_eq!(replication.cluster.doubt_volumes(), Ok(vec![volume]));
    let owner = nodes.place(0);
    let stop = |reply| ReplicaMail::Stop { reply };
    owner.pool.ask_replica(owner.number, stop).expect("stopped");
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        assert_eq!(nodes.view(1).owns, None);
        std::thread::sleep(Duration::from_millis(100));
    }
    let request = RunAlone {
        accept_data_loss: true,
        force: true,
    };
    let decided = nodes.node(1).run_alone(&name, &request);
    decided.expect("an operator has decided");
    assert!(nodes.view(1).owns.is_some());
    assert_eq!(replication.cluster.is_in_doubt(volume), Ok(false));
}
