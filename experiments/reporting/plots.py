"""Which plots a figure gets, with their numbers: from its plan, or guessed where the plan names none.

A plot is a list of series; a series has a point, or none, for each x value. A plan's plot that leaves an axis open is
drawn once per value of that axis, so that no two settings are ever mixed in one point.
"""

import csv
import io
import itertools
from collections.abc import Sequence
from typing import Any

from reporting import words
from reporting.results import Figure, Point, Stat, Value, Where, as_number, measured, same_value
from sweeping.sweep_file import BY_PART, CORE_PARTS, ISLAND, OVER_TIME, OVER_TIME_COLUMNS, TWO_POINTS, along_of

PlotSpec = dict[str, Any]  # an entry of a plan's `plots`
MAX_PLOTS = 12  # of one entry of a plan, or of a figure whose plots are guessed
WHOLE = "us_per_transaction"  # that the parts of BY_PART make up
FIRST_METRICS = ("committed_per_s", "increments_per_s", "messages_per_s")


class Plot:
    """`series` is a list of (value of the series' axis or None, {value of `along`: Stat}), `along` being the axis x or,
    where x is measured too, the one whose values make the points of a line. Where `y` is the cores' time by part, the
    parts are the series, on top of each other; where `x` is the second of a run, islands are, and there is one point
    of the sweep."""

    def __init__(self, figure: Figure, spec: PlotSpec, where: Where, points: Sequence[Point]) -> None:
        self.figure, self.where = figure, where
        self.x, self.axis, self.y = spec["x"], spec.get("series"), spec["y"]
        self.along = along_of(spec)
        self.measured_x, self.over_time = self.along != self.x, is_over_time(figure, spec)
        self.parts = self.y == BY_PART
        if self.parts:
            self.axis, self.y = "part", WHOLE
        self.title = str(spec.get("title") or figure.title)
        self.y_label = str(spec.get("y_label") or words.metric_label(self.y))
        self.x_label = words.metric_label(self.x) if self.measured_x else words.axis_label(self.x)
        self.xs = present(figure, self.along, points)
        values = present(figure, self.axis, points) if self.axis and not self.parts else [None]
        self.series: list[tuple[Value, dict[str | float, Stat]]] = []
        self.points = points
        for value in values:
            stats: dict[str | float, Stat] = {}
            for point in points:
                if self.axis and same_value(point.axes.get(self.axis)) != same_value(value):
                    continue
                stat = figure.stat(point, self.y)
                if stat and self.along in point.axes:
                    stats[same_value(point.axes[self.along])] = stat
            if stats:
                self.series.append((value, stats))
        if self.over_time:
            self.axis = ISLAND
            islands = figure.over_time(points[0], OVER_TIME_COLUMNS[self.y])
            self.series = [(island, {float(second): stat for second, stat in seconds.items()})
                           for island, seconds in islands.items()]
            self.xs = [*sorted({second for seconds in islands.values() for second in seconds})]
        if self.parts:
            stats_of = {part: self.stats_of(f"us_{part}") for part in CORE_PARTS}
            self.series = [(part, stats) for part, stats in stats_of.items()
                           if any(stat.median > 0 for stat in stats.values())]
        numeric = all(as_number(x) is not None for x in self.xs)
        wanted = spec.get("kind")
        as_lines = wanted == "line" if wanted in ("line", "bar") else len(self.xs) > 1
        self.lines = (self.measured_x or numeric and as_lines) and not self.parts
        # Of a series by its place, where the plan asks for it: what lies on a straight line between its two ends.
        self.estimates: dict[int, dict[float, float]] = {}
        if self.lines and spec.get("estimate") == TWO_POINTS:
            ends = [min(self.all_xs(), default=0.0), max(self.all_xs(), default=0.0)]
            self.estimates = {number: between_ends(stats) for number, (_, stats) in enumerate(self.series)
                              if ends[0] < ends[1] and all(same_value(end) in stats for end in ends)}
        self.name = ""  # FIGURE-n, once it is known

    def place(self, value: Value, x: Value) -> float:
        """Where a point of a line lies across, x being one of `xs`."""
        point = self.point(value, x) if self.measured_x else None
        stat = point.stat(self.x) if point else None
        place = stat.median if stat else as_number(x)
        assert place is not None, "lines have numbers for x"
        return place

    def stats_of(self, part: str) -> dict[str | float, Stat]:
        found = ((same_value(point.axes[self.x]), self.figure.stat(point, part)) for point in self.points)
        return {x: stat for x, stat in found if stat}

    def all_xs(self) -> list[float]:
        """What the sweep was to measure, whether it has or not."""
        return [x for value in self.figure.axes.get(self.x, []) if (x := as_number(value)) is not None]

    def estimate_at(self, number: int, x: Value) -> list[str]:
        if not self.estimates:
            return []
        place = as_number(x)
        return [f"{self.estimates[number][place]:.6g}" if number in self.estimates and place is not None else ""]

    def tops(self) -> list[float]:
        """Where what is drawn ends, of each place."""
        if not self.parts:
            return [stat.high for stat in self.stats()]
        return [sum(stats[same_value(x)].median for _, stats in self.series if same_value(x) in stats)
                for x in self.xs]

    def point(self, value: Value, x: Value) -> Point | None:
        """The one that a place of a series stands for."""
        if self.over_time:
            return self.points[0]
        place = {self.along: x, **({self.axis: value} if self.axis and not self.parts else {})}
        return next((point for point in self.points if point.has(place)), None)

    def at(self, value: Value, x: Value) -> str:
        """What a measured x is there: " at utilisation 0.45"."""
        return f" at {words.metric_name(self.x)} {words.number(self.place(value, x))}" if self.measured_x else ""

    def tip(self, value: Value, x: Value, stat: Stat) -> str:
        """What a place of a series answers to the pointer: "4ISL, multisite 20 %: 812k/s (790k to 830k, 3 runs: ...)".
        """
        place = words.settings({**({self.axis: value} if self.axis else {}), self.along: x})
        spread = f"{words.number(stat.low)} to {words.number(stat.high)}, " if stat.runs > 1 else ""
        point = self.point(value, x)
        names = ", ".join(str(run.get("id", "?")) for run in point.runs) if point else ""
        return (f"{place}: {words.quantity(self.y, stat.median)}{self.at(value, x)} "
                f"({spread}{stat.runs} run{'s'[:stat.runs > 1]}{': ' if names else ''}{names})")

    def stats(self) -> list[Stat]:
        return [stat for _, stats in self.series for stat in stats.values()]

    def repetitions(self) -> str:
        """What a point and its bar stand for."""
        counts = {stat.runs for stat in self.stats()}
        dotted = " Dotted: the two-point estimate, a straight line between the ends." if self.estimates else ""
        if counts == {1}:
            return "One run for each point, so no spread." + dotted
        runs = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else f"{max(counts)}"
        if self.parts:
            return f"Medians of {runs} runs, on top of each other."
        across = " Across, it is the median, too." if self.measured_x else ""
        return f"Median of {runs} runs; the bars reach from the least to the greatest run." + across + dotted

    def durability(self) -> str:
        """What its clusters kept; nothing where the plot's title or its axes say it."""
        named = "durability" in (*self.where, self.along, self.axis)
        return "" if named else ", ".join(self.figure.durabilities())

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        axis = [self.axis] if self.axis else []
        durability = [self.durability()] if self.durability() else []
        x_median = [f"{self.x}_median"] if self.measured_x else []
        writer.writerow(["figure", *self.where, *axis, self.along, *x_median, f"{self.y}_median", f"{self.y}_min",
                         f"{self.y}_max", "runs", *(["durability"] if durability else []),
                         *(["estimate"] if self.estimates else [])])
        for number, (value, stats) in enumerate(self.series):
            for x in self.xs:
                stat = stats.get(same_value(x))
                if stat:
                    writer.writerow([self.figure.name, *self.where.values(), *([value] if axis else []), x,
                                     *(f"{self.place(value, x):.6g}" for _ in x_median),
                                     *(f"{y:.6g}" for y in (stat.median, stat.low, stat.high)), stat.runs,
                                     *durability, *self.estimate_at(number, x)])
        return out.getvalue()


    def runs_csv(self, folder: str) -> str:
        """Every run that the plot shows: what it measured, where its directory lies seen from the page (`folder` is the
        figure's), and the command that makes it again on a cluster of the directory's deployment.yaml."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        axes = list(self.figure.axes)
        metrics = [self.x, self.y] if self.measured_x else [self.y]
        writer.writerow(["figure", *axes, "repetition", *metrics, "run_directory", "command"])
        for point in self.points:
            for run in point.runs:
                where = run.get("run_directory")
                values = [measured(run, metric) for metric in metrics]
                writer.writerow([self.figure.name, *(point.axes.get(axis, "") for axis in axes),
                                 run.get("repetition", ""),
                                 *("" if value is None else f"{value:.6g}" for value in values),
                                 f"{folder}/{where}" if where else "", run.get("command", "")])
        return out.getvalue()


def between_ends(stats: dict[str | float, Stat]) -> dict[float, float]:
    """T(x) = (1 - p) T(first) + p T(last), p being how far x is from the first to the last ("OLTP on Hardware Islands",
    section 4: of local and of distributed transactions)."""
    points = sorted((x, stat.median) for place, stat in stats.items() if (x := as_number(place)) is not None)
    (first, low), (last, high) = points[0], points[-1]
    share = {x: (x - first) / (last - first) if last > first else 0.0 for x, _ in points}
    return {x: (1 - p) * low + p * high for x, p in share.items()}


def is_over_time(figure: Figure, spec: PlotSpec) -> bool:
    """Whether a plot's x is the second of a run, and no axis that is called so."""
    return spec.get("x") == OVER_TIME and OVER_TIME not in figure.axes


