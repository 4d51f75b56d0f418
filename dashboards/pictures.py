#!/usr/bin/env python3
"""Draws panels' data from a Prometheus that has read a run, for README.md: matplotlib's pictures, not Grafana's.

    dashboards/pictures.py URL START END [FOLDER]         times in seconds since 1970

The expressions are those of the committed JSON; the variables stand for all.
"""

import json
import os
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "islands", "font.size": 8, "axes.titlesize": 9, "legend.fontsize": 7})
from matplotlib import colors, pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

Labels = dict[str, str]
Row = Sequence[tuple[float, float]]  # (time, value)
HERE = os.path.dirname(os.path.abspath(__file__))
PICTURES = {
    "cluster.svg": ("cluster", ["Committed, by scope", "Committed, by island", "Busy, by island",
                                "Messages sent, by island", "Aborts by reason", "Island states"]),
    "island.svg": ("island", ["Latency", "Busy, by core", "Workers' time, by activity", "Lock waits", "Phases",
                              "Answers waiting"]),
}
UNITS = {"ops": "per second", "cps": "per second", "Bps": "bytes per second", "s": "seconds", "percentunit": "share",
         "bytes": "bytes"}


def ask(url: str, expression: str, start: float, end: float) -> list[tuple[Labels, Row]]:
    for name, value in {"$__rate_interval": "4s"}.items():
        expression = expression.replace(name, value)
    expression = re.sub(r"\$\w+", ".*", expression)
    query = urllib.parse.urlencode({"query": expression, "start": start, "end": end, "step": 0.5})
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{query}", timeout=30) as answer:
        result = json.load(answer)["data"]["result"]
    return [(each["metric"], [(float(at) - start, float(value)) for at, value in each["values"]]) for each in result]


def legend(form: str, labels: Labels) -> str:
    return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), form)


def grid(axes: Axes, rows: Sequence[Row], names: Sequence[str], palette: str = "YlOrRd", **scale: Any) -> None:
    """Cells coloured by value."""
    times = sorted({at for row in rows for at, _ in row})
    values = [[dict(row).get(at, float("nan")) for at in times] for row in rows]
    axes.imshow(values, aspect="auto", origin="lower", cmap=palette, interpolation="nearest",
                **scale, extent=(times[0], times[-1], -0.5, len(rows) - 0.5))
    every = 1 + len(names) // 12
    axes.set_yticks(range(0, len(names), every), names[::every])


def draw_latency(axes: Axes, series: Sequence[tuple[Labels, Row]]) -> None:
    """A row per bucket; Prometheus' buckets are cumulative, Grafana's and ours are not."""
    series = sorted(series, key=lambda each: float(each[0]["le"]))
    rows: list[Row] = []
    below: dict[float, float] = {}
    for _, values in series:
        rows.append([(at, value - below.get(at, 0)) for at, value in values])
        below = dict(values)
    used = [index for index, row in enumerate(rows) if any(value > 0 for _, value in row)]
    first, last = used[0], used[-1] + 1
    grid(axes, rows[first:last], [f"{float(labels['le']) * 1e3:g} ms" for labels, _ in series[first:last]],
         norm=colors.PowerNorm(0.3))


def draw(axes: Axes, panel: Mapping[str, Any], url: str, start: float, end: float) -> None:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    axes.set_title(panel["title"], loc="left")
    found = [(legend(target["legendFormat"], labels), labels, values) for target in panel["targets"]
             for labels, values in ask(url, target["expr"], start, end)]
    found.sort(key=lambda each: each[0])
    if panel["type"] == "heatmap":
        draw_latency(axes, [(labels, values) for _, labels, values in found])
    elif panel["type"] in ("status-history", "state-timeline"):
        grid(axes, [values for _, _, values in found], [name.replace(" on ", "\n") for name, _, _ in found],
             "RdYlGn" if panel["type"] == "state-timeline" else "RdYlGn_r", vmin=0, vmax=1)
    else:
        stacked = panel["fieldConfig"]["defaults"]["custom"].get("stacking", {}).get("mode") == "normal"
        below: dict[float, float] = {}
        for name, _, values in found:
            if not any(value > 0 for _, value in values):
                continue
            top = [value + (below.get(at, 0) if stacked else 0) for at, value in values]
            times = [at for at, _ in values]
            (line,) = axes.plot(times, top, label=name, linewidth=1)
            if stacked:
                axes.fill_between(times, [below.get(at, 0) for at in times], top, alpha=0.3, color=line.get_color())
                below.update(zip(times, top))
        axes.set_ylim(bottom=0)
        axes.set_ylabel(UNITS.get(unit, ""))
        axes.legend(loc="best", frameon=False)
    axes.set_xlim(0, end - start)


def main(url: str, start: str, end: str, folder: str = HERE) -> None:
    for name, (dashboard, titles) in PICTURES.items():
        with open(os.path.join(HERE, dashboard + ".json"), encoding="utf-8") as file:
            panels = {panel["title"]: panel for panel in json.load(file)["panels"] if panel["type"] != "row"}
        figure, axes = pyplot.subplots(2, 3, figsize=(11, 5), layout="constrained")
        for each, title in zip(axes.flat, titles):
            draw(each, panels[title], url, float(start), float(end))
        for each in axes[1]:
            each.set_xlabel("seconds")
        figure.savefig(os.path.join(folder, name), metadata={"Date": None})
        pyplot.close(figure)


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    main(*sys.argv[1:])
