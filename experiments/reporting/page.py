"""The report's page: one HTML file without scripts and without anything from elsewhere."""

import urllib.parse
from collections.abc import Iterable, Sequence

from reporting import heat_map, round_trips, sizes, words
from reporting.conclusions import conclusions
from reporting.elements import document, table, text
from reporting.evidence import AGREES, DISAGREES, STEADY, UNKNOWN, Claim
from reporting.plots import Plot
from reporting.results import SAME, SAME_SINGLE_RUN, Figure, Stat, Sweep, Value, same_value
from sweeping.results import MEASURED

Drawn = Sequence[tuple[Plot, str]]                        # plots, and their SVG for the page
Figures = Sequence[tuple[Figure, Drawn, Sequence[str]]]  # with notes

SIGNS = {AGREES: "✓", DISAGREES: "✗", UNKNOWN: "?"}
CLASSES = {AGREES: "agrees", DISAGREES: "disagrees", UNKNOWN: "unknown"}
SIZE_SIGNS = {sizes.AGREES: ("=", "agrees"), sizes.SMALLER: ("&lt;", "disagrees"), sizes.LARGER: ("&gt;", "disagrees"),
              sizes.UNKNOWN: ("?", "unknown"), sizes.INCOMPARABLE: ("≠", "unknown"), sizes.NO_NUMBER: ("–", "unknown")}
MAX_FAILURES = 50  # listed

READING = """Every point is the <b>median</b> of its repetitions; the bar through it reaches from the <b>least to the
greatest</b> run. <b>4ISL</b> is the machine cut into four islands, each a process with its own cores, memory and share
of the data: 1ISL is shared-everything, one island per core is fine-grained and one per socket coarse-grained
shared-nothing. A <b>multisite</b> transaction touches several sites (partitions) of the data; it becomes distributed
where these lie on several islands. Rest the pointer on a point for its values and its runs."""

DECIDING = f"""A claim has two verdicts. <b>Direction</b>: whether what the paper found greater is greater here. Two
results differ if their ranges do not overlap and their medians differ by more than the typical range of a point in
that figure, and by more than {words.percent(SAME)} ({words.percent(SAME_SINGLE_RUN)} where there is one run). “Not
affected” and “competitive” mean within {words.percent(STEADY)}. <b>Size</b>: whether it is as large. The paper's
number is a factor, its gain what that exceeds 1 by ({words.times(4.5)} gains 3.5; 40 % cheaper is a factor of 1.67
and gains 0.67). The size agrees if the gain here is within a factor of {sizes.TOLERANCE:g} of it, smaller or
larger: 3.3x to 6.2x agree with 4.5x. Held against this is the whole interval of the factor here, as far as the
spread of both results lets it reach; where it lies across an end it cannot be told. Sizes cannot be compared where
this machine has more than {sizes.TOLERANCE:g} times as many cores or sockets as the paper's, or fewer by as much.
“Linear” is a factor, too: by how much the cores grew, here. What this machine cannot show, or the spread hides, is
said to be so. Counts are of claims: papers say in several sentences what one measurement shows.
<b>Durability</b> is what islands kept of what they acknowledged: nothing (none), all of it across
kills (lazy), or across losses of power, too (sync); with +forced, messages of two-phase commit waited for the log
as well. The paper's islands wrote their log to disks in memory: lazy or sync with a log there."""


def index(sweep: Sweep, figures: Figures, claims: Sequence[Claim], command: str, results: str,
          round_trips_svg: str | None) -> str:
    """`figures`: (figure, [(plot, SVG for the page)], notes) each. `results`: the way from the page to the directory
    that holds the figures' folders. `round_trips_svg`: between the machine's cores, where they were measured."""
    ways = round_trips_panel(sweep, results, round_trips_svg)
    parts = [head(sweep, figures, claims), "<main>", choices(sweep), overview(sweep, ways), runs_table(sweep),
             notes(sweep), summary(claims)]
    for figure, plots, said in figures:
        parts.append(section(sweep, figure, plots, said, [claim for claim in claims if claim.figure == figure.name],
                             f"{results}/{figure.name}"))
    parts.append(f"<footer>Made by <code>{text(command)}</code> from <code>{text(sweep.directory)}</code>. Beside this "
                 "page: each plot as SVG and CSV, the runs behind it as CSV, and claims.json. The paper, where no "
                 "other is named: OLTP on Hardware Islands, Proceedings of the VLDB Endowment 5(11), "
                 "2012.</footer></main>")
    return document(sweep.title, "\n".join(parts))


