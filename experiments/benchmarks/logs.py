"""What keeping what was acknowledged costs: the microbenchmark's updates with every durability.

Beside throughput stands what processors were busy with: on a machine whose cores all have a worker the logger takes its
time from them, elsewhere it has a core of its own.
"""

import contextlib
import glob
import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from benchmarks.context import MIB, Context, Deployment, Measure
from benchmarks.section import Section, median, ratio
from durability import NONE, file_system, word_of
from islands_command import Failed, RunReport

T = TypeVar("T")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
LEAST_S = 0.5          # of a window, of which ticks are a percent
MARGIN_S = 0.5         # that a run goes on when the window ends, unless it was noticed late that it had begun
ATTEMPTS = 3           # at a run that is noticed in time: on a busy machine commands take long
RING_TAIL_OFFSET = 64  # in the file of a ring: instance/log/ring.h
EPOCH_MAGIC = b"ISLEPOCH"  # of each of the two blocks of EPOCH: FORMATS.md
LOCAL, SHARED, MULTISITE = "2ISL, local", "1ISL, two workers", "2ISL, 100 % multisite"
KEPT = (NONE, "lazy", "sync")
FORCED = (word_of("lazy", "forced"), word_of("sync", "forced"))  # where there are votes
BARS = {LOCAL: 0.85, SHARED: 0.8, MULTISITE: 0.85}  # of `lazy` to `none`, per CPU-second, with the log in memory
MEMORY = "tmpfs"
TOUCHED_BYTES = 1 << 30  # more than the islands log until their costs have been read
QUICK_BYTES = 1 << 20    # whose figures are for nobody


class Spent(NamedTuple):
    """By a deployment since its processes began."""
    at_s: float
    cpu_s: float
    logger_s: float  # of that
    log_bytes: int
    rounds: int  # of the logger: it syncs what it has of every island, then EPOCH


class Cost(NamedTuple):
    """Of a run."""
    committed: int
    per_s: float
    cpu_us: float     # of each transaction, of islands and logger together
    logger: float     # its share of that
    log_bytes: float  # of each transaction, in the rings
    rounds_per_s: float
    call_bytes: float  # that the logger writes and syncs at once of an island; 0 without a log


def cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        words = file.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / TICKS_PER_S  # in user mode and in the kernel


