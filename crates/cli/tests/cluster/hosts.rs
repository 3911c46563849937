//! What hosts of two nodes see of each other and of a volume that moves between them: reservations, and a write that
//! comes late.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ashlar_nvme::command::{GetLogPage, Identify};
use ashlar_nvme::event::{AsyncEvent, notices};
use ashlar_nvme::fabrics::DISCOVERY_NQN;
use ashlar_nvme::feature::{HANDS_NOTHING_ON, fid};
use ashlar_nvme::identify::cns;
use ashlar_nvme::log::{DiscoveryEntry, lid};
use ashlar_nvme::reservation::{
    AcquireAction, Ask, Persistence, RegisterAction, ReleaseAction, ReservationStatus,
    ReservationType,
};
use ashlar_nvme::{Command, Status};
use ashlar_nvme_initiator::{discover, local_host};
use rustix::process::Signal;

use crate::common::{TEST_TIMEOUT, eventually, ok, refuses, send};
use crate::host::{Client, Who};
use crate::rig::{Cluster, has_etcd, working_in};

/// A node may leave a host unanswered for so long at most when nothing fails: far less than a failover takes.
const AT_ONCE: Duration = Duration::from_secs(1);
const FENCED: Status = Status::RESERVATION_CONFLICT.with_dnr();
/// A copy that is silent for so long stays in sync.
const NOT_NOTICED: Duration = Duration::from_millis(100);
const BLOCK: usize = 4096;
const REPORT_BYTES: u32 = 4096;
const NODES: [&str; 2] = ["a", "b"];

/// An admin queue that waits to be told of one kind of event.
struct Listener {
    admin: Client,
    cntlid: u16,
    notice: u32,
}

impl Listener {
    fn to(who: &Who, portal: SocketAddr, notice: u32) -> Self {
        let (admin, cntlid) = Client::admin_as(who, portal);
        Self::over(admin, cntlid, notice)
    }

    fn over(mut admin: Client, cntlid: u16, notice: u32) -> Self {
        let wants = Command::set_features(0, fid::ASYNC_EVENT_CONFIGURATION, notice);
        assert!(admin.call(wants, &[]).0.status().is_success());
        let mut listener = Self {
            admin,
            cntlid,
            notice,
        };
        listener.listen();
        listener
    }

    /// Looks at the log page, which lets the next event come, and asks for it.
    fn listen(&mut self) {
        let lid = match self.notice {
            notices::ANA_CHANGE => lid::ANA,
            notices::NAMESPACE_ATTRIBUTE => lid::CHANGED_NAMESPACES,
            _ => lid::DISCOVERY,
        };
        let page = GetLogPage {
            lid,
            lsp: 0,
            retain_event: false,
            bytes: 1024,
            offset: 0,
            offset_type: false,
        };
        let read = Command::get_log_page(0, page);
        assert!(self.admin.call(read, &[]).0.status().is_success());
        self.admin.send(Command::async_event_request(), &[]);
    }

    /// Goes on listening if an event has come: what this host sends afterwards is known to be new.
    fn catch_up(&mut self) {
        if self.admin.has_answer(Duration::from_millis(5)) {
            self.admin.reply();
            self.listen();
        }
    }

    /// The event comes.
    fn hears(&mut self, event: AsyncEvent) {
        let (told, _) = self.admin.reply();
        assert_eq!(AsyncEvent::from_dw0(told.dw0.get()), event);
        self.listen();
    }
}

/// One queue of a host at one node.
struct Path {
    listener: Listener,
    io: Client,
    /// Ends this association, as a command to another controller.
    reset: Command,
}

impl Path {
    fn to(who: &Who, portal: SocketAddr) -> Self {
        Self::with(who, portal, |_| ())
    }

    /// After what the host does first with its admin queue.
    fn with(who: &Who, portal: SocketAddr, prepare: impl FnOnce(&mut Client)) -> Self {
        let (mut admin, cntlid) = Client::admin_as(who, portal);
        prepare(&mut admin);
        let reset = reset_of(&mut admin, cntlid);
        let listener = Listener::over(admin, cntlid, notices::ANA_CHANGE);
        let io = Client::io_as(who, portal, listener.cntlid, 1);
        Self {
            listener,
            io,
            reset,
        }
    }
}

