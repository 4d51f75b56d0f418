"""Round trips between cores in the report of a sweep: kept with its results, drawn, and said in words."""

import json
import os
import re
from collections.abc import Sequence

import pytest

import report_results
from conftest import Document, Islands
from report_results import read
from test_report import check_page, needs_matplotlib, run_report
from test_sweep import DEPLOYMENT, ONE, Sweeps, one, sweeps  # noqa: F401

CHIPLETS = ["0,2", "1,3"]


def measured(cores: int, clusters: Sequence[Sequence[str]]) -> Document:
    """100 ns of each core away from the next; levels with these clusters."""
    return {"version": 1, "cpus": list(range(cores)),
            "round_trip_ns": [[100 * abs(a - b) for b in range(cores)] for a in range(cores)],
            "clusters": [{"cpus": level, "lone_cpus": "3", "packages": "finer than"} for level in clusters],
            "firmware": {}, "hwloc_xml": "<topology/>"}


def report_of(folder: str, document: object) -> tuple[str, str]:
    """The page, and what was printed."""
    report_results.write_results(folder, "quad-socket", ["fig02"])
    with open(os.path.join(folder, "measured.json"), "w", encoding="utf-8") as file:
        json.dump(document, file)
    done = run_report(folder)
    assert done.code == 0, done
    return read(folder, "report", "index.html"), done.out


@needs_matplotlib
def test_heat_map_has_every_pair_and_its_caption(folder: str) -> None:
    source, _ = report_of(folder, measured(4, [CHIPLETS]))
    text = check_page(source).text()
    assert ("between any two cores: 100 to 300 ns, half of the pairs below 200 ns. Darker is longer, in equal steps of "
            "ratio. Cores are ordered by cluster, with lines between. 2 clusters of CPUs, 200 ns within and 100 ns "
            "across: 0,2; 1,3; 3 far from all others, or disturbed, and counted to the nearest (finer than the "
            "firmware's packages). Files: SVG , measured.json ." in text)
    for where in (source, read(folder, "report", "round-trips.svg")):
        assert len(re.findall(r"<title>CPU \d and CPU \d: \d00 ns</title>", where)) == 12
        assert "<title>CPU 0 and CPU 3: 300 ns</title>" in where
        order = re.findall(r'text-anchor: end">(\d)<', where)
        assert order == ["0", "2", "1", "3"], "by cluster"
        assert where.count("<path d=\"M") >= 2, "a border"


@needs_matplotlib
def test_many_cores_share_cells(folder: str) -> None:
    source, _ = report_of(folder, measured(130, []))
    assert "No clusters were found." in check_page(source).text()
    assert len(re.findall(r"<title>CPU[^<]* ns(, median)?</title>", source)) == 44 * 44 - 1
    assert "<title>CPUs 0-2 and CPUs 3-5: 300 ns, median</title>" in source


@needs_matplotlib
@pytest.mark.parametrize("document, reason", [
    ([], "it is not what"),
    ({"cpus": [0]}, "it is not what"),
    (measured(3, []) | {"round_trip_ns": [[0, 1], [1, 0]]}, "no symmetric matrix"),
    (measured(2, []) | {"round_trip_ns": [[0, -1], [-1, 0]]}, "no symmetric matrix"),
    (measured(4, [["0-1", "2"]]), "clusters without some of the CPUs"),
    (measured(4, [["0-1", "2-x"]]), "it is not what")])
def test_what_cannot_be_read_is_said(folder: str, document: object, reason: str) -> None:
    source, out = report_of(folder, document)
    assert "note: The round trips between cores are not shown: cannot read " in out and reason in out
    assert "From core to core" not in source and not os.path.exists(os.path.join(folder, "report", "round-trips.svg"))


@needs_matplotlib
def test_one_core_has_no_round_trip(folder: str) -> None:
    source, _ = report_of(folder, measured(1, []))
    assert "One core: there is no round trip to measure. Files: measured.json ." in check_page(source).text()


def test_sweep_keeps_what_was_measured(sweeps: Sweeps, islands: Islands) -> None:
    """Given by name, or named by the deployment, seen from its own file; also when nothing else is left to do."""
    file = os.path.join(sweeps.folder, "mine.json")
    assert islands.run("machine", "--measure", "--output", file).code == 0
    one(sweeps)
    sweeps.run(*ONE, "--fresh")
    kept = os.path.join(sweeps.results()[-1], "measured.json")
    assert not os.path.exists(kept)
    sweeps.run(*ONE, "--results", sweeps.results()[-1], "--measured", file)
    assert read(kept) == read(file)
    sweeps.run(*ONE, "--results", sweeps.results()[-1], "--fresh")
    assert not os.path.exists(kept), "of a sweep before"
    one(sweeps, deployment=DEPLOYMENT.replace("{storage", "{machine: mine.json, storage"))
    done = sweeps.run(*ONE, "--fresh")
    assert "1 of 1 runs ended well" in done.out
    assert read(sweeps.results()[-1], "measured.json") == read(file)
    with open(file, encoding="utf-8") as measured_here:
        document = json.load(measured_here)
    document["hwloc_xml"] = read(os.path.dirname(__file__), "..", "..", "topology", "shelf", "smt-1x8.xml")
    one(sweeps)
    for text, complaint in (("{", "other.json:1:1: found a YAML error"),
                            (document["hwloc_xml"], "other.json, expected what"),
                            (json.dumps(document | {"cpus": [0], "round_trip_ns": [[0]], "clusters": []}),
                             "of another machine (")):
        wrong = sweeps.run(*ONE, "--measured", sweeps.write(text, "other.json"), "--dry-run", code=2)
        assert "--measured: " in wrong.err and complaint in wrong.err, wrong
