"""A sweep's results in short: medians and spreads over the repetitions, as text and as JSON."""

import statistics
from collections.abc import Mapping
from typing import TypedDict

from sweeping.plan import Plan, Point
from sweeping.results import Entry, note_on_disturbance
from sweeping.sweep_file import PlotSpec, along_of
from sweeping.tree import Scalar

DEFAULT_METRICS = ("committed_per_s", "messages_per_s", "increments_per_s")
UNITS = {"committed_per_s": ("thousand transactions/s", 1e3),
         "us_per_transaction": ("us of a core per transaction", 1.0),
         "messages_per_s": ("thousand messages/s", 1e3), "increments_per_s": ("million increments/s", 1e6)}


class Median(TypedDict):
    median: float
    min: float
    max: float
    n: int


class PointMedians(TypedDict):
    axes: Point
    metrics: dict[str, Median]


def medians(plan: Plan, entries: Mapping[str, Entry]) -> list[PointMedians]:
    """Per point: its axes and, per metric, median, least, greatest and number of values."""
    points: dict[tuple[tuple[str, Scalar], ...], dict[str, list[float]]] = {}
    for entry in entries.values():
        if entry["ok"] and "skipped" not in entry:
            values = points.setdefault(tuple(entry["axes"].items()), {})
            for name, value in entry["metrics"].items():
                if value is not None:
                    values.setdefault(name, []).append(value)
    return [{"axes": dict(axes), "metrics": {name: {"median": statistics.median(found), "min": min(found),
                                                    "max": max(found), "n": len(found)}
                                             for name, found in values.items()}}
            for axes, values in ((tuple(point.items()), points.get(tuple(point.items()), {})) for point in plan.points)
            if values]


def default_plot(plan: Plan, points: list[PointMedians]) -> list[PlotSpec]:
    """For a sweep without plots: the axis with most numbers across, the others down."""
    metric = next((name for name in DEFAULT_METRICS if any(name in point["metrics"] for point in points)), None)
    if metric is None or not plan.axes:
        return []
    x = max(plan.axes, key=lambda name: (all(isinstance(value, (int, float)) for value in plan.axes[name]),
                                         len(plan.axes[name])))
    return [{"title": plan.experiment.title, "x": x, "y": metric}]


def cell(point: PointMedians, metric: str, scale: float) -> str:
    found = point["metrics"].get(metric)
    if not found:
        return "-"
    spread = 100 * (found["max"] - found["min"]) / found["median"] if found["median"] else 0
    digits = 1 if found["median"] / scale >= 10 else 2
    return f"{found['median'] / scale:,.{digits}f}" + (f" ±{spread / 2:.0f}%" if found["n"] > 1 else "")


def labelled(name: str, value: Scalar) -> str:
    """Words say what they are, numbers do not."""
    return str(value) if isinstance(value, str) else f"{name} {value}"


def plot_text(plan: Plan, points: list[PointMedians], plot: PlotSpec) -> list[str]:
    where, x, metric = plot.get("where") or {}, along_of(plot), plot["y"]
    if x not in plan.axes:  # over time: that is in the run directories
        return []
    chosen = [point for point in points if all(point["axes"].get(name) == value for name, value in where.items())
              and metric in point["metrics"]]
    if not chosen:
        return []
    unit, scale = UNITS.get(metric, (metric, 1))
    down = [name for name in plan.axes if name != x and name not in where]
    columns = [value for value in plan.axes[x] if any(point["axes"][x] == value for point in chosen)]
    rows: dict[tuple[Scalar, ...], dict[Scalar, str]] = {}
    for point in chosen:
        rows.setdefault(tuple(point["axes"][name] for name in down), {})[point["axes"][x]] = cell(point, metric, scale)
    labels = {key: " ".join(labelled(name, value) for name, value in zip(down, key)) for key in rows}
    table = [["", *(labelled(x, value) for value in columns)]]
    table += [[labels[key], *(cells.get(value, "-") for value in columns)] for key, cells in rows.items()]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    title = plot.get("title") or plan.experiment.title
    return [f"{title}, {unit}"] + ["  " + row[0].ljust(widths[0]) + "".join("  " + word.rjust(width) for word, width
                                                                          in zip(row[1:], widths[1:]))
                                   for row in table]


def text(plan: Plan, entries: Mapping[str, Entry]) -> str:
    points = medians(plan, entries)
    lines = [plan.experiment.title + (f" ({plan.experiment.reference})" if plan.experiment.reference else "")]
    if durability := plan.durability():
        lines[0] += f", durability {durability}"
    for plot in plan.experiment.plots or default_plot(plan, points):
        both = [plot, plot | {"y": plot["x"]}] if "along" in plot else [plot]  # what is measured: x too
        for found in filter(None, (plot_text(plan, points, one) for one in both)):
            lines += ["", *found]
    skipped = {entry["skipped"] for entry in entries.values() if "skipped" in entry}
    logs = {f"logs were on {entry['log_on']}" for entry in entries.values() if entry.get("log_on")}
    others = note_on_disturbance([entry["metrics"] for entry in entries.values() if entry["ok"]])
    lines += [f"  note: {note}" for note in [*plan.notes, *sorted(skipped), *sorted(logs), *filter(None, [others])]]
    return "\n".join(lines)
