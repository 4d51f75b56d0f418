"""Plots whose x is measured, or the second of a run: what sweep files may say, and what reports make of it."""

import csv
import json
import os
import re
import statistics

import pytest

import report_results
from conftest import ROOT, Document, Islands
from report_results import read
from test_report import needs_matplotlib, run_report, user_sweep
from test_sweep import SMALL, Sweeps, sweeps, undescribed  # noqa: F401

from reporting import plots, results  # test_sweep has put it on the path
from sweeping import plan, sweep_file
from sweeping.machine import Machine
from sweeping.tree import BadFile

START = "version: 1\nworkload: micro\naxes: {layout: [1ISL], op: [read]}\n"
BAD = {  # a plot -> what is said of it
    "x: speed, y: committed_per_s": "4:13: found 'speed', expected an axis: layout, op; or second; or, measured, one "
                                    "of committed_per_s, us_per_transaction",
    "x: utilisation, y: committed_per_s": "4:13: found utilisation, which is measured, and no along, expected along: "
                                          "the axis whose values make the points of a line, of layout, op",
    "x: utilisation, along: rate, y: committed_per_s": "4:33: found 'rate', expected an axis: layout, op",
    "x: utilisation, along: op, series: op, y: committed_per_s": "4:45: found 'op', expected another axis than along",
    "x: utilisation, along: op, y: committed_per_s, kind: bar": "4:63: found 'bar', expected an axis as x; utilisation",
    "x: utilisation, along: op, y: us_by_part": "4:40: found 'us_by_part', expected with us_by_part, an axis as x",
    "x: utilisation, along: op, y: committed_per_s, estimate: two-point": "4:67: found 'two-point', expected an axis",
    "x: layout, along: op, y: committed_per_s": "4:21: found along, with the axis layout as x, expected along only",
    "x: second, series: op, y: utilisation": "4:21: found series, with second as x, expected no series: the islands",
    "x: second, along: op, y: utilisation": "4:21: found along, with second as x, expected no along: the islands",
    "x: second, y: imbalance": "4:24: found 'imbalance', expected with second as x, one of utilisation, ",
    "x: second, y: utilisation, kind: bar": "4:43: found 'bar', expected an axis as x; second makes lines",
    "x: [op], y: utilisation": "4:13: found a list, expected an axis: layout, op; or second"}


def read_plot(folder: str, plot: str, start: str = START) -> list[sweep_file.PlotSpec]:
    path = os.path.join(folder, "mine.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{start}plots: [{{{plot}}}]\n")
    return sweep_file.read(path, undescribed).experiments[0].plots


@pytest.mark.parametrize("plot", BAD)
def test_bad_x(folder: str, plot: str) -> None:
    with pytest.raises(BadFile) as bad:
        read_plot(folder, plot)
    assert f"mine.yaml:{BAD[plot]}" in str(bad.value) and str(bad.value).count("\n") == 0


def test_programs_measure_what_no_file_knows(folder: str) -> None:
    with pytest.raises(BadFile) as bad:
        read_plot(folder, "x: utilisation, y: messages_per_s", "version: 1\nprogram: ipc\naxes: {batch: [1]}\n\n")
    assert str(bad.value).endswith("found 'utilisation', expected an axis: batch")


@pytest.mark.parametrize("plot", ["x: utilisation, along: op, series: layout, y: committed_per_s",
                                  "x: second, y: committed_per_s, kind: line"])
def test_good_x(folder: str, plot: str) -> None:
    assert read_plot(folder, plot)[0]["x"] in plot


