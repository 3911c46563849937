#!/usr/bin/env bash
# A stock Linux kernel, booted in QEMU, as the initiator of `ashlar serve` on this host's loopback.
#
# Usage: tests/guest/initiator.sh [BINARY] [SCENARIO…]
#
# BINARY defaults to target/release/ashlar; the scenarios (scenarios/*.sh) to basics, restart, disturb,
# paths, cluster, attach, and memory, which needs a stock kernel but no target. With CAPTURE_DIR=dir in the
# environment it runs the `capture` scenario instead, through capture.py, and leaves the byte streams of each
# connection in dir. `cluster` needs a binary of the name `ashlar`: its processes are ended by that.
#
# Prints `ok NAME` and `FAILED NAME: reason` lines and, last, `N passed, N failed`. Exit codes: 0 all
# passed, 1 something failed, 3 the environment lacks something (`SKIPPED guest: reason`).
# Logs stay in .cache/guest/logs: SCENARIO.log, SCENARIO.kernel.log, target-*.err.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo_root=$(cd "$here/../.." && pwd)
logs=$repo_root/.cache/guest/logs

hostnqn=nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111
hostid=11111111-1111-4111-8111-111111111111
nqn_base=nqn.2026-11.io.ashlar.test
golden_nqn=nqn.2026-11.golden:one

# --- targets ----------------------------------------------------------------------------------
# Each has a name; $state/NAME.args holds its command line, so that the hook (another process) can
# start it again just as it was.

# Starts a target with its stored arguments and waits for its `ready` line.
start_target() {
    local name=$1 args
    mapfile -t args < "$state/$name.args"
    : > "$state/$name.out"
    "${args[@]}" > "$state/$name.out" 2>> "$logs/target-$name.err" < /dev/null &
    echo $! > "$state/$name.pid"
    disown
    for _ in $(seq 300); do
        ! grep -q '^ready ' "$state/$name.out" || return 0
        is_running "$name" || break
        sleep 0.1
    done
    echo "target $name is not ready" >&2
    tail -n 5 "$logs/target-$name.err" >&2
    return 1
}

is_running() { kill -0 "$(cat "$state/$1.pid")" 2>/dev/null; }

kill_target() { kill -9 "$(cat "$state/$1.pid")" 2>/dev/null; }

terminate_target() {
    kill -TERM "$(cat "$state/$1.pid")" || return 1
    for _ in $(seq 300); do
        is_running "$1" || return 0
        sleep 0.1
    done
    echo "$1 does not end" >&2
    return 1
}

# target NAME NQN PORT OPTIONS…: stores the command line and starts it.
target() {
    local name=$1 nqn=$2 port=$3
    shift 3
    : > "$logs/target-$name.err"
    printf '%s\n' "$binary" serve --listen "127.0.0.1:$port" --nqn "$nqn" \
        --advertise "10.0.2.2:${advertised:-$port}" "$@" > "$state/$name.args"
    start_target "$name"
}

# The same for a target that takes orders: from a pipe that stays open.
ordered_target() {
    local name=$1 nqn=$2 port=$3
    shift 3
    : > "$logs/target-$name.err"
    mkfifo "$state/$name.orders"
    # shellcheck disable=SC2016 # for the shell that becomes the target
    printf '%s\n' bash -c 'orders=$1; shift; exec "$@" <> "$orders"' orders "$state/$name.orders" \
        "$binary" serve --listen "127.0.0.1:$port" --nqn "$nqn" --orders "$@" > "$state/$name.args"
    start_target "$name"
}

# order NAME WORDS: waits until the target has done it.
order() {
    local before
    before=$(grep -c '^done ' "$state/$1.out")
    echo "$2" > "$state/$1.orders"
    for _ in $(seq 100); do
        (($(grep -c '^done ' "$state/$1.out") == before)) || return 0
        sleep 0.05
    done
    echo "$1 does not do: $2" >&2
    return 1
}

# A daemon with pool tank of two drives and volume tank/db, mirrored.
node_target() {
    local name=$1 port=$2 drive
    # Another scenario may have had one of this name.
    rm -rf "$state/$name.d" "$state"/drive[01]
    : > "$logs/target-$name.err"
    printf '%s\n' "$binary" node --dir "$state/$name.d" --listen "127.0.0.1:$port" > "$state/$name.args"
    start_target "$name" || return 1
    for drive in 0 1; do truncate -s 1G "$state/drive$drive"; done
    ASHLAR_API=$(api "$name") "$binary" pool create tank --drive "file:$state/drive0" --drive "file:$state/drive1" \
        && volume create tank/db --size 192MiB --layout mirror:2 --allow-host "$hostnqn"
}

