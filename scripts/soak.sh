#!/usr/bin/env bash
# The long rounds: simulation seeds, fuzzers, abuse at full length, real initiators again and again.
# And PostgreSQL through power cuts (SOAK_POWER_CUTS, 50), and on an attached volume through 24 rounds of
# kill -9, behind a cache through 100 (tests, at full length).
# SOAK_ROUNDS (100) of every fault under an instance on a volume with copies (root, and what `setup.sh test` installs): hours.
# Images of a Ceph cluster, where Ceph and its library's header are installed.
# Faults that are in soak-out/faults are not done again.
# SOAK_SEEDS (100000), SOAK_PROFILE_SEEDS (20000), SOAK_ENGINE_SEEDS (1000000), SOAK_FAULTS (500), SOAK_FUZZ_SECONDS (1800 each), SOAK_GUEST_ROUNDS (10).
set -euo pipefail
bin=$(realpath "${1:?usage: soak.sh BINARY}")
cd "$(dirname "$0")/.."
first=$(date +%s)
echo "== simulation, seeds from $first"
"$bin" sim wire --seeds "${SOAK_SEEDS:-100000}" --first-seed "$first"
"$bin" sim engine --seeds "${SOAK_ENGINE_SEEDS:-1000000}" --first-seed "$first" --profile all
echo "== faults of a cluster, in namespaces if this is root"
cluster=$(mktemp -d)
"$bin" sim cluster --seeds "${SOAK_SEEDS:-100000}" --first-seed "$first"
# Which are not among `all`.
for profile in steady quorum-away old-image young-image bad-blocks drift rights; do
    "$bin" sim cluster --seeds "${SOAK_PROFILE_SEEDS:-20000}" --first-seed "$first" --profile "$profile"
done
"$bin" lab ha --soak --seed "$first" --faults "${SOAK_FAULTS:-500}" --dir "$cluster/c" --out "$cluster/out"
rm -rf "$cluster"
if [ "$(id -u)" = 0 ]; then
    echo "== faults under a database on a volume with copies: nothing acknowledged may be lost"
    scripts/soak-faults.sh "$bin" soak-out/faults
else
    echo "== faults under a database on a volume with copies: SKIPPED, needs root"
fi
echo "== every crash of small workloads, and every second one"
ASHLAR_SOAK=1 cargo test --release --locked -p ashlar-sim --test every_crash
ASHLAR_SOAK=1 cargo test --release --locked -p ashlar-sim --test cluster processes_may_die
echo "== abuse, and crashes of caches, at full length"
ASHLAR_SOAK=1 cargo test --release --locked -p ashlar -p ashlar-nvme-target -p ashlar-cache
if command -v ceph-osd >/dev/null && command -v rbd >/dev/null && [ -e /usr/include/rbd/librbd.h ]; then
    echo "== images of a Ceph cluster, at one of one node"
    cargo test --release --locked -p ashlar-device --features rbd rbd
else
    echo "== images of a Ceph cluster: SKIPPED and NOT tested, needs ceph-osd, rbd (ceph-common) and librbd-dev" >&2
fi
echo "== fuzzers"
scripts/fuzz.sh "${SOAK_FUZZ_SECONDS:-1800}"
echo "== PostgreSQL without torn-page protection, through power cuts"
torn=$(mktemp -d)
# The server is not root's.
chmod 755 "$torn"
"$bin" lab torn-pages --dir "$torn" --out "$torn/all" --seed "$first" --images "${SOAK_POWER_CUTS:-50}" --seconds 30
"$bin" lab torn-pages --dir "$torn" --out "$torn/volume" --seed "$first" --images "${SOAK_POWER_CUTS:-50}" --seconds 30 --only volume --tear 512
rm -rf "$torn"
for round in $(seq "${SOAK_GUEST_ROUNDS:-10}"); do
    echo "== real initiators, round $round"
    tests/guest/initiator.sh "$bin"
done