def lasts(figure: Figure, point: Point, column: str) -> bool:
    """Whether there is more of it than one second."""
    return any(len(seconds) > 1 for seconds in figure.over_time(point, column).values())


def present(figure: Figure, axis: str, points: Sequence[Point]) -> list[Value]:
    """The axis' values that points have, in the figure's order."""
    found = {same_value(point.axes[axis]) for point in points if axis in point.axes}
    return [value for value in figure.axes.get(axis, []) if same_value(value) in found]


def plots_of(figure: Figure) -> tuple[list[Plot], list[str]]:
    """(plots, notes): what is drawn, and what is not and why."""
    specs = [spec for spec in figure.plan.get("plots") or [] if isinstance(spec, dict)]
    plots: list[Plot] = []
    notes: list[str] = []
    if not figure.runs:
        return plots, ["There are no results to draw."]
    for spec in specs or guess(figure, notes):
        found, said = expand(figure, spec)
        plots += found
        notes += said
    for number, plot in enumerate(plots, 1):
        plot.name = f"{figure.name}-{number}"
    return plots, notes


def expand(figure: Figure, spec: PlotSpec) -> tuple[list[Plot], list[str]]:
    """The plots of one entry: one, or one for each value of the axes that it leaves open."""
    title = spec.get("title") or "a plot"
    over_time = is_over_time(figure, spec)
    needed = () if over_time else (spec.get("along") or spec.get("x"), spec.get("series"))
    missing = [name for name in needed if name and name not in figure.axes]
    if missing or not spec.get("x") or not spec.get("y"):
        return [], [f"“{title}” is not drawn: " +
                    (f"there is no axis {missing[0]}." if missing else "it names no x or no y.")]
    where = dict(spec.get("where") or {})
    y = WHOLE if spec["y"] == BY_PART else spec["y"]
    condition = f" with {words.settings(where)}" if where else ""
    if over_time:
        column = OVER_TIME_COLUMNS.get(y)
        measured = [point for point in figure.select(where) if column and figure.over_time(point, column)]
        points = [point for point in measured if column and lasts(figure, point, column)]
        if measured and not points:
            return [], [f"“{title}” is not drawn: no run{condition} lasted more than a second."]
        lacks = f"has {y} over time in its directory"
    else:
        metrics = [y, spec["x"]] if along_of(spec) != spec["x"] else [y]
        points = [point for point in figure.select(where) if all(map(point.stat, metrics)) and
                  all(name in point.axes for name in needed if name)]
        lacks = f"measured {' and '.join(metrics)}"
    if not points:
        return [], [f"“{title}” is not drawn: no run{condition} {lacks}."]
    axes = open_axes(spec, points)
    combinations = list(itertools.product(*(present(figure, axis, points) for axis in axes)))
    plots: list[Plot] = []
    left_out = 0
    for combination in combinations:
        fixed = dict(zip(axes, combination))
        chosen = [point for point in points if point.has(fixed)]
        if not chosen:
            continue
        if len(plots) == MAX_PLOTS:
            left_out += 1
            continue
        named = dict(spec, title=f"{title}, {words.settings(fixed)}") if fixed else spec
        plots.append(Plot(figure, named, {**where, **fixed}, chosen))
    notes = [f"“{title}”: {left_out} more combinations of {', '.join(axes)} are not drawn; their numbers are in "
             "results.jsonl."] if left_out else []
    return plots, notes


