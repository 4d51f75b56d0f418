"""Two result directories beside each other: the same points of the same figures, and which differences are real."""

import math
from collections.abc import Iterator, Sequence

from islands_command import Document
from reporting import page, words
from reporting.confidence import LEVEL, Interval, at_least_by_chance, mean_ratio, ratio_interval
from reporting.elements import document, table, text
from reporting.plots import FIRST_METRICS, WHOLE
from reporting.results import SAME, SAME_SINGLE_RUN, Figure, Stat, Sweep, Where, compare
from sweeping.sweep_file import BY_PART

COLUMNS = ["Figure", "Setting", "Metric", "A", "B", "A / B", "95 % of A / B", "Beyond the spread"]
NUMBERS = (3, 4, 5, 6)  # of these columns
DEFINITION = ("A difference exceeds the spread if the ranges from least to greatest run do not overlap, and the "
              "medians differ by more than the typical range of a point in that figure and by more than "
              f"{words.percent(SAME)} ({words.percent(SAME_SINGLE_RUN)} where a side has one run).")
INTERVALS = ("Beside it stands where A / B lies, of geometric means, with a confidence of 95 %: by Student's t "
             "distribution on the logarithms of the runs, whose variance may differ between the sides. One in twenty "
             "such intervals leaves out 1 by chance.")


class Pair:
    """One metric of one point, on both sides."""

    def __init__(self, figure: str, axes: Where, metric: str, a: Stat, b: Stat) -> None:
        self.figure, self.axes, self.metric, self.a, self.b = figure, axes, metric, a, b
        self.ratio = a.median / b.median if b.median else None
        self.order = compare(a, b)
        self.interval = ratio_interval(a.values, b.values)

    def size(self) -> float:
        """How large the difference is, whichever side is greater."""
        return abs(math.log(self.ratio)) if self.ratio and self.ratio > 0 else math.inf

    def verdict(self) -> str:
        return {"~": "within", ">": "A is greater", "<": "B is greater"}[self.order]

    def json(self) -> Document:
        sides = {name: {"median": stat.median, "min": stat.low, "max": stat.high, "runs": stat.runs}
                 for name, stat in (("a", self.a), ("b", self.b))}
        return {"figure": self.figure, "axes": self.axes, "metric": self.metric, **sides, "ratio": self.ratio,
                "confidence_95": None if self.interval is None else [self.interval.low, self.interval.high],
                "exceeds_spread": self.order != "~"}

    def cells(self) -> list[str]:
        return [self.figure, words.settings(self.axes), words.metric_name(self.metric),
                words.quantity(self.metric, self.a.median), words.quantity(self.metric, self.b.median),
                "-" if self.ratio is None else words.times(self.ratio), within(self.interval), self.verdict()]


def within(interval: Interval | None) -> str:
    """ "0.47x to 0.53x" """
    return "-" if interval is None else f"{words.times(interval.low)} to {words.times(interval.high)}"


