#!/usr/bin/env bash
# Sets up a fresh Debian 12 machine for Ashlar.
#
#   scripts/setup.sh build    what `cargo build` needs
#   scripts/setup.sh demo     what the end of `make demo` needs besides: it attaches a volume, as root
#   scripts/setup.sh test     what the tests need (includes the others)
#   scripts/setup.sh list     the packages and why each is wanted
#
# Several words are done in turn.
#
# Idempotent. When everything is there it only looks, needs no root and no network, and takes
# well under a second. Exit codes: 0 ready, 2 usage, 3 something is missing that this script cannot
# (or may not) install; the message names it.
set -euo pipefail

repo_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# One package a line: name, then the reason.
build_packages() {
    cat <<'LIST'
gcc                linker driver for rustc; compiles the SQLite of the OLTP load
libc6-dev          start files and libc to link against
make               runs the Makefile
ca-certificates    cargo fetches crates over TLS
git                version control, also used by cargo
LIST
}

demo_packages() {
    cat <<'LIST'
xfsprogs           mkfs.xfs, for `ashlar attach --fs xfs`; xfs_repair
util-linux         blkid, blkdiscard, fstrim, fallocate, flock, ipcrm
mount              mount, umount and losetup, which `ashlar attach` runs
LIST
}

test_packages() {
    cat <<'LIST'
qemu-system-x86    runs a stock Linux kernel as a real initiator
nvme-cli           the initiator's own tool: discover, connect, identify
busybox-static     the guest's shell and small tools
fio                writes and verifies in the guest; a second opinion on speed here
e2fsprogs          mkfs.ext4, fsck.ext4, debugfs, filefrag; packs the guest's disk image
kmod               depmod and modinfo: which modules the guest needs, in which order
cpio               packs the guest's initramfs
xz-utils           unpacks the guest's kernel modules
iproute2           network namespaces and veth pairs
nftables           an agent cuts its host off from the others of a group
procps             ps, and sysctl
postgresql-15      a private server that the OLTP lab's tests start
mariadb-server     another one, with TPROC-C as stored procedures of InnoDB
etcd-server        the quorum of clusters, and of the lab's availability group
etcd-client        etcdctl, to look at that quorum
patroni            keeps the lab's availability group
python3-etcd       Patroni speaks to etcd with it
haproxy            the listener of groups and services
python3            the recording proxy, free port numbers, a process that is killed
LIST
}

# The guest's kernel is downloaded and unpacked, never installed.
guest_kernel=linux-image-6.12-cloud-amd64

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 3; }

# Those of the given packages that are not installed; one query for all, since each costs 50 ms.
missing_of() {
    local installed name
    installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii *//p') || true
    for name in "$@"; do
        grep -qxF "$name" <<<"$installed" || printf '%s\n' "$name"
    done
}

need_apt() {
    command -v apt-get >/dev/null || fail "no apt-get here; missing: $*. Install the equivalents of your system"
    [[ $(id -u) == 0 ]] || fail "not root; run as root: apt-get update && apt-get install -y --no-install-recommends $*"
}

# Other installations may hold the lock for a while: wait rather than fail.
apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"; }

# Services that Debian starts with their packages, and that the lab runs privately instead. Those of a machine that had
# them before are left alone.
services=(etcd patroni haproxy mariadb)

# A freshly installed service is not started, now or at the next boot. A file of the administrator's stays.
policy=/usr/sbin/policy-rc.d
keep_services_down() {
    [[ ! -e $policy ]] || return 0
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
}
disable_services() {
    command -v systemctl >/dev/null || return 0
    local name
    for name in "${services[@]}"; do
        [[ " $* " != *" $name"[-\ ]* ]] || systemctl --quiet disable "$name" 2>/dev/null || true
    done
}

install_packages() {
    command -v dpkg >/dev/null || fail "this is not a Debian system (no dpkg); needed: $*"
    local missing
    mapfile -t missing < <(missing_of "$@")
    ((${#missing[@]})) || return 0
    need_apt "${missing[@]}"
    say "installing ${missing[*]}"
    apt update || fail "apt-get update failed"
    keep_services_down
    apt install -y --no-install-recommends "${missing[@]}" >/dev/null \
        || fail "apt-get could not install: ${missing[*]}"
    disable_services "${missing[@]}"
}

# The toolchain is pinned in rust-toolchain.toml; nothing else is accepted.
check_rust() {
    local wanted found how
    wanted=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' "$repo_root/rust-toolchain.toml")
    how="install rustup, then: rustup toolchain install $wanted --profile minimal -c clippy -c rustfmt"
    # A fresh rustup may not be on this shell's path yet.
    [[ ! -d ${CARGO_HOME:-$HOME/.cargo}/bin ]] || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    command -v cargo >/dev/null || fail "cargo is not on the path; $how"
    found=$(cd "$repo_root" && rustc --version 2>/dev/null | cut -d' ' -f2) || found=
    [[ $found == "$wanted" ]] || fail "rust $wanted is wanted, found '${found:-none}'; $how"
}

kernel_is_known() {
    [[ -n $(apt-cache policy "$guest_kernel" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9].*\)/\1/p') ]]
}

# The mirror that serves this release's main suite, from whichever file configures it.
configured_mirror() {
    apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' \
        | awk -v release="$1" '$2 == release && $3 == "main" { print $1; exit }'
}

# Bookworm gets 6.12 through its security or its backports suite.
ensure_guest_kernel() {
    [[ ! -f $repo_root/.cache/guest/vmlinuz ]] || return 0
    ! kernel_is_known || return 0
    need_apt "(the package lists for $guest_kernel)"
    apt update || fail "apt-get update failed"
    ! kernel_is_known || return 0
    local release mirror
    release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    mirror=$(configured_mirror "$release")
    [[ -n $mirror ]] || fail "no configured source has $guest_kernel, and none serves '$release main'"
    say "adding $release-backports for $guest_kernel"
    cat > /etc/apt/sources.list.d/ashlar-backports.sources <<SOURCE
Types: deb
URIs: $mirror
Suites: $release-backports
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCE
    apt update || fail "apt-get update failed with $release-backports added"
    kernel_is_known || fail "no source offers $guest_kernel, not even $release-backports"
}

names() { awk '{ print $1 }'; }

setup_build() {
    install_packages $(build_packages | names)
    check_rust
}

setup_demo() {
    install_packages $(demo_packages | names)
}

setup_test() {
    install_packages $({ build_packages; demo_packages; test_packages; } | names)
    check_rust
    ensure_guest_kernel
}

usage() { echo "usage: scripts/setup.sh build|demo|test|list..." >&2; exit 2; }

# Every word is looked at before the first is done.
(($#)) || usage
for what in "$@"; do
    [[ $what =~ ^(build|demo|test|list)$ ]] || usage
done
for what in "$@"; do
    case $what in
        build) setup_build ;;
        demo) setup_demo ;;
        test) setup_test ;;
        list) build_packages; demo_packages; test_packages ;;
    esac
done
