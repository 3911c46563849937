#!/usr/bin/env bash
# All tests, in the order in which a mistake shows cheapest. Under CI=true nothing may be skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

stage() {
    local name=$1 start=$SECONDS
    shift
    echo "== $name"
    "$@"
    echo "== $name: $((SECONDS - start)) s"
}

export RUSTDOCFLAGS="-D warnings"
stage "format" cargo fmt --all --check
stage "lint" cargo clippy --workspace --all-targets --locked -- -D warnings
stage "documentation" cargo doc --workspace --no-deps --locked --quiet
stage "unit, property and simulation tests" cargo test --workspace --locked
stage "release build" cargo build --release --locked -p ashlar
stage "the engine through a thousand lives" target/release/ashlar sim engine --seeds 1000 --profile all
stage "a scenario, end to end" scripts/smoke.sh target/release/ashlar
stage "real initiators" tests/guest/initiator.sh target/release/ashlar
