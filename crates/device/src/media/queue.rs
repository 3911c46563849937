use ashlar_block::{BlockDevice, Completion, Description, Geometry, Moment, Request};
use ashlar_reactor::Opener;
use slab::Slab;

use super::{Command, Id, Media, SharedEngine, Work};

/// One core's queue of a medium.
pub(super) struct MediaQueue {
    child: Box<dyn BlockDevice>,
    geometry: Geometry,
    engine: SharedEngine,
    number: usize,
    title: String,
    /// Submitted but not yet admitted: only `poll` knows the time.
    fresh: Vec<Request>,
    flights: Slab<Flight>,
    /// Commands that the model has not finished.
    modelled: usize,
    next_event: Option<Moment>,
    arrived: Vec<Completion>,
    ended: Vec<usize>,
}

/// A command is complete when the child has done it and its time has come.
struct Flight {
    tag: u64,
    completion: Option<Completion>,
    due: bool,
}

impl MediaQueue {
    pub(super) fn new(media: &Media, child: Box<dyn BlockDevice>) -> Self {
        let mut engine = media.engine.lock();
        let number = engine.finished.len();
        engine.finished.push(Vec::new());
        drop(engine);
        Self {
            child,
            geometry: media.geometry(),
            engine: media.engine.clone(),
            number,
            title: media.title.clone(),
            fresh: Vec::new(),
            flights: Slab::new(),
            modelled: 0,
            next_event: None,
            arrived: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Hands new requests to the model, takes out what it has finished.
    fn model(&mut self, now: Moment) {
        if self.fresh.is_empty() && self.modelled == 0 {
            return;
        }
        let mut engine = self.engine.lock();
        engine.advance(now);
        for mut request in self.fresh.drain(..) {
            let flight = self.flights.insert(Flight {
                tag: request.tag,
                completion: None,
                due: false,
            });
            self.modelled += 1;
            engine.model.admit(Command {
                id: Id {
                    queue: self.number,
                    flight,
                },
                work: Work::from(request.op),
                offset: self.geometry.range_offset(request.range),
                len: u64::from(request.range.count) << self.geometry.block_size.shift(),
                arrival: now,
            });
            request.tag = flight as u64;
            self.child.submit(request);
        }
        engine.advance(now);
        self.ended.append(&mut engine.finished[self.number]);
        self.modelled -= self.ended.len();
        let next = engine.model.next_event();
        self.next_event = next.filter(|_| self.modelled > 0);
    }

    fn settle(&mut self, index: usize, done: &mut Vec<Completion>) {
        let Some(flight) = self.flights.get_mut(index).filter(|flight| flight.due) else {
            return;
        };
        if let Some(mut completion) = flight.completion.take() {
            completion.tag = flight.tag;
            self.flights.remove(index);
            done.push(completion);
        }
    }
}

impl BlockDevice for MediaQueue {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, request: Request) {
        self.fresh.push(request);
    }

    fn poll(&mut self, now: Moment, done: &mut Vec<Completion>) {
        self.model(now);
        let mut arrived = std::mem::take(&mut self.arrived);
        self.child.poll(now, &mut arrived);
        for completion in arrived.drain(..) {
            let index = completion.tag as usize;
            if let Some(flight) = self.flights.get_mut(index) {
                flight.completion = Some(completion);
                self.settle(index, done);
            }
        }
        self.arrived = arrived;
        while let Some(index) = self.ended.pop() {
            if let Some(flight) = self.flights.get_mut(index) {
                flight.due = true;
            }
            self.settle(index, done);
        }
    }

    fn next_deadline(&self) -> Option<Moment> {
        let child = self.child.next_deadline();
        [self.next_event, child].into_iter().flatten().min()
    }

    fn describe(&self) -> Description {
        Description::over(self.title.clone(), vec![self.child.describe()])
    }
}

impl Drop for MediaQueue {
    fn drop(&mut self) {
        // What this queue left unfinished still occupies the medium, as it would a real one; its
        // results go nowhere.
        self.engine.lock().finished[self.number] = Vec::new();
    }
}