/// Cross-Controller Reset of the controller that this is the admin queue of.
fn reset_of(admin: &mut Client, cntlid: u16) -> Command {
    let what = Identify {
        cns: cns::CONTROLLER,
        ..Identify::default()
    };
    let (_, page) = admin.call(Command::identify(0, what), &[]);
    let number = page[136..144].try_into().expect("eight bytes");
    let number = u64::from_le_bytes(number);
    let mut command = Command::new(0x38, 0);
    command
        .cdw10
        .set(u32::from(page[135]) << 16 | u32::from(cntlid));
    command.cdw12.set(number as u32);
    command.cdw13.set((number >> 32) as u32);
    command
}

/// A host of the volume, connected to both nodes.
struct Host {
    who: Who,
    key: u64,
    paths: Vec<Path>,
}

impl Host {
    fn new(cluster: &Cluster, number: u8) -> Self {
        let subsystem = cluster.volume("a")["nqn"].as_str().expect("an NQN").into();
        let who = Who {
            subsystem,
            nqn: format!("nqn.2024-01.com.example:{number}"),
            id: [number; 16],
        };
        let path = |node: &&str| Path::to(&who, cluster.portal(node));
        let paths = NODES.iter().map(path).collect();
        Self {
            who,
            key: number.into(),
            paths,
        }
    }

    /// Commands until one is not refused for its path: while a volume moves, and where a host has written by another
    /// association, that is what a host has to do.
    fn settled(&mut self, at: usize, mut command: impl FnMut(&mut Client) -> Status) -> Status {
        let begun = Instant::now();
        loop {
            let status = command(&mut self.paths[at].io);
            if !status.is_path_related() {
                return status;
            }
            assert!(begun.elapsed() < TEST_TIMEOUT, "still {status:?}");
            self.paths[at].listener.catch_up();
        }
    }

    fn ask(&mut self, at: usize, ask: Ask) -> Status {
        let (command, data) = ask.to_command(1);
        self.settled(at, |io| io.call(command, &data).0.status())
    }

    fn register(&mut self, at: usize, action: RegisterAction) {
        let (current, new) = match action {
            RegisterAction::Unregister => (self.key, 0),
            _ => (0, self.key),
        };
        let ask = Ask::Register {
            action,
            ignores_key: false,
            persistence: Persistence::On,
            current,
            new,
        };
        assert_eq!(self.ask(at, ask), Status::SUCCESS);
    }

    fn acquire(&mut self, at: usize, kind: ReservationType, preempted: u64) -> Status {
        let action = match preempted {
            0 => AcquireAction::Acquire,
            _ => AcquireAction::Preempt,
        };
        let ask = Ask::Acquire {
            action,
            kind,
            current: self.key,
            preempted,
        };
        self.ask(at, ask)
    }

    /// A write by either node, each answered at once.
    fn writes(&mut self) -> Vec<Status> {
        let data = vec![self.key as u8; BLOCK];
        let write = |at| {
            self.settled(at, |io| {
                let begun = Instant::now();
                let status = io.write(1, &data);
                assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
                status
            })
        };
        (0..NODES.len()).map(write).collect()
    }

    /// What both nodes report, which is the same.
    fn report(&mut self) -> ReservationStatus {
        let ask = |at: usize| {
            let command: Command = ReservationStatus::report(1, REPORT_BYTES);
            let begun = Instant::now();
            loop {
                let (completion, page) = self.paths[at].io.call(command, &[]);
                if completion.status().is_success() {
                    return ReservationStatus::parse(&page).expect("a report");
                }
                assert!(
                    completion.status().is_path_related() && begun.elapsed() < TEST_TIMEOUT,
                    "{:?}",
                    completion.status()
                );
            }
        };
        let told: Vec<_> = (0..NODES.len()).map(ask).collect();
        assert_eq!(told[0], told[1]);
        told[0].clone()
    }

    /// The paths that its nodes have cut are made anew.
    fn reconnect(&mut self, cluster: &Cluster, at: usize) {
        self.paths[at] = Path::to(&self.who, cluster.portal(NODES[at]));
    }
}

