"""What a sweep says first: which layout is the best under which load, by how much, and where that changes.

Of each figure that compares layouts (or cuts), a line for every combination of its other axes but one, the numeric one
with most values: along that the best layout is told, and where lines cross. Two layouts that differ within the spread
are as good as each other (compare() of results.py).
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from reporting import words
from reporting.results import Figure, Point, Sweep, Value, as_number, compare

METRIC, LATENCY = "committed_per_s", "latency_p99_us"
LAYOUTS = ("layout", "cut")


class Place(NamedTuple):
    """A value of the axis that goes along, and who is the best there: one, or several that are as good."""
    value: Value
    best: tuple[str, ...]
    gain: float | None    # of the best over the next that is worse, as a factor; None if there is none
    latency_us: float | None
    medians: dict[str, float]


class Conclusion(NamedTuple):
    """Of one load."""
    figure: Figure
    load: str            # in words, without the axis that goes along
    along: str | None
    places: list[Place]
    crossings: list[str]

    def best(self) -> str:
        """ "2ISL to 20 %, then 1ISL": runs of places with the same best."""
        parts = []
        for best, group in itertools.groupby(self.places, key=lambda place: place.best):
            places = [*group]
            name = " = ".join(best)
            if len(places) == len(self.places) or self.along is None:
                return name
            ends = [words.value_text(places[0].value), words.value_text(places[-1].value)]
            parts.append(f"{name} at {' to '.join(dict.fromkeys(ends))}")
        return ", ".join(parts)

    def gains(self) -> str:
        """Over the next that is worse."""
        found = [place.gain for place in self.places if place.gain is not None]
        return span(min(found), max(found), words.times) if found else "–"

    def latencies(self) -> str:
        """The 99th percentile where it is the best."""
        found = [place.latency_us for place in self.places if place.latency_us is not None]
        return span(min(found), max(found), words.number) + " µs" if found else "–"


def span(low: float, high: float, written: Callable[[float], str]) -> str:
    ends = dict.fromkeys((written(low), written(high)))
    return " to ".join(ends)


def conclusions(sweep: Sweep) -> list[Conclusion]:
    return [conclusion for figure in sweep.figures for conclusion in of_figure(figure)]


def of_figure(figure: Figure) -> list[Conclusion]:
    axis = next((name for name in LAYOUTS if len(figure.axes.get(name, [])) > 1), None)
    if axis is None or not any(point.stat(METRIC) for point in figure.points):
        return []
    others = [name for name in figure.axes if name != axis and len(figure.axes[name]) > 1]
    numeric = [name for name in others if all(as_number(value) is not None for value in figure.axes[name])]
    along = max(numeric, key=lambda name: len(figure.axes[name]), default=None)
    fixed = [name for name in others if name != along]
    found = []
    for values in itertools.product(*(figure.axes[name] for name in fixed)):
        where = dict(zip(fixed, values))
        places = [(value, {str(point.axes[axis]): point for point in figure.points
                           if point.has(where | ({along: value} if along else {}))})
                  for value in values_along(figure, along)]
        judged = [place for value, points in places if (place := judge(figure, value, points))]
        if judged:
            found.append(Conclusion(figure, words.settings(where), along, judged, crossings(figure, along, judged)))
    return found


def values_along(figure: Figure, along: str | None) -> list[Value]:
    return sorted(figure.axes[along], key=lambda value: as_number(value) or 0) if along else [None]


def judge(figure: Figure, value: Value, points: dict[str, Point]) -> Place | None:
    """None unless two layouts were measured there."""
    noise = figure.noise(METRIC)
    stats = {layout: stat for layout, point in points.items() if (stat := point.stat(METRIC, noise))}
    if len(stats) < 2 or len({points[layout].islands() or layout for layout in stats}) == 1:  # cuts of one core
        return None
    ranked = sorted(stats, key=lambda layout: -stats[layout].median)
    best = [layout for layout in ranked if compare(stats[ranked[0]], stats[layout]) != ">"]
    worse = [stats[layout].median for layout in ranked if layout not in best]
    latency = points[ranked[0]].stat(LATENCY)
    return Place(value, tuple(sorted(best, key=natural)),
                 stats[ranked[0]].median / worse[0] if worse and worse[0] > 0 else None,
                 latency.median if latency else None, {layout: stat.median for layout, stat in stats.items()})


def natural(layout: str) -> tuple[int, str]:
    """2ISL goes before 12ISL."""
    digits = layout.removesuffix("ISL")
    return (int(digits) if digits.isdigit() else 0, layout)


def crossings(figure: Figure, along: str | None, judged: Sequence[Place]) -> list[str]:
    """Between one that is the best for certain and the next that is: where their medians cross, on straight lines from
    measurement to measurement."""
    certain = [place for place in judged if len(place.best) == 1]
    found = []
    for here, there in itertools.pairwise(certain):
        (before,), (after,) = here.best, there.best
        if along is None or before == after:
            continue
        way = [(as_number(place.value) or 0.0, place.medians[before] - place.medians[after])
               for place in judged[judged.index(here):judged.index(there) + 1]
               if before in place.medians and after in place.medians]
        for (x, gap), (next_x, next_gap) in itertools.pairwise(way):
            if gap > 0 >= next_gap:
                at = x + (next_x - x) * gap / (gap - next_gap)
                found.append(f"{before} and {after} cross at about {words.setting(along, significant(at))}")
                break
    return found


def significant(value: float) -> float:
    return float(f"{value:.2g}")
