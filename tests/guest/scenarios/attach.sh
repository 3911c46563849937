# `ashlar attach` by the kernel's own nvme-tcp: a volume formatted, mounted, let go and taken again; its
# daemon killed and restarted meanwhile; its size changed; what the kernel takes for atomic; and force against a daemon
# that does not answer.
#
# A daemon `node` on the host serves volume tank/db of 192 MiB (PORT, NQN), and offers these requests:
# `restart node`, `terminate node`, `resize_volume SIZE`, `stop node`, `continue node`. The program is at /guest/bin/ashlar.
. /guest/lib.sh

export LD_LIBRARY_PATH=/guest/lib
ashlar() { /guest/bin/ashlar "$@"; }
url="nvme-tcp://$TARGET_HOST:$PORT/$NQN?ns=1&hostnqn=$HOSTNQN"
point=/mnt/db
mkdir -p $point

attached() { ashlar attach --list --json; }
sums() { (cd $point && md5sum -c /tmp/sums); }
fill() {
    for i in 1 2 3 4; do dd if=/dev/urandom of=$point/file$i bs=64k count=$((i * 4)) 2> /dev/null || return 1; done
    fio --name=log --filename=$point/log --rw=write --bs=4k --size=256k --fsync=4 --ioengine=psync \
        --thread --output=/tmp/fio.out || return 1
    (cd $point && md5sum file* log > /tmp/sums) && sync
}
is_detached() { is_gone "$NQN" && ! grep -q " $point " /proc/mounts; }

require attach ashlar attach "$url" --mount $point --fs ext4
check by-the-kernel says '"means": "nvme"' attached
check is-attached says '"condition": "attached"' attached
disk=$(disk_of "$NQN" 1)
check mounted-from-nvme grep -q "^$disk $point ext4" /proc/mounts
check fill fill
mkdir -p /mnt/other
check second-mount-refused says 'is attached already' ashlar attach "$url" --mount /mnt/other --fs ext4

# 64 KiB of a volume are written whole or not at all; the kernel must believe it. With native multipath
# Linux 6.12 says so of the path (nvme0c0n1) and not of the disk over it (nvme0n1).
path=$(basename "$(ls -d /sys/block/nvme*c*n* 2> /dev/null | head -n 1)")
atomic() { cat "/sys/block/${path:-$(basename "$disk")}/queue/atomic_write_$1_bytes"; }
check atomic-unit [ "$(atomic unit_max)" -ge 65536 ]
check atomic-boundary-is-a-power-of-two [ "$(($(atomic boundary) & ($(atomic boundary) - 1)))" = 0 ]
for device in "$(basename "$disk")" $path; do
    for limit in unit_min unit_max max boundary; do
        note "$device atomic_write_${limit}_bytes $(cat "/sys/block/$device/queue/atomic_write_${limit}_bytes")"
    done
    note "$device write_cache $(cat "/sys/block/$device/queue/write_cache")"
done

# A process in it keeps it mounted.
busy() {
    (cd $point && sleep 20) &
    sleeper=$!
    sleep 1
    says 'in use by' ashlar detach $point
    busy_status=$?
    kill $sleeper
    sleep 1
    return $busy_status
}
check busy-is-refused busy
check detach ashlar detach $point
check nothing-is-left is_detached

check attach-again ashlar attach "$url" --mount $point
check same-files sums
disk=$(disk_of "$NQN" 1)

# The daemon dies under a write: it waits, and goes on.
through_a_restart() {
    dd if=/dev/zero of=$point/through bs=64k count=200 conv=fsync 2> /tmp/dd.out &
    writer=$!
    host restart node || return 1
    await_process $writer 80 || { cat /tmp/dd.out; return 1; }
    within 60 is_live "$NQN" && sums
}
LIMIT=150
check daemon-restart through_a_restart

# As a service manager restarts it, ten times under load; how long I/O has waited is printed.
ten_in_order() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        host terminate node && within 60 is_live "$NQN" && sleep 0.5 || return 1
    done
}
mark in-order
LIMIT=200
check ten-restarts-in-order busy_during $point/busy 8M ten_in_order
LIMIT=90
no_error_since() { ! kernel_says "$1" 'I/O error|EXT4-fs error|failing I/O|identifiers changed|Removing after'; }
check no-error-in-order no_error_since in-order
check files-after-restarts sums

# A larger volume is a larger disk, without detaching.
larger() { [ "$(cat "/sys/block/$(basename "$disk")/size")" = $((256 * 2048)) ]; }
resized() { host resize_volume 256MiB && within 30 larger && resize2fs "$disk"; }
check resize resized
roomy() { [ "$(df -k $point | awk 'END { print $2 }')" -gt $((215 * 1024)) ]; }
check file-system-grows roomy
check files-after-resize sums

# A daemon that is there and does not move: without force nothing is lost, with it nothing hangs.
check daemon-stops host stop node
LIMIT=180
check force ashlar detach $point --force
check force-leaves-nothing within 60 is_detached
LIMIT=90
check daemon-continues host continue node
check attach-after-force ashlar attach "$url" --mount $point
check files-after-force sums
check detach-last ashlar detach $point
check last-leaves-nothing is_detached
