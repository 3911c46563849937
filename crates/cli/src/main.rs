//! The `ashlar` binary.

fn main() {}
