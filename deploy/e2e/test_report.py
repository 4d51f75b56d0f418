"""`islands report` on made-up results: claims, plots, pages, comparisons, and what may be missing."""

import csv
import html
import html.parser
import json
import os
import random
import re
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import report_results
from report_results import bend, kept, measuring, read
from conftest import ROOT, Document, Islands, Result

sys.path.insert(0, os.path.join(ROOT, "experiments"))

from reporting import against, claims, conclusions, confidence, plots, results, words  # noqa: E402
from reporting.results import Value  # noqa: E402

REPORT = os.path.join(ROOT, "experiments", "report.py")


def matplotlib_there() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


needs_matplotlib = pytest.mark.skipif(not matplotlib_there(), reason="no matplotlib")


def run_report(*arguments: object, cwd: str | None = None, **environment: str) -> Result:
    done = subprocess.run([sys.executable, REPORT, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          cwd=cwd, env={**os.environ, **environment})
    return Result(done.returncode, done.stdout, done.stderr)


class Page(html.parser.HTMLParser):
    """Tags that match, ids, what the page refers to, and its text."""

    VOID = {"meta", "br", "img", "link", "input", "hr"}

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str | None] = []
        self.references: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]], closed: bool = False) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src", "xlink:href", "action", "srcset"):
                self.references.append(value or "")
            self.references += [f"#{found}" for found in re.findall(r"url\(#([^)]*)\)", value or "")]
        if not closed and tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes, closed=True)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def check_page(source: str) -> Page:
    """Well-formed, ids unique, every reference inside or a file beside the page, no scripts."""
    page = Page(source)
    xml.etree.ElementTree.fromstring(source.removeprefix("<!DOCTYPE html>").strip())
    assert len(page.ids) == len(set(page.ids))
    for reference in page.references:
        if reference.startswith("#"):
            assert reference[1:] in page.ids, reference
        else:
            there = r"[\w.-]+\.(svg|csv)|\.\./(measured\.json|\w+/(results\.jsonl|runs/))"
            assert re.fullmatch(there, reference), reference
    assert "script" not in page.tags
    assert "://" not in source and "@import" not in source
    assert not re.search(r'\son\w+="', source)
    return page


# Durability


@needs_matplotlib
def test_report_names_durabilities(folder: str) -> None:
    report_results.write_results(folder, "quad-socket", ["fig02", "fig07", "fig09"])
    kept(folder, "fig07", None, none=1, lazy=10)
    kept(folder, "fig09", "sync")
    done = run_report(folder)
    assert "Here, durability sync: " in done.out and "Here, durability lazy: " in done.out
    source = read(folder, "report", "index.html")
    text = check_page(source).text()
    for part in ("Measured with durability none, lazy, logs on tmpfs.", "Measured with durability sync, logs on tmpfs.",
                 "to the greatest run. Durability sync. Files"):
        assert part in text, part
    # Points of both would share their places in one plot: each durability has its own.
    panels = [panel for panel in source.split('class="panel"') if "Payment, durability" in panel]
    assert [re.findall(r'id="(fig07\.\w+)\.1"', panel) for panel in panels] == [["fig07.none"], ["fig07.lazy"]]
    assert "durability" not in source.split('<section id="fig02"')[1].split("</section>")[0]
    rows = list(csv.DictReader(read(folder, "report", "fig09-1.csv").splitlines()))
    assert {row["durability"] for row in rows} == {"sync"}
    rows = list(csv.DictReader(read(folder, "report", "fig07-2.csv").splitlines()))
    assert {row["durability"] for row in rows} == {"lazy"}
    assert "durability" not in read(folder, "report", "fig02-1.csv")


def test_against_says_that_durability_differs(folder: str) -> None:
    a, b = compare_two(folder, None, ["fig07", "fig09"])
    kept(b, "fig09", "lazy")
    done = run_report(a, "--against", b)
    assert "note: fig09: different durability: A none, B lazy" in done.out and "fig07: different" not in done.out


# Reading


@pytest.mark.parametrize("a, b, order", [
    ([10, 11, 12], [20, 21, 22], "<"), ([20, 21, 22], [10, 11, 12], ">"), ([10, 15, 21], [20, 21, 22], "~"),
    ([100, 100.1], [101, 101.1], "~"), ([10], [10.4], "~"), ([10], [11], "<"), ([0], [0], "~"), ([0, 0], [0, 0], "~")])
def test_compare(a: list[float], b: list[float], order: str) -> None:
    assert results.compare(results.Stat(a), results.Stat(b)) == order


