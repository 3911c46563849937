# Two nodes, one replicated volume, native multipath: under fio and a file system the owner is killed, stopped,
# drained and asked to hand over, each at both nodes. No I/O may fail and no block may be wrong. The longest wait
# of a write is printed for each.
#
# Nodes a (PORT) and b (PORT_TWO) serve NQN. The host's hook serves `node kill|start|stop|continue|drain|undrain|move
# a|b` and `node in-sync`.
. /guest/lib.sh

port_of() { if [ "$1" = a ]; then echo "$PORT"; else echo "$PORT_TWO"; fi; }
owned_by() { within 40 path_is "$(port_of "$1")" optimized; }
member_is() { within 60 path_is "$(port_of "$1")" non-optimized; }
# What is read ahead may fail on a path (nvme0c0n1): the kernel does not send it again, and reads when it is wanted.
no_io_error_since() { ! kernel_says "$1" 'I/O error, dev nvme[0-9]*n|Buffer I/O error|EXT4-fs error|failing I/O|identifiers changed'; }

# Owner $1 goes, $2 takes over, $1 comes back as its member.
killed() {
    host node kill "$1" && owned_by "$2" && host node start "$1" && member_is "$1" && host node in-sync
}
stopped() {
    host node stop "$1" && owned_by "$2" && host node continue "$1" && member_is "$1" && host node in-sync
}
drained() {
    host node drain "$1" && owned_by "$2" && host node undrain "$1" && member_is "$1"
}
moved() { host node move "$2" && owned_by "$2" && member_is "$1"; }

# On a busy machine ownership may have gone elsewhere meanwhile.
begin_at() { host node move "$1" && owned_by "$1"; }
there_and_back() { begin_at a && "$1" a b && begin_at b && "$1" b a; }

require connect-a connect "$NQN"
require connect-b connect "$NQN" --port "$PORT_TWO"
require one-disk wait_disk "$NQN" 1
disk=$(disk_of "$NQN" 1)
check two-controllers-one-disk [ "$(controllers_of "$NQN" | wc -l)" = 2 ]
check owner-is-optimized begin_at a
check member-forwards member_is b
require mkfs mkfs.ext4 -q "$disk"
file=/mnt/fs/file size=8M
LIMIT=240
for fault in killed stopped drained moved; do
    mark $fault
    check "owner-$fault-under-a-file-system" mounted ext4 "$disk" busy_during "$file" $size there_and_back $fault
    check "no-io-error-while-$fault" no_io_error_since $fault
    check "nothing-wrong-after-$fault" mounted ext4 "$disk" fio_again "$file" 8k $size
done
LIMIT=90
check file-system-is-clean fsck.ext4 -f -n "$disk"
check disconnect disconnect "$NQN"
