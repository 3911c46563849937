#!/usr/bin/env bash
# Boots the guest with one test script and reports what the script found.
#
# Usage: tests/guest/run.sh SCRIPT [NAME]
#
# The script runs in the guest under busybox sh; it sources /guest/lib.sh, which reads /guest/env.
# Its protocol, a line each:
#
#   GUEST-PASS name            a check held
#   GUEST-FAIL name reason     a check did not
#   GUEST-WAIT words…          asks the host to run `$GUEST_HOOK words…`; the answer is its exit code
#   GUEST-DONE                 (printed when the script ends with 0) everything was reached
#
# Prints `ok name`, `FAILED name: reason` as they come. Exit codes: 0 GUEST-DONE was seen, with at
# least one check and no failure; 1 otherwise, after the ends of both logs; 3 no guest to boot.
#
# Environment: GUEST_ENV      lines VARIABLE=value for /guest/env
#              GUEST_HOOK     command that serves GUEST-WAIT
#              GUEST_LOGS     folder of NAME.log and NAME.kernel.log (default .cache/guest/logs)
#              GUEST_TIMEOUT  seconds (default 180)     GUEST_CPUS (default 1)
#              GUEST_MEMORY   MiB (default 512)         GUEST_ACCEL (default tcg; kvm where it works)
#              GUEST_PROGRAM  a program for /guest/bin, with its libraries in /guest/lib
#              GUEST_IMAGES   folder of the images (default .cache/guest)
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo_root=$(cd "$here/../.." && pwd)

script=${1:?usage: run.sh SCRIPT [NAME]}
name=${2:-$(basename "$script" .sh)}
images=${GUEST_IMAGES:-$repo_root/.cache/guest}
logs=${GUEST_LOGS:-$images/logs}
timeout=${GUEST_TIMEOUT:-180}
accel=${GUEST_ACCEL:-tcg,thread=multi}

[[ -f $script ]] || { echo "guest: no such script: $script" >&2; exit 2; }
command -v qemu-system-x86_64 >/dev/null \
    || { echo "guest: qemu-system-x86_64 is missing; run scripts/setup.sh test" >&2; exit 3; }
"$here/build-initrd.sh" "$images" || exit 3

mkdir -p "$logs"
log=$logs/$name.log
kernel_log=$logs/$name.kernel.log
work=$(mktemp -d)
qemu_pid=
cleanup() {
    [[ -z $qemu_pid ]] || kill -9 "$qemu_pid" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# The script travels as a second archive behind the first: the kernel unpacks one over the other.
mkdir -p "$work/root/guest"
cp "$script" "$work/root/guest/script.sh"
cp "$here/lib.sh" "$work/root/guest/lib.sh"
printf '%s\n' "${GUEST_ENV:-}" > "$work/root/guest/env"
if [[ -n ${GUEST_PROGRAM:-} ]]; then
    mkdir -p "$work/root/guest/bin" "$work/root/guest/lib"
    # Without what only a debugger reads: the archive is in the guest's memory.
    strip -o "$work/root/guest/bin/$(basename "$GUEST_PROGRAM")" "$GUEST_PROGRAM" || exit 3
    ldd "$GUEST_PROGRAM" | grep -o '/[^ ]*' | while read -r file; do
        cp "$file" "$work/root/guest/lib/"
    done
fi
(cd "$work/root" && find guest | cpio --quiet -o -H newc | gzip -1) > "$work/script.img" || exit 1
cat "$images/initrd.img" "$work/script.img" > "$work/initrd.img" || exit 1

# Both ends of the pipes stay open here, so neither side blocks or fails while the other is gone.
mkfifo "$work/to_guest" "$work/from_guest"
exec {to_guest}<> "$work/to_guest" {from_guest}<> "$work/from_guest"

start_machine() {
    : > "$log"
    started=$(date +%s%N)
    # shellcheck disable=SC2086 # words, or none
    ${GUEST_NETWORK:+nsenter --net=$GUEST_NETWORK} \
        qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none -monitor none \
        -M q35 -accel "$accel" -cpu max -smp "${GUEST_CPUS:-1}" -m "${GUEST_MEMORY:-512}" \
        -kernel "$images/vmlinuz" -initrd "$work/initrd.img" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable no_timer_check nvme_core.multipath=Y" \
        -drive "if=none,id=tools,file=$images/tools.img,format=raw,readonly=on" \
        -device virtio-blk-pci,drive=tools,romfile= \
        -netdev user,id=n0 -device virtio-net-pci,netdev=n0,romfile= \
        -serial "file:$kernel_log" -serial stdio \
        <&"$to_guest" >&"$from_guest" 2> "$work/qemu.err" &
    qemu_pid=$!
    disown
}

passed=0 failed=0 booted=no done=no ended=

seconds_since_start() {
    local ms=$((($(date +%s%N) - started) / 1000000))
    printf '%d.%d' $((ms / 1000)) $((ms % 1000 / 100))
}

# Runs the hook for a GUEST-WAIT and sends its exit code back. The time-out covers it too.
serve_wait() {
    local status=0
    # Word splitting is the point: the hook gets the guest's words.
    # shellcheck disable=SC2086
    timeout "$timeout" ${GUEST_HOOK:-false} $1 >> "$log" 2>&1 <&- || status=$?
    echo "HOST-ANSWER $1: $status" >> "$log"
    printf '%s\n' "$status" >&"$to_guest"
}

take_line() {
    local line=${1%$'\r'} rest
    printf '%s\n' "$line" >> "$log"
    rest=${line#* }
    case $line in
        GUEST-PASS\ *) passed=$((passed + 1)); echo "ok $rest" ;;
        GUEST-FAIL\ *) failed=$((failed + 1)); echo "FAILED ${rest/ /: }" ;;
        GUEST-WAIT\ *) serve_wait "$rest" ;;
        GUEST-BOOT\ *) booted=yes; echo "# $name: Linux ${rest% *} booted in $(seconds_since_start) s" ;;
        GUEST-DONE) done=yes ended="the script ended" ;;
        GUEST-ABORT*) ended="the script ended with $rest" ;;
    esac
}

# `read -t` keeps what it got of an unfinished line; it is put before the rest.
follow_machine() {
    local line partial=
    ended=
    while [[ -z $ended ]]; do
        if IFS= read -r -t 1 -u "$from_guest" line; then
            take_line "$partial$line"
            partial=
            continue
        fi
        partial+=$line
        if (($(date +%s%N) - started > timeout * 1000000000)); then
            ended="no end after $timeout s"
        elif ! kill -0 "$qemu_pid" 2>/dev/null; then
            ended="the machine stopped (a kernel panic?)"
        fi
    done
}

# Emulated, a kernel now and then trips over its own patched code while it boots, long before anything
# of ours runs in it: that is no finding, and is tried again, aloud. What stops later is one.
for attempt in 1 2 3; do
    start_machine
    follow_machine
    [[ $booted == no && $ended == "the machine stopped"* ]] || break
    echo "# $name: the machine stopped before the script began, attempt $attempt of 3:" \
        "$(grep -m 1 -E 'Oops|BUG|panic|RIP' "$kernel_log" || tail -n 1 "$work/qemu.err")"
done

echo "# $name: $passed passed, $failed failed, $(seconds_since_start) s; $ended"
((passed > 0 && failed == 0)) && [[ $done == yes ]] && exit 0

[[ $done == yes ]] || echo "FAILED $name: $ended"
{
    cat "$work/qemu.err"
    echo "--- end of $log"
    tail -n 60 "$log"
    echo "--- end of $kernel_log"
    tail -n 60 "$kernel_log"
    echo "---"
} >&2
exit 1
