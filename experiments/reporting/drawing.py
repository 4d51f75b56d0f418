"""A plot as SVG, drawn once by matplotlib with stand-in colours and then coloured twice.

Whatever stands for a point has a title, which a browser shows when the pointer rests on it.

In the page, text and axes take the colour of the text around them and series take the style sheet's colours, which
differ on light, dark and paper; a file of its own has the light colours written into it. Series differ by marker, dash
and hatch too, so that a black-and-white print can be read. Text stays text: the page's own font, searchable.
"""

import html
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from reporting import words
from reporting.plots import Plot
from reporting.results import Stat, Sweep, Value, as_number, islands_of, same_value
from reporting.style import PALETTE
from sweeping.sweep_file import ISLAND

Look = dict[str, Any]  # keyword arguments of matplotlib's

MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
DASHES = ["-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)), (0, (4, 1.5, 1, 1.5, 1, 1.5)), (0, (1, 1)),
          (0, (9, 3))]  # one less than markers and colours, so that a ninth series does not look like the first
HATCHES = ["", "//", "\\\\", "xx", "--", "||", "++", "////"]  # lines only: dots make large files
CUT_STYLES = {"SE": 0, "FG": 1, "CG": 2}

# Stand-ins, each replaced after drawing: (stand-in, in the page, in a file).
TEXT, GRID, GROUND, AXIS = "#010101", "#020202", "#030303", "#040404"
STAND_INS = [(TEXT, "currentColor", "#1d232b"), (GRID, "var(--grid)", "#e3e6ea"), (GROUND, "var(--ground)", "#ffffff"),
             (AXIS, "var(--muted)", "#69727f")]
STAND_INS += [(f"#0a00{index:02x}", f"var(--series-{index})", light) for index, (light, _) in enumerate(PALETTE)]

WIDTH, HEIGHT = 680, 400  # pixels of the page, and of a SVG's own coordinates
FONT = 12
BAR_HEIGHT = 15
HIT = 9  # radius around a marker that answers to the pointer
SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "islands", "font.family": "DejaVu Sans", "font.size": FONT,
            "hatch.linewidth": 1.0, "text.color": TEXT, "axes.labelcolor": TEXT, "xtick.labelcolor": TEXT,
            "ytick.labelcolor": TEXT, "xtick.color": AXIS, "ytick.color": AXIS, "axes.edgecolor": AXIS,
            "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "grid.color": GRID,
            "axes.formatter.use_mathtext": False, "legend.frameon": False, "path.simplify": False, "text.usetex": False,
            "text.parse_math": False}


class Styles:
    """Which style a series has: the same layout looks the same in all figures of a sweep.

    Shared-everything, one island per core and one per socket have styles of their own, so that they look alike on
    different machines too; the other layouts follow.
    """

    def __init__(self, sweep: Sweep) -> None:
        layouts = [value for figure in sweep.figures for value in figure.axes.get("layout", [])]
        counts = sorted({count for value in layouts if (count := islands_of(value)) is not None})
        named = {1: 0, sweep.cores: 1}
        if sweep.sockets > 1:
            named.setdefault(sweep.sockets, 2)
        free = iter(range(2 if 2 not in named.values() else 3, 1000))
        self.layouts = {count: named[count] if count in named else next(free) for count in counts}
        self.axes: dict[str, dict[str | float, int]] = {}
        for figure in sweep.figures:
            for name, values in figure.axes.items():
                known = self.axes.setdefault(name, {})
                for value in values:
                    known.setdefault(same_value(value), len(known))

    def index(self, axis: str | None, value: Value) -> int:
        if axis is None:
            return 1
        if axis in ("layout", "cut"):
            if str(value) in CUT_STYLES:
                return CUT_STYLES[str(value)]
            count = islands_of(value)
            if count in self.layouts:
                return self.layouts[count]
        if axis == ISLAND:
            return int(as_number(value) or 0)
        return self.axes.get(axis, {}).get(same_value(value), 0)


def colour(index: int) -> str:
    return f"#0a00{index % len(PALETTE):02x}"


def draw(plot: Plot, styles: Styles) -> str:
    """The SVG with stand-in colours."""
    with matplotlib.rc_context(SETTINGS):
        bars_lie = not plot.lines and labels_too_wide(plot)
        height = HEIGHT if not bars_lie else bars_height(plot)
        figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72)
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        handles = (draw_lines if plot.lines else draw_lying_bars if bars_lie else draw_bars)(axes, plot, styles)
        place(figure, axes, handles, plot.axis)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True,
                       metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return with_tips(out.getvalue(), plot)