/// Where the volume's owner is, and where the other node.
fn seats(cluster: &Cluster) -> (usize, usize) {
    let mut owner = None;
    eventually("a node owns the volume", || {
        let shown = cluster.volume("a")["owner"].clone();
        owner = NODES.iter().position(|name| shown == *name);
        owner.is_some()
    });
    let owner = owner.expect("one");
    (owner, 1 - owner)
}

/// The volume is handed to the node that does not own it.
fn fail_over(cluster: &Cluster) {
    let is_in_sync = || {
        let shown = cluster.volume("a");
        let copies = shown["replicas"].as_array().expect("copies");
        copies.iter().all(|copy| copy["state"] == "in_sync")
    };
    eventually("all copies are in sync", is_in_sync);
    let (_, to) = seats(cluster);
    let to = NODES[to];
    ok(&mut cluster.to(to, &["volume", "move", "tank/db", "--to", to]));
}

/// One of each kind of holder; all where there is time.
fn kinds() -> Vec<ReservationType> {
    let soak = std::env::var_os("ASHLAR_SOAK").is_some_and(|soak| !soak.is_empty());
    match soak {
        true => ReservationType::ALL.to_vec(),
        false => vec![
            ReservationType::WriteExclusive,
            ReservationType::ExclusiveAccessRegistrants,
            ReservationType::WriteExclusiveAll,
        ],
    }
}

#[test]
fn reservations_hold_at_both_nodes_through_every_failover() {
    if !has_etcd() {
        return;
    }
    let cluster = Cluster::on_loopback();
    cluster.make_open_volume();
    let (mut one, mut two) = (Host::new(&cluster, 1), Host::new(&cluster, 2));
    for kind in kinds() {
        let is_shared = !kind.is_of_one();
        one.register(0, RegisterAction::Register);
        fail_over(&cluster);
        two.register(1, RegisterAction::Register);
        fail_over(&cluster);
        assert_eq!(one.acquire(1, kind, 0), Status::SUCCESS);
        fail_over(&cluster);
        let told = two.report();
        assert_eq!((told.kind, told.registrants.len()), (Some(kind), 2));
        let expected = match is_shared {
            true => Status::SUCCESS,
            false => FENCED,
        };
        assert_eq!(two.writes(), [expected; 2], "{kind:?}");
        fail_over(&cluster);
        // Who is preempted is fenced at once, wherever it is connected.
        assert_eq!(two.acquire(0, kind, one.key), Status::SUCCESS);
        assert_eq!(one.writes(), [FENCED; 2], "{kind:?}");
        assert_eq!(two.writes(), [Status::SUCCESS; 2], "{kind:?}");
        fail_over(&cluster);
        assert_eq!(one.writes(), [FENCED; 2], "{kind:?}");
        let told = one.report();
        let keys: Vec<u64> = told.registrants.iter().map(|one| one.key).collect();
        assert_eq!((told.kind, keys), (Some(kind), vec![two.key]));
        let clear = Ask::Release {
            action: ReleaseAction::Clear,
            kind: 0,
            current: two.key,
        };
        assert_eq!(two.ask(0, clear), Status::SUCCESS);
        assert_eq!(one.report().registrants, []);
    }
    // An owner that dies takes nothing of it along.
    one.register(0, RegisterAction::Register);
    assert_eq!(
        one.acquire(0, ReservationType::WriteExclusive, 0),
        Status::SUCCESS
    );
    let (dead, left) = seats(&cluster);
    cluster.kill(NODES[dead]);
    let data = vec![0; BLOCK];
    let fenced = two.settled(left, |io| io.write(1, &data));
    assert_eq!(fenced, FENCED);
    assert_eq!(one.settled(left, |io| io.write(1, &data)), Status::SUCCESS);
}

