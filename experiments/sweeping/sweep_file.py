"""A sweep file: one experiment, or a list of files with experiments. README.md of experiments/ describes the format.

    version: 1
    title: Multisite transactions
    workload: micro            # or the path of an object, ./bank.so; or program: ipc
    deployment: {...}          # keys of a deployment file, or the name of one
    parameters: {rows: 10}     # the same in every run
    axes: {layout: machine, op: [read, update], multisite: [0, 20, 50, 100]}
    measure: {seconds: 2, warmup: 0.5, repeat: 3}
    plots: [{title: Read 10 rows, where: {op: read}, x: multisite, series: layout, y: committed_per_s}]
"""

import os
import re
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from durability import DURABILITIES, EXPECTED
from islands_command import Document, WorkloadDescription, is_object, wrong_value
from sweeping.machine import CUTS, LAYOUT, LAYOUTS
from sweeping.tree import BadFile, Mark, Node, Reader, Scalar

ROWS_TOTAL = "rows_total"  # of the table that the workload names, if it names one
DEPLOYMENT_AXES = ("layout", "cut", "placement", "workers", "cores", "hardware_threads", "transport", "latching",
                   "without", "sites", "durability", ROWS_TOTAL)
MACHINE_AXES = ("layout", "cut", "cores", "workers", "placement", "hardware_threads")  # machine: what it can tell apart
MAX_MPL, MAX_ROWS_TOTAL = 1000, 2**62
MAX_RATE = 1e9
CLIENTS = ("island", "deployment")
RATE_AUTO, MIN_P99_MS, MAX_P99_MS = "auto", 0.001, 60_000
RUN_OPTIONS = ("mpl", "clients", "rate", "p99_ms")  # of every workload; other axes are parameters of it
ADDED_AXES = ("placement", "hardware_threads", "durability", *RUN_OPTIONS)  # of any workload, by an entry of a list
# What a core's time consists of: kinds of work (runtime/work_account.h), and what is left of it.
CORE_PARTS = ("executing", "searching", "locking", "latching", "logging", "building", "reading", "committing",
              "cleaning", "managing", "waiting", "idle")
# What the processor counts, where it does and lets us see it; else no run measures it.
HARDWARE = ("instructions_per_cycle", "instructions_per_transaction", "stalled_frontend_share", "stalled_backend_share",
            "cache_misses_per_transaction", "node_misses_per_transaction")
# What the kernel says of the workers' time: they had a core; waited for one; more than for the logger; and of the
# machine's: another virtual machine had it.
CORES = {"cpu_utilisation": "cpu_fraction", "core_wait_share": "core_wait_fraction", "others_share": "others_fraction",
         "stolen_share": "stolen_fraction"}
# What memory and the links between sockets carry, where there are counters of it.
TRAFFIC = ("memory_bytes_per_transaction", "link_bytes_per_transaction")
TWO_POINTS = "two-point"  # of a plot: a line between the ends of each series, section 4's estimate
BY_PART = "us_by_part"  # of a plot: all of them, on top of each other; they are its series
WORKLOAD_METRICS = ("committed_per_s", "us_per_transaction", "latency_p50_us", "latency_p95_us", "latency_p99_us",
                    "latency_p999_us", "aborted_per_s", "unknown", "messages_per_transaction", "distributed_share",
                    "log_bytes_per_transaction", "imbalance", "slowest_island_per_s", "utilisation",
                    "clients_moved_per_transaction",
                    *CORES, *(f"us_{part}" for part in CORE_PARTS), *HARDWARE, *TRAFFIC)
# Of a plot, as x: the second of a run; its islands are the series. Then come its ys, with their columns of
# timeseries.csv in the run directory.
OVER_TIME, ISLAND = "second", "island"
OVER_TIME_COLUMNS = {"utilisation": "busy_fraction", "cpu_utilisation": "cpu_fraction",
                     "core_wait_share": "core_wait_fraction", "committed_per_s": "committed_per_s"}
PLOT_KEYS = ("title", "where", "x", "along", "series", "y", "y_label", "kind", "estimate")
EXPERIMENT_KEYS = ("version", "title", "reference", "workload", "program", "deployment", "parameters", "axes",
                   "measure", "seed", "plots")
LIST_KEYS = ("version", "title", "sweeps", "measure", "seed")
NAME = re.compile(r"[a-z][a-z0-9_]*$")


