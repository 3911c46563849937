# Everything a host does with a healthy target: find it, look at it, store data on it, be refused.
#
# Target A (PORT, NQN_A): 512-byte blocks, nsid 1 in memory, nsid 2 a file; only HOSTNQN may connect.
# Target B (PORT_B, NQN_B): 4096-byte blocks, nsid 1 in memory; any host.
# B is connected early and left alone for longer than its keep-alive time-out, then used.
. /guest/lib.sh

# True when discovery names a subsystem with the address that the target was told to advertise.
advertises() {
    nqn=$1 port=$2
    shift 2
    discover --port "$port" "$@" | tee /tmp/discovery
    awk -v nqn="$nqn" -v port="$port" -v host="$TARGET_HOST" '
        /^=+ *Discovery Log Entry/ { address = service = name = "" }
        $1 == "traddr:" { address = $2 }
        $1 == "trsvcid:" { service = $2 }
        $1 == "subnqn:" { name = $2 }
        name == nqn && address == host && service == port { found = 1 }
        END { exit !found }' /tmp/discovery
}

check discover-advertised-address advertises "$NQN_A" "$PORT"
require connect connect "$NQN_A" --nr-io-queues=2
require namespace-1 wait_disk "$NQN_A" 1
require namespace-2 wait_disk "$NQN_A" 2
require connect-4096 connect "$NQN_B" --port "$PORT_B"
require namespace-4096 wait_disk "$NQN_B" 1

controller=/dev/$(controller_of "$NQN_A")
disk1=$(disk_of "$NQN_A" 1)
disk2=$(disk_of "$NQN_A" 2)
disk_b=$(disk_of "$NQN_B" 1)

# --- what the host asks about ------------------------------------------------------------------
# queue_count includes the admin queue.
check two-io-queues grep -qx 3 "/sys/class/nvme/$(controller_of "$NQN_A")/queue_count"
check block-size-512 [ "$(queue_of "$disk1" logical_block_size)" = 512 ]
check block-size-4096 [ "$(queue_of "$disk_b" logical_block_size)" = 4096 ]
check id-ctrl says "subnqn *: *$NQN_A" nvme id-ctrl "$controller"
check id-ns says 'lbads:9 .*in use' nvme id-ns "$disk1"
check id-ns-4096 says 'lbads:12 .*in use' nvme id-ns "$disk_b"
check ns-descs says 'uuid|nguid' nvme ns-descs "$disk1"
check list-ns says '0x2$' nvme list-ns "$controller"
check list-subsys says "$NQN_A" nvme list-subsys
check list says "$disk2" nvme list
check smart-log says 'critical_warning[[:space:]]*: *0' nvme smart-log "$controller"
check error-log nvme error-log "$controller"
check fw-log nvme fw-log "$controller"
check effects-log says 'ACS|Admin Command' nvme effects-log "$controller" --csi=0
check changed-ns-log nvme changed-ns-list-log "$controller"
check feature-queues nvme get-feature "$controller" -f 0x07
check feature-events nvme get-feature "$controller" -f 0x0b
check feature-keep-alive nvme get-feature "$controller" -f 0x0f
# CSTS 1: ready, no fatal status.
check property-csts says 'value: 1$' nvme get-property "$controller" --offset=0x1c
check bad-namespace says 'invalid.namespace|INVALID_NS' nvme id-ns "$controller" -n 99
check bad-log says 'invalid.log|INVALID_LOG' nvme get-log "$controller" --log-id=0xc5 --log-len=512
check bad-feature says 'invalid.field|INVALID_FIELD' nvme get-feature "$controller" -f 0x7e
blocks=$(cat "/sys/block/$(basename "$disk1")/size")
check read-past-the-end says 'lba out of range|LBA_RANGE' nvme read "$disk1" -s "$blocks" -c 0 -z 512

# --- data, straight on the namespaces ----------------------------------------------------------
check fio-4k fio_on "$disk1" 4k 4M
check fio-8k fio_on "$disk1" 8k 8M --offset=32M
check fio-64k fio_on "$disk1" 64k 24M --offset=64M
check fio-file-512 fio_on "$disk2" 512 256k --offset=128M --iodepth=4
check fio-4096 fio_on "$disk_b" 4k 4M
check fio-1m fio_on "$disk_b" 1M 8M --offset=32M --iodepth=4

compare_commands() {
    dd if=/dev/urandom of=/tmp/block bs=4096 count=1 2> /dev/null
    nvme write "$1" -s 1024 -c 7 -z 4096 -d /tmp/block || return 1
    nvme read "$1" -s 1024 -c 7 -z 4096 -d /tmp/back && cmp /tmp/block /tmp/back || return 1
    nvme compare "$1" -s 1024 -c 7 -z 4096 -d /tmp/block || return 1
    says 'compare failure|COMPARE_FAILED' nvme compare "$1" -s 1032 -c 7 -z 4096 -d /tmp/block
}
check compare compare_commands "$disk2"
check verify nvme verify "$disk2" -s 1024 -c 7
check flush nvme flush "$disk2"
check dsm nvme dsm "$disk2" -s 1024 -b 8 -d

# Whole MiB of a device, as a checksum: sum_of DEVICE FIRST COUNT
sum_of() { dd if="$1" bs=1M skip="$2" count="$3" iflag=direct 2> /dev/null | md5sum; }