def open_axes(spec: PlotSpec, points: Sequence[Point]) -> list[str]:
    """Axes that differ between points which would otherwise share a place in the plot."""
    groups: dict[tuple[str | float, ...], list[Point]] = {}
    places = (along_of(spec), spec.get("series"))
    for point in points:
        place = tuple(same_value(point.axes.get(name)) for name in places if name)
        groups.setdefault(place, []).append(point)
    names = list(dict.fromkeys(name for point in points for name in point.axes))
    return [name for name in names if name not in places and
            any(len({same_value(point.axes.get(name)) for point in group}) > 1 for group in groups.values())]


def guess(figure: Figure, notes: list[str]) -> list[PlotSpec]:
    """One entry for a figure whose plan names no plots: the longest numeric axis is x, layouts are the series."""
    counts = {name: len(values) for name, values in figure.axes.items()}
    numeric = [name for name, values in figure.axes.items()
               if counts[name] > 1 and all(as_number(value) is not None for value in values)]
    by_length = sorted(counts, key=lambda name: -counts[name])
    others = [name for name in by_length if name != "layout" and counts[name] > 1] or by_length
    if not by_length:
        notes.append("There is nothing to draw: the sweep has no axes.")
        return []
    x = max(numeric, key=lambda name: counts[name]) if numeric else others[0]
    varied = [name for name in by_length if name != x and counts[name] > 1]
    series = "layout" if "layout" in counts and x != "layout" else varied[0] if varied else None
    metrics = figure.metrics()
    y = next((name for name in FIRST_METRICS if name in metrics), metrics[0] if metrics else None)
    if y is None:
        notes.append("There is nothing to draw: no run measured anything.")
        return []
    if len(metrics) > 1:
        besides = ", ".join(words.metric_name(name) for name in metrics if name != y)
        notes.append(f"The sweep file names no plots, so this report chose: {words.metric_name(y)} over "
                     f"{x.replace('_', ' ')}. Also measured: {besides}.")
    return [{"title": figure.title, "x": x, "series": series, "y": y}]
