#!/usr/bin/env bash
# TPROC-C on SQLite, on a plain disk against an attached remote volume: demo-database.sh BINARY DIR.
# Both are XFS on a loop device over a file in DIR; the second's file is served over NVMe/TCP on loopback and
# attached. Writes DIR/plain, DIR/remote and DIR/database.html, and the comparison into DIR/report.html and
# DIR/result.json (key `database`). Where nothing can be attached it says why, and that is no failure.
set -euo pipefail
bin=$(realpath "${1:?usage: demo-database.sh BINARY DIR}")
out=$(realpath "${2:?usage: demo-database.sh BINARY DIR}")
repeats=${DEMO_REPEATS:-3}

skip() {
    echo "Skipped: TPROC-C on an attached remote volume: $*"
    exit 0
}
[ "$(id -u)" = 0 ] || skip "attaching needs root"
for device in /dev/fuse /dev/loop-control; do
    [ -c "$device" ] || skip "there is no $device here"
done
"$(dirname "$0")/setup.sh" demo || skip "what it needs could not be installed (scripts/setup.sh list)"

work=$(mktemp -d "${TMPDIR:-/var/tmp}/ashlar-demo.XXXXXX")
export ASHLAR_ATTACH_STATE=$work/state
served='' loop=''
clean() {
    "$bin" detach "$work/remote" --force >/dev/null 2>&1 || true
    [ -z "$served" ] || { kill "$served" && wait "$served"; } 2>/dev/null || true
    umount "$work/plain" 2>/dev/null || true
    [ -z "$loop" ] || losetup -d "$loop" || true
    # Nothing that is still mounted is removed with it.
    rm -rf --one-file-system "$work" "$out/images"
}
trap clean EXIT
mkdir -p "$work/plain" "$work/remote" "$out/images"

# The plain disk, as `ashlar attach` makes its own: direct, in blocks of 4 KiB. Its space is there from the
# beginning, as that of the file that is served.
fallocate -l 1G "$out/images/plain"
loop=$(losetup --find --show --direct-io=on --sector-size 4096 "$out/images/plain") \
    || skip "no loop device can be set up"
mkfs.xfs -q -K "$loop"
mount "$loop" "$work/plain"

# The remote volume.
nqn=nqn.2026-11.io.ashlar:demo
"$bin" serve --device "file:$out/images/remote?size=1GiB" --listen 127.0.0.1:0 --nqn "$nqn" \
    --allow-any-host >"$work/ready" 2>"$work/serve.log" &
served=$!
for _ in $(seq 100); do
    if grep -q ready "$work/ready"; then break; fi
    sleep 0.1
done
address=$(awk '$1 == "ready" { print $2 }' "$work/ready")
"$bin" attach "nvme-tcp://$address/$nqn?ns=1" --mount "$work/remote" --fs xfs >"$work/attach.log" 2>&1 || {
    # What this machine lacks is an environment error (3); anything else is ours.
    [ $? = 3 ] && [ -z "${CI:-}" ] || { cat "$work/attach.log"; exit 1; }
    skip "$(tail -1 "$work/attach.log")"
}

echo "TPROC-C on SQLite, a plain disk against an attached remote volume, in turns"
"$bin" lab oltp build --db "sqlite:$work/plain/tpcc.db" --warehouses 1
cp "$work/plain/tpcc.db" "$work/remote/tpcc.db"
rm -rf "${out:?}/plain" "$out/remote"
for repeat in $(seq "$repeats"); do
    places='plain remote'
    # Neither is always the first.
    [ $((repeat % 2)) = 1 ] || places='remote plain'
    for place in $places; do
        "$bin" lab oltp run --db "sqlite:$work/$place/tpcc.db" --restore "$work/$place/saved.db" \
            --users 1 --ramp 1s --seconds 3 --append --out "$out/$place" >"$work/run.log" 2>&1 \
            || { cat "$work/run.log"; exit 1; }
    done
done
"$bin" lab report "$out/plain" "$out/remote" --out "$out/database.html" >/dev/null
"$bin" lab report "$out/plain" "$out/remote" --into "$out" >/dev/null
line=$("$bin" lab compare "$out/plain" "$out/remote" | sed -n 's/.*\(the second .*\)/\1/p' | head -1)
line=${line//the second/the attached remote volume}
echo "New orders a minute of TPROC-C on SQLite: ${line//the first/the plain disk}"
echo "All figures of the database: ${out##*/}/database.html"