/// A host that is connected at one node only, whichever that is, hears what was decided at another.
#[test]
fn a_host_hears_of_its_reservation_at_the_node_that_was_not_asked() {
    if !has_etcd() {
        return;
    }
    let cluster = Cluster::on_loopback();
    cluster.make_open_volume();
    let (mut one, mut two) = (Host::new(&cluster, 1), Host::new(&cluster, 2));
    let (owner, other) = seats(&cluster);
    let kind = ReservationType::WriteExclusive;
    for host in [&mut one, &mut two] {
        host.register(owner, RegisterAction::Register);
    }
    for (asked, far) in [(owner, other), (other, owner)] {
        let (mut told, _) = Client::admin_as(&two.who, cluster.portal(NODES[far]));
        told.send(Command::async_event_request(), &[]);
        // Of one loss it may not hear: nodes tell each other once, and a busy one may not answer in time.
        eventually("it hears", || {
            assert_eq!(two.acquire(owner, kind, 0), Status::SUCCESS);
            assert_eq!(one.acquire(asked, kind, two.key), Status::SUCCESS);
            let has_heard = told.has_answer(AT_ONCE);
            two.register(owner, RegisterAction::Register);
            let release = Ask::Release {
                action: ReleaseAction::Release,
                kind: kind as u8,
                current: one.key,
            };
            assert_eq!(one.ask(owner, release), Status::SUCCESS);
            has_heard
        });
        let event = AsyncEvent::from_dw0(told.reply().0.dw0.get());
        assert_eq!(event, AsyncEvent::ReservationLogAvailable);
    }
}

#[test]
fn whether_reservations_outlive_a_loss_of_power_is_told_by_every_node() {
    if !has_etcd() {
        return;
    }
    let cluster = Cluster::on_loopback();
    cluster.make_open_volume();
    let mut host = Host::new(&cluster, 1);
    let who = host.who.clone();
    let told = || {
        NODES.map(|node| {
            let (mut admin, _) = Client::admin_as(&who, cluster.portal(node));
            let get = Command::get_features(1, fid::RESERVATION_PERSISTENCE);
            let (reply, _) = admin.call(get, &[]);
            (reply.status(), reply.dw0.get())
        })
    };
    assert_eq!(told(), [(Status::SUCCESS, 0); 2]);
    host.register(0, RegisterAction::Register);
    assert_eq!(told(), [(Status::SUCCESS, 1); 2]);
}

fn stop(cluster: &Cluster, node: &str) -> Vec<i32> {
    let all = working_in(&cluster.path(node));
    for &pid in &all {
        send(pid, Signal::STOP);
    }
    eventually("all threads have stopped", || {
        all.iter().all(|&pid| is_stopped(pid))
    });
    all
}

fn is_stopped(pid: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it is there");
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.contains(") T ")
    })
}

fn resume(stopped: Vec<i32>) {
    for pid in stopped {
        send(pid, Signal::CONT);
    }
}

#[test]
fn a_write_that_a_stopped_forwarder_holds_does_not_undo_newer_ones() {
    if !has_etcd() {
        return;
    }
    let cluster = Cluster::on_loopback();
    cluster.make_open_volume();
    let (owner, forwarder) = seats(&cluster);
    let mut host = Host::new(&cluster, 1);
    let (old, new) = (vec![1; BLOCK], vec![2; BLOCK]);
    let forward = host.settled(forwarder, |io| io.write(0, &old));
    assert_eq!(forward, Status::SUCCESS, "it is forwarded");
    // It stops for less than others would notice: the newer write waits for its copy, and is first all the same.
    for block in 0..4 {
        for _ in 0..2 {
            let fresh = host.settled(forwarder, |io| io.write(block, &old));
            assert_eq!(fresh, Status::SUCCESS);
        }
        let stopped = stop(&cluster, NODES[forwarder]);
        host.paths[forwarder].io.send_write(block, &old);
        // Until one is not refused at once, for its connection's label was old, too: it waits for the copy.
        host.paths[owner].io.send_write(block, &new);
        while host.paths[owner].io.has_answer(NOT_NOTICED) {
            let refused = host.paths[owner].io.next_status();
            assert_eq!(refused, Some(Status::ANA_TRANSITION));
            host.paths[owner].listener.catch_up();
            host.paths[owner].io.send_write(block, &new);
        }
        resume(stopped);
        assert_eq!(host.paths[owner].io.next_status(), Some(Status::SUCCESS));
        let late = host.paths[forwarder].io.next_status();
        assert!(late.is_none_or(|status| !status.is_success()), "{late:?}");
        let found = host.paths[owner].io.read(block, BLOCK as u32);
        assert!(found == new, "block {block}: {:?}", &found[..2]);
    }
    // Some are between host, forwarder and owner when it stops; the last is where it waits to be read.
    let many = 16;
    for block in 0..many {
        host.paths[forwarder].io.send_write(block, &old);
    }
    let stopped = stop(&cluster, NODES[forwarder]);
    host.paths[forwarder].io.send_write(many, &old);
    for block in 0..=many {
        let written = host.settled(owner, |io| io.write(block, &new));
        assert_eq!(written, Status::SUCCESS);
    }
    resume(stopped);
    // Its answers, or the end of the connection: the last one was never in time.
    let mut last = None;
    for _ in 0..=many {
        match host.paths[forwarder].io.next_status() {
            Some(status) => last = Some(status),
            None => {
                last = None;
                break;
            }
        }
    }
    assert!(last.is_none_or(|status| !status.is_success()), "{last:?}");
    host.reconnect(&cluster, forwarder);
    for at in [0, 1] {
        for block in 0..=many {
            let mut found = Vec::new();
            eventually("it is read", || {
                let (status, data) = host.paths[at].io.try_read(block, BLOCK as u32);
                found = data;
                status.is_success()
            });
            assert!(
                found == new,
                "block {block} by {}: {:?}",
                NODES[at],
                &found[..2]
            );
        }
    }
}

