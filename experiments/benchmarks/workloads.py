"""Whole workloads on one worker, beside the same workloads on other engines: `workload_peers` runs their own rows,
generators, procedures and audits on LMDB, RocksDB, Berkeley DB, WiredTiger and SQLite, one thread each."""

import os
import shutil
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.context import Context, Measure, pin
from benchmarks.peers import Peers
from benchmarks.section import Section, ratio
from durability import NONE

TITLES = {"lmdb": "LMDB", "rocksdb": "RocksDB TransactionDB", "bdb": "Berkeley DB", "wiredtiger": "WiredTiger",
          "sqlite": "SQLite"}
MPL = 4
TIMES_LMDB = 3        # Payment and New-Order
OF_PAYMENT = 0.35     # New-Order
NOT_BUILT = "workload_peers is not built: deploy/install-packages.sh build test, then make bench"


class Load(NamedTuple):
    title: str
    workload: str
    scale: int  # warehouses, subscribers, rows
    parameters: dict[str, str]

    def options(self) -> list[str]:
        return [word for name, value in self.parameters.items() for word in ("--" + name.replace("_", "-"), value)]


LOADS = (Load("TPC-C Payment", "tpcc", 1, {"mix": "payment"}), Load("TPC-C New-Order", "tpcc", 1, {"mix": "new_order"}),
         Load("TPC-C", "tpcc", 1, {"mix": "standard"}), Load("TATP", "tatp", 100_000, {}),
         Load("YCSB A", "ycsb", 100_000, {"mix": "A"}), Load("YCSB E", "ycsb", 100_000, {"mix": "E"}),
         Load("SmallBank", "smallbank", 100_000, {}))
FEW = LOADS[:2] + LOADS[3:4]


class Island:
    """One worker with this load's rows."""

    def __init__(self, context: Context, load: Load, durability: str = NONE) -> None:
        self.context, self.load = context, load
        folder = os.path.join(context.directory, "workload-" + load.title.lower().replace(" ", "-"))
        os.makedirs(folder)
        self.file = os.path.join(folder, "islands.yaml")
        context.progress.show(f"{load.title}: starting islands")
        context.islands.call("template", "1ISL", "--workload", load.workload, "--scale", str(load.scale), "-o",
                             self.file)
        with open(self.file, encoding="utf-8") as file:
            lines = file.read().splitlines()
        # A worker on a core, whatever the machine.
        changes = {"cores:": "cores: 1", "base_port:": "", "durability:": f"    durability: {durability}",
                   "buffer_pool:": "  buffer_pool: 2GiB", "gateway:": "", "metrics:": "metrics: {base_port: 0}"}
        made = [next((new for key, new in changes.items() if line.lstrip("# ").startswith(key)), line)
                for line in lines]
        if not any(line.startswith("cores:") for line in made):
            made.append("cores: 1")
        with open(self.file, "w", encoding="utf-8") as file:
            file.write("\n".join(made) + "\n")
        context.islands.call("up", self.file)
        self.rate(0.1)  # the first run loads

    def rate(self, seconds: float | None = None, mpl: int = MPL) -> float:
        context = self.context
        result = context.islands.call("run", self.file, self.load.workload, *self.load.options(), "--mpl", str(mpl),
                                      "--duration", str(seconds or context.seconds), "--warmup", str(context.warmup),
                                      "--no-doctor", "--results", os.path.join(context.directory, "results"),
                                      timeout_s=1800)
        if result["sum_check"] != "ok":
            context.wrong.append(f"{self.load.title}: sum check {result['sum_check']}: {result['sum_check_detail']}")
        return float(result["committed_per_s"])

    def worker(self) -> tuple[int, int]:
        island = self.context.islands.call("status", self.file, codes=(0, 3))["islands"][0]
        return island["pid"], island["worker_cpus"][0]

    def down(self) -> None:
        self.context.islands.call("down", self.file)
        self.context.islands.call("destroy", self.file, "--yes")
        shutil.rmtree(os.path.dirname(self.file))


class Engines(Peers):
    """`workload_peers`, loaded with the tables of an island."""

    @staticmethod
    def built(context: Context) -> bool:
        return os.access(os.path.join(context.binaries, "workload_peers"), os.X_OK)

    def __init__(self, context: Context, island: Island, more: Sequence[str] = ()) -> None:
        load = island.load
        command = ["workload_peers", load.workload, "--island",
                   os.path.join(os.path.dirname(island.file), "run", "island-0.json"), "--serve", *more]
        for name, value in load.parameters.items():
            command += ["--parameter", f"{name}={value}"]
        self.start(context, command, (), None, None)

    def ask(self, engine: str, op: str = "", threads: int | None = None) -> str:
        """Whatever the operation: it has one load."""
        return super().ask(engine, "", threads)

    def measure(self, engine: str) -> Measure:
        return lambda: float(self.answer(self.ask(engine))["per_s"])


def measured(context: Context, load: Load) -> dict[str, float]:
    """Of islands and each engine, transactions per second."""
    island = Island(context, load)
    pid, cpu = island.worker()
    pin(pid, cpu)  # its service threads as well
    context.progress.show(f"{load.title}: loading the other engines")
    engines = Engines(context, island)
    pin(engines.process.pid, cpu)
    try:
        measures: dict[str, Measure] = {"islands": island.rate}
        measures.update({engine: engines.measure(engine) for engine in engines.engines})
        return context.alternate(measures, load.title)
    finally:
        engines.close()
        island.down()


def workloads(context: Context) -> Section:
    loads = FEW if context.quick else LOADS
    section = Section("Workloads: their own transactions, one worker and one thread each, durability none; thousand/s",
                      "load", [("islands", "{:.1f}")] + [column for title in TITLES.values()
                                                         for column in ((title, "{:.1f}"), ("islands x", "{:.2f}"))])
    if not Engines.built(context):
        section.note(NOT_BUILT)
        return section
    found = {load.title: measured(context, load) for load in loads}
    for title, rates in found.items():
        cells: list[float | None] = [rates["islands"] / 1000]
        for engine in TITLES:
            rate = rates.get(engine)
            cells += [None if rate is None else rate / 1000, ratio(rates["islands"], rate)]
        section.row(title, *cells)
    payment, new_order = found["TPC-C Payment"], found["TPC-C New-Order"]
    section.bar("Payment: islands / LMDB", ratio(payment["islands"], payment["lmdb"]), at_least=TIMES_LMDB)
    section.bar("New-Order: islands / LMDB", ratio(new_order["islands"], new_order["lmdb"]), at_least=TIMES_LMDB)
    section.bar("islands: New-Order / Payment", ratio(new_order["islands"], payment["islands"]), at_least=OF_PAYMENT)
    section.note("one warehouse, 100,000 subscribers, rows or customers; after every measurement each engine's rows "
                 "have passed the workload's audit: of TPC-C the specification's consistency conditions")
    return section

