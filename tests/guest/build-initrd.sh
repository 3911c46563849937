#!/usr/bin/env bash
# Builds what a guest boots from, out of Debian's own packages:
#
#   OUT_DIR/vmlinuz      the stock 6.12 cloud kernel
#   OUT_DIR/initrd.img   busybox, guest-init.sh and the modules; small, because TCG unpacks it slowly
#   OUT_DIR/tools.img    a read-only ext4 image with nvme-cli, fio, mkfs … and their libraries;
#                        the guest reads only the pages that it touches
#
# Usage: tests/guest/build-initrd.sh [OUT_DIR]        (default: .cache/guest in the repository)
#
# Does nothing when OUT_DIR is up to date: same scripts, same versions of the packages it copies
# from. The kernel package is downloaded and unpacked, never installed. Exit code 3: a tool or the
# kernel package is missing (scripts/setup.sh test brings both).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo_root=$(cd "$here/../.." && pwd)
out_dir=${1:-$repo_root/.cache/guest}
kernel_package=linux-image-6.12-cloud-amd64

# Modules, by name; their dependencies follow by themselves. ext4 and virtio-pci are built in.
modules=(virtio_blk virtio_net nvme-tcp crc32c-intel xfs)

tools=(
    /usr/sbin/nvme /usr/bin/fio
    /sbin/mkfs.ext4 /sbin/fsck.ext4 /sbin/mkfs.xfs /usr/sbin/xfs_repair
    /sbin/blkdiscard /sbin/blkid /sbin/resize2fs
)
source_packages=(nvme-cli fio e2fsprogs xfsprogs util-linux busybox-static libc6)

say() { printf 'guest: %s\n' "$*" >&2; }
fail() { say "$*"; exit 3; }

check_tools() {
    local tool
    for tool in "${tools[@]}" /bin/busybox; do
        [[ -x $tool ]] || fail "$tool is missing; run scripts/setup.sh test"
    done
    for tool in cpio xz depmod mke2fs ldd flock; do
        PATH=$PATH:/sbin:/usr/sbin command -v "$tool" >/dev/null || fail "$tool is missing; run scripts/setup.sh test"
    done
}

# What the result depends on. The kernel's version is not in it: a cached kernel serves until the
# cache is removed.
inputs() {
    sha256sum < "$here/build-initrd.sh"
    sha256sum < "$here/guest-init.sh"
    dpkg-query -W "${source_packages[@]}"
}

is_current() {
    [[ -f $out_dir/inputs && -f $out_dir/vmlinuz && -f $out_dir/initrd.img && -f $out_dir/tools.img ]] \
        && inputs | cmp -s - "$out_dir/inputs"
}

# Unpacks the kernel package that the meta package depends on into $work/kernel.
fetch_kernel() {
    local package packages_dir=$out_dir/packages
    mkdir -p "$packages_dir"
    if ! compgen -G "$packages_dir/linux-image-*.deb" >/dev/null; then
        package=$(apt-cache depends "$kernel_package" 2>/dev/null | awk '/^ *Depends: linux-image-/ { print $2; exit }')
        [[ -n $package ]] || fail "no source offers $kernel_package; run scripts/setup.sh test"
        say "downloading $package"
        mkdir -p "$work/download"
        (cd "$work/download" && apt-get -qq -o APT::Sandbox::User=root download "$package") \
            || (apt-get -qq update && cd "$work/download" \
                && apt-get -qq -o APT::Sandbox::User=root download "$package") \
            || fail "cannot download $package"
        mv "$work"/download/*.deb "$packages_dir/"
    fi
    dpkg -x "$packages_dir"/linux-image-*.deb "$work/kernel"
    depmod -b "$work/kernel" "$(kernel_version)"
}

kernel_version() { ls "$work/kernel/lib/modules"; }

# The paths of the wanted modules, each after what it depends on, once.
module_files() {
    local module
    for module in "${modules[@]}"; do
        modprobe -d "$work/kernel" -S "$(kernel_version)" --show-depends "$module" \
            || fail "the kernel package has no module $module"
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
}

build_initrd() {
    local root=$work/initrd file
    mkdir -p "$root"/{bin,dev,proc,sys,modules,tools,guest}
    install -m 755 /bin/busybox "$root/bin/busybox"
    ln -s busybox "$root/bin/sh"
    install -m 755 "$here/guest-init.sh" "$root/init"
    while read -r file; do
        xz -dc "$file" > "$root/modules/$(basename "$file" .xz)"
        basename "$file" .xz >> "$root/modules/order"
    done < <(module_files)
    [[ -s $root/modules/order ]] || fail "no module was packed"
    (cd "$root" && find . | cpio --quiet -o -H newc | gzip -6) > "$work/initrd.img"
}

# Copies a program with every library it loads, to the same paths.
copy_with_libraries() {
    local root=$1 program=$2 file
    install -D -m 755 "$program" "$root$program"
    ldd "$program" | grep -o '/[^ ]*' | sort -u | while read -r file; do
        [[ -e $root$file ]] || install -D -m 755 "$file" "$root$file"
    done
}

build_tools() {
    local root=$work/tools tool kib
    mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/{dev,etc,proc,sys,tmp,run,mnt,guest}
    for tool in bin sbin lib lib64; do ln -s "usr/$tool" "$root/$tool"; done
    install -m 755 /bin/busybox "$root/bin/busybox"
    # Real programs of the same name replace these links or, in sbin, are found before them.
    /bin/busybox --list | while read -r tool; do
        [[ $tool == busybox ]] || ln -s busybox "$root/bin/$tool"
    done
    for tool in "${tools[@]}"; do copy_with_libraries "$root" "$tool"; done
    echo 'root:x:0:0:root:/:/bin/sh' > "$root/etc/passwd"
    echo '127.0.0.1 localhost' > "$root/etc/hosts"
    kib=$(($(du -sk "$root" | cut -f1) * 5 / 4 + 8192))
    mke2fs -q -t ext4 -O ^has_journal -m 0 -d "$root" "$work/tools.img" "${kib}k"
}

# Two runs may start at once: one builds, the other waits and finds it done.
mkdir -p "$out_dir"
check_tools
exec 9> "$out_dir/lock"
flock 9
if is_current; then exit 0; fi

work=$(mktemp -d "$out_dir/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
fetch_kernel
build_initrd
build_tools
rm -f "$out_dir/inputs"
mv "$work/initrd.img" "$work/tools.img" "$out_dir/"
cp "$work"/kernel/boot/vmlinuz-* "$out_dir/vmlinuz"
inputs > "$out_dir/inputs"
say "built $(kernel_version): initrd $(du -h "$out_dir/initrd.img" | cut -f1), tools $(du -h "$out_dir/tools.img" | cut -f1)"
