#!/usr/bin/env bash
# What an attached volume costs PostgreSQL, against a plain XFS, in turns; docs/attach.md says what it means.
#
#   scripts/bench-attach.sh BIN         make bench-attach; BENCH_SCENARIO=FILE for another than bench-attach.toml
#
# Everything is in memory, or in BENCH_DIR: the files could grow to 12 GB. Writes bench-out/attach. Exit codes: 0 measured,
# 2 usage, 3 the environment lacks something.
set -euo pipefail
[[ -n ${1:-} && $1 != -* ]] || { echo "usage: scripts/bench-attach.sh BIN" >&2; exit 2; }
bin=$(realpath "$1")
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
scenario=$(realpath "${BENCH_SCENARIO:-$here/bench-attach.toml}")
out=$(dirname "$here")/bench-out/attach

lacks() { echo "bench-attach: $*" >&2; exit 3; }
[ "$(id -u)" = 0 ] || lacks "attaching needs root"
for device in /dev/fuse /dev/loop-control; do
    [ -c "$device" ] || lacks "there is no $device here"
done
command -v mkfs.xfs >/dev/null || lacks "there is no mkfs.xfs (package xfsprogs)"
place=${BENCH_DIR:-/dev/shm}
[ -d "$place" ] || lacks "there is no $place here"

work=$(mktemp -d "$(realpath "$place")/ashlar-bench.XXXXXX")
chmod 755 "$work"
export ASHLAR_ATTACH_STATE=$work/state ASHLAR_API=$work/node/api.sock
daemon='' loop=''
clean() {
    for place in in-process initiator; do
        "$bin" detach "$work/$place" --force >/dev/null 2>&1 || true
    done
    umount "$work/plain" 2>/dev/null || true
    [ -z "$loop" ] || losetup -d "$loop" || true
    [ -z "$daemon" ] || { kill "$daemon" && wait "$daemon"; } 2>/dev/null || true
    # Nothing that is still mounted is removed with it.
    rm -rf --one-file-system "$work"
}
trap clean EXIT
mkdir "$work/plain" "$work/in-process" "$work/initiator"

truncate -s 2G "$work/disk"
loop=$(losetup --find --show --direct-io=on --sector-size 4096 "$work/disk") || lacks "no loop device can be set up"
mkfs.xfs -q -K "$loop"
mount "$loop" "$work/plain"

"$bin" node --dir "$work/node" --listen 127.0.0.1:0 >"$work/ready" 2>"$work/node.log" &
daemon=$!
for _ in $(seq 100); do
    if grep -q ready "$work/ready"; then break; fi
    sleep 0.1
done
"$bin" pool create tank --drive "file:$work/d0?size=5GiB" --drive "file:$work/d1?size=5GiB" >/dev/null
for place in in-process initiator; do
    via=initiator
    [ $place = initiator ] || via=fuse
    "$bin" volume create "tank/$place" --layout mirror:2 --size 2GiB >/dev/null
    "$bin" attach "tank/$place" --mount "$work/$place" --fs xfs --via $via
done
chmod 755 "$work"/plain "$work"/in-process "$work"/initiator

rm -rf "$out"
mkdir -p "$out"
"$bin" lab run "$scenario" --place "plain=$work/plain" --place "in-process=$work/in-process" \
    --place "initiator=$work/initiator" --out "$out"
