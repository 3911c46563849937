#![no_main]
//! See `ashlar_store::format::fuzzing::batch`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ashlar_store::format::fuzzing::batch(bytes));