/// A service's attachment: what its node gets late must not come under the next owner's epoch, whatever became of it.
#[test]
fn a_host_that_wants_nothing_handed_on_is_served_by_the_owner_alone() {
    if !has_etcd() {
        return;
    }
    let cluster = Cluster::on_loopback();
    cluster.make_open_volume();
    let (owner, other) = seats(&cluster);
    let mut host = Host::new(&cluster, 1);
    let keeps = |admin: &mut Client| {
        let command = Command::set_features(0, fid::HERE_ONLY, HANDS_NOTHING_ON);
        assert!(admin.call(command, &[]).0.status().is_success());
    };
    let forwarded = host.settled(other, |io| io.write(0, &[1; BLOCK]));
    assert_eq!(forwarded, Status::SUCCESS, "others are served there, too");
    let who = host.who.clone();
    host.paths = NODES
        .map(|node| Path::with(&who, cluster.portal(node), keeps))
        .into();
    let written = host.settled(owner, |io| io.write(0, &[2; BLOCK]));
    assert_eq!(written, Status::SUCCESS);
    for _ in 0..3 {
        let io = &mut host.paths[other].io;
        assert_eq!(io.write(0, &[3; BLOCK]), Status::ANA_INACCESSIBLE);
        assert_eq!(io.try_read(0, BLOCK as u32).0, Status::ANA_INACCESSIBLE);
        host.paths[other].listener.catch_up();
    }
    // Its daemon stands still with a write, for so long that another node serves.
    let stopped = stop(&cluster, NODES[owner]);
    host.paths[owner].io.send_write(0, &[4; BLOCK]);
    let new = vec![5; BLOCK];
    let written = host.settled(other, |io| io.write(0, &new));
    assert_eq!(written, Status::SUCCESS);
    resume(stopped);
    let late = host.paths[owner].io.next_status();
    assert!(late.is_none_or(|status| !status.is_success()), "{late:?}");
    let found = host.paths[other].io.read(0, BLOCK as u32);
    assert!(found == new, "{:?}", &found[..2]);
}

