#!/usr/bin/env bash
# All tests, in the order in which a mistake shows cheapest. Under CI=true nothing may be skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

stages=()
stage() {
    local name=$1 start=$SECONDS
    shift
    echo "== $name"
    "$@" || { stages+=("$(printf '%6d s  %s: FAILED' $((SECONDS - start)) "$name")"); exit 1; }
    stages+=("$(printf '%6d s  %s' $((SECONDS - start)) "$name")")
}
summary() {
    printf '%s\n' "== stages" "${stages[@]}" "$(printf '%6d s  in all' "$SECONDS")"
}
trap summary EXIT

export RUSTDOCFLAGS="-D warnings"
# Many tests wait for processes and drives rather than compute.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
bin=target/debug/ashlar
stage "format" cargo fmt --all --check
stage "lint" cargo clippy --workspace --all-targets --locked -- -D warnings
stage "documentation" cargo doc --workspace --no-deps --locked --quiet
stage "unit, property and simulation tests" cargo test --workspace --locked --no-fail-fast
stage "the engine through a thousand lives" "$bin" sim engine --seeds 1000 --profile all
stage "a scenario, end to end" scripts/smoke.sh "$bin"
stage "real initiators" tests/guest/initiator.sh "$bin"
