# Helpers for scripts that run in the guest (busybox sh). Source it first: . /guest/lib.sh
#
# From /guest/env: TARGET_HOST, PORT (where things connect by default), HOSTNQN, HOSTID.
# Controllers and disks are found by subsystem NQN in sysfs, never by guessing a number.

. /guest/env
cd /tmp || exit 1
: "${TARGET_HOST:=10.0.2.2}"
: "${HOSTNQN:=nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111}"
: "${HOSTID:=11111111-1111-4111-8111-111111111111}"
# Seconds that one check may take before it counts as hung.
LIMIT=90

pass() { echo "GUEST-PASS $1"; }
fail() { name=$1; shift; echo "GUEST-FAIL $name $*"; }
seconds() { cut -d. -f1 /proc/uptime; }
note() { echo "# $(cut -d' ' -f1 /proc/uptime) $*"; }

# check NAME COMMAND…: passes when the command (or function) ends with 0 within LIMIT seconds. It
# runs in a subshell; a command that hangs in the kernel is left behind and reported.
check() {
    check_name=$1
    shift
    note "$check_name: $*"
    ("$@") > /tmp/check.out 2>&1 < /dev/null &
    await_process $! "$LIMIT"
    check_status=$?
    sed 's/^/  | /' /tmp/check.out | head -n 60
    case $check_status in
        0) pass "$check_name" ;;
        124) fail "$check_name" "hung for $LIMIT s: $(last_words)"; mv /tmp/check.out /tmp/hung.out ;;
        *) fail "$check_name" "status $check_status: $(last_words)" ;;
    esac
    return $check_status
}

# A check without which the rest of the script makes no sense.
require() { check "$@" || { note "the rest needs $1"; exit 1; }; }

last_words() { grep -v '^ *$' /tmp/check.out | tail -n 1 | cut -c 1-200; }

# The exit status of a child of this shell, or 124 when it has not ended after so many seconds.
await_process() {
    await_until=$(($(seconds) + $2))
    while kill -0 "$1" 2>/dev/null; do
        # A child that ended stays as a zombie until `wait`.
        grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null && break
        [ "$(seconds)" -lt $await_until ] || { kill -9 "$1" 2>/dev/null; return 124; }
        sleep 0.1
    done
    wait "$1"
}

# fails COMMAND…: true when the command does not succeed.
fails() { if "$@"; then echo "it succeeded, but must not"; return 1; fi; }

# says PATTERN COMMAND…: true when the command's output, whatever its status, matches.
says() {
    pattern=$1
    shift
    said=$("$@" 2>&1)
    echo "$said"
    echo "$said" | grep -Eiq -- "$pattern" || { echo "does not say: $pattern"; return 1; }
}

# True when a command comes true within so many seconds: within SECONDS COMMAND…
within() {
    deadline=$(($(seconds) + $1))
    shift
    until "$@" > /tmp/within.out 2>&1; do
        [ "$(seconds)" -lt $deadline ] || break
        sleep 0.1
    done
    "$@" > /tmp/within.out 2>&1 && return 0
    cat /tmp/within.out
    echo "not in time: $*"
    return 1
}

# Asks the host to do something and waits for it; see GUEST-WAIT in run.sh. Talks to the serial line
# itself, so that it also works inside a check.
host() {
    echo "GUEST-WAIT $*" > /dev/ttyS1
    read -r answer < /dev/ttyS1 || answer=1
    return "$answer"
}

# --- NVMe -------------------------------------------------------------------------------------

# discover [--port P] [--as HOSTNQN HOSTID]
discover() {
    parse_where "$@"
    nvme discover -t tcp -a "$TARGET_HOST" -s "$where_port" -q "$where_hostnqn" -I "$where_hostid"
}

# connect NQN [--port P] [--as HOSTNQN HOSTID] [options of nvme connect…]
connect() {
    connect_nqn=$1
    shift
    parse_where "$@"
    # shellcheck disable=SC2086
    nvme connect -t tcp -a "$TARGET_HOST" -s "$where_port" -n "$connect_nqn" \
        -q "$where_hostnqn" -I "$where_hostid" \
        --keep-alive-tmo=15 --reconnect-delay=1 --ctrl-loss-tmo=120 $where_rest
}

# Splits --port and --as from the other options.
parse_where() {
    where_port=$PORT where_hostnqn=$HOSTNQN where_hostid=$HOSTID where_rest=
    while [ $# -gt 0 ]; do
        case $1 in
            --port) where_port=$2; shift 2 ;;
            --as) where_hostnqn=$2 where_hostid=$3; shift 3 ;;
            *) where_rest="$where_rest $1"; shift ;;
        esac
    done
}

disconnect() { nvme disconnect -n "$1"; }