/// A host whose kernel sends by two portals of a node in turn: what one has written beside the other is no reason to
/// refuse either.
#[test]
fn a_host_that_writes_by_two_associations_at_once_is_hardly_refused() {
    const AT_ONCE: u64 = 8;
    const TURNS: u64 = 200;
    const BLOCKS: u64 = 2048;
    if !has_etcd() {
        return;
    }
    let cluster = Cluster::on_loopback();
    cluster.make_open_volume();
    let (owner, _) = seats(&cluster);
    let who = Host::new(&cluster, 1).who;
    let mut paths = [(); 2].map(|()| Path::to(&who, cluster.portal(NODES[owner])));
    let data = vec![7; BLOCK];
    let (mut refused, begun) = (0, Instant::now());
    for turn in 0..TURNS {
        for (path, half) in paths.iter_mut().zip(0..) {
            // Each block by one of them at a time, and by both in the end.
            let first = (2 * turn + (half + turn) % 2) * AT_ONCE;
            for block in first..first + AT_ONCE {
                path.io.send_write(block % BLOCKS, &data);
            }
        }
        for path in &mut paths {
            let mut lags = false;
            for _ in 0..AT_ONCE {
                let status = path.io.next_status().expect("an answer");
                assert!(status.is_success() || status == Status::ANA_TRANSITION);
                lags |= !status.is_success();
                refused += u64::from(!status.is_success());
            }
            if lags {
                path.listener.catch_up();
            }
        }
    }
    let (all, took) = (2 * TURNS * AT_ONCE, begun.elapsed());
    let rate = (all - refused) as f64 / took.as_secs_f64();
    println!("{refused} of {all} writes were refused, {rate:.0} a second were not");
    assert!(refused < all / 20, "{refused} of {all}");
}

/// What the other node holds of an association takes no effect once its end was told: not after a read, either.
#[test]
fn a_read_behind_the_reset_of_another_nodes_controller_is_not_reverted() {
    if !has_etcd() {
        return;
    }
    let cluster = Cluster::on_loopback();
    cluster.make_open_volume();
    let (owner, forwarder) = seats(&cluster);
    let mut host = Host::new(&cluster, 1);
    let (old, late) = (vec![1; BLOCK], vec![2; BLOCK]);
    for block in 0..4 {
        // The label of what is sent next is fresh: the host has written by no other association.
        for _ in 0..2 {
            let fresh = host.settled(forwarder, |io| io.write(block, &old));
            assert_eq!(fresh, Status::SUCCESS);
        }
        let (mut other, _) = Client::admin_as(&host.who, cluster.portal(NODES[owner]));
        let since = Instant::now();
        let stopped = stop(&cluster, NODES[forwarder]);
        host.paths[forwarder].io.send_write(block, &late);
        other.send(host.paths[forwarder].reset, &[]);
        // Until it is durable on both the answer does not come, if this machine was not held up for so long that the
        // other copy was given up.
        let is_early = other.has_answer(NOT_NOTICED) && since.elapsed() < 4 * NOT_NOTICED;
        assert!(!is_early, "block {block}");
        resume(stopped);
        let (reset, _) = other.reply();
        assert_eq!((reset.status(), reset.dw0.get()), (Status::SUCCESS, 1));
        let mut found = Vec::new();
        eventually("it is read", || {
            let (status, data) = host.paths[owner].io.try_read(block, BLOCK as u32);
            found = data;
            status.is_success()
        });
        let status = host.paths[forwarder].io.next_status();
        let is_refused = status.is_none_or(|status| !status.is_success());
        assert!(is_refused, "block {block}: {status:?}");
        assert!(found == old, "block {block}: {:?}", &found[..2]);
        host.reconnect(&cluster, forwarder);
    }
}

/// Where a volume is, as a node's discovery tells our own initiator.
fn portals(cluster: &Cluster, asked: &str) -> BTreeSet<String> {
    let address = cluster.portal(asked).to_string();
    let entries = discover(&address, &local_host()).expect("discovery");
    let portal = |entry: &DiscoveryEntry| format!("{}:{}", entry.traddr(), entry.trsvcid());
    entries.iter().map(portal).collect()
}

#[test]
fn hosts_are_told_when_a_node_gets_a_copy_loses_it_or_serves() {
    if !has_etcd() {
        return;
    }
    let cluster = Cluster::on_loopback();
    cluster.make_open_volume();
    let at = |names: &[&str]| -> BTreeSet<String> {
        let portals = names.iter().map(|name| cluster.portal(name).to_string());
        portals.collect()
    };
    assert_eq!(portals(&cluster, "a"), at(&NODES));
    assert_eq!(portals(&cluster, "b"), at(&NODES));
    let host = Host::new(&cluster, 1);
    let paths = NODES.map(|node| cluster.portal(node));
    let mut paths = paths.map(|portal| Listener::to(&host.who, portal, notices::ANA_CHANGE));
    fail_over(&cluster);
    for path in &mut paths {
        path.hears(AsyncEvent::AnaChange);
    }
    let owner = NODES[seats(&cluster).0];
    let discovery = Who {
        subsystem: DISCOVERY_NQN.into(),
        ..host.who.clone()
    };
    let notice = notices::DISCOVERY_LOG_CHANGE;
    let mut listener = Listener::to(&discovery, cluster.portal(owner), notice);
    for (replicas, names) in [("1", &[owner][..]), ("2", &NODES)] {
        let words = ["volume", "replicate", "tank/db", "--replicas", replicas];
        ok(&mut cluster.to(owner, &words));
        listener.hears(AsyncEvent::DiscoveryLogChange);
        assert_eq!(portals(&cluster, owner), at(names), "{replicas}");
    }
}

