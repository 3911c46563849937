#!/usr/bin/env bash
# What a cache of flash in front of disks gives PostgreSQL; docs/papers.md says what it means.
#
#   scripts/flash-cache.sh BIN DIR [options of lab run]
#   scripts/flash-cache.sh target/release/ashlar /mnt/nvme --set oltp.warehouses=30 --set measure.seconds=120 --users 8
#
# DIR holds the disks' content and the flash. Each cache has a third of the database (FLASH_MIB has the last word; a
# warehouse is about 100 MB); each of three disks has nine times that: the database, and the copy that steps begin with. With SYSTEM=1
# each disk also has an image of a system, as large as the flash, that is read and written all the time. Writes OUT
# (bench-out/flash-cache): the result, `warmup.csv`, `rules.txt` as it was while the servers ran, and `curve.csv`: TPM,
# hits and the disk's work every 5 s (from the ramp's start with `--set measure.ramp=0`). Exit codes: 0 measured, 1 a
# check of the lab failed, 2 usage, 3 the environment lacks something.
set -euo pipefail
[[ -n ${2:-} && $1 != -* ]] || { echo "usage: scripts/flash-cache.sh BIN DIR [options of lab run]" >&2; exit 2; }
bin=$(realpath "$1")
place=$(realpath "$2")
shift 2
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
out=${OUT:-$(dirname "$here")/bench-out/flash-cache}
# How large the database is, as the scenario has it or as the options make it.
warehouses=3000
scale=1
before=""
for word in "$@"; do
    case $before$word in
        *oltp.warehouses=*) warehouses=${word##*=} ;;
        --scale=*) scale=${word#*=} ;;
        --scale*) scale=${word:-1} ;;
    esac
    before=""
    [ "$word" != --scale ] || before=--scale
done
warehouses=$(awk -v n="$warehouses" -v by="$scale" 'BEGIN {
    if (by == "min") by = 0
    scaled = int(n * by)
    least = n < 4 ? n : 4
    print scaled < least ? least : scaled }')
mib=${FLASH_MIB:-$((warehouses * 100 / 3))}
disk_mib=$((mib * 9 + 512))
model=${DISK:-hdd:model=10k,raid=5,disks=10}

lacks() { echo "flash-cache: $*" >&2; exit 3; }
[ ! -e "$out/run" ] || { echo "flash-cache: $out/run is there: name another directory (OUT), or remove it" >&2; exit 2; }
[ "$(id -u)" = 0 ] || lacks "attaching needs root"
[ -d "$place" ] || lacks "there is no $place here"
needs=$((warehouses * 100 * 6 + mib * 2))
has=$(df --output=avail -m "$place" | tail -1)
[ "$has" -ge "$needs" ] || lacks "$place has $has MiB left: $warehouses warehouses on three disks, with a copy of each, and two caches of $mib MiB need about $needs; make it smaller: --set oltp.warehouses=30"
command -v mkfs.xfs >/dev/null || lacks "there is no mkfs.xfs (package xfsprogs)"
command -v python3 >/dev/null || lacks "there is no python3"

