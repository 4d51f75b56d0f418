"""Grafana's own components draw every panel over a real Prometheus, in Chromium (dashboards/draw/).

`make dashboards-drawn` installs what this needs from npm and runs it; it is no part of `make test`. ISLANDS_DRAWN is
the folder for the pictures of whole dashboards, ISLANDS_PICTURES the one for those that README.md shows.
"""

import copy
import json
import os
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from conftest import Document
from dashboard_files import FOLDER, NAMES, TOOLS, load, panels
from test_observed import Seen, seen  # noqa: F401

if "ISLANDS_DRAWN" not in os.environ:
    pytest.skip("needs Chromium and packages of npm: make dashboards-drawn", allow_module_level=True)

DRAW = os.path.join(FOLDER, "draw")
LONGER = 4  # times the load of test_observed.py: a picture of 20 seconds shows little
MOST_BYTES = 300_000
PICTURES = {"cluster": ["Committed", "Islands up", "Outcomes other than committed"],
            "island": ["Latency", "Aborts by reason", "Workers' time, by activity"]}


class Drawn(NamedTuple):
    code: int
    complaints: list[str]
    reports: dict[str, Document]  # by dashboard


def draw(seen: Seen, out: str | pathlib.Path, *arguments: str | pathlib.Path) -> Drawn:
    done = subprocess.run(
        ["node", os.path.join(DRAW, "draw.mjs"), "--prometheus", seen.prometheus.url, "--from", str(seen.start), "--to",
         str(seen.under_load), "--out", out, *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1) and done.stdout, done
    with open(os.path.join(out, "drawn.json"), encoding="utf-8") as file:
        reports = json.load(file)
    return Drawn(done.returncode, done.stderr.splitlines(), {report["dashboard"]: report for report in reports})


def files(*names: str) -> list[str]:
    return [os.path.join(FOLDER, name + ".json") for name in names]


@pytest.fixture(scope="module")
def drawn(seen: Seen) -> Drawn:  # noqa: F811
    return draw(seen, os.environ["ISLANDS_DRAWN"], *files(*NAMES))


@pytest.mark.parametrize("dashboard", NAMES)
def test_every_panel_is_drawn(drawn: Drawn, dashboard: str) -> None:
    report = drawn.reports[dashboard]
    assert "error" not in report
    assert [panel["title"] for panel in report["panels"]] == [panel["title"] for panel in panels(load(dashboard))]
    wrong = [panel for panel in report["panels"] if not panel["drawn"] or "error" in panel or 0 in panel["series"]]
    assert not wrong
    assert all(len(found["series"]) == len(panel["targets"])
               for found, panel in zip(report["panels"], panels(load(dashboard))))


def test_nothing_is_complained_about(drawn: Drawn) -> None:
    assert drawn.complaints == [] and drawn.code == 0


def test_runs_and_restarts_are_marked(drawn: Drawn) -> None:
    assert drawn.reports["cluster"]["marks"] == {"Runs": 2, "Restarts": 1}


def test_variables_choose(seen: Seen, tmp_path: pathlib.Path) -> None:  # noqa: F811
    one = draw(seen, tmp_path, "--var", "island=1", *files("cluster"))
    series = {panel["title"]: panel["series"] for panel in one.reports["cluster"]["panels"]}
    assert series["Committed, by island"] == [1] and series["Clients' transactions, by outcome"][0] > 1
    none = draw(seen, tmp_path, "--var", "island=7", *files("cluster"))
    assert none.code == 1 and none.complaints == ["cluster: variable island: no value 7; there are 0,1"]


def misspell(panel: Document) -> None:
    panel["targets"][0]["expr"] = panel["targets"][0]["expr"].replace("islands_transactions", "islands_transaktions")


def add_misspelt(panel: Document) -> None:
    panel["targets"].append(panel["targets"][0] | {"refId": "B", "expr": "islands_transaktions_total"})


def set_field(name: str, value: object) -> Callable[[Document], None]:
    return lambda panel: panel["fieldConfig"]["defaults"].update({name: value})


# What may be wrong with a panel, and what is said about it: that, or [series of its queries] of one that is drawn.
FAULTS: dict[str, tuple[Callable[[Document], None], str | list[int]]] = {
    "nothing": (lambda panel: None, [3]),
    "misspelt": (misspell, "nothing to see"),
    "one of two misspelt": (add_misspelt, [3, 0]),
    "syntax": (lambda panel: panel["targets"][0].update(expr="sum("), "Prometheus: 1:5: parse error"),
    "unit": (set_field("unit", "furlongs"), "Grafana knows no unit furlongs"),
    "field option": (set_field("sparkle", 1), "cannot draw field option sparkle"),
    "custom field option": (set_field("custom", {"lineWitdh": 1}), "cannot draw field option custom. lineWitdh"),
    "panel option": (lambda panel: panel["options"].update(legent={}), "cannot draw option legent"),
    "variable": (lambda panel: panel["targets"][0].update(expr="up{job=~'$jib'}"), "nothing sets the variable $jib"),
    "type": (lambda panel: panel.update(type="piechart"), "cannot draw panels of type piechart"),
    "transformation": (lambda panel: panel.update(transformations=[{"id": "shuffle", "options": {}}]), "shuffle"),
    "override": (lambda panel: panel["fieldConfig"]["overrides"].append(
        {"matcher": {"id": "byName", "options": "local"}, "properties": [{"id": "unit", "value": "furlongs"}]}),
                 "Grafana knows no unit furlongs"),
}


def test_faults_are_found(seen: Seen, tmp_path: pathlib.Path) -> None:  # noqa: F811
    board: dict[str, Any] = load("cluster")
    sound = next(panel for panel in panels(board) if panel["title"] == "Committed, by scope")
    board["panels"] = []
    for number, (name, (spoil, _)) in enumerate(FAULTS.items()):
        panel: Document = copy.deepcopy(sound) | {"id": number, "title": name}
        panel["gridPos"].update(x=number % 2 * 12, y=number // 2 * 8)
        spoil(panel)
        board["panels"].append(panel)
    (tmp_path / "faults.json").write_text(json.dumps(board))
    found = draw(seen, tmp_path, tmp_path / "faults.json")
    assert found.code == 1
    complaints = dict(line.removeprefix("faults, ").split(": ", 1) for line in found.complaints)
    assert set(complaints) == {name for name, (_, said) in FAULTS.items() if isinstance(said, str)}
    for report in found.reports["faults"]["panels"]:
        said = FAULTS[report["title"]][1]
        assert report["drawn"] == isinstance(said, list), report
        if isinstance(said, str):
            assert said in complaints[report["title"]]
        else:
            assert report["series"] == said


def test_types_of_the_page_hold() -> None:
    done = subprocess.run([os.path.join(TOOLS, "draw", "node_modules", ".bin", "tsc"), "-p", DRAW], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("dashboard", PICTURES)
def test_pictures_can_be_taken(seen: Seen, dashboard: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    folder = tmp_path
    around = [word for title in PICTURES[dashboard] for word in ("--only", title)]
    assert draw(seen, folder, "--width", "1280", *around, *files(dashboard)).code == 0
    picture = folder / f"{dashboard}.png"
    assert 20_000 < picture.stat().st_size < MOST_BYTES
    if "ISLANDS_PICTURES" in os.environ:
        (pathlib.Path(os.environ["ISLANDS_PICTURES"]) / picture.name).write_bytes(picture.read_bytes())