def test_measured_x_is_a_median(folder: str) -> None:
    def scatter(name: str, line: Document) -> Document:  # of the repetitions, and not around their middle
        metrics = line["metrics"]
        share = metrics["utilisation"] * (1, 0.5, 0.9)[line["repetition"]]
        return line | {"metrics": metrics | {"utilisation": share}}
    report_results.write_results(folder, "quad-socket", ["horikawa_fig4"], change=scatter)
    figure = results.load(folder).figures[0]
    (plot,), notes = plots.plots_of(figure)
    assert notes == [] and plot.lines and plot.axis == "cores" and [value for value, _ in plot.series][-1] == 24
    rows = [row for row in csv.DictReader(plot.csv().splitlines()) if row["cores"] == "24"]
    assert [float(row["rate"]) for row in rows] == [25e3, 50e3, 100e3, 300e3, 800e3]
    for row in rows:
        point, = figure.select({"cores": 24, "rate": row["rate"]})
        values = [run["metrics"]["utilisation"] for run in point.runs]
        assert float(row["utilisation_median"]) == pytest.approx(statistics.median(values), rel=1e-5)
        assert plot.place(24, float(row["rate"])) == statistics.median(values)
    assert [row["utilisation_median"] for row in rows[-2:]] == ["0.9", "0.9"], "saturated: one above the other"
    runs = list(csv.DictReader(plot.runs_csv("").splitlines()))
    assert len(runs) == 3 * len(figure.points) and {"utilisation", "committed_per_s"} <= set(runs[0])
    assert plot.repetitions().endswith("Across, it is the median, too.")


@needs_matplotlib
def test_measured_x_is_where_points_are_drawn(folder: str) -> None:
    """In the order of the axis that the line goes along, and each as far right as what was measured there."""
    report_results.write_results(folder, "quad-socket", ["horikawa_fig4"])
    assert run_report(folder).code == 0
    svg = read(folder, "report", "horikawa_fig4-1.svg")
    circles = re.findall(r'<circle cx="([\d.]+)" cy="[\d.]+"[^>]*><title>cores (\d+), rate ([\d,]+)/s: \S+ at '
                         r'utilisation ([\d.]+) ', svg)
    places = [(float(left), float(busy)) for left, cores, _, busy in circles if cores == "24"]
    assert [rate for _, cores, rate, _ in circles if cores == "24"] == ["25,000", "50,000", "100,000", "300,000",
                                                                        "800,000"]
    (low, least), (high, most) = places[0], places[-1]
    for left, busy in places:
        assert (left - low) / (high - low) == pytest.approx((busy - least) / (most - least), abs=0.01)
    assert "Share of time that workers are busy" in svg and "at utilisation" in read(folder, "report", "index.html")


def test_measured_x_goes_along_words_too(folder: str) -> None:
    plot = {"title": "T", "x": "cpu_utilisation", "along": "layout", "y": "committed_per_s"}
    (found,), _ = user_sweep(folder, {"layout": ["1ISL", "8ISL"]}, [plot], committed_per_s=1.0, cpu_utilisation=0.5)
    assert found.lines and found.place(None, "8ISL") == 0.5


def test_measured_x_that_nobody_measured_is_said(folder: str) -> None:
    def unmeasured(name: str, line: Document) -> Document:
        return line | {"metrics": {"committed_per_s": 1.0}}
    report_results.write_results(folder, "two-cores", ["horikawa_fig4"], change=unmeasured)
    found, notes = plots.plots_of(results.load(folder).figures[0])
    assert found == [] and "no run measured committed_per_s and utilisation" in notes[0]


def write_timeseries(folder: str, run: str, text: str) -> None:
    directory = os.path.join(folder, "hstore_fig3", "runs", run)
    os.makedirs(directory)
    with open(os.path.join(directory, "timeseries.csv"), "w", encoding="utf-8") as file:
        file.write("elapsed_s,island,reached,committed_per_s,cpu_fraction\n" + text)


def test_islands_over_time(folder: str) -> None:
    report_results.write_results(folder, "two-cores", ["hstore_fig3"])
    lines = {(line["axes"]["cores"], line["repetition"]): line["id"] for point in
             results.load(folder).figures[0].points for line in point.runs}
    # The first second is noticed late, the third is half of one, island 1 was away in one run.
    write_timeseries(folder, lines[2, 0], "1.2,0,1,5,0.5\n1.2,1,1,5,0.1\n2.0,0,1,5,0.6\n2.0,1,1,5,1\n2.5,0,1,5,0.7\n")
    write_timeseries(folder, lines[2, 1], "1.0,0,1,5,0.7\n1.0,1,0,0,0\n2.0,0,1,5,0.8\nnonsense,0,1,5,9\n")
    plot = plots.plots_of(results.load(folder).figures[0])[0][-1]
    assert plot.lines and plot.axis == "island" and plot.xs == [1, 2, 3] and plot.title == "Over time"
    rows = [tuple(row[name] for name in ("island", "second", "cpu_utilisation_median", "runs"))
            for row in csv.DictReader(plot.csv().splitlines())]
    assert rows == [("0", "1", "0.6", "2"), ("0", "2", "0.7", "2"), ("0", "3", "0.7", "1"),
                    ("1", "1", "0.1", "1"), ("1", "2", "1", "1")]
    tip = plot.tip(1, 2, dict(plot.series)[1][2.0])
    assert tip.startswith("island 1, second 2: 1 (1 run: ") and lines[2, 1] in tip


