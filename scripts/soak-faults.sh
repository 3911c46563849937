#!/usr/bin/env bash
# Every fault under a database on a volume with copies, SOAK_ROUNDS (100) times each, as root: hours. What was acknowledged
# must be there, and clients may not be without it for longer than is said here.
# Each fault has a directory of its own below OUT. A fault whose directory is there is not done again, and one that was
# interrupted, in FAULT.now, goes on after its last round. One that has failed is in FAULT.failed, and is done again.
# SOAK_HOLD (60s): how long etcd is down. SOAK_FAULTS_OF: which faults. SOAK_DIR: where the nodes and their drives are made.
set -euo pipefail
bin=$(realpath "${1:?usage: soak-faults.sh BINARY OUT}")
out=${2:?usage: soak-faults.sh BINARY OUT}
# The goal of each, in seconds; without etcd nothing moves.
limits=kill-database=3,kill-daemon=3,kill-node=8,stop-node=8,cut-network=8,drive-dies=10,drive-hangs=10,move=1.5
faults=${SOAK_FAULTS_OF:-kill-database kill-daemon kill-node stop-node cut-network drive-dies drive-hangs etcd-down move}
mkdir -p "$out"
failed=()
for fault in $faults; do
    if [ -e "$out/$fault" ]; then
        echo "== $fault: done before, in $out/$fault"
        continue
    fi
    echo "== $fault"
    code=0
    if [ -e "$out/$fault.now" ]; then
        "$bin" lab run --resume "$out/$fault.now" || code=$?
    else
        "$bin" lab failover --topology fci --fault "$fault" --rounds "${SOAK_ROUNDS:-100}" --before 2s --after 3s \
            --hold "${SOAK_HOLD:-60s}" --at-most "$limits" --dir "${SOAK_DIR:-${TMPDIR:-/tmp}}" \
            --out "$out/$fault.now" || code=$?
    fi
    case $code in
        0) mv "$out/$fault.now" "$out/$fault" ;;
        1)
            rm -rf "$out/$fault.failed"
            mv "$out/$fault.now" "$out/$fault.failed"
            failed+=("$fault")
            ;;
        # It was interrupted, or could not be done at all.
        *) exit "$code" ;;
    esac
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}"
    exit 1
fi
