"""Data ten times the buffer pool, on a disk: read-10 and update-10 of one worker, beside what the disk takes of a
program that only moves pages, beside other engines with as little memory, and what paging costs when nothing is paged.

Islands with all their processes, and each engine, have a control group of their own, all with the same limit to memory.
An engine has as many threads as the worker has transactions in flight, and stands still (SIGSTOP) while others are
measured. All threads of everything that is measured are bound to one CPU.
"""

import contextlib
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from benchmarks.context import MIB, ROWS, Context, Measure, pin
from benchmarks.logs import ATTEMPTS, MARGIN_S, MEMORY, Window
from benchmarks.memory_group import MemoryGroup, NoGroups
from benchmarks.peers import BarePages, Peers
from benchmarks.restarts import free_ports, totals
from benchmarks.section import Section, median, ratio
from benchmarks.throughput import ENGINES, PEERS_MISSING, RATIO
from durability import file_system
from islands_command import Failed

TIMES = 10           # the pool
ROWS_PER_PAGE = 15   # of 250 bytes
PAGE_BYTES = 4096
MPL = 64
DEPTH = 128          # reads that an island's worker has under way at most: runtime/file_system_uring.cc
LOG_BYTES = 45       # of a changed page, as islands log it: islands_log_bytes_total by rows
OTHER_MIB = 64       # for what islands have beside their pool: code, rings, buffers; and the same for the engines
OPS = ("read", "update")
ON_DISK = ("lmdb", "rocksdb", "wiredtiger")
PAGED, RESIDENT = "paged, all data in the pool", "resident"
MOST_OF_LOOP, LEAST_OF_LOOP, LEAST_OF_RESIDENT = 1.3, 0.7, 0.9
NO_LOOP = "bare_pages is not built: ninja -C build/release bare_pages"


class Size(NamedTuple):
    pool_mib: int
    warmup: float  # until the pool is full of pages that the operation leaves there
    seconds: float
    rounds: int

    @property
    def rows(self) -> int:
        return TIMES * self.pool_mib * MIB // PAGE_BYTES * ROWS_PER_PAGE

    @property
    def limit_mib(self) -> int:
        """Of all memory of islands' processes, and of an engine's."""
        return self.pool_mib + OTHER_MIB

    @property
    def cache_mib(self) -> int:
        """Of an engine that has one. With more, of so little memory, the kernel ends WiredTiger and RocksDB, who have
        up to three times as much in use; what they leave is the kernel's cache of their files."""
        return self.limit_mib // 4


def size_for(context: Context) -> Size:
    if context.quick:
        return Size(4, context.warmup, max(context.seconds, 0.3), context.repeat)
    return Size(64, max(context.warmup, 3), max(context.seconds, 5), min(context.repeat, 3))


class Paged(NamedTuple):
    at_s: float
    pages: float  # read from the disk since the island began


class OnDisk:
    """An island that pages, and how many pages its transactions read."""

    def __init__(self, context: Context, size: Size, group: MemoryGroup | None) -> None:
        self.context, self.size, self.port = context, size, free_ports(1)
        self.deployment = context.deployment(
            "larger", "1ISL", cores=1, sites=1, rows_total=size.rows, durability="lazy",
            log_parent=os.path.join(context.directory, "logs"), metrics_port=self.port, pool_mib=size.pool_mib,
            mode="paged", prefix=group.prefix if group else ())
        self.pages_per_s: dict[str, list[float]] = {op: [] for op in OPS}

    def paged(self) -> Paged:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            return Paged(time.monotonic(), totals(answer.read().decode())["islands_pages_read_total"])

    def pin(self) -> int:
        """Islands' processes to the worker's CPU, which it returns."""
        status = self.deployment.status()
        cpu = self.deployment.first_worker()[1]
        for pid in (status["log"]["logger_pid"], *(island["pid"] for island in status["islands"])):
            pin(pid, cpu)
        return cpu

    def rate(self, op: str) -> float:
        for _ in range(ATTEMPTS):
            window = Window(self.deployment, self.paged, self.size.warmup, self.size.seconds)
            window.start()
            try:
                report = self.deployment.run(op, mpl=MPL, seconds=self.size.seconds + MARGIN_S, warmup=self.size.warmup)
            finally:
                window.over.set()
                window.join()
            if window.found:
                begin, end = window.found
                self.pages_per_s[op].append((end.pages - begin.pages) / (end.at_s - begin.at_s))
                return report["committed_per_s"]
        raise Failed(f"{ATTEMPTS} runs were over before their pages were counted; the machine is busy")


