use std::sync::{Arc, Mutex};

/// A store in this process, for tests. Clones are the same store.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {}