class Comparison:
    """All pairs, the largest difference beyond the spread first, and what only one side has."""

    def __init__(self, a: Sweep, b: Sweep) -> None:
        self.a, self.b = a, b
        self.pairs: list[Pair] = []
        self.only = {"a": 0, "b": 0}
        self.notes = list(notes(a, b))
        for name in dict.fromkeys(figure.name for figure in [*a.figures, *b.figures]):
            self.add(a.figure(name), b.figure(name))
        self.pairs.sort(key=lambda pair: (pair.order == "~", -pair.size()))

    def add(self, first: Figure | None, second: Figure | None) -> None:
        points = [{point.key(): point for point in figure.points if point.runs} if figure else {}
                  for figure in (first, second)]
        self.only["a"] += len(points[0].keys() - points[1].keys())
        self.only["b"] += len(points[1].keys() - points[0].keys())
        if first is None or second is None:
            return
        for key, point in points[0].items():
            if key not in points[1]:
                continue
            for metric in metrics_of(first):
                a, b = first.stat(point, metric), second.stat(points[1][key], metric)
                if a and b:
                    self.pairs.append(Pair(first.name, varied(point.axes, first), metric, a, b))

    def exceeding(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.order != "~"]

    def json(self) -> Document:
        return {"format": 1, "a": self.a.directory, "b": self.b.directory, "definition": DEFINITION,
                "exceed_spread": len(self.exceeding()), "within_spread": len(self.pairs) - len(self.exceeding()),
                "by_chance_at_most": round(self.by_chance(), 1),
                "intervals": len(self.intervals()), "leave_out_1": len(self.sure()),
                "leave_out_1_by_chance": round(self.sure_by_chance(), 1),
                "so_many_by_chance_probability": at_least_by_chance(len(self.sure()), len(self.intervals())),
                "overall": [{"metric": metric, "points": count, "ratio": found.ratio,
                             "confidence_95": [found.low, found.high]} for metric, count, found in self.overall()],
                "only_in_a": self.only["a"], "only_in_b": self.only["b"], "notes": self.notes,
                "differences": [pair.json() for pair in self.pairs]}

    def by_chance(self) -> float:
        """How many would exceed the spread, at most about, if nothing had changed: ranges that lie apart by luck."""
        return sum(2 / math.comb(pair.a.runs + pair.b.runs, pair.a.runs) for pair in self.pairs
                   if min(pair.a.runs, pair.b.runs) > 1)

    def intervals(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.interval]

    def sure(self) -> list[Pair]:
        """Those whose interval leaves out 1."""
        return [pair for pair in self.pairs if pair.interval and pair.interval.leaves_out_one()]

    def sure_by_chance(self) -> float:
        return (1 - LEVEL) * len(self.intervals())

    def overall(self) -> Iterator[tuple[str, int, Interval]]:
        """(metric, number of points, A / B over all of them) of each metric that several points have. Points of one
        sweep share their machine and its hour: what is different between these is in the number, too."""
        for metric in dict.fromkeys(pair.metric for pair in self.pairs):
            ratios = [pair.ratio for pair in self.pairs if pair.metric == metric and pair.ratio]
            found = mean_ratio(ratios)
            if found:
                yield metric, len(ratios), found

    def statements(self) -> Iterator[str]:
        """What all points together say."""
        for metric, count, found in self.overall():
            equal = "" if found.leaves_out_one() else ": no difference that can be told"
            yield (f"{words.metric_name(metric)}: A / B is {words.times(found.ratio)} over {count} points (geometric "
                   f"mean; 95 %: {within(found)}){equal}")
        count = len(self.intervals())
        if count:
            chance = at_least_by_chance(len(self.sure()), count)
            yield (f"{len(self.sure())} of {count} intervals leave out 1; by chance alone {self.sure_by_chance():.0f} "
                   f"would, and so many or more with a probability of {words.significant(chance, 2)}")

    def summary(self) -> str:
        return (f"{len(self.exceeding())} of {len(self.pairs)} differences exceed the spread (by chance alone, up to "
                f"{self.by_chance():.0f} would); points only in A: {self.only['a']}, only in B: {self.only['b']}")


def metrics_of(figure: Figure) -> list[str]:
    """What the figure is about: the metrics that its plots draw, else the usual one."""
    specs = [plot for plot in figure.plan.get("plots") or [] if isinstance(plot, dict) and plot.get("y")]
    drawn = [WHOLE if plot["y"] == BY_PART else str(plot["y"]) for plot in specs]
    found = figure.metrics()
    return list(dict.fromkeys(drawn)) or [name for name in FIRST_METRICS if name in found][:1] or found[:1]


def varied(axes: Where, figure: Figure) -> Where:
    """The point without axes that have one value only."""
    return {name: value for name, value in axes.items() if len(figure.axes.get(name, [])) > 1} or axes


