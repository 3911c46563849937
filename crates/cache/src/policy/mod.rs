//! What stays in a cache: three queues (S3-FIFO with one bit), and a table of streams.
//!
//! A block comes into a *small* queue, a tenth of the cache. What is asked for again there goes to the *main*
//! queue when its turn comes; what is not leaves, and only its name stays, in the *ghost* queue. A block that
//! is asked for while its name is there goes straight to the main queue. In the main queue a block that was
//! asked for gets another round, once. So a scan passes through a tenth of the cache and no more.
//!
//! Reads that belong to a stream ([`Streams`]) do not enter at all, and what a stream writes leaves first.

mod queue;
mod s3fifo;
mod streams;

pub use s3fifo::{Admission, S3Fifo};
pub use streams::Streams;

/// A block of the cached device, by its index. Its size is the cache's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockIndex(pub u32);