def test_compare_asks_for_more_than_the_typical_range() -> None:
    assert results.compare(results.Stat([10, 10.1], 0.2), results.Stat([11, 11.1], 0.2)) == "~"


def test_failed_and_repeated_runs(folder: str) -> None:
    report_results.write_results(folder, "two-cores", ["fig07"])
    path = os.path.join(folder, "fig07", "results.jsonl")
    with open(path, "a", encoding="utf-8") as file:
        again = json.loads(read(path).splitlines()[0])
        failed = again | {"repetition": 7, "ok": False, "error": "island 1 <died>", "metrics": {}}
        file.write(json.dumps(again | {"metrics": {"committed_per_s": 5.0}}) + "\n")  # replaces the first
        file.write(json.dumps(failed) + "\n" + '{"id": "0009", "axes": {"lay')
    sweep = results.load(folder)
    figure = sweep.figure("fig07")
    assert figure
    stat = next(point for point in figure.points if point.axes == again["axes"]).stat("committed_per_s")
    assert stat and stat.low == 5.0 and stat.runs == 3
    assert figure.runs == 6 and len(figure.failures) == 1
    notes = list(sweep.all_notes())
    assert any("1 unreadable line " in note for note in notes)
    assert any("1 run failed and counts" in note for note in notes)


def test_notes_of_an_incomplete_sweep_of_two_builds(folder: str) -> None:
    def change(figure: str, line: Document) -> Document | None:
        return None if line["repetition"] == 2 else line | {"build": f"build{line['repetition']}"}

    report_results.write_results(folder, "two-cores", ["fig07"], change=change, complete=False, notes=["went on"])
    notes = " ".join(results.load(folder).all_notes())
    for words_of in ("went on", "incomplete", "2 builds (build0, build1)", "2 of 6 runs have not been made"):
        assert words_of in notes


def test_skipped_runs_are_said_and_not_missing(folder: str) -> None:
    def change(figure: str, line: Document) -> Document:
        skipped = line["axes"]["where"] == "same-core"
        return measuring(line) | {"skipped": "one core: no neighbour"} if skipped else line

    report_results.write_results(folder, "two-cores", ["fig06"], change=change)
    notes = list(results.load(folder).all_notes())
    assert notes == ["fig06: one core: no neighbour"]


def test_figure_that_has_not_begun(folder: str) -> None:
    report_results.write_results(folder, "two-cores", ["fig07"])
    about = json.loads(read(folder, "sweep.json"))
    report_results.write_json(os.path.join(folder, "sweep.json"), about | {"figures": ["fig07", "fig09", "../etc"]})
    sweep = results.load(folder)
    assert [figure.name for figure in sweep.figures] == ["fig07"]
    assert "fig09 has not been started" in sweep.notes[0] and "no folder's name" in sweep.notes[1]


@pytest.mark.parametrize("value, text", [(0, "0"), (0.25, "0.25"), (999.9, "1k"), (1234567, "1.23M"),
                                         (9.5278e9, "9528M"), (12345, "12.3k"), (99, "99"), (1e-5, "1.0e-05")])
def test_numbers(value: float, text: str) -> None:
    assert words.number(value) == text


@pytest.mark.parametrize("ratio, text", [(1.04, "1.04x"), (4.53, "4.5x"), (516.8, "517x")])
def test_times(ratio: float, text: str) -> None:
    assert words.times(ratio) == text


# Plots


def user_sweep(folder: str, axes: Mapping[str, Sequence[Value]], plots_named: Sequence[Document] = (), repeat: int = 2,
               **metrics: float) -> tuple[list[plots.Plot], list[str]]:
    """A sweep of one's own: every combination of the axes, each run with these metrics."""
    model = report_results.Model("one-socket")
    listed = [report_results.axis(name, *values) for name, values in axes.items()]
    spec: report_results.Figure = ("Mine", "micro", listed, [], lambda model, point: 1000.0, 0.1)
    lines = report_results.lines_of(model, spec, repeat, random.Random(1),
                                    lambda line: line | {"metrics": metrics or {"committed_per_s": 1000.0}})
    report_results.write_figure(folder, "mine", "Mine", "micro", listed, list(plots_named), filter(None, lines), repeat)
    report_results.write_sweep(folder, ["mine"], model)
    return plots.plots_of(results.load(folder).figures[0])