class Measure(TypedDict):
    seconds: float
    warmup: float
    repeat: int


Describe = Callable[[str], WorkloadDescription | None]  # of a workload's name or object; None: it is not built
Axes = dict[str, list[Scalar] | str]  # name -> list of values, or the word 'machine'
PlotSpec = dict[str, Any]  # an entry of `plots`, with keys of PLOT_KEYS, as read_plots has checked it
DEFAULT_MEASURE: Measure = {"seconds": 2.0, "warmup": 0.5, "repeat": 3}


class Experiment:
    """One figure's runs as the file says, before a machine is asked."""

    def __init__(self, name: str, file: str) -> None:
        self.name, self.file = name, file
        self.title, self.reference = name, ""
        self.workload: str | None = None
        self.object: str | None = None                       # of the workload, where the file names it by its path
        self.program: str | None = None
        self.deployment: Document = {}
        self.parameters: dict[str, Scalar] = {}
        self.axes: Axes = {}
        self.measure = DEFAULT_MEASURE.copy()
        self.seed = 1
        self.plots: list[PlotSpec] = []
        self.text = ""
        self.positions: tuple[str, Node] | None = None       # file and Node of the base deployment
        self.axis_marks: dict[str, tuple[str, Mark | None]] = {}
        self.kind_mark: Mark | None = None                   # of the workload's or program's name
        self.description: WorkloadDescription | None = None  # of a workload that is built


class SweepFile:
    def __init__(self, name: str, title: str, experiments: list[Experiment]) -> None:
        self.name, self.title, self.experiments = name, title, experiments


def read_measure(reader: Reader, node: Node, measure: Measure) -> Measure:
    child = reader.get(node, "measure", (dict,), "a mapping of seconds, warmup, repeat")
    if child is None:
        return measure.copy()
    reader.only(child, ("seconds", "warmup", "repeat"))
    return {"seconds": reader.number(child, "seconds", 0.1, 86400, measure["seconds"]),
            "warmup": reader.number(child, "warmup", 0, 86400, measure["warmup"]),
            "repeat": reader.whole(child, "repeat", 1, 1000, measure["repeat"])}


def scalars(reader: Reader, node: Node, what: str) -> dict[str, Scalar]:
    """A mapping of words to single values."""
    found: dict[str, Scalar] = {}
    for name, child in node.mapping().items():
        if not NAME.match(name):
            reader.complain(child.key_mark, f"{what} '{name}'", "lower-case letters, digits and '_'")
        if isinstance(child.value, (dict, list, type(None))):
            reader.complain(child.mark, child.kind(), "a single value")
        else:
            found[name] = child.value
    return found


def names_of(description: WorkloadDescription) -> list[str]:
    """What `parameters` may say for a workload."""
    return [*RUN_OPTIONS, *(parameter["name"] for parameter in description["parameters"])]


def check_value(reader: Reader, name: str, child: Node, experiment: Experiment) -> None:
    """Whether the workload, or `islands run`, would take it."""
    limit = {"mpl": MAX_MPL, ROWS_TOTAL: MAX_ROWS_TOTAL}.get(name) if experiment.workload else None
    whole = isinstance(child.value, int) and not isinstance(child.value, bool)
    if limit and not (whole and isinstance(child.value, int) and 1 <= child.value <= limit):
        reader.complain(child.mark, child.kind(), f"a whole number from 1 to {limit:,}")
    if experiment.workload and name == "clients" and child.value not in CLIENTS:
        reader.complain(child.mark, child.kind(), " or ".join(CLIENTS))
    number = isinstance(child.value, (int, float)) and not isinstance(child.value, bool)
    rate = child.value == RATE_AUTO or number and 0 <= float(str(child.value)) <= MAX_RATE
    if experiment.workload and name == "rate" and not rate:
        reader.complain(child.mark, child.kind(), f"transactions per second, at most {MAX_RATE:,.0f}; or {RATE_AUTO}")
    limit_ms = number and MIN_P99_MS <= float(str(child.value)) <= MAX_P99_MS
    if experiment.workload and name == "p99_ms" and not limit_ms:
        reader.complain(child.mark, child.kind(), f"{MIN_P99_MS} to {MAX_P99_MS:,} milliseconds")
    for parameter in experiment.description["parameters"] if experiment.description else []:
        if parameter["name"] == name and wrong_value(parameter, child.value):
            reader.complain(child.mark, child.kind(), parameter["expected"])


