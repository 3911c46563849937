#!/usr/bin/env python3
"""Runs all tests of the workspace as `cargo test --workspace` does, but two programs at a time.

Usage: scripts/run-tests.py [PROGRAM [ARGUMENT…]]

Most tests wait for processes and drives, and leave a core idle; the simulations compute. One lane begins with the
first kind and one with the second, and each goes on with what is left. PROGRAM, which may need what is built, comes
before the second kind. A program's output is printed when the program ends. RUST_TEST_THREADS is for each program. Exit codes: 0 all passed, 1 something failed or took longer than
PROGRAM_TIMEOUT seconds, 3 the tests cannot be built.
"""

import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

CARGO = os.environ.get("CARGO", "cargo")
PROGRAM_TIMEOUT = 1800
COMPUTING = {"ashlar-cache", "ashlar-nvme", "ashlar-replica", "ashlar-sim", "ashlar-store"}
# It has the longest tests: a lane that ended with them would leave the other idle.
FIRST = "ashlar"

Program = collections.namedtuple("Program", "package target words folder")


def build():
    """The test programs, in cargo's order."""
    command = [CARGO, "test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"run-tests: `{' '.join(command)}` ended with {done.returncode}", file=sys.stderr)
        sys.exit(3)
    programs = []
    for message in map(json.loads, done.stdout.splitlines()):
        if message["reason"] != "compiler-artifact" or not message["profile"]["test"] or not message["executable"]:
            continue
        folder = os.path.dirname(message["manifest_path"])
        # `path+file:///…/crates/cli#ashlar@0.1.0`, or with the folder's own name `…/crates/ashlar#0.1.0`.
        package = message["package_id"].rsplit("#", 1)[1].split("@")[0]
        package = package if not package[0].isdigit() else os.path.basename(folder)
        programs.append(Program(package, message["target"]["name"], [message["executable"]], folder))
    return programs


class Run:
    """Two queues, the lanes that empty them, and what failed."""

    def __init__(self, programs, first):
        self.lock = threading.Lock()
        waiting = [one for one in programs if one.package not in COMPUTING]
        waiting.sort(key=lambda one: one.package != FIRST)
        self.waiting = collections.deque(waiting)
        self.computing = collections.deque(first + [one for one in programs if one.package in COMPUTING])
        self.running = set()
        self.failed = []
        self.ends = False

    def next(self, queues):
        with self.lock:
            for queue in queues:
                if queue and not self.ends:
                    return queue.popleft()

    def lane(self, *queues):
        while program := self.next(queues):
            self.run(program)

    def run(self, program):
        environment = os.environ | {"CARGO_MANIFEST_DIR": program.folder, "CARGO_PKG_NAME": program.package}
        start = time.monotonic()
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            # A group of its own: what a test that hangs has started ends with it.
            process = subprocess.Popen(program.words, cwd=program.folder, env=environment, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            with self.lock:
                self.running.add(process)
            reason = ""
            try:
                code = process.wait(PROGRAM_TIMEOUT)
            except subprocess.TimeoutExpired:
                end(process)
                code, reason = process.wait(), f", ended after {PROGRAM_TIMEOUT} s"
            output.seek(0)
            seconds = time.monotonic() - start
            with self.lock:
                self.running.discard(process)
                print(f"     Running {program.package} {program.target} ({seconds:.0f} s{reason})")
                print(output.read(), flush=True)
                if code != 0:
                    self.failed.append(f"{program.package} {program.target}: exit code {code}{reason}")

    def stop(self, *_):
        self.ends = True
        for process in list(self.running):
            end(process)


def end(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def main():
    start = time.monotonic()
    beside = [Program("beside", os.path.basename(words[0]), words, os.getcwd())] if (words := sys.argv[1:]) else []
    run = Run(build(), beside)
    built = time.monotonic()
    print(f"run-tests: {len(run.waiting) + len(run.computing)} programs, built in {built - start:.0f} s", flush=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, run.stop)
    lanes = [
        threading.Thread(target=run.lane, args=(run.waiting, run.computing)),
        threading.Thread(target=run.lane, args=(run.computing, run.waiting)),
    ]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    print(f"run-tests: the programs took {time.monotonic() - built:.0f} s", flush=True)
    documentation = subprocess.run([CARGO, "test", "--workspace", "--locked", "--doc"])
    if documentation.returncode != 0:
        run.failed.append(f"examples in documentation: exit code {documentation.returncode}")
    for failed in run.failed:
        print(f"FAILED {failed}")
    sys.exit(1 if run.failed or run.ends else 0)


if __name__ == "__main__":
    main()
