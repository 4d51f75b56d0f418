"""What claims are decided with: the results that a claim names, compared with their spread in mind. sizes.py has the
second verdict, of the size.

A verdict is never guessed. Where results are missing, the machine lacks what the claim is about, or a difference stays
within the spread, it is "cannot be told", with the reason.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from islands_command import Document
from reporting import sizes, words
from reporting.results import Figure, Spread, Stat, Sweep, Value, Where, as_number, compare, islands_of, same_value
from reporting.sizes import Number

AGREES, DISAGREES, UNKNOWN = "agrees", "disagrees", "cannot be told"
STEADY = 0.10  # a rate that changes by less is unaffected; one that lacks less of the best competes with it
ISLANDS = "OLTP on Hardware Islands"  # the paper, unless a figure is another's
# Factor between two standard deviations that is no accident, by the number of runs: the square root of the F
# distribution's 95 % point. Fewer runs say nothing.
NOTICEABLE = {3: 4.4, 4: 3.0, 5: 2.5, 6: 2.2, 7: 2.1}


class Untellable(Exception):
    """Why a claim can be neither confirmed nor refuted here."""


class Ratio:
    """A quotient; its range is the widest that the spread of what it is made of allows. compare() takes it as a
    statistic, sizes.judge() as an interval."""

    def __init__(self, median: float, low: float, high: float, runs: int, noise: float = 0.0) -> None:
        self.median, self.low, self.high, self.runs, self.noise = median, low, high, runs, noise


def quotient(above: Spread, below: Spread, factor: float = 1.0) -> Ratio:
    if not below.low > 0:
        raise Untellable("a run counted nothing, so there is no ratio")
    return Ratio(factor * above.median / below.median, factor * above.low / below.high,
                 factor * above.high / below.low, min(above.runs, below.runs), max(above.noise, below.noise))


class Verdict(NamedTuple):
    """What was found of a claim."""
    direction: str               # AGREES, DISAGREES or UNKNOWN
    here: str
    ratio: Ratio | None = None   # the factor that the paper's number is held against
    number: Number | None = None  # instead of the claim's, where it follows from what was measured


class Claim:
    """One statement of a paper and what was found here: whether in the same direction, and whether of the same size.

    `paper` says it in our words, `quote` in its own; `there` is its number; `where` names the plot it belongs to.
    """

    def __init__(self, figure: str, source: str, paper: str, quote: str, reference: str, there: str, where: Where,
                 found: Verdict, size: sizes.Size) -> None:
        self.figure, self.source, self.paper, self.quote = figure, source, paper, quote
        self.reference, self.there, self.where = reference, there, where
        self.verdict, self.here = found.direction, found.here
        self.size, self.size_here = size
        self.id = ""          # FIGURE.n, or FIGURE.DURABILITY.n where it was measured with several, once it is known
        self.durability = ""  # that it was decided with, once it is known; of programs none

    def json(self) -> Document:
        return {"id": self.id, "figure": self.figure, "source": self.source, "paper": self.paper, "quote": self.quote,
                "reference": self.reference, "there": self.there, "here": self.here, "verdict": self.verdict,
                "size": self.size, "size_here": self.size_here or None, "where": self.where,
                "durability": self.durability or None}


class Found:
    """A statistic with the name that a sentence gives it."""

    def __init__(self, name: str, stat: Stat, text: str) -> None:
        self.name, self.stat, self.text = name, stat, text

    def __str__(self) -> str:
        return f"{self.name} {self.text}"


class Case:
    """One figure's results on one machine, asked by the claims about it."""

    def __init__(self, sweep: Sweep, figure: Figure, metric: str = "committed_per_s", **usual: Value) -> None:
        """`usual`: settings that the figure fixes; they count only where the sweep varies them."""
        self.sweep, self.figure, self.metric = sweep, figure, metric
        self.source = ISLANDS
        self.usual: dict[str, Value] = {name: value for name, value in usual.items() if name in figure.axes}

    def claim(self, paper: str, quote: str, reference: str, there: str, decide: Callable[[], Verdict],
              where: Where | None = None, number: Number | None = None) -> Claim:
        """`decide`, which is called at once, returns a verdict, or raises Untellable."""
        try:
            found = decide()
        except Untellable as reason:
            found = Verdict(UNKNOWN, str(reason))
        except ZeroDivisionError:
            found = Verdict(UNKNOWN, "a run counted nothing, so there is no ratio")
        size = sizes.judge(found.number or number, found.ratio, self.sweep.sockets, self.sweep.cores)
        return Claim(self.figure.name, self.source, paper, quote, reference, there, where or {}, found, size)

    def at(self, _name: str = "", /, **where: Value) -> Found:
        """The figure's metric at these axis values; found by its layout's name, unless it is given another."""
        wanted = {**self.usual, **where}
        for name in where:
            if name not in self.figure.axes:
                raise Untellable(f"the sweep has no axis {name}")
        points = [point for point in self.figure.select(wanted) if point.stat(self.metric)]
        if not points:
            lacks = f"no run measured {words.metric_name(self.metric)} with" if self.figure.select(wanted) and any(
                point.runs for point in self.figure.select(wanted)) else "no results for"
            raise Untellable(f"{lacks} {words.settings(wanted)}")
        if len(points) > 1:
            open_axes = [name for name, values in self.figure.axes.items() if name not in wanted and len(values) > 1]
            raise Untellable(f"{words.settings(wanted)} was measured in several ways ({', '.join(open_axes)})")
        stat = self.figure.stat(points[0], self.metric)
        assert stat, "it is what the point was chosen by"
        named = _name or where.get("layout") or where.get("cut") or words.settings(where)
        return Found(str(named), stat, words.quantity(self.metric, stat.median))

    def values(self, axis: str) -> list[Value]:
        """The values of an axis that have results; numbers as numbers."""
        points = [point for point in self.figure.points if point.stat(self.metric)]
        found = {same_value(point.axes[axis]) for point in points if axis in point.axes}
        return [value if as_number(value) is None else as_number(value)
                for value in self.figure.axes.get(axis, []) if same_value(value) in found]

    def range_of(self, axis: str, least: float | None = None, most: float | None = None) -> tuple[float, float]:
        """The lowest and the highest value of a numeric axis, which must reach from `least` to `most`."""
        numbers = [number for value in self.values(axis) if (number := as_number(value)) is not None]
        if len(numbers) < 2:
            raise Untellable(f"the sweep does not vary {axis}")
        low, high = min(numbers), max(numbers)
        if (least is not None and low > least) or (most is not None and high < most):
            raise Untellable(f"{axis} was measured from {low:g} to {high:g} only")
        return low, high

    def pick(self, axis: str, *preferred: Value) -> Where:
        """The first preferred value of an axis that was measured, else the number nearest to the first preferred one,
        else the first value; nothing if it is no axis."""
        values = self.values(axis)
        for wanted in preferred:
            if same_value(wanted) in map(same_value, values):
                return {axis: wanted}
        near, numbers = as_number(preferred[0]), [as_number(value) for value in values]
        distances = [abs(number - near) for number in numbers if number is not None and near is not None]
        if values and len(distances) == len(values):
            return {axis: values[distances.index(min(distances))]}
        return {axis: values[0]} if values else {}

    def layouts(self) -> list[str]:
        """Layouts with results, the coarsest first."""
        counts = {str(value): islands_of(value) or 0 for value in self.values("layout")}
        return sorted((layout for layout, count in counts.items() if count), key=lambda layout: counts[layout])

    def shared(self) -> str:
        if not self.layouts() and "layout" in self.figure.axes:
            raise Untellable(f"no run measured {words.metric_name(self.metric)}")
        if "1ISL" not in self.layouts():
            raise Untellable("1ISL (shared-everything) was not measured")
        return "1ISL"

    def fine(self) -> str:
        """The layout with one island per core."""
        layouts = self.layouts()
        if not layouts and "layout" in self.figure.axes:
            raise Untellable(f"no run measured {words.metric_name(self.metric)}")
        finest = layouts[-1] if layouts else None
        workers = next((point.workers_per_island() for point in self.figure.points
                        if point.axes.get("layout") == finest and point.workers_per_island()), None)
        if finest and workers is None and self.sweep.cores:
            workers = self.sweep.cores / (islands_of(finest) or 1)
        if finest is None or workers != 1:
            raise Untellable("no layout with one island per core was measured")
        if finest == "1ISL":
            raise Untellable("one core: there is one layout only")
        return finest

    def coarse(self) -> str:
        """The layout with one island per socket."""
        self.need_sockets()
        layout = f"{self.sweep.sockets}ISL"
        if layout not in self.layouts():
            raise Untellable(f"{layout} (one island per socket) was not measured")
        if layout == self.fine():
            raise Untellable("each socket has one core: an island per socket is an island per core")
        return layout

    def cuts(self) -> list[str]:
        """Layouts of several islands, the coarsest first."""
        cuts = [layout for layout in self.layouts() if layout != "1ISL"]
        if not cuts:
            raise Untellable("no layout with several islands was measured")
        return cuts

    def need_sockets(self) -> None:
        if self.sweep.sockets < 2:
            raise Untellable("this machine has one socket")

    def with_sockets(self, decide: Callable[[], Verdict]) -> Verdict:
        """The verdict, unless there is one socket: then the numbers alone, which say nothing of sockets."""
        if self.sweep.sockets > 1:
            return decide()
        try:
            return Verdict(UNKNOWN, f"this machine has one socket; measured: {decide().here}")
        except Untellable:
            return Verdict(UNKNOWN, "this machine has one socket")

    def coarsest(self) -> str:
        """The layout with one island per socket, or on a single socket the one with fewest islands."""
        return self.coarse() if self.sweep.sockets > 1 else self.cuts()[0]


