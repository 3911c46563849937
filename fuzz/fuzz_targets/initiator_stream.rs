#![no_main]
//! See `ashlar_sim::fuzzing::initiator_stream`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ashlar_sim::fuzzing::initiator_stream(bytes));
