#!/usr/bin/env python3
"""Records NVMe/TCP byte streams: a TCP proxy that keeps what passes, for golden tests.

Usage: capture.py LISTEN TARGET OUTDIR      (both as ADDR:PORT)

Connection NN, counted from 01 in the order of arrival, leaves OUTDIR/NN.host.bin (initiator to
target) and OUTDIR/NN.ctrl.bin (target to initiator), exactly as they were sent. Prints `ready` when
it listens; ends on SIGTERM or SIGINT.
"""

import itertools
import pathlib
import socket
import sys
import threading


def endpoint(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def pump(source, sink, path):
    """Copies one direction until it ends, then passes the end on."""
    with open(path, "wb", buffering=0) as record:
        try:
            while data := source.recv(1 << 16):
                record.write(data)
                sink.sendall(data)
        except OSError:
            # A reset is an end like any other; the other direction sees it by itself.
            pass
    for side, how in ((sink, socket.SHUT_WR), (source, socket.SHUT_RD)):
        try:
            side.shutdown(how)
        except OSError:
            pass


def serve(host_side, target, outdir, number):
    try:
        ctrl_side = socket.create_connection(target, timeout=10)
    except OSError as error:
        print(f"connection {number:02}: {error}", file=sys.stderr, flush=True)
        host_side.close()
        return
    ctrl_side.settimeout(None)
    for side in (host_side, ctrl_side):
        side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    pumps = [
        threading.Thread(target=pump, args=(host_side, ctrl_side, outdir / f"{number:02}.host.bin")),
        threading.Thread(target=pump, args=(ctrl_side, host_side, outdir / f"{number:02}.ctrl.bin")),
    ]
    for thread in pumps:
        thread.start()
    for thread in pumps:
        thread.join()
    host_side.close()
    ctrl_side.close()


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    listen, target, outdir = endpoint(sys.argv[1]), endpoint(sys.argv[2]), pathlib.Path(sys.argv[3])
    outdir.mkdir(parents=True, exist_ok=True)
    family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
    with socket.create_server(listen, family=family) as server:
        print("ready", flush=True)
        for number in itertools.count(1):
            host_side, _ = server.accept()
            threading.Thread(target=serve, args=(host_side, target, outdir, number), daemon=True).start()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
