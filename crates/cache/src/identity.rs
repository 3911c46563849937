//! What tells a backing device from another under the same path.

use std::fmt;

/// Most bytes of what names a device.
pub(crate) const IDENTITY_BYTES: usize = 1000;

/// A device, by its size and by what names it in all the world, if there is something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub(crate) bytes: u64,
    pub(crate) name: Option<String>,
    /// Programs before did not ask for its name.
    was_nameless: bool,
}

impl Identity {
    /// Of a device of so many bytes.
    pub fn new(bytes: u64, name: Option<String>) -> Self {
        let name = name.map(|mut name| {
            name.truncate(name.floor_char_boundary(IDENTITY_BYTES));
            name
        });
        Self {
            bytes,
            name,
            was_nameless: false,
        }
    }

    /// It has a name that programs before did not ask for: they knew it by its size alone.
    #[must_use]
    pub fn nameless_before(mut self) -> Self {
        self.was_nameless = self.name.is_some();
        self
    }

    /// Whether what is found can be this: a device that is named may have grown.
    pub(crate) fn is(&self, found: &Self) -> bool {
        match (&self.name, &found.name) {
            (None, None) => self.bytes == found.bytes,
            (None, Some(_)) => found.was_nameless && self.bytes == found.bytes,
            (known, found) => known == found,
        }
    }

    /// Whether both are written down alike.
    pub(crate) fn says(&self, found: &Self) -> bool {
        (self.bytes, &self.name) == (found.bytes, &found.name)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes;
        match &self.name {
            Some(name) => write!(f, "one of {bytes} bytes, {name}"),
            None => write!(f, "one of {bytes} bytes that nothing names"),
        }
    }
}

/// What becomes of a device that is not the one that a cache knows, where writes leave nothing that only the cache has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Other {
    /// It is not taken up.
    #[default]
    Refused,
    /// It is, and what is cached is forgotten.
    TakenUp,
    /// The same. And one with the mark, of which no name says whether it is the one that is known, is taken for that though it
    /// has other data somewhere: what is cached is believed.
    Believed,
}