def ordered(order: str, wanted: str, here: str, ratio: Ratio | None = None, number: Number | None = None) -> Verdict:
    """The verdict where compare() has said `order` and the paper says `wanted`, < or >."""
    if order == "~":
        return Verdict(UNKNOWN, f"{here}: within the spread", ratio, number)
    return Verdict(AGREES if order == wanted else DISAGREES, here, ratio, number)


def greater(a: Found, b: Found) -> Verdict:
    """That `a` is greater than `b`, told as a factor."""
    if not b.stat.median > 0:
        raise Untellable(f"{b.name} counted nothing")
    here = f"{words.times(a.stat.median / b.stat.median)} ({a}, {b})"
    return ordered(compare(a.stat, b.stat), ">", here, quotient(a.stat, b.stat) if b.stat.low > 0 else None)


def cheaper(a: Found, b: Found) -> Verdict:
    """That `a` costs less than `b`, told as a difference in percent; the factor is how much dearer `b` is."""
    if not b.stat.median > 0:
        raise Untellable(f"{b.name} has no cost")
    here = f"{change(a.stat.median / b.stat.median)} ({a}, {b})"
    return ordered(compare(a.stat, b.stat), "<", here, quotient(b.stat, a.stat))


def change(ratio: float) -> str:
    """0.52 -> "−48 %"."""
    text = words.percent(round(abs(ratio - 1), 5))
    return text if text == "0 %" else ("+" if ratio > 1 else "−") + text


