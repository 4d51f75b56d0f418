"""Reads a sweep's result directory: its machine, its figures, and for each point the median and spread of its runs.

A sweep may have been interrupted, runs may have failed, and a line may be torn: whatever is there is used, and what is
not is said in notes. Only a directory without a readable sweep.json is refused.
"""

import copy
import csv
import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from durability import NONE
from islands_command import Document
from reporting import round_trips
from sweeping.results import note_on_disturbance

# Smaller differences are none, whatever the spread; one run says nothing of its spread.
SAME = 0.02
SAME_SINGLE_RUN = 0.05
LATE_S = 0.25  # of the end of a second in timeseries.csv

Value = str | int | float | None
Where = Mapping[str, Value]  # axis -> value
Run = Document               # a line of results.jsonl; nothing of it is sure to be there, but for `axes`


class NotResults(Exception):
    """The directory holds no sweep's results; the text says so to the user."""


def as_number(value: object) -> float | None:
    """A finite float for numbers and texts that are numbers, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def same_value(value: object) -> str | float:
    """What two spellings of one axis value have in common: 20, 20.0 and "20" are one."""
    found = as_number(value)
    return str(value) if found is None else found


def islands_of(layout: object) -> int | None:
    """24 for "24ISL"; None for anything else."""
    text = str(layout)
    return int(text[:-3]) if text.endswith("ISL") and text[:-3].isdigit() else None


class Stat:
    """What the repetitions of one point measured. `noise`: the typical range of a point of its figure, relative."""

    def __init__(self, values: Iterable[float], noise: float = 0.0) -> None:
        self.values, self.noise = sorted(values), noise
        self.median = statistics.median(self.values)
        self.low, self.high, self.runs = self.values[0], self.values[-1], len(self.values)

    def variation(self) -> float | None:
        """Standard deviation as a share of the mean; None where one run says nothing."""
        mean = statistics.fmean(self.values)
        return statistics.stdev(self.values) / mean if self.runs > 1 and mean else None


class Spread(Protocol):
    """What compare() needs to know of measurements."""
    median: float
    low: float
    high: float
    runs: int
    noise: float


def compare(a: Spread, b: Spread) -> str:
    """">" if a is greater than b beyond the spread, "<" if it is less, "~" if that cannot be told.

    Beyond the spread: the ranges from least to greatest run do not overlap, and the medians differ by more than the
    typical range of the figure's points, which few and luckily close runs do not show, and by more than SAME
    (SAME_SINGLE_RUN if either has one run only).
    """
    if a.low <= b.high and b.low <= a.high and not (a.runs == 1 and b.runs == 1):
        return "~"
    margin = max(SAME_SINGLE_RUN if 1 in (a.runs, b.runs) else SAME, a.noise, b.noise)
    if abs(a.median - b.median) <= margin * max(abs(a.median), abs(b.median)):
        return "~"
    return ">" if a.median > b.median else "<"


class Point:
    """One combination of axis values, and the runs that measured it."""

    def __init__(self, axes: Where) -> None:
        self.axes = axes
        self.runs: list[Run] = []
        self.failed: list[Run] = []
        self.skipped: list[Run] = []

    def key(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((name, str(same_value(value))) for name, value in self.axes.items()))

    def has(self, where: Where) -> bool:
        return all(name in self.axes and same_value(self.axes[name]) == same_value(value)
                   for name, value in where.items())

    def stat(self, metric: str, noise: float = 0.0) -> Stat | None:
        """None if no run that held measured it."""
        values = [value for run in self.runs if (value := measured(run, metric)) is not None]
        return Stat(values, noise) if values else None

    def islands(self) -> int | None:
        return next((run["islands"] for run in self.runs if as_number(run.get("islands"))), None)

    def workers_per_island(self) -> float | None:
        workers = next((run["workers"] for run in self.runs if as_number(run.get("workers"))), None)
        return workers / self.islands() if workers and self.islands() else None


def measured(run: Run, metric: str) -> float | None:
    """A run's metric; costs and messages of a transaction follow from others if the sweep left them out."""
    metrics = run.get("metrics") or {}
    found = as_number(metrics.get(metric))
    if found is None and metric == "us_per_transaction":
        rate, workers = as_number(metrics.get("committed_per_s")), as_number(run.get("workers"))
        found = workers * 1e6 / rate if rate and workers else None
    if found is None and metric == "messages_per_distributed":
        messages, share = (as_number(metrics.get(name)) for name in ("messages_per_transaction", "distributed_share"))
        found = messages / share if messages and share else None
    if found is None and metric == "links_of_memory":
        links, memory = (as_number(metrics.get(f"{name}_bytes_per_transaction")) for name in ("link", "memory"))
        found = links / memory if links is not None and memory else None
    if found is None and metric == "busy_us_per_transaction":
        cost, busy = measured(run, "us_per_transaction"), as_number(metrics.get("utilisation"))
        found = cost * busy if cost is not None and busy is not None else None
    return found


