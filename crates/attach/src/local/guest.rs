use std::os::fd::OwnedFd;
use std::sync::Arc;

use ashlar_block::{BlockDevice, Checked, Completion, IoBuffer, IoError, Moment};
use ashlar_reactor::{File, Handle, Opener, Port, What};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use tracing::error;

use super::{Over, Session};
use crate::fuse::exchange::Exchange;
use crate::system::memory::join_io_path;

/// Most memory for data on its way.
const POOL_BYTES: usize = 128 << 20;
/// Most messages that are read, and replies that are made, in one turn: others have the core, too. And what was
/// read goes to drives at a turn's end: with all that is there in one turn, drives would wait for messages and
/// replies, and then messages and replies for drives.
pub(super) const MESSAGES: usize = 8;
const READABLE: u64 = 0;

/// An attachment on the core of its volume: reads the kernel's messages, submits, replies. It never blocks;
/// whoever has the core polls it in every turn.
pub struct Guest {
    device: Checked<Box<dyn BlockDevice>>,
    exchange: Exchange,
    port: Port,
    fuse: File,
    session: Arc<Session>,
    /// Where the next message goes.
    buffer: Option<IoBuffer>,
    done: Vec<Completion>,
    /// The ring watches for messages.
    watched: bool,
    /// There may be a message.
    readable: bool,
    /// Nothing more is read.
    ending: Option<Over>,
    has_ended: bool,
    handled: usize,
    now: Moment,
}

impl Guest {
    /// Serves `opener`'s volume on the calling thread's reactor as the one file behind `fuse`, which does not
    /// block from now on, for anybody.
    ///
    /// # Errors
    /// The volume cannot be opened, or `fuse` is not what it should be.
    pub fn new(
        handle: &Handle,
        opener: &dyn Opener,
        (fuse, takes_over): (OwnedFd, bool),
        session: Arc<Session>,
    ) -> Result<Self, IoError> {
        let unusable = |error: Errno| {
            let kind = ashlar_block::ErrorKind::InvalidRequest;
            IoError::with_source(kind, "/dev/fuse", std::io::Error::from(error))
        };
        let device = opener.open(handle)?;
        let flags = fcntl_getfl(&fuse).map_err(unusable)?;
        // A message may be taken back between being told of and being read.
        fcntl_setfl(&fuse, flags | OFlags::NONBLOCK).map_err(unusable)?;
        join_io_path();
        let mut exchange = Exchange::new(device.geometry(), POOL_BYTES, session.counters().clone());
        if takes_over {
            exchange.ask_again();
        }
        session.set_waker(handle.waker());
        Ok(Self {
            device: Checked::new(device),
            exchange,
            port: handle.port(),
            fuse: handle.adopt(fuse),
            session,
            buffer: None,
            done: Vec::new(),
            watched: false,
            readable: false,
            ending: None,
            has_ended: false,
            handled: 0,
            now: handle.now(),
        })
    }

    /// Deals with everything that has happened. Never blocks.
    pub fn poll(&mut self, now: Moment) {
        if self.has_ended {
            return;
        }
        self.now = now;
        while let Some(event) = self.port.next() {
            if let What::Readable(_) = event.what {
                self.watched = false;
                self.readable = true;
            }
        }
        if self.ending.is_none()
            && let Some(why) = self.session.asked()
        {
            self.stop(why);
        }
        // A notice must be there before anything new is read: it is for what is read by now.
        let replied = self.reply(MESSAGES);
        self.read();
        self.drive();
        self.reply(MESSAGES - replied);
        // A large write has kept the buffer that it was read into. Where there is no memory for another, requests
        // on their way have it: their completions wake the core.
        if self.readable && self.buffer.is_none() {
            self.buffer = self.exchange.message_buffer();
        }
        self.watch();
        self.end();
    }

    /// When [`poll`](Self::poll) must be called next even if nothing wakes the core.
    pub fn next_deadline(&self) -> Option<Moment> {
        if self.has_ended {
            return None;
        }
        let device = self.device.next_deadline();
        let reads = self.readable && self.buffer.is_some() && self.ending.is_none();
        match reads || self.exchange.has_replies() {
            true => Some(device.map_or(self.now, |at| at.min(self.now))),
            false => device,
        }
    }

    /// Messages that were dealt with since the last call.
    pub fn take_handled(&mut self) -> usize {
        std::mem::take(&mut self.handled)
    }

    fn stop(&mut self, why: Over) {
        self.ending = Some(why);
        self.port.cancel_readable(READABLE);
    }

    /// Reads until there is nothing more, or enough of it for one turn.
    fn read(&mut self) {
        for _ in 0..MESSAGES {
            if !self.readable || self.ending.is_some() {
                return;
            }
            let Some(buffer) = self
                .buffer
                .take()
                .or_else(|| self.exchange.message_buffer())
            else {
                // Replies on their way will give memory back.
                return;
            };
            self.read_into(buffer);
        }
    }

    fn read_into(&mut self, mut buffer: IoBuffer) {
        match rustix::io::read(&self.fuse, &mut buffer[..]) {
            // No message is empty.
            Ok(0) => self.stop(Over::Unmounted),
            Ok(length) => {
                self.handled += 1;
                let rest = buffer.split_off(length.min(buffer.len()));
                if let Some(mut back) = self.exchange.received(buffer)
                    && back.join(rest).is_ok()
                {
                    self.buffer = Some(back);
                }
                if let Some(why) = self.exchange.refusal() {
                    let why = why.to_owned();
                    self.stop(Over::ForGood(why));
                }
                return;
            }
            Err(Errno::AGAIN) => self.readable = false,
            // What was to be read has been taken back meanwhile.
            Err(Errno::INTR | Errno::NOENT) => {}
            // Unmounted, or cut off.
            Err(Errno::NODEV | Errno::CONNABORTED) => self.stop(Over::Unmounted),
            Err(error) => self.stop(Over::ForGood(format!("/dev/fuse: {error}"))),
        }
        self.buffer = Some(buffer);
    }

    /// Carries requests to the volume and completions back until neither makes more.
    fn drive(&mut self) {
        loop {
            let mut some = false;
            for request in self.exchange.requests() {
                some = true;
                self.device.submit(request);
            }
            self.device.poll(self.now, &mut self.done);
            for completion in self.done.drain(..) {
                some = true;
                self.exchange.completed(completion);
            }
            self.exchange.resume();
            if !some {
                return;
            }
        }
    }

    /// Makes this many replies at most; returns how many.
    fn reply(&mut self, most: usize) -> usize {
        let replies = self.exchange.replies(most);
        let count = replies.len();
        for reply in replies {
            match rustix::io::write(&self.fuse, &reply) {
                // Nobody waits for it any more.
                Ok(_) | Err(Errno::NOENT) => {}
                Err(_) if self.ending.is_some() => {}
                Err(Errno::NODEV | Errno::CONNABORTED) => {}
                Err(error) => error!("a reply was refused: {error}"),
            }
        }
        // Who has so many answers has asked again before the ring tells of it.
        self.readable |= count == MESSAGES;
        count
    }

    fn watch(&mut self) {
        if !self.watched && !self.readable && self.ending.is_none() {
            self.watched = true;
            self.port.readable(&self.fuse, READABLE);
        }
    }

    fn end(&mut self) {
        if let (Some(why), true, false) = (&self.ending, self.exchange.is_idle(), self.watched) {
            self.has_ended = true;
            self.session.ended(why.clone());
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Not in order, if it has not ended before: its core ends, or has died.
        self.session
            .ended(Over::ForNow("its core has ended".into()));
    }
}
