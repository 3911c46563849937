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
    # Last: of a long output often the end is all that is kept.
    if [ "$failures" ]; then printf '%s\n' "== failures" "$failures"; fi
}
trap summary EXIT

failures=
tests() {
    local log
    log=$(mktemp)
    if cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$log"; then rm "$log" && return; fi
    # Each test that failed, and the first lines of why.
    failures=$(awk '
        /^---- .* stdout ----$/ { name = $2 }
        /panicked at/ && name { print name ": " $0; name = ""; left = 4; next }
        left-- > 0 { print "    " substr($0, 1, 300) }' "$log")
    rm "$log"
    return 1
}

export RUSTDOCFLAGS="-D warnings"
# From nothing, an incremental build takes longer.
if [ "${CI:-}" ]; then export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}; fi
# Many tests wait for processes and drives rather than compute.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
bin=target/debug/ashlar
stage "format" cargo fmt --all --check
stage "lint" cargo clippy --workspace --all-targets --locked -- -D warnings
stage "documentation" cargo doc --workspace --no-deps --locked --quiet
stage "unit, property and simulation tests" tests
stage "the engine through a thousand lives" "$bin" sim engine --seeds 1000 --profile all
stage "a scenario, end to end" scripts/smoke.sh "$bin"
stage "real initiators" tests/guest/initiator.sh "$bin"
