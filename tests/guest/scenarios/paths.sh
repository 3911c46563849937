# Two targets of one device: native multipath follows ANA, and no I/O fails while paths change. Then reservations,
# of a device that one target serves and of a volume of a daemon.
#
# Targets `one` (PORT) and `two` (PORT_TWO) of NQN, over the same file; `reserved` (PORT_RESERVED,
# NQN_RESERVED); daemon `node` (PORT_NODE, NQN_NODE). The host's hook serves `path one|two STATE`.
. /guest/lib.sh

no_io_error_since() { ! kernel_says "$1" 'I/O error|critical .* error|failing I/O|identifiers changed'; }

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

require connect-one connect "$NQN"
require connect-two connect "$NQN" --port "$PORT_TWO"
require one-disk wait_disk "$NQN" 1
disk=$(disk_of "$NQN" 1)
check two-controllers-one-disk [ "$(controllers_of "$NQN" | wc -l)" = 2 ]
check states-are-told path_is "$PORT" optimized
check states-are-told-of-both path_is "$PORT_TWO" inaccessible
LIMIT=200
mark moves
check paths-move-while-writing busy_during "$disk" 8M moves
check no-io-error-while-moving no_io_error_since moves
check nothing-lost-on-the-disk fio_again "$disk" 8k 8M
LIMIT=90
check disconnect disconnect "$NQN"
within 10 is_gone "$NQN"

# --- reservations ---------------------------------------------------------------------------------
other=nqn.2014-08.org.nvmexpress:uuid:22222222-2222-4222-8222-222222222222
other_id=22222222-2222-4222-8222-222222222222
write_one() { dd if=/dev/zero of="$disk" bs=4096 count=1 oflag=direct; }

# Puts it through two hosts: reserved TARGET PORT NQN
reserved() {
    require "$1-connect" connect "$3" --port "$2"
    require "$1-disk" wait_disk "$3" 1
    disk=$(disk_of "$3" 1)
    check "$1-register" nvme resv-register "$disk" -n 1 --nrkey=0x11 --rrega=0 --cptpl=3
    check "$1-acquire" nvme resv-acquire "$disk" -n 1 --crkey=0x11 --rtype=1 --racqa=0
    check "$1-report" says 'rtype *: 1' nvme resv-report "$disk" -n 1 --eds
    check "$1-holder-writes" write_one
    require "$1-second-host" disconnect "$3"
    require "$1-second-host-connects" connect "$3" --port "$2" --as "$other" "$other_id"
    require "$1-second-hosts-disk" wait_disk "$3" 1
    disk=$(disk_of "$3" 1)
    check "$1-fenced-write-fails" fails write_one
    check "$1-fenced-host-reads" dd if="$disk" of=/dev/null bs=4096 count=1 iflag=direct
    check "$1-register-the-second" nvme resv-register "$disk" -n 1 --nrkey=0x22 --rrega=0 --cptpl=3
    check "$1-preempt" nvme resv-acquire "$disk" -n 1 --crkey=0x22 --prkey=0x11 --rtype=1 --racqa=1
    check "$1-it-writes-now" write_one
    check "$1-survives-a-kill" host restart "$1"
    within 60 is_live "$3"
    check "$1-reported-after-the-kill" says '2222' nvme resv-report "$disk" -n 1 --eds
    check "$1-clear" nvme resv-release "$disk" -n 1 --crkey=0x22 --rrela=1
    check "$1-disconnect" disconnect "$3"
}

reserved reserved "$PORT_RESERVED" "$NQN_RESERVED"
reserved node "$PORT_NODE" "$NQN_NODE"
