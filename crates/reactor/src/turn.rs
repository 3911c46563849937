use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use ashlar_block::{BufferPool, Moment};

use crate::clock::Clock;
use crate::file::File;
use crate::mail::Waker;
use crate::options::{Options, SetupError};
use crate::port::{Events, Port};
use crate::ring::{Op, Ring, Target};
use crate::spin::SpinPolicy;

/// What the parts of one thread share: its ring. Cloning is cheap; it cannot leave the thread.
#[derive(Clone)]
pub struct Handle(Rc<Shared>);

struct Shared {
    ring: RefCell<Ring>,
}

impl Handle {
    /// A new event queue.
    pub fn port(&self) -> Port {
        Port::new(self.clone())
    }

    /// Takes over an open file or socket.
    pub fn adopt(&self, fd: OwnedFd) -> File {
        let slot = self.0.ring.borrow_mut().register_file(fd.as_raw_fd());
        File::new(fd, slot, self.clone())
    }

    /// The thread's buffers, registered with its ring.
    pub fn buffers(&self) -> BufferPool {
        self.0.ring.borrow().pool().clone()
    }

    /// Wakes this reactor from other threads.
    pub fn waker(&self) -> Waker {
        self.0.ring.borrow().waker().clone()
    }

    /// The clock.
    pub fn now(&self) -> Moment {
        Clock.now()
    }

    pub(crate) fn submit(&self, op: Op, target: Target, key: u64, events: &Rc<Events>) {
        self.0.ring.borrow_mut().submit(op, target, key, events);
    }

    pub(crate) fn unregister_file(&self, slot: u32) {
        self.0.ring.borrow_mut().unregister_file(slot);
    }
}

/// A thread's event loop: the ring, and the policy of when to spin and when to sleep.
pub struct Reactor {
    handle: Handle,
    spin: SpinPolicy,
    last_batch: usize,
}

impl Reactor {
    /// A reactor for the calling thread, to which it is bound from then on.
    pub fn new(options: &Options) -> Result<Self, SetupError> {
        let ring = RefCell::new(Ring::new(options)?);
        Ok(Self {
            handle: Handle(Rc::new(Shared { ring })),
            spin: SpinPolicy::new(options.spin),
            last_batch: 0,
        })
    }

    /// What to give to everything that does I/O on this thread.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Submits what was queued and returns when something has happened: completions are in their
    /// ports, mail has come, or `deadline` has passed. May return early for no reason.
    pub fn turn(&mut self, deadline: Option<Moment>) -> io::Result<()> {
        let mut ring = self.handle.0.ring.borrow_mut();
        let spin = self.spin.budget(self.last_batch);
        if let Some(limit) = spin {
            ring.kick()?;
            let caught = spin_until_ready(&mut ring, limit, deadline);
            self.spin.outcome(caught);
        }
        if ring.is_ready() {
            ring.kick()?;
        } else {
            let timeout = deadline.map(|deadline| deadline.since(Clock.now()));
            ring.wait(timeout)?;
        }
        self.last_batch = ring.reap();
        Ok(())
    }
}

/// Spins without system calls. False if the time ran out.
fn spin_until_ready(ring: &mut Ring, limit: Duration, deadline: Option<Moment>) -> bool {
    let start = Clock.now();
    let mut until = start + limit;
    if let Some(deadline) = deadline {
        until = until.min(deadline);
    }
    loop {
        for _ in 0..16 {
            if ring.is_ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        if Clock.now() >= until {
            return false;
        }
    }
}