MARK = re.compile(r'<use\b[^>]*?\bx="([^"]+)" y="([^"]+)"[^>]*/>')


def with_tips(svg: str, plot: Plot) -> str:
    """The SVG with a title in everything that stands for a point: bars, and a circle around each marker of a line.
    Drawing has named them tip-SERIES (a line) or tip-SERIES-PLACE (a bar)."""
    for number, (value, stats) in enumerate(plot.series):
        tips = {place: title(plot.tip(value, x, stats[same_value(x)])) for place, x in enumerate(plot.xs)
                if same_value(x) in stats}
        if not plot.lines:
            for place, tip in tips.items():
                svg = svg.replace(f'<g id="tip-{number}-{place}">', f'<g id="tip-{number}-{place}">{tip}', 1)
            continue
        marks = MARK.finditer(svg, svg.index(f'<g id="tip-{number}">'))
        circles = "".join(f'<circle cx="{mark[1]}" cy="{mark[2]}" r="{HIT}" fill="none" '
                          f'pointer-events="all">{tip}</circle>'
                          for tip, mark in zip(tips.values(), marks))
        svg = svg.replace("</svg>", f"<g>{circles}</g>\n</svg>")
    return svg


def title(tip: str) -> str:
    return f"<title>{html.escape(tip)}</title>"


def draw_lines(axes: Axes, plot: Plot, styles: Styles) -> list[Artist]:
    handles: list[Artist] = []
    places: list[float] = []
    for number, (value, stats) in enumerate(plot.series):
        index = styles.index(plot.axis, value)
        there = [(plot.place(value, x), stats[same_value(x)]) for x in plot.xs if same_value(x) in stats]
        xs, found = [x for x, _ in there], [stat for _, stat in there]
        places += xs
        look = {"color": colour(index), "marker": MARKERS[index % len(MARKERS)], "linewidth": 1.8, "markersize": 7.5,
                "linestyle": DASHES[index % len(DASHES)], "markeredgecolor": GROUND, "markeredgewidth": 0.5}
        container = axes.errorbar(xs, [stat.median for stat in found], whiskers(found), ecolor=colour(index),
                                  elinewidth=1.2, capsize=3.5, capthick=1.2, clip_on=False, zorder=3, **look)
        container[0].set_gid(f"tip-{number}")
        for part in container[1] + container[2]:
            part.set_clip_on(False)  # a marker at the edge of the plot is drawn whole
        handles.append(Line2D([], [], label=words.series_label(plot.axis, value) if plot.axis else "", **look))
    for number, estimate in plot.estimates.items():
        index = styles.index(plot.axis, plot.series[number][0])
        axes.plot(list(estimate), list(estimate.values()), color=colour(index), linewidth=1.2, linestyle=":", zorder=2)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    if plot.measured_x:
        value_axis(axes.xaxis, axes.set_xlim, places)
    else:
        x_axis(axes, sorted(set(places)))
    value_axis(axes.yaxis, axes.set_ylim, plot.tops())
    axes.grid(axis="y")
    return handles


def x_axis(axes: Axes, xs: Sequence[float]) -> None:
    """Ticks where there are measurements, as far as their labels do not touch."""
    low, high = min(xs), max(xs)
    if low > 0 and high / low >= 200:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(low / 1.15, high * 1.15)
    else:
        margin = 0.02 * (high - low) or 1
        axes.set_xlim(low - margin, high + margin)
    places = axes.transData.transform([(x, 0) for x in xs])[:, 0]
    ticks: list[float] = []
    end: float | None = None
    for x, place in zip(xs, places):
        half = 0.5 * FONT * 0.65 * len(words.value_text(x)) + 4
        if end is None or place - half >= end:
            ticks.append(x)
            end = place + half
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(
        lambda x, _: words.number(x) if abs(x) >= 1e5 else words.value_text(x)))


def value_axis(axis: Axis, set_limits: Callable[[float, float], object], tops: Sequence[float]) -> None:
    """From zero to the largest of them, with one scale for all its numbers."""
    top = max(tops, default=1)
    top = top if top > 0 else 1
    scale, letter = next(((scale, letter) for scale, letter in words.SCALES if top >= scale), (1, ""))
    set_limits(0, top * 1.06)
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda y, _: f"{y / scale:g}{letter if y else ''}"))


