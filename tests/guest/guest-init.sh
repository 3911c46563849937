#!/bin/sh
# The guest's first process: modules, network, the tools image, then the test script.
#
# Two serial lines: ttyS0 carries the kernel's messages, ttyS1 the script's lines and, the other
# way, the host's answers; so neither can break a line of the other. Leaving this script, however
# it happens, ends the machine.
B=/bin/busybox
$B mount -t devtmpfs dev /dev
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B stty -F /dev/ttyS1 115200 -echo -onlcr -ixon
exec < /dev/ttyS1 > /dev/ttyS1 2>&1

while read -r module; do
    $B insmod "/modules/$module" || echo "GUEST-FAIL modules cannot load $module"
done < /modules/order

$B ip link set lo up
$B ip addr add 10.0.2.15/24 dev eth0
$B ip link set eth0 up
# Addresses of a network that run.sh enters (GUEST_NETWORK).
$B ip route add default via 10.0.2.2

$B mount -t ext4 -o ro /dev/vda /tools || echo "GUEST-FAIL tools cannot mount the tools image"
$B mount --bind /dev /tools/dev
$B mount --bind /proc /tools/proc
$B mount --bind /sys /tools/sys
$B mount --bind /guest /tools/guest
for scratch in tmp run mnt; do $B mount -t tmpfs scratch "/tools/$scratch"; done

# From here on the kernel log is worth having in full.
echo 7 > /proc/sys/kernel/printk
read -r uptime idle < /proc/uptime
echo "GUEST-BOOT $($B uname -r) $uptime"

$B env PATH=/usr/sbin:/usr/bin HOME=/tmp $B chroot /tools /bin/sh /guest/script.sh
status=$?
if [ $status -eq 0 ]; then echo "GUEST-DONE"; else echo "GUEST-ABORT $status"; fi
# Let the line drain: the reset is immediate.
$B sleep 0.3
$B reboot -f