# Discards (or zeroes) the middle one of three MiB and looks at both neighbours.
punch() {
    how=$1 device=$2
    dd if=/dev/urandom of="$device" bs=1M seek=160 count=3 oflag=direct 2> /dev/null || return 1
    before=$(sum_of "$device" 160 1) after=$(sum_of "$device" 162 1)
    # shellcheck disable=SC2086
    blkdiscard $how -o 161M -l 1M "$device" || return 1
    [ "$before" = "$(sum_of "$device" 160 1)" ] || { echo "the MiB before changed"; return 1; }
    [ "$after" = "$(sum_of "$device" 162 1)" ] || { echo "the MiB after changed"; return 1; }
    [ -n "$how" ] || { dd if="$device" of=/dev/null bs=1M skip=161 count=1 iflag=direct; return; }
    [ "$(sum_of "$device" 161 1)" = "$(dd if=/dev/zero bs=1M count=1 2> /dev/null | md5sum)" ] \
        || { echo "zeroed blocks are not zero"; return 1; }
}
check discard-offered [ "$(queue_of "$disk2" discard_max_bytes)" -gt 0 ]
check discard punch "" "$disk2"
check discard-memory punch "" "$disk1"
check write-zeroes-offered [ "$(queue_of "$disk2" write_zeroes_max_bytes)" -gt 0 ]
check write-zeroes punch -z "$disk2"
check write-zeroes-4096 punch -z "$disk_b"

# --- file systems ------------------------------------------------------------------------------
fill() {
    for i in 1 2 3 4 5 6 7 8; do
        dd if=/dev/urandom of=/mnt/fs/file$i bs=64k count=$((i * 2)) 2> /dev/null || return 1
    done
    # A file that is synced again and again is a database log in small.
    fio --name=log --filename=/mnt/fs/log --rw=write --bs=4k --size=512k --fsync=4 --ioengine=psync \
        --thread --output=/tmp/fio.out || return 1
    (cd /mnt/fs && md5sum file* log > sums) && sync
}
sums_hold() { (cd /mnt/fs && md5sum -c sums); }

check mkfs-ext4 mkfs.ext4 -q -F -E nodiscard "$disk2"
check ext4-fill mounted ext4 "$disk2" fill
check ext4-fsck fsck.ext4 -f -n "$disk2"

# --- again with digests ------------------------------------------------------------------------
check disconnect disconnect "$NQN_A"
check disconnect-removes within 10 is_gone "$NQN_A"
require connect-digests connect "$NQN_A" --nr-io-queues=2 --hdr-digest --data-digest
require namespace-1-digests wait_disk "$NQN_A" 1
require namespace-2-digests wait_disk "$NQN_A" 2
disk1=$(disk_of "$NQN_A" 1)
disk2=$(disk_of "$NQN_A" 2)
check again-4k-digests fio_again "$disk1" 4k 4M
check again-64k-digests fio_again "$disk1" 64k 24M --offset=64M
check fio-4k-digests fio_on "$disk1" 4k 2M
check fio-64k-digests fio_on "$disk1" 64k 8M --offset=64M
check ext4-sums-digests mounted ext4 "$disk2" sums_hold

# --- the idle connection -----------------------------------------------------------------------
check idle-stays-live is_live "$NQN_B"
check mkfs-xfs mkfs.xfs -q -f -K "$disk_b"
check xfs-fill mounted xfs "$disk_b" fill
check xfs-sums mounted xfs "$disk_b" sums_hold
check xfs-repair xfs_repair -n "$disk_b"

# The commands refused on purpose above are not in the kernel's log: it logs no passthrough error.
no_trouble() { ! dmesg | grep -E 'nvme.*(timeout|I/O error|resetting|reconnect|failed|invalid|digest)'; }
check kernel-log-quiet no_trouble

# --- refusals ----------------------------------------------------------------------------------
# nvme-cli calls a host "already connected" when any host is, and never asks: so A goes first.
check disconnect-digests disconnect "$NQN_A"
check disconnect-digests-removes within 10 is_gone "$NQN_A"
other="nqn.2014-08.org.nvmexpress:uuid:22222222-2222-4222-8222-222222222222"
other_id=22222222-2222-4222-8222-222222222222
check unlisted-host-may-discover discover --as "$other" "$other_id"
mark refused
check unlisted-host-refused fails connect "$NQN_A" --as "$other" "$other_id"
check unlisted-host-logged kernel_says refused 'is not allowed, hostnqn'
mark unknown
check unknown-subsystem-refused fails connect "$NQN_A-not-there"
check unknown-subsystem-logged kernel_says unknown 'Connect Invalid Data Parameter'
check refused-leaves-others is_live "$NQN_B"

check disconnect-all nvme disconnect-all
check all-gone within 10 is_gone "$NQN_B"

# Connects to whatever discovery says, where discovery says. An entry with TREQ "not required" makes
# this nvme-cli ask the kernel for TLS, which then finds no key: TREQ must be 0 without TLS.
check connect-all nvme connect-all -t tcp -a "$TARGET_HOST" -s "$PORT_B" -q "$HOSTNQN" -I "$HOSTID" --keep-alive-tmo=15
check connect-all-found wait_disk "$NQN_B" 1
check disconnect-last nvme disconnect-all
