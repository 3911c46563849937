//! What stays in a cache: three queues (S3-FIFO), and a table of streams.
//!
//! A block comes into a *small* queue, a tenth of the cache and a little more. What is asked for there late, when
//! most of those before it have gone, goes to the *main* queue when its turn comes; what is not leaves, and only its
//! name stays, in the *ghost* queue. A block that is asked for while its name is there goes straight to the main
//! queue. There a block that was asked for gets another round, up to three. So a scan passes through a tenth of
//! the cache and no more, and so does what is asked for twice in a row and then never again: half a block and its
//! other half, a row and its neighbour.
//!
//! Of reads that belong to a stream ([`Streams`]) only names enter: a table that is read again and again comes in
//! the second time. What a stream writes leaves first.
//!
//! How it fares on real traces, beside others: `ashlar-bench --only policy`.

mod queue;
mod s3fifo;
mod streams;

pub use s3fifo::{Admission, S3Fifo};
pub use streams::Streams;

/// A block of the cached device, by its index. Its size is the cache's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockIndex(pub u32);
