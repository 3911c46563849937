//! What a node keeps its copy in: the simulated store, or the engine that ships.

use ashlar_block::Moment;
use ashlar_replica::{
    Config, Content, Entry, EntryChange, Event, Extent, ExtentSet, Head, Heads, Known, Leaf, Local,
    Position, Tag, Token,
};

use super::model::Value;
use super::pool::PoolStore;
use super::store::Store;
use crate::chance::Chance;

/// A copy's store.
#[derive(Debug)]
pub(crate) enum Backing {
    Simulated(Box<Store>),
    Engine(Box<PoolStore>),
}

impl Backing {
    /// Another copy, of the same kind, in which nothing is.
    pub(crate) fn another(
        &self,
        seat: Position,
        config: &Config,
        chance: &mut Chance,
    ) -> Result<Self, String> {
        let (shape, entry) = (config.shape, Entry::default());
        Ok(match self {
            Self::Simulated(_) => {
                Self::Simulated(Box::new(Store::new(seat, shape, entry, config.cage)))
            }
            Self::Engine(old) => {
                let canary = old.canary();
                Self::Engine(Box::new(PoolStore::new(
                    seat, shape, entry, canary, chance,
                )?))
            }
        })
    }

    pub(crate) const fn entry(&self) -> Entry {
        match self {
            Self::Simulated(store) => store.entry(),
            Self::Engine(store) => store.entry(),
        }
    }

    pub(crate) fn version(&self) -> u64 {
        match self {
            Self::Simulated(store) => store.version(),
            Self::Engine(store) => store.version(),
        }
    }

    /// How far it had come when it was imported, or since.
    pub(crate) fn found(&self) -> Head {
        match self {
            Self::Simulated(store) => store.found(),
            Self::Engine(store) => store.found(),
        }
    }

    /// What is remembered of other copies.
    pub(crate) const fn heads(&self) -> Heads {
        match self {
            Self::Simulated(store) => store.heads(),
            Self::Engine(store) => store.heads(),
        }
    }

    /// A copy of it as it is; the engine's drives cannot be copied.
    pub(crate) fn image(&self) -> Option<Self> {
        match self {
            Self::Simulated(store) => Some(Self::Simulated(Box::new(store.image()))),
            Self::Engine(_) => None,
        }
    }

    pub(crate) const fn count_from(&mut self, version: u64) {
        match self {
            Self::Simulated(store) => store.count_from(version),
            Self::Engine(_) => {}
        }
    }

    /// What it holds; zeroes beyond its end.
    pub(crate) fn value(&self, granule: usize) -> Value {
        self.content().get(granule).copied().unwrap_or(0)
    }

    /// It has so many granules from now on, or more. Engines have their own tests for that.
    pub(crate) fn grow(&mut self, granules: u64) {
        if let Self::Simulated(store) = self {
            store.grow(granules);
        }
    }

    pub(crate) fn content(&self) -> &[Value] {
        match self {
            Self::Simulated(store) => store.content(),
            Self::Engine(store) => store.content(),
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            Self::Simulated(store) => store.is_quiet(),
            Self::Engine(store) => store.is_quiet(),
        }
    }

    pub(crate) const fn set_full(&mut self, is_full: bool) {
        match self {
            Self::Simulated(store) => store.is_full = is_full,
            Self::Engine(store) => store.is_full = is_full,
        }
    }

    /// Whether it can neither read nor write. Of an engine a drive dies, for good, if another has what it had: the number
    /// of those.
    pub(crate) fn set_broken(&mut self, is_broken: bool) -> u64 {
        match self {
            Self::Simulated(store) => {
                store.is_broken = is_broken;
                0
            }
            Self::Engine(store) => u64::from(is_broken && store.lose_drive()),
        }
    }

    /// A bit of a granule changes by itself. False for engines, which have checksums for that.
    pub(crate) fn flip(&mut self, granule: usize) -> bool {
        match self {
            Self::Simulated(store) => {
                store.flip(granule);
                true
            }
            Self::Engine(_) => false,
        }
    }

    /// A granule cannot be read until it is written. Of an engine a block of a drive, if another drive has all that this one
    /// has.
    pub(crate) fn spoil(&mut self, granule: u64, chance: &mut Chance) -> bool {
        match self {
            Self::Simulated(store) => {
                store.bad.insert(granule);
                true
            }
            Self::Engine(store) => store.spoil(chance),
        }
    }

