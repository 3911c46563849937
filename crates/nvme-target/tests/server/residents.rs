use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ashlar_block::{
    BlockDevice, BlockSize, Completion, Description, ErrorKind, Geometry, IoError, Moment, Request,
};
use ashlar_nvme_target::server::{Resident, ServeError};
use ashlar_reactor::{Handle, Opener};

use crate::rig::{Rig, eventually, export, serve, stop};

const NQN: &str = "nqn.2026-01.io.ashlar:pool:engine";

/// What engine and devices of a core share.
#[derive(Default)]
struct Desk {
    asked: VecDeque<(u64, Request)>,
    answered: Vec<(u64, Completion)>,
    devices: u64,
}

thread_local! {
    static DESK: RefCell<Option<Rc<RefCell<Desk>>>> = const { RefCell::new(None) };
}

/// Counters that the test looks at.
#[derive(Default)]
struct Seen {
    polls: AtomicU64,
    dropped: AtomicBool,
    panics: AtomicBool,
}

/// Answers every request in the turn in which it was asked.
struct Engine {
    desk: Rc<RefCell<Desk>>,
    seen: Arc<Seen>,
    wakes: Option<Duration>,
    next: Moment,
}

impl Resident for Engine {
    fn poll(&mut self, now: Moment) {
        assert!(!self.seen.panics.load(Ordering::SeqCst), "as it was told");
        self.seen.polls.fetch_add(1, Ordering::SeqCst);
        if let Some(period) = self.wakes {
            self.next = now + period;
        }
        let mut desk = self.desk.borrow_mut();
        while let Some((device, request)) = desk.asked.pop_front() {
            desk.answered.push((device, request.complete(Ok(()))));
        }
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.wakes.map(|_| self.next)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        DESK.with_borrow_mut(|desk| *desk = None);
        self.seen.dropped.store(true, Ordering::SeqCst);
    }
}

/// A device that only passes on: without a turn of the engine nothing happens.
struct Volume {
    desk: Rc<RefCell<Desk>>,
    number: u64,
}

fn geometry() -> Geometry {
    Geometry::plain(BlockSize::B4096, 64)
}

impl BlockDevice for Volume {
    fn geometry(&self) -> Geometry {
        geometry()
    }

    fn submit(&mut self, request: Request) {
        let item = (self.number, request);
        self.desk.borrow_mut().asked.push_back(item);
    }

    fn poll(&mut self, _: Moment, done: &mut Vec<Completion>) {
        let mut desk = self.desk.borrow_mut();
        let (mine, others) = std::mem::take(&mut desk.answered)
            .into_iter()
            .partition(|(number, _)| *number == self.number);
        desk.answered = others;
        let mine: Vec<(u64, Completion)> = mine;
        done.extend(mine.into_iter().map(|(_, completion)| completion));
    }

    fn describe(&self) -> Description {
        Description::leaf("test volume")
    }
}

struct VolumeOpener;

impl Opener for VolumeOpener {
    fn geometry(&self) -> Geometry {
        geometry()
    }

    fn open(&self, _: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
        let desk = DESK.with_borrow(Clone::clone);
        let desk = desk.ok_or(IoError::new(ErrorKind::Internal, "no engine here"))?;
        desk.borrow_mut().devices += 1;
        let number = desk.borrow().devices;
        Ok(Box::new(Volume { desk, number }))
    }

    fn describe(&self) -> Description {
        Description::leaf("test volume")
    }
}

fn settle(
    server: &ashlar_nvme_target::server::Server,
    core: usize,
    name: &str,
    wakes: Option<Duration>,
) -> Result<Arc<Seen>, ServeError> {
    let seen = Arc::new(Seen::default());
    let kept = seen.clone();
    let make = move |handle: &Handle| {
        let desk: Rc<RefCell<Desk>> = Rc::default();
        DESK.with_borrow_mut(|place| *place = Some(desk.clone()));
        let next = handle.now();
        let engine = Engine {
            desk,
            seen: kept,
            wakes,
            next,
        };
        Ok(Box::new(engine) as Box<dyn Resident>)
    };
    server.settle_in(core, name, Box::new(make))?;
    Ok(seen)
}

#[test]
fn an_engine_answers_in_the_turn_of_the_command() {
    let server = serve();
    // Without an engine the volume cannot be opened.
    let early = server.add(export(NQN, Arc::new(VolumeOpener)));
    assert!(matches!(early, Err(ServeError::Device(_))));
    let cores = server.control().cores();
    let engines: Vec<_> = (0..cores)
        .map(|core| settle(&server, core, &format!("engine {core}"), None).expect("settled"))
        .collect();
    server
        .add(export(NQN, Arc::new(VolumeOpener)))
        .expect("added");
    let mut rig = Rig::connect(&server, NQN, "?queues=2").expect("connected");
    let start = Instant::now();
    for round in 0..500 {
        rig.write(round % 64, 1);
    }
    let took = start.elapsed();
    println!("{:?} a write", took / 500);
    // Left to the next tick, each would take half a second.
    assert!(took < Duration::from_secs(20), "{took:?}");
    drop(rig);
    server.remove(NQN).expect("removed");
    server.move_out("engine 0").expect("moved out");
    assert!(engines[0].dropped.load(Ordering::SeqCst));
    assert!(matches!(
        server.move_out("engine 0"),
        Err(ServeError::Config(_))
    ));
    stop(server);
    assert!(
        engines
            .iter()
            .all(|engine| engine.dropped.load(Ordering::SeqCst))
    );
}

#[test]
fn a_resident_has_its_deadlines_kept() {
    let server = serve();
    let quiet = settle(&server, 0, "quiet", None).expect("settled");
    let last = server.control().cores() - 1;
    let period = Duration::from_millis(10);
    let busy = settle(&server, last, "busy", Some(period)).expect("settled");
    let before = quiet.polls.load(Ordering::SeqCst);
    eventually("it is polled", || busy.polls.load(Ordering::SeqCst) > 30);
    if last > 0 {
        let more = quiet.polls.load(Ordering::SeqCst) - before;
        assert!(more < 10, "nothing happens, no resident is polled: {more}");
    }
    let taken = settle(&server, 0, "busy", None);
    assert!(matches!(taken, Err(ServeError::Config(_))));
    let nowhere = settle(&server, 99, "nowhere", None);
    assert!(matches!(nowhere, Err(ServeError::Config(_))));
    let broken = |_: &Handle| Err(IoError::new(ErrorKind::Media, "no pool here"));
    let refused = server.settle_in(0, "broken", Box::new(broken));
    assert!(matches!(refused, Err(ServeError::Resident(_))));
    stop(server);
}

#[test]
fn a_resident_that_panics_is_a_core_that_dies() {
    let server = serve();
    let engine = settle(&server, 0, "mad", Some(Duration::from_millis(1))).expect("settled");
    engine.panics.store(true, Ordering::SeqCst);
    let control = server.control();
    eventually("changes are refused", || {
        matches!(
            control.add(export(NQN, Arc::new(VolumeOpener))),
            Err(ServeError::Core(..))
        )
    });
    match server.wait() {
        Err(ServeError::Core(_, why)) => assert!(why.contains("as it was told"), "{why}"),
        other => panic!("{other:?}"),
    }
    control.stop();
}
