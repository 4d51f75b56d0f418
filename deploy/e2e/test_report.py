"""`islands report` on made-up results: claims, plots, pages, comparisons, and what may be missing."""

import csv
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
from conftest import ROOT, Document, Islands, Result

sys.path.insert(0, os.path.join(ROOT, "experiments"))

from reporting import against, claims, plots, results, words  # noqa: E402
from reporting.evidence import Claim  # noqa: E402
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


def read(*parts: str) -> str:
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read()


def claims_by_id(folder: str) -> dict[str, Claim]:
    return {claim.id: claim for claim in claims.claims_of(results.load(folder))}


def verdicts(folder: str, name: str) -> list[str]:
    return [claim.verdict for claim in claims.claims_of(results.load(folder)) if claim.figure == name]


def measuring(line: Document, **metrics: float) -> Document:
    return line | {"metrics": metrics}


def bend(name: str, factor: float | None, **where: object) -> report_results.Change:
    """Multiplies what a figure's runs measured at these axis values; factor None: these runs were not made."""
    def change(figure: str, line: Document) -> Document | None:
        if figure != name or any(line["axes"].get(axis) != value for axis, value in where.items()):
            return line
        if factor is None:
            return None
        return measuring(line, **{metric: value * factor for metric, value in line["metrics"].items()})
    return change


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
            assert re.fullmatch(r"[\w.-]+\.(svg|csv)", reference), reference
    assert "script" not in page.tags
    assert "://" not in source and "@import" not in source
    assert not re.search(r'\son\w+="', source)
    return page


# Claims


def test_claims_agree_on_four_sockets(folder: str) -> None:
    report_results.write_results(folder, "quad-socket")
    found = claims_by_id(folder)
    for id in ("fig02.1", "fig02.2", "tab01.1", "tab01.2", "tab01.3", "fig03.1", "fig06.1", "fig06.2", "fig06.3",
               "fig07.1", "fig07.2", "fig07.3", "fig09.1", "fig09.2", "fig09.3", "fig09.7", "fig10.1", "fig10.2",
               "fig10.5", "fig10.6", "fig12.3", "fig13.1", "fig13.2", "fig13.4", "fig13.6", "tatp.1", "tatp.2"):
        assert found[id].verdict == "agrees", found[id].json()
    assert {claim.figure for claim in found.values()} == set(claims.FIGURES)
    assert found["fig07.1"].there == "4.5x on 24 cores"
    assert re.fullmatch(r"4\.\dx \(24ISL 3\.\d+M/s, 1ISL 6\d\dk/s\)", found["fig07.1"].here)
    assert all(claim.paper.endswith(".") and claim.reference and claim.there for claim in found.values())


def test_one_socket_says_so(folder: str) -> None:
    report_results.write_results(folder, "two-cores")
    found = claims_by_id(folder)
    for id in ("fig02.1", "fig02.2", "tab01.3", "fig03.1", "fig03.2", "fig06.2", "fig06.3", "fig07.2", "fig12.3",
               "fig13.4"):
        assert found[id].verdict == "cannot be told" and "one socket" in found[id].here
    assert found["fig07.1"].verdict == found["tatp.1"].verdict == found["fig10.1"].verdict == "agrees"
    assert found["fig09.3"].here == "there is no layout between 1ISL and 2ISL"