def verdict_counts(claims: Sequence[Claim]) -> dict[str, int]:
    return {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in SIGNS}


def size_counts(claims: Sequence[Claim]) -> dict[str, int]:
    return {size: sum(claim.size == size for claim in claims) for size in sizes.SIZES}


def head(sweep: Sweep, figures: Figures, claims: Sequence[Claim]) -> str:
    counts = verdict_counts(claims)
    words_of = {AGREES: "claims of the papers hold here in direction", DISAGREES: "do not", UNKNOWN:
                "cannot be told here"}
    tiles = "".join(f'<div class="tile {CLASSES[verdict]}"><b>{SIGNS[verdict]} {counts[verdict]}</b>'
                    f"{words_of[verdict]}</div>" for verdict in SIGNS)
    in_size = "; ".join(f"{text(size)} {count}" for size, count in size_counts(claims).items())
    tiles = f'<div class="tiles">{tiles}</div><p>Their size: {in_size}.</p>'
    links = "".join(f'<a href="#{text(figure.name)}">{text(figure.name)}: {text(figure.title)}</a>'
                    for figure, _, _ in figures)
    day = text(str(sweep.about.get("started") or "")[:10])
    return (f"<header><h1>{text(sweep.title)}</h1>"
            f'<p class="muted">{text(sweep.machine_summary)}{" · measured " + day if day else ""}</p>'
            + (tiles if claims else "") + f"<nav>{links}</nav></header>")


def choices(sweep: Sweep) -> str:
    """Which layout, first of all."""
    found = conclusions(sweep)
    if not found:
        return ""
    rows = [[f'<a href="#{text(one.figure.name)}">{text(one.figure.name)}</a>',
             text(one.load or one.figure.title), f"<b>{text(one.best())}</b>" +
             (f'<br/><span class="muted">by {text(words.axis_label(one.along).lower())}</span>' if one.along and
              len(one.places) > 1 else ""),
             text(one.gains()), text("; ".join(one.crossings) or "–"), text(one.latencies())] for one in found]
    header = ["Figure", "Load", "Best layout", "Over the next", "Where it changes", "Its p99"]
    said = ("By committed transactions per second. Layouts with “=” between them differ by less than their runs do; "
            "“over the next” is by how much the best does more than the best of those that are behind for certain.")
    return f'<h2>Which layout</h2><p>{said}</p><div class="wide">{table(rows, header)}</div>'


def round_trips_panel(sweep: Sweep, results: str, svg: str | None) -> str:
    if sweep.round_trips is None:
        return ""
    links = [f'<a href="{heat_map.NAME}.svg">SVG</a>'] if svg else []
    links.append(f'<a href="{text(urllib.parse.quote(results))}/{MEASURED}">{MEASURED}</a>')
    return (f'<div class="panel"><h3>From core to core and back</h3><figure>{svg or ""}<figcaption>'
            f"{text(round_trips.caption(sweep.round_trips))} "
            f'<span class="files">Files: {", ".join(links)}.</span></figcaption></figure></div>')


def overview(sweep: Sweep, beside: str) -> str:
    """`beside`: more of the machine."""
    about, system = sweep.about, sweep.about.get("system") or {}
    seconds = about.get("seconds")
    facts: list[tuple[str, object]] = [
        ("Processor", system.get("cpu")), ("Kernel", system.get("kernel")), ("System", system.get("os")),
        ("Doctor", (about.get("doctor") or {}).get("brief")),
        ("Islands", about.get("version")), ("Commit", about.get("commit")), ("Build", about.get("build")),
        ("Command", about.get("command") and f"<code>{text(about['command'])}</code>"),
        ("Begun", when(about.get("started"))), ("Finished", when(about.get("finished"))),
        ("Took", words.duration(seconds) if isinstance(seconds, (int, float)) else None),
        ("Runs", sum(figure.runs for figure in sweep.figures))]
    rows = [(name, str(value) if name == "Command" else text(value)) for name, value in facts
            if value not in (None, "")]
    machine = about.get("machine_text")
    picture = f"<pre>{text(str(machine).strip())}</pre>" if machine else f"<p>{text(sweep.machine_summary)}</p>"
    return (f'<div class="overview"><div><h2>The machine</h2>{picture}</div><div><h2>The measurement</h2>{table(rows)}'
            f'</div></div>{beside}<h2>How to read this</h2><p>{READING}</p><p>{DECIDING}</p>')


