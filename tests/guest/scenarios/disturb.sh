# What a host does to a target in mid-I/O: reset, rescan, a stalled target, disconnect, churn.
#
# Target `memory` (PORT, NQN): one namespace in memory. The host's hook serves `pause memory N`.
. /guest/lib.sh

# during COMMAND…: fio in the background, the command meanwhile; fails when either fails, or when the
# I/O was over first. The rate makes the writing last ten seconds however fast the machine is.
during() {
    fio_on "$disk" 8k 32M --rate_iops=,400 &
    job=$!
    sleep 2
    "$@" || return 1
    kill -0 $job || { echo "the I/O was over too early"; return 1; }
    await_process $job 100
}

resets() {
    for i in 1 2 3; do
        nvme reset "$controller" || return 1
        within 30 is_live "$NQN" || return 1
        sleep 1
    done
}
rescans() { for i in 1 2 3 4 5; do nvme ns-rescan "$controller" || return 1; done; }

require connect connect "$NQN" --nr-io-queues=2
require namespace wait_disk "$NQN" 1
controller=/dev/$(controller_of "$NQN")
disk=$(disk_of "$NQN" 1)
LIMIT=200
check reset-in-io during resets
check rescan-in-io during rescans
mark pause
check stalled-target-in-io during host pause memory 12
# Shorter than the keep-alive time-out and the I/O time-out: the host must not have given up.
not_given_up() { ! kernel_says pause 'timeout|reconnect|resetting'; }
check stall-was-sat-out not_given_up
LIMIT=90

# The I/O must end, with an error, and not hang.
disconnect_in_io() {
    fio_on "$disk" 8k 64M &
    job=$!
    sleep 2
    disconnect "$NQN" || return 1
    await_process $job 60
    status=$?
    [ $status -ne 0 ] || { echo "fio did not notice"; return 1; }
    [ $status -ne 124 ] || { echo "fio hangs"; return 1; }
    within 10 is_gone "$NQN"
}
check disconnect-in-io disconnect_in_io

churn() {
    for i in 1 2 3 4 5 6 7 8 9 10; do
        connect "$NQN" --nr-io-queues=2 || return 1
        wait_disk "$NQN" 1 || return 1
        disconnect "$NQN" || return 1
        within 10 is_gone "$NQN" || return 1
    done
}
check connect-ten-times churn
require connect-afterwards connect "$NQN" --hdr-digest
require namespace-afterwards wait_disk "$NQN" 1
check fio-afterwards fio_on "$(disk_of "$NQN" 1)" 8k 8M
check disconnect-afterwards disconnect "$NQN"
