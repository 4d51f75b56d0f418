"""`islands sweep`: bad files, a small sweep and its results, everything that interrupts one, and the shipped files."""

import collections
import fcntl
import glob
import json
import os
import pty
import shlex
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from cluster import line_of, processes, wait_until
from conftest import ROOT, Islands, Result, WriteFile

EXPERIMENTS = os.path.join(ROOT, "experiments")
sys.path.insert(0, EXPERIMENTS)

from reporting import claims  # noqa: E402
from sweeping import cluster as clusters  # noqa: E402
from sweeping import plan as plans_of  # noqa: E402
from sweeping import results as result_files  # noqa: E402
from sweeping import runner, sweep_file  # noqa: E402
from sweeping.machine import Machine  # noqa: E402
from sweeping.tree import Scalar  # noqa: E402

TABLE = "{name: micro, key: [uint64], range: [0, 24000], row_bytes: 100}"
DEPLOYMENT = f"deployment: {{storage: {{buffer_pool: 256MiB}}, data: {{tables: [{TABLE}]}}}}\n"
SMALL = f"""version: 1
title: A small one
workload: micro
{DEPLOYMENT}parameters: {{rows: 4, mpl: 4}}
axes:
  layout: [1ISL, 2ISL]
  op: [read, update]
  multisite: [0, 50]
measure: {{seconds: 0.1, warmup: 0, repeat: 2}}
plots:
  - {{title: Reads, where: {{op: read}}, x: multisite, series: layout, y: committed_per_s}}
  - {{title: Updates, where: {{op: update}}, x: multisite, series: layout, y: committed_per_s}}
"""
RUNS = 16
PAPERS = "pack:4 [numa(memory=16GB)] core:6 pu:1"  # the paper's server, four sockets of six cores


