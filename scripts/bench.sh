#!/usr/bin/env bash
# Measures ratios with the given ashlar binary; docs/bench.md says what they mean.
#
#   scripts/bench.sh BIN [options]      make bench BENCH_OPTIONS="--only bare,idle --rounds 7"
#
# Exit codes: 0 measured, 2 usage, 3 the environment lacks something.
set -euo pipefail

[[ -n ${1:-} && $1 != -* ]] || { echo "usage: scripts/bench.sh BIN [options]" >&2; exit 2; }
bin=$(realpath "$1")
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ ! -d ${CARGO_HOME:-$HOME/.cargo}/bin ]] || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
"${CARGO:-cargo}" build --release --locked -p ashlar-bench || exit 3

# shellcheck disable=SC2086  # the variable holds several words
exec target/release/ashlar-bench --ashlar "$bin" --out bench-out "$@" ${BENCH_OPTIONS:-}