# Where a daemon's API is: the last word that it says.
api() { awk '{ print $3 }' "$state/$1.out"; }
volume_nqn() { volume show tank/db --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["nqn"])'; }
volume() { ASHLAR_API=$(api node) "$(head -n 1 "$state/node.args")" volume "$@"; }

# Two nodes of this program, an etcd, each in a network namespace, and volume tank/db with a copy on each.
cluster_target() {
    local name
    cluster=$(mktemp -d)
    echo "$cluster" > "$state/cluster"
    "$binary" lab cluster up --dir "$cluster/c" > "$state/cluster.up" 2>&1 || { cat "$state/cluster.up"; return 1; }
    # What an upgrade starts: the same program at another path.
    mkdir "$cluster/upgraded" && cp --reflink=auto "$binary" "$cluster/upgraded/ashlar" || return 1
    for name in a b; do
        mapfile -d '' -t args < "/proc/$(node_pids "$name" | head -n 1)/cmdline"
        printf '%s\n' "${args[@]}" > "$state/$name.args"
    done
    on_node a volume create tank/db --size 320MiB --layout mirror:2 --replicas 2 --allow-host "$hostnqn" \
        >> "$state/cluster.up" 2>&1 && await_in_sync
}

node_pids() { pgrep -f -- "node --dir $(cat "$state/cluster")/c/$1/"; }
on_node() { ASHLAR_API=$(cat "$state/cluster")/c/$1/state/api.sock "$(head -n 1 "$state/a.args")" "${@:2}"; }
portal_of() { awk -v node="$1:" '$1 == node { sub(/,$/, "", $3); print $3 }' "$state/cluster.up"; }
# A namespace by its last letter: of node a or b, or h, where clients are and the nodes' links end.
namespace() { sed -n "s#^clients: nsenter --net=\([^ ]*\)h -- .*#\1$1#p" "$state/cluster.up"; }
other_of() { if [[ $1 == a ]]; then echo b; else echo a; fi; }

await_in_sync() {
    for _ in $(seq 200); do
        on_node a volume show tank/db --json | python3 -c '
import json, sys
copies = json.load(sys.stdin)["replicas"]
sys.exit(len(copies) != 2 or any(copy["state"] != "in_sync" for copy in copies))' 2>/dev/null && return 0
        sleep 0.1
    done
    on_node a volume show tank/db
    return 1
}

# What a guest may ask of a node.
node_hook() {
    local args
    case $1 in
        # The daemon and its parent: nothing certifies the death.
        # shellcheck disable=SC2046 # two words
        kill) kill -9 $(node_pids "$2") ;;
        start)
            mapfile -t args < "$state/$2.args"
            # `lab cluster down` ends what works there.
            cd "$(cat "$state/cluster")/c/$2" || return 1
            nsenter --net="$(namespace "$2")" -- "${args[@]}" \
                > /dev/null 2>> "$logs/cluster-$2.err" < /dev/null & disown ;;
        # In order, and another program is started.
        upgrade)
            # shellcheck disable=SC2046 # two words
            kill -TERM $(node_pids "$2")
            for _ in $(seq 300); do [[ -n $(node_pids "$2") ]] || break; sleep 0.1; done
            sed -i "1s#.*#$(cat "$state/cluster")/upgraded/ashlar#" "$state/$2.args"
            node_hook start "$2" ;;
        cut) ip -n "$(basename "$(namespace h)")" link set "to-$2" down ;;
        connect) ip -n "$(basename "$(namespace h)")" link set "to-$2" up ;;
        # shellcheck disable=SC2046
        stop) kill -STOP $(node_pids "$2") ;;
        # shellcheck disable=SC2046
        continue) kill -CONT $(node_pids "$2") ;;
        drain | undrain) on_node "$(other_of "$2")" node "$1" "$2" ;;
        move) on_node "$2" volume move tank/db --to "$2" ;;
        in-sync) await_in_sync ;;
        *) echo "unknown request of a node: $*"; return 1 ;;
    esac
}

# Two reactors where the machine has two cores, so that queues of one host meet different cores.
cores() { if (($(nproc) > 1)); then echo 0,1; else echo 0; fi; }

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# --- the hook: what a guest may ask for, see GUEST-WAIT in run.sh -------------------------------
hook() {
    case "$1" in
        # kill -9, one second without a target, then the same again.
        restart) kill_target "$2"; sleep 1; start_target "$2" ;;
        # The same, stopped in order and started at once, as a service manager does.
        terminate) terminate_target "$2" && start_target "$2" ;;
        # A target that is there but does not move: in halves, and whole.
        stop) kill -STOP "$(cat "$state/$2.pid")" ;;
        continue) kill -CONT "$(cat "$state/$2.pid")" ;;
        # An order to a target of several, answered by a line.
        path) order "$2" "path $3" ;;
        resize_volume) volume resize tank/db --size "$2" ;;
        node) node_hook "${@:2}" ;;
        pause) kill -STOP "$(cat "$state/$2.pid")" && sleep "$3" && kill -CONT "$(cat "$state/$2.pid")" ;;
        *) echo "unknown request: $*"; return 1 ;;
    esac
}

