# A short, varied conversation to be recorded by capture.py: discovery, then one association without
# and one with digests, each with logs, features, small I/O in the capsule and, without digests, a
# write after an R2T; last a refused Connect. One command at a time, so that the answers follow from
# what was sent: the recording can be replayed (crates/sim/golden).
. /guest/lib.sh

# written DISK BLOCK_SIZE SEEK: writes one block of noise and reads it back.
written() {
    dd if=/dev/urandom of=/tmp/block bs="$2" count=1 2> /dev/null
    dd if=/tmp/block of="$1" bs="$2" count=1 seek="$3" oflag=direct conv=notrunc || return 1
    dd if="$1" of=/tmp/back bs="$2" count=1 skip="$3" iflag=direct || return 1
    cmp /tmp/block /tmp/back
}

conversation() {
    name=$1 large=$2
    shift 2
    require "connect-$name" connect "$NQN" --nr-io-queues=1 "$@"
    require "namespace-$name" wait_disk "$NQN" 1
    controller=/dev/$(controller_of "$NQN")
    disk=$(disk_of "$NQN" 1)
    check "smart-log-$name" nvme smart-log "$controller"
    check "bad-log-$name" fails nvme get-log "$controller" --log-id=0xc5 --log-len=512
    check "features-$name" nvme get-feature "$controller" -f 0x07
    check "small-io-$name" written "$disk" 4096 16
    check "large-io-$name" written "$disk" "$large" 16
    # -f: without a search for signatures, which would read all over the disk.
    check "discard-$name" blkdiscard -f -o 4M -l 1M "$disk"
    check "zeroes-$name" blkdiscard -f -z -o 6M -l 1M "$disk"
    check "flush-$name" nvme flush "$disk"
    # Long enough for a keep-alive or two: the host sends one every half time-out.
    sleep 10
    check "disconnect-$name" disconnect "$NQN"
    within 10 is_gone "$NQN"
}

check discover discover
# More than the 64 KiB that go in a capsule.
conversation plain 69632
conversation digests 8192 --hdr-digest --data-digest
check refused fails connect "$NQN-not-there"