@pytest.mark.parametrize("name, factor, where, id, verdict", [
    ("fig07", 10, {"layout": "1ISL"}, "fig07.1", "disagrees"),
    ("fig07", None, {"layout": "1ISL"}, "fig07.1", "cannot be told"),
    ("fig02", 0.1, {"workers": "grouped"}, "fig02.1", "disagrees"),
    ("tab01", 0.05, {"counters": "per-core"}, "tab01.2", "disagrees"),
    ("fig06", 5, {"mechanism": "fifo"}, "fig06.1", "disagrees"),
    ("fig06", 5, {"mechanism": "shared-memory"}, "fig06.1", "agrees"),
    ("fig09", 0.5, {"layout": "1ISL", "multisite": 100, "op": "read"}, "fig09.1", "disagrees"),
    ("fig09", 0.5, {"layout": "1ISL", "multisite": 100, "op": "read"}, "fig09.4", "agrees"),
    ("fig09", 9, {"layout": "8ISL", "multisite": 100, "op": "read"}, "fig09.2", "disagrees"),
    ("fig09", 0.01, {"layout": "2ISL", "multisite": 100, "op": "update"}, "fig09.6", "disagrees"),
    ("fig09", 9, {"layout": "24ISL", "multisite": 100, "op": "update"}, "fig09.7", "disagrees"),
    ("fig10", 3, {"layout": "24ISL", "rows": 8}, "fig10.1", "disagrees"),
    ("fig10", 0.1, {"layout": "8ISL", "multisite": 100}, "fig10.5", "disagrees"),
    ("fig12", 0.3, {"cores": 24, "cut": "CG"}, "fig12.3", "disagrees"),
    ("fig12", 0.2, {"cores": 24, "cut": "SE"}, "fig12.2", "agrees"),
    ("fig13", 9, {"layout": "24ISL", "zipf": 1}, "fig13.4", "disagrees"),
    ("tatp", 9, {"layout": "1ISL"}, "tatp.2", "disagrees"),
])
def test_verdict_follows_the_numbers(folder: str, name: str, factor: float | None, where: Document, id: str,
                                     verdict: str) -> None:
    report_results.write_results(folder, "quad-socket", [name], change=bend(name, factor, **where))
    assert claims_by_id(folder)[id].verdict == verdict


def test_difference_within_the_spread_cannot_be_told(folder: str) -> None:
    wide = {0: 0.5, 1: 1.0, 2: 8.0}

    def change(figure: str, line: Document) -> Document:
        return measuring(line, committed_per_s=1e6 * wide[line["repetition"]])

    report_results.write_results(folder, "two-cores", ["fig07"], change=change)
    first = claims_by_id(folder)["fig07.1"]
    assert first.verdict == "cannot be told" and "within the spread" in first.here


def test_missing_axis_values_are_named(folder: str) -> None:
    report_results.write_results(folder, "quad-socket", ["fig09"],
                                 change=lambda figure, line: line if line["axes"]["multisite"] <= 20 else None)
    found = claims_by_id(folder)
    assert found["fig09.1"].here == "multisite was measured from 0 to 20 only"
    assert found["fig09.7"].verdict == "cannot be told" and "multisite 100" in found["fig09.7"].here


def test_finest_layout_must_have_one_worker_per_island(folder: str) -> None:
    report_results.write_results(folder, "quad-socket", ["fig07"], change=bend("fig07", None, layout="24ISL"))
    assert claims_by_id(folder)["fig07.1"].here == "no layout with one island per core was measured"


def test_claims_without_any_result(folder: str) -> None:
    report_results.write_results(folder, "quad-socket", change=lambda figure, line: None)
    assert {claim.verdict for claim in claims_by_id(folder).values()} == {"cannot be told"}


def test_runs_that_counted_nothing(folder: str) -> None:
    report_results.write_results(folder, "quad-socket", change=lambda figure, line: measuring(
        line, **dict.fromkeys(line["metrics"], 0.0)))
    assert not {claim.verdict for claim in claims_by_id(folder).values()} - {"cannot be told", "agrees"}


def test_number_of_rows_nearest_to_ten(folder: str) -> None:
    report_results.write_results(folder, "two-cores", ["fig10"])
    assert "(8 rows)" in claims_by_id(folder)["fig10.1"].paper


def test_an_axis_that_is_left_open_is_not_mixed(folder: str) -> None:
    report_results.write_results(folder, "two-cores", ["fig07"])
    path = os.path.join(folder, "fig07", "results.jsonl")
    lines = [json.loads(line) for line in read(path).splitlines()]
    with open(path, "w", encoding="utf-8") as file:
        for mpl in (1, 4):
            file.writelines(json.dumps(line | {"axes": line["axes"] | {"mpl": mpl}}) + "\n" for line in lines)
    assert "several ways (mpl)" in claims_by_id(folder)["fig07.1"].here