def when(time: object) -> str | None:
    """2026-11-21T12:00:00Z as people read it."""
    return str(time).replace("T", " ").replace("Z", " UTC") if time else None


def runs_table(sweep: Sweep) -> str:
    rows = []
    for figure in sweep.figures:
        plan, measure = figure.plan, figure.plan.get("measure") or {}
        planned = figure.planned()
        done = f"{figure.runs:,}" + (f" of {planned:,}" if planned and planned != figure.runs else "")
        rows.append([f'<a href="#{text(figure.name)}">{text(figure.name)}</a>',
                     text(plan.get("workload") or plan.get("program") or ""), text(axes_text(figure)),
                     text(", ".join(figure.durabilities()) or "–"), text(done),
                     text(measure.get("repeat", "")), text(f"{measure['seconds']:g}" if "seconds" in measure else ""),
                     text(f"{measure['warmup']:g}" if "warmup" in measure else ""), text(plan.get("seed", ""))])
    header = ["Figure", "Workload", "Varied", "Durability", "Runs", "Repetitions", "Seconds", "Warm-up (s)", "Seed"]
    return f'<h2>What was run</h2><div class="wide">{table(rows, header)}</div>'


def axes_text(figure: Figure) -> str:
    return "; ".join(f"{name.replace('_', ' ')} {', '.join(map(words.value_text, values))}"
                     for name, values in figure.axes.items())


def notes(sweep: Sweep) -> str:
    items = [f"<li>{text(note)}</li>" for note in sweep.all_notes()]
    failures = [(figure, point, run) for figure in sweep.figures for point, run in figure.failures]
    rows = [[text(figure.name), text(run.get("id", "")), text(words.settings(point.axes)),
             text(run.get("error") or "no reason was recorded")] for figure, point, run in failures[:MAX_FAILURES]]
    if len(failures) > MAX_FAILURES:
        items.append(f"<li>{len(failures) - MAX_FAILURES} more failed runs are not listed; see results.jsonl.</li>")
    if not items and not rows:
        return ""
    failed = "<h3>Failed runs</h3>" + table(rows, ["Figure", "Run", "Setting", "Error"]) if rows else ""
    return f"<h2>Notes</h2><ul>{''.join(items)}</ul>{failed}"


def badge(verdict: str) -> str:
    return f'<span class="verdict {CLASSES[verdict]}">{SIGNS[verdict]} {text(verdict)}</span>'


def size_badge(size: str) -> str:
    sign, kind = SIZE_SIGNS[size]
    return f'<span class="verdict {kind}">{sign} {text(size)}</span>'


def cited(claim: Claim) -> str:
    return f"{claim.source}, {claim.reference[0].lower()}{claim.reference[1:]}"


