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
use crate::spin::{SpinPolicy, Wait};

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

    pub fn now(&self) -> Moment {
        Clock.now()
    }

    pub(crate) fn submit(&self, op: Op, target: Target, key: u64, events: &Rc<Events>) {
        self.0.ring.borrow_mut().submit(op, target, key, events);
    }

    pub(crate) fn cancel_readable(&self, key: u64, events: &Rc<Events>) {
        self.0.ring.borrow_mut().cancel_readable(key, events);
    }

    pub(crate) fn submit_queued(&self) {
        self.0.ring.borrow_mut().submit_queued();
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
    /// When the last wait ended.
    woken: Moment,
    /// Commands handled since then.
    handled: usize,
}

impl Reactor {
    /// A reactor for the calling thread, to which it is bound from then on.
    pub fn new(options: &Options) -> Result<Self, SetupError> {
        let ring = RefCell::new(Ring::new(options)?);
        Ok(Self {
            handle: Handle(Rc::new(Shared { ring })),
            spin: SpinPolicy::new(options.spin),
            last_batch: 0,
            woken: Clock.now(),
            handled: 0,
        })
    }

    /// What to give to everything that does I/O on this thread.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Tells how many commands were handled since the last call: many share a wake-up's cost, and are
    /// not spun for.
    pub fn handled(&mut self, commands: usize) {
        self.handled += commands;
    }

    /// Submits what was queued and returns when something has happened: completions are in their
    /// ports, mail has come, or `deadline` has passed. May return early for no reason.
    pub fn turn(&mut self, deadline: Option<Moment>) -> io::Result<()> {
        let handle = self.handle.clone();
        let mut ring = handle.0.ring.borrow_mut();
        if deadline.is_some_and(|deadline| deadline <= Clock.now()) {
            // A task that has more to do does not wait: that says nothing of what waits cost, or of what they are for.
            ring.kick()?;
            self.last_batch += ring.reap();
            return Ok(());
        }
        match self.spin.plan(self.last_batch) {
            Wait::Spin(limit) => self.spin(&mut ring, limit, deadline)?,
            Wait::Timed => self.sleep_timed(&mut ring, deadline)?,
            Wait::Sleep => {
                sleep(&mut ring, deadline)?;
                self.waited();
            }
        }
        self.last_batch = ring.reap();
        Ok(())
    }

    fn spin(
        &mut self,
        ring: &mut Ring,
        limit: Duration,
        deadline: Option<Moment>,
    ) -> io::Result<()> {
        ring.kick()?;
        if ring.is_ready() {
            return Ok(());
        }
        let begin = Clock.now();
        self.spin.worked(begin.since(self.woken));
        let until = deadline.map_or(begin + limit, |at| at.min(begin + limit));
        let caught = spin_until_ready(ring, until);
        if caught {
            ring.kick()?;
            self.woken = Clock.now();
        } else {
            sleep(ring, deadline)?;
            self.woken = Clock.now();
        }
        self.spin.spun(caught.then(|| self.woken.since(begin)));
        self.waited();
        Ok(())
    }

    fn sleep_timed(&mut self, ring: &mut Ring, deadline: Option<Moment>) -> io::Result<()> {
        ring.kick()?;
        if ring.is_ready() {
            return Ok(());
        }
        let begin = Clock.now();
        sleep(ring, deadline)?;
        self.woken = Clock.now();
        self.spin.slept(self.woken.since(begin));
        self.waited();
        Ok(())
    }

    fn waited(&mut self) {
        self.spin.shared(std::mem::take(&mut self.handled));
        self.spin.waited();
    }
}

fn sleep(ring: &mut Ring, deadline: Option<Moment>) -> io::Result<()> {
    if ring.is_ready() {
        return ring.kick();
    }
    ring.wait(deadline.map(|deadline| deadline.since(Clock.now())))
}

/// Spins without system calls. False if the time ran out.
fn spin_until_ready(ring: &mut Ring, until: Moment) -> bool {
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