work=$(mktemp -d "$place/ashlar-flash.XXXXXX")
chmod 755 "$work"
export ASHLAR_ATTACH_STATE=$work/state ASHLAR_API=$work/node/api.sock
pids=()
beside=()
clean() {
    for pid in "${beside[@]}"; do
        { kill "$pid" && wait "$pid"; } 2>/dev/null || true
    done
    for name in disk cached ruled; do
        "$bin" detach "$work/$name" --force >/dev/null 2>&1 || true
    done
    for pid in "${pids[@]}"; do
        { kill "$pid" && wait "$pid"; } 2>/dev/null || true
    done
    # Half a look at the rules, if one was under way.
    rm -f "${out:?}/rules.new"
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

# The servers make their folders while the scenario runs, and remove them at its end: the rule is added when there is a
# log, and what it has met is noted as long as there is one.
rules() {
    while sleep 2; do
        "$bin" cache rule list fast/ruled >"$out/rules.new" 2>/dev/null || true
        ! grep -q 'pg_wal.* MiB\|pg_wal.* GiB\|pg_wal.* KiB' "$out/rules.new" || cp "$out/rules.new" "$out/rules.txt"
        [ -z "${SYSTEM:-}" ] || "$bin" cache rule add fast/ruled --exclude "$work/ruled/system.img" >/dev/null 2>&1 || true
        "$bin" cache rule add fast/ruled --exclude "$work/ruled/**/pg_wal/**" >/dev/null 2>&1 || continue
        "$bin" cache rule add fast/ruled --exclude "$work/ruled/**/pgsql_tmp/**" >/dev/null 2>&1 || true
    done
}
watch() {
    echo "unix_seconds,volume,hit_pct,cached_bytes,newer_bytes,read_hits,read_misses,written_around,written_back_bytes"
    while sleep 5; do
        for name in cached ruled; do
            "$bin" volume show "fast/$name" --json | python3 -c '
import json, sys
cache = json.load(sys.stdin)["cache"]
reads = cache["read_hits"] + cache["read_misses"]
print(sys.argv[2], sys.argv[1], round(100 * cache["read_hits"] / max(reads, 1), 2), *(cache[key] for key in (
    "cached_bytes", "newer_bytes", "read_hits", "read_misses", "written_around", "written_back_bytes")), sep=",")' \
                "$name" "$EPOCHSECONDS" || true
        done
    done
}
# A system beside the database: half of what it does reads a file in order, the rest is small and anywhere.
use_system() {
    exec python3 - "$1" <<'PY'
import os, random, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
size, at = os.fstat(file).st_size, 0
while True:
    time.sleep(0.02)
    place, length = (at, 1 << 18) if random.random() < 0.5 else (random.randrange(size // 4096) * 4096, 4096)
    if length > 4096:
        at = (at + length) % (size - length)
    if length == 4096 and random.random() < 0.5:
        os.pwrite(file, os.urandom(4096), place)
        os.fdatasync(file)
    else:
        os.pread(file, length, place)
    os.posix_fadvise(file, place, length, os.POSIX_FADV_DONTNEED)
PY
}
# What came of it, beside what was published.
curve() {
    python3 - "$out" <<'PY'
import collections, csv, json, os, sys
out = sys.argv[1]
points = collections.defaultdict(list)
for row in csv.DictReader(open(f"{out}/warmup.csv")):
    try:
        points[row["volume"]].append({key: float(value) for key, value in row.items() if key != "volume"})
    except (TypeError, ValueError):
        continue
result = json.load(open(f"{out}/run/result.json"))
tpm = {}
with open(f"{out}/curve.csv", "w") as file:
    print("place,seconds,tpm,hit_pct,misses_a_second,written_back_mib_a_second,newer_mib", file=file)
    for one in result["configurations"]:
        for step in (one["oltp"] or {}).get("steps", []) if one.get("oltp") else []:
            series, began = step["series"], step["began_unix_s"]
            third = series[len(series) * 2 // 3:]
            tpm.setdefault(one["place"], []).append(60 * sum(third) / max(len(third), 1))
            for at in range(0, len(series) - 4, 5):
                row = [one["place"], at + 5, 12 * sum(series[at:at + 5])]
                near = [p for p in points[one["place"]] if abs(p["unix_seconds"] - began - at - 5) < 9]
                if len(near) > 1:
                    a, b = near[0], near[-1]
                    time = max(b["unix_seconds"] - a["unix_seconds"], 1)
                    hits, misses = b["read_hits"] - a["read_hits"], b["read_misses"] - a["read_misses"]
                    back = b["written_back_bytes"] - a["written_back_bytes"]
                    row += [round(100 * hits / max(hits + misses, 1), 1), round(misses / time),
                            round(back / time / 2**20, 2), round(b["newer_bytes"] / 2**20)]
                print(*row, sep=",", file=file)
mean = {place: sum(all) / len(all) for place, all in tpm.items()}
for place, published in (("disk", 1.0), ("cached", 2.88), ("ruled", 5.93)):
    if mean.get("disk") and place in mean:
        print(f"{place}: {mean[place]:.0f} TPM in the last third, {mean[place] / mean['disk']:.2f} of the disk (published: {published})")
PY
}
mkdir -p "$out"
if [ -n "${SYSTEM:-}" ]; then
    for name in disk cached ruled; do
        head -c "${mib}M" /dev/urandom >"$work/$name/system.img"
        use_system "$work/$name/system.img" &
        beside+=($!)
    done
fi
rules &
pids+=($!)
watch >"$out/warmup.csv" 2>/dev/null &
pids+=($!)
status=0
"$bin" lab run flash-cache --place "disk=$work/disk" --place "cached=$work/cached" --place "ruled=$work/ruled" \
    --out "$out/run" "$@" || status=$?
! [ -s "$out/rules.txt" ] || cat "$out/rules.txt"
curve || true
for name in cached ruled; do
    "$bin" volume show "fast/$name" --json >"$out/$name.json"
done
exit "$status"
