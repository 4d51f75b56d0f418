"""experiments/bench_engines.py: its table, page and JSON, what it refuses, and what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from cluster import processes, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "experiments"))
from benchmarks.engines import EMBEDDED, FRONT_DOOR, OPS, OVER_GRPC, Contender, Contest  # noqa: E402
from benchmarks.engines_page import page, sections_of  # noqa: E402
from islands_command import Failed  # noqa: E402

COMMAND = [sys.executable, os.path.join(ROOT, "experiments", "bench_engines.py")]
BINARIES = os.path.join(ROOT, "build/release/bin")
PEERS = os.path.join(BINARIES, "peers")


def has_sqlite() -> bool:
    needed = ("islandd", "peers", "workload_peers", "gateway_load")
    if not all(os.path.exists(os.path.join(BINARIES, name)) for name in needed):
        return False
    return "sqlite" in subprocess.run([PEERS, "--help"], capture_output=True, text=True, timeout=30).stdout


needs_engines = pytest.mark.skipif(not has_sqlite(), reason="islands, or peers with sqlite, are not built")


def start(folder: str, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMAND, "--directory", os.path.join(folder, "bench"), "--results",
                             os.path.join(folder, "results"), *more], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def test_help_needs_no_matplotlib() -> None:
    """Which draws the report's plots, and nothing here."""
    hidden = "import runpy, sys; sys.modules['matplotlib'] = None; sys.argv = sys.argv[1:]; " \
             "sys.path.insert(0, 'experiments'); runpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", hidden, COMMAND[-1], "--help"], cwd=ROOT, text=True,
                          capture_output=True)
    assert done.returncode == 0 and "--engines" in done.stdout, done


@needs_engines
def test_quick_writes_a_table_a_page_and_every_measurement(folder: str) -> None:
    process = start(folder, "--quick", "--only", "lazy", "--only", "sync", "--engines", "sqlite,lmdb",
                    "--load", "TATP", "--load", "Payment")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, out + err
    assert "in every run the rows added up" in out and "left" in err, "no ETA"
    with open(os.path.join(folder, "results", "engines.json"), encoding="utf-8") as file:
        found = json.load(file)
    assert found["wrong"] == [] and list(found["classes"]) == ["lazy", "sync"]
    for contenders in found["classes"].values():
        assert list(contenders) == [EMBEDDED, FRONT_DOOR, OVER_GRPC, "sqlite", "lmdb"]
        for name, contender in contenders.items():
            assert list(contender["ops"]) == (["read", "add"] if name in (FRONT_DOOR, OVER_GRPC) else list(OPS))
            assert all(op["median_per_s"] > 0 and op["clients"] > 0 and len(op["per_s"]) == 1
                       for op in contender["ops"].values())
    assert list(found["workloads"]) == ["lazy", "sync"]
    for contenders in found["workloads"].values():
        assert list(contenders) == [EMBEDDED, "sqlite", "lmdb"]
        assert all(list(contender["ops"]) == ["Payment", "TATP"] for contender in contenders.values())
        assert all(op["median_per_s"] > 0 for contender in contenders.values() for op in contender["ops"].values())
    with open(os.path.join(folder, "results", "engines.html"), encoding="utf-8") as file:
        html = file.read()
    assert html.count("<svg") == 14, "for each class two of workloads, three of engines in the program, two of servers"
    assert "SQLite 3" in html and "<script" not in html
    assert not os.path.exists(os.path.join(folder, "bench")) and processes(folder) == {}


@needs_engines
def test_interrupted_leaves_nothing(folder: str) -> None:
    process = start(folder, "--only", "lazy", "--engines", "sqlite", "--load", "none", "--seconds", "1000")
    wait_until(lambda: any("--durability lazy" in line for line in processes(folder).values()), what="an engine")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert processes(folder) == {} and not os.path.exists(os.path.join(folder, "bench"))


@pytest.mark.parametrize("arguments, complaint", [
    (["--only", "some"], "--only"), (["--engines", "sqlite,oracle"], "oracle"), (["--seconds", "0"], "--seconds")])
def test_bad_arguments(folder: str, arguments: list[str], complaint: str) -> None:
    process = start(folder, *arguments)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2 and complaint in err


def contender(name: str, server: bool, rates: dict[str, list[float]]) -> Contender:
    return Contender(name, name.title(), server, (1, 8), lambda op, clients: 0.0, {"keeps": "<all>"}, list(rates),
                     {op: 8 if op == "add" else 1 for op in rates}, rates)


def test_ratios_are_of_like_with_like() -> None:
    all_of_them = [contender(EMBEDDED, False, {"read": [100.0, 300.0, 200.0], "update": [50.0], "add": [400.0]}),
                   contender(FRONT_DOOR, True, {"read": [20.0], "add": [40.0]}),
                   contender("lmdb", False, {"read": [50.0], "update": [100.0], "add": [100.0]}),
                   contender("postgres", True, {"read": [10.0], "update": [5.0], "add": [10.0]})]
    inside, servers = sections_of("lazy", all_of_them, 4)
    assert dict(inside.rows)["Lmdb, 1/1/8"] == (50, 0.25, 100, 2, 100, 0.25)
    assert dict(servers.rows)["Postgres, 1/1/8"] == (10, 0.5, 0.05, 5, None, 0.1, 10, 0.25, 0.025)
    assert "share the 4 cores" in servers.title
    html = page({"lazy": all_of_them}, {}, ["a <note>"], "a machine", "command", 4)
    assert "a &lt;note&gt;" in html and "&lt;all&gt;" in html and html.count("<svg") == 6


def test_an_engine_that_is_wrong_leaves_and_the_others_go_on() -> None:
    def wrong(_op: str, _clients: int) -> float:
        raise Failed("the rows are not consistent")

    context: Any = SimpleNamespace(seconds=1.0, progress=SimpleNamespace(show=lambda _: None), wrong=[],
                                   alternate=lambda measures, _: [measure() for measure in measures.values()])
    contest = Contest(context, "lazy", "")
    contest.contenders = [Contender("bad", "Bad", False, (1, 2), wrong, {"version": "Bad 1"}, ("read", "add")),
                          Contender("good", "Good", False, (1, 2), lambda _, clients: 10.0 * clients,
                                    {"version": "Good 1"}, ("read", "add"))]
    contest.find_best()
    contest.measure()
    assert [(contender.name, contender.best, contender.rates) for contender in contest.contenders] == [
        ("good", {"read": 2, "add": 2}, {"read": [20.0], "add": [20.0]})]
    assert context.wrong == ["lazy, Bad is left out of read: the rows are not consistent"]
    contest.contenders = [Contender("islands", "islands", False, (1, 2), wrong, {"version": "islands"}, ("read",))]
    with pytest.raises(Failed):  # without them there is nothing to compare with
        contest.find_best()
