"""What a section of the benchmark works with: deployments and runs on them, peers, programs, the progress line.

Invariants:
 1. Every run of every deployment is checked: what is wrong with one stands in `Context.wrong`.
 2. What is compared is measured in turns, in rounds of alternating direction, and compared by its medians.
"""

import argparse
import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from benchmarks.peers import Peers
from benchmarks.section import median
from durability import NONE, settings_of
from islands_command import Document, Islands, MachineReport, RunReport, StatusLine, json_of

ROWS = 10
MIB = 1 << 20
RUN_OVERHEAD_S = 0.4  # of an `islands run` beside warm-up and measurement: starting it, sums before and after

Measure = Callable[[], float]  # of transactions per second, say
L = TypeVar("L")               # a label of what is measured: words, or a tuple of them


class Progress(StatusLine):
    """What is being done, and about how long all of it still takes."""

    def __init__(self, estimates: Mapping[str, float]) -> None:
        super().__init__()
        self.estimates = estimates  # section -> seconds
        self.begin = self.section_begin = time.monotonic()
        self.section, self.passed_s = "", 0.0

    def enter(self, section: str) -> None:
        self.section, self.section_begin = section, time.monotonic()

    def leave(self) -> None:
        self.passed_s += self.estimates[self.section]

    def left_s(self) -> float:
        now = time.monotonic()
        position = self.passed_s + min(now - self.section_begin, self.estimates[self.section])
        pace = (now - self.begin) / position if position > 0 else 1.0
        return (sum(self.estimates.values()) - position) * min(max(pace, 0.5), 3.0)

    def show(self, text: str) -> None:
        number = list(self.estimates).index(self.section) + 1
        left_s = round(self.left_s())
        where = f"[{number}/{len(self.estimates)} {self.section}]"
        self.print(f"{where} {text}; about {left_s // 60}:{left_s % 60:02} left")


class Deployment:
    """A cluster of the benchmark, up and loaded."""

    def __init__(self, context: "Context", name: str, layout: str, cores: int, sites: int, rows_total: int,
                 latching: str, durability: str, log_parent: str, metrics_port: int, gateway: bool, pool_mib: int,
                 mode: str, prefix: Sequence[str]) -> None:
        self.context, self.name, self.metrics_port, self.prefix = context, name, metrics_port, prefix
        self.log_directory = os.path.join(log_parent, name)
        folder = os.path.join(context.directory, name)
        os.makedirs(folder)
        self.file = os.path.join(folder, "islands.yaml")
        islands = int(layout.removesuffix("ISL"))
        log = settings_of(durability) | {"directory": self.log_directory}
        pool_mib = pool_mib or rows_total * 450 // MIB + 32 * max(islands, sites)
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(f"version: 1\nname: {name}\nlayout: {layout}\ncores: {cores}\n"
                       f"data: {{sites: {sites}, tables: [{{name: micro, key: [uint64], range: [0, {rows_total}], "
                       f"row_bytes: 250}}]}}\n"
                       f"storage: {{buffer_pool: {pool_mib}MiB, mode: {mode}, latching: {latching}, "
                       f"log: {json.dumps(log)}}}\n"
                       f"metrics: {{base_port: {metrics_port}}}\n"
                       f"gateway: {{enabled: {str(gateway).lower()}}}\n")
        context.progress.show(f"{name}: starting and loading {rows_total:,} rows")
        self.up()

    def up(self, environment: Mapping[str, str] | None = None) -> None:
        self.context.islands.call("up", self.file, environment=environment, prefix=self.prefix)
        self.run("read", seconds=0.1)  # the first run loads

    def run(self, op: str, multisite: float = 0, mpl: int = 4, seconds: float | None = None,
            warmup: float | None = None, more: Sequence[str] = ()) -> RunReport:
        """One run, checked; the result that `islands run` reports. `seconds` are warmed up for by `warmup` only."""
        context = self.context
        if warmup is None:
            warmup = context.warmup if seconds is None else 0
        result = context.islands.call(
            "run", self.file, "micro", "--op", op, "--rows", str(ROWS), "--multisite", str(multisite), "--mpl",
            str(mpl), "--duration", str(seconds or context.seconds), "--warmup", str(warmup), "--no-doctor",
            "--results", os.path.join(context.directory, "results"), *more, timeout_s=1800)
        if result["sum_check"] != "ok":
            context.wrong.append(f"{self.name}, {op}, {multisite} % multisite, MPL {mpl}: sum check "
                                 f"{result['sum_check']}: {result['sum_check_detail']}")
        return result

    def rate(self, op: str, multisite: float = 0, mpl: int = 4, more: Sequence[str] = ()) -> Measure:
        """A function that measures transactions per second."""
        return lambda: self.run(op, multisite, mpl, more=more)["committed_per_s"]

    def status(self) -> Document:
        return self.context.islands.call("status", self.file, codes=(0, 3))

    def first_worker(self) -> tuple[int, int]:
        """Process and CPU of island 0's first worker."""
        island = self.status()["islands"][0]
        return island["pid"], island["worker_cpus"][0]

    def gateway(self) -> tuple[int, str]:
        """Its process and its address, of a deployment that has one."""
        gateway = self.status()["gateway"]
        return gateway["pid"], gateway["addresses"][0]

    def down(self) -> None:
        self.context.islands.call("down", self.file)

    def destroy(self) -> None:
        """What it keeps, after `down`: the next `up` begins with the initial rows."""
        self.context.islands.call("destroy", self.file, "--yes")


