"""What a log is for, and what keeps it short: how fast islands that were killed repeat theirs, and what writing changed
pages home and moving checkpoints on costs while transactions run.

Both need islands whose checkpoints stay where they are. Nobody can ask for such: an island writes pages home all the
time. But when its disk fails it stops doing so, says so, and goes on, and its log grows. So that is what happens to
them: a library in front of the C library (deploy/e2e/disk_faults.cc) lets the first page that each writes home fail.
There is no io_uring under that library, which costs next to nothing once only the log is written, in large pieces.
"""

import contextlib
import os
import re
import signal
import socket
import struct
import time
import urllib.request
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from benchmarks.context import Context, Deployment
from benchmarks.logs import MEMORY, Cost, Load, cost_now, cpu_s
from benchmarks.section import Section, median, ratio
from durability import file_system
from islands_command import Failed, processes_of

NEEDS = "build/release/tests/disk_faults.so is not built: ninja -C build/release disk_faults"
PLAN = struct.Struct("<4IQ3Q464s")  # of disk_faults.cc: armed, role, fault, struck, nth, calls, what was struck
ISLAND, EIO = 2, 2                  # a role and a fault
GONE_S = 30
PASS_EVERY_S = 5.0  # a pass of the cleaner begins at the latest: worker.cc
STRUCK_S = 6 * PASS_EVERY_S  # an island has come to a pass by then, on a busy machine too
CLEANED_S = 2 * PASS_EVERY_S  # of a measurement beside the cleaner, so that its rests count for what they are
LEAST_REPLAY, MOST_COST = 1.0, 0.05
LINE = re.compile(r"(?P<name>\w+)(?:\{.*\})? (?P<value>\S+)")


