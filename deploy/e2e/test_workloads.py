"""Workloads beside micro on real islands: TATP, and the example, built outside the tree the way its README says."""

import json
import os
import re
import shutil
import subprocess

import pytest

from cluster import Cluster, cluster  # noqa: F401
from conftest import ROOT, Document, Islands

EXAMPLE = os.path.join(ROOT, "experiments", "transfer")
# 300 subscribers, so that transactions meet.
TATP_TABLES = """data:
  tables:
    - name: subscriber
      key: [uint64]
      range: [1, 301]
      row_bytes: 100
      indexes: [{name: by_number, key: ['row:0:string:15']}]
    - {name: access_info, key: [uint64, uint8], range: [1, 301], row_bytes: 10}
    - {name: special_facility, key: [uint64, uint8], range: [1, 301], row_bytes: 16}
    - {name: call_forwarding, key: [uint64, uint8, uint8], range: [1, 301], row_bytes: 16}
"""


PAYMENT_TABLES = """data:
  sites: 4
  tables:
    - {name: warehouse, key: [uint32], range: [0, 4], row_bytes: 93}
    - {name: district, key: [uint32, uint32], range: [0, 4], row_bytes: 97}
    - name: customer
      key: [uint32, uint32, uint32]
      range: [0, 4]
      row_bytes: 667
      indexes: [{name: by_name, key: ['key:0', 'key:1', 'row:564:string:16', 'row:546:string:16']}]
    - {name: history, key: [uint32, uint32, uint64], range: [0, 4], row_bytes: 64}
"""


def run(cluster: Cluster, workload: str, *options: object, code: int = 0) -> Document:
    return cluster.islands.json("run", cluster.file, workload, "--duration", 0.5, "--warmup", 0.1, "--results",
                                os.path.join(cluster.folder, "results"), *options, code=code)


def check_sum(result: Document, workload: str) -> None:
    assert result["sum_check"] == "ok", result["sum_check_detail"]
    assert result["workload"] == workload
    assert result["committed"] > 0 and result["unknown"] == 0


@pytest.mark.parametrize("workload, scale, sites", [("append", 1000, 24), ("micro", 1000, 24), ("payment", 4, 4),
                                                     ("tatp", 300, 24), ("tpcc", 4, 4), ("transfer", 1000, 24)])
def test_template_writes_what_a_workload_needs(cluster: Cluster, workload: str, scale: int, sites: int) -> None:
    cluster.islands.json("template", "2ISL", "--workload", workload, "--scale", scale, "--output", cluster.file)
    cluster.up()
    if workload != "micro":
        refused = cluster.islands.run("run", cluster.file, "micro")
        assert refused.code != 0 and "no table 'micro'" in refused.err, refused
    more: dict[str, list[object]] = {"append": ["--history", cluster.folder],
                                     "tpcc": ["--customers", 30, "--items", 100]}
    run(cluster, workload, *more.get(workload, []))
    with open(cluster.file, encoding="utf-8") as file:
        text = file.read()
    if sites < 24:  # of one for each site at least
        assert f"\n  sites: {sites} " in text
    ranges = {int(end) - int(begin) for begin, end in re.findall(r"\n    .*range: \[(\d+), (\d+)\]", text)}
    assert ranges == {scale}
    cluster.down()


def test_template_of_every_workload_is_right_as_it_is(islands: Islands, folder: str) -> None:
    objects = os.listdir(os.path.join(os.path.dirname(islands), "../lib/islands"))
    names = [os.path.splitext(name)[0] for name in objects if name.endswith(".so")]
    assert {"append", "insert", "micro", "payment", "smallbank", "tatp", "tpcc", "transfer", "voter",
            "ycsb"} <= set(names)
    for name in names:
        path = os.path.join(folder, f"{name}.yaml")
        done = islands.run("template", "auto", "--workload", name, "--output", path)
        assert done.code == 0, done
        checked = islands.run("check", path)
        assert checked.code == 0, checked


@pytest.mark.parametrize("options, says", [
    (["--workload", "mirco"], "there is no workload 'mirco'"), (["--scale", "5"], "--workload"),
    (["--workload", "tatp", "--scale", "0"], "found --scale 0, expected 1 to"),
    (["--workload", "payment", "--rows-total", "5"], "--rows-total")])
def test_template_refuses_what_no_workload_needs(islands: Islands, options: list[str], says: str) -> None:
    done = islands.run("template", "2ISL", *options)
    assert done.code == 2 and says in done.err and "version: 1" not in done.out, done


@pytest.mark.parametrize("layout", ["1ISL", "2ISL"])
def test_tatp_keeps_the_sum(cluster: Cluster, layout: str) -> None:
    cluster.write(layout, more=TATP_TABLES).up()
    for mix in ("standard", "read", "update"):
        for remote in (0, 50):
            result = run(cluster, "tatp", "--mix", mix, "--remote", remote)
            check_sum(result, "tatp")
            assert (result["per_scope"]["distributed"]["committed"] > 0) == (remote > 0 and layout == "2ISL")
    cluster.down()