def summary(claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    rows = [[f'<a href="#{text(claim.id)}">{text(claim.id)}</a>',
             f'{text(claim.paper)}<span class="reference">“{text(claim.quote)}” {text(cited(claim))}</span>',
             text(claim.there), text(claim.here), text(claim.durability or "–"), badge(claim.verdict),
             size_badge(claim.size) + (f'<span class="reference">{text(claim.size_here)}</span>'
                                       if claim.size_here else "")]
            for claim in claims]
    header = ["Claim", "The paper says", "There", "This machine", "Durability", "Direction", "Size"]
    return f"<h2>The papers' claims, and this machine</h2>{table(rows, header, 'claims')}"


def section(sweep: Sweep, figure: Figure, plots: Drawn, said: Iterable[str], claims: Sequence[Claim],
            folder: str) -> str:
    """`folder`: the way from the page to the figure's folder."""
    parts = [f'<section id="{text(figure.name)}"><h2><span class="muted">{text(figure.name)}</span> '
             f"{text(figure.title)}</h2>"]
    if figure.reference:
        parts.append(f'<p class="muted">After {text(figure.reference)}.</p>')
    if figure.durabilities():
        parts.append(f'<p class="muted">{text(durability_text(figure))}.</p>')
    parts += [f'<p class="muted">{text(note)}</p>' for note in [*figure.notes, *said]]
    beside = claims_beside(plots, claims)
    for plot, svg in plots:
        parts.append(panel(plot, svg, beside[plot.name], len(plots) > 1 or plot.title != figure.title,
                           files(sweep, plot, folder)))
    if not plots:
        parts += map(claim_text, claims)
    return "\n".join(parts) + "</section>"


def durability_text(figure: Figure) -> str:
    logs = f", logs on {' and '.join(figure.logs_on)}" if figure.logs_on else ""
    return f"Measured with durability {', '.join(figure.durabilities())}{logs}"


def claims_beside(plots: Drawn, claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    """Each claim beside the first plot that shows what it is about; what fits nowhere, beside the first."""
    beside: dict[str, list[Claim]] = {plot.name: [] for plot, _ in plots}
    for claim in claims:
        fitting = [plot for plot, _ in plots if all(
            same_value(plot.where[name]) == same_value(value) for name, value in claim.where.items()
            if name in plot.where)]
        if plots:
            beside[(fitting or [plots[0][0]])[0].name].append(claim)
    return beside


def files(sweep: Sweep, plot: Plot, folder: str) -> str:
    """Where a plot's numbers come from: files, directories of runs, commands."""
    name, way = text(plot.name), text(urllib.parse.quote(folder))
    links = [f'<a href="{name}.svg">SVG</a>', f'<a href="{name}.csv">CSV</a>',
             f'<a href="{name}-runs.csv">every run with its command</a>',
             f'<a href="{way}/results.jsonl">results.jsonl</a>']
    if any(run.get("run_directory") for point in plot.points for run in point.runs):
        links.append(f'<a href="{way}/runs/">directories of runs</a>')
    command = sweep.about.get("command")
    made = f" Made by <code>{text(command)}</code>." if command else ""
    one = next((str(run["command"]) for point in plot.points for run in point.runs if run.get("command")), "")
    example = f" One run of it: <code>{text(one)}</code>." if one else ""
    return f'<span class="files">Files: {", ".join(links)}.{made}{example}</span>'


def panel(plot: Plot, svg: str, claims: Sequence[Claim], titled: bool, files_of: str) -> str:
    title = f"<h3>{text(plot.title)}</h3>" if titled else ""
    caption = text(plot.repetitions() + (f" Durability {plot.durability()}." if plot.durability() else ""))
    return (f'<div class="panel">{title}<figure>{svg}<figcaption>{caption} {files_of}</figcaption>'
            f"<details><summary>The numbers</summary></details><div class=\"numbers wide\">{numbers(plot)}</div>"
            f'</figure><div class="claims-beside">{"".join(map(claim_text, claims))}</div></div>')


def claim_text(claim: Claim) -> str:
    durability = f"<dt>With</dt><dd>durability {text(claim.durability)}</dd>" if claim.durability else ""
    size = f"<dt>Size</dt><dd>{text(claim.size_here)}</dd>" if claim.size_here else ""
    return (f'<div class="claim {CLASSES[claim.verdict]}" id="{text(claim.id)}">{badge(claim.verdict)} '
            f"{size_badge(claim.size)}<p>{text(claim.paper)}</p><dl><dt>There</dt><dd>{text(claim.there)}</dd>"
            f'<dt>Here</dt><dd>{text(claim.here)}</dd>{size}{durability}</dl>'
            f'<p class="reference">“{text(claim.quote)}” {text(cited(claim))}</p></div>')


def numbers(plot: Plot) -> str:
    """The table below a plot: x down, series across."""
    names = [text(words.series_label(plot.axis, value)) if plot.axis else text(plot.y_label)
             for value, _ in plot.series]
    across = "".join(f'<th class="number">{name}</th>' for name in names)
    header = f"<th>{text(words.axis_label(plot.along))}</th>{across}"
    rows = []
    for x in plot.xs:
        cells = [cell(stats.get(same_value(x)), plot, value, x) for value, stats in plot.series]
        rows.append(f"<tr><th>{text(words.value_text(x))}</th>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{header}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def cell(stat: Stat | None, plot: Plot, value: Value, x: Value) -> str:
    if stat is None:
        return '<td class="number">–</td>'
    spread = "" if stat.runs == 1 else (f'<span class="spread">{words.number(stat.low)} – {words.number(stat.high)}'
                                        "</span>")
    return f'<td class="number">{words.number(stat.median)}{text(plot.at(value, x))}{spread}</td>'


def description(plot: Plot) -> str:
    """For those who cannot see the plot."""
    return text(f"{plot.title}: {plot.y_label} by {plot.x_label}")