class Sweeps:
    """Runs `islands sweep` in a folder, below which everything of it lies: results, clusters, data."""

    def __init__(self, islands: Islands, folder: str) -> None:
        self.islands, self.folder = islands, folder
        self.environment = dict(os.environ, TMPDIR=folder)

    def write(self, text: str, name: str = "small.yaml") -> str:
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)
        return name

    def run(self, *arguments: str, code: int | None = 0, timeout: float = 60) -> Result:  # code None: any
        done = self.islands.run("sweep", *arguments, cwd=self.folder, env=self.environment, timeout=timeout)
        assert code is None or done.code == code, done
        assert "Traceback" not in done.err, done
        assert self.left() == ({}, [])
        return done

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--format", "json", code=code).out)

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([self.islands, "sweep", *arguments], cwd=self.folder, env=self.environment,
                                text=True, **(pipes | more))

    def left(self) -> tuple[dict[int, str], list[str]]:
        """Processes and folders of clusters."""
        return processes(self.folder), glob.glob(os.path.join(self.folder, "islands-sweep-*"))

    def results(self) -> list[str]:
        return sorted(glob.glob(os.path.join(self.folder, "results", "*")))

    def lines(self, name: str = "small") -> list[str]:
        """Of the only result directory's results.jsonl."""
        files = glob.glob(os.path.join(self.folder, "results", "*", name, "results.jsonl"))
        assert len(files) <= 1
        if not files:
            return []
        with open(files[0], encoding="utf-8") as file:
            return file.read().splitlines()

    def read(self, name: str = "sweep.json") -> Any:
        with open(os.path.join(self.results()[-1], name), encoding="utf-8") as file:
            return json.load(file)

    def change(self, **fields: object) -> None:
        document = self.read() | fields
        with open(os.path.join(self.results()[-1], "sweep.json"), "w", encoding="utf-8") as file:
            json.dump(document, file)

    def keep_lines(self, count: int) -> list[str]:
        """Makes results incomplete: as if these runs were the first."""
        lines = self.lines()[:count]
        with open(glob.glob(os.path.join(self.folder, "results", "*", "small", "results.jsonl"))[0], "w",
                  encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
        self.change(complete=False, finished=None)
        return lines


class Finished(NamedTuple):
    sweeps: Sweeps
    done: Result


def sweeps_in(islands: Islands, folder: str) -> Sweeps:
    made = Sweeps(islands, folder)
    made.write(SMALL)
    return made


def clean(made: Sweeps) -> dict[int, str]:
    left = processes(made.folder)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


@pytest.fixture
def sweeps(islands: Islands, folder: str) -> Iterator[Sweeps]:
    if not os.access(os.path.join(os.path.dirname(islands), "islandd"), os.X_OK):
        pytest.skip("islandd is not built")
    made = sweeps_in(islands, folder)
    yield made
    assert clean(made) == {}, "processes were left behind"


@pytest.fixture(scope="module")
def finished(islands: Islands) -> Iterator[Finished]:
    """The small sweep, carried out once for all: what it printed, and the folder that it did it in."""
    folder = tempfile.mkdtemp(prefix="islands-")
    made = sweeps_in(islands, folder)
    yield Finished(made, made.run("small.yaml"))
    clean(made)
    shutil.rmtree(folder)


@pytest.fixture
def again(finished: Finished, sweeps: Sweeps) -> Sweeps:
    """A copy of it, for a test to change."""
    shutil.copytree(os.path.join(finished.sweeps.folder, "results"), os.path.join(sweeps.folder, "results"))
    return sweeps


def undescribed(workload: str) -> None:
    """As where nothing is built: parameters are taken as they are."""


# Files that cannot be.

MICRO = "version: 1\nworkload: micro\n"
TATP = "version: 1\nworkload: tatp\n"
AXES = MICRO + "axes: {layout: [1ISL], op: [read]}\n"
BAD = {
    "unknown key": (MICRO + "axis: {op: [read]}\n", ["3:1: found unknown key 'axis', expected 'axes'?"]),
    "strange key": (MICRO + "zzz: 1\n", ["3:1: found unknown key 'zzz', expected one of version, title, "]),
    "key twice": (MICRO + "workload: tatp\n", ["3:1: found key 'workload' again, expected every key once"]),
    "anchor": (MICRO + "axes: &a {op: [read]}\n", ["3:7: found an anchor or alias, expected the value itself"]),
    "tag": (MICRO + "title: !!python/name:os.system ''\n", ["3:8: found tag "]),
    "no version": ("workload: micro\n", ["1:1: found no version, expected version: 1"]),
    "other version": ("version: 2\nworkload: micro\n", ["1:10: found '2', expected version: 1"]),
    "both": (MICRO + "program: ipc\n", ["1:1: found workload and program together, expected one of them"]),
    "neither": ("version: 1\n", ["1:1: found neither workload nor program, expected one of them"]),
    "no such workload": ("version: 1\nworkload: macro\n", ["2:11: found 'macro', expected one that is built: "]),
    "no such program": ("version: 1\nprogram: icp\n", ["2:10: found 'icp', expected one that is built: "]),
    "deployment of a program": ("version: 1\nprogram: ipc\ndeployment: {layout: 2ISL}\n",
                                ["3:1: found a deployment, expected none: a program runs without islands"]),
    "axis no list": (MICRO + "axes: {op: read}\n", ["3:12: found 'read', expected a list of values"]),
    "axis empty": (MICRO + "axes: {op: []}\n", ["3:12: found a list, expected a list of values"]),
    "axes no mapping": (MICRO + "axes: [op]\n", ["3:7: found a list, expected a mapping of axes to lists of values"]),
    "value a list": (MICRO + "axes: {rows: [1, [2]]}\n", ["3:18: found a list, expected a single value"]),
    "value twice": (MICRO + "axes: {rows: [2, 4, 2.0]}\n", ["3:21: found '2.0' again, expected every value once"]),
    "value infinite": (MICRO + "axes: {zipf: [0, .inf]}\n", ["3:18: found '.inf', expected a finite number"]),
    "layout": (MICRO + "axes:\n  layout: [1ISL, 0ISL, 2isl]\n", ["4:18: found '0ISL', expected 1ISL to 999ISL, or auto",
                                                                 "4:24: found '2isl', expected 1ISL to 999ISL"]),
    "cut": (MICRO + "axes: {cut: [SE, XX]}\n", ["3:18: found 'XX', expected SE, CG or FG"]),
    "durability": (MICRO + "axes: {durability: [lazy, none+forced, epoch]}\n",
                   ["3:27: found 'none+forced', expected none, lazy, sync, command, lazy+forced or sync+forced",
                    "3:40: found 'epoch', expected none, lazy, "]),
    "machine where none": (MICRO + "axes: {zipf: machine}\n", ["3:14: found 'machine', expected a list of values: "]),
    "axis name": ("version: 1\nprogram: ipc\naxes: {Rows: [1]}\n",
                  ["3:8: found axis 'Rows', expected lower-case letters"]),
    "axis of another workload": (MICRO + "axes: {mix: [read], multisit: [0]}\n",
                                 ["3:8: found unknown key 'mix', expected ", "3:21: found unknown key 'multisit', "
                                  "expected 'multisite'?"]),
    "mpl": (MICRO + "axes: {mpl: [4, 0, true]}\n", ["3:17: found '0', expected a whole number from 1 to 1,000",
                                                   "3:20: found 'True', expected a whole number from 1 to 1,000"]),
    "clients": (MICRO + "axes: {clients: [island, all]}\n", ["3:26: found 'all', expected island or deployment"]),
    "rate": (MICRO + "axes: {rate: [0, -1]}\n", ["3:18: found '-1', expected transactions per second, at most "]),
    "rate in words": (MICRO + "axes: {rate: [auto, most], p99_ms: [5, 0]}\n",
                      ["3:21: found 'most', expected transactions per second, at most 1,000,000,000; or auto",
                       "3:40: found '0', expected 0.001 to 60,000 milliseconds"]),
    "rows_total": (MICRO + "axes: {rows_total: [2.5]}\n", ["3:21: found '2.5', expected a whole number from 1"]),
    "needed": (MICRO + "axes: {op: [read, mix]}\n",
               ["2:11: found no --update-percent, expected a percentage from 0 to 100 with --op mix"]),
    "idle": (MICRO + "axes: {op: [read, mix]}\nparameters: {update_percent: 20}\n",
             ["2:11: found --update-percent 20, expected it only with --op mix"]),
    "no effect": (MICRO + "axes: {sites_touched: [0, 3], drift: [7]}\nparameters: {multisite: 0.0}\n",
                  ["2:11: found --sites-touched 3, which has no effect with --multisite 0; expected 0, or another "
                   "--multisite", "2:11: found --drift 7, which has no effect with --zipf 0; expected 0, or another"]),
    "no rate to find": (MICRO + "axes: {rate: [100], p99_ms: [5]}\n",
                        ["2:11: found --p99-ms 5, expected it only with --rate auto"]),
    "no parameter of micro": (MICRO + "parameters: {opp: read}\n", ["3:14: found unknown key 'opp', expected 'op'?"]),
    "no parameter of tatp": (TATP + "parameters: {op: read}\naxes: {mixx: [read], rows_total: [100]}\n",
                             ["3:14: found unknown key 'op', expected one of mpl, clients, rate, p99_ms, mix, uniform",
                              "4:8: found unknown key 'mixx', expected 'mix'?",
                              "4:22: found unknown key 'rows_total', expected "]),
    "parameter": (MICRO + "parameters: {rows: [1]}\n", ["3:20: found a list, expected a single value"]),
    "value of a parameter": (MICRO + "parameters: {rows: 0, op: write, multisite: 100.5, zipf: '1'}\n",
                             ["3:20: found '0', expected a whole number from 1 to 10000",
                              "3:27: found 'write', expected read | update | add | mix",
                              "3:45: found '100.5', expected a percentage from 0 to 100",
                              "3:58: found '1', expected a number from 0 to 1000"]),
    "value of an axis": (TATP + "axes: {mix: [read, write], remote: [0, true], uniform: [yes]}\n",
                         ["3:20: found 'write', expected standard | read | update | in_place",
                          "3:40: found 'True', expected a percentage from 0 to 100",
                          "3:57: found 'True', expected yes | no"]),
    "measure": (MICRO + "measure: {seconds: 0, warmup: -1, repeat: 2.5, times: 1}\n",
                ["3:20: found '0', expected a number from 0.1 to 86,400",
                 "3:31: found '-1', expected a number from 0 to 86,400",
                 "3:43: found '2.5', expected a whole number from 1 to 1,000",
                 "3:48: found unknown key 'times', expected one of seconds, warmup, repeat"]),
    "seed": (MICRO + "seed: true\n", ["3:7: found 'True', expected a whole number from 0 to 4,294,967,296"]),
    "plot's axis": (AXES + "plots: [{x: rows, series: zipf, y: committed_per_s, where: {ops: read}}]\n",
                    ["4:13: found 'rows', expected an axis: layout, op", "4:27: found 'zipf', expected an axis",
                     "4:61: found unknown key 'ops', expected 'op'?"]),
    # These would be found out after the night, when the tables are made.
    "plot's where": (AXES + "plots: [{x: op, y: committed_per_s, where: 5}]\n", ["4:44: found '5', expected"]),
    "plot's value": (AXES + "plots: [{x: layout, y: committed_per_s, where: {op: write}}]\n",
                     ["4:53: found 'write', expected a value of the axis: read"]),
    "plot's y": (AXES + "plots: [{x: op, y: [a]}, {x: op, y: commited_per_s}, {x: op}, {x: op, y: imbalance, "
                 "kind: pie}]\n",
                 ["4:20: found a list, expected text", "4:37: found 'commited_per_s', expected one of committed_per_s",
                  "4:54: found no y, expected y: a measured number", "4:91: found 'pie', expected line or bar"]),
    "no YAML": ("version: 1\naxes: [\n", [":3:1: found "]),
    "two documents": ("version: 1\n---\nversion: 1\n", ["2:1: found but found another document, expected YAML"]),
    "empty": ("", ["1:1: found nothing, expected a mapping"]),
    "a list": ("- a\n", ["1:1: found a list, expected a mapping"]),
    "all at once": ("versio: 1\nprogram: ipc\naxes: {batch: 1, wait: [spin, spin]}\n",
                    ["1:1: found unknown key 'versio', expected 'version'?", "1:1: found no version, expected ",
                     "3:15: found '1', expected a list of values", "3:31: found 'spin' again, expected every "]),
}


def complaints(sweeps: Sweeps, text: str, name: str = "bad.yaml") -> list[str]:
    """Those of a file, as text and as JSON."""
    sweeps.write(text, name)
    done = sweeps.run(name, code=2)
    assert done.out == ""
    assert sweeps.json(name, code=2) == {"error": {"message": done.err.strip(), "exit_code": 2}}
    assert sweeps.results() == []
    return done.err.splitlines()


def assert_told(found: Sequence[str], expected: Sequence[str]) -> None:
    """One complaint for each that is expected, in any order: they may end in more words."""
    assert len(found) == len(expected), found
    for start in expected:
        assert sum(start in line for line in found) == 1, (start, found)


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_told_by_line_and_column(sweeps: Sweeps, name: str) -> None:
    text, expected = BAD[name]
    assert_told(complaints(sweeps, text), [line if line.startswith(":") else f"bad.yaml:{line}" for line in expected])


def test_what_is_no_text_file_is_told(sweeps: Sweeps) -> None:
    with open(os.path.join(sweeps.folder, "binary.yaml"), "wb") as file:
        file.write(bytes(range(256)))
    assert "binary.yaml: cannot be read" in sweeps.run("binary.yaml", code=2).err
    assert "cannot be read" in sweeps.run(".", code=2).err
    assert "nowhere.yaml: cannot be read" in sweeps.run("nowhere.yaml", code=2).err


def test_bad_lists_of_sweeps_are_told_with_the_faults_of_their_files(sweeps: Sweeps) -> None:
    sweeps.write("version: 1\nsweeps: [small.yaml]\n", "list.yaml")
    sweeps.write("version: 1\nworkload: micro\nspeed: 1\n", "other.yaml")
    found = complaints(sweeps, """version: 1
sweeps:
  - nowhere.yaml
  - list.yaml
  - other.yaml
  - {file: small.yaml, axes: {layouts: [1ISL], multisite: [0, 0]}, plots: []}
  - small.yaml
  - {files: small.yaml}
""")
    assert_told(found, [
        "bad.yaml:3:5: found 'nowhere.yaml', which is not there, expected a sweep file beside this one",
        "list.yaml:2:1: found a list of sweeps, expected one experiment: lists do not nest",
        "other.yaml:3:1: found unknown key 'speed', expected 'seed'?",
        "bad.yaml:6:68: found unknown key 'plots', expected one of file, axes, parameters, measure",
        "bad.yaml:6:31: found axis 'layouts', expected one of small.yaml: layout, op, multisite; or "
        "placement or hardware_threads or durability or mpl or clients or rate or p99_ms",
        "bad.yaml:6:63: found '0' again, expected every value once",
        "bad.yaml:7:5: found 'small.yaml' again, expected every experiment once",
        "bad.yaml:8:5: found a mapping, expected the name of a sweep file, or "])
    only, = complaints(sweeps, "version: 1\nsweeps: small.yaml\n")
    assert only == "bad.yaml:2:9: found no sweeps, expected a list of sweep files"


DEPLOYED = """version: 1
workload: micro
deployment:
  layot: 2ISL
  storage: {buffer_pool: 256MB}
  data: {tables: [{name: micro, key: [uint64], range: [0, 24000], row_bytes: -1}]}
axes:
  placement: [islands, scattered]
  transport: [uds, zmq]
"""


def test_what_check_says_of_the_deployment_is_told_at_its_place_in_the_sweep_file(sweeps: Sweeps) -> None:
    assert_told(complaints(sweeps, DEPLOYED), [
        "bad.yaml:4:3: found unknown key 'layot', expected 'layout'?", "bad.yaml:5:13: found '256MB', expected",
        "bad.yaml:6:67: found '-1', expected",
        "bad.yaml:8:3: found 'scattered', expected islands | spread | os (with placement scattered, transport "])


def test_what_check_says_of_a_deployment_file_is_told_there(sweeps: Sweeps) -> None:
    sweeps.write("version: 1\ndata:\n  sites: 24\n  tables:\n    - " + TABLE.replace("100", "-1") + "\n", "base.yaml")
    assert_told(complaints(sweeps, MICRO + "deployment: base.yaml\naxes:\n  layout: [1ISL, 99ISL]\n"),
                ["base.yaml:5:55: found '-1', expected"])
    sweeps.write("version: 1\ndata:\n  sites: 24\n  tables:\n    - " + TABLE + "\n", "base.yaml")
    found, = complaints(sweeps, MICRO + "deployment: base.yaml\naxes:\n  layout: [1ISL, 99ISL]\n")
    assert found.startswith("base.yaml:3:3: found 24 sites for 99 islands") and found.endswith("(with layout 99ISL)")
    assert_told(complaints(sweeps, MICRO + "deployment: elsewhere.yaml\n"), ["elsewhere.yaml: cannot be read"])


def test_sections_of_the_deployment_that_are_none_are_told(sweeps: Sweeps) -> None:
    text = MICRO + "deployment: {messaging: 5, data: [1]}\naxes: {transport: [uds, zmq], sites: [24]}\n"
    assert_told(complaints(sweeps, text), ["bad.yaml:3:14: found ", "bad.yaml:3:28: found "])
    for section in ("{storage: 5}", "{storage: {log: 5}}", "{storage: {log: {durability: often}}}"):
        found, = complaints(sweeps, MICRO + f"deployment: {section}\n")
        assert found.startswith("bad.yaml:3:") and "found " in found, found


# A sweep that ends well.

def test_small_sweep_keeps_every_run(finished: Finished) -> None:
    directory, = finished.sweeps.results()
    lines = [json.loads(line) for line in finished.sweeps.lines()]
    assert sorted(line["id"] for line in lines) == [f"{number:04}" for number in range(RUNS)]
    for line in lines:
        assert (line["ok"], line["error"], line["sum_check"]) == (True, None, "ok")
        assert set(line["axes"]) == {"layout", "op", "multisite"}
        assert line["islands"] == int(line["axes"]["layout"][0]) and line["workers"] >= line["islands"]
        assert (line["durability"], line["votes"], line["log_on"]) == ("none", "epoch", None)
        assert set(line["metrics"]) == set(sweep_file.WORKLOAD_METRICS)
        assert line["metrics"]["committed_per_s"] > 0
        distributed = line["axes"]["layout"] == "2ISL" and line["axes"]["multisite"] > 0
        assert (line["metrics"]["distributed_share"] > 0.2) == distributed
        assert line["started"].endswith("Z") and line["build"] == finished.sweeps.read()["build"]
        with open(os.path.join(directory, "small", line["run_directory"], "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        assert summary["committed_per_s"] == line["metrics"]["committed_per_s"]
        assert summary["layout"] == line["axes"]["layout"]
        assert line["metrics"]["slowest_island_per_s"] == min(one["committed_per_s"] for one in summary["per_island"])
        with open(os.path.join(directory, "small", line["run_directory"], "meta.json"), encoding="utf-8") as file:
            typed = shlex.split(json.load(file)["command_line"])
        told = shlex.split(line["command"])
        assert told[:4] == ["islands", "run", "deployment.yaml", "micro"]
        typed = typed[typed.index("micro") + 1:]
        del typed[typed.index("--results"):typed.index("--results") + 2]
        assert [word for word in typed if word not in ("--format", "json", "--no-doctor")] == told[4:], "what was run"
    assert collections.Counter(line["repetition"] for line in lines) == {0: RUNS // 2, 1: RUNS // 2}
    with open(os.path.join(directory, "small", "sweep.yaml"), encoding="utf-8") as file:
        assert file.read() == SMALL


def test_small_sweep_says_what_it_was(finished: Finished) -> None:
    about, plan = finished.sweeps.read(), finished.sweeps.read("small/plan.json")
    assert about["complete"] and about["finished"] and about["seconds"] > 1 and "work" not in about
    assert about["figures"] == ["small"] and about["command"] == "islands sweep small.yaml" and about["notes"] == []
    assert about["doctor"]["brief"] and about["doctor"]["findings"]
    assert len(about["machine"]["cores"]) >= 1 and "core" in about["machine_text"]
    assert set(about["system"]) == {"cpu", "kernel", "os"} and len(about["build"]) == 12 and about["version"]
    folder, = finished.sweeps.results()
    with open(os.path.join(folder, "small", "runs", "0000", "meta.json"), encoding="utf-8") as file:
        assert about["commit"] == json.load(file)["commit"]
    assert plan["axes"][0] == {"name": "layout", "values": ["1ISL", "2ISL"]}
    assert (plan["points"], plan["runs"], plan["workload"], plan["program"]) == (RUNS // 2, RUNS, "micro", None)
    assert plan["durability"] == "none"


def test_small_sweep_prints_every_point(finished: Finished) -> None:
    assert finished.done.out.startswith("A small one, durability none\n")
    for title in ("Reads", "Updates"):
        lines = finished.done.out.split(title + ", thousand transactions/s\n")[1].splitlines()[:3]
        assert lines[0].split() == ["multisite", "0", "multisite", "50"]
        assert [line.split()[0] for line in lines[1:]] == ["1ISL", "2ISL"]
        assert all(line.count("±") == 2 for line in lines[1:])
    assert f"{RUNS} of {RUNS} runs ended well" in finished.done.out
    assert f"`islands report results/{os.path.basename(finished.sweeps.results()[0])}`" in finished.done.out
    last = finished.done.err.splitlines()[-1]
    assert last.startswith("[######") and f" {RUNS - 1}/{RUNS}, about 0:0" in last


def test_complete_results_are_summed_up_without_running(again: Sweeps) -> None:
    directory, = again.results()
    before = again.lines()
    report = again.json("small.yaml", "--results", directory)
    assert again.lines() == before
    assert (report["complete"], report["failures"], report["results"]) == (True, [], directory)
    points = report["experiments"][0]["points"]
    assert len(points) == RUNS // 2
    for point in points:
        found = [line["metrics"] for line in map(json.loads, before) if line["axes"] == point["axes"]]
        for name, value in point["metrics"].items():
            values = [metrics[name] for metrics in found]
            assert value == {"median": statistics.median(values), "min": min(values), "max": max(values), "n": 2}
    assert "is complete; nothing to do" in again.run("small.yaml", "--results", directory).err


def test_report_makes_a_page_of_it(again: Sweeps) -> None:
    found = subprocess.run(["/usr/bin/python3", "-c", "import matplotlib"], stderr=subprocess.DEVNULL, check=False)
    if found.returncode:
        pytest.skip("python3-matplotlib is not installed")
    done = again.islands.run("report", cwd=again.folder)
    assert done.code == 0, done
    assert os.path.getsize(os.path.join(again.results()[0], "report", "index.html")) > 10_000


ONE = ["one.yaml", "--seconds", "0.1", "--warmup", "0", "--repeat", "1"]


def one(sweeps: Sweeps, more: str = "", deployment: str = DEPLOYMENT, axes: str = "{layout: [1ISL]}") -> str:
    return sweeps.write(f"version: 1\nworkload: micro\n{deployment}axes: {axes}\n{more}", "one.yaml")


def test_data_of_the_users_deployment_is_left_alone(sweeps: Sweeps) -> None:
    own = os.path.join(sweeps.folder, "own")
    log = f"{{durability: lazy, directory: {own}/log, ring_directory: {own}/rings}}"
    one(sweeps, deployment=f"deployment: {{storage: {{buffer_pool: 256MiB, log: {log}}}, data: {{directory: {own}, "
        f"tables: [{TABLE}]}}, control: {{directory: {own}/run}}}}\n", axes="{layout: [1ISL, 2ISL]}")
    done = sweeps.run(*ONE)
    assert ("note: not used, of the deployment: data.directory, storage.log.directory, storage.log.ring_directory, "
            "control.directory") in done.out
    assert not os.path.exists(own)


def test_programs_are_swept_without_islands(sweeps: Sweeps) -> None:
    sweeps.write("version: 1\nprogram: counters\naxes: {counters: [single, per-core], workers: [grouped]}\n"
                 "measure: {seconds: 0.1, warmup: 0, repeat: 1}\n", "count.yaml")
    if not os.path.exists(os.path.join(os.path.dirname(sweeps.islands), "..", "lib", "islands", "counters")):
        pytest.skip("counters is not built")
    assert "2 runs without islands: " in sweeps.run("count.yaml", "--dry-run").out
    assert "2 of 2 runs ended well" in sweeps.run("count.yaml").out
    lines = [json.loads(line) for line in sweeps.lines("count")]
    assert all(line["metrics"]["increments_per_s"] > 0 for line in lines)
    assert {line["command"] for line in lines} == {
        f"counters --seconds 0.1 --warmup 0 --seed 1 --counters {counters} --workers grouped"
        for counters in ("single", "per-core")}


# Interruptions.

def wait_for_lines(sweeps: Sweeps, process: subprocess.Popen[str], count: int) -> None:
    wait_until(lambda: len(sweeps.lines()) >= count or process.poll() is not None, what="runs")
    assert process.poll() is None, process.communicate()


def assert_goes_on(sweeps: Sweeps, *options: str) -> Result:
    """To the end, and does nothing twice."""
    before = sweeps.lines()
    done = sweeps.run("small.yaml", *options)
    directory = os.path.basename(sweeps.results()[0])
    assert f"going on in results/{directory}: {RUNS - len(before)} of {RUNS} runs are left" in done.err
    after = sweeps.lines()
    assert after[:len(before)] == before and len(after) == RUNS
    assert len({json.loads(line)["id"] for line in after}) == RUNS
    assert sweeps.read()["complete"]
    return done


def test_interrupted_sweep_goes_on_and_a_complete_one_is_begun_anew(sweeps: Sweeps) -> None:
    process = sweeps.start("small.yaml", "--format", "json")
    wait_for_lines(sweeps, process, 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "SIGINT; stopped. The same command goes on from here" in err
    assert json.loads(out)["error"]["exit_code"] == 130
    assert sweeps.left() == ({}, [])
    about = sweeps.read()
    assert (about["complete"], about["finished"]) == (False, None) and "work" not in about
    assert 2 <= len(sweeps.lines()) < RUNS
    assert_goes_on(sweeps)
    assert sweeps.read()["seconds"] > about["seconds"]
    # Measuring again is what the same command means now. An old directory that is not complete changes nothing.
    old = os.path.join(sweeps.folder, "results", "small-20000101T000000Z")
    shutil.copytree(sweeps.results()[0], old)
    document = sweeps.read() | {"complete": False, "finished": None, "started": "2000-01-01T00:00:00Z"}
    with open(os.path.join(old, "sweep.json"), "w", encoding="utf-8") as file:
        json.dump(document, file)
    process = sweeps.start("small.yaml")
    wait_until(lambda: len(sweeps.results()) == 3, what="a new directory")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 130
    process.communicate()
    assert sweeps.left() == ({}, [])


def test_interrupt_while_a_cluster_starts_leaves_nothing(sweeps: Sweeps) -> None:
    process = sweeps.start("small.yaml")
    assert line_of(process.stderr).startswith("doctor: ")
    assert "starting layout" in line_of(process.stderr)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130 and sweeps.left() == ({}, []) and sweeps.lines() == []


def test_killed_sweep_leaves_a_cluster_that_the_next_one_stops(sweeps: Sweeps) -> None:
    process = sweeps.start("small.yaml")
    wait_for_lines(sweeps, process, 2)
    process.kill()
    process.communicate()
    running, works = sweeps.left()
    assert running and len(works) == 1 and sweeps.read()["work"] == works[0]
    done = assert_goes_on(sweeps)
    assert f"stopping what a sweep that was killed has left in {works[0]}" in done.err


def test_any_other_sweep_stops_it_too(sweeps: Sweeps) -> None:
    process = sweeps.start("small.yaml")
    wait_for_lines(sweeps, process, 1)
    process.kill()
    process.communicate()
    one(sweeps)
    assert "stopping what a sweep that was killed has left" in sweeps.run(*ONE).err


def test_work_folder_of_somebody_elses_results_is_not_removed(again: Sweeps) -> None:
    mine = os.path.join(again.folder, "mine")
    os.mkdir(mine)
    again.keep_lines(RUNS - 1)
    again.change(work=mine)
    assert_goes_on(again)
    assert os.path.isdir(mine)


def test_hang_up_is_ignored_under_nohup(again: Sweeps) -> None:
    again.keep_lines(RUNS - 2)
    process = again.start("small.yaml", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert line_of(process.stderr).startswith("doctor: ")
    assert "going on" in line_of(process.stderr)
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=30) and process.returncode == 0
    assert again.read()["complete"]


def test_torn_last_line_costs_that_run_only(again: Sweeps) -> None:
    lines = again.keep_lines(RUNS - 2)
    file = glob.glob(os.path.join(again.folder, "results", "*", "small", "results.jsonl"))[0]
    with open(file, "ab") as out:
        out.write(b'{"id": "00\xff')
    assert "2 of 16 runs are left" in again.run("small.yaml").err
    with open(file, encoding="utf-8", errors="replace") as content:
        after = content.read().splitlines()
    assert after[:RUNS - 2] == lines and len(after) == RUNS + 1
    assert len(result_files.read_lines(file)) == RUNS
    assert again.read()["complete"]


def test_lines_lost_after_the_end_are_measured_again(again: Sweeps) -> None:
    again.keep_lines(RUNS - 1)
    again.change(complete=True)
    again.run("small.yaml", "--results", again.results()[0])
    assert len(again.lines()) == RUNS and again.read()["complete"]


def test_other_binaries_are_noticed(again: Sweeps) -> None:
    build = again.read()["build"]
    again.keep_lines(RUNS - 1)
    again.change(build="0123456789ab", kernel="1.0")
    done = again.run("small.yaml", code=1)
    assert f"was begun differently: the binaries: 0123456789ab then, {build} now; the kernel: 1.0 then" in done.err
    assert "--fresh" in done.err and "--mixed" in done.err
    assert len(again.lines()) == RUNS - 1
    again.run("small.yaml", "--mixed")
    about = again.read()
    assert about["complete"] and about["build"] == build and "1.0 then" in about["notes"][1]
    assert about["notes"][0] == f"went on with changes, the binaries: 0123456789ab then, {build} now"
    # Once is enough.
    again.keep_lines(RUNS - 1)
    assert_goes_on(again)


def test_fresh_begins_anew(again: Sweeps) -> None:
    directory, = again.results()
    again.keep_lines(1)
    again.change(build="0123456789ab")
    stray = os.path.join(directory, "small", "runs", "9999")
    os.mkdir(stray)
    process = again.start("small.yaml", "--fresh", "--results", directory)
    wait_until(lambda: again.read()["build"] != "0123456789ab", what="a beginning")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert not os.path.exists(stray) and again.results() == [directory]
    process = again.start("small.yaml", "--fresh")
    wait_until(lambda: len(again.results()) == 2, what="a new directory")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert again.left() == ({}, [])


def test_results_that_are_no_object_are_another_sweeps(sweeps: Sweeps) -> None:
    """It ended with a trace."""
    directory = os.path.join(sweeps.folder, "results", "mine")
    os.makedirs(directory)
    with open(os.path.join(directory, "sweep.json"), "w", encoding="utf-8") as file:
        file.write("[]\n")
    done = sweeps.run("small.yaml", "--results", directory, code=1)
    assert f"{directory} holds results of another sweep" in done.err


def test_changed_file_is_another_sweep(again: Sweeps) -> None:
    directory, = again.results()
    again.keep_lines(3)
    again.write(SMALL.replace("rows: 4", "rows: 5"))
    done = again.run("small.yaml", "--results", directory, code=1)
    assert f"{directory} holds results of another sweep, or of this one before it was changed" in done.err
    process = again.start("small.yaml")
    wait_until(lambda: len(again.results()) == 2, what="a new directory")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert f"results/{os.path.basename(directory)} is incomplete, but of another plan; it is left alone" in err
    # The unchanged file still goes on in its own.
    again.write(SMALL)
    assert "13 of 16 runs are left" in again.run("small.yaml").err


def test_titles_and_plots_may_change_between(again: Sweeps) -> None:
    directory, = again.results()
    again.keep_lines(RUNS - 1)
    title = next(line for line in SMALL.splitlines() if line.startswith("title:"))
    again.write(SMALL.replace(title, "title: Another title"))
    assert "1 of 16 runs are left" in again.run("small.yaml").err
    assert again.results() == [directory] and again.read()["title"] == "Another title"
    with open(os.path.join(again.folder, "results", os.path.basename(directory), "small", "plan.json"),
              encoding="utf-8") as plan:
        assert json.load(plan)["title"] == "Another title"


def test_folder_with_other_things_is_refused(sweeps: Sweeps) -> None:
    one(sweeps)
    done = sweeps.run(*ONE, "--results", ".", code=1)
    assert ". holds other things than a sweep's results" in done.err
    os.mkdir(os.path.join(sweeps.folder, "empty"))
    sweeps.run(*ONE, "--results", "empty")
    with open(os.path.join(sweeps.folder, "results"), "w", encoding="utf-8"):
        pass
    report = sweeps.json(*ONE, code=1)
    assert "results" in report["error"]["message"]


def test_two_sweeps_do_not_share_a_directory(again: Sweeps) -> None:
    again.keep_lines(RUNS - 1)
    with open(os.path.join(again.results()[0], ".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        report = again.json("small.yaml", code=1)
        assert report["error"]["message"].startswith("another sweep is writing to results/small-")
    assert_goes_on(again)


# Runs that fail.

def test_point_that_cannot_run_is_recorded_and_tried_again(sweeps: Sweeps) -> None:
    one(sweeps, axes="{layout: [1ISL], rows: [4, 2000]}")
    done = sweeps.run(*ONE, code=1)
    assert "1 of 2 runs ended well" in done.out
    assert "1 run failed (one/0001): " in done.err
    assert "--rows: found 2000, expected at most the 1000 rows of the smallest site" in done.err
    lines = [json.loads(line) for line in sweeps.lines("one")]
    assert {line["id"]: line["ok"] for line in lines} == {"0000": True, "0001": False}
    report = sweeps.json(*ONE, code=1)
    assert [failure["id"] for failure in report["failures"]] == ["0001"] and not report["complete"]
    assert report["failures"][0]["experiment"] == "one" and "--rows" in report["failures"][0]["error"]
    assert [json.loads(line)["id"] for line in sweeps.lines("one")[2:]] == ["0001"]
    assert len(report["experiments"][0]["points"]) == 1


def test_workload_that_cannot_be_described_is_told(islands: Islands, folder: str) -> None:
    os.mkdir(os.path.join(folder, "bin"))
    os.symlink(os.path.realpath(os.path.join(os.path.dirname(islands), "..", "lib")), os.path.join(folder, "lib"))
    made = sweeps_in(Islands(shutil.copy(islands, os.path.join(folder, "bin", "islands"))), folder)
    assert "cannot say what workload 'micro' can be told: [Errno 2]" in made.run("small.yaml", code=1).err


@pytest.fixture
def brittle(islands: Islands, folder: str) -> Iterator[Sweeps]:
    """Sweeps with an islandd that fails as island 1, as long as there is a file `broken`, and commands each of which
    has a note of its own."""
    lib = os.path.join(os.path.dirname(islands), "..", "lib")
    os.mkdir(os.path.join(folder, "bin"))
    os.symlink(os.path.realpath(lib), os.path.join(folder, "lib"))
    command = shutil.copy(islands, os.path.join(folder, "bin", "islands-itself"))
    daemon = os.path.join(os.path.realpath(os.path.dirname(islands)), "islandd")
    fail = f"""case "$*" in */island-1) test -e {folder}/broken && {{ echo out of luck >&2; exit 1; }};; esac"""
    for program, first, name in (command, 'echo "note: of process $$" >&2', "islands"), (daemon, fail, "islandd"):
        with open(os.path.join(folder, "bin", name), "w", encoding="utf-8") as script:
            script.write(f'#!/bin/sh\n{first}\nexec {program} "$@"\n')
        os.chmod(script.name, 0o755)
    made = sweeps_in(Islands(command), folder)
    made.write("", "broken")
    yield made
    assert clean(made) == {}, "processes were left behind"


def test_cluster_that_does_not_come_up_costs_its_runs_only(brittle: Sweeps) -> None:
    one(brittle, axes="{layout: [1ISL, 2ISL], op: [read, update]}")
    done = brittle.run(*ONE[:-1], "3", code=1)
    assert "6 of 12 runs ended well" in done.out
    lines = [json.loads(line) for line in brittle.lines("one")]
    assert {(line["axes"]["layout"], line["ok"]) for line in lines} == {("1ISL", True), ("2ISL", False)}
    errors = {line["error"] for line in lines if not line["ok"]}
    assert any("out of luck" in error for error in errors) and not any(brittle.folder in error for error in errors)
    # Of the same thing it speaks once while it happens, and once in the end.
    assert done.err.count("out of luck") == 2, done.err
    os.remove(os.path.join(brittle.folder, "broken"))
    assert "6 of 12 runs are left" in brittle.run(*ONE[:-1], "3").err


def test_experiment_is_given_up_after_three_clusters_in_a_row(brittle: Sweeps) -> None:
    one(brittle, axes="{layout: [2ISL]}")
    done = brittle.run(*ONE[:-1], "5", code=1)
    assert "2 runs failed (one/0003, one/0004): not tried: 3 clusters before did not come up" in done.err
    assert "3 runs failed (one/0000, one/0001, one/0002): `islands up islands.yaml" in done.err


def test_socket_paths_that_are_too_long_are_told_before(sweeps: Sweeps) -> None:
    sweeps.environment["TMPDIR"] = os.path.join(sweeps.folder, "x" * 80)
    os.mkdir(sweeps.environment["TMPDIR"])
    assert "small.yaml:4:14: found a directory whose socket paths have up to " in sweeps.run("small.yaml", code=2).err


# What it prints, and options.

def test_progress_fits_the_terminal(again: Sweeps) -> None:
    """On a terminal the line is rewritten, which needs that it is one."""
    again.keep_lines(RUNS - 1)
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    process = again.start("small.yaml", stdin=subprocess.DEVNULL, stderr=child)
    os.close(child)
    shown = b""
    try:
        while part := os.read(parent, 4096):
            shown += part
    except OSError:  # how a terminal says that nobody writes any more
        pass
    os.close(parent)
    process.communicate(timeout=30)
    assert process.returncode == 0
    bars = [part for part in shown.decode().replace("\n", "\r").split("\r") if part.startswith("[")]
    assert len(bars) >= 2 and all(len(bar) < 60 for bar in bars)


def test_eta_follows_what_is_left() -> None:
    progress = runner.Progress([10.0] * 6)
    assert progress.eta() == 60
    progress.step(10, 1)
    progress.begin -= 20  # it took twice as long as planned
    assert progress.eta() == pytest.approx(100, rel=0.01)
    for _ in range(5):
        progress.step(10, 1)
    assert progress.eta() == 0 and progress.done == 6


def test_help_and_bad_options(sweeps: Sweeps) -> None:
    listed = sweeps.islands.run("--help").out
    assert all(f"\n  {name} " in listed for name in ("sweep", "report", "advise"))
    shown = sweeps.run("--help")
    assert shown.out.startswith("usage: islands sweep ") and "exit codes:" in shown.out
    assert "islands sweep: unrecognized arguments: --fast" in sweeps.run("small.yaml", "--fast", code=2).err
    assert "SWEEPFILE" in sweeps.run(code=2).err
    for option in ("--seconds", "--repeat"):
        assert f"{option}: found 0" in sweeps.run("small.yaml", option, "0", code=2).err
    assert "--fast" in sweeps.json("small.yaml", "--fast", code=2)["error"]["message"]


def test_dry_run_starts_nothing(sweeps: Sweeps) -> None:
    done = sweeps.run("small.yaml", "--dry-run", "--repeat", "3", "--seconds", "10")
    assert done.out.startswith("small       24 runs on   6 clusters: layout 1ISL/2ISL, op read/update, multisite")
    assert done.out.endswith("24 runs, about 4:08 min\n") and sweeps.results() == []
    before = sweeps.islands.run("--format", "json", "sweep", "small.yaml", "--dry-run", cwd=sweeps.folder)
    after = sweeps.islands.run("sweep", "small.yaml", "--dry-run", "--format", "json", cwd=sweeps.folder)
    assert before == after and json.loads(after.out)["runs"] == RUNS


# Machines and plans.

@pytest.mark.parametrize("spec, layouts, cores, cuts, workers", [
    ("pack:1 core:1 pu:1", [1], [1], ["SE", "FG"], 2),
    ("pack:1 core:2 pu:1", [1, 2], [1, 2], ["SE", "FG"], 2),
    ("pack:2 core:1 pu:1", [1, 2], [1, 2], ["SE", "CG", "FG"], 4),
    ("pack:1 core:6 pu:2", [1, 2, 3, 6], [1, 2, 4, 6], ["SE", "FG"], 2),
    (PAPERS, [1, 2, 4, 8, 12, 24], [1, 2, 4, 6, 12, 18, 24], ["SE", "CG", "FG"], 4),
    ("pack:8 core:10 pu:1", [1, 2, 4, 8, 16, 40, 80], [1, 2, 4, 8, *range(10, 90, 10)], ["SE", "CG", "FG"], 4)])
def test_words_of_machines(islands: Islands, spec: str, layouts: list[int], cores: list[int], cuts: list[str],
                           workers: int) -> None:
    machine = Machine(islands.json("machine", spec))
    assert machine.layouts() == [f"{count}ISL" for count in layouts]
    assert machine.values("cores") == (cores, None)
    cut, placed = machine.values("cut"), machine.values("workers")
    assert cut and cut[0] == cuts and (cut[1] is None) == ("CG" in cuts)
    assert placed and len(placed[0]) == workers
    assert machine.values("zipf") is None
    assert machine.layout_of_cut("SE", machine.cores) == "1ISL"
    assert machine.layout_of_cut("CG", machine.cores) == f"{machine.sockets}ISL"
    assert machine.layout_of_cut("FG", machine.cores) == f"{machine.cores}ISL"


def test_cuts_and_numbers_of_part_of_a_machine(islands: Islands) -> None:
    machine = Machine(islands.json("machine", PAPERS))
    assert [machine.sockets_of(cores) for cores in (1, 6, 7, 12, 24)] == [1, 1, 2, 2, 4]
    assert machine.layout_of_cut("CG", 12) == "2ISL" and machine.layout_of_cut("FG", 12) == "12ISL"
    assert machine.layouts(4) == ["1ISL", "2ISL", "4ISL"]
    value = {"sites": "$cores", "range": [0, "$cores"], "name": "$sockets of $cores, $coresome", "off": False}
    assert machine.substitute(value, 12, 4) == {"sites": 12, "range": [0, 12], "name": "2 of 12, $coresome",
                                                "off": False}
    assert machine.substitute({"sites": "$islands"}, 12, 4) == {"sites": 4}
    assert [machine.islands_of(layout, 12) for layout in ("8ISL", "auto", None)] == [8, machine.sockets_of(12)] + [
        machine.sockets_of(12)]


@pytest.mark.parametrize("workers, cpus", [
    ("grouped", "0-3"), ("spread", "0,6,12,18"), ("mix", "0-1,6-7"), ("os", None)])
def test_four_workers_lie_as_in_figure_3(islands: Islands, deployment: WriteFile, workers: str,
                                         cpus: str | None) -> None:
    machine = Machine(islands.json("machine", PAPERS))
    experiment = sweep_file.read(os.path.join(EXPERIMENTS, "fig03.yaml"), undescribed).experiments[0]
    block, = [block for block in plans_of.make(experiment, machine).blocks
              if block.settings["workers"] == workers and block.repetition == 0]
    made = clusters.document(block, machine, "fig03") | {"machine": PAPERS}
    plan = islands.json("plan", deployment(json.dumps(made)))
    assert [(island["workers"], island.get("cpus") or None) for island in plan["islands"]] == [(4, cpus)], plan


def test_cpus_of_part_of_a_machine(islands: Islands) -> None:
    machine = Machine(islands.json("machine", PAPERS))
    assert machine.cpus(5, "spread") == "0,6,12,18,1" and machine.cpus(9, "mix") == "0,1,6,7,12,13,18,19,2"
    assert sorted(map(int, machine.cpus(24, "spread").split(","))) == list(range(24))
    assert Machine(islands.json("machine", "pack:2 core:2 pu:2")).cpus(2, "spread") == "0,1,4,5"


@pytest.mark.parametrize("spec, layouts", [
    (PAPERS, ["1ISL", "2ISL", "4ISL", "8ISL", "12ISL", "24ISL"]),
    ("pack:1 l3:2 core:4 pu:1", ["1ISL", "2ISL", "4ISL", "8ISL"])])
def test_placement_is_an_axis_of_every_layout(islands: Islands, deployment: WriteFile, spec: str,
                                              layouts: list[str]) -> None:
    """fig04.yaml: the cores of every layout placed in three ways, of which spread is another one wherever it can be."""
    machine = Machine(islands.json("machine", spec))
    experiment = sweep_file.read(os.path.join(EXPERIMENTS, "fig04.yaml"), undescribed).experiments[0]
    made = plans_of.make(experiment, machine)
    assert made.axes["layout"] == layouts and made.axes["placement"] == ["islands", "spread", "os"]
    found: dict[tuple[Scalar, Scalar], list[str]] = {}
    for block in made.blocks[:len(made.blocks) // experiment.measure["repeat"]]:
        document = clusters.document(block, machine, "fig04") | {"machine": spec}
        plan = islands.json("plan", deployment(json.dumps(document)))
        assert plan["layout"] == block.settings["layout"], plan
        cpus = [island.get("cpus") or "" for island in plan["islands"]]
        found[block.settings["layout"], block.settings["placement"]] = cpus
    assert len(found) == 3 * len(layouts)
    for layout in layouts:
        near, spread, unbound = (found[layout, placement] for placement in ("islands", "spread", "os"))
        assert set(unbound) == {""} and "" not in near + spread
        assert (near == spread) == (layout in (layouts[0], layouts[-1])), (layout, near, spread)
    if spec == PAPERS:
        assert found["4ISL", "islands"][0] == "0-5" and found["4ISL", "spread"][0] == "0,4,8,12,16,20"


def test_placements_that_are_the_same_are_measured_once(islands: Islands, folder: str) -> None:
    text = SMALL.replace("  layout: [1ISL, 2ISL]\n", "  placement: [spread, islands, os]\n").split("plots:")[0]
    two = Machine(islands.json("machine", "pack:1 l3:1 core:2 pu:1"))
    made = plans_of.make(read_text(folder, text), two)
    assert made.axes["placement"] == ["islands", "os"] and "spread puts islands where" in made.notes[0]
    assert plans_of.make(read_text(folder, text.replace("[spread, islands, os]", "machine")), two).axes == made.axes
    assert plans_of.make(read_text(folder, text.replace(", islands, os", "")), two).axes["placement"] == ["spread"]
    papers = Machine(islands.json("machine", PAPERS))
    assert plans_of.make(read_text(folder, text), papers).axes["placement"] == ["spread", "islands", "os"]
    by_hand = text.replace("deployment: {", "deployment: {islands: [{cpus: '0-11'}, {cpus: '12-23'}], ")
    made = plans_of.make(read_text(folder, by_hand), papers)
    assert made.axes["placement"] == ["islands", "os"] and "islands by hand" in made.notes[0]


def test_lists_add_placements_and_how_clients_ask(islands: Islands, folder: str) -> None:
    read_text(folder, SMALL)
    path = os.path.join(folder, "list.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("version: 1\nsweeps:\n"
                   "  - {file: small.yaml, axes: {placement: machine, rate: [0, auto], mpl: [1, 4]}}\n")
    experiment, = sweep_file.read(path, undescribed).experiments
    made = plans_of.make(experiment, Machine(islands.json("machine", PAPERS)))
    assert made.axes["placement"] == ["islands", "spread", "os"] and made.axes["mpl"] == [1, 4]
    assert len(made.points) == 8 * 3 * 2 * 2
    asked, searched = made.points[0], made.points[2]
    assert (asked["rate"], searched["rate"]) == (0, "auto")
    assert runner.run_seconds(experiment, searched) > runner.run_seconds(experiment, asked) + 10


def read_text(folder: str, text: str, name: str = "small.yaml") -> sweep_file.Experiment:
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return sweep_file.read(path, undescribed).experiments[0]


def order(plan: plans_of.Plan) -> list[str]:
    return [run.id for block in plan.blocks for run in block.runs]


def test_plans_are_shuffled_by_the_seed(islands: Islands, folder: str) -> None:
    machine = Machine(islands.json("machine", PAPERS))
    text = SMALL.replace("[1ISL, 2ISL]", "machine").replace("repeat: 2", "repeat: 3")
    first, second, other = (plans_of.make(read_text(folder, text + seed), machine) for seed in ("", "", "seed: 2\n"))
    assert order(first) == order(second) != order(other)
    assert sorted(order(first)) == [run.id for run in first.runs] != order(first)
    assert [(run.id, run.point, run.repetition) for run in first.runs] == \
        [(run.id, run.point, run.repetition) for run in other.runs]
    assert len(first.points) == 24 and len(first.blocks) == 18 and len(order(first)) == 72
    assert [block.repetition for block in first.blocks] == [0] * 6 + [1] * 6 + [2] * 6
    for block in first.blocks:
        assert list(block.settings) == ["layout"] and len(block.runs) == 4
        assert all((run.point["layout"], run.repetition) == (block.settings["layout"], block.repetition)
                   for run in block.runs)
    layouts = [tuple(str(block.settings["layout"]) for block in first.blocks if block.repetition == repetition)
               for repetition in range(3)]
    assert sorted(layouts[0]) == sorted(layouts[1]) and len(set(layouts)) > 1


def test_axes_keep_to_the_deployments_cores(islands: Islands, folder: str) -> None:
    """`layout: machine` with four cores of 24: not 24ISL."""
    machine = Machine(islands.json("machine", PAPERS))
    text = SMALL.replace("[1ISL, 2ISL]", "machine").replace("deployment: {", "deployment: {cores: 4, ")
    assert plans_of.make(read_text(folder, text), machine).axes["layout"] == ["1ISL", "2ISL", "4ISL"]


# The files that come with it.

SHIPPED = sorted(glob.glob(os.path.join(EXPERIMENTS, "*.yaml")))


@pytest.mark.parametrize("file", SHIPPED, ids=os.path.basename)
def test_shipped_files_fit_this_machine(sweeps: Sweeps, file: str) -> None:
    plan = sweeps.json(file, "--dry-run")
    assert plan["runs"] == sum(experiment["runs"] for experiment in plan["experiments"]) > 0
    if os.path.basename(file) == "quick.yaml" and len(sweeps.islands.json("machine")["cores"]) == 2:
        assert plan["seconds"] <= 330, "five minutes on two cores"


def test_lists_name_every_experiment() -> None:
    wanted = {os.path.basename(file) for file in SHIPPED} - {"all.yaml", "quick.yaml", "tatp64.yaml"}
    assert {"fig02.yaml", "fig03.yaml", "fig04.yaml", "fig05.yaml", "tab01.yaml", "fig06.yaml", "fig07.yaml",
            "fig09.yaml", "fig10.yaml", "fig12.yaml", "fig13.yaml", "tatp.yaml"} <= wanted
    listed = {name: {experiment.name + ".yaml" for experiment in sweep_file.read(
        os.path.join(EXPERIMENTS, name + ".yaml"), undescribed).experiments} for name in ("all", "quick")}
    assert listed["all"] == wanted
    assert wanted - listed["quick"] == {f"{name}.yaml" for name in (
        "logging", "shoremt", "shoremt_fig4", "shoremt_fig5", "lockmgr_mpl", "hstore", "hstore_fig2", "hstore_fig3",
        "hstore_commands", "ablation", "horikawa", "horikawa_fig4", "participants", "drift", "fig08", "fig11",
        "fig14", "transports")}, "five minutes are for the main paper"


def test_every_claim_has_a_sweep() -> None:
    """The names that the report knows claims for are names of files."""
    known = {*claims.FIGURES, *claims.ACROSS_DURABILITIES}
    assert known <= {os.path.basename(file).removesuffix(".yaml") for file in SHIPPED}


def test_shipped_files_have_the_papers_axes_on_its_machine(islands: Islands) -> None:
    machine = Machine(islands.json("machine", PAPERS))
    axes: dict[str, dict[str, list[Scalar]]] = {}
    for file in SHIPPED:
        for experiment in sweep_file.read(file, undescribed).experiments:
            axes.setdefault(experiment.name, plans_of.make(experiment, machine).axes)
    layouts = ["1ISL", "2ISL", "4ISL", "8ISL", "12ISL", "24ISL"]
    assert all(axes[name]["layout"] == layouts for name in ("fig04", "fig07", "fig09", "fig10", "fig13", "tatp"))
    assert axes["fig09"]["multisite"] == [0, 20, 40, 60, 80, 100]
    assert axes["fig12"]["cores"] == [1, 2, 4, 6, 12, 18, 24] and axes["fig12"]["cut"] == ["SE", "CG", "FG"]
    assert sorted(map(str, axes["fig03"]["workers"])) == ["grouped", "mix", "os", "spread"]
    assert axes["fig14"]["rows_total"][0] == 24000 and axes["fig14"]["durability"] == ["lazy"]
    assert axes["fig13"]["zipf"] == [0, 0.25, 0.5, 0.75, 1] and axes["fig10"]["rows"][-1] == 100