def test_each_number_of_cores_has_its_plot(folder: str) -> None:
    report_results.write_results(folder, "two-cores", ["hstore_fig3"])
    for point in results.load(folder).figures[0].points:
        for run in point.runs:
            write_timeseries(folder, run["id"], f"1.0,0,1,5,0.{point.axes['cores']}\n2.0,0,1,5,1\n")
    found = plots.plots_of(results.load(folder).figures[0])[0][1:]
    assert [plot.title for plot in found] == ["Over time, cores 1", "Over time, cores 2"]
    assert [plot.series[0][1][1.0].median for plot in found] == [0.1, 0.2]


def test_runs_without_directories_are_said(folder: str) -> None:
    report_results.write_results(folder, "two-cores", ["hstore_fig3"])
    found, notes = plots.plots_of(results.load(folder).figures[0])
    assert len(found) == 1
    assert notes == ["“Over time” is not drawn: no run has cpu_utilisation over time in its directory."]


def test_one_second_is_no_time(folder: str) -> None:
    report_results.write_results(folder, "two-cores", ["hstore_fig3"])
    for point in results.load(folder).figures[0].points:
        for run in point.runs:
            write_timeseries(folder, run["id"], "0.4,0,1,5,0.9\n")
    found, notes = plots.plots_of(results.load(folder).figures[0])
    assert len(found) == 1 and notes == ["“Over time” is not drawn: no run lasted more than a second."]


@needs_matplotlib
def test_real_runs(sweeps: Sweeps) -> None:  # noqa: F811
    text = SMALL.replace("[read, update]", "[read]").replace("[0, 50]", "[0]").replace("[1ISL, 2ISL]", "[2ISL]")
    sweeps.write(text.split("measure:")[0] + "  rate: [500, 2000]\nmeasure: {seconds: 1.6, warmup: 0, repeat: 1}\n"
                 "plots:\n"
                 "  - {title: Busy, x: utilisation, along: rate, y: committed_per_s}\n"
                 "  - {title: Time, x: second, y: committed_per_s}\n")
    done = sweeps.run("small.yaml")
    assert "Busy, thousand transactions/s" in done.out and "Busy, utilisation" in done.out
    assert "Time" not in done.out, "a table has no room for what is in the run directories"
    directory, = sweeps.results()
    assert run_report(directory).code == 0
    busy, *over_time = plots.plots_of(results.load(directory).figures[0])[0]
    measured = {line["axes"]["rate"]: line["metrics"]["utilisation"] for line in map(json.loads, sweeps.lines())}
    assert {rate: busy.place(None, rate) for rate in (500, 2000)} == measured
    assert [plot.title for plot in over_time] == ["Time, rate 500/s", "Time, rate 2,000/s"]
    for plot in over_time:
        assert [value for value, _ in plot.series] == [0, 1] and plot.xs[-1] == 2
        assert all(stats[2.0].median > 0 for _, stats in plot.series)


@pytest.mark.parametrize("machine, wheres", [
    ("pack:1 [numa] l3:1 core:4 pu:1", ["same-core", "same-cache", "cross-socket"]),
    ("pack:1 [numa] l3:2 core:2 pu:1", ["same-core", "same-cache", "same-socket", "cross-socket"]),
])
def test_distances_that_are_one_are_measured_once(islands: Islands, machine: str, wheres: list[str]) -> None:
    fig06 = sweep_file.read(os.path.join(ROOT, "experiments", "fig06.yaml"), lambda name: None).experiments[0]
    axes, notes = plan.resolve_axes(fig06, Machine(islands.json("machine", machine)))
    assert axes["where"] == wheres and bool(notes) == ("same-socket" not in wheres)