# Durability


def kept(folder: str, name: str, durability: str | None, **slower: float) -> None:
    """Makes a figure one of a sweep with this durability, or, by `slower`, with an axis of several, whose runs of 1ISL
    differ by these factors."""
    path = os.path.join(folder, name, "results.jsonl")
    lines = [json.loads(line) for line in read(path).splitlines()]
    plan = json.loads(read(folder, name, "plan.json"))
    plan["axes"] += [report_results.axis("durability", *slower)] if slower else []
    report_results.write_json(os.path.join(folder, name, "plan.json"), plan | {"durability": durability})
    with open(path, "w", encoding="utf-8") as file:
        for word, factor in slower.items() or {durability: 1.0}.items():
            for line in lines:
                factor_here = factor if line["axes"].get("layout") == "1ISL" else 1
                made = measuring(line, **{metric: value * factor_here for metric, value in line["metrics"].items()})
                axes = line["axes"] | ({"durability": word} if slower else {})
                file.write(json.dumps(made | {"axes": axes, "log_on": None if word == "none" else "tmpfs"}) + "\n")


def test_claims_say_with_which_durability_they_were_decided(folder: str) -> None:
    report_results.write_results(folder, "quad-socket", ["fig02", "fig07", "fig09"])
    kept(folder, "fig09", "sync+forced")
    found = claims_by_id(folder)
    assert (found["fig09.1"].durability, found["fig09.1"].json()["durability"]) == ("sync+forced", "sync+forced")
    assert found["fig07.1"].durability == "none", "of sweeps that knew no other"
    assert found["fig02.1"].json()["durability"] is None, "a program"
    assert "fig09 too" in found["fig07.3"].here and "same durability" in found["fig07.3"].here


def test_claims_are_decided_with_every_durability_apart(folder: str) -> None:
    report_results.write_results(folder, "quad-socket", ["fig07", "fig09"])
    kept(folder, "fig07", None, none=1, lazy=10)
    found = claims_by_id(folder)
    assert [found[f"fig07.{word}.1"].verdict for word in ("none", "lazy")] == ["agrees", "disagrees"]
    assert [found[f"fig07.{word}.1"].durability for word in ("none", "lazy")] == ["none", "lazy"]
    assert found["fig07.lazy.1"].where == {"durability": "lazy"} and "fig07.1" not in found
    assert (found["fig07.none.3"].verdict, found["fig07.lazy.3"].verdict) == ("agrees", "cannot be told")


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


# Pages


@needs_matplotlib
@pytest.mark.parametrize("machine", ["two-cores", "quad-socket"])
def test_report(folder: str, machine: str) -> None:
    report_results.write_results(folder, machine)
    done = run_report(folder)
    assert done.code == 0 and done.err == "", done
    assert f"report: {folder}/report/index.html" in done.out
    document = json.loads(read(folder, "report", "claims.json"))
    assert f"of {len(document['claims'])} claims of the paper {document['agree']} hold here" in done.out
    page = check_page(read(folder, "report", "index.html"))
    assert page.tags.count("svg") == 21
    assert set(claims.FIGURES) <= set(page.ids) and {claim["id"] for claim in document["claims"]} <= set(page.ids)
    text = page.text()
    for part in ("package 0: Example CPU", "islands sweep experiments/quick.yaml", "Example CPU 3 GHz", "4 min 47 s",
                 "Committed transactions per second", "Multisite transactions (%)", "1ISL (shared-everything)"):
        assert part in text
    names = os.listdir(os.path.join(folder, "report"))
    for name in ("fig09-1", "fig09-2", "fig10-4", "tab01-1"):
        assert f"{name}.svg" in names and f"{name}.csv" in names
        root = xml.etree.ElementTree.fromstring(read(folder, "report", f"{name}.svg"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(--" not in read(folder, "report", "fig09-1.svg") and "#0a00" not in read(folder, "report", "index.html")


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
