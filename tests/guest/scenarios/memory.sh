# A limit of memory by a cgroup of version 2, as `ashlar lab server --memory` sets it: the test of that code in
# ashlar-oltp, on a kernel that has the memory controller there. What it is on this host is tested here without
# a guest.
#
# PROGRAM is the name of the tests in /guest/bin.
. /guest/lib.sh

export LD_LIBRARY_PATH=/guest/lib
only_two() {
    mount -t cgroup2 cgroup2 /sys/fs/cgroup && grep -qw memory /sys/fs/cgroup/cgroup.controllers \
        && ! grep -q ' cgroup ' /proc/mounts
}
# On one thread the test's first line would stand behind its name.
limited() { "/guest/bin/$PROGRAM" server::cgroup::tests --nocapture --test-threads=2; }
is_limited() { limited > /tmp/limited.out 2>&1 || { cat /tmp/limited.out; return 1; }; }
none_left() { ! ls -d /sys/fs/cgroup/ashlar-* 2> /dev/null; }
# The kernel says whom it has killed for that limit.
killed() { dmesg | grep -q 'Memory cgroup out of memory: Killed process .*(dd)'; }

require version-2 only_two
check limit is_limited
check by-memory-max grep -q '^limited by memory.max$' /tmp/limited.out
check test-ran grep -q '1 passed; 0 failed' /tmp/limited.out
check process-with-too-much-was-killed killed
check no-group-is-left none_left
