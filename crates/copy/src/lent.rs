//! Buffers of the engine that the protocol holds as bytes, and that are taken back whole when it has done with them: what
//! a host has read reaches it without a copy.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use ashlar_block::IoBuffer;
use bytes::Bytes;

struct Held(Arc<IoBuffer>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// What is lent, by its address. What was dropped meanwhile stays until its memory is lent again.
#[derive(Debug, Default)]
pub(crate) struct Lent(HashMap<usize, Weak<IoBuffer>>);

impl Lent {
    pub(crate) fn lend(&mut self, buffer: IoBuffer) -> Bytes {
        let buffer = Arc::new(buffer);
        self.0.insert(address(&buffer), Arc::downgrade(&buffer));
        Bytes::from_owner(Held(buffer))
    }

    /// The buffer that `bytes` are, if they are all of it.
    ///
    /// # Errors
    /// The bytes, if they are not lent, or still shared.
    pub(crate) fn take_back(&mut self, bytes: Bytes) -> Result<IoBuffer, Bytes> {
        let buffer = self.0.remove(&address(&bytes)).and_then(|b| b.upgrade());
        match buffer.filter(|buffer| buffer.len() == bytes.len()) {
            Some(buffer) => {
                drop(bytes);
                Arc::try_unwrap(buffer).map_err(|buffer| Bytes::from_owner(Held(buffer)))
            }
            None => Err(bytes),
        }
    }
}

fn address(bytes: &[u8]) -> usize {
    bytes.as_ptr().addr()
}

#[cfg(test)]
mod tests {
    use ashlar_block::BufferPool;

    use super::*;

    #[test]
    fn what_is_lent_comes_back_and_nothing_else_does() {
        let (pool, mut lent) = (BufferPool::new(1 << 20), Lent::default());
        let mut buffer = pool.get(4096).expect("a buffer");
        buffer.fill(7);
        let bytes = lent.lend(buffer);
        assert!(lent.take_back(bytes.slice(..512)).is_err(), "a part");
        let bytes = lent.take_back(bytes).expect_err("given up with its part");
        assert_eq!(bytes[..], [7; 4096]);
        drop(bytes);

        let bytes = lent.lend(pool.get(4096).expect("a buffer"));
        let shared = bytes.clone();
        let bytes = lent.take_back(bytes).expect_err("shared");
        drop((shared, bytes));

        let bytes = lent.lend(pool.get(4096).expect("a buffer"));
        assert_eq!(lent.take_back(bytes).expect("lent").len(), 4096);
        let other = Bytes::from_static(&[1; 4096]);
        assert!(lent.take_back(other).is_err(), "not lent");
    }
}
