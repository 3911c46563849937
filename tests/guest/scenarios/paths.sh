# Two targets of one device: native multipath follows ANA, and no I/O fails while paths change, on the disk
# itself, and while each target in turn is killed and comes back, in a file system on it. Then
# reservations, of a device that one target serves.
#
# Targets `one` (PORT) and `two` (PORT_TWO) of NQN, over the same file; `reserved` (PORT_RESERVED,
# NQN_RESERVED). The host's hook serves `path one|two STATE`, `kill` and `start`.
. /guest/lib.sh

# A path's state, by the target's port.
path_of() {
    for found in /sys/class/nvme/nvme*; do
        grep -q "trsvcid=$1" "$found/address" 2>/dev/null || continue
        cat "$found"/nvme*c*n1/ana_state
    done
}
path_is() { [ "$(path_of "$1")" = "$2" ]; }
no_io_error_since() { ! kernel_says "$1" 'I/O error|critical .* error|failing I/O|identifiers changed'; }
sectors_done() { awk '{ print $3 + $7 }' "/sys/block/$(basename "$1")/stat"; }
got_past() { [ "$(sectors_done "$disk")" -gt "$1" ]; }

# during FILE SIZE COMMAND…: fio on a disk or a file at such a rate that it outlives the command.
during() {
    during_file=$1 during_size=$2
    shift 2
    base=$(sectors_done "$disk")
    fio_on "$during_file" 8k "$during_size" --rate_iops=,150 --fsync=32 --end_fsync=1 &
    job=$!
    within 60 got_past $((base + 512)) || return 1
    "$@" || return 1
    kill -0 $job || { echo "the I/O was over too early"; return 1; }
    await_process $job 150
}

# The path moves to the other target and back, twice, with nothing usable in between.
moves() {
    for round in 1 2; do
        host path one change && sleep 1 && host path two optimized && host path one inaccessible || return 1
        within 20 path_is "$PORT" inaccessible || return 1
        within 20 path_is "$PORT_TWO" optimized || return 1
        sleep 1
        host path two change && sleep 1 && host path one optimized && host path two inaccessible || return 1
        within 20 path_is "$PORT" optimized || return 1
        within 20 path_is "$PORT_TWO" inaccessible || return 1
        sleep 1
    done
}

# dies TARGET PORT OTHER OTHER_PORT: the owner is killed, the other takes over, and it comes back as the other.
dies() {
    host kill "$1" && host path "$3" optimized || return 1
    within 30 path_is "$4" optimized || return 1
    sleep 2
    host start "$1" && host path "$1" inaccessible || return 1
    within 40 path_is "$2" inaccessible || return 1
    sleep 1
}
both_die() {
    dies one "$PORT" two "$PORT_TWO" && dies two "$PORT_TWO" one "$PORT"
}

check_file_system() {
    fsck.ext4 -f -n "$disk" && mounted ext4 "$disk" fio_again "$file" 8k "$file_size"
}

require connect-one connect "$NQN"
require connect-two connect "$NQN" --port "$PORT_TWO"
require one-disk wait_disk "$NQN" 1
disk=$(disk_of "$NQN" 1)
check two-controllers-one-disk [ "$(controllers_of "$NQN" | wc -l)" = 2 ]
check states-are-told path_is "$PORT" optimized
check states-are-told-of-both path_is "$PORT_TWO" inaccessible
LIMIT=200
mark moves
check paths-move-while-writing during "$disk" 16M moves
check no-io-error-while-moving no_io_error_since moves
check nothing-lost-on-the-disk fio_again "$disk" 8k 16M
file=/mnt/fs/file file_size=40M
require mkfs mkfs.ext4 -q "$disk"
mark dies
check targets-die-under-a-file-system mounted ext4 "$disk" during "$file" "$file_size" both_die
check no-io-error-while-dying no_io_error_since dies
check nothing-lost-in-the-file-system check_file_system
LIMIT=90
check disconnect disconnect "$NQN"
within 10 is_gone "$NQN"

# --- reservations ---------------------------------------------------------------------------------
other=nqn.2014-08.org.nvmexpress:uuid:22222222-2222-4222-8222-222222222222
require connect-reserved connect "$NQN_RESERVED" --port "$PORT_RESERVED"
require reserved-disk wait_disk "$NQN_RESERVED" 1
disk=$(disk_of "$NQN_RESERVED" 1)
write_one() { dd if=/dev/zero of="$disk" bs=4096 count=1 oflag=direct; }
check register nvme resv-register "$disk" -n 1 --nrkey=0x11 --rrega=0 --cptpl=3
check acquire nvme resv-acquire "$disk" -n 1 --crkey=0x11 --rtype=1 --racqa=0
check report says 'rtype *: 1' nvme resv-report "$disk" -n 1 --eds
check holder-writes write_one
require second-host disconnect "$NQN_RESERVED"
require second-host-connects connect "$NQN_RESERVED" --port "$PORT_RESERVED" \
    --as "$other" 22222222-2222-4222-8222-222222222222
require second-hosts-disk wait_disk "$NQN_RESERVED" 1
disk=$(disk_of "$NQN_RESERVED" 1)
check fenced-write-fails fails write_one
check fenced-host-reads dd if="$disk" of=/dev/null bs=4096 count=1 iflag=direct
check register-the-second nvme resv-register "$disk" -n 1 --nrkey=0x22 --rrega=0 --cptpl=3
check preempt nvme resv-acquire "$disk" -n 1 --crkey=0x22 --prkey=0x11 --rtype=1 --racqa=1
check it-writes-now write_one
check survives-a-kill host restart reserved
within 60 is_live "$NQN_RESERVED"
check reported-after-the-kill says '2222' nvme resv-report "$disk" -n 1 --eds
check clear nvme resv-release "$disk" -n 1 --crkey=0x22 --rrela=1
check disconnect-reserved disconnect "$NQN_RESERVED"
