"""What logging costs with the log in memory and on a disk: add-10 on islands with one worker, beside LMDB, which keeps
nothing that a loss of power would leave, and beside what the disk takes of a program that does nothing but append and
sync."""

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence

from benchmarks.context import Context, Deployment, Measure, pin
from benchmarks.logs import LEAST_S, MEMORY, Cost, Load, cost_of, cpu_s
from benchmarks.peers import Peers
from benchmarks.section import Section, median, ratio
from benchmarks.throughput import PEERS_MISSING
from durability import file_system

IN_MEMORY, LAZY, SYNC, LMDB = "lazy, log in memory", "lazy, log on disk", "sync, log on disk", "LMDB, one on each core"
SEGMENT_BYTES = 64 << 20  # allocated at once, as the logger does
LOAD = Load("add")
LEAST_OF_LMDB, LEAST_OF_BOUND, MOST_LOG_BYTES = 5.0, 0.8, 320.0


class PeersOnEachCore:
    """One LMDB for each island, with as many rows, on the CPU of its worker: it has one writer at a time."""

    def __init__(self, context: Context, cpus: Sequence[int]) -> None:
        self.all: list[Peers] = []
        self.cpu_us: list[float] = []  # of a transaction
        try:
            for cpu in cpus:
                context.progress.show(f"loading LMDB on CPU {cpu}")
                self.all.append(Peers(context, context.rows_total // len(cpus), ["lmdb"]))
                pin(self.all[-1].process.pid, cpu)
        except BaseException:
            self.close()
            raise

    def cpu_s(self) -> float:
        return sum(cpu_s(peers.process.pid) for peers in self.all)

    def rate(self) -> float:
        """Transactions per second of all, at the same time."""
        begin_s, begin_cpu_s = time.monotonic(), self.cpu_s()
        requests = [peers.ask("lmdb", "add") for peers in self.all]
        per_s = sum(peers.answer(request)["per_s"] for peers, request in zip(self.all, requests))
        # They never wait for anything but a processor, before the measurement as in it.
        busy = (self.cpu_s() - begin_cpu_s) / (time.monotonic() - begin_s)
        self.cpu_us.append(1e6 * busy / per_s)
        return per_s

    def close(self) -> None:
        for peers in self.all:
            peers.close()


@contextlib.contextmanager
def lmdb_on_each_core(context: Context, cpus: Sequence[int]) -> Iterator[PeersOnEachCore | None]:
    peers = PeersOnEachCore(context, cpus) if Peers.built(context) else None
    try:
        yield peers
    finally:
        if peers is not None:
            peers.close()


class Appender(threading.Thread):
    """Appends to a file of its own, syncs, and begins again."""

    def __init__(self, path: str, call_bytes: int, seconds: float) -> None:
        super().__init__(daemon=True)
        self.path, self.call, self.seconds = path, os.urandom(call_bytes), seconds
        self.bytes_per_s = 0.0
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                self.append(file)
            finally:
                os.close(file)
        except OSError as error:
            self.error = error

    def append(self, file: int) -> None:
        written = allocated = 0
        begin_s = now_s = time.monotonic()
        while now_s < begin_s + self.seconds:
            if written + len(self.call) > allocated:
                os.posix_fallocate(file, allocated, max(SEGMENT_BYTES, len(self.call)))
                allocated += max(SEGMENT_BYTES, len(self.call))
            written += os.pwrite(file, self.call, written)
            os.fdatasync(file)
            now_s = time.monotonic()
        self.bytes_per_s = written / (now_s - begin_s)


def plain_bytes_per_s(directory: str, files: int, call_bytes: int, seconds: float) -> float:
    """That a disk takes of as many writers as there are islands, each with calls of this size."""
    os.makedirs(directory, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        appenders = [Appender(os.path.join(folder, str(number)), call_bytes, seconds) for number in range(files)]
        for appender in appenders:
            appender.start()
        for appender in appenders:
            appender.join()
    for error in (appender.error for appender in appenders if appender.error):
        raise error
    return sum(appender.bytes_per_s for appender in appenders)


class OnDisk:
    """Runs of a deployment whose log is on the disk, and after each what the disk takes in calls of that run's size."""

    def __init__(self, context: Context, deployment: Deployment) -> None:
        self.context, self.deployment = context, deployment
        self.costs: list[Cost] = []
        self.plain: list[float] = []  # transactions whose logs the disk would have taken, per second

    def rate(self) -> float:
        cost = cost_of(self.deployment, LOAD)
        self.costs.append(cost)
        taken = plain_bytes_per_s(os.path.dirname(self.deployment.log_directory), self.context.cores,
                                  max(1, round(cost.call_bytes)), max(self.context.seconds, LEAST_S))
        self.plain.append(taken / cost.log_bytes)
        return cost.per_s


def disks(context: Context) -> Section:
    section = Section("Logs: add-10 on islands with one worker, one on each core; the disk's own are appends and "
                      "fdatasync of the same sizes", "deployment, or engine",
                      [("thousand/s", "{:.1f}"), ("CPU-us each", "{:.2f}"), ("log bytes each", "{:,.0f}"),
                       ("syncs/s", "{:,.0f}"), ("KiB a call", "{:,.0f}"), ("disk alone, thousand/s", "{:.1f}")])
    if context.cores < 2:
        section.note("this machine has one core")
    islands = f"{context.cores}ISL"
    disk = os.path.join(context.directory, "logs")
    deployments = {name: context.deployment(f"add-{number}", islands, cores=context.cores, sites=context.cores,
                                            durability=name.split(",")[0], log_parent="" if name == IN_MEMORY else disk)
                   for number, name in enumerate((IN_MEMORY, LAZY, SYNC))}
    cpus = [island["worker_cpus"][0] for island in deployments[IN_MEMORY].status()["islands"]]
    for deployment in deployments.values():
        deployment.down()
    in_memory: list[Cost] = []
    on_disk = {name: OnDisk(context, deployments[name]) for name in (LAZY, SYNC)}

    def measure_in_memory() -> float:
        in_memory.append(cost_of(deployments[IN_MEMORY], LOAD))
        return in_memory[-1].per_s

    measures: dict[str, Measure] = {IN_MEMORY: measure_in_memory}
    with lmdb_on_each_core(context, cpus) as engines:
        if engines is None:
            section.note(PEERS_MISSING)
        else:
            measures[LMDB] = engines.rate
        measures |= {name: of.rate for name, of in on_disk.items()}
        found = context.alternate(measures, "add-10")
    for name, costs in {IN_MEMORY: in_memory, **{name: of.costs for name, of in on_disk.items()}}.items():
        plain = median(on_disk[name].plain) / 1000 if name in on_disk else None
        section.row(name, found[name] / 1000, median([cost.cpu_us for cost in costs]),
                    median([cost.log_bytes for cost in costs]), median([cost.rounds_per_s for cost in costs]),
                    median([cost.call_bytes for cost in costs]) / 1024, plain)
    lmdb_cpu_us = median(engines.cpu_us) if engines is not None else None
    if LMDB in found:
        section.row(LMDB, found[LMDB] / 1000, lmdb_cpu_us, None, None, None, None)
    set_bars(section, context, found, lmdb_cpu_us, in_memory, on_disk)
    log_on, disk_is = file_system(context.log_directory), file_system(context.directory)
    section.note(f"log in memory: {log_on} ({context.log_directory}); log on disk, and pages of all: {disk_is} "
                 f"({context.directory}); LMDB without sync, its pages in /dev/shm")
    section.note(f"{LOAD.mpl} transactions in flight on each worker; answers that wait for the disk, of sync, are none "
                 "of them: the worker goes on")
    return section


def set_bars(section: Section, context: Context, found: dict[str, float], lmdb_cpu_us: float | None,
             in_memory: Sequence[Cost], on_disk: dict[str, OnDisk]) -> None:
    is_memory = file_system(context.log_directory) == MEMORY
    is_disk = file_system(context.directory) != MEMORY
    section.bar(f"{IN_MEMORY} ({MEMORY}) / {LMDB}, without sync", ratio(found[IN_MEMORY], found.get(LMDB))
                if is_memory else None, at_least=LEAST_OF_LMDB)
    section.bar("the same, per CPU-second", ratio(lmdb_cpu_us, median([cost.cpu_us for cost in in_memory]))
                if is_memory else None, at_least=LEAST_OF_LMDB)
    for name, of in on_disk.items():
        bound = min(found[IN_MEMORY], median(of.plain))
        section.bar(f"{name} / the lesser of that in memory and what the disk takes",
                    ratio(found[name], bound) if is_memory and is_disk else None, at_least=LEAST_OF_BOUND)
    section.bar("bytes of log for each transaction", median([cost.log_bytes for cost in in_memory]),
                at_most=MOST_LOG_BYTES, form="{:.0f}")
