"""`islands sweep` on clusters that keep what they acknowledge: every layout, every durability, nothing left behind."""

import glob
import json
import os
from typing import Any

import pytest
import yaml

from cluster import wait_until
from conftest import Islands
from test_sweep import EXPERIMENTS, MICRO, ONE, PAPERS, SMALL, Sweeps, clean, one, read_text, sweeps  # noqa: F401

from sweeping import cluster as clusters  # test_sweep has put it on the path
from sweeping import plan as plans_of
from sweeping import results as result_files
from sweeping.machine import Machine


def ring_folder(cluster_id: str) -> str:
    return f"/dev/shm/islands-{cluster_id[:16]}"


def read_yaml(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return yaml.safe_load(file)


def test_every_layout_is_swept_with_every_durability(sweeps: Sweeps) -> None:
    sweeps.write(SMALL.replace("[read, update]", "[update]\n  durability: [none, lazy, sync+forced]")
                 .replace("[0, 50]", "[50]").replace("repeat: 2", "repeat: 1").split("plots:")[0])
    done = sweeps.run("small.yaml")
    assert "6 of 6 runs ended well" in done.out and "note: logs were on " in done.out
    directory, = sweeps.results()
    lines = [json.loads(line) for line in sweeps.lines()]
    folders = set()
    for line in lines:
        durability, votes = line["durability"], line["votes"]
        assert line["axes"]["durability"] == (f"{durability}+forced" if votes == "forced" else durability)
        assert (line["log_on"] is None) == (durability == "none")
        run = os.path.join(directory, "small", line["run_directory"])
        ran = read_yaml(os.path.join(run, "deployment.yaml"))
        assert (ran["storage"]["log"]["durability"], ran["storage"]["log"]["votes"]) == (durability, votes)
        folders |= {ran["data"]["directory"], ran["storage"]["log"]["directory"]}
        with open(os.path.join(run, "meta.json"), encoding="utf-8") as file:
            assert not os.path.exists(ring_folder(json.load(file)["cluster_id"]))
    assert {(line["layout"], line["axes"]["durability"]) for line in lines} == {
        (layout, word) for layout in ("1ISL", "2ISL") for word in ("none", "lazy", "sync+forced")}
    assert len(folders) == 2 * len(lines), "every cluster has its own"
    assert all(folder.startswith(os.path.join(sweeps.folder, "islands-sweep-")) for folder in folders)
    assert sweeps.read("small/plan.json")["durability"] is None, "the axis says it"


def test_runs_that_load_other_rows_share_a_cluster_that_keeps_them(sweeps: Sweeps) -> None:
    tables = ("{name: warehouse, key: [uint32], range: [0, 2], row_bytes: 93}",
              "{name: district, key: [uint32, uint32], range: [0, 2], row_bytes: 97}",
              "{name: customer, key: [uint32, uint32, uint32], range: [0, 2], row_bytes: 667, indexes: [{name: "
              "by_name, key: ['key:0', 'key:1', 'row:564:string:16', 'row:546:string:16']}]}",
              "{name: history, key: [uint32, uint32, uint64], range: [0, 2], row_bytes: 64}")
    sweeps.write(f"version: 1\nworkload: payment\ndeployment: {{layout: 1ISL, storage: {{buffer_pool: 256MiB, log: "
                 f"{{durability: lazy}}}}, data: {{sites: 2, tables: [{', '.join(tables)}]}}}}\n"
                 "parameters: {customers: 30}\naxes: {remote: [0, 15]}\n", "one.yaml")
    assert "2 of 2 runs ended well" in sweeps.run(*ONE).out
    assert [json.loads(line)["durability"] for line in sweeps.lines("one")] == ["lazy", "lazy"]


def test_log_of_a_cluster_that_was_killed_goes_with_it(sweeps: Sweeps) -> None:
    """Its rings lie in shared memory, and only `destroy` finds them there."""
    one(sweeps, axes="{layout: [2ISL], durability: [lazy]}")
    process = sweeps.start("one.yaml", "--seconds", "100")
    manifest = os.path.join(sweeps.folder, "islands-sweep-*", "one-0", "data", "MANIFEST.json")
    wait_until(lambda: any("islandd" in command for command in sweeps.left()[0].values()) and glob.glob(manifest),
               what="an island")
    with open(glob.glob(manifest)[0], encoding="utf-8") as file:
        rings = ring_folder(json.load(file)["cluster_id"])
    wait_until(lambda: os.path.isdir(rings), what="rings")
    process.kill()
    process.communicate()
    wait_until(lambda: not clean(sweeps), what="the end of all processes")
    assert os.path.isdir(rings)
    assert "1 of 1 runs ended well" in sweeps.run(*ONE).out
    assert not os.path.exists(rings)


def test_papers_figures_are_swept_with_another_durability(sweeps: Sweeps) -> None:
    """By an option, or by an entry of a list; programs have no clusters that could keep anything."""
    fig09, tab01 = (os.path.join(EXPERIMENTS, name) for name in ("fig09.yaml", "tab01.yaml"))
    sweeps.write(f"version: 1\nsweeps: [{{file: {fig09}, axes: {{durability: [sync]}}}}, {tab01}]\n", "list.yaml")
    for options, values in (((), ["sync"]), (("--durability", "none", "lazy"), ["none", "lazy"])):
        of = {one["name"]: {axis["name"]: axis["values"] for axis in one["axes"]}
              for one in sweeps.json("list.yaml", "--dry-run", *options)["experiments"]}
        assert of["fig09"]["durability"] == values and "durability" not in of["tab01"]
    sweeps.write(f"version: 1\nsweeps: [{{file: {tab01}, axes: {{durability: [sync]}}}}]\n", "list.yaml")
    assert "found axis 'durability', expected one of tab01.yaml" in sweeps.run("list.yaml", code=2).err
    assert "--durability: invalid choice: 'often'" in sweeps.run("list.yaml", "--durability", "often", code=2).err


@pytest.mark.parametrize("log, axis, made, word", [
    ("{}", "", {"durability": "none", "votes": "epoch"}, "none"),
    ("{durability: sync, ring_bytes: 1MiB}", "", {"durability": "sync", "ring_bytes": "1MiB", "votes": "epoch"},
     "sync"),
    ("{durability: lazy, votes: forced, directory: /own, ring_directory: /own}", "",
     {"durability": "lazy", "votes": "forced"}, "lazy+forced"),
    ("{durability: lazy, votes: forced}", "sync", {"durability": "sync", "votes": "epoch"}, None),
    ("{}", "sync+forced", {"durability": "sync", "votes": "forced"}, None)])
def test_clusters_name_their_durability(islands: Islands, folder: str, log: str, axis: str, made: dict[str, str],
                                        word: str | None) -> None:
    """Whatever deployments do that name none."""
    axes = f"{{durability: [{axis}]}}" if axis else "{op: [read]}"
    text = MICRO + f"deployment: {{storage: {{log: {log}}}}}\naxes: {axes}\n"
    machine = Machine(islands.json("machine", PAPERS))
    plan = plans_of.make(read_text(folder, text), machine)
    assert clusters.document(plan.blocks[0], machine, "x")["storage"]["log"] == made
    assert plan.durability() == plan.document()["durability"] == word


def test_a_machine_is_the_same_with_another_size_of_memory(folder: str) -> None:
    """Some virtual machines are given memory and lose it again; with other cores it is another machine."""
    summary = "1 package, 1 NUMA node, 2 cores, 2 PUs, 15.5 GiB"
    was = {"build": "b", "machine_summary": summary, "cpu": "c", "kernel": "k"}
    results = result_files.Results(os.path.join(folder, "results"), [])
    results.document = was
    assert results.differences({**was, "machine_summary": summary.replace("15.5", "17.5")}) == []
    assert len(results.differences({**was, "machine_summary": summary.replace("2 cores", "4 cores")})) == 1
