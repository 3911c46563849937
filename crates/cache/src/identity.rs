//! What tells a backing device from another under the same path.

use std::fmt;

/// Most bytes of what names a device.
pub(crate) const IDENTITY_BYTES: usize = 1000;

/// How programs before knew a device that they did not ask for its name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Before {
    /// As it is known now.
    Alike,
    /// By this, which is all that was known of it beside its size.
    As(Option<String>),
}

/// A device, by its size and by what names it in all the world, if there is something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub(crate) bytes: u64,
    pub(crate) name: Option<String>,
    /// The name by which programs before knew it, if that is another one.
    before: Before,
}

impl Identity {
    /// Of a device of so many bytes.
    pub fn new(bytes: u64, name: Option<String>) -> Self {
        Self {
            bytes,
            name: name.map(cut),
            before: Before::Alike,
        }
    }

    /// Programs before did not ask the device itself: they knew it by this name, or by its size alone.
    #[must_use]
    pub fn known_before_as(mut self, name: Option<String>) -> Self {
        self.before = Before::As(name.map(cut));
        self
    }

    /// Whether what is found can be this: a device that is named may have grown.
    pub(crate) fn is(&self, found: &Self) -> bool {
        let is_alike = self.name == found.name && self.name.is_some();
        is_alike || self.bytes == found.bytes && self.was_name_of(found)
    }

    /// Whether paths alone name it, as a disk's serial number does. What a remote device says of itself stays as it is when
    /// its array goes back to an older image.
    pub(crate) fn is_of_paths(&self) -> bool {
        self.name.is_some() && self.before == Before::Alike
    }

    fn was_name_of(&self, found: &Self) -> bool {
        match &found.before {
            Before::Alike => self.name == found.name,
            Before::As(name) => self.name == *name || self.name == found.name,
        }
    }

    /// Whether both are written down alike.
    pub(crate) fn says(&self, found: &Self) -> bool {
        (self.bytes, &self.name) == (found.bytes, &found.name)
    }
}

fn cut(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(IDENTITY_BYTES));
    name
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
