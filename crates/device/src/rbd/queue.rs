//! Requests on their way through the library, and back on the queue's core.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ashlar_block::{
    BlockDevice, BlockSize, Completion, Description, Durability, ErrorKind, Geometry, IoError,
    Moment, Operation, Request,
};
use ashlar_reactor::{Handle, Mailbox, Opener};
use slab::Slab;

use super::RbdName;
use super::image::{Answer, Call, Image, Memory, Wanted};
use crate::size::geometry;
use crate::{OpenError, SizeText};

/// How long a queue that goes waits for what it has under way.
const FLIGHTS_TIMEOUT: Duration = Duration::from_secs(60);

/// An image, for all cores.
pub(super) struct Rbd {
    image: Arc<Image>,
    geometry: Geometry,
    title: String,
}

impl Rbd {
    pub(super) fn open(name: &RbdName, block_size: BlockSize) -> Result<Arc<Self>, OpenError> {
        let image = Image::open(name)?;
        let bytes = image.bytes(name)?;
        let geometry = Geometry {
            // The library may keep writes until a flush.
            volatile_cache: true,
            deallocates: true,
            ..geometry(&name.to_string(), bytes, block_size)?
        };
        let size = SizeText(bytes);
        Ok(Arc::new(Self {
            image: Arc::new(image),
            geometry,
            title: format!("{name}, {size}, {block_size}-byte blocks"),
        }))
    }
}

impl Opener for Rbd {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn open(&self, reactor: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
        Ok(Box::new(Queue {
            image: self.image.clone(),
            geometry: self.geometry,
            title: self.title.clone(),
            mail: Mailbox::new(reactor.waker()),
            flights: Slab::new(),
            refused: Vec::new(),
        }))
    }

    fn describe(&self) -> Description {
        Description::leaf(self.title.clone())
    }
}

/// A request that is with the library.
struct Flight {
    request: Request,
    /// It is written, and being flushed.
    is_flushing: bool,
}

impl Flight {
    /// Whether it is durable when it is answered.
    fn lasts(&self) -> bool {
        matches!(
            self.request.op,
            Operation::Write(Durability::Durable)
                | Operation::WriteZeroes {
                    durability: Durability::Durable,
                    ..
                }
        )
    }
}

/// One core's.
struct Queue {
    image: Arc<Image>,
    geometry: Geometry,
    title: String,
    mail: Mailbox<Answer>,
    flights: Slab<Flight>,
    refused: Vec<Completion>,
}

impl Queue {
    fn begin(&mut self, index: usize) {
        let Some(flight) = self.flights.get_mut(index) else {
            return;
        };
        let op = match flight.is_flushing {
            true => Operation::Flush,
            false => flight.request.op,
        };
        let buffer = flight.request.buffer.as_mut();
        let memory = buffer.filter(|_| op.has_buffer()).map(|buffer| Memory {
            at: buffer.as_mut_ptr(),
            len: buffer.len(),
        });
        let range = flight.request.range;
        let what = Wanted {
            op,
            offset: self.geometry.range_offset(range),
            bytes: u64::from(range.count) << self.geometry.block_size.shift(),
        };
        let call = Call {
            flight: index,
            mail: self.mail.clone(),
        };
        // SAFETY: the buffer belongs to the flight, which nothing touches until its answer has come.
        unsafe {
            self.image.begin(&what, memory, call);
        }
    }

    fn answered(&mut self, answer: Answer, done: &mut Vec<Completion>) {
        let Some(flight) = self.flights.get_mut(answer.flight) else {
            return;
        };
        if answer.code >= 0 && flight.lasts() && !flight.is_flushing {
            flight.is_flushing = true;
            return self.begin(answer.flight);
        }
        let lasts = flight.lasts() || flight.request.op == Operation::Flush;
        let flight = self.flights.remove(answer.flight);
        let result = match answer.code {
            0.. => Ok(()),
            code => {
                if lasts {
                    self.image.latched.store(true, Ordering::Release);
                }
                let error = std::io::Error::from_raw_os_error(-code as i32);
                Err(IoError::new(
                    ErrorKind::Media,
                    format!("{}: {error}", self.title),
                ))
            }
        };
        done.push(flight.request.complete(result));
    }
}

impl BlockDevice for Queue {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, request: Request) {
        if self.image.is_latched() {
            let why = format!("{}: an earlier flush failed", self.title);
            let error = IoError::new(ErrorKind::Latched, why);
            return self.refused.push(request.complete(Err(error)));
        }
        let flight = Flight {
            request,
            is_flushing: false,
        };
        let index = self.flights.insert(flight);
        self.begin(index);
    }

    fn poll(&mut self, _now: Moment, done: &mut Vec<Completion>) {
        done.append(&mut self.refused);
        while let Some(answer) = self.mail.take() {
            self.answered(answer, done);
        }
    }

    fn describe(&self) -> Description {
        Description::leaf(self.title.clone())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let (begun, mut done) = (Instant::now(), Vec::new());
        while !self.flights.is_empty() && begun.elapsed() < FLIGHTS_TIMEOUT {
            while let Some(answer) = self.mail.take() {
                self.answered(answer, &mut done);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if !self.flights.is_empty() {
            // The library may still write into what they hold, and needs its image.
            std::mem::forget((std::mem::take(&mut self.flights), self.image.clone()));
        }
    }
}