def test_default_plot_takes_the_longest_numeric_axis_and_layouts(folder: str) -> None:
    found, notes = user_sweep(folder, {"layout": ["1ISL", "8ISL"], "multisite": [0, 50, 100], "op": ["read", "update"]})
    assert [(plot.x, plot.axis, plot.y, plot.lines) for plot in found] == [
        ("multisite", "layout", "committed_per_s", True)] * 2
    assert [plot.title for plot in found] == ["Mine, op read", "Mine, op update"]
    assert [plot.name for plot in found] == ["mine-1", "mine-2"] and notes == []


def test_default_plot_of_words_is_bars(folder: str) -> None:
    found, _ = user_sweep(folder, {"transport": ["uds", "zmq"], "layout": ["1ISL", "8ISL"]})
    assert [(plot.x, plot.axis, plot.lines) for plot in found] == [("transport", "layout", False)]


def test_default_plots_end_at_twelve_and_say_so(folder: str) -> None:
    axes = {"zipf": list(range(20)), "mpl": list(range(15)), "rows": list(range(14))}
    found, notes = user_sweep(folder, axes, repeat=1)
    assert (found[0].x, found[0].axis) == ("zipf", "mpl")
    assert len(found) == 12 and "2 more combinations of rows" in notes[0]


def test_default_plot_without_the_usual_metrics(folder: str) -> None:
    found, notes = user_sweep(folder, {"mpl": [1, 2]}, depth=3.0, other=4.0)
    assert found[0].y == "depth" and "Also measured: other" in notes[0]


@pytest.mark.parametrize("plot, reason", [
    ({"title": "T", "x": "rows", "y": "committed_per_s"}, "no axis rows"),
    ({"title": "T", "x": "mpl", "y": "speed"}, "no run measured speed"),
    ({"title": "T", "x": "mpl", "where": {"op": "read"}, "y": "committed_per_s"}, "no run with op read"),
    ({"title": "T", "y": "committed_per_s"}, "names no x")])
def test_plots_that_cannot_be_drawn_are_said(folder: str, plot: Document, reason: str) -> None:
    found, notes = user_sweep(folder, {"mpl": [1, 2]}, [plot])
    assert found == [] and reason in notes[0]


def test_axis_values_may_be_spelled_differently(folder: str) -> None:
    found, _ = user_sweep(folder, {"mpl": [1, 2], "multisite": [0, 50]},
                          [{"title": "T", "where": {"multisite": "50"}, "x": "mpl", "y": "committed_per_s"}])
    assert len(found) == 1 and len(found[0].series[0][1]) == 2


def test_csv(folder: str) -> None:
    report_results.write_results(folder, "quad-socket", ["fig09"],
                                 change=bend("fig09", None, layout="8ISL", multisite=60))
    plot = plots.plots_of(results.load(folder).figures[0])[0][0]
    rows = list(csv.DictReader(plot.csv().splitlines()))
    assert list(rows[0]) == ["figure", "op", "layout", "multisite", "committed_per_s_median", "committed_per_s_min",
                             "committed_per_s_max", "runs", "durability"]
    assert len(rows) == 6 * 6 - 1
    assert [row["layout"] for row in rows[::6]] == ["1ISL", "2ISL", "4ISL", "8ISL", "12ISL", "24ISL"]
    for row in rows:
        low, median, high = (float(row[f"committed_per_s_{name}"]) for name in ("min", "median", "max"))
        assert low <= median <= high and row["runs"] == "3" and row["op"] == "read"


def test_estimate_is_a_line_between_the_ends(folder: str) -> None:
    report_results.write_results(folder, "quad-socket", ["fig05"])
    plot = plots.plots_of(results.load(folder).figures[0])[0][0]
    rows = [row for row in csv.DictReader(plot.csv().splitlines()) if row["cut"] == "FG"]
    first, middle, last = ({name: float(row[name]) for name in ("committed_per_s_median", "estimate")} for row in rows)
    assert first["estimate"] == first["committed_per_s_median"] and last["estimate"] == last["committed_per_s_median"]
    assert middle["estimate"] == pytest.approx((first["estimate"] + last["estimate"]) / 2, rel=1e-4)
    assert middle["estimate"] > 1.1 * middle["committed_per_s_median"], "costs add up, and rates do not"


def test_estimate_needs_both_ends(folder: str) -> None:
    report_results.write_results(folder, "quad-socket", ["fig05"], change=bend("fig05", None, cut="FG", multisite=100))
    plot = plots.plots_of(results.load(folder).figures[0])[0][0]
    assert {row["cut"]: row["estimate"] != "" for row in csv.DictReader(plot.csv().splitlines())} == {"SE": True,
                                                                                                     "FG": False}


