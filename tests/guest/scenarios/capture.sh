# A short, varied conversation to be recorded by capture.py: discovery, then one association without
# and one with digests, each with identify, logs, features, small and large I/O (in capsule and R2T).
. /guest/lib.sh

conversation() {
    name=$1
    shift
    require "connect-$name" connect "$NQN" --nr-io-queues=1 "$@"
    require "namespace-$name" wait_disk "$NQN" 1
    controller=/dev/$(controller_of "$NQN")
    disk=$(disk_of "$NQN" 1)
    check "identify-$name" nvme id-ctrl "$controller"
    check "smart-log-$name" nvme smart-log "$controller"
    check "bad-log-$name" fails nvme get-log "$controller" --log-id=0xc5 --log-len=512
    check "features-$name" nvme get-feature "$controller" -f 0x07
    check "small-io-$name" fio_on "$disk" 4k 64k
    check "large-io-$name" fio_on "$disk" 128k 256k --offset=1M --iodepth=2
    check "discard-$name" blkdiscard -o 4M -l 1M "$disk"
    check "zeroes-$name" blkdiscard -z -o 6M -l 1M "$disk"
    check "flush-$name" nvme flush "$disk"
    # Long enough for a keep-alive or two: the host sends one every half time-out.
    sleep 10
    check "disconnect-$name" disconnect "$NQN"
    within 10 is_gone "$NQN"
}

check discover discover
conversation plain
conversation digests --hdr-digest --data-digest
check refused fails connect "$NQN-not-there"