def in_words(what: str, label: object) -> str:
    parts = label if isinstance(label, tuple) else (label,)
    return " ".join(str(part) for part in (what, *parts) if part != "")


class Context:
    def __init__(self, islands: Islands, arguments: argparse.Namespace, progress: Progress) -> None:
        self.islands, self.directory, self.progress = islands, arguments.directory, progress
        self.log_directory = arguments.log_directory
        self.binaries = arguments.bin
        self.seconds, self.warmup, self.repeat = arguments.seconds, arguments.warmup, arguments.repeat
        self.quick, self.large = arguments.quick, arguments.large
        self.rows_total = 24_000 if self.quick else 240_000
        self.machine: MachineReport = islands.call("machine")
        self.cores = min(2, len(self.machine["cores"]))
        self.deployments: dict[str, Deployment] = {}
        self.engines: Peers | None = None
        self.wrong: list[str] = []
        self.samples: dict[str, dict[str, list[float]]] = {}

    def deployment(self, name: str, layout: str, cores: int, sites: int, rows_total: int | None = None,
                   latching: str = "auto", durability: str = NONE, log_parent: str = "",
                   metrics_port: int = 0, gateway: bool = False, pool_mib: int = 0, mode: str = "auto",
                   prefix: Sequence[str] = ()) -> Deployment:
        """Up from the first section that wants it to the end: idle islands sleep and disturb nobody. Its log is in a
        folder of `log_parent`, of the bench's folder for logs unless that is given; its pool has room for all rows
        unless `pool_mib` says how much."""
        if name not in self.deployments:
            self.deployments[name] = Deployment(self, name, layout, cores, sites, rows_total or self.rows_total,
                                                latching, durability, log_parent or self.log_directory, metrics_port,
                                                gateway, pool_mib, mode, prefix)
        return self.deployments[name]

    def peers(self, beside: Deployment) -> Peers | None:
        """The other engines over the same rows, on the CPU of a deployment's first worker; None if not built."""
        if self.engines is None and Peers.built(self):
            self.progress.show("loading the other engines")
            self.engines = Peers(self, self.rows_total)
        if self.engines is not None:
            pin(self.engines.process.pid, beside.first_worker()[1])
        return self.engines

    def alternate(self, measures: Mapping[L, Measure], what: str = "", rounds: int = 0) -> dict[L, float]:
        """Calls each of `measures`, label -> function, once a round; label -> median of what they returned."""
        found: dict[L, list[float]] = {label: [] for label in measures}
        rounds = rounds or self.repeat
        for number in range(rounds):
            for label in list(measures) if number % 2 == 0 else reversed(list(measures)):
                self.progress.show(f"{in_words(what, label)}, round {number + 1} of {rounds}")
                found[label].append(measures[label]())
        samples = self.samples.setdefault(self.progress.section, {})
        samples.update({in_words(what, label): values for label, values in found.items()})
        return {label: median(values) for label, values in found.items()}

    def program(self, name: str) -> str | None:
        """The path of a program of build/release/bench; None if it is not built."""
        path = os.path.normpath(os.path.join(self.binaries, "..", "bench", name))
        return path if os.access(path, os.X_OK) else None

    def json_of(self, name: str, *arguments: str) -> Any:
        program = self.program(name)
        assert program, "the section has looked"
        return json_of([program, *arguments], self.directory)

    def close(self) -> None:
        if self.engines is not None:
            self.engines.close()


def threads_of(pid: int) -> list[int]:
    return [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]


def pin(pid: int, cpu: int) -> None:
    """Every thread of a process, and those that they start later."""
    for thread in threads_of(pid):
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(thread, {cpu})


def cpus_of(pid: int) -> list[int]:
    """Where the kernel lets a process's threads run."""
    return sorted(set().union(*(os.sched_getaffinity(thread) for thread in threads_of(pid))))


def memory_mib(pid: int) -> tuple[int, int]:
    """Memory of a process, and how much of it is in huge pages."""
    kib: dict[str, int] = {}
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file.readlines()[1:]:
            name, value = line.split()[:2]
            kib[name] = int(value)
    return kib["Rss:"] // 1024, (kib["AnonHugePages:"] + kib["ShmemPmdMapped:"]) // 1024


class CpuTimes:
    """How this machine's CPUs spend their time, to tell whether something else ran beside the measurements."""

    def __init__(self) -> None:
        with open("/proc/stat", encoding="ascii") as file:
            times = [int(word) for word in file.readline().split()[1:9]]
        self.all, self.stolen = sum(times), times[7]
        self.busy = self.all - times[3] - times[4]  # neither idle nor waiting for a disk

    def percent_since(self, begin: "CpuTimes", what: str) -> float:
        """Of all CPU time."""
        return 100 * (getattr(self, what) - getattr(begin, what)) / max(1, self.all - begin.all)


def available_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
