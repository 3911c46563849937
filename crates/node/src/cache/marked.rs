use ashlar_cache::{GRANULE, HEAD_BYTES, mark};
use ashlar_reactor::Opener;
use uuid::Uuid;

use super::Direct;
use crate::model::ControlError;

const HEAD: u64 = (HEAD_BYTES / GRANULE) as u64;

/// A device with the mark of a cache, which has been lost.
pub struct MarkedDevice {
    device: Direct,
    name: String,
    head: Vec<u8>,
    cache: Uuid,
}

impl MarkedDevice {
    /// Looks for the mark on a device that nothing uses.
    ///
    /// # Errors
    /// Usage: there is none that can be recognised. Environment: the device cannot be read.
    pub fn open(opener: &dyn Opener, name: &str) -> Result<Self, ControlError> {
        let about = |error| ControlError::environment(format!("{name}: {error}"));
        if opener.geometry().bytes() < HEAD_BYTES as u64 {
            return Err(ControlError::usage(format!(
                "{name} has no mark of a cache"
            )));
        }
        let mut device = Direct::open(opener).map_err(about)?;
        let head = device.read(0, HEAD).map_err(about)?;
        let none = || ControlError::usage(format!("{name} has no mark of a cache"));
        Ok(Self {
            cache: mark::whose(&head).ok_or_else(none)?,
            device,
            name: name.to_owned(),
            head,
        })
    }

    /// The cache that has put it.
    pub fn cache(&self) -> Uuid {
        self.cache
    }

    /// Puts back what the device began with.
    ///
    /// # Errors
    /// Environment: it cannot be written.
    pub fn take_away(&mut self) -> Result<(), ControlError> {
        let written = self.device.write(0, &mark::take_away(&self.head));
        written.map_err(|error| ControlError::environment(format!("{}: {error}", self.name)))
    }
}