def notes(a: Sweep, b: Sweep) -> Iterator[str]:
    """What besides the numbers is different, or doubtful."""
    for what, first, second in (("machines", a.machine_summary, b.machine_summary),
                                ("builds", a.about.get("build"), b.about.get("build")),
                                ("kernels", *((one.about.get("system") or {}).get("kernel") for one in (a, b)))):
        if first != second:
            yield f"different {what}: A {first}, B {second}"
    for figure in a.figures:
        other = b.figure(figure.name)
        if other and figure.durabilities() != other.durabilities():
            yield (f"{figure.name}: different durability: A {', '.join(figure.durabilities())}, B "
                   f"{', '.join(other.durabilities())}")
    for name, one in (("A", a), ("B", b)):
        for note in one.all_notes():
            yield f"{name}: {note}"


def as_text(comparison: Comparison) -> str:
    """The table for a terminal: differences beyond the spread, and how many are not."""
    rows = [pair.cells() for pair in comparison.exceeding()]
    lines = [f"A: {comparison.a.directory}", f"B: {comparison.b.directory}"]
    lines += [f"note: {note}" for note in comparison.notes]
    if rows:
        columns = list(zip(COLUMNS, *rows))
        widths = [max(map(len, column)) for column in columns]
        aligned = [[cell.rjust(width) if index in NUMBERS else cell.ljust(width)
                    for index, (cell, width) in enumerate(zip(row, widths))] for row in [COLUMNS, *rows]]
        lines += [""] + ["  ".join(row).rstrip() for row in aligned] + [""]
    return "\n".join([*lines, *comparison.statements(), comparison.summary(), DEFINITION, INTERVALS])


def as_page(comparison: Comparison, command: str) -> str:
    a, b = comparison.a, comparison.b
    sides = table([[name, text(one.title), f"<code>{text(one.directory)}</code>",
                    text(one.machine_summary), text(one.about.get("build") or ""),
                    text(page.when(one.about.get("started")) or "")] for name, one in (("A", a), ("B", b))],
                  ["", "Sweep", "Directory", "Machine", "Build", "Begun"])
    said = f"<h2>Notes</h2><ul>{''.join(f'<li>{text(note)}</li>' for note in comparison.notes)}</ul>"
    beyond, within = comparison.exceeding(), [pair for pair in comparison.pairs if pair.order == "~"]
    body = (f"<header><h1>{text(a.title)}: A against B</h1><p>{text(comparison.summary())}.</p>"
            + "".join(f"<p>{text(one)}.</p>" for one in comparison.statements()) + "</header>"
            + f'<main><div class="wide">{sides}</div><p class="muted small">{text(DEFINITION)} '
              f'{text(INTERVALS)} A / B above 1 is '
            "better for throughputs and worse for costs and latencies.</p>"
            + (said if comparison.notes else "") + section("Beyond the spread", beyond)
            + section("Within the spread", within)
            + f"<footer>Made by <code>{text(command)}</code>.</footer></main>")
    return document(f"{a.title}: A against B", body)


def section(title: str, pairs: Sequence[Pair]) -> str:
    if not pairs:
        return f"<h2>{title}</h2><p>None.</p>"
    head = "".join(f"<th{number(index)}>{column}</th>" for index, column in enumerate(COLUMNS))
    body = "".join("<tr>" + "".join(f"<td{number(index)}>{text(cell)}{ranges(pair, index)}</td>"
                                    for index, cell in enumerate(pair.cells())) + "</tr>" for pair in pairs)
    return (f'<h2>{title}: {len(pairs)}</h2><div class="numbers wide"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")


def number(index: int) -> str:
    return ' class="number"' if index in NUMBERS else ""


def ranges(pair: Pair, index: int) -> str:
    stat = {3: pair.a, 4: pair.b}.get(index)
    if stat is None or stat.runs == 1:
        return ""
    return f'<span class="spread">{words.number(stat.low)} – {words.number(stat.high)}</span>'
