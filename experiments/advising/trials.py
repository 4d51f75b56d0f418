"""The runs behind an advice: each is made once, and kept with all others of the same build, machine, load and length.

A directory of theirs is a sweep's results like any other (sweeping/results.py), which `islands report` reads. Two
things are different: the name of a run says what was run, so that whoever asks for it again finds it, whatever else was
asked for; and the directory's own name says by which build, on which machine and how, so that other runs go beside it.
So nothing that was measured is ever removed here.
"""

import argparse
import hashlib
import itertools
import json
import os
import signal
import tempfile
from collections.abc import Iterable, Sequence

import yaml

from islands_command import (Document, Failed, Islands, complain, handle_signals, interrupt, remove_everything,
                             stop_everything)
from sweeping import plan as plans_of
from sweeping import results as result_files
from sweeping.cluster import check_all, document
from sweeping.machine import Machine
from sweeping.plan import Plan, Point, Run
from sweeping.results import MEMORY_SIZE, Entry, disturbed, note_on_disturbance
from sweeping.runner import Runner
from sweeping.sweep_file import Experiment, Measure, SweepFile, take_workload
from sweeping.tree import Reader, Scalar


def experiment_of(arguments: argparse.Namespace, measure: Measure) -> Experiment:
    reader = Reader(arguments.file)
    tree = reader.tree()
    experiment = Experiment("advice", arguments.file)
    experiment.title = f"advise: {arguments.workload}"
    take_workload(experiment, "", arguments.workload)
    experiment.description = arguments.description
    experiment.deployment = tree.plain_mapping()
    experiment.positions = (arguments.file, tree)
    experiment.parameters = dict(arguments.parameters, mpl=arguments.mpl, clients=arguments.clients)
    experiment.measure = measure
    if arguments.modelled:
        experiment.plots = [{"title": f"{arguments.workload}, as advised on", "x": "multisite", "series": "layout",
                             "y": "committed_per_s"}]
    experiment.seed = arguments.seed
    return experiment


def digest(of: object) -> str:
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:12]