def group_places(plot: Plot) -> tuple[float, list[float]]:
    """(width of a bar, its place in each group): parts are on top of each other."""
    if plot.parts:
        return 0.7, [0.0] * len(plot.series)
    width = 0.8 / max(1, len(plot.series))
    return width, [(index + 0.5) * width - 0.4 for index in range(len(plot.series))]


def labels_too_wide(plot: Plot) -> bool:
    room = (WIDTH - 90) / max(1, len(plot.xs))
    if plot.parts:
        return False
    return any(len(words.value_text(x)) * FONT * 0.62 + 8 > room for x in plot.xs) or room / len(plot.series) < 14


def bars_height(plot: Plot) -> float:
    return max(220, 130 + (BAR_HEIGHT + 2) * len(plot.xs) * len(plot.series) / 0.8)


class Bar(NamedTuple):
    name: str  # for with_tips
    place: float
    stat: Stat


def bars(plot: Plot, styles: Styles) -> Iterator[tuple[float, list[Bar], Look, str]]:
    """Per series: the width of its bars, these, and their look. Layouts side by side each look as they always do."""
    width, offsets = group_places(plot)
    for number, ((value, stats), offset) in enumerate(zip(plot.series, offsets)):
        there = [Bar(f"tip-{number}-{place}", place + offset, stats[same_value(x)]) for place, x in enumerate(plot.xs)
                 if same_value(x) in stats]
        if plot.axis is None and plot.x in ("layout", "cut"):
            places = {place + offset: x for place, x in enumerate(plot.xs)}
            for bar in there:
                yield width, [bar], bar_look(styles.index(plot.x, places[bar.place])), ""
        else:
            label = words.series_label(plot.axis, value) if plot.axis else ""
            yield width, there, bar_look(styles.index(plot.axis, value), plot.axis is not None), label


def bar_look(index: int, hatched: bool = True) -> Look:
    return {"facecolor": colour(index), "hatch": HATCHES[index % len(HATCHES)] if hatched else "", "edgecolor": GROUND,
            "linewidth": 0.8}


def draw_bars(axes: Axes, plot: Plot, styles: Styles) -> list[Artist]:
    handles = draw_parts(axes, plot, styles) if plot.parts else []
    for width, there, look, label in bars(plot, styles) if not plot.parts else ():
        places, stats = [bar.place for bar in there], [bar.stat for bar in there]
        name_all(axes.bar(places, [stat.median for stat in stats], width * 0.94, **look), there)
        axes.errorbar(places, [stat.median for stat in stats], whiskers(stats), fmt="none", ecolor=TEXT,
                      elinewidth=1.2, capsize=3.5, capthick=1.2)
        if width * (WIDTH - 90) / len(plot.xs) >= 34:
            for _, place, stat in there:
                axes.annotate(words.number(stat.median), (place, stat.high), (0, 5), textcoords="offset points",
                              ha="center", va="bottom", size=FONT - 1)
        handles.append(Patch(label=label, **look))
    axes.set_xticks(range(len(plot.xs)), [words.value_text(x) for x in plot.xs])
    axes.set_xlim(-0.55, len(plot.xs) - 0.45)
    axes.tick_params(axis="x", length=0, pad=6)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    value_axis(axes.yaxis, lambda low, high: axes.set_ylim(low, high * 1.06), plot.tops())
    axes.grid(axis="y")
    return handles


