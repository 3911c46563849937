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
        let is_alike = self.name.is_some() && self.is_named_like(found);
        is_alike || self.bytes == found.bytes && self.was_name_of(found)
    }

    /// Whether paths alone name it, as a disk's serial number does. What a remote device says of itself stays as it is when
    /// its array goes back to an older image.
    pub(crate) fn is_of_paths(&self) -> bool {
        self.name.is_some() && self.before == Before::Alike
    }

    fn was_name_of(&self, found: &Self) -> bool {
        match &found.before {
            Before::Alike => self.is_named_like(found),
            Before::As(name) => self.name == *name || self.is_named_like(found),
        }
    }

    fn is_named_like(&self, found: &Self) -> bool {
        match (&self.name, &found.name) {
            (Some(name), Some(found)) => name == found || are_alike(name, found),
            (name, found) => name == found,
        }
    }

    /// Whether both are written down alike.
    pub(crate) fn says(&self, found: &Self) -> bool {
        (self.bytes, &self.name) == (found.bytes, &found.name)
    }
}

/// What a remote device says of itself: `namespace uuid …, nguid …, eui64 … of NQN`, or some of that.
struct Remote<'a> {
    /// What each is, and what it says.
    ids: Vec<(&'a str, &'a str)>,
    nqn: Option<&'a str>,
}

impl<'a> Remote<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let text = text.strip_prefix("namespace ")?;
        let (ids, nqn) = match text.split_once(" of ") {
            Some((ids, nqn)) => (ids, Some(nqn)),
            None => (text, None),
        };
        let ids = ids.split(", ").map(|id| id.split_once(' '));
        Some(Self {
            ids: ids.collect::<Option<_>>()?,
            nqn,
        })
    }

    fn id(&self, kind: &str) -> Option<&str> {
        let mut ids = self.ids.iter();
        ids.find(|(what, _)| *what == kind).map(|&(_, id)| id)
    }

    /// Whether both have an identifier that is equal and none that differs: a target may list more after an upgrade, or
    /// less. Without a UUID the subsystem counts, too.
    fn is(&self, found: &Self) -> bool {
        let of_both = |&(kind, id): &(&str, &str)| found.id(kind).map(|found| found == id);
        let both: Vec<bool> = self.ids.iter().filter_map(of_both).collect();
        let has_uuid = self.id("uuid").is_some() && found.id("uuid").is_some();
        let in_others = |nqn: &str| found.nqn.is_some_and(|found| found != nqn);
        let is_elsewhere = !has_uuid && self.nqn.is_some_and(in_others);
        both.contains(&true) && !both.contains(&false) && !is_elsewhere
    }
}

/// Whether two names, of a device or of several that make one, can be of the same.
fn are_alike(name: &str, found: &str) -> bool {
    let [names, all_found] = [name, found].map(|name| name.split("; "));
    let is_one = |(name, found): (&str, &str)| {
        let remote = Remote::parse(name).zip(Remote::parse(found));
        name == found || remote.is_some_and(|(name, found)| name.is(&found))
    };
    names.clone().count() == all_found.clone().count() && names.zip(all_found).all(is_one)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_device_is_known_by_any_of_its_identifiers_and_by_none_that_differs() {
        let is = |known: &str, found: &str| {
            let known = Identity::new(5, Some(known.to_owned()));
            known.is(&Identity::new(5, Some(found.to_owned())).known_before_as(None))
        };
        let same = [
            // As a program before has written it, and under another NQN.
            ("namespace uuid 1 of a", "namespace uuid 1, nguid 2"),
            ("namespace nguid 2 of a", "namespace uuid 1, nguid 2"),
            (
                "namespace uuid 1, nguid 2",
                "namespace nguid 2, eui64 3 of a",
            ),
            (
                "WWN 1; namespace uuid 1 of a",
                "WWN 1; namespace uuid 1, eui64 3",
            ),
        ];
        for (known, found) in same {
            assert!(is(known, found), "{known} is {found}");
        }
        let others = [
            ("namespace uuid 1, nguid 2", "namespace uuid 1, nguid 3"),
            ("namespace uuid 1, nguid 2", "namespace uuid 3, nguid 2"),
            ("namespace nguid 2 of a", "namespace nguid 2, eui64 3 of b"),
            ("namespace nguid 2 of a", "namespace eui64 2 of a"),
            ("WWN 1; namespace uuid 1", "WWN 2; namespace uuid 1"),
            ("namespace uuid 1", "namespace uuid 1; namespace uuid 2"),
            ("WWN 1, from sector 5", "WWN 2, from sector 5"),
        ];
        for (known, found) in others {
            assert!(!is(known, found), "{known} is no {found}");
        }
    }
}