class Figure:
    """A figure's plan and its points."""

    def __init__(self, name: str, folder: str, plan: Document, lines: list[Run], notes: list[str]) -> None:
        self.name, self.folder, self.plan, self.notes = name, folder, plan, notes
        self.title = str(plan.get("title") or name)
        self.reference = str(plan.get("reference") or "")
        self.points = points_of(lines)
        self.axes = axes_of(plan, self.points)
        self.runs = sum(len(point.runs) for point in self.points)
        self.skipped = sum(len(point.skipped) for point in self.points)
        self.notes += sorted({str(run["skipped"]) for point in self.points for run in point.skipped})
        others = note_on_disturbance([run.get("metrics") or {} for point in self.points for run in point.runs])
        self.notes += [others] if others else []
        self.noises: dict[str, float] = {}
        self.failures = [(point, run) for point in self.points for run in point.failed]
        self.builds = self.said("build")
        self.logs_on = self.said("log_on")

    def said(self, key: str) -> list[str]:
        """All that runs say there."""
        return sorted({str(run[key]) for point in self.points for run in point.runs if run.get(key)})

    def durabilities(self) -> list[str]:
        """What its clusters have kept of what they acknowledged: `lazy`, `sync+forced`; nothing if it has none."""
        if "durability" in self.axes:
            return [str(value) for value in self.axes["durability"]]
        # Sweeps that knew no other could only be of `none`.
        return [str(self.plan.get("durability") or NONE)] if self.plan.get("workload") else []

    def under(self, durability: str) -> "Figure":
        """The part of it that was measured with one of its durabilities; one with a single one is that part."""
        if "durability" not in self.axes:
            return self
        part = copy.copy(self)
        part.points = [point for point in self.points if point.axes.get("durability") == durability]
        part.axes = {name: values for name, values in self.axes.items() if name != "durability"}
        part.noises = {}
        return part

    def select(self, where: Where) -> list[Point]:
        return [point for point in self.points if point.has(where)]

    def stat(self, point: Point, metric: str) -> Stat | None:
        return point.stat(metric, self.noise(metric))

    def over_time(self, point: Point, column: str) -> dict[int, dict[int, Stat]]:
        """island -> second of the run -> what the point's runs have there; empty where no directory has it."""
        values: dict[int, dict[int, list[float]]] = {}
        for run in point.runs:
            rows = read_timeseries(os.path.join(self.folder, str(run.get("run_directory"))), column)
            for (island, second), value in rows.items():
                values.setdefault(island, {}).setdefault(second, []).append(value)
        return {island: {second: Stat(found) for second, found in sorted(seconds.items())}
                for island, seconds in sorted(values.items())}

    def noise(self, metric: str) -> float:
        """The median of (greatest - least run) / median over all points with several runs."""
        if metric not in self.noises:
            stats = [stat for point in self.points if (stat := point.stat(metric))]
            ranges = [(stat.high - stat.low) / stat.median for stat in stats if stat.runs > 1 and stat.median > 0]
            self.noises[metric] = statistics.median(ranges) if ranges else 0.0
        return self.noises[metric]

    def metrics(self) -> list[str]:
        """Names of all metrics, those of the first runs first."""
        return list(dict.fromkeys(name for point in self.points for run in point.runs
                                  for name, value in (run.get("metrics") or {}).items()
                                  if as_number(value) is not None))

    def planned(self) -> int | None:
        """How many runs were to be made, where the plan says it."""
        runs = as_number(self.plan.get("runs"))
        return None if runs is None else int(runs)


