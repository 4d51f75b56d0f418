"""The ways between cores as a heat map: SVG with stand-in colours, as drawing.draw makes it.

Cells are vectors with titles, as points of plots are; of many cores several share one. Shades are equal steps of ratio,
as in the text of `islands machine FILE`.
"""

import html
import math
import statistics

from reporting import words
from reporting.drawing import AXIS, FONT, TEXT, WIDTH, title
from reporting.round_trips import RoundTrips, list_of

NAME = "round-trips"  # of the file, beside those of the figures
MOST_CELLS = 64       # in a row
MOST_NUMBERS = 16     # of cores in a row, whose cells have room for them
SIDE, LEFT, TOP = 440, 44, 26
SHADES = ((222, 235, 247), (8, 48, 107))  # from the shortest to the longest
LEGEND_STEPS = 6


def shade(trips: RoundTrips, ns: float) -> float:
    """0 of the shortest to 1 of the longest."""
    steps = math.log(trips.pairs[-1] / trips.pairs[0])
    return math.log(ns / trips.pairs[0]) / steps if steps else 0.0


def colour(share: float) -> str:
    return "#" + "".join(f"{round(low + share * (high - low)):02x}" for low, high in zip(*SHADES))


def rect(x: float, y: float, width: float, height: float, fill: str, tip: str = "") -> str:
    return (f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" '
            f'style="fill: {fill}">{title(tip) if tip else ""}</rect>')


def label(x: float, y: float, anchor: str, text: str, fill: str = TEXT) -> str:
    return f'<text x="{x:.2f}" y="{y:.2f}" style="fill: {fill}; text-anchor: {anchor}">{html.escape(text)}</text>'


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M {x1:.2f} {y1:.2f} L {x2:.2f} {y2:.2f}" style="stroke: {TEXT}; stroke-width: 1.5"/>'


def draw(trips: RoundTrips) -> str:
    """The SVG with stand-in colours, as drawing.draw makes them; there are at least two cores."""
    together = -(-len(trips.order) // MOST_CELLS)
    groups = [trips.order[at:at + together] for at in range(0, len(trips.order), together)]
    side = SIDE / len(groups)
    parts: list[str] = []
    for row, rows in enumerate(groups):
        for column, columns in enumerate(groups):
            values = [trips.ns[i][j] for i in rows for j in columns if i != j]
            if not values:
                continue
            ns = statistics.median_high(values)
            names = " and ".join(f"CPU{'s' if len(cores) > 1 else ''} {list_of([trips.cpus[core] for core in cores])}"
                                 for cores in (rows, columns))
            median = ", median" if len(values) > 1 else ""
            x, y = LEFT + column * side, TOP + row * side
            parts.append(rect(x, y, side, side, colour(shade(trips, ns)), f"{names}: {ns} ns{median}"))
            if len(trips.order) <= MOST_NUMBERS and side > 0.7 * FONT * len(str(ns)):
                parts.append(label(x + side / 2, y + side / 2 + FONT / 3, "middle", str(ns),
                                   "#ffffff" if shade(trips, ns) > 0.5 else "#1d232b"))
    every = -(-len(groups) // int(SIDE / (2.2 * FONT)))  # of the CPUs has room for its number
    for at, cores in enumerate(groups):
        if at % every == 0:
            middle, name = (at + 0.5) * side, str(trips.cpus[cores[0]])
            parts += [label(LEFT + middle, TOP - 8, "middle", name),
                      label(LEFT - 8, TOP + middle + FONT / 3, "end", name)]
    for border in borders(trips):
        x = border / together * side
        parts += [line(LEFT + x, TOP, LEFT + x, TOP + SIDE), line(LEFT, TOP + x, LEFT + SIDE, TOP + x)]
    height = TOP + SIDE + 8
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" font-family="\'DejaVu Sans\'" font-size="{FONT}">'
            f'{"".join(parts + legend(trips))}</svg>')


def borders(trips: RoundTrips) -> list[int]:
    """After how many cores a cluster of some level ends."""
    found = set()
    for level in trips.levels:
        cluster_of = {core: number for number, cores in enumerate(level.clusters) for core in cores}
        found |= {at for at in range(1, len(trips.order))
                  if cluster_of[trips.order[at]] != cluster_of[trips.order[at - 1]]}
    return sorted(found)


def legend(trips: RoundTrips) -> list[str]:
    """Shades and what they stand for, from the longest down; one, where all are alike."""
    x, low, high = LEFT + SIDE + 40, trips.pairs[0], trips.pairs[-1]
    steps = LEGEND_STEPS if high > low else 1
    parts = [label(x, TOP + FONT, "start", "ns", AXIS)]
    for step in range(steps):
        share = 1 - step / max(1, steps - 1) if steps > 1 else 0.0
        y = TOP + 24 + step * 26
        parts += [rect(x, y, 26, 26, colour(share)),
                  label(x + 36, y + 17, "start", words.number(low * (high / low) ** share))]
    return parts