def free_ports(count: int) -> int:
    """The first of so many that follow each other."""
    for _ in range(100):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, OverflowError):
            first = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for port in range(first + 1, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return int(first)
    raise Failed("found no free ports for metrics")


def totals(text: str) -> dict[str, float]:
    """Of a page of metrics: the sum over all labels, by name."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if match := LINE.fullmatch(line):
            found[match["name"]] = found.get(match["name"], 0) + float(match["value"])
    return found


class Faults:
    """What goes wrong on the disk of processes that are started with `environment`."""

    @staticmethod
    def library_of(context: Context) -> str:
        return os.path.normpath(os.path.join(context.binaries, "..", "tests", "disk_faults.so"))

    @staticmethod
    def built(context: Context) -> bool:
        return os.access(Faults.library_of(context), os.R_OK)

    def __init__(self, context: Context) -> None:
        self.library = self.library_of(context)
        self.path = os.path.join(context.directory, "faults")
        self.write(bytes(PLAN.size), 0)

    def write(self, content: bytes, offset: int) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(file, content, offset)
        finally:
            os.close(file)

    def environment(self, deployment: Deployment) -> dict[str, str]:
        under = os.path.join(os.path.dirname(deployment.file), "data")
        return {"LD_PRELOAD": self.library, "ISLANDS_FAULTS": self.path, "ISLANDS_FAULTS_UNDER": under}

    def arm(self) -> None:
        """The next call with which an island changes its disk fails."""
        self.disarm()
        plan = PLAN.pack(1, ISLAND, EIO, 0, 1, 0, 0, 0, b"")
        self.write(plan[4:], 4)
        self.write(plan[:4], 0)

    def disarm(self) -> None:
        self.write(bytes(4), 0)


class Recovered(NamedTuple):
    """By an island, when it started."""
    records: float
    seconds: float
    cpu_s: float  # of its process, from its beginning on


class Kept:
    """A deployment of one-worker islands with metrics, begun anew for each measurement."""

    def __init__(self, context: Context, name: str) -> None:
        self.context, self.faults = context, Faults(context)
        self.port = free_ports(context.cores)
        self.deployment = context.deployment(name, f"{context.cores}ISL", cores=context.cores, sites=context.cores,
                                             durability="lazy", metrics_port=self.port)

    def metrics(self) -> list[dict[str, float]]:
        """By island."""
        found = []
        for island in range(self.context.cores):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port + island}/metrics", timeout=10) as answer:
                found.append(totals(answer.read().decode()))
        return found

    def start(self) -> tuple[list[Recovered], float]:
        """What each island has recovered, and the seconds that `up` took. They do little more before this asks."""
        begin_s = time.monotonic()
        self.context.islands.call("up", self.deployment.file)
        up_s = time.monotonic() - begin_s
        spent = [cpu_s(island["pid"]) for island in self.deployment.status()["islands"]]
        return [Recovered(island["islands_recovery_records"], island["islands_recovery_seconds"], seconds)
                for island, seconds in zip(self.metrics(), spent)], up_s

    def begin(self, environment: Mapping[str, str] | None = None) -> None:
        """With the initial rows, loaded and on disk."""
        self.deployment.down()
        self.deployment.destroy()
        self.deployment.up(environment)

    def stop_cleaners(self) -> None:
        """Of islands that were started with the faults' environment."""
        until_s = time.monotonic() + self.context.cores * STRUCK_S  # a plan strikes one island
        while time.monotonic() < until_s:
            if all(island["islands_cleaner_failed"] for island in self.metrics()):
                self.faults.disarm()
                return
            self.faults.arm()
            self.deployment.run("add", seconds=0.2)
        raise Failed(f"{self.deployment.name}: islands write pages home though their disk fails")

    def kill(self) -> None:
        """All of its processes, the supervisor first: it would start the others again."""
        folder = os.path.dirname(self.deployment.file)
        supervisor = self.deployment.status()["supervisor_pid"]
        for pid in (supervisor, *(pid for pid in processes_of(folder) if pid != supervisor)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until_s = time.monotonic() + GONE_S
        while processes_of(folder):
            if time.monotonic() >= until_s:
                raise Failed(f"{self.deployment.name}: killed processes are still there")
            time.sleep(0.01)


class Replay(NamedTuple):
    """Of one run, and of the start after it: of one core, but for the last three."""
    run_per_s: float  # transactions
    per_s: float
    run_cpu_us: float  # for each transaction; the logger, which is busy during the run only, is not in it
    cpu_us: float
    records: float
    seconds: float  # of the slowest island
    up_s: float


def replay_of(before: Sequence[Recovered], after: Sequence[Recovered], run: Cost, up_s: float) -> Replay:
    """What a start takes that has nothing to repeat is taken off. A record is a transaction here: local ones that run
    through, on islands with one worker, have no other."""
    redo = [Recovered(*(new - old for new, old in zip(now, then))) for then, now in zip(before, after)]
    records = sum(island.records for island in redo)
    rates = [island.records / max(island.seconds, 1e-3) for island in redo]
    return Replay(run.per_s / len(redo), sum(rates) / len(rates), run.cpu_us * (1 - run.logger),
                  1e6 * sum(island.cpu_s for island in redo) / max(records, 1), records,
                  max(island.seconds for island in redo), up_s)


def measure_replay(kept: Kept) -> Replay:
    deployment, context = kept.deployment, kept.context
    kept.begin()
    deployment.down()
    before, _ = kept.start()
    deployment.down()
    deployment.up(kept.faults.environment(deployment))
    kept.stop_cleaners()
    run = cost_now(deployment, Load("add"))
    kept.kill()
    after, up_s = kept.start()
    found = replay_of(before, after, run, up_s)
    if found.records < run.committed:
        context.wrong.append(f"{deployment.name}: {run.committed} transactions committed, {found.records:.0f} records "
                             "repeated")
    return found


def replay(context: Context) -> Section:
    section = Section("Replay: add-10 on one-worker islands that are killed and repeat all of their logs; of each core",
                      "", [("thousand/s", "{:.1f}"), ("CPU-us each", "{:.2f}"), ("records", "{:,.0f}"),
                           ("redo, s", "{:.2f}"), ("`up`, s", "{:.2f}")])
    if not Faults.built(context):
        section.note(NEEDS)
        return section
    kept = Kept(context, "replay")
    found: list[Replay] = []

    def measure() -> float:
        found.append(measure_replay(kept))
        return found[-1].per_s / found[-1].run_per_s

    reached = context.alternate({"replay / run": measure})["replay / run"]
    kept.deployment.down()
    columns: list[float] = [median(values) for values in zip(*found)]
    middle = Replay(*columns)
    section.row("run", middle.run_per_s / 1000, middle.run_cpu_us, None, None, None)
    section.row("replay", middle.per_s / 1000, middle.cpu_us, middle.records, middle.seconds, middle.up_s)
    section.bar("replay / run, transactions in a second of a core", reached, at_least=LEAST_REPLAY)
    section.bar("the same, by CPU-seconds of the islands",
                median([ratio(one.run_cpu_us, one.cpu_us) or 0 for one in found]), at_least=LEAST_REPLAY)
    section.note("redo: what an island's recovery took, without that of one that has nothing to repeat; the logger has "
                 f"written what was in the rings before. Log on {file_system(context.log_directory)}, pages on "
                 f"{file_system(context.directory)}")
    return section


def cleaner(context: Context) -> Section:
    section = Section("Cleaner: add-10 on one-worker islands that write changed pages home, or do not", "cleaner",
                      [("thousand/s", "{:.1f}"), ("CPU-us each", "{:.2f}"), ("logger's share", "{:.0%}"),
                       ("pages/s", "{:,.0f}"), ("checkpoints", "{:.0f}"), ("syncs/s of the log", "{:,.0f}")])
    if not Faults.built(context):
        section.note(NEEDS)
        return section
    kept = Kept(context, "cleaner")
    costs: dict[str, list[Cost]] = {"on": [], "off": []}
    work: dict[str, list[tuple[float, float]]] = {"on": [], "off": []}
    load = Load("add", seconds=PASS_EVERY_S + 1 if context.quick else CLEANED_S)

    def measure(label: str) -> float:
        if label == "off":
            kept.begin(kept.faults.environment(kept.deployment))
            kept.stop_cleaners()
        else:
            kept.begin()
            kept.deployment.run("add", seconds=0.2)
        begin, begin_s = kept.metrics(), time.monotonic()
        costs[label].append(cost_now(kept.deployment, load))
        end, seconds = kept.metrics(), time.monotonic() - begin_s

        def grown(name: str) -> float:
            return sum(now[name] - then[name] for then, now in zip(begin, end))
        work[label].append((grown("islands_cleaner_pages_written_total") / seconds,
                            grown("islands_checkpoints_total")))
        return 1e6 / costs[label][-1].cpu_us

    found = context.alternate({label: partial(measure, label) for label in costs}, "cleaner")
    rates = {label: median([cost.per_s for cost in of]) for label, of in costs.items()}
    for label, of in costs.items():
        section.row(label, rates[label] / 1000, 1e6 / found[label], median([cost.logger for cost in of]),
                    *(median(values) for values in zip(*work[label])), median([cost.rounds_per_s for cost in of]))
    is_memory = file_system(context.log_directory) == MEMORY
    reached = ratio(found["on"], found["off"])
    section.bar(f"what the cleaner costs, per CPU-second, log on {MEMORY}",
                1 - reached if reached and is_memory else None, at_most=MOST_COST, form="{:.3f}")
    section.note("off: the first page written home failed, on purpose. Pages and checkpoints are of the whole run, "
                 f"sums over all rows included. Log on {file_system(context.log_directory)}, pages on "
                 f"{file_system(context.directory)}")
    kept.deployment.down()
    return section