def read_parameters(reader: Reader, node: Node, experiment: Experiment) -> dict[str, Scalar]:
    found = scalars(reader, node, "parameter")
    if experiment.description:
        reader.only(node, names_of(experiment.description))
        for name in found:
            check_value(reader, name, node.mapping()[name], experiment)
    return found


def read_axes(reader: Reader, node: Node, experiment: Experiment) -> Axes:
    found: Axes = {}
    for name, child in node.mapping().items():
        experiment.axis_marks[name] = (reader.file, child.key_mark)
        if not NAME.match(name):
            reader.complain(child.key_mark, f"axis '{name}'", "lower-case letters, digits and '_'")
        elif child.value == "machine":
            if name not in MACHINE_AXES:
                reader.complain(child.mark, "'machine'", f"a list of values: only {', '.join(MACHINE_AXES[:-1])} and "
                                f"{MACHINE_AXES[-1]} have values that the machine knows")
            found[name] = "machine"
        elif not isinstance(child.value, list) or not child.value:
            reader.complain(child.mark, child.kind(), "a list of values" +
                            (", or 'machine'" if name in MACHINE_AXES else ""))
        else:
            found[name] = read_axis(reader, name, child, experiment)
    return found


def read_axis(reader: Reader, name: str, node: Node, experiment: Experiment) -> list[Scalar]:
    values: list[Scalar] = []
    for child in node.sequence():
        if isinstance(child.value, (dict, list, type(None))):
            reader.complain(child.mark, child.kind(), "a single value")
        elif child.value in values:
            reader.complain(child.mark, f"'{child.value}' again", "every value once")
        elif name == "cut" and child.value not in CUTS:
            reader.complain(child.mark, child.kind(), "SE, CG or FG")
        elif name == "layout" and child.value != "auto" and not LAYOUT.match(str(child.value)):
            reader.complain(child.mark, child.kind(), f"{LAYOUTS}, or auto")
        elif name == "durability" and experiment.workload and child.value not in DURABILITIES:
            reader.complain(child.mark, child.kind(), EXPECTED)
        else:
            check_value(reader, name, child, experiment)
            values.append(child.value)
    return values


def read_plots(reader: Reader, node: Node, names: Sequence[str], experiment: Experiment) -> list[PlotSpec]:
    """Checked to the last word: who finds out in the morning that a plot cannot be has lost the night."""
    for child in node.sequence():
        if not isinstance(child.value, dict):
            reader.complain(child.mark, child.kind(), "a mapping with x and y")
            continue
        reader.only(child, PLOT_KEYS)
        for word in ("title", "y", "y_label"):
            reader.get(child, word, (str,), "text")
        for word in ("along", "series"):
            axis = child.value.get(word)
            if axis is not None and axis.value not in names:
                reader.complain(axis.mark, axis.kind(), f"an axis: {', '.join(names)}")
        for word, meaning in (("x", "an axis"), ("y", "a measured number")):
            if word not in child.value:
                reader.complain(child.mark, f"no {word}", f"{word}: {meaning}")
        if "x" in child.value:
            read_x(reader, child, names, experiment)
        y = child.value.get("y")
        measured = (*WORKLOAD_METRICS, BY_PART)
        if experiment.workload and y is not None and isinstance(y.value, str) and y.value not in measured:
            reader.complain(y.mark, y.kind(), f"one of {', '.join(measured)}")
        series = child.value.get("series")
        if y is not None and y.value == BY_PART and series is not None:
            reader.complain(series.mark, series.kind(), f"no series with {BY_PART}: the parts are the series")
        kind = child.value.get("kind")
        if kind is not None and kind.value not in ("line", "bar"):
            reader.complain(kind.mark, kind.kind(), "line or bar")
        estimate = child.value.get("estimate")
        if estimate is not None and estimate.value != TWO_POINTS:
            reader.complain(estimate.mark, estimate.kind(), TWO_POINTS)
        where = reader.get(child, "where", (dict,), "a mapping of axes to values")
        if where is not None:
            read_where(reader, where, names, experiment.axes)
    return [dict(child.plain_mapping()) for child in node.sequence() if isinstance(child.value, dict)]


