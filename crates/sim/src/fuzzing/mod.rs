//! What the fuzzers run: arbitrary bytes against the protocol's state machines.
//!
//! Each function takes bytes of any kind and panics when a promise is broken. `fuzz/` calls them from
//! cargo-fuzz; `tests/fuzzing.rs` calls them with random bytes, so that no test run needs a fuzzer.

mod input;
mod queue_pair;
mod stream;
mod target;

pub use queue_pair::initiator_stream;
pub use stream::pdu_stream;
pub use target::target_stream;
