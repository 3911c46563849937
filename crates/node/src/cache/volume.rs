use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ashlar_block::{BlockDevice, Completion, Description, Geometry, IoError, Moment, Request};
use ashlar_reactor::{Handle, Opener};

use super::host::Host;
use super::link::{CacheLink, Mail};
use crate::pool::RemotePort;

/// A cached volume, to be opened on any core.
pub(crate) struct CacheOpener {
    pub(crate) link: CacheLink,
    pub(crate) name: String,
    pub(crate) geometry: Geometry,
}

impl Opener for CacheOpener {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn open(&self, reactor: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
        let (geometry, description) = (self.geometry, Opener::describe(self));
        Ok(match Host::here(&self.link) {
            Some(host) => {
                let port = host.borrow_mut().add_port();
                Box::new(Local {
                    host,
                    port,
                    geometry,
                    description,
                })
            }
            None => Box::new(Remote {
                link: self.link.clone(),
                port: Arc::new(RemotePort::new(reactor.waker())),
                geometry,
                description,
            }),
        })
    }

    fn describe(&self) -> Description {
        Description::leaf(format!("cached volume {}", self.name))
    }
}

/// A cached volume on its cache's own core.
struct Local {
    host: Rc<RefCell<Host>>,
    port: usize,
    geometry: Geometry,
    description: Description,
}

impl BlockDevice for Local {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, request: Request) {
        self.host.borrow_mut().local_command(self.port, request);
    }

    fn poll(&mut self, now: Moment, done: &mut Vec<Completion>) {
        let mut host = self.host.borrow_mut();
        host.turn(now);
        host.take_done(self.port, done);
    }

    fn next_deadline(&self) -> Option<Moment> {
        let host = self.host.borrow();
        // Another's poll may have completed what this one is to give out.
        match host.has_done(self.port) {
            true => Some(host.now()),
            false => host.next_deadline(),
        }
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.host.borrow_mut().remove_port(self.port);
    }
}

/// A cached volume whose cache is on another core.
struct Remote {
    link: CacheLink,
    port: Arc<RemotePort>,
    geometry: Geometry,
    description: Description,
}

impl BlockDevice for Remote {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, request: Request) {
        self.link
            .mail
            .post(Mail::Command(self.port.clone(), request));
    }

    fn poll(&mut self, _now: Moment, done: &mut Vec<Completion>) {
        self.port.take(done);
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}