/// Blocks that a node tells a host which connects anew.
fn blocks(who: &Who, portal: SocketAddr) -> u64 {
    let what = Identify {
        cns: cns::NAMESPACE,
        cntid: 0,
        csi: 0,
    };
    let (mut admin, _) = Client::admin_as(who, portal);
    let (completion, page) = admin.call(Command::identify(1, what), &[]);
    assert!(
        completion.status().is_success(),
        "{:?}",
        completion.status()
    );
    page.first_chunk()
        .map_or(0, |size| u64::from_le_bytes(*size))
}

#[test]
fn a_replicated_volume_grows_under_its_hosts_and_stays_so_through_a_failover() {
    if !has_etcd() {
        return;
    }
    const OLD: u64 = 16 << 20;
    const NEW: u64 = 40 << 20;
    let cluster = Cluster::on_loopback();
    cluster.make_open_volume();
    cluster.serve_from("a");
    let mut host = Host::new(&cluster, 1);
    let end = OLD / BLOCK as u64;
    host.register(0, RegisterAction::Register);
    let before = host.report();
    let pattern =
        |seed: u8| -> Vec<u8> { (0..4 * BLOCK).map(|at| (at / BLOCK) as u8 + seed).collect() };
    let put = |host: &mut Host, at: usize, block: u64, data: &[u8]| {
        let written = host.settled(at, |io| io.write(block, data));
        assert_eq!(written, Status::SUCCESS, "block {block} by {}", NODES[at]);
    };
    put(&mut host, 0, end - 4, &pattern(10));
    let resize =
        |node: &str, size: &str| cluster.to(node, &["volume", "resize", "tank/db", "--size", size]);
    let portals = NODES.map(|node| cluster.portal(node));
    let mut listeners =
        portals.map(|portal| Listener::to(&host.who, portal, notices::NAMESPACE_ATTRIBUTE));
    refuses(&mut resize("a", "8MiB"), 3, &["and not smaller"]);
    // By the node that does not own it.
    ok(&mut resize("b", "40MiB"));
    for listener in &mut listeners {
        listener.hears(AsyncEvent::NamespaceAttributeChanged);
    }
    // On both sides of where the volume ended, and at its end now.
    put(&mut host, 1, end - 2, &pattern(20));
    put(&mut host, 0, NEW / BLOCK as u64 - 4, &pattern(30));
    let beyond = host.settled(0, |io| io.write(NEW / BLOCK as u64, &pattern(0)));
    assert_eq!(beyond.with_dnr(), Status::LBA_OUT_OF_RANGE.with_dnr());
    ok(&mut resize("a", "40MiB"));
    ok(&mut cluster.to("b", &["volume", "verify", "tank/db"]));
    fail_over(&cluster);
    let expected = [
        (end - 4, pattern(10)[..2 * BLOCK].to_vec()),
        (end - 2, pattern(20)),
        (NEW / BLOCK as u64 - 4, pattern(30)),
    ];
    for at in [0, 1] {
        assert_eq!(
            blocks(&host.who, portals[at]),
            NEW / BLOCK as u64,
            "{}",
            NODES[at]
        );
        assert_eq!(cluster.volume(NODES[at])["bytes"], NEW);
        for (block, data) in &expected {
            let mut found = Vec::new();
            host.settled(at, |io| {
                let (status, data_read) = io.try_read(*block, data.len() as u32);
                found = data_read;
                status
            });
            assert!(found == *data, "block {block} by {}", NODES[at]);
        }
    }
    assert_eq!(host.report(), before);
}