class Laboratory:
    """Where runs are asked for. Not thread-safe; nobody else writes to its directory meanwhile."""

    def __init__(self, islands: Islands, machine: Machine, experiment: Experiment, parent: str, identity: Document,
                 command: str, again: bool, kind: str = "") -> None:
        """`kind`: of runs that are not to be among those of other kinds, since axes differ."""
        self.islands, self.machine, self.experiment = islands, machine, experiment
        self.parent, self.identity, self.command, self.again = parent, identity, command, again
        self.made = 0
        self.metrics_made: list[dict[str, float | None]] = []
        self.checked: set[str] = set()
        # All that makes runs of the same point different, but for the layout that the file names.
        fixed = [MEMORY_SIZE.sub("", str(identity[name])) for name in result_files.IDENTITY]
        deployment = {key: value for key, value in experiment.deployment.items() if key not in ("layout", "name")}
        name = digest([fixed, experiment.object or experiment.workload, deployment, experiment.parameters,
                       experiment.measure["seconds"], experiment.measure["warmup"], experiment.seed])
        self.directory = os.path.join(parent, f"{experiment.workload}{kind and '-' + kind}-{name}")
        self.results = result_files.Results(self.directory, [Plan(experiment, {}, [], [], [], [])])
        kept = self.results.entries[experiment.name]
        # Of those kept, that others disturbed: made again, beside them, if that is asked for.
        found = {id for id, entry in kept.items() if entry["ok"] and disturbed(entry["metrics"])}
        self.disturbed = found if again else set()
        if kept:
            but = f" but {len(self.disturbed)} that others disturbed" if self.disturbed else ""
            complain(f"using the runs in {self.directory}{but}")

    def name(self, point: Point, repetition: int) -> str:
        """Of a run: the first that was not disturbed, or a new one."""
        first = name = f"{digest(point)}-{repetition}"
        attempts = itertools.count(2)
        while name in self.disturbed:
            name = f"{first}-{next(attempts)}"
        return name

    def of_kind(self, kind: str) -> "Laboratory":
        return Laboratory(self.islands, self.machine, self.experiment, self.parent, self.identity, self.command,
                          self.again, kind)

    def plan(self, points: Iterable[Point], repetitions: Iterable[int]) -> Plan:
        rounds = [[Run(self.name(point, repetition), point, repetition) for point in points]
                  for repetition in repetitions]
        runs, blocks = plans_of.arranged(self.experiment, self.machine, rounds)
        known = [entry["axes"] for entry in self.results.entries[self.experiment.name].values()]
        axes: dict[str, list[Scalar]] = {}
        for point in [*known, *(run.point for run in runs)]:
            for name, value in point.items():
                values = axes.setdefault(name, [])
                if value not in values:
                    values.append(value)
        return Plan(self.experiment, axes, [], [*{digest(run.point): run.point for run in runs}.values()], runs, blocks)

    def measure(self, points: Sequence[Point], repetitions: Iterable[int], may_fail: bool = False) -> None:
        """Makes those runs that are not there. Failed if any goes wrong, since an advice from half of its runs is none;
        but for those that may: ask held()."""
        plan = self.plan(points, repetitions)
        self.results.plans = [plan]
        left = [run for _, runs in self.results.left(plan) for run in runs]
        if not left:
            return
        self.check(plan)
        sweep = SweepFile(self.experiment.name, self.experiment.title, [self.experiment])
        if self.results.document:
            self.results.describe(sweep)
        else:
            self.results.begin(sweep, self.identity, self.command)
        work = tempfile.mkdtemp(prefix="islands-advise-")
        try:
            Runner(self.islands, self.machine, self.results, work).run_all()
        finally:
            handle_signals(signal.SIG_IGN)
            stop_everything(self.islands, work)
            remove_everything(self.islands, work)
            self.results.finish(0)
        handle_signals(interrupt)
        self.made += len(left)
        self.metrics_made += [entry["metrics"] for run in left
                              if (entry := self.entry(run.point, run.repetition))["ok"]]
        failed = [entry for run in left if not (entry := self.entry(run.point, run.repetition))["ok"]]
        if failed and not may_fail:
            raise Failed(f"{len(failed)} runs failed; {failed[0]['error']}")

    def check(self, plan: Plan) -> None:
        """BadFile where a layout cannot be; each once."""
        new = [block for block in plan.blocks if digest(block.settings) not in self.checked]
        with tempfile.TemporaryDirectory(prefix="islands-advise-") as folder:
            check_all(self.islands, [Plan(self.experiment, plan.axes, [], plan.points, plan.runs, new)], self.machine,
                      folder)
        self.checked.update(digest(block.settings) for block in new)

    def entry(self, point: Point, repetition: int) -> Entry:
        return self.results.entries[self.experiment.name][self.name(point, repetition)]

    def held(self, point: Point, repetition: int) -> bool:
        """Whether its checks held, and it did something."""
        entry = self.entry(point, repetition)
        return entry["ok"] and bool(entry["metrics"]["committed_per_s"])

    def rate(self, point: Point, repetition: int) -> float:
        """Committed transactions per second, more than 0: what is compared are ratios."""
        entry = self.entry(point, repetition)
        if not entry["ok"]:
            raise Failed(f"a run failed; {entry['error']}")
        rate = entry["metrics"]["committed_per_s"]
        if not rate:
            raise Failed(f"nothing was committed in a run on {point['layout']}; give --seconds more")
        return rate

    def others_on_cores(self) -> str:
        """What is to be said of the runs that this command has made; "" if they had the machine for themselves."""
        return note_on_disturbance(self.metrics_made)

    def summary(self, point: Point, repetition: int) -> Document:
        """All that the run said."""
        run = self.name(point, repetition)
        found = result_files.read_json(self.results.path(self.experiment.name, "runs", run, "summary.json"))
        return found or {}

    def resolved(self, point: Point) -> Document:
        """What `islands plan` says of the deployment."""
        block = self.plan([point], [0]).blocks[0]
        with tempfile.TemporaryDirectory(prefix="islands-advise-") as folder:
            file = os.path.join(folder, "islands.yaml")
            with open(file, "w", encoding="utf-8") as out:
                yaml.safe_dump(document(block, self.machine, "advise"), out, sort_keys=False)
            found: Document = self.islands.call("plan", file)
        return found

