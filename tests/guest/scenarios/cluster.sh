# Two nodes, one replicated volume, native multipath: under fio and a file system the owner is killed, stopped, cut
# off, upgraded, drained and asked to hand over, each at both nodes. No I/O may fail and no block may be wrong. How
# long I/O has waited is printed for each, beside what is meant for a change of owner (docs/replication.md).
#
# Nodes A and B (ADDRESS:PORT each) serve NQN. The host's hook serves `node kill|start|stop|continue|cut|connect|
# upgrade|drain|undrain|move a|b` and `node in-sync`.
. /guest/lib.sh

portal_of() { if [ "$1" = a ]; then echo "$A"; else echo "$B"; fi; }
owned_by() { within 40 path_is "$(portal_of "$1")" optimized; }
member_is() { within 60 path_is "$(portal_of "$1")" non-optimized; }
# What is read ahead may fail on a path (nvme0c0n1): the kernel does not send it again, and reads when it is wanted.
no_io_error_since() {
    ! kernel_says "$1" 'I/O error, dev nvme[0-9]*n|Buffer I/O error|EXT4-fs error|XFS .*([Ee]rror|[Ss]hutting down)|failing I/O|identifiers changed'
}

# Owner $1 goes, $2 takes over, $1 comes back as its member. The budget is what an owner's change may take, in ms; the
# kernel's own time to notice a path is on top of it.
killed() {
    budget=3600
    host node kill "$1" && owned_by "$2" && host node start "$1" && member_is "$1" && host node in-sync
}
stopped() {
    budget=3600
    host node stop "$1" && owned_by "$2" && host node continue "$1" && member_is "$1" && host node in-sync
}
cut_off() {
    budget=3600
    host node cut "$1" && owned_by "$2" && host node connect "$1" && member_is "$1" && host node in-sync
}
upgraded() {
    budget=500
    host node upgrade "$1" && owned_by "$2" && member_is "$1" && host node in-sync
}
drained() {
    budget=50
    host node drain "$1" && owned_by "$2" && host node undrain "$1" && member_is "$1"
}
moved() { budget=50; host node move "$2" && owned_by "$2" && member_is "$1"; }

# On a busy machine ownership may have gone elsewhere meanwhile.
begin_at() { host node move "$1" && owned_by "$1"; }
there_and_back() { begin_at a && "$1" a b && begin_at b && "$1" b a && echo "meant for an owner's change: $budget ms"; }

under_faults() {
    type=$1
    shift
    for fault in "$@"; do
        mark "$fault"
        check "owner-$fault-under-$type" mounted "$type" "$disk" busy_during "$file" $size there_and_back "$fault"
        check "no-io-error-while-$fault" no_io_error_since "$fault"
        check "nothing-wrong-after-$fault" mounted "$type" "$disk" fio_again "$file" 8k $size
    done
}

# One node is asked once; it names both.
connect_all() {
    nvme connect-all -t tcp -a "${A%:*}" -s "${A#*:}" -q "$HOSTNQN" -I "$HOSTID" \
        --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=120
}
require connect-all connect_all
require one-disk wait_disk "$NQN" 1
disk=$(disk_of "$NQN" 1)
check two-controllers-one-disk [ "$(controllers_of "$NQN" | wc -l)" = 2 ]
check owner-is-optimized begin_at a
check member-forwards member_is b
file=/mnt/fs/file size=8M
LIMIT=240
require mkfs-ext4 mkfs.ext4 -q "$disk"
under_faults ext4 killed
check ext4-is-clean fsck.ext4 -f -n "$disk"
require mkfs-xfs mkfs.xfs -q -f -K "$disk"
under_faults xfs killed stopped cut_off upgraded drained moved
check xfs-is-clean xfs_repair -n "$disk"
LIMIT=90
check disconnect disconnect "$NQN"
