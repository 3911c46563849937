//! What stays in a cache: three queues (S3-FIFO), and a table of streams.
//!
//! A block comes into a *small* queue, a twentieth or a tenth of the cache and a little more, or four fifths. From
//! there it goes to the *main* queue when its turn comes, or leaves, and only its name stays, in the *ghost* queue.
//! What is asked for while its name is there comes into question for the main queue at once. There a block that was
//! asked for gets another round, up to three. So a scan passes through a part of the cache and no more, and so does
//! what is asked for twice in a row and then never again: half a block and its other half, a row and its neighbour.
//!
//! What goes to the main queue follows one of three preferences. *Frequent*: what was asked for more often, by
//! `Counts` of far more than is here, than that which would leave for it. Behind a database's own memory, what has
//! just been asked for is what will not be asked for soon. *Recent*: what was asked for late in the small queue, when
//! most of those before it have gone, and all whose names come back. *Latest*: the same, with nearly all of the cache
//! for what has just come. `Trials` of all three, on a sample of names, say which finds most.
//!
//! Of reads that belong to a stream ([`Streams`]) only names enter: a table that is read again and again comes in the
//! second time. What a stream writes leaves first.
//!
//! How it fares on real traces, beside others: `ashlar-bench --only policy`.

mod counts;
mod queue;
mod s3fifo;
mod streams;
mod trials;

use s3fifo::Prefers;
pub use s3fifo::{Admission, Asked, S3Fifo};
pub use streams::Streams;

/// A block of the cached device, by its index. Its size is the cache's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockIndex(pub u32);
