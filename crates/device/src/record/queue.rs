use std::sync::Arc;

use ashlar_block::{BlockDevice, Completion, Description, Geometry, Moment, Request};
use slab::Slab;

use super::recorder::Recorder;

/// One core's queue of a recorded device.
pub(super) struct RecordQueue {
    child: Box<dyn BlockDevice>,
    recorder: Arc<Recorder>,
    flights: Slab<Flight>,
    arrived: Vec<Completion>,
    refused: Vec<Completion>,
}

struct Flight {
    tag: u64,
    /// Its number in the trace; none for a read.
    id: Option<u64>,
}

impl RecordQueue {
    pub(super) fn new(child: Box<dyn BlockDevice>, recorder: Arc<Recorder>) -> Self {
        Self {
            child,
            recorder,
            flights: Slab::new(),
            arrived: Vec::new(),
            refused: Vec::new(),
        }
    }
}

impl BlockDevice for RecordQueue {
    fn geometry(&self) -> Geometry {
        self.child.geometry()
    }

    fn submit(&mut self, mut request: Request) {
        match self.recorder.submitted(&request) {
            Ok(id) => {
                let tag = request.tag;
                request.tag = self.flights.insert(Flight { tag, id }) as u64;
                self.child.submit(request);
            }
            Err(error) => self.refused.push(request.complete(Err(error))),
        }
    }

    fn poll(&mut self, now: Moment, done: &mut Vec<Completion>) {
        let mut arrived = std::mem::take(&mut self.arrived);
        self.child.poll(now, &mut arrived);
        for mut completion in arrived.drain(..) {
            let Some(flight) = self.flights.try_remove(completion.tag as usize) else {
                continue;
            };
            completion.tag = flight.tag;
            // Before the owner learns of it: whatever follows from this has a later stamp.
            if let Some(id) = flight.id
                && let Err(error) = self.recorder.done(id, completion.result.is_err())
            {
                completion.result = completion.result.and(Err(error));
            }
            done.push(completion);
        }
        self.arrived = arrived;
        done.append(&mut self.refused);
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.child.next_deadline()
    }

    fn describe(&self) -> Description {
        Description::over(self.recorder.title(), vec![self.child.describe()])
    }
}