def draw_parts(axes: Axes, plot: Plot, styles: Styles) -> list[Artist]:
    """The parts of a whole, on top of each other, with the whole written above."""
    handles: list[Artist] = []
    ends = {float(place): 0.0 for place in range(len(plot.xs))}
    for number, (width, there, _, label) in enumerate(bars(plot, styles)):
        # There are more parts than colours: the second of a colour has another hatch.
        look = {**bar_look(number), "hatch": HATCHES[(number + 3 * (number // len(PALETTE))) % len(HATCHES)]}
        heights, bottoms = [bar.stat.median for bar in there], [ends[bar.place] for bar in there]
        name_all(axes.bar([bar.place for bar in there], heights, width, bottoms, **look), there)
        ends.update((bar.place, bottom + height) for bar, bottom, height in zip(there, bottoms, heights))
        handles.append(Patch(label=label, **look))
    for place, end in ends.items():
        axes.annotate(words.number(end), (place, end), (0, 5), textcoords="offset points", ha="center", va="bottom",
                      size=FONT - 1)
    return handles


def draw_lying_bars(axes: Axes, plot: Plot, styles: Styles) -> list[Artist]:
    """For labels too wide to stand beside each other, and for many bars."""
    handles = []
    for width, there, look, label in bars(plot, styles):
        places, stats = [bar.place for bar in there], [bar.stat for bar in there]
        name_all(axes.barh(places, [stat.median for stat in stats], width * 0.94, **look), there)
        axes.errorbar([stat.median for stat in stats], places, xerr=whiskers(stats), fmt="none", ecolor=TEXT,
                      elinewidth=1.2, capsize=3, capthick=1.2)
        for _, place, stat in there:
            axes.annotate(words.number(stat.median), (stat.high, place), (7, 0), textcoords="offset points",
                          ha="left", va="center", size=FONT - 1)
        handles.append(Patch(label=label, **look))
    axes.set_yticks(range(len(plot.xs)), [words.value_text(x) for x in plot.xs])
    axes.set_ylim(len(plot.xs) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0, pad=6)
    axes.set_xlabel(plot.y_label)
    axes.set_ylabel(plot.x_label)
    value_axis(axes.xaxis, lambda low, high: axes.set_xlim(low, high * 1.09), plot.tops())
    axes.grid(axis="x")
    return handles


def name_all(drawn: Iterable[Artist], there: Sequence[Bar]) -> None:
    for patch, bar in zip(drawn, there):
        patch.set_gid(bar.name)


def whiskers(stats: Sequence[Stat]) -> list[list[float]]:
    return [[stat.median - stat.low for stat in stats], [stat.high - stat.median for stat in stats]]


def place(figure: Figure, axes: Axes, handles: Sequence[Artist], axis: str | None) -> None:
    """The legend above the plot, as many entries beside each other as there is room for; the axes below it."""
    top = 1.0
    width, height = figure.get_size_inches() * 72
    if axis and handles:
        for columns in range(len(handles), 0, -1):
            rows_first = [handle for column in range(columns) for handle in handles[column::columns]]
            legend = figure.legend(handles=rows_first, loc="upper left", bbox_to_anchor=(0, 1), ncol=columns,
                                   handlelength=2.8, columnspacing=1.6, borderaxespad=0.2, borderpad=0.2)
            box = legend.get_window_extent(figure.canvas.get_renderer())
            if box.width <= width - 8 or columns == 1:
                break
            legend.remove()
        top = 1 - (box.height + 8) / height
    figure.tight_layout(pad=0.4, rect=(0, 0, 1, top))


ID = re.compile(r'\bid="([^"]+)"')
HEAD = re.compile(r"^.*?(?=<svg\b)", re.S)


def inline(svg: str, name: str, description: str) -> str:
    """The SVG for the page: the page's colours and font, ids that no other plot has, and nothing from elsewhere."""
    for stand_in, themed, _ in STAND_INS:
        svg = svg.replace(stand_in, themed)
    svg = HEAD.sub("", svg)
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.S)
    svg = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href=", "href=")
    svg = prefixed(svg, name)
    svg = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--font)", svg)
    opening = f'<svg class="plot" role="img" aria-label="{description}" viewBox="0 0 {size_of(svg)}"'
    return re.sub(r"<svg\b[^>]*", lambda _: opening, svg, count=1).strip()


def standalone(svg: str, name: str) -> str:
    """The SVG as a file: light, on white, with fonts that are everywhere."""
    for stand_in, _, light in STAND_INS:
        svg = svg.replace(stand_in, light)
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.S)
    svg = prefixed(svg, name)
    svg = re.sub(r"'DejaVu Sans'[^;\"]*", "'DejaVu Sans', Verdana, Arial, sans-serif", svg)
    svg = re.sub(r"<!DOCTYPE.*?>\s*", "", svg, flags=re.S)
    return re.sub(r"(<svg\b[^>]*>)", r'\1<rect width="100%" height="100%" fill="#ffffff"/>', svg, count=1)


def prefixed(svg: str, name: str) -> str:
    svg = ID.sub(lambda match: f'id="{name}-{match.group(1)}"', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    return re.sub(r"url\(#", f"url(#{name}-", svg)


def size_of(svg: str) -> str:
    found = re.search(r'viewBox="0 0 ([\d. ]+)"', svg)
    assert found, "matplotlib writes one"
    return found.group(1)