    /// Whether something cannot be read.
    pub(crate) fn is_spoilt(&self) -> bool {
        match self {
            Self::Simulated(store) => !store.bad.is_empty(),
            Self::Engine(_) => false,
        }
    }

    /// All can be read again.
    pub(crate) fn unspoil(&mut self) {
        if let Self::Simulated(store) = self {
            store.bad.clear();
        }
    }

    /// What was submitted since the last time, if the world says how long it takes.
    pub(crate) fn take_fresh(&mut self) -> Vec<Token> {
        match self {
            Self::Simulated(store) => store.take_fresh(),
            Self::Engine(_) => Vec::new(),
        }
    }

    pub(crate) fn tear(&mut self, token: Token, chance: &mut Chance) {
        if let Self::Simulated(store) = self {
            store.tear(token, chance);
        }
    }

    pub(crate) fn finish(&mut self, token: Token) -> Option<Event> {
        match self {
            Self::Simulated(store) => store.finish(token),
            Self::Engine(_) => None,
        }
    }

    pub(crate) fn trim(&mut self) {
        if let Self::Simulated(store) = self {
            store.trim();
        }
    }

    pub(crate) fn spill(&mut self) {
        match self {
            Self::Simulated(store) => store.spill(),
            Self::Engine(store) => store.spill(),
        }
    }

    /// The process dies.
    ///
    /// # Errors
    /// The pool cannot be imported any more.
    pub(crate) fn crash(&mut self, chance: &mut Chance) -> Result<(), String> {
        match self {
            Self::Simulated(store) => {
                store.crash(chance);
                Ok(())
            }
            Self::Engine(store) => store.crash(chance),
        }
    }

    /// Lets a store that knows itself how long things take do what is due; an event that follows.
    ///
    /// # Errors
    /// The engine has stopped.
    pub(crate) fn advance(&mut self, now: Moment) -> Result<Option<Event>, String> {
        match self {
            Self::Simulated(_) => Ok(None),
            Self::Engine(store) => store.advance(now),
        }
    }

    /// When it is to be advanced.
    pub(crate) fn next(&self) -> Option<Moment> {
        match self {
            Self::Simulated(_) => None,
            Self::Engine(store) => store.next(),
        }
    }

    fn local(&self) -> &dyn Local {
        match self {
            Self::Simulated(store) => &**store,
            Self::Engine(store) => &**store,
        }
    }

    fn local_mut(&mut self) -> &mut dyn Local {
        match self {
            Self::Simulated(store) => &mut **store,
            Self::Engine(store) => &mut **store,
        }
    }
}

impl Local for Backing {
    fn apply(&mut self, token: Token, extent: Extent, content: Content, tag: Option<Tag>) {
        self.local_mut().apply(token, extent, content, tag);
    }

    fn read(&mut self, token: Token, extent: Extent) {
        self.local_mut().read(token, extent);
    }

    fn read_directly(&mut self, token: Token, extent: Extent) -> bool {
        self.local_mut().read_directly(token, extent)
    }

    fn persist(&mut self, token: Token, change: EntryChange) {
        self.local_mut().persist(token, change);
    }

    fn digest(&mut self, token: Token, extent: Extent) {
        self.local_mut().digest(token, extent);
    }

    fn matches(&self, extent: Extent, content: &Content) -> Option<bool> {
        self.local().matches(extent, content)
    }

    fn unwritten(&self, leaf: Leaf, most: u32) -> u32 {
        self.local().unwritten(leaf, most)
    }

    fn learn(&mut self, known: Known) {
        self.local_mut().learn(known);
    }

    fn uncertain(&self) -> ExtentSet {
        self.local().uncertain()
    }

    fn plane(&self, position: Position) -> ExtentSet {
        self.local().plane(position)
    }

    fn mark(&mut self, position: Position, extent: Extent) {
        self.local_mut().mark(position, extent);
    }

    fn clear(&mut self, position: Position, extent: Extent) {
        self.local_mut().clear(position, extent);
    }

    fn head(&mut self) -> Head {
        self.local_mut().head()
    }

    fn remember(&mut self, heads: Heads) {
        self.local_mut().remember(heads);
    }

    fn is_drained(&self) -> bool {
        self.local().is_drained()
    }

    fn free(&self) -> u64 {
        self.local().free()
    }
}
