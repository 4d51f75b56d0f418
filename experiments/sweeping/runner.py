"""Carries out what is left of a sweep, block by block.

What a run reports becomes one line of results.jsonl. A run that fails is recorded as failed, and the sweep goes on: of
a night's work the rest is still there in the morning.
"""

import functools
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

from islands_command import Failed, Islands, RunReport, StatusLine, complain, without_notes
from sweeping import results as result_files
from sweeping.cluster import Cluster, program_words, run_alone
from sweeping.machine import Machine
from sweeping.observing import Observer
from sweeping.plan import Block, Plan, Point, Run
from sweeping.results import Entry, Results
from sweeping.sweep_file import CORES, HARDWARE, RATE_AUTO, TRAFFIC, WORKLOAD_METRICS, Experiment

RUN_OVERHEAD_S = 0.1    # of a run beside warm-up and measuring, and of a block; the pace so far corrects them
BLOCK_OVERHEAD_S = 1.0
SEARCH_S = 25.0         # for the rate, with rate: auto
BAR = 24
GIVE_UP_AFTER = 3       # clusters of one experiment that do not come up, one after the other

Work = tuple[Plan, Block, list[Run]]  # what is left of a block


class Progress(StatusLine):
    """A bar, what is being done, and how long it still takes."""

    def __init__(self, work: list[float]) -> None:
        super().__init__()
        self.total = len(work)
        self.left_s = sum(seconds for seconds in work)
        self.planned_s = self.left_s
        self.begin = time.monotonic()
        self.done = 0

    def show(self, text: str) -> None:
        filled = BAR * self.done // max(1, self.total)
        bar = "#" * filled + "." * (BAR - filled)
        left = round(self.eta())
        clock = f"{left // 3600}:{left // 60 % 60:02}" if left >= 3600 else f"{left // 60}"
        clock += f":{left % 60:02}"
        line = f"[{bar}] {self.done}/{self.total}, about {clock} left: {text}"
        if sys.stderr.isatty():  # a longer line than the terminal's is not overwritten by the next
            line = line[:(os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1]
        self.print(line)

    def eta(self) -> float:
        """What is planned, at the pace so far."""
        spent, passed = self.planned_s - self.left_s, time.monotonic() - self.begin
        pace = passed / spent if spent > 5 else 1.0
        return self.left_s * min(max(pace, 0.5), 4.0)

    def step(self, seconds: float, runs: int = 0) -> None:
        self.left_s = max(0.0, self.left_s - seconds)
        self.done += runs


def run_seconds(experiment: Experiment, point: Point) -> float:
    told = experiment.parameters | point
    search = SEARCH_S if experiment.workload and told.get("rate") == RATE_AUTO else 0
    return experiment.measure["seconds"] + experiment.measure["warmup"] + RUN_OVERHEAD_S + search


def estimate(work: Iterable[Work]) -> Iterator[float]:
    """Seconds of each run left, its share of starting and stopping clusters included."""
    for plan, block, runs in work:
        start = BLOCK_OVERHEAD_S if plan.experiment.workload else 0
        for number, run in enumerate(runs):
            yield run_seconds(plan.experiment, run.point) + (start if number == 0 else 0)


def in_words(experiment: Experiment, point: Point) -> str:
    return f"{experiment.name} " + " ".join(f"{name} {value}" for name, value in point.items())


def metrics_of(report: RunReport) -> dict[str, float | None]:
    """The numbers of a run that plots and tables are made of."""
    workers = sum(island["workers"] for island in report["per_island"])
    rates = [island["committed_per_s"] for island in report["per_island"]]
    rate, committed = report["committed_per_s"], report["committed"]
    measured_s = report["measured_s"] or 1
    return {"committed_per_s": rate,
            "us_per_transaction": workers * 1e6 / rate if rate else None,
            **{f"latency_{name}_us": report["latency_us"][name] for name in ("p50", "p95", "p99", "p999")},
            "aborted_per_s": report["aborted"] / measured_s,
            "unknown": report["unknown"],
            "messages_per_transaction": report["messages_per_transaction"],
            "log_bytes_per_transaction": report["log_bytes_per_transaction"],
            "distributed_share": report["per_scope"]["distributed"]["committed"] / committed if committed else 0.0,
            "clients_moved_per_transaction": report["clients_moved_per_transaction"],
            **{f"us_{part}": us for part, us in report["profile"]["core_us_per_transaction"].items()
               if f"us_{part}" in WORKLOAD_METRICS},
            **{name: report["profile"]["hardware"].get(name) for name in HARDWARE},
            **{name: report["traffic"].get(name) for name in TRAFFIC},
            **{name: report[key] for name, key in CORES.items()},  # type: ignore[literal-required]
            "imbalance": (max(rates) - min(rates)) * len(rates) / sum(rates) if sum(rates) else 0.0,
            "slowest_island_per_s": min(rates),
            "utilisation": sum(island["workers"] * island["busy_fraction"]
                               for island in report["per_island"]) / workers}


class Runner:
    def __init__(self, islands: Islands, machine: Machine, results: Results, work_folder: str,
                 observer: Observer | None = None) -> None:
        """`observer`: a Prometheus that shall find the clusters."""
        self.islands, self.machine, self.results, self.work_folder = islands, machine, results, work_folder
        self.observer = observer
        self.work = [(plan, block, runs) for plan in results.plans for block, runs in results.left(plan)]
        self.progress = Progress(list(estimate(self.work)))
        self.said: set[str] = set()  # errors, without notes: once each, the end counts them
        self.dead: dict[str, int] = {}  # experiment -> clusters in a row that did not come up

    def run_all(self) -> None:
        try:
            for number, (plan, block, runs) in enumerate(self.work):
                if plan.experiment.workload:
                    self.run_block(number, plan, block, runs)
                else:
                    for run in runs:
                        self.record(plan, run, functools.partial(self.alone, plan, run))
        finally:
            self.progress.clear()

    def run_block(self, number: int, plan: Plan, block: Block, runs: list[Run]) -> None:
        name = plan.experiment.name
        settings = " ".join(f"{key} {value}" for key, value in block.settings.items())
        folder = os.path.join(self.work_folder, f"{name}-{number}")
        try:
            if self.dead.get(name, 0) >= GIVE_UP_AFTER:
                raise Failed(f"not tried: {GIVE_UP_AFTER} clusters before did not come up")
            self.progress.show(f"{name}: starting {settings}")
            cluster = Cluster(self.islands, block, self.machine, folder, self.observer)
            cluster.up()
        except Failed as failure:
            self.dead[name] = self.dead.get(name, 0) + 1
            self.progress.step(BLOCK_OVERHEAD_S)
            for run in runs:
                self.record(plan, run, functools.partial(self.refuse, failure))
            return
        self.dead[name] = 0
        self.progress.step(BLOCK_OVERHEAD_S)
        for run in runs:
            self.record(plan, run, functools.partial(self.measure, plan, cluster, run))
        try:
            cluster.down()
        except Failed as failure:  # it is tried again, with force, at the end
            complain(failure)
            return
        shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def refuse(failure: Failed) -> NoReturn:
        raise failure

    def record(self, plan: Plan, run: Run, measure: Callable[[], Entry]) -> None:
        experiment = plan.experiment
        self.progress.show(in_words(experiment, run.point))
        entry: Entry = {"id": run.id, "repetition": run.repetition, "axes": run.point, "ok": False, "error": None,
                        "metrics": {}, "islands": 0, "workers": 0, "sum_check": None, "run_directory": None,
                        "started": result_files.now(), "build": self.results.document["build"]}
        try:
            entry.update(measure())
        except Failed as failure:
            # Without the cluster's folder: what fails the same way on all of them is one error.
            entry["error"] = re.sub(re.escape(self.work_folder) + r"/[^/\s]+/", "", str(failure))
        what = without_notes(entry["error"] or "")
        if not entry["ok"] and what not in self.said:
            self.said.add(what)
            self.progress.clear()
            complain(f"{in_words(experiment, run.point)}: {entry['error']}")
        self.results.add(plan, entry)
        self.progress.step(run_seconds(experiment, run.point), 1)

    def measure(self, plan: Plan, cluster: Cluster, run: Run) -> Entry:
        name = plan.experiment.name
        folder = self.results.path(name, "runs", run.id)
        shutil.rmtree(folder, ignore_errors=True)  # of an attempt before
        scratch = os.path.join(self.work_folder, "run")
        report = cluster.run(run, scratch)
        shutil.move(report["run_directory"], folder)
        wrong = None
        if report["sum_check"] != "ok":
            wrong = f"sum check {report['sum_check']}: {report['sum_check_detail']}"
        elif not report.get("rate_search", {"found": True})["found"]:
            wrong = "no rate held for as long as the run was to take: no knee"
        return {"ok": wrong is None, "error": wrong, "metrics": metrics_of(report), "islands": report["islands"],
                "workers": sum(island["workers"] for island in report["per_island"]), "layout": report["layout"],
                "durability": report["durability"], "votes": report["votes"], "log_on": cluster.log_on,
                "sum_check": report["sum_check"], "run_directory": os.path.join("runs", run.id),
                "command": cluster.command(run, "deployment.yaml")}

    def alone(self, plan: Plan, run: Run) -> Entry:
        report = run_alone(self.islands, plan.experiment, run)
        command = shlex.join(program_words(plan.experiment, run))
        if "skipped" in report:
            return {"ok": True, "skipped": report["skipped"], "command": command}
        return {"ok": True, "metrics": report["metrics"], "placement": report.get("placement"), "command": command}
