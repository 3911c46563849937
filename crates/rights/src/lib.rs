//! Which hosts may read and write a replicated volume: its reservations (NVMe), decided by its owner and kept in its
//! register. A state machine beside the [replica](ashlar_replica): its driver hands both what hosts ask for.

mod reserve;
mod words;

pub use reserve::{Asker, Decided, Reserve, ReservedNews, news_from_bytes};