if [[ ${1:-} == --hook ]]; then
    state=$2
    shift 2
    hook "$@"
    exit
fi

# --- the scenarios ------------------------------------------------------------------------------
binary=${1:-$repo_root/target/release/ashlar}
shift || true

skip() { echo "SKIPPED guest: $*"; exit 3; }

[[ -x $binary ]] || skip "no program at $binary (cargo build --release)"
binary=$(realpath "$binary")
for tool in qemu-system-x86_64 python3; do
    command -v $tool >/dev/null || skip "$tool is missing (scripts/setup.sh test)"
done
"$here/build-initrd.sh" || skip "the guest's images cannot be built (scripts/setup.sh test)"

mkdir -p "$logs"
state=$(mktemp -d "$repo_root/.cache/guest/state.XXXXXX")
results=$state/results
: > "$results"
proxy_pid=

cleanup() {
    local name
    [[ -z $proxy_pid ]] || kill "$proxy_pid" 2>/dev/null
    if [[ -f $state/cluster ]]; then
        "$binary" lab cluster down --dir "$(cat "$state/cluster")/c" > /dev/null
        rm -rf "$(cat "$state/cluster")"
    fi
    for name in "$state"/*.pid; do
        [[ ! -f $name ]] || kill_target "$(basename "$name" .pid)"
    done
    rm -rf "$state"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

result() { printf '%s\n' "$*" | tee -a "$results"; }

# boot SCENARIO VARIABLE=value…: runs it; its results get the scenario's name in front.
boot() {
    local scenario=$1 status
    shift
    GUEST_ENV=$(printf '%s\n' "HOSTNQN=$hostnqn" "HOSTID=$hostid" "$@") \
        GUEST_HOOK="$here/initiator.sh --hook $state" GUEST_LOGS=$logs GUEST_CPUS=${GUEST_CPUS:-2} \
        GUEST_TIMEOUT=${GUEST_TIMEOUT:-600} \
        "$here/run.sh" "$here/scenarios/$scenario.sh" "$scenario" \
        | sed -u -E "s#^(ok|FAILED) #\1 $scenario/#" | tee -a "$results"
    status=${PIPESTATUS[0]}
    ((status != 3)) || skip "the guest cannot boot"
    ((status == 0)) || grep -q "^FAILED $scenario/" "$results" || result "FAILED $scenario/boot: status $status"
}

# A target that a scenario did not kill on purpose must have lived through it, quietly.
survived() {
    local scenario=$1 name
    shift
    for name in "$@"; do
        if ! is_running "$name"; then
            result "FAILED $scenario/target-$name-survives: it ended; $(tail -n 1 "$logs/target-$name.err")"
        elif grep -q 'panicked at' "$logs/target-$name.err"; then
            result "FAILED $scenario/target-$name-survives: $(grep -m 1 'panicked at' "$logs/target-$name.err")"
        else
            result "ok $scenario/target-$name-survives"
        fi
        kill_target "$name"
    done
}

no_target() { result "FAILED $1/target-starts: see $logs/target-*.err"; }

run_basics() {
    local port port_b
    port=$(free_port)
    port_b=$(free_port)
    target a "$nqn_base:a" "$port" --device memory:256MiB --device "file:$state/a.img?size=256MiB" \
        --block 512 --cores "$(cores)" --allow-host "$hostnqn" || { no_target basics; return; }
    target b "$nqn_base:b" "$port_b" --device memory:384MiB \
        --block 4096 --cores "$(cores)" --allow-any-host || { no_target basics; return; }
    boot basics "PORT=$port" "NQN_A=$nqn_base:a" "PORT_B=$port_b" "NQN_B=$nqn_base:b"
    survived basics a b
}

run_restart() {
    local port
    port=$(free_port)
    target file "$nqn_base:file" "$port" --device "file:$state/file.img?size=128MiB" \
        --cores "$(cores)" --allow-host "$hostnqn" || { no_target restart; return; }
    boot restart "PORT=$port" "NQN=$nqn_base:file"
    survived restart file
}

run_disturb() {
    local port
    port=$(free_port)
    target memory "$nqn_base:memory" "$port" --device memory:128MiB \
        --cores "$(cores)" --allow-any-host || { no_target disturb; return; }
    boot disturb "PORT=$port" "NQN=$nqn_base:memory"
    survived disturb memory
}

run_paths() {
    local port port_two port_reserved port_node nqn_node options
    port=$(free_port)
    port_two=$(free_port)
    port_reserved=$(free_port)
    port_node=$(free_port)
    truncate -s 64M "$state/shared.img"
    options=(--device "file:$state/shared.img?share=on" --allow-any-host)
    ordered_target one "$nqn_base:paths" "$port" --controller-ids 1-99 "${options[@]}" \
        || { no_target paths; return; }
    ordered_target two "$nqn_base:paths" "$port_two" --controller-ids 100-199 --path inaccessible \
        "${options[@]}" || { no_target paths; return; }
    target reserved "$nqn_base:reserved" "$port_reserved" --device "file:$state/reserved.img?size=16MiB" \
        --reservations "$state/reservations" --allow-any-host || { no_target paths; return; }
    node_target node "$port_node" > /dev/null || { no_target paths; return; }
    volume allow tank/db --host nqn.2014-08.org.nvmexpress:uuid:22222222-2222-4222-8222-222222222222 > /dev/null
    nqn_node=$(volume_nqn)
    boot paths "PORT=$port" "PORT_TWO=$port_two" "NQN=$nqn_base:paths" \
        "PORT_RESERVED=$port_reserved" "NQN_RESERVED=$nqn_base:reserved" \
        "PORT_NODE=$port_node" "NQN_NODE=$nqn_node"
    survived paths one two reserved node
}

run_cluster() {
    if [[ $(id -u) != 0 ]]; then
        [[ -z ${CI:-} ]] || result "FAILED cluster/namespaces: needs root"
        echo "SKIPPED cluster: network namespaces need root"
        return
    fi
    cluster_target || { no_target cluster; return; }
    GUEST_NETWORK=$(namespace h) boot cluster "A=$(portal_of a)" "B=$(portal_of b)" \
        "NQN=$(on_node a volume show tank/db --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["nqn"])')"
}

run_attach() {
    local port nqn
    port=$(free_port)
    node_target node "$port" > /dev/null || { no_target attach; return; }
    nqn=$(volume_nqn)
    GUEST_PROGRAM=$binary GUEST_MEMORY=768 boot attach "PORT=$port" "NQN=$nqn"
    survived attach node
}

# The path of the tests of a crate's library, which are made if need be: with all other tests, for of some alone cargo
# makes their dependencies anew, with fewer features.
library_tests() {
    (cd "$repo_root" && cargo test --quiet --locked --workspace --no-run --message-format=json) | python3 -c '
import json, sys
built = [json.loads(line) for line in sys.stdin]
tests = (of for of in built if of.get("executable") and of["target"]["kind"] == ["lib"])
print(next(of["executable"] for of in tests if of["target"]["name"] == sys.argv[1]))' "$1"
}

run_memory() {
    local tests
    tests=$(library_tests ashlar_oltp) || { result "FAILED memory/tests-are-made: cargo"; return; }
    # The first limit has the kernel patch its own code. Emulated, a second processor that runs it meanwhile may trap
    # on a breakpoint that is gone ("Oops: int3").
    GUEST_CPUS=1 GUEST_PROGRAM=$tests boot memory "PROGRAM=$(basename "$tests")"
}

run_capture() {
    local port recorded
    port=$(free_port)
    recorded=$(free_port)
    # As the golden replays expect it: crates/sim/golden/README.md. What discovery tells is not used.
    advertised=4420 target captured "$golden_nqn" "$port" --device memory:16MiB \
        --allow-any-host || { no_target capture; return; }
    python3 "$here/capture.py" "127.0.0.1:$recorded" "127.0.0.1:$port" "$CAPTURE_DIR" > "$state/proxy.out" &
    proxy_pid=$!
    for _ in $(seq 100); do grep -q ready "$state/proxy.out" && break; sleep 0.1; done
    boot capture "PORT=$recorded" "NQN=$golden_nqn"
    survived capture captured
}

if [[ -n ${CAPTURE_DIR:-} ]]; then
    scenarios=(capture)
elif (($#)); then
    scenarios=("$@")
else
    scenarios=(basics restart disturb paths cluster attach memory)
fi

for scenario in "${scenarios[@]}"; do
    declare -F "run_$scenario" >/dev/null || { echo "no such scenario: $scenario" >&2; exit 2; }
    "run_$scenario"
done

passed=$(grep -c '^ok ' "$results")
failed=$(grep -c '^FAILED ' "$results")
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0)) || exit 1