# The controllers (nvme0 …) of a subsystem, one a line.
controllers_of() {
    for found in /sys/class/nvme/nvme*; do
        [ "$(cat "$found/subsysnqn" 2>/dev/null)" = "$1" ] && basename "$found"
    done
    return 0
}

controller_of() { controllers_of "$1" | head -n 1; }
controller_state() { cat "/sys/class/nvme/$(controller_of "$1")/state" 2>/dev/null; }
is_live() { [ "$(controller_state "$1")" = live ]; }
is_not_live() { ! is_live "$1"; }
is_gone() { [ -z "$(controllers_of "$1")" ]; }

# The block device of a namespace: disk_of NQN NSID. Hidden path devices (nvme0c0n1) do not count.
disk_of() {
    for found in /sys/block/nvme*; do
        case $found in *c[0-9]*n[0-9]*) continue ;; esac
        [ "$(cat "$found/device/subsysnqn" 2>/dev/null)" = "$1" ] || continue
        [ "$(cat "$found/nsid" 2>/dev/null)" = "$2" ] || continue
        echo "/dev/$(basename "$found")"
        return 0
    done
    return 1
}

has_disk() { disk=$(disk_of "$1" "$2") && [ -b "$disk" ]; }
wait_disk() { within 20 has_disk "$1" "$2"; }

# A path's state, by the target's port or ADDRESS:PORT.
path_of() {
    case $1 in *:*) path_address="traddr=${1%:*},trsvcid=${1#*:}" ;; *) path_address="trsvcid=$1" ;; esac
    for found in /sys/class/nvme/nvme*; do
        grep -q "$path_address" "$found/address" 2>/dev/null || continue
        cat "$found"/nvme*c*n1/ana_state
    done
}
path_is() { [ "$(path_of "$1")" = "$2" ]; }

# A queue file of a disk: queue_of /dev/nvme0n1 logical_block_size
queue_of() { cat "/sys/block/$(basename "$1")/queue/$2"; }

# Sectors (512 bytes) written to a disk so far.
sectors_written() { awk '{ print $7 }' "/sys/block/$(basename "$1")/stat"; }

# --- I/O --------------------------------------------------------------------------------------

# fio_on DEVICE BLOCK_SIZE SIZE [fio options…]: random writes with a CRC in every block, each read
# back and checked at the end. Direct I/O, sixteen in flight.
fio_on() {
    fio_device=$1 fio_block=$2 fio_size=$3
    shift 3
    # Linux sends SIGPIPE to a program whose request finds the connection closed, and sends the request again by itself.
    (
        trap '' PIPE
        exec fio --name=job --filename="$fio_device" --rw=randwrite --bs="$fio_block" --size="$fio_size" \
            --direct=1 --ioengine=libaio --iodepth=16 --thread --fallocate=none --output=/tmp/fio.out \
            --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_dump=0 --verify_state_save=0 \
            --randrepeat=1 "$@"
    )
    fio_status=$?
    grep BW= /tmp/fio.out
    grep err= /tmp/fio.out
    # Why it has ended so is what it said first.
    [ $fio_status = 0 ] || head -n 5 /tmp/fio.out
    return $fio_status
}

# Only the check of what fio_on wrote with the same arguments.
fio_again() { fio_on "$@" --verify_only; }

# busy_during FILE SIZE COMMAND…: fio_on, again and again, from before the command begins until it has ended; prints
# how long reads and writes have waited.
busy_during() {
    rm -f /tmp/busy.over /tmp/busy.out
    keep_busy "$1" "$2" > /tmp/busy.out 2>&1 &
    busy_job=$!
    shift 2
    within 90 [ -s /tmp/busy.out ] && "$@"
    busy_status=$?
    touch /tmp/busy.over
    await_process $busy_job 90 || busy_status=1
    cat /tmp/busy.out
    return $busy_status
}
keep_busy() {
    until [ -e /tmp/busy.over ]; do
        fio_on "$1" 8k "$2" --rate_iops=,200 || { echo "fio has ended with status $fio_status"; return 1; }
        grep -E ' clat .*max' /tmp/fio.out
    done
}

# Busybox prefers its own applet, which cannot write zeroes.
blkdiscard() { /usr/sbin/blkdiscard "$@"; }

# mounted TYPE DEVICE COMMAND…: runs a command with the file system at /mnt/fs.
mounted() {
    mounted_type=$1 mounted_device=$2
    shift 2
    mkdir -p /mnt/fs
    mount -t "$mounted_type" "$mounted_device" /mnt/fs || return 1
    "$@"
    mounted_status=$?
    umount /mnt/fs || return 1
    return $mounted_status
}

# Kernel messages since the last `mark`, e.g. what a refused connect logged.
mark() { echo "guest mark $1" > /dev/kmsg; }
kernel_says() { dmesg | sed -n "/guest mark $1/,\$p" | grep -E -- "$2"; }