class Engine:
    """One of the others, in a group of its own; it stands still unless it is asked."""

    def __init__(self, context: Context, name: str, size: Size, cpu: int, group: MemoryGroup) -> None:
        self.name, self.group = name, group
        context.progress.show(f"loading {size.rows:,} rows into {ENGINES[name]}")
        self.peers = Peers(context, size.rows, [name], ["--threads", str(MPL), "--cache-mib", str(size.cache_mib),
                                                        "--directory", context.directory, "--cpu", str(cpu)],
                           group.prefix, size.seconds, size.warmup)
        self.peers.process.send_signal(signal.SIGSTOP)

    def rate(self, op: str) -> float:
        """0 once the kernel has ended it."""
        self.peers.process.send_signal(signal.SIGCONT)
        try:
            return self.peers.rate(self.name, op)()
        except Failed:
            if not self.group.kills():
                raise
            return 0
        finally:
            self.peers.process.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        self.peers.process.send_signal(signal.SIGCONT)
        self.peers.close()


def bare_loop(context: Context, size: Size, cpu: int) -> BarePages:
    context.progress.show("writing a file of pages")
    pages = size.rows // ROWS_PER_PAGE
    loop = BarePages(context, ["--directory", context.directory, "--pages", str(pages), "--depth", str(DEPTH),
                               "--pool-pages", str(size.pool_mib * MIB // PAGE_BYTES), "--log-bytes", str(LOG_BYTES)],
                     size.seconds, size.warmup)
    pin(loop.process.pid, cpu)
    return loop


@contextlib.contextmanager
def engines_on_disk(context: Context, section: Section, size: Size, cpu: int) -> Iterator[dict[str, Engine]]:
    groups, engines = {}, {}
    with contextlib.ExitStack() as stack:
        for name in ON_DISK:
            groups[name] = MemoryGroup(name, size.limit_mib * MIB)
            stack.callback(groups[name].remove)
            try:
                engines[name] = Engine(context, name, size, cpu, groups[name])
                stack.callback(engines[name].close)
            except Failed:
                if not groups[name].kills():
                    raise
        yield engines
        for name, group in groups.items():
            if group.kills():
                section.note(f"{ENGINES[name]} wanted more memory than its limit, and the kernel ended it")


def larger(context: Context) -> Section:
    size = size_for(context)
    section = Section(
        f"Larger than memory: {ROWS} random rows of {size.rows:,} x 250 bytes on disk, {TIMES} times the pool of "
        f"{size.pool_mib} MiB; {MPL} transactions in flight, lazy", "engine",
        [column for op in OPS for column in ((f"{op}-10, thousand/s", "{:.2f}"), ("islands x", RATIO),
                                             ("thousand pages/s", "{:.1f}"))])
    beside_the_disk(context, section, size)
    all_in_the_pool(context, section, size)
    section.note(f"data and logs on {file_system(context.directory)} ({context.directory}); islands: pages read; the "
                 "bare loop: pages read, or read, logged, and home again twice and synced, as transactions that read "
                 "as many as islands' do")
    return section


def beside_the_disk(context: Context, section: Section, size: Size) -> None:
    group = None
    try:
        group = MemoryGroup("islands", size.limit_mib * MIB)
    except NoGroups as reason:
        section.note(f"no limit to memory, so no other engines: {reason}")
    if not Peers.built(context):
        section.note(PEERS_MISSING)
    with contextlib.ExitStack() as stack:
        island = OnDisk(context, size, group)
        cpu = island.pin()
        measures: dict[tuple[str, str], Measure] = {("islands", op): partial(island.rate, op) for op in OPS}
        if BarePages.built(context):
            loop = bare_loop(context, size, cpu)
            stack.callback(loop.close)
            measures.update({("bare", op): loop.rate("pages", op) for op in OPS})
        else:
            section.note(NO_LOOP)
        engines: dict[str, Engine] = {}
        if group and Peers.built(context):
            engines = stack.enter_context(engines_on_disk(context, section, size, cpu))
        for name, engine in engines.items():
            measures.update({(name, op): partial(engine.rate, op) for op in OPS})
        found = context.alternate(measures, rounds=size.rounds)
        for name, engine in engines.items():
            about = engine.peers.engines[name]
            section.note(f"{about['version']}: {about['keeps']}; {about['isolation']}; {MPL} threads")
    island.deployment.down()
    if group:
        section.note(f"memory of islands' processes together, and of each engine: {size.limit_mib} MiB; of that the "
                     f"pool takes {size.pool_mib}, the caches of RocksDB and WiredTiger {size.cache_mib}")
        group.remove()
    say(section, island, found)


def say(section: Section, island: OnDisk, found: dict[tuple[str, str], float]) -> None:
    pages = {op: median(island.pages_per_s[op]) for op in OPS}
    rows: dict[str, list[float | None]] = {name: [] for name in ("islands", "bare", *ON_DISK)}
    for op in OPS:
        of_islands = found["islands", op]
        loop = found.get(("bare", op))
        bare = loop / (pages[op] / of_islands) if loop else None
        rows["islands"] += [of_islands / 1000, None, pages[op] / 1000]
        rows["bare"] += [bare / 1000 if bare else None, ratio(of_islands, bare), loop / 1000 if loop else None]
        for name in ON_DISK:
            rate = found.get((name, op)) or None
            rows[name] += [rate / 1000 if rate else None, ratio(of_islands, rate), None]
    names = {"islands": "islands, one worker", "bare": "the bare loop", **ENGINES}
    for name, cells in rows.items():
        section.row(names[name], *cells)
    on_disk = file_system(island.context.directory) != MEMORY
    loops = [found.get(("bare", op)) if on_disk else None for op in OPS]
    section.bar("read-10: pages of the bare loop / of islands", ratio(loops[0], pages["read"]), at_most=MOST_OF_LOOP)
    section.bar("update-10, lazy: pages of islands / of the bare loop",
                ratio(pages["update"], loops[1]) if loops[1] else None, at_least=LEAST_OF_LOOP)
    for name in ON_DISK:
        for op in OPS:
            section.bar(f"{op}-10: islands / {ENGINES[name]}",
                        ratio(found["islands", op], found.get((name, op))) if on_disk else None, at_least=1)


def all_in_the_pool(context: Context, section: Section, size: Size) -> None:
    logs = os.path.join(context.directory, "logs")
    deployments = {name: context.deployment(f"pool-{mode}", "1ISL", cores=1, sites=1, durability="lazy",
                                            log_parent=logs, mode=mode)
                   for name, mode in ((PAGED, "paged"), (RESIDENT, "resident"))}
    found = context.alternate({(name, op): deployment.rate(op) for op in OPS
                               for name, deployment in deployments.items()})
    for name, deployment in deployments.items():
        section.row(f"{name}, {context.rows_total:,} rows",
                    *(cell for op in OPS for cell in (found[name, op] / 1000, None, None)))
        deployment.down()
    for op in OPS:
        section.bar(f"{op}-10, all data in the pool: paged / resident", ratio(found[PAGED, op], found[RESIDENT, op]),
                    at_least=LEAST_OF_RESIDENT)