def read_x(reader: Reader, node: Node, names: Sequence[str], experiment: Experiment) -> None:
    """A plot's x is an axis; of a workload's plot also a measured number or the second, with lines in both cases."""
    plot = node.mapping()
    x, along = plot["x"], plot.get("along")
    if x.value in names:
        if along is not None:
            reader.complain(along.key_mark, f"along, with the axis {x.value} as x", "along only where x is measured")
        return
    if not experiment.workload or not isinstance(x.value, str) or x.value not in (*WORKLOAD_METRICS, OVER_TIME):
        others = f"; or {OVER_TIME}; or, measured, one of {', '.join(WORKLOAD_METRICS)}"
        reader.complain(x.mark, x.kind(), f"an axis: {', '.join(names)}{others if experiment.workload else ''}")
        return
    y, series = plot.get("y"), plot.get("series")
    if x.value == OVER_TIME:
        for word in ("along", "series"):
            if word in plot:
                reader.complain(plot[word].key_mark, f"{word}, with {OVER_TIME} as x",
                                f"no {word}: the islands are the series")
        if y is not None and isinstance(y.value, str) and y.value not in OVER_TIME_COLUMNS:
            reader.complain(y.mark, y.kind(), f"with {OVER_TIME} as x, one of {', '.join(OVER_TIME_COLUMNS)}")
    elif along is None:
        reader.complain(x.mark, f"{x.value}, which is measured, and no along",
                        f"along: the axis whose values make the points of a line, of {', '.join(names)}")
    elif series is not None and series.value == along.value:
        reader.complain(series.mark, series.kind(), "another axis than along")
    if y is not None and y.value == BY_PART:
        reader.complain(y.mark, y.kind(), f"with {BY_PART}, an axis as x")
    for word in ("kind", "estimate"):
        child = plot.get(word)
        if child is not None and child.value in ("bar", TWO_POINTS):
            reader.complain(child.mark, child.kind(), f"an axis as x; {x.value} makes lines")


def along_of(plot: PlotSpec) -> str:
    """What tells the points of a series apart: the axis that is x, or that a measured x goes along."""
    return str(plot.get("along") or plot["x"])


def read_where(reader: Reader, node: Node, names: Sequence[str], axes: Axes) -> None:
    reader.only(node, names)
    for name, child in node.mapping().items():
        values = axes.get(name)
        if isinstance(child.value, (dict, list, type(None))):
            reader.complain(child.mark, child.kind(), "a single value")
        elif isinstance(values, list) and values and child.value not in values:
            reader.complain(child.mark, child.kind(), f"a value of the axis: {', '.join(map(str, values))}")


def read_deployment(reader: Reader, node: Node, experiment: Experiment) -> None:
    """The base deployment: a mapping here, or a file of its own."""
    child = reader.get(node, "deployment", (dict, str), "a mapping, or the name of a deployment file")
    if child is None:
        return
    experiment.positions = (reader.file, child)
    if isinstance(child.value, str):
        path = os.path.join(os.path.dirname(experiment.file), child.value)
        experiment.positions = (path, Reader(path).tree())
    experiment.deployment = experiment.positions[1].plain_mapping()


def take_workload(experiment: Experiment, folder: str, given: str) -> None:
    """A name, or the path of an object, relative to the file that says it; its workload is called as it."""
    experiment.workload = given
    if is_object(given):
        experiment.object = os.path.abspath(os.path.join(folder, given))
        experiment.workload = os.path.splitext(os.path.basename(given))[0]