def points_of(lines: list[Run]) -> list[Point]:
    """Points in the order of their first run. A repetition that was run again counts once, as it went last."""
    latest: dict[tuple[tuple[tuple[str, str], ...], str], tuple[Point, Run]] = {}
    for line in lines:
        point = Point(line["axes"])
        latest[point.key(), str(line.get("repetition", len(latest)))] = (point, line)
    points: dict[tuple[tuple[str, str], ...], Point] = {}
    for (key, _), (point, line) in latest.items():
        kept = points.setdefault(key, point)
        (kept.skipped if "skipped" in line else kept.runs if line.get("ok") else kept.failed).append(line)
    return list(points.values())


def axes_of(plan: Document, points: list[Point]) -> dict[str, list[Value]]:
    """name -> values in the plan's order, with those that only the results have at the end."""
    axes: dict[str, list[Value]] = {}
    for axis in plan.get("axes") or []:
        axes[str(axis.get("name"))] = list(axis.get("values") or [])
    for point in points:
        for name, value in point.axes.items():
            values = axes.setdefault(name, [])
            if same_value(value) not in map(same_value, values):
                values.append(value)
    return {name: ordered(values) for name, values in axes.items()}


def ordered(values: list[Value]) -> list[Value]:
    """Numbers and layouts rise; other values stay as the plan has them."""
    for key in (as_number, islands_of):
        ranks = [rank for value in values if (rank := key(value)) is not None]
        if len(ranks) == len(values):
            return [value for _, value in sorted(zip(ranks, values), key=lambda pair: pair[0])]
    return values


