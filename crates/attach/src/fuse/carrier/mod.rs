//! Carries messages of /dev/fuse, requests to a device and completions back, on a reactor's thread.
//!
//! /dev/fuse is waited for by a poll and read by system calls that do not block. A read that is lent to the ring
//! would not do: the kernel's io_uring has no way to try a read of /dev/fuse without waiting. It looks whether
//! there is a message and then reads as if there were for certain. Where another read has taken the message in
//! between, and reads that have lost often enough are given to kernel threads that compete for messages, the
//! thread sleeps inside the kernel until the next message comes, and answers of the device wait with it. With one
//! request on its way, the next message is what a timer of the file system asks for, half a minute later.

use std::io;
use std::os::fd::OwnedFd;

use ashlar_block::{BlockDevice, Checked, Completion, IoBuffer, Moment};
use ashlar_reactor::{File, Handle, Port, What};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use tracing::{error, warn};

use super::exchange::Exchange;
use crate::local::Over;
use crate::trace::Trace;

#[cfg(test)]
mod tests;

/// Most messages that are read, and replies that are made, in one turn: others have the core, too. And what was
/// read goes to drives at a turn's end: with all that is there in one turn, drives would wait for messages and
/// replies, and then messages and replies for drives.
pub(crate) const MESSAGES: usize = 8;
const READABLE: u64 = 0;

/// See the module's documentation. It never blocks; the thread's owner polls it in every turn.
pub(crate) struct Carrier {
    // Dropped in this order: the device lets go of what it has lent to the ring.
    device: Checked<Box<dyn BlockDevice>>,
    exchange: Exchange,
    port: Port,
    fuse: File,
    /// Where the next message goes.
    buffer: Option<IoBuffer>,
    done: Vec<Completion>,
    /// The ring watches for messages.
    watched: bool,
    /// There may be a message.
    readable: bool,
    /// Nothing more is read.
    ending: Option<Over>,
    handled: usize,
    now: Moment,
}

impl Carrier {
    /// Serves `device` as the one file behind `fuse`, which does not block from now on, for any process.
    ///
    /// # Errors
    /// `fuse` is not what it should be.
    pub(crate) fn new(
        handle: &Handle,
        device: Box<dyn BlockDevice>,
        exchange: Exchange,
        fuse: OwnedFd,
    ) -> io::Result<Self> {
        let flags = fcntl_getfl(&fuse)?;
        // A message may be taken back between being told of and being read.
        fcntl_setfl(&fuse, flags | OFlags::NONBLOCK)?;
        Ok(Self {
            device: Checked::new(device),
            exchange,
            port: handle.port(),
            fuse: handle.adopt(fuse),
            buffer: None,
            done: Vec::new(),
            watched: false,
            readable: false,
            ending: None,
            handled: 0,
            now: handle.now(),
        })
    }

    /// Deals with everything that has happened. Never blocks.
    pub(crate) fn poll(&mut self, now: Moment) {
        self.now = now;
        while let Some(event) = self.port.next() {
            if let What::Readable(_) = event.what {
                self.watched = false;
                self.readable = true;
            }
        }
        // A notice must be there before anything new is read: it is for what is read by now.
        let replied = self.reply(MESSAGES);
        self.read();
        self.save_trace();
        self.drive();
        self.reply(MESSAGES - replied);
        // Replies have given memory back, and nothing else may be on its way that would wake the thread.
        self.exchange.resume();
        // A large write has kept the buffer that it was read into. Where there is no memory for another, requests
        // on their way have it: their completions wake the core.
        if self.readable && self.buffer.is_none() {
            self.buffer = self.exchange.message_buffer();
        }
        self.watch();
    }

    /// When [`poll`](Self::poll) must be called next even if nothing wakes the thread.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        let device = self.device.next_deadline();
        let reads = self.readable && self.buffer.is_some() && self.ending.is_none();
        match reads || self.exchange.has_replies() || self.exchange.has_requests() {
            true => Some(device.map_or(self.now, |at| at.min(self.now))),
            false => device,
        }
    }

    /// Messages that were dealt with since the last call.
    pub(crate) fn take_handled(&mut self) -> usize {
        std::mem::take(&mut self.handled)
    }

    /// Reads nothing more; what was read is answered. The first reason counts.
    pub(crate) fn stop(&mut self, why: Over) {
        if self.ending.is_none() {
            self.ending = Some(why);
            self.port.cancel_readable(READABLE);
        }
    }

    /// Why nothing more is read, if that is so.
    pub(crate) fn ending(&self) -> Option<&Over> {
        self.ending.as_ref()
    }

    /// Why it has ended: what was read is answered, and the ring has nothing of it any more.
    pub(crate) fn ended(&self) -> Option<&Over> {
        let over = self.exchange.is_idle() && !self.watched;
        self.ending.as_ref().filter(|_| over)
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

    /// Before anything of it is answered.
    fn save_trace(&mut self) {
        if let Some(Err(error)) = self.exchange.trace().map(Trace::save) {
            warn!("the trace: {error}");
        }
    }

    /// Carries requests to the device and completions back until neither makes more.
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
            if !some && !self.exchange.has_requests() {
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
                // No request waits for it any more, or the kernel is too old to send again.
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
}
