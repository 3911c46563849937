#!/usr/bin/env python3
"""Measures `ashlar lab oltp` against other TPC-C drivers on one private PostgreSQL, in turn.

    scripts/bench-oltp.py BIN [options]      make bench-oltp GO_TPC=/opt/go-tpc BENCH_OPTIONS="--rounds 7"

Drivers are used as they are given, and never built or installed. Every figure comes from the same place
for all of them: orders from sum(d_next_o_id), processor time from /proc. docs/bench.md says what is measured.

Exit codes: 0 measured, 2 usage, 3 the environment lacks something or a driver failed.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

TICK = os.sysconf("SC_CLK_TCK")
SETTINGS = ["shared_buffers=1GB", "max_wal_size=4GB"]
BUSY = 0.1  # of the machine: what others may take before a run is repeated
GOALS = {"functions": 5000, "client": 2000, "rows": 1_000_000}


def fail(message):
    print(f"bench-oltp: {message}", file=sys.stderr)
    sys.exit(3)


# --- processor time, in seconds -------------------------------------------------------------------

def processes():
    """(pid, parent, session, seconds with those of children waited for) of every process."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = pathlib.Path("/proc", entry, "stat").read_text()
            except OSError:
                continue
            field = text[text.rindex(")") + 2:].split()
            yield int(entry), int(field[1]), int(field[3]), sum(map(int, field[11:15])) / TICK


def session_cpu(session):
    return sum(cpu for _, _, of, cpu in processes() if of == session)


def tree_cpu(root):
    """Of the postmaster and its children: it has no deeper ones."""
    return sum(cpu for pid, parent, _, cpu in processes() if root in (pid, parent))


