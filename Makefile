# Everything a fresh machine needs is installed by scripts/setup.sh; `make demo` and `make test` call it.
CARGO ?= cargo
BIN := target/release/ashlar

.PHONY: help build demo demo-ha test bench bench-attach bench-oltp soak setup setup-test clean

help:
	@echo "make demo   set up, build, and measure remote against local: demo/report.html, demo/result.json"
	@echo "make demo-ha   two nodes and a witness, TPROC-C on a replicated volume, its node killed under it: demo-ha/result.json"
	@echo "make test   set up and pass all tests"
	@echo "make bench  ratios: against the bare socket, remote against local, idle CPU, a peer if given"
	@echo "make bench-attach   a database on a plain disk, on an attached volume in process, and through the initiator"
	@echo "make bench-oltp HAMMERDB=DIR GO_TPC=FILE SYSBENCH_TPCC=DIR   lab oltp against other drivers"
	@echo "make soak   the long rounds"

setup:
	scripts/setup.sh build

setup-test:
	scripts/setup.sh test

build: setup
	$(CARGO) build --release --locked -p ashlar

demo: build
	scripts/demo.sh $(BIN)

# etcd is among what the tests need.
demo-ha: setup-test build
	rm -rf demo-ha
	$(BIN) lab failover --topology fci --fault kill-node --rounds 1 --dir $${TMPDIR:-/tmp} --out demo-ha

test: setup-test
	scripts/test.sh

bench: build
	scripts/bench.sh $(BIN)

bench-attach: build
	scripts/bench-attach.sh $(BIN)

bench-oltp: build
	scripts/bench-oltp.py $(BIN) $(BENCH_OPTIONS)

soak: setup-test build
	scripts/soak.sh $(BIN)

clean:
	$(CARGO) clean
	rm -rf demo demo-ha .cache bench-out soak-out
