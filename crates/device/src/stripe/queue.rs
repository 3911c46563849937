use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ashlar_block::{
    BlockDevice, BlockRange, Completion, Description, ErrorKind, Geometry, IoBuffer, IoError,
    Moment, Operation, Request,
};
use slab::Slab;

use super::layout::Layout;
use super::{Stripe, title};

/// One core's stripe: splits requests into pieces for the children and counts them back.
pub(super) struct StripeQueue {
    geometry: Geometry,
    layout: Layout,
    latched: Arc<AtomicBool>,
    children: Vec<Box<dyn BlockDevice>>,
    flights: Slab<Flight>,
    /// Empty vectors for the pieces of requests to come, so that none is allocated a request.
    spare: Vec<Vec<Option<IoBuffer>>>,
    arrived: Vec<Completion>,
    done: Vec<Completion>,
}

struct Flight {
    tag: u64,
    op: Operation,
    /// The pieces' buffers as they come back, in order.
    buffers: Vec<Option<IoBuffer>>,
    missing: usize,
    result: Result<(), IoError>,
}

impl StripeQueue {
    pub(super) fn new(stripe: &Stripe, children: Vec<Box<dyn BlockDevice>>) -> Self {
        Self {
            geometry: stripe.geometry,
            layout: stripe.layout,
            latched: stripe.latched.clone(),
            children,
            flights: Slab::new(),
            spare: Vec::new(),
            arrived: Vec::new(),
            done: Vec::new(),
        }
    }

    fn latched_error(&self) -> IoError {
        let context = title(&self.geometry, self.layout) + ": an earlier flush failed";
        IoError::new(ErrorKind::Latched, context)
    }

    fn send(&mut self, index: usize, child: usize, range: BlockRange, buffer: Option<IoBuffer>) {
        let flight = &mut self.flights[index];
        let piece = flight.buffers.len();
        flight.buffers.push(None);
        flight.missing += 1;
        self.children[child].submit(Request {
            tag: (index as u64) << 32 | piece as u64,
            op: flight.op,
            range,
            buffer,
        });
    }

    /// Sends each chunk's part of the buffer to its child.
    fn transfer(&mut self, index: usize, range: BlockRange, buffer: IoBuffer) {
        let mut rest = buffer;
        for piece in self.layout.pieces(range) {
            let tail = rest.split_off(self.geometry.range_bytes(piece.range).min(rest.len()));
            self.send(index, piece.child, piece.range, Some(rest));
            rest = tail;
        }
    }

    /// Sends each child what it has of the range, or the flush.
    fn tell_all(&mut self, index: usize, range: BlockRange) {
        for child in 0..self.children.len() {
            let part = self.layout.on_child(range, child);
            if part.count > 0 || self.flights[index].op == Operation::Flush {
                self.send(index, child, part, None);
            }
        }
    }

    fn take_back(&mut self, completion: Completion) {
        let (index, piece) = (
            (completion.tag >> 32) as usize,
            completion.tag as u32 as usize,
        );
        let Some(flight) = self.flights.get_mut(index) else {
            return;
        };
        if let Err(error) = completion.result {
            if flight.op == Operation::Flush || error.kind() == ErrorKind::Latched {
                self.latched.store(true, Ordering::Release);
            }
            if flight.result.is_ok() {
                flight.result = Err(error);
            }
        }
        flight.buffers[piece] = completion.buffer;
        flight.missing -= 1;
        if flight.missing == 0 {
            self.finish(index);
        }
    }

    fn finish(&mut self, index: usize) {
        let Flight {
            tag,
            op,
            mut buffers,
            mut result,
            ..
        } = self.flights.remove(index);
        let buffer = join(&mut buffers);
        self.spare.push(buffers);
        if op.has_buffer() && buffer.is_none() && result.is_ok() {
            let context = "stripe: a device kept its part of the buffer";
            result = Err(IoError::new(ErrorKind::Internal, context));
        }
        self.done.push(Completion {
            tag,
            buffer,
            result,
        });
    }
}

/// The whole buffer, if all its parts are there; leaves the vector empty.
fn join(parts: &mut Vec<Option<IoBuffer>>) -> Option<IoBuffer> {
    let mut parts = parts.drain(..);
    let mut whole = parts.next()??;
    for part in parts {
        whole.join(part?).ok()?;
    }
    Some(whole)
}

impl BlockDevice for StripeQueue {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, request: Request) {
        if self.latched.load(Ordering::Acquire) {
            let error = self.latched_error();
            return self.done.push(request.complete(Err(error)));
        }
        let index = self.flights.insert(Flight {
            tag: request.tag,
            op: request.op,
            buffers: self.spare.pop().unwrap_or_default(),
            missing: 0,
            result: Ok(()),
        });
        match request.buffer {
            Some(buffer) => self.transfer(index, request.range, buffer),
            None => self.tell_all(index, request.range),
        }
        if self.flights[index].missing == 0 {
            self.finish(index);
        }
    }

    fn poll(&mut self, now: Moment, done: &mut Vec<Completion>) {
        let mut arrived = std::mem::take(&mut self.arrived);
        for child in &mut self.children {
            child.poll(now, &mut arrived);
        }
        for completion in arrived.drain(..) {
            self.take_back(completion);
        }
        self.arrived = arrived;
        done.append(&mut self.done);
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.children
            .iter()
            .filter_map(|child| child.next_deadline())
            .min()
    }

    fn describe(&self) -> Description {
        let below = self.children.iter().map(|child| child.describe()).collect();
        Description::over(title(&self.geometry, self.layout), below)
    }
}
