# The target is killed (kill -9) in mid-I/O and started again: the host must reconnect by itself, no
# I/O may fail, and every acknowledged write must be there. Then it is stopped and started in order
# (attach.sh does that ten times to a daemon `node`).
#
# Target `file` (PORT, NQN): one file-backed namespace. The host's hook serves `restart file` and `terminate file`.
. /guest/lib.sh

size=24M
written_before_kill=$((4 * 2048))    # sectors: 4 MiB of 24

# Kills the target while a command runs in the background and has got somewhere.
# killed_during COMMAND…: ends with the command's status.
killed_during() {
    base=$(sectors_done "$disk")
    "$@" &
    job=$!
    within 60 got_past $((base + written_before_kill)) || return 1
    kill -0 $job || { echo "the I/O was over before the kill"; return 1; }
    host restart file || { echo "the target did not come back"; return 1; }
    kill -0 $job || { echo "the I/O did not outlive the kill"; return 1; }
    within 60 is_live "$NQN" || return 1
    await_process $job 100
}
sectors_done() { awk '{ print $3 + $7 }' "/sys/block/$(basename "$1")/stat"; }
got_past() { [ "$(sectors_done "$disk")" -gt "$1" ]; }

reconnects_since() { kernel_says "$1" 'Successfully reconnected'; }
no_io_error_since() { ! kernel_says "$1" 'I/O error|critical .* error|failing I/O|identifiers changed|Removing after'; }

# One round: all checks carry the given suffix.
round() {
    suffix=$1
    shift
    mark "write$suffix"
    require "connect$suffix" connect "$NQN" --nr-io-queues=2 "$@"
    require "namespace$suffix" wait_disk "$NQN" 1
    disk=$(disk_of "$NQN" 1)
    LIMIT=200
    check "killed-while-writing$suffix" killed_during fio_on "$disk" 8k $size --end_fsync=1
    check "reconnected$suffix" reconnects_since "write$suffix"
    check "same-disk$suffix" [ "$disk" = "$(disk_of "$NQN" 1)" ]
    check "nothing-lost$suffix" fio_again "$disk" 8k $size
    mark "read$suffix"
    check "killed-while-reading$suffix" killed_during fio_again "$disk" 8k $size
    check "reconnected-again$suffix" reconnects_since "read$suffix"
    check "no-io-error$suffix" no_io_error_since "write$suffix"
    LIMIT=90
    check "disconnect$suffix" disconnect "$NQN"
    within 10 is_gone "$NQN"
}

round ""
round -digests --hdr-digest --data-digest

in_order() {
    for _ in 1 2 3; do
        host terminate file && within 60 is_live "$NQN" && sleep 0.5 || return 1
    done
}
mark in-order
require connect-in-order connect "$NQN" --nr-io-queues=2
require namespace-in-order wait_disk "$NQN" 1
disk=$(disk_of "$NQN" 1)
LIMIT=200
check restarts-in-order busy_during "$disk" $size in_order
LIMIT=90
check no-io-error-in-order no_io_error_since in-order
check disconnect-in-order disconnect "$NQN"
within 10 is_gone "$NQN"

# Through a fresh connection, the last round's data once more.
require connect-afresh connect "$NQN"
require namespace-afresh wait_disk "$NQN" 1
check nothing-lost-afresh fio_again "$(disk_of "$NQN" 1)" 8k $size
check disconnect-afresh disconnect "$NQN"
