//! Where an engine driver sends what its node is to remember.

use ashlar_store::Membership;

use super::link::PoolLink;

/// Something to be stored, and who is told then.
pub struct Remember {
    /// What the engine has handed over.
    pub membership: Membership,
    /// The pool's driver.
    pub link: PoolLink,
}

/// What stores it.
pub struct Memory {
    link: PoolLink,
    store: Box<dyn Fn(Remember) -> bool>,
}

impl Memory {
    /// `store` returns at once, and whether it will be done.
    pub fn new(link: PoolLink, store: impl Fn(Remember) -> bool + 'static) -> Self {
        let store = Box::new(store);
        Self { link, store }
    }

    /// Whether it will be stored.
    pub(super) fn store(&self, membership: Membership) -> bool {
        let link = self.link.clone();
        (self.store)(Remember { membership, link })
    }
}
