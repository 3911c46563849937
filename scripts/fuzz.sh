#!/bin/sh
# fuzz.sh SECONDS: runs every fuzzer for that long. Needs a nightly toolchain and
# `cargo install cargo-fuzz --locked`. The committed corpus is the start; what is found beyond it goes
# to fuzz/found, crashes to fuzz/artifacts.
set -eu
seconds=${1:?usage: fuzz.sh SECONDS}
cd "$(dirname "$0")/.."
command -v cargo-fuzz >/dev/null || {
    echo "fuzz.sh: cargo-fuzz is missing: cargo install cargo-fuzz --locked" >&2
    exit 3
}
for target in pdu_stream target_stream initiator_stream \
    store_label store_root store_batch store_leaf store_table store_entries; do
    mkdir -p "fuzz/found/$target"
    echo "fuzz.sh: $target for $seconds s"
    cargo +nightly fuzz run "$target" "fuzz/found/$target" "fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -max_len=4096 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1
done