def read_experiment(file: str, describe: Describe) -> Experiment:
    reader = Reader(file)
    node = reader.tree()
    experiment = Experiment(os.path.splitext(os.path.basename(file))[0], file)
    experiment.text = reader.text
    if "sweeps" in node.mapping():
        reader.complain(node.mapping()["sweeps"].key_mark, "a list of sweeps", "one experiment: lists do not nest")
        reader.finish()
    reader.only(node, EXPERIMENT_KEYS)
    read_version(reader, node)
    for name in ("title", "reference", "workload", "program"):
        child = reader.get(node, name, (str,), "text")
        if child is not None:
            setattr(experiment, name, child.value)
            if name in ("workload", "program"):
                experiment.kind_mark = child.mark
    if (experiment.workload is None) == (experiment.program is None):
        reader.complain(node.mark, "workload and program together" if experiment.program else "neither workload nor "
                        "program", "one of them")
    if experiment.workload and not experiment.program:
        take_workload(experiment, os.path.dirname(file), experiment.workload)
        experiment.description = describe(experiment.object or experiment.workload)
    if experiment.program and "deployment" in node.mapping():
        reader.complain(node.mapping()["deployment"].key_mark, "a deployment", "none: a program runs without islands")
    if not NAME.match(experiment.name):
        reader.complain(node.mark, f"file name '{experiment.name}'", "lower-case letters, digits and '_'")
    read_deployment(reader, node, experiment)
    parameters = reader.get(node, "parameters", (dict,), "a mapping")
    if parameters is not None:
        experiment.parameters = read_parameters(reader, parameters, experiment)
    axes = reader.get(node, "axes", (dict,), "a mapping of axes to lists of values")
    if axes is not None:
        if experiment.description:
            settings = DEPLOYMENT_AXES if experiment.description["rows_total_of"] else DEPLOYMENT_AXES[:-1]
            reader.only(axes, [*settings, *names_of(experiment.description)])
        experiment.axes = read_axes(reader, axes, experiment)
    experiment.measure = read_measure(reader, node, experiment.measure)
    experiment.seed = reader.whole(node, "seed", 0, 2**32, 1)
    plots = reader.get(node, "plots", (list,), "a list of plots")
    if plots is not None:
        experiment.plots = read_plots(reader, plots, list(axes.mapping()) if axes is not None else [], experiment)
    reader.finish()
    return experiment


def read_version(reader: Reader, node: Node) -> None:
    version = node.mapping().get("version")
    if version is None:
        reader.complain(node.mark, "no version", "version: 1")
    elif version.value != 1:
        reader.complain(version.mark, version.kind(), "version: 1")


def change(reader: Reader, node: Node, experiment: Experiment) -> None:
    """What an entry of a list of sweeps has of its own."""
    reader.only(node, ("file", "axes", "parameters", "measure"))
    axes = reader.get(node, "axes", (dict,), "a mapping of axes to lists of values")
    if axes is not None:
        for name, child in axes.mapping().items():
            if name not in experiment.axes and not (name in ADDED_AXES and experiment.workload):
                reader.complain(child.key_mark, f"axis '{name}'",
                                f"one of {os.path.basename(experiment.file)}: {', '.join(experiment.axes)}"
                                + (f"; or {' or '.join(ADDED_AXES)}" if experiment.workload else ""))
        experiment.axes.update(read_axes(reader, axes, experiment))
    parameters = reader.get(node, "parameters", (dict,), "a mapping")
    if parameters is not None:
        experiment.parameters.update(read_parameters(reader, parameters, experiment))
    experiment.measure = read_measure(reader, node, experiment.measure)


def read_list(reader: Reader, node: Node, describe: Describe) -> list[Experiment]:
    reader.only(node, LIST_KEYS)
    read_version(reader, node)
    experiments: list[Experiment] = []
    sweeps = node.mapping()["sweeps"]
    for child in sweeps.sequence() if isinstance(sweeps.value, list) else []:
        entry = child.value.get("file") if isinstance(child.value, dict) else child
        if entry is None or not isinstance(entry.value, str):
            reader.complain(child.mark, child.kind(),
                            "the name of a sweep file, or {file: NAME, axes: ..., measure: ...}")
            continue
        path = os.path.join(os.path.dirname(reader.file), entry.value)
        if not os.path.isfile(path):
            reader.complain(entry.mark, f"'{entry.value}', which is not there", "a sweep file beside this one")
            continue
        try:
            experiment = read_experiment(path, describe)
        except BadFile as bad:
            reader.complaints.append(str(bad))
            continue
        if any(experiment.name == other.name for other in experiments):
            reader.complain(entry.mark, f"'{entry.value}' again", "every experiment once")
        experiment.measure = read_measure(reader, node, experiment.measure)
        experiment.seed = reader.whole(node, "seed", 0, 2**32, experiment.seed)
        if isinstance(child.value, dict):
            change(reader, child, experiment)
        experiments.append(experiment)
    if not experiments and not reader.complaints:
        reader.complain(sweeps.mark, "no sweeps", "a list of sweep files")
    return experiments


def read(file: str, describe: Describe) -> SweepFile:
    """A SweepFile; BadFile says everything that is wrong with it."""
    reader = Reader(file)
    node = reader.tree()
    name = os.path.splitext(os.path.basename(file))[0]
    title = reader.get(node, "title", (str,), "text")
    experiments = (read_list(reader, node, describe) if "sweeps" in node.mapping() else
                   [read_experiment(file, describe)])
    reader.finish()
    return SweepFile(name, str(title.value) if title else name, experiments)