def test_parts_are_series_on_top_of_each_other(folder: str) -> None:
    report_results.write_results(folder, "quad-socket", ["fig11"])
    plot = plots.plots_of(results.load(folder).figures[0])[0][0]
    assert [name for name, _ in plot.series] == ["executing", "building", "waiting"], "idle is nothing here"
    wholes = [float(row["us_per_transaction"]) for row in csv.DictReader(plot.runs_csv("").splitlines())
              if row["layout"] == "24ISL"]
    assert min(wholes) <= plot.tops()[-1] <= max(wholes)
    rows = list(csv.DictReader(plot.csv().splitlines()))
    assert {row["part"] for row in rows} == {"executing", "building", "waiting"} and len(rows) == 3 * 6


def test_csv_of_runs_has_directories_and_commands(folder: str) -> None:
    report_results.write_results(folder, "quad-socket", ["tab01", "fig09"])
    sweep = results.load(folder)
    program, plot = (plots.plots_of(figure)[0][0] for figure in sweep.figures)
    rows = list(csv.DictReader(plot.runs_csv("../fig09").splitlines()))
    assert list(rows[0]) == ["figure", "layout", "op", "multisite", "repetition", "committed_per_s", "run_directory",
                             "command"]
    assert len(rows) == 6 * 6 * 3 and {row["op"] for row in rows} == {"read"}
    found = [json.loads(line) for line in read(folder, "fig09", "results.jsonl").splitlines()]
    lines = {f"../fig09/{line['run_directory']}": line for line in found}
    for row in rows:
        line = lines[row["run_directory"]]
        assert row["layout"] == line["axes"]["layout"] and row["command"] == line["command"]
        assert float(row["committed_per_s"]) == pytest.approx(line["metrics"]["committed_per_s"], rel=1e-5)
    rows = list(csv.DictReader(program.runs_csv("../tab01").splitlines()))
    assert {row["run_directory"] for row in rows} == {""} and len(rows) == 9, "programs leave no directories"


# Pages


@needs_matplotlib
def lines_with(rates: Mapping[tuple[str, int], Sequence[float]]) -> results.Figure:
    """A figure of layouts by multisite percentage; p99 is a tenth of the rate."""
    lines = [{"id": f"{number}-{repetition}", "ok": True, "axes": {"layout": layout, "multisite": multisite},
              "metrics": {"committed_per_s": rate, "latency_p99_us": rate / 10}}
             for number, ((layout, multisite), found) in enumerate(rates.items())
             for repetition, rate in enumerate(found)]
    return results.Figure("mine", "", {"axes": []}, lines, [])


def test_conclusions_say_which_layout_and_where_it_changes() -> None:
    one, = conclusions.of_figure(lines_with({
        ("1ISL", 0): [100, 101], ("2ISL", 0): [200, 201], ("1ISL", 20): [90, 99], ("2ISL", 20): [95, 96],
        ("1ISL", 100): [80, 80], ("2ISL", 100): [20, 20]}))
    assert one.best() == "2ISL at 0, 1ISL = 2ISL at 20, 1ISL at 100"
    assert one.gains() == "2.00x to 4.0x" and one.load == "" and one.along == "multisite"
    # From 95.5 against 94.5 at 20 % to 20 against 80 at 100 %: 1 of 61 parts of the way.
    assert one.crossings == ["2ISL and 1ISL cross at about multisite 21 %"]
    assert [place.latency_us for place in one.places] == [20.05, 9.55, 8.0]
    always, = conclusions.of_figure(lines_with({("1ISL", 0): [1, 1], ("2ISL", 0): [2, 2], ("1ISL", 9): [1, 1],
                                                ("2ISL", 9): [2, 2]}))
    assert (always.best(), always.gains(), always.crossings) == ("2ISL", "2.0x", [])
    assert conclusions.of_figure(lines_with({("1ISL", 0): [1], ("1ISL", 9): [2]})) == []


@needs_matplotlib
def test_page_begins_with_conclusions(folder: str) -> None:
    report_results.write_results(folder, "quad-socket", ["fig09", "tab01"])
    assert run_report(folder).code == 0
    page = read(folder, "report", "index.html")
    assert page.index("Which layout") < page.index("The machine")
    assert "24ISL at 0" in page[page.index("Which layout"):page.index("The machine")]