def rounds_in(epoch: bytes) -> int:
    """How many blocks have been written to EPOCH, one in every round."""
    blocks = (epoch[:len(epoch) // 2], epoch[len(epoch) // 2:])
    numbers = [struct.unpack_from("<Q", block, 8)[0] for block in blocks if block[:8] == EPOCH_MAGIC]
    if not numbers:
        raise Failed("EPOCH of a log has no block")
    return max(numbers)


class Meter:
    """Reads what the processes of a deployment have spent since they began."""

    def __init__(self, deployment: Deployment) -> None:
        status = deployment.status()
        self.islands = [island["pid"] for island in status["islands"]]
        self.loggers: list[int] = []
        self.rings: list[str] = []
        self.epoch = os.path.join(deployment.log_directory, "EPOCH")
        if status.get("log"):
            self.loggers.append(status["log"]["logger_pid"])
            places = (f"/dev/shm/islands-{status['cluster_id'][:16]}", os.path.join(deployment.log_directory, "rings"))
            self.rings = [ring for place in places for ring in glob.glob(os.path.join(glob.escape(place), "*.ring"))]

    def read(self) -> Spent:
        log_bytes = 0
        for ring in self.rings:
            with open(ring, "rb") as file:
                log_bytes += struct.unpack("<Q", os.pread(file.fileno(), 8, RING_TAIL_OFFSET))[0]
        rounds = 0
        if self.loggers:
            with open(self.epoch, "rb") as file:
                rounds = rounds_in(file.read())
        logger_s = sum(map(cpu_s, self.loggers))
        return Spent(time.monotonic(), sum(map(cpu_s, self.islands)) + logger_s, logger_s, log_bytes, rounds)


class Window(threading.Thread, Generic[T]):
    """Reads a meter twice while a run goes on: once it is warm, and before it ends. The sums over all rows before and
    after a run are none of its costs."""

    def __init__(self, deployment: Deployment, read: Callable[[], T], warmup: float, seconds: float) -> None:
        super().__init__(daemon=True)
        self.deployment, self.read, self.warmup, self.seconds = deployment, read, warmup, seconds
        self.over = threading.Event()
        self.found: tuple[T, T] | None = None

    def run(self) -> None:
        with contextlib.suppress(Failed, OSError):  # the run itself says what is wrong
            while not all(island["running"] for island in self.deployment.status()["islands"]):
                if self.over.wait(0.02):
                    return
            if self.over.wait(self.warmup):
                return
            begin = self.read()
            if not self.over.wait(self.seconds):
                self.found = begin, self.read()


class Load(NamedTuple):
    """What a measurement asks of a deployment."""
    op: str = "update"
    multisite: float = 0
    mpl: int = 4
    seconds: float = 0  # at least


def watched_run(deployment: Deployment, load: Load) -> tuple[RunReport, tuple[Spent, Spent] | None]:
    context = deployment.context
    seconds = max(context.seconds, LEAST_S, load.seconds)
    window = Window(deployment, Meter(deployment).read, context.warmup, seconds)
    window.start()
    try:
        report = deployment.run(load.op, load.multisite, load.mpl, seconds=seconds + MARGIN_S, warmup=context.warmup)
    finally:
        window.over.set()
        window.join()
    return report, window.found


def touch_memory(directory: str, size: int) -> None:
    """What a log on tmpfs is about to write to is memory that the machine has. The host of a virtual machine takes back
    what is free and gives it anew at the first touch, a page at a time: seen to cost the logger ten times what its
    writes do. A log that has run for a while writes its segments over; those that are measured here have just begun."""
    if file_system(directory) != MEMORY:
        return
    filesystem = os.statvfs(directory)
    block = bytes(MIB)
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(min(size, filesystem.f_bavail * filesystem.f_frsize // 2) // MIB):
            file.write(block)


def cost_now(deployment: Deployment, load: Load) -> Cost:
    """Of a deployment that is up."""
    for _ in range(ATTEMPTS):
        touch_memory(deployment.context.log_directory, QUICK_BYTES if deployment.context.quick else TOUCHED_BYTES)
        report, found = watched_run(deployment, load)
        if found:
            break
    else:
        raise Failed(f"{deployment.name}: {ATTEMPTS} runs were over before their costs were read; the machine is busy")
    begin, end = found
    seconds = end.at_s - begin.at_s
    committed = report["committed_per_s"] * seconds
    spent_s, log_bytes, rounds = end.cpu_s - begin.cpu_s, end.log_bytes - begin.log_bytes, end.rounds - begin.rounds
    return Cost(report["committed"], report["committed_per_s"], 1e6 * spent_s / committed,
                (end.logger_s - begin.logger_s) / spent_s, log_bytes / committed, rounds / seconds,
                log_bytes / max(1, rounds) / report["islands"])


def cost_of(deployment: Deployment, load: Load) -> Cost:
    """Up for this only: what keeps something has pages to write and a log to look after when nothing runs, too."""
    deployment.up()
    cost = cost_now(deployment, load)
    deployment.down()
    return cost


def shapes(context: Context) -> Iterator[tuple[str, str, Deployment, float]]:
    """(shape, durability, deployment, multisite percentage) of everything that is measured."""
    kept: Sequence[str] = KEPT[:2] if context.quick else KEPT
    forced: Sequence[str] = () if context.quick else FORCED
    for shape, layout, multisite in ((LOCAL, "2ISL", 0), (SHARED, "1ISL", 0), (MULTISITE, "2ISL", 100)):
        for durability in (*kept, *(forced if shape == MULTISITE else ())):
            name = f"{layout.lower()}-{durability.replace('+', '-')}"
            yield shape, durability, context.deployment(name, layout, cores=context.cores, sites=2,
                                                        durability=durability), multisite


def durability(context: Context) -> Section:
    section = Section("Durability: update-10, one worker per core; CPU time is that of islands and logger together",
                      "deployment, durability",
                      [("thousand/s", "{:.1f}"), ("x none", "{:.2f}"), ("CPU-us each", "{:.2f}"),
                       ("per CPU-s, x none", "{:.2f}"), ("logger's share", "{:.0%}"), ("log bytes each", "{:,.0f}")])
    if context.cores < 2:
        section.note("this machine has one core; two workers share it, and the bars mean nothing")
    measured = {(shape, kept): (deployment, multisite) for shape, kept, deployment, multisite in shapes(context)}
    for deployment in {deployment.name: deployment for deployment, _ in measured.values()}.values():
        deployment.down()
    costs: dict[tuple[str, str], list[Cost]] = {label: [] for label in measured}

    def measure(label: tuple[str, str]) -> Measure:
        def per_cpu_s() -> float:
            deployment, multisite = measured[label]
            costs[label].append(cost_of(deployment, Load(multisite=multisite)))
            return 1e6 / costs[label][-1].cpu_us
        return per_cpu_s

    found = context.alternate({label: measure(label) for label in measured}, "update-10")
    rates = {label: median([cost.per_s for cost in of]) for label, of in costs.items()}
    for shape, kept in measured:
        section.row(f"{shape}, {kept}", rates[shape, kept] / 1000, ratio(rates[shape, kept], rates[shape, NONE]),
                    1e6 / found[shape, kept], ratio(found[shape, kept], found[shape, NONE]),
                    *(None if kept == NONE else median(values) for values in (
                        [cost.logger for cost in costs[shape, kept]], [cost.log_bytes for cost in costs[shape, kept]])))
    log_on = file_system(context.log_directory)
    for shape, at_least in BARS.items():
        section.bar(f"{shape}, per CPU-second: lazy / none, log on {MEMORY}",
                    ratio(found[shape, "lazy"], found[shape, NONE]) if log_on == MEMORY else None, at_least=at_least)
    section.note(f"logs on {log_on} ({context.log_directory}), pages on {file_system(context.directory)} "
                 f"({context.directory})")
    return section
