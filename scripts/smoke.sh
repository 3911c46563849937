#!/usr/bin/env bash
# The shipped scenarios of devices, and the scan, at their smallest, and a verified sweep over the network, as a user
# runs them. The other scenarios of databases take minutes even so: `cargo test -p ashlar --test databases` runs
# smaller ones of their kind.
set -euo pipefail
bin=$(realpath "${1:?usage: smoke.sh BINARY}")
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/ashlar-smoke.XXXXXX")
served=
trap '[ -z "$served" ] || kill "$served" 2>/dev/null; rm -rf "$dir"' EXIT
passed=0 failed=0

check() {
    local name=$1
    shift
    if "$@" >"$dir/log" 2>&1; then
        passed=$((passed + 1))
        echo "ok $name"
    else
        failed=$((failed + 1))
        echo "FAILED $name: exit $?"
        tail -20 "$dir/log"
    fi
}

has_report() { [ -s "$1/result.json" ] && [ -s "$1/report.html" ]; }
has_files() { has_report "$1" && [ -s "$1/result.csv" ]; }
# A promise that this machine's drive does not keep (exit code 1) is no fault of ours.
kept_or_missed() { "$@" || [ $? = 1 ]; }

for scenario in nvmeof-local-vs-remote virtual-device-scaling drive-baseline; do
    must=
    [ "$scenario" != drive-baseline ] || must=kept_or_missed
    check "$scenario" $must "$bin" lab run "$scenario" --scale min --dir "$dir" --out "$dir/$scenario"
    check "$scenario files" has_files "$dir/$scenario"
done

if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || [ "${CI:-}" = true ]; then
    # PostgreSQL's own user must be able to enter.
    chmod 755 "$dir"
    check "scan-concurrency" "$bin" lab run scan-concurrency --scale min --dir "$dir" --out "$dir/scan"
    check "scan-concurrency files" has_report "$dir/scan"
    check "compare scans" "$bin" lab compare "$dir/scan" "$dir/scan"
else
    echo "SKIPPED scan-concurrency: there is no PostgreSQL in /usr/lib/postgresql"
fi

nqn=nqn.2026-11.io.ashlar:smoke
"$bin" serve --device memory:128MiB --listen 127.0.0.1:0 --nqn "$nqn" --allow-any-host \
    >"$dir/ready" 2>"$dir/serve.log" &
served=$!
for _ in $(seq 100); do grep -q ready "$dir/ready" && break || sleep 0.1; done
address=$(awk '$1 == "ready" { print $2 }' "$dir/ready")
check "discover" "$bin" nvme discover "$address"
check "identify" "$bin" nvme identify "$address" "$nqn"
check "verified sweep over the network" "$bin" lab sweep --verify --pattern randrw,rw --block 4k,64k \
    --threads 1,2 --depth 1,16 --seconds 0.3 --repeat 1 \
    --on "nvme-tcp://$address/$nqn?ns=1&hdgst=on&ddgst=on" --out "$dir/verify"
check "compare" "$bin" lab compare "$dir/verify" "$dir/verify"
kill "$served" && wait "$served" && served=
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