@pytest.mark.parametrize("machine", ["two-cores", "quad-socket"])
def test_report(folder: str, machine: str) -> None:
    report_results.write_results(folder, machine)
    done = run_report(folder)
    assert done.code == 0 and done.err == "", done
    assert f"report: {folder}/report/index.html" in done.out
    document = json.loads(read(folder, "report", "claims.json"))
    assert f"of {len(document['claims'])} claims of the papers {document['agree']} hold here in direction" in done.out
    page = check_page(read(folder, "report", "index.html"))
    assert page.tags.count("svg") == 37
    assert {*claims.FIGURES, *claims.ACROSS_DURABILITIES} <= set(page.ids)
    assert {claim["id"] for claim in document["claims"]} <= set(page.ids)
    text = page.text()
    for part in ("package 0: Example CPU", "islands sweep experiments/quick.yaml", "Example CPU 3 GHz", "4 min 47 s",
                 "1 problem: swappiness 60; unknown: turbo",
                 "Committed transactions per second", "Multisite transactions (%)", "1ISL (shared-everything)"):
        assert part in text
    names = os.listdir(os.path.join(folder, "report"))
    for name in ("fig09-1", "fig09-2", "fig10-4", "tab01-1"):
        assert f"{name}.svg" in names and f"{name}.csv" in names
        root = xml.etree.ElementTree.fromstring(read(folder, "report", f"{name}.svg"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(--" not in read(folder, "report", "fig09-1.svg") and "#0a00" not in read(folder, "report", "index.html")


@needs_matplotlib
@pytest.mark.parametrize("name", ["fig09", "fig06", "tab01", "lockmgr_mpl", "fig11", "fig05"])
def test_every_point_answers_to_the_pointer(folder: str, name: str) -> None:
    """A title for each point, within what stands for it, with its values and its runs; on the page and in the file."""
    report_results.write_results(folder, "quad-socket", [name],
                                 change=lambda figure, line: None if line["axes"].get("layout") == "8ISL" and
                                 line["axes"]["multisite"] == 40 else line)  # a gap in one line
    assert run_report(folder).code == 0
    page = read(folder, "report", "index.html")
    figure = results.load(folder).figures[0]
    for plot in plots.plots_of(figure)[0]:
        wanted = sorted(plot.tip(value, x, stats[results.same_value(x)]) for value, stats in plot.series
                        for x in plot.xs if results.same_value(x) in stats)
        root = xml.etree.ElementTree.fromstring(read(folder, "report", f"{plot.name}.svg"))
        svg = "{http://www.w3.org/2000/svg}"
        titled = [(parent.tag.removeprefix(svg), title.text) for parent in root.iter()
                  for title in parent.findall(f"{svg}title")]
        assert sorted(str(text) for _, text in titled) == wanted
        assert {tag for tag, _ in titled} == {"circle" if plot.lines else "g"}
        assert all(page.count(f"<title>{html.escape(text)}</title>") for text in wanted)
    if name == "fig09":
        points = figure.select({"layout": "4ISL", "op": "read", "multisite": 20})
        stat = figure.stat(points[0], "committed_per_s")
        assert stat and (f"<title>4ISL, multisite 20 %: {words.quantity('committed_per_s', stat.median)} "
                         f"({words.number(stat.low)} to {words.number(stat.high)}, 3 runs: "
                         f"{', '.join(run['id'] for run in points[0].runs)})</title>") in page
        check_place_of_titles(read(folder, "report", "fig09-1.svg"))


def check_place_of_titles(svg: str) -> None:
    """Higher values lie higher: the circles stand where the markers of their line are."""
    circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"[^>]*><title>(\w+), multisite (\d+) %: '
                         r'([\d.]+)([Mk]?)/s', svg)
    assert len(circles) == 6 * 6 - 1
    found = [(float(x), float(y), int(share), float(number) * {"M": 1e6, "k": 1e3}[unit])
             for x, y, _, share, number, unit in circles]
    assert [value for _, _, _, value in sorted(found, key=lambda one: one[1])] == sorted(
        (value for *_, value in found), reverse=True)
    assert len({(round(x, 3), share) for x, _, share, _ in found}) == 6, "one place for each share"


@needs_matplotlib
def test_plots_link_to_what_they_are_made_of(folder: str) -> None:
    report_results.write_results(folder, "two-cores", ["fig07", "tab01"])
    os.makedirs(os.path.join(folder, "fig07", "runs", "0000"))
    assert run_report(folder).code == 0
    page = read(folder, "report", "index.html")
    page_of = {name: page.split(f'<section id="{name}">')[1].split("</section>")[0] for name in ("fig07", "tab01")}
    links = re.findall(r'href="([^#"]+)"', page_of["fig07"])
    assert links == ["fig07-1.svg", "fig07-1.csv", "fig07-1-runs.csv", "../fig07/results.jsonl", "../fig07/runs/"]
    assert all(os.path.exists(os.path.join(folder, "report", link)) for link in links)
    assert "../tab01/runs/" not in page_of["tab01"]
    for part in ("Made by <code>islands sweep experiments/quick.yaml</code>",
                 "<code>islands run deployment.yaml payment --seed 1</code>"):
        assert part in page_of["fig07"]
    elsewhere = os.path.join(folder, "else", "where")
    assert run_report(folder, "--output", elsewhere).code == 0
    assert 'href="../../fig07/results.jsonl"' in read(elsewhere, "index.html")


@needs_matplotlib
def test_page_has_both_verdicts(folder: str) -> None:
    report_results.write_results(folder, "quad-socket", ["fig07", "fig09"])
    done = run_report(folder)
    document = json.loads(read(folder, "report", "claims.json"))
    assert document["sizes"]["agrees"] == 1 and document["sizes"]["larger"] == 2 and document["tolerance"] == 1.5
    assert sum(document["sizes"].values()) == len(document["claims"])
    first = document["claims"][0]
    assert (first["verdict"], first["size"], first["source"]) == ("agrees", "agrees", "OLTP on Hardware Islands")
    assert first["quote"].endswith("outperforms shared-everything by 4.5x")
    assert "; size: agrees (4." in done.out and "in size: agrees 1, smaller 0, larger 2" in done.out
    text = check_page(read(folder, "report", "index.html")).text()
    for part in ("Their size: agrees 1; smaller 0; larger 2;", "within a factor of 1.5 of it", "= agrees", "&gt; "
                                                                                                           "larger",
                 "“The fine-grained shared-nothing configuration outperforms shared-everything by 4.5x” OLTP on "
                 "Hardware "
                 "Islands, section 6.1, Figure 7", "a read exchanges 4 messages"):
        assert part.replace("&gt;", ">") in text, part


@needs_matplotlib
def test_report_as_json_to_another_folder(folder: str) -> None:
    report_results.write_results(os.path.join(folder, "r"), "two-cores", ["fig07"])
    done = run_report(os.path.join(folder, "r"), "--format", "json", "--output", os.path.join(folder, "out"))
    document = json.loads(done.out)
    assert document["page"] == os.path.join(folder, "out", "index.html") and os.path.exists(document["page"])
    assert document["agree"] == 1 and document["claims"][0]["verdict"] == "agrees"
    assert not os.path.exists(os.path.join(folder, "r", "report"))


@needs_matplotlib
def test_hostile_texts_stay_text(folder: str) -> None:
    bad = "</title><script>alert('x')</script> \"&amp; $x^2$ \u2028"
    axes: dict[str, list[Value]] = {"layout": ["1ISL", bad], "op": [bad, "<b>"], "mpl": [1, 2]}
    user_sweep(folder, axes, [{"title": bad, "x": "mpl", "series": "layout", "y": "committed_per_s", "y_label": bad},
                              {"title": bad, "x": "op", "series": "layout", "y": "committed_per_s"}])
    with open(os.path.join(folder, "mine", "results.jsonl"), "a", encoding="utf-8") as file:
        file.write(json.dumps({"id": bad, "repetition": 9, "axes": {"layout": bad, "op": bad, "mpl": 1}, "ok": False,
                               "error": bad}) + "\n")
    about = json.loads(read(folder, "sweep.json"))
    report_results.write_json(os.path.join(folder, "sweep.json"), about | {
        "title": bad, "notes": [bad], "machine_text": bad, "command": bad, "system": {"cpu": bad}})
    done = run_report(folder)
    assert done.code == 0, done
    page = check_page(read(folder, "report", "index.html"))
    assert page.text().count("alert('x')") > 10


@needs_matplotlib
def test_report_of_little(folder: str) -> None:
    """No result at all, one run only, and documents that lack everything optional."""
    report_results.write_results(folder, "two-cores", ["fig07", "fig09"], repeat=1,
                                 change=lambda figure, line: line if figure == "fig07" else None)
    report_results.write_json(os.path.join(folder, "sweep.json"), {"figures": ["fig07", "fig09", "fig10"]})
    done = run_report(folder)
    assert done.code == 0, done
    text = check_page(read(folder, "report", "index.html")).text()
    assert "There are no results to draw." in text and "One run for each point" in text


def test_newest_result_directory_is_the_default(folder: str) -> None:
    for name, when in (("old", 1000), ("new", 2000)):
        path = report_results.write_results(os.path.join(folder, "results", name), "two-cores", ["fig07"])
        os.utime(os.path.join(path, "sweep.json"), (when, when))
    assert results.newest(os.path.join(folder, "results")) == os.path.join(folder, "results", "new")


def test_bad_directories_say_what_is_wrong(folder: str) -> None:
    report_results.write_results(os.path.join(folder, "good"), "two-cores", ["fig07"])
    os.makedirs(os.path.join(folder, "broken"))
    with open(os.path.join(folder, "broken", "sweep.json"), "w", encoding="utf-8") as file:
        file.write("{")
    cases: list[tuple[list[str], str]] = [
        (["nowhere"], "no such directory"), (["."], "is no result directory"),
        (["good/fig07"], "name the directory above"), (["broken"], "cannot read"),
        ([], "run `islands sweep FILE` first"), (["good", "--against", "."], "no result directory"),
        (["--speed"], "unrecognized arguments: --speed")]
    for arguments, words_of in cases:
        done = run_report(*arguments, cwd=folder)
        assert done.code == 2 and done.out == "" and words_of in done.err, done
        assert done.err.startswith("islands report: ") and done.err.count("\n") == 1


def test_errors_as_json(folder: str) -> None:
    done = run_report(os.path.join(folder, "nowhere"), "--format", "json")
    assert done.code == 2 and json.loads(done.out)["error"]["exit_code"] == 2 and "no such directory" in done.err


def test_missing_matplotlib_says_what_to_install(folder: str) -> None:
    report_results.write_results(os.path.join(folder, "r"), "two-cores", ["fig07"])
    with open(os.path.join(folder, "matplotlib.py"), "w", encoding="utf-8") as file:
        file.write("raise ModuleNotFoundError('no', name='matplotlib')\n")
    done = run_report(os.path.join(folder, "r"), PYTHONPATH=folder)
    assert (done.code, done.out) == (1, "")
    assert done.err == "islands report: matplotlib is missing: apt-get install python3-matplotlib\n"


# Comparisons


def compare_two(folder: str, change: report_results.Change | None, names: Sequence[str] = ("fig07",),
                **more: Any) -> tuple[str, str]:
    a = report_results.write_results(os.path.join(folder, "a"), "two-cores", names)
    b = report_results.write_results(os.path.join(folder, "b"), "two-cores", names, change=change, **more)
    return a, b


def test_against_says_which_differences_exceed_the_spread(folder: str) -> None:
    a, b = compare_two(folder, bend("fig07", 2, layout="2ISL"), build="other")
    done = run_report(a, "--against", b)
    assert done.code == 0, done
    assert "1 of 2 differences exceed the spread" in done.out and "different builds" in done.out
    row = next(line for line in done.out.splitlines() if line.startswith("fig07"))
    assert "2ISL" in row and "0.50x" in row and "B is greater" in row
    page = check_page(read(a, "report", "against.html"))
    assert "Beyond the spread: 1" in page.text() and "Within the spread: 1" in page.text()


def test_against_as_json(folder: str) -> None:
    a, b = compare_two(folder, lambda figure, line: bend("fig09", 1.5, multisite=20)(figure, line)
                       if line["axes"].get("multisite") != 60 else None, ["fig09", "fig07"])
    document = json.loads(run_report(a, "--against", b, "--format", "json").out)
    assert (document["exceed_spread"], document["within_spread"], document["by_chance_at_most"]) == (4, 18, 2.2)
    assert (document["only_in_a"], document["only_in_b"]) == (4, 0)
    first = document["differences"][0]
    assert first["figure"] == "fig09" and first["axes"]["multisite"] == 20 and first["exceeds_spread"]
    assert first["ratio"] == pytest.approx(first["a"]["median"] / first["b"]["median"])
    assert first["a"]["runs"] == 3 and first["a"]["min"] <= first["a"]["median"] <= first["a"]["max"]


def test_against_orders_by_size(folder: str) -> None:
    def change(figure: str, line: Document) -> Document | None:
        return bend("fig09", {0: 1.2, 20: 0.3, 40: 2.0}.get(line["axes"]["multisite"], 1))(figure, line)

    a, b = compare_two(folder, change, ["fig09"])
    found = against.Comparison(results.load(a), results.load(b))
    sizes = [pair.size() for pair in found.exceeding()]
    assert sizes == sorted(sizes, reverse=True) and found.exceeding()[0].axes["multisite"] == 20
    assert len(found.exceeding()) == 12


def test_against_itself_and_against_another_sweep(folder: str) -> None:
    a, b = compare_two(folder, None)
    assert "0 of 2 differences exceed the spread" in run_report(a, "--against", a).out
    other = report_results.write_results(os.path.join(folder, "c"), "two-cores", ["tab01"])
    done = run_report(a, "--against", other)
    assert done.code == 0 and "points only in A: 2, only in B: 3" in done.out


@pytest.mark.parametrize("a, b, low, high", [  # Welch's interval of the logarithms' difference, raised
    ([10, 11, 12], [20, 21, 22], 0.433, 0.631), ([10, 10.1], [10, 10.1], 0.970, 1.031)])
def test_confidence(a: list[float], b: list[float], low: float, high: float) -> None:
    found = confidence.ratio_interval(a, b)
    assert found and [found.low, found.high] == pytest.approx([low, high], abs=0.001)


@pytest.mark.parametrize("freedom, quantile", [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (10, 2.228),
                                               (100, 1.984)])
def test_students_t(freedom: float, quantile: float) -> None:
    assert confidence.t_quantile(0.975, freedom) == pytest.approx(quantile, abs=0.001)


def test_confidence_needs_two_runs_that_counted() -> None:
    assert confidence.ratio_interval([1], [1, 2]) is None and confidence.ratio_interval([0, 1], [1, 2]) is None
    assert confidence.mean_ratio([2]) is None


@pytest.mark.soak
def test_intervals_hold_what_they_promise() -> None:
    """Of many comparisons of equals, one in twenty leaves out 1."""
    chance = random.Random(7)
    drawn = [[chance.lognormvariate(0, 0.1) for _ in range(6)] for _ in range(700)]
    out = sum(bool(found and found.leaves_out_one()) for runs in drawn
              if (found := confidence.ratio_interval(runs[:3], runs[3:])))
    assert 0.03 < out / len(drawn) < 0.06
    assert confidence.at_least_by_chance(0, 100) == pytest.approx(1)
    assert confidence.at_least_by_chance(10, 100) == pytest.approx(0.0282, abs=0.0001)


def test_against_has_intervals_and_says_what_they_say_together(folder: str) -> None:
    a, b = compare_two(folder, bend("fig09", 2), ["fig09"], seed=2)
    document = json.loads(run_report(a, "--against", b, "--format", "json").out)
    assert (document["intervals"], document["leave_out_1"], document["leave_out_1_by_chance"]) == (24, 24, 1.2)
    assert document["so_many_by_chance_probability"] < 1e-20
    overall, = document["overall"]
    assert overall["metric"] == "committed_per_s" and overall["points"] == 24
    assert overall["ratio"] == pytest.approx(0.5, abs=0.01)
    low, high = overall["confidence_95"]
    assert low < overall["ratio"] < high < 0.52
    for one in document["differences"]:
        assert one["confidence_95"][0] < 0.55 and one["confidence_95"][1] < 0.6
    done = run_report(a, "--against", b)
    assert "24 of 24 intervals leave out 1; by chance alone 1 would" in done.out
    row = next(line for line in done.out.splitlines() if line.startswith("fig09"))
    assert re.search(r"0\.\d\dx  0\.\d\dx to 0\.\d\dx  B is greater", row), row
    text = check_page(read(a, "report", "against.html")).text()
    assert "throughput: A / B is 0.50x over 24 points (geometric mean; 95 %: 0." in text and "95 % of A / B" in text
    same = report_results.write_results(os.path.join(folder, "c"), "two-cores", ["fig09"], seed=2)
    document = json.loads(run_report(a, "--against", same, "--format", "json").out)
    low, high = document["overall"][0]["confidence_95"]
    assert low < 1 < high and document["leave_out_1"] < 6 and document["so_many_by_chance_probability"] > 0.001


def test_against_one_run_has_no_interval(folder: str) -> None:
    a, b = compare_two(folder, lambda figure, line: line if line["repetition"] == 0 else None)
    document = json.loads(run_report(a, "--against", b, "--format", "json").out)
    assert document["differences"][0]["confidence_95"] is None and document["intervals"] == 0
    assert "intervals leave out 1" not in run_report(a, "--against", b).out


def test_against_zero(folder: str) -> None:
    a, zero = compare_two(folder, lambda figure, line: measuring(line, committed_per_s=0.0))
    document = json.loads(run_report(a, "--against", zero, "--format", "json").out)
    assert document["exceed_spread"] == 2 and document["differences"][0]["ratio"] is None


@needs_matplotlib
def test_islands_report(islands: Islands, folder: str) -> None:
    """The command itself, where it has been built with it."""
    report_results.write_results(folder, "two-cores", ["fig07"])
    if "report" not in islands.run("--help").out:
        pytest.skip("this build has no `islands report`")
    assert islands.json("report", folder)["agree"] == 1
    assert islands.run("report", os.path.join(folder, "nowhere")).code == 2