@pytest.mark.parametrize("layout", ["1ISL", "2ISL"])
def test_payment_keeps_the_books(cluster: Cluster, layout: str) -> None:
    cluster.write(layout, more=PAYMENT_TABLES).up()
    for remote in (0, 30):
        for history in ("insert", "overwrite"):
            result = run(cluster, "payment", "--customers", 30, "--remote", remote, "--history", history)
            check_sum(result, "payment")
            assert (result["per_scope"]["distributed"]["committed"] > 0) == (remote > 0 and layout == "2ISL")
    cluster.down()


@pytest.mark.parametrize("durability", ["none", "lazy"])
def test_what_says_how_many_rows_runs_leave_loads_anew_without_a_log(cluster: Cluster, durability: str) -> None:
    cluster.write("1ISL", more=PAYMENT_TABLES, durability=durability).up()
    sums = []
    for by_name in (0, 50):
        detail = run(cluster, "payment", "--customers", 30, "--by-name", by_name)["sum_check_detail"]
        sums.append(list(map(int, re.findall(r"before (-?\d+), after (-?\d+)", detail)[0])))
    assert sums[0][0] != sums[0][1] and sums[1][0] == sums[0][1 if durability == "lazy" else 0]
    cluster.down()


@pytest.mark.parametrize("workload, scale, options", [
    ("insert", 24, ["--records", 100]), ("smallbank", 480, ["--remote", 50, "--hotspot", 2]),
    ("voter", 480, ["--remote", 50, "--limit", 20]), ("ycsb", 480, ["--mix", "A", "--rows", 4, "--multisite", 50]),
    ("ycsb", 480, ["--mix", "E", "--rows", 2, "--multisite", 50, "--fields", 2])])
def test_other_benchmarks_keep_their_sums(cluster: Cluster, workload: str, scale: int, options: list[object]) -> None:
    cluster.islands.json("template", "2ISL", "--workload", workload, "--scale", scale, "--output", cluster.file)
    cluster.up()
    for _ in range(2):  # rows of the first run are in nobody's way
        result = run(cluster, workload, *options)
        check_sum(result, workload)
        assert (result["per_scope"]["distributed"]["committed"] > 0) == (workload != "insert")
        before, after = map(int, re.findall(r"before (-?\d+), after (-?\d+)", result["sum_check_detail"])[0])
        assert before != after, "the sum says nothing"
    cluster.down()


def test_wrong_parameters_and_tables_are_told(cluster: Cluster) -> None:
    cluster.write("2ISL", more=TATP_TABLES).up()

    def complaint(*arguments: str) -> str:
        done = cluster.islands.run("run", cluster.file, *arguments, cwd=cluster.folder)
        assert done.code != 0, done
        return done.err

    assert "--mix: found 'write', expected standard | read | update" in complaint("tatp", "--mix", "write")
    assert "'--customers', expected one of --" in complaint("tatp", "--customers", "9")
    assert "--history: found none, expected an absolute path" in complaint("append")
    assert "needs; add what is missing of this" in complaint("transfer")
    assert "- {name: account, key: [uint64], range: [0, 100000], row_bytes: 8}" in complaint("transfer")


def blocks(language: str) -> list[str]:
    """The fenced blocks of the example's README."""
    with open(os.path.join(EXAMPLE, "README.md"), encoding="utf-8") as file:
        return re.findall(rf"^```{language}\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)


def copy_of_the_build(islands: Islands, folder: str) -> str:
    """A build directory as far as the README needs one, with no workload in it: the test changes nobody's build."""
    built = os.path.dirname(os.path.dirname(islands))
    copy = os.path.join(folder, "build")
    os.makedirs(os.path.join(copy, "bin"))
    os.makedirs(os.path.join(copy, "lib", "islands"))
    for binary in ("islands", "islandd", "islands-logger"):
        shutil.copy(os.path.join(built, "bin", binary), os.path.join(copy, "bin", binary))
    os.symlink(os.path.join(built, "proto"), os.path.join(copy, "proto"))
    return copy


def test_example_builds_and_runs_as_its_readme_says(cluster: Cluster) -> None:
    environment = dict(os.environ, ISLANDS=ROOT, BUILD=copy_of_the_build(cluster.islands, cluster.folder))
    (deployment,) = blocks("yaml")
    cluster.file = os.path.join(cluster.folder, "bank.yaml")
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(deployment + "storage: {buffer_pool: 256MiB}\nmetrics: {base_port: 0}\n")

    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert lines[0].startswith("ISLANDS=") and lines[1].startswith("BUILD=")
    results = {}
    for line in lines[2:]:
        if "bin/islands run" in line:
            line += " --duration 1 --warmup 0.2 --format json"
        done = subprocess.run(["sh", "-c", line], cwd=cluster.folder, env=environment, capture_output=True, text=True,
                              timeout=120)
        assert done.returncode == 0, (line, done)
        results[line.split()[0] if "bin/islands" not in line else line.split()[1]] = done.stdout
    assert list(results) == ["cp", "g++", "up", "run", "down"]
    result = json.loads(results["run"])
    check_sum(result, "bank")
    assert result["per_scope"]["distributed"]["committed"] > 0
    assert result["parameters"] == {"remote": "20", "totals": "0"}
    assert "before 100000000, after 100000000" in result["sum_check_detail"]
