use std::collections::VecDeque;
use std::time::Duration;

use ashlar_block::{
    BlockDevice, BlockRange, Completion, Description, ErrorKind, Geometry, IoBuffer, IoError, Lba,
    Moment, Request,
};
use slab::Slab;

use super::control::{FaultControl, Verdict};
use super::rule::Action;

/// How soon a queue with stalled requests looks again whether they were released.
const STALL_CHECK: Duration = Duration::from_millis(1);

/// One thread's view of a faulty device. Needs no reactor, so a simulator can use it too.
pub struct FaultyDevice<D> {
    child: D,
    control: FaultControl,
    flights: Slab<Flight>,
    /// Requests held back, and how many releases there had been then.
    stalled: VecDeque<(u64, Request)>,
    /// Requests that are never answered.
    hung: Vec<Request>,
    /// Completions not due yet.
    delayed: Vec<(Moment, Completion)>,
    next_check: Option<Moment>,
    arrived: Vec<Completion>,
    done: Vec<Completion>,
}

/// A request that the child has.
struct Flight {
    tag: u64,
    after: After,
}

/// What to do to its completion.
enum After {
    Nothing,
    Delay(Duration),
    FlipBit(u64),
    /// Put the rest of a torn write's buffer back; fail unless silent.
    Torn(Option<IoBuffer>, bool),
}

impl<D: BlockDevice> FaultyDevice<D> {
    /// `child`, misbehaving as `control` says.
    pub fn new(child: D, control: FaultControl) -> Self {
        Self {
            child,
            control,
            flights: Slab::new(),
            stalled: VecDeque::new(),
            hung: Vec::new(),
            delayed: Vec::new(),
            next_check: None,
            arrived: Vec::new(),
            done: Vec::new(),
        }
    }

    fn forward(&mut self, mut request: Request, after: After) {
        let tag = request.tag;
        request.tag = self.flights.insert(Flight { tag, after }) as u64;
        self.child.submit(request);
    }

    fn strike(&mut self, mut request: Request, verdict: Verdict) {
        match verdict.action {
            Action::Error(kind) => {
                let error = IoError::new(kind, format!("injected at {}", request.range));
                self.done.push(request.complete(Err(error)));
            }
            Action::Delay(by) => self.forward(request, After::Delay(by)),
            Action::Stall => self.stalled.push_back((verdict.releases, request)),
            Action::Hang => self.hung.push(request),
            Action::Torn { blocks, silent } => self.tear(request, blocks, silent),
            Action::Drop => self.done.push(request.complete(Ok(()))),
            Action::Misdirect(to) => {
                let last = self.child.geometry().blocks - u64::from(request.range.count);
                request.range.start = Lba(to.0.min(last));
                self.forward(request, After::Nothing);
            }
            Action::FlipBit => self.forward(request, After::FlipBit(verdict.random)),
        }
    }

    fn tear(&mut self, mut request: Request, blocks: u32, silent: bool) {
        let kept = BlockRange {
            count: blocks.min(request.range.count),
            ..request.range
        };
        let bytes = self.child.geometry().range_bytes(kept);
        let rest = request.buffer.as_mut().map(|b| b.split_off(bytes));
        if kept.count > 0 {
            request.range = kept;
            return self.forward(request, After::Torn(rest, silent));
        }
        let whole = Completion {
            tag: request.tag,
            buffer: request.buffer,
            result: Ok(()),
        };
        self.done.push(torn(whole, rest, silent));
    }

    fn release_stalled(&mut self, now: Moment) {
        if self.stalled.is_empty() {
            return;
        }
        let releases = self.control.releases();
        while let Some((_, request)) = self.stalled.pop_front_if(|(then, _)| *then < releases) {
            self.forward(request, After::Nothing);
        }
        self.next_check = Some(now + STALL_CHECK);
    }

    fn arrive(&mut self, now: Moment, mut completion: Completion) {
        let Some(flight) = self.flights.try_remove(completion.tag as usize) else {
            return;
        };
        completion.tag = flight.tag;
        match flight.after {
            After::Nothing => {}
            After::Delay(by) => return self.delayed.push((now + by, completion)),
            After::FlipBit(random) => flip(&mut completion, random),
            After::Torn(rest, silent) => completion = torn(completion, rest, silent),
        }
        self.done.push(completion);
    }

    fn take_due(&mut self, now: Moment) {
        let mut index = 0;
        while let Some((due, _)) = self.delayed.get(index) {
            if *due <= now {
                let (_, completion) = self.delayed.remove(index);
                self.done.push(completion);
            } else {
                index += 1;
            }
        }
    }
}

fn flip(completion: &mut Completion, random: u64) {
    if let (Ok(()), Some(buffer)) = (&completion.result, &mut completion.buffer)
        && !buffer.is_empty()
    {
        let bit = random % (buffer.len() as u64 * 8);
        buffer[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

fn torn(mut completion: Completion, rest: Option<IoBuffer>, silent: bool) -> Completion {
    if let (Some(head), Some(rest)) = (&mut completion.buffer, rest) {
        // Parts of one buffer, split above, always join.
        let _ = head.join(rest);
    }
    if completion.result.is_ok() && !silent {
        completion.result = Err(IoError::new(ErrorKind::Media, "injected: torn write"));
    }
    completion
}

impl<D: BlockDevice> BlockDevice for FaultyDevice<D> {
    fn geometry(&self) -> Geometry {
        self.child.geometry()
    }

    fn submit(&mut self, request: Request) {
        match self.control.judge(&request) {
            Some(verdict) => self.strike(request, verdict),
            None => self.forward(request, After::Nothing),
        }
    }

    fn poll(&mut self, now: Moment, done: &mut Vec<Completion>) {
        self.release_stalled(now);
        let mut arrived = std::mem::take(&mut self.arrived);
        self.child.poll(now, &mut arrived);
        for completion in arrived.drain(..) {
            self.arrive(now, completion);
        }
        self.arrived = arrived;
        self.take_due(now);
        done.append(&mut self.done);
    }

    fn next_deadline(&self) -> Option<Moment> {
        let check = self.next_check.filter(|_| !self.stalled.is_empty());
        let due = self.delayed.iter().map(|&(due, _)| due).min();
        let child = self.child.next_deadline();
        [check, due, child].into_iter().flatten().min()
    }

    fn describe(&self) -> Description {
        Description::over("faulty", vec![self.child.describe()])
    }
}