class Sweep:
    """A result directory."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.about = read_object(os.path.join(directory, "sweep.json"))
        self.name = str(self.about.get("name") or os.path.basename(os.path.abspath(directory)))
        self.title = str(self.about.get("title") or self.name)
        self.notes = [str(note) for note in self.about.get("notes") or []]
        machine = self.about.get("machine") or {}
        cores = machine.get("cores") or []
        self.sockets = max(1, len({core.get("package") for core in cores}))
        self.cores = len(cores) or None
        self.machine_summary = str(machine.get("summary") or "unknown machine")
        self.figures: list[Figure] = []
        for name in self.about.get("figures") or []:
            self.read_figure(str(name))
        self.round_trips: round_trips.RoundTrips | None = None
        try:
            self.round_trips = round_trips.read(directory)
        except ValueError as error:
            self.notes.append(f"The round trips between cores are not shown: {error}")
        if self.about.get("complete") is False:
            self.notes.append("The sweep is incomplete; run its command again to go on where it stopped.")

    def read_figure(self, name: str) -> None:
        folder = os.path.join(self.directory, name)
        if os.path.basename(name) != name or name in ("", ".", ".."):
            self.notes.append(f"sweep.json names a figure {name!r}, which is no folder's name.")
            return
        try:
            plan = read_object(os.path.join(folder, "plan.json"))
        except NotResults as missing:
            self.notes.append(f"{name} has not been started, or its plan cannot be read: {missing}")
            return
        lines, notes = read_lines(os.path.join(folder, "results.jsonl"))
        self.figures.append(Figure(name, folder, plan, lines, [str(note) for note in plan.get("notes") or []] + notes))

    def figure(self, name: str) -> Figure | None:
        return next((figure for figure in self.figures if figure.name == name), None)

    def under(self, durability: str) -> "Sweep":
        """The figures, or parts of them, that were measured with it, and those that have none."""
        part = copy.copy(self)
        part.figures = [figure.under(durability) for figure in self.figures
                        if durability in figure.durabilities() or not figure.durabilities()]
        return part

    def all_notes(self) -> Iterator[str]:
        """What a reader must know before believing a number."""
        for note in self.notes:
            yield note
        builds = sorted({build for figure in self.figures for build in figure.builds})
        if len(builds) > 1:
            yield f"The programs changed during the sweep: runs of {len(builds)} builds ({', '.join(builds)})."
        for figure in self.figures:
            for note in figure.notes:
                yield f"{figure.name}: {note}"
            missing = (figure.planned() or 0) - figure.runs - figure.skipped - len(figure.failures)
            if missing > 0:
                yield f"{figure.name}: {missing} of {figure.planned()} runs have not been made."
            if figure.failures:
                count = len(figure.failures)
                yield f"{figure.name}: {count} run{'s' if count > 1 else ''} failed and count{'s'[count > 1:]} nowhere."


def read_object(path: str) -> Document:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        raise NotResults(f"there is no {path}") from None
    except (OSError, ValueError) as error:
        raise NotResults(f"cannot read {path}: {error}") from None
    if not isinstance(found, dict):
        raise NotResults(f"cannot read {path}: it holds no JSON object")
    return found


def read_lines(path: str) -> tuple[list[Run], list[str]]:
    """The runs of a results.jsonl, and notes. An interrupted sweep may have left half a line."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            texts = file.read().splitlines()
    except FileNotFoundError:
        return [], ["No run has finished."]
    except OSError as error:
        return [], [f"cannot read {path}: {error}"]
    lines, torn = [], 0
    for text in filter(str.strip, texts):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if isinstance(line, dict) and isinstance(line.get("axes"), dict):
            lines.append(line)
        else:
            torn += 1
    return lines, [f"Skipped {torn} unreadable line{'s'[:torn > 1]} of {os.path.basename(path)}."] if torn else []


def read_timeseries(run_directory: str, column: str) -> dict[tuple[int, int], float]:
    """(island, second) -> value, of `islands run`'s timeseries.csv; nothing if there is none. A second is known by its
    end, which a busy machine may notice a little late."""
    found: dict[tuple[int, int], float] = {}
    try:
        with open(os.path.join(run_directory, "timeseries.csv"), encoding="utf-8", errors="replace") as file:
            for row in csv.DictReader(file):
                end, island, value = (as_number(row.get(name)) for name in ("elapsed_s", "island", column))
                if end is not None and island is not None and value is not None and row.get("reached") == "1":
                    found.setdefault((int(island), max(1, math.ceil(end - LATE_S))), value)
    except (OSError, csv.Error):
        pass
    return found


def newest(folder: str) -> str:
    """The result directory below `folder` that was written last."""
    found = []
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        file = os.path.join(folder, name, "sweep.json")
        if os.path.isfile(file):
            found.append((os.path.getmtime(file), os.path.join(folder, name)))
    if not found:
        raise NotResults(f"no result directory in {folder}; run `islands sweep FILE` first, or name a directory")
    return max(found)[1]


def load(directory: str) -> Sweep:
    """The sweep in `directory`, or NotResults with a line for the user."""
    if not os.path.isdir(directory):
        raise NotResults(f"{directory}: no such directory")
    if not os.path.exists(os.path.join(directory, "sweep.json")):
        parent = os.path.dirname(os.path.abspath(directory))
        if os.path.exists(os.path.join(directory, "plan.json")) and os.path.exists(os.path.join(parent, "sweep.json")):
            raise NotResults(f"{directory} holds one figure; name the directory above it")
        raise NotResults(f"{directory} is no result directory of `islands sweep`: it has no sweep.json")
    return Sweep(directory)
