use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use ashlar_block::{
    AssociationId, BlockDevice, Completion, Description, Geometry, HostId, IoError, Label, Moment,
    Provenance, Request,
};
use ashlar_reactor::{Handle, Opener};
use ashlar_replica::Origin;

use super::driver::EngineDriver;
use super::link::{Mail, PoolLink, RemotePort};

/// A volume, to be opened on any core.
pub struct VolumeOpener {
    link: PoolLink,
    number: u32,
    name: String,
    geometry: Mutex<Geometry>,
}

impl VolumeOpener {
    /// The volume `number` of the pool behind `link`; `name` is for people.
    ///
    /// # Errors
    /// Those of [`PoolLink::geometry`].
    pub fn new(link: PoolLink, number: u32, name: String) -> Result<Arc<Self>, IoError> {
        let geometry = Mutex::new(link.geometry(number)?);
        Ok(Arc::new(Self {
            link,
            number,
            name,
            geometry,
        }))
    }

    /// Asks the engine for the volume's shape again, after a change of its size.
    ///
    /// # Errors
    /// Those of [`PoolLink::geometry`].
    pub fn refresh(&self) -> Result<(), IoError> {
        let geometry = self.link.geometry(self.number)?;
        *self.geometry.lock().unwrap_or_else(PoisonError::into_inner) = geometry;
        Ok(())
    }
}

impl Opener for VolumeOpener {
    fn geometry(&self) -> Geometry {
        *self.geometry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, reactor: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
        let geometry = Opener::geometry(self);
        let description = Opener::describe(self);
        Ok(match EngineDriver::here(&self.link) {
            Some(driver) => {
                let port = driver.borrow_mut().add_port();
                let is_copy = driver.borrow().is_copy(self.number);
                Box::new(Local {
                    driver,
                    port,
                    is_copy,
                    volume: self.number,
                    geometry,
                    description,
                })
            }
            None => Box::new(Remote {
                link: self.link.clone(),
                port: Arc::new(RemotePort::new(reactor.waker())),
                volume: self.number,
                geometry,
                description,
            }),
        })
    }

    fn describe(&self) -> Description {
        Description::leaf(format!("volume {}", self.name))
    }
}

/// A volume on its engine's own core.
struct Local {
    driver: Rc<RefCell<EngineDriver>>,
    port: usize,
    is_copy: bool,
    volume: u32,
    geometry: Geometry,
    description: Description,
}

impl BlockDevice for Local {
    fn geometry(&self) -> Geometry {
        // A resized volume has its new size at once.
        let now = self.driver.borrow().geometry(self.volume);
        now.unwrap_or(self.geometry)
    }

    fn submit(&mut self, request: Request) {
        self.driver
            .borrow_mut()
            .local_command(self.port, self.volume, request);
    }

    fn poll(&mut self, now: Moment, done: &mut Vec<Completion>) {
        let mut driver = self.driver.borrow_mut();
        driver.turn(now);
        driver.take_done(self.port, done);
    }

    fn next_deadline(&self) -> Option<Moment> {
        let driver = self.driver.borrow();
        // Another volume's poll may have completed what this one is to give out.
        match driver.has_done(self.port) {
            true => Some(driver.now()),
            false => driver.next_deadline(),
        }
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }

    fn labels_writes(&self) -> bool {
        self.is_copy
    }

    fn label(&self, host: HostId, association: AssociationId) -> Option<Label> {
        let origin = Origin { host, association };
        self.driver.borrow().label(self.volume, origin)
    }

    fn submit_from(&mut self, request: Request, provenance: Provenance) {
        let mut driver = self.driver.borrow_mut();
        driver.labelled_command(self.port, self.volume, request, provenance);
    }

    fn association_ended(&mut self, host: HostId, association: AssociationId) {
        let origin = Origin { host, association };
        self.driver
            .borrow_mut()
            .association_ended(self.volume, origin);
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.driver.borrow_mut().remove_port(self.port);
    }
}

/// A volume whose engine is on another core.
struct Remote {
    link: PoolLink,
    port: Arc<RemotePort>,
    volume: u32,
    geometry: Geometry,
    description: Description,
}

impl BlockDevice for Remote {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, request: Request) {
        self.link.mail.post(Mail::Command {
            port: self.port.clone(),
            volume: self.volume,
            request,
        });
    }

    fn poll(&mut self, _now: Moment, done: &mut Vec<Completion>) {
        self.port.take(done);
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}
