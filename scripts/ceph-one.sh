#!/usr/bin/env bash
# A Ceph of one node in a private directory: a monitor, a manager, and one OSD on a file; a pool `rbd` of one copy.
#
#   scripts/ceph-one.sh up DIR      # prints the configuration's path: CEPH_CONF for ceph, rbd and librbd
#   scripts/ceph-one.sh down DIR
#
# Exit codes: 0 done, 2 usage, 3 Ceph is not installed or does not come up.
set -euo pipefail
[[ ${1:-} =~ ^(up|down)$ && -n ${2:-} ]] || { echo "usage: scripts/ceph-one.sh up|down DIR" >&2; exit 2; }
verb=$1
mkdir -p "$2"
dir=$(realpath "$2")
conf=$dir/ceph.conf

lacks() { echo "ceph-one: $*" >&2; exit 3; }

down() {
    for name in osd mgr mon; do
        [ -s "$dir/$name.pid" ] || continue
        pid=$(<"$dir/$name.pid")
        kill "$pid" 2>/dev/null || continue
        for _ in $(seq 100); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -9 "$pid" 2>/dev/null || true
    done
    rm -rf --one-file-system "$dir"
}
if [ "$verb" = down ]; then
    down
    exit 0
fi

for program in ceph ceph-mon ceph-mgr ceph-osd ceph-authtool monmaptool rbd python3; do
    command -v "$program" >/dev/null || lacks "there is no $program (packages ceph-mon, ceph-mgr, ceph-osd, ceph-common)"
done
port=$(python3 -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
fsid=$(cat /proc/sys/kernel/random/uuid)
mkdir -p "$dir"/{mon,mgr,osd,run,log}
cat >"$conf" <<CONF
[global]
fsid = $fsid
mon initial members = a
mon host = v2:127.0.0.1:$port
public network = 127.0.0.0/8
ms bind ipv4 = true
ms bind ipv6 = false
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = $dir/keyring
run dir = $dir/run
admin socket = $dir/run/\$cluster-\$name.asok
pid file = $dir/\$type.pid
log file = $dir/log/\$name.log
mon cluster log file = $dir/log/cluster.log
crash dir = $dir/log
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
mon data avail warn = 1
mon data avail crit = 0
mon osd full ratio = 0.99
osd failsafe full ratio = 0.995
osd objectstore = bluestore
bluestore block create = true
bluestore block size = ${CEPH_BYTES:-4294967296}
bluestore fsck on mount = false
osd memory target = 939524096
rbd default features = 1
[mon.a]
mon data = $dir/mon
[mgr.a]
mgr data = $dir/mgr
[osd.0]
osd data = $dir/osd
CONF
{
    ceph-authtool --create-keyring "$dir/keyring" --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool "$dir/keyring" --gen-key -n client.admin \
        --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *' --cap mds 'allow *'
    monmaptool --create --addv a "[v2:127.0.0.1:$port]" --fsid "$fsid" "$dir/monmap"
    ceph-mon -c "$conf" --mkfs -i a --monmap "$dir/monmap" --keyring "$dir/keyring"
    ceph-mon -c "$conf" -i a
} >"$dir/log/start" 2>&1 || lacks "the monitor does not start: $(tail -3 "$dir/log/start")"
ask() { timeout 60 ceph -c "$conf" "$@" >>"$dir/log/start" 2>&1 || lacks "ceph $*: $(tail -3 "$dir/log/start")"; }
ask auth get-or-create mgr.a mon 'allow profile mgr' osd 'allow *' mds 'allow *' -o "$dir/mgr/keyring"
ceph-mgr -c "$conf" -i a --keyring "$dir/mgr/keyring" >>"$dir/log/start" 2>&1 || lacks "the manager does not start"
osd=$(timeout 60 ceph -c "$conf" osd new "$(cat /proc/sys/kernel/random/uuid)" 2>>"$dir/log/start") || lacks "no OSD"
ask auth get-or-create "osd.$osd" mon 'allow profile osd' mgr 'allow profile osd' osd 'allow *' -o "$dir/osd/keyring"
uuid=$(ceph -c "$conf" osd dump -f json | python3 -c 'import json, sys; print(json.load(sys.stdin)["osds"][0]["uuid"])')
ceph-osd -c "$conf" -i "$osd" --mkfs --osd-uuid "$uuid" --keyring "$dir/osd/keyring" >>"$dir/log/start" 2>&1 ||
    lacks "the OSD cannot be made: $(tail -3 "$dir/log/start")"
ceph-osd -c "$conf" -i "$osd" --keyring "$dir/osd/keyring" >>"$dir/log/start" 2>&1 || lacks "the OSD does not start"
for _ in $(seq 300); do
    [ "$(timeout 20 ceph -c "$conf" osd stat -f json 2>/dev/null | python3 -c '
import json, sys
print(json.load(sys.stdin)["num_up_osds"])' 2>/dev/null)" = 1 ] && break
    sleep 0.2
done
ask osd pool create rbd 8 8
ask osd pool application enable rbd rbd
timeout 60 rbd -c "$conf" create --size 64M rbd/ready >>"$dir/log/start" 2>&1 || lacks "no image can be made: $(tail -3 "$dir/log/start")"
timeout 60 rbd -c "$conf" rm --no-progress rbd/ready >>"$dir/log/start" 2>&1
echo "$conf"