def machine_cpu():
    """Seconds that all cores together were busy, and were there."""
    ticks = list(map(int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    return (sum(ticks) - ticks[3] - ticks[4]) / TICK, sum(ticks) / TICK


# --- the server -----------------------------------------------------------------------------------

class Server:
    def __init__(self, ashlar, directory):
        self.ashlar, self.dir, self.socket = ashlar, directory, f"{directory}/run"
        options = [word for setting in SETTINGS for word in ("--set", setting)]
        self.helper("start", *options)
        self.pid = json.loads(self.helper("status", "--json"))["pid"]

    def helper(self, action, *options):
        command = [self.ashlar, "lab", "server", action, "--dir", self.dir, *options]
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        if done.returncode:
            fail(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def url(self, database):
        return f"postgres:///{database}?host={self.socket}&user=owner"

    def sql(self, database, *statements):
        command = ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", self.socket, "-U", "owner", database]
        for statement in statements:
            command += ["-c", statement]
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        if done.returncode:
            fail(f"psql {database}: {done.stderr.strip()}")
        return done.stdout.strip()

    def drop(self, *databases):
        self.sql("postgres", *(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)" for name in databases))

    def restore(self, template):
        """The database `run`, as `template` was when it was built."""
        self.drop("run")
        self.sql("postgres", f"CREATE DATABASE run TEMPLATE {template} STRATEGY file_copy", "CHECKPOINT")

    def rows(self, database):
        tables = self.sql(database, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
                                    " AND tablename <> 'ashlar_oltp'").split()
        return sum(int(self.sql(database, f"SELECT count(*) FROM {table}")) for table in tables)

    def mark(self, driver, session):
        orders, commits, rollbacks = self.sql(
            "run", f"SELECT (SELECT sum(d_next_o_id) FROM {driver.district}), xact_commit, xact_rollback"
                   " FROM pg_stat_database WHERE datname = 'run'").split("|")
        busy, there = machine_cpu()
        return {"at": time.monotonic(), "orders": int(orders), "commits": int(commits),
                "rollbacks": int(rollbacks), "client": session_cpu(session), "server": tree_cpu(self.pid),
                "busy": busy, "there": there}


# --- drivers --------------------------------------------------------------------------------------

class Driver:
    """Command lines of one driver: `build` and `run` a database. Peers run until they are killed."""
    district, cwd, env = "district", None, {}

    def __init__(self, server, options):
        self.server, self.options = server, options


class Ashlar(Driver):
    template, sql = "ashlar", "functions"

    def __init__(self, server, options, sql):
        super().__init__(server, options)
        self.sql, self.name = sql, f"ashlar, {sql}"

    def build(self, database):
        return [self.options.ashlar, "lab", "oltp", "build", "--db", self.server.url(database),
                "--warehouses", str(self.options.warehouses), "--build-users", "2"]

    def run(self, database, users, limit):
        out = f"{self.options.out}/ashlar-{self.sql}"
        shutil.rmtree(out, ignore_errors=True)
        return [self.options.ashlar, "lab", "oltp", "run", "--db", self.server.url(database), "--users",
                str(users), "--sql", self.sql, "--ramp", "0s", "--seconds", str(limit), "--out", out]


class HammerDb(Driver):
    name = template = "hammerdb"

    def __init__(self, server, options):
        super().__init__(server, options)
        self.cwd, self.env = options.hammerdb, {"TMP": f"{options.out}/hammerdb"}
        os.makedirs(self.env["TMP"], exist_ok=True)

    def script(self, database, users, *commands):
        settings = {"connection": {"pg_host": self.server.socket, "pg_port": 5432, "pg_sslmode": "disable"},
                    "tpcc": {"pg_count_ware": self.options.warehouses, "pg_num_vu": users, "pg_superuser": "owner",
                             "pg_superuserpass": "x", "pg_user": "owner", "pg_pass": "x", "pg_dbase": database,
                             "pg_driver": "timed", "pg_rampup": 0, "pg_duration": 1}}
        lines = ["dbset db pg", "dbset bm TPC-C"]
        lines += [f"diset {group} {name} {value}" for group, pairs in settings.items()
                  for name, value in pairs.items()]
        path = pathlib.Path(self.options.out, "hammerdb.tcl")
        path.write_text("\n".join([*lines, *commands, ""]))
        return ["./hammerdbcli", "tcl", "auto", str(path)]

    def build(self, database):
        return self.script(database, 2, "buildschema")

    def run(self, database, users, limit):
        if limit > 60:
            fail("HammerDB's time is in minutes: --ramp and --seconds must be below a minute together")
        return self.script(database, users, "loadscript", f"vuset vu {users}", "vucreate", "vurun")


class GoTpc(Driver):
    name, template = "go-tpc", "gotpc"

    def command(self, action, database, *options):
        return [self.options.go_tpc, "tpcc", action, "-d", "postgres", "-U", "owner", "-p", "x", "-D", database,
                "--targets", ":5432", "--conn-params", f"sslmode=disable&host={self.server.socket}",
                "--warehouses", str(self.options.warehouses), *options]

    def build(self, database):
        return self.command("prepare", database, "-T", "2", "--no-check")

    def run(self, database, users, limit):
        return self.command("run", database, "-T", str(users), "--time", f"{2 * limit}s")


class SysbenchTpcc(Driver):
    name, template, district = "sysbench-tpcc", "sysbench", "district1"

    def __init__(self, server, options):
        super().__init__(server, options)
        self.cwd = options.sysbench_tpcc

    def command(self, action, database, threads, *options):
        return ["sysbench", "./tpcc.lua", "--db-driver=pgsql", f"--pgsql-host={self.server.socket}",
                "--pgsql-user=owner", f"--pgsql-db={database}", "--tables=1", "--trx_level=RC",
                f"--scale={self.options.warehouses}", f"--threads={threads}", *options, action]

    def build(self, database):
        return self.command("prepare", database, 2)

    def run(self, database, users, limit):
        return self.command("run", database, users, f"--time={2 * limit}")


# --- measuring ------------------------------------------------------------------------------------

class Bench:
    def __init__(self, options):
        self.options = options
        self.server = Server(options.ashlar, f"{options.out}/pg")
        ours = [Ashlar(self.server, options, sql) for sql in ("functions", "client")]
        peers = [kind(self.server, options) for kind, given in
                 ((HammerDb, options.hammerdb), (GoTpc, options.go_tpc),
                  (SysbenchTpcc, options.sysbench_tpcc)) if given]
        self.drivers = [*ours, *peers]
        self.loads, self.steps, self.child = [], [], None

    def start(self, driver, command):
        log = open(f"{self.options.out}/{driver.template}.log", "ab")
        self.child = subprocess.Popen(command, cwd=driver.cwd, env={**os.environ, **driver.env},
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                      start_new_session=True)
        return self.child

    def end(self):
        """Ends the driver that still runs, and the server."""
        self.stop()
        self.server.helper("stop")
        if not self.options.keep:
            shutil.rmtree(self.server.dir)

    def stop(self):
        if self.child and self.child.returncode is None and self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()

    def load(self, driver):
        """Builds the template of a driver; rows are counted afterwards."""
        server = self.server
        server.drop(driver.template)
        server.sql("postgres", f"CREATE DATABASE {driver.template}", "CHECKPOINT")
        begin, server_cpu = time.monotonic(), tree_cpu(server.pid)
        child = self.start(driver, driver.build(driver.template))
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds, server_cpu = time.monotonic() - begin, tree_cpu(server.pid) - server_cpu
        if child.returncode:
            fail(f"{driver.name}: the build failed, see {self.options.out}/{driver.template}.log")
        rows, client_cpu = server.rows(driver.template), usage.ru_utime + usage.ru_stime
        server.sql(driver.template, "VACUUM ANALYZE", "CHECKPOINT")
        load = {"driver": driver.template, "rows": rows, "seconds": seconds, "client_cpu_s": client_cpu,
                "server_cpu_s": server_cpu, "rows_per_client_cpu_s": rows / client_cpu}
        self.loads.append(load)
        print(f"{driver.template}: {rows} rows, {rows / client_cpu:,.0f} for each of {client_cpu:.2f} client CPU-seconds,"
              f" {seconds:.0f} s", flush=True)

    def step(self, driver, users, number):
        """A run that counts: again, if other processes took much of the machine; the quietest of all tries."""
        tries = []
        while len(tries) < self.options.tries:
            for _ in range(10 if self.options.tries > 1 else 0):
                before = machine_cpu()
                time.sleep(1)
                busy, there = (after - first for after, first in zip(machine_cpu(), before))
                if busy < there * BUSY:
                    break
            tries.append(self.run(driver, users, number))
            if tries[-1]["others_pct"] < 100 * BUSY:
                break
        step = min(tries, key=lambda step: step["others_pct"])
        self.steps.append(step)
        print(f"{number}. {users} users, {driver.name}: {step['nopm']:,.0f} NOPM, new orders per CPU-second:"
              f" client {step['orders_per_client_cpu_s']:,.0f}, server {step['orders_per_server_cpu_s']:,.0f};"
              f" idle {step['idle_pct']:.0f} %, others {step['others_pct']:.0f} %", flush=True)

    def run(self, driver, users, number):
        """One run of one driver on a fresh copy, and what happened in a window of it."""
        options, server = self.options, self.server
        server.restore(driver.template)
        untouched = int(server.sql("run", f"SELECT sum(d_next_o_id) FROM {driver.district}"))
        child = self.start(driver, driver.run("run", users, options.ramp + options.seconds + 3))
        try:
            for _ in range(100):
                time.sleep(0.2)
                if int(server.sql("run", f"SELECT sum(d_next_o_id) FROM {driver.district}")) > untouched:
                    break
            else:
                fail(f"{driver.name} does nothing, see {options.out}/{driver.template}.log")
            time.sleep(options.ramp)
            begin = server.mark(driver, child.pid)
            time.sleep(options.seconds)
            end = server.mark(driver, child.pid)
            if child.poll() is not None:
                fail(f"{driver.name} ended too early, see {options.out}/{driver.template}.log")
            if isinstance(driver, Ashlar):
                child.wait(timeout=60)  # for its consistency checks
        except subprocess.TimeoutExpired:
            print(f"note: {driver.name} did not end, and was killed")
        finally:
            self.stop()
        if isinstance(driver, Ashlar) and child.returncode:
            fail(f"{driver.name}: exit code {child.returncode}, see {options.out}/{driver.template}.log")
        d = {key: end[key] - begin[key] for key in end}
        return {"driver": driver.name, "users": users, "round": number, "seconds": d["at"], "orders": d["orders"],
                "nopm": d["orders"] * 60 / d["at"], "commits": d["commits"], "rollbacks": d["rollbacks"],
                "client_cpu_s": d["client"], "server_cpu_s": d["server"], "idle_pct": 100 * (1 - d["busy"] / d["there"]),
                "others_pct": 100 * (d["busy"] - d["client"] - d["server"]) / d["there"],
                "orders_per_client_cpu_s": d["orders"] / d["client"], "orders_per_server_cpu_s": d["orders"] / d["server"]}

    def save(self):
        path = pathlib.Path(self.options.out, "bench-oltp.json")
        path.write_text(json.dumps({"schema": "ashlar-bench-oltp-1", "settings": SETTINGS, "warehouses":
                        self.options.warehouses, "loads": self.loads, "steps": self.steps}, indent=1) + "\n")

    def measure(self):
        options, builders = self.options, [d for d in self.drivers if d.name != "ashlar, client"]
        for number in range(options.load_rounds):
            if number == 1:
                self.runs()
            for driver in builders:
                self.load(driver)
                self.save()
        if options.load_rounds < 2:
            self.runs()
        self.report()

    def runs(self):
        for number in range(1, self.options.rounds + 1):
            for users in self.options.users:
                for driver in self.drivers if number % 2 else reversed(self.drivers):
                    self.step(driver, users, number)
                    self.save()

    # --- what is printed at the end ---

    def of(self, driver, users, key):
        return [s[key] for s in self.steps if s["driver"] == driver.name and s["users"] == users]

    def report(self):
        print("\nrows loaded per client CPU-second, median (range)")
        for name in dict.fromkeys(load["driver"] for load in self.loads):
            goal = f", goal {GOALS['rows']:,}" if name == "ashlar" else ""
            print(f"  {name:18} {spread([x['rows_per_client_cpu_s'] for x in self.loads if x['driver'] == name])}{goal}")
        for users in self.options.users:
            print(f"\n{users} users, median (range) of {self.options.rounds}")
            for driver in self.drivers:
                goal = f", goal {GOALS[driver.sql]:,}" if isinstance(driver, Ashlar) else ""
                print(f"  {driver.name:18} NOPM {spread(self.of(driver, users, 'nopm'))}; new orders per CPU-second: client"
                      f" {spread(self.of(driver, users, 'orders_per_client_cpu_s'))}{goal};"
                      f" server {spread(self.of(driver, users, 'orders_per_server_cpu_s'))}")
            for peer in self.drivers[2:]:
                ours = self.drivers[0 if isinstance(peer, HammerDb) else 1]
                ratios = [spread([a / b for a, b in zip(self.of(ours, users, key), self.of(peer, users, key))], 2)
                          for key in ("nopm", "orders_per_client_cpu_s", "orders_per_server_cpu_s")]
                print(f"  {ours.name} / {peer.name}: NOPM {ratios[0]}, per client CPU-second {ratios[1]},"
                      f" per server CPU-second {ratios[2]}")


def spread(values, digits=0):
    if not values:
        return "not measured"
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


def arguments():
    env = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("ashlar", metavar="BIN", help="the ashlar binary")
    parser.add_argument("--hammerdb", metavar="DIR", default=env("HAMMERDB"), help="with hammerdbcli ($HAMMERDB)")
    parser.add_argument("--go-tpc", metavar="FILE", default=env("GO_TPC"), help="the program ($GO_TPC)")
    parser.add_argument("--sysbench-tpcc", metavar="DIR", default=env("SYSBENCH_TPCC"),
                        help="with tpcc.lua; sysbench itself is found by PATH ($SYSBENCH_TPCC)")
    parser.add_argument("--warehouses", type=int, default=4)
    parser.add_argument("--users", type=lambda text: [int(word) for word in text.split(",")], default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5, help="interleaved runs of each driver")
    parser.add_argument("--load-rounds", type=int, default=3, help="builds by each driver; 0: there are those of --keep")
    parser.add_argument("--keep", action="store_true", help="leave what was built, in the directory pg of --out")
    parser.add_argument("--ramp", type=int, default=4, help="seconds from the first order to the window")
    parser.add_argument("--seconds", type=int, default=20, help="of the window")
    parser.add_argument("--tries", type=int, default=3, help="of a run during which others were busy")
    parser.add_argument("--out", default="bench-out/oltp", help="results, logs, and the server while it runs")
    options = parser.parse_args()
    for name in ("ashlar", "hammerdb", "go_tpc", "sysbench_tpcc", "out"):
        path = getattr(options, name)
        setattr(options, name, os.path.abspath(path) if path else None)
        if path and name != "out" and not os.path.exists(path):
            parser.error(f"{path} does not exist")
        if not path:
            print(f"SKIPPED: {name.replace('_', '-')} is not given")
    if not shutil.which("psql") or (options.sysbench_tpcc and not shutil.which("sysbench")):
        fail("psql, or sysbench for sysbench-tpcc, is not in PATH")
    return options


def main():
    options = arguments()
    os.makedirs(options.out, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    bench = Bench(options)
    try:
        bench.measure()
    finally:
        bench.end()


if __name__ == "__main__":
    main()
