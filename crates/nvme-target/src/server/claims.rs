use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, PoisonError};

/// Names that are being changed: one change of a name at a time, those of others beside it.
#[derive(Default)]
pub(super) struct Claims {
    names: Mutex<BTreeSet<String>>,
    freed: Condvar,
}

/// The right to change what has a name, until it is dropped.
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    name: String,
}

impl Claims {
    /// Waits until no other change of `name` is under way.
    pub(super) fn claim(&self, name: &str) -> Claim<'_> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        while !names.insert(name.to_owned()) {
            let woken = self.freed.wait(names);
            names = woken.unwrap_or_else(PoisonError::into_inner);
        }
        Claim {
            claims: self,
            name: name.to_owned(),
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let names = self.claims.names.lock();
        let mut names = names.unwrap_or_else(PoisonError::into_inner);
        names.remove(&self.name);
        self.claims.freed.notify_all();
    }
}