def steady(found_from: Found, found_to: Found) -> Verdict:
    """That a rate stays as it is."""
    ratio = found_to.stat.median / found_from.stat.median
    here = f"{change(ratio)} ({found_from}, {found_to})"
    if abs(ratio - 1) <= STEADY:
        return Verdict(AGREES, here)
    if compare(found_from.stat, found_to.stat) == "~":
        return Verdict(UNKNOWN, f"{here}: within the spread")
    return Verdict(DISAGREES, here)


def keeps_up(found: Found, others: Sequence[Found]) -> Verdict:
    """That it lacks no more than STEADY of the best."""
    best = max(others, key=lambda other: other.stat.median)
    ratio = quotient(found.stat, best.stat)
    here = f"{words.percent(ratio.median)} of the best other ({found}, {best})"
    if ratio.low < 1 - STEADY <= ratio.high and ratio.runs > 1:
        return Verdict(UNKNOWN, f"{here}: within the spread")
    return Verdict(AGREES if ratio.median >= 1 - STEADY else DISAGREES, here)


def all_of(parts: Iterable[Verdict]) -> Verdict:
    """Every part has to hold."""
    parts = list(parts)
    found = {part.direction for part in parts}
    verdict = DISAGREES if DISAGREES in found else UNKNOWN if UNKNOWN in found else AGREES
    return Verdict(verdict, "; ".join(part.here for part in parts))


def steadier(a: Found, b: Found) -> Verdict:
    """That the runs of `a` differ less among themselves than those of `b`; the factor is how much less."""
    runs = min(a.stat.runs, b.stat.runs)
    if runs < min(NOTICEABLE):
        raise Untellable(f"variation needs at least {min(NOTICEABLE)} runs of each")
    first, second = a.stat.variation() or 0, b.stat.variation() or 0
    here = f"standard deviation {words.percent(first)} for {a.name}, {words.percent(second)} for {b.name}"
    by_chance = NOTICEABLE.get(runs, 2.0)
    ratio = Ratio(second / first, second / first / by_chance, second / first * by_chance, runs) if first else None
    if max(first, second) <= by_chance * min(first, second):
        return Verdict(UNKNOWN, f"{here}: too close to tell with {runs} runs", ratio)
    return Verdict(AGREES if first < second else DISAGREES, here, ratio)


def retained(case: Case, layout: str, axis: str, low: float, high: float, **where: Value) -> Ratio:
    """The share of its throughput that a layout keeps when an axis goes from low to high."""
    start, end = (case.at(**where, **{axis: value}, layout=layout).stat for value in (low, high))
    return quotient(end, start)


def most_lost(worst: tuple[str, Ratio], others: Sequence[tuple[str, Ratio]]) -> Verdict:
    """That `worst` keeps less of its throughput than each of `others`: (name, Ratio) pairs."""
    here = ", ".join(f"{name} {change(ratio.median)}" for name, ratio in [worst, *others])
    orders = [compare(worst[1], ratio) for _, ratio in others]
    return ordered(">" if ">" in orders else "~" if "~" in orders else "<", "<", here)
