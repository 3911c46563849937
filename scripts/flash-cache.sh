#!/usr/bin/env bash
# What a cache of flash in front of disks gives PostgreSQL; docs/papers.md says what it means.
#
#   scripts/flash-cache.sh BIN DIR [options of lab run]
#   FLASH_MIB=1024 scripts/flash-cache.sh target/release/ashlar /mnt/nvme --set oltp.warehouses=30 --users 8
#
# DIR holds the disks' content and the flash: make FLASH_MIB a third of the database (a warehouse is
# about 100 MB); each of three disks has nine times that: the database, and the copy that steps begin with. Writes OUT (bench-out/flash-cache), with `warmup.csv` beside the result. Exit codes: 0 measured,
# 1 a check of the lab failed, 2 usage, 3 the environment lacks something.
set -euo pipefail
[[ -n ${2:-} && $1 != -* ]] || { echo "usage: scripts/flash-cache.sh BIN DIR [options of lab run]" >&2; exit 2; }
bin=$(realpath "$1")
place=$(realpath "$2")
shift 2
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
out=${OUT:-$(dirname "$here")/bench-out/flash-cache}
mib=${FLASH_MIB:-2048}
disk_mib=$((mib * 9 + 512))
model=${DISK:-hdd:model=10k,raid=5,disks=10}

lacks() { echo "flash-cache: $*" >&2; exit 3; }
[ "$(id -u)" = 0 ] || lacks "attaching needs root"
[ -d "$place" ] || lacks "there is no $place here"
command -v mkfs.xfs >/dev/null || lacks "there is no mkfs.xfs (package xfsprogs)"
command -v python3 >/dev/null || lacks "there is no python3"

work=$(mktemp -d "$place/ashlar-flash.XXXXXX")
chmod 755 "$work"
export ASHLAR_ATTACH_STATE=$work/state ASHLAR_API=$work/node/api.sock
pids=()
clean() {
    for name in disk cached ruled; do
        "$bin" detach "$work/$name" --force >/dev/null 2>&1 || true
    done
    for pid in "${pids[@]}"; do
        { kill "$pid" && wait "$pid"; } 2>/dev/null || true
    done
    # Nothing that is still mounted is removed with it.
    rm -rf --one-file-system "$work"
}
trap clean EXIT
mkdir "$work"/{disk,cached,ruled}
# What a disk holds before it has a cache.
for name in disk cached ruled; do
    truncate -s "${disk_mib}M" "$work/$name.img"
    mkfs.xfs -q -f -K -s size=4096 "$work/$name.img"
done

"$bin" node --dir "$work/node" --listen 127.0.0.1:0 >"$work/ready" 2>"$work/node.log" &
pids+=($!)
"$bin" serve --listen 127.0.0.1:0 --nqn nqn.2026-01.example:disk --allow-any-host --device "$model,file:$work/disk.img" >"$work/served" 2>"$work/serve.log" &
pids+=($!)
for _ in $(seq 600); do
    if grep -q ready "$work/ready" && grep -q ready "$work/served"; then break; fi
    sleep 0.1
done
url=$(awk '/^ready/ { print "nvme-tcp://" $2 "/" $3 "?ns=1" }' "$work/served")
[ -n "$url" ] || lacks "the disk is not served: $(cat "$work/serve.log")"
size=$((mib * 2 + 2048))
"$bin" pool create fast --drive "file:$work/d0?size=${size}MiB" --drive "file:$work/d1?size=${size}MiB" >/dev/null
for name in cached ruled; do
    "$bin" volume create "fast/$name" --layout mirror:1 --cache "${mib}MiB" \
        --backing "$model,file:$work/$name.img" >/dev/null 2>&1
    "$bin" attach "fast/$name" --mount "$work/$name" --via fuse
done
"$bin" attach "$url" --mount "$work/disk" --via fuse
chmod 755 "$work"/{disk,cached,ruled}

# The servers make their folders while the scenario runs: the rule is added when there is a log, and looked up again.
rules() {
    while sleep 2; do
        "$bin" cache rule add fast/ruled --exclude "$work/ruled/**/pg_wal/**" >/dev/null 2>&1 || continue
        "$bin" cache rule add fast/ruled --exclude "$work/ruled/**/pgsql_tmp/**" >/dev/null 2>&1 || true
    done
}
watch() {
    echo "seconds,volume,hit_pct,cached_bytes,newer_bytes,read_hits,read_misses,written_back_bytes"
    while sleep 5; do
        for name in cached ruled; do
            "$bin" volume show "fast/$name" --json | python3 -c '
import json, sys
cache = json.load(sys.stdin)["cache"]
reads = cache["read_hits"] + cache["read_misses"]
print(sys.argv[2], sys.argv[1], round(100 * cache["read_hits"] / max(reads, 1), 2), *(cache[key] for key in (
    "cached_bytes", "newer_bytes", "read_hits", "read_misses", "written_back_bytes")), sep=",")' "$name" "$SECONDS" || true
        done
    done
}
mkdir -p "$out"
rules &
pids+=($!)
watch >"$out/warmup.csv" 2>/dev/null &
pids+=($!)
status=0
"$bin" lab run flash-cache --place "disk=$work/disk" --place "cached=$work/cached" --place "ruled=$work/ruled" \
    --out "$out/run" "$@" || status=$?
"$bin" cache rule list fast/ruled | tee "$out/rules.txt"
for name in cached ruled; do
    "$bin" volume show "fast/$name" --json >"$out/$name.json"
done
exit "$status"
