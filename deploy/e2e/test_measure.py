"""`islands machine --measure`, and its file as the machine of a deployment. Two cores have one round trip."""

import json
import math
import os
from collections.abc import Sequence

import pytest

from conftest import Document, Islands, WriteFile

SHELF = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "topology", "shelf")


def measured(near: Sequence[Sequence[int]], lone: str = "") -> Document:
    """Eight cores of two threads, one L3 and one NUMA node for all, as far as the firmware says."""
    group = {cpu: i for i, cpus in enumerate(near) for cpu in cpus}
    with open(os.path.join(SHELF, "smt-1x8.xml"), encoding="utf-8") as xml:
        return {"version": 1, "cpus": list(range(8)),
                "round_trip_ns": [[0 if a == b else 40 if group[a] == group[b] else 95 for b in range(8)]
                                  for a in range(8)],
                "clusters": [{"cpus": [",".join(map(str, cpus)) for cpus in near], "lone_cpus": lone,
                              "within_ns": 40, "across_ns": 95}],
                "hwloc_xml": xml.read()}


CHIPLETS = [[0, 2, 4, 6], [1, 3, 5, 7]]  # no run of CPUs: firmware's order does not show them


# ---- measuring

def test_text_and_file(islands: Islands, folder: str) -> None:
    path = os.path.join(folder, "measured.json")
    cores = len(islands.json("machine")["cores"])
    done = islands.run("machine", "--measure", "--output", path)
    assert done.code == 0 and done.err == "", done
    assert "round trips of a cache line between cores, ns\n" in done.out or cores == 1
    assert done.out.endswith(f"wrote {path}; in a deployment file: machine: {path}\n")
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    assert list(document) == ["version", "cpus", "round_trip_ns", "clusters", "firmware", "hwloc_xml"]
    assert len(document["cpus"]) == len(document["round_trip_ns"]) == cores
    for i, row in enumerate(document["round_trip_ns"]):
        assert len(row) == cores and row[i] == 0
        assert all(ns == document["round_trip_ns"][j][i] and (ns > 0) == (i != j) for j, ns in enumerate(row))
    again = islands.run("machine", path)
    assert again.code == 0 and f"this machine, measured in {path}: " in again.out
    assert again.out.split("\n\n", 1)[1] in done.out


def test_json_is_the_file(islands: Islands) -> None:
    document = islands.json("machine", "--measure")
    assert document["version"] == 1 and document["hwloc_xml"].startswith("<?xml")
    assert set(document["firmware"]) == {"packages", "numa_nodes", "l3_groups"}


def test_the_file_of_this_machine_is_this_machine(islands: Islands, deployment: WriteFile, folder: str) -> None:
    assert islands.run("machine", "--measure", "-o", os.path.join(folder, "measured.json")).code == 0
    plan = islands.json("plan", deployment("version: 1\nmachine: measured.json\n"))
    assert plan["bound"] is True and plan["machine"]["is_this_machine"] is True
    assert plan["machine"]["memory_bytes"] == islands.json("machine")["memory_bytes"]


def test_nothing_is_overwritten_and_nothing_measured_in_vain(islands: Islands, folder: str) -> None:
    path = os.path.join(folder, "measured.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("mine")
    done = islands.run("machine", "--measure", "--output", path)
    assert done.code == 1 and f"cannot create {path}; choose another name or remove it" in done.err
    with open(path, encoding="utf-8") as file:
        assert file.read() == "mine"
    assert islands.run("machine", "--measure", "--output", os.path.join(folder, "none", "x.json")).code == 1
    assert islands.run("machine", "--output", path).code == 2
    assert islands.run("machine", "--measure", "pack:2 core:2 pu:1").code == 2


def test_memory_is_the_kernels(islands: Islands) -> None:
    machine = islands.json("machine")
    with open("/proc/meminfo", encoding="utf-8") as file:
        kernel = int(file.readline().split()[1]) * 1024
    if len(machine["numa_nodes"]) > 1:
        pytest.skip("several nodes may be outside of the cgroup")
    assert 0.99 * kernel <= machine["memory_bytes"] <= 1.01 * kernel
    assert machine["memory_note"] in islands.run("machine").out


# ---- in a deployment

def plan_of(islands: Islands, deployment: WriteFile, document: object, more: str = "") -> Document:
    deployment(json.dumps(document), "measured.json")
    plan: Document = islands.json("plan", deployment(f"version: 1\nmachine: measured.json\n{more}"))
    return plan


def test_auto_is_one_island_per_cluster(islands: Islands, deployment: WriteFile, folder: str) -> None:
    plan = plan_of(islands, deployment, measured(CHIPLETS))
    assert plan["layout"] == "2ISL" and plan["bound"] is False
    assert [island["cpus"] for island in plan["islands"]] == ["0,2,4,6", "1,3,5,7"]
    path = os.path.join(folder, "measured.json")
    assert f"layout auto: 2 islands by the measured clusters of {path}" in plan["notes"]
    assert plan["machine"]["measured_in"] == path
    assert any(note.startswith("`up` would run unbound: the file's machine is") for note in plan["notes"])


def test_uneven_clusters_and_other_layouts(islands: Islands, deployment: WriteFile) -> None:
    uneven = measured([[0, 3, 4, 6, 7], [1, 2, 5]])
    plan = plan_of(islands, deployment, uneven)
    assert [island["cpus"] for island in plan["islands"]] == ["0,3-4,6-7", "1-2,5"]
    assert any("islands have 3 to 5 cores, and as many sites each" in note for note in plan["notes"])
    plan = plan_of(islands, deployment, uneven, "layout: 2ISL\n")
    assert [island["cpus"] for island in plan["islands"]] == ["0-3", "4-7"]


def test_firmware_that_hides_clusters(islands: Islands, deployment: WriteFile) -> None:
    done = islands.run("machine", deployment(json.dumps(measured(CHIPLETS, lone="5")), "measured.json"))
    assert done.code == 0, done
    assert "2 clusters, 40 ns within, 95 ns across:\n  0,2,4,6\n  1,3,5,7\n" in done.out
    assert "hidden by the firmware: finer than the 1 package" in done.out
    assert "counted to the nearest: 5\n" in done.out


def test_mistakes_are_told_with_their_place(islands: Islands, deployment: WriteFile, folder: str) -> None:
    path = os.path.join(folder, "measured.json")
    document = measured(CHIPLETS)
    mistakes: list[tuple[Document, str]] = [
        ({"version": 7}, "1:13: found '7', expected a whole number from 1 to 1"),
        ({"verzion": 1}, "found unknown key 'verzion', expected 'version'?"),
        ({"clusters": [{"cpus": ["0-3", "3-7"]}]}, "found CPU 3 again, expected every CPU in one cluster"),
        ({"clusters": [{"cpus": ["0-3", ""]}]}, "found '', expected a CPU list such as '0-5,12'"),
        ({"clusters": [{"cpus": ["0-3", "4-6"]}]}, "found 7 CPUs in clusters, expected all 8 that were measured"),
        ({"clusters": document["clusters"] * 2}, "found a level of 2 clusters, 40 ns within and 95 ns across, after "),
        ({"clusters": [document["clusters"][0] | {"within_ns": -1}]}, "found '-1', expected a whole number from 0"),
        ({"clusters": [document["clusters"][0] | {"across_ns": 5}]}, "found 5, expected the median of 'round_trip_ns'"),
        ({"round_trip_ns": [[0, math.nan], [math.nan, 0]]}, "found 2 rows, expected a list of 8 lists of as many"),
        ({"round_trip_ns": [[0, *[math.nan] * 7]] * 8}, "found 'NaN', expected a whole number from 1 to 1000000000"),
        ({"round_trip_ns": [[0] * 7] * 8}, "found a list of 7, expected a list of 8 numbers"),
        ({"hwloc_xml": "<topology/>"}, "1:1: found 'hwloc_xml' that is none: "),
        ({"cpus": [0, 1, 2, 3, 4, 5, 6, 6]}, "found CPU 6 again, expected every CPU once"),
        ({"cpus": [0, 1, 2, 3, 4, 5, 6, 99], "clusters": []}, "1:1: found CPUs 0-6,99, expected one of each core")]
    for change, complaint in mistakes:
        deployment(json.dumps(document | change), "measured.json")
        file = deployment("version: 1\nmachine: measured.json\n")
        for line in (["check", file], ["machine", path]):
            done = islands.run(*line)
            assert done.code == 2 and f"{path}:1:" in done.err and complaint in done.err, done
    done = islands.run("check", deployment("version: 1\nmachine: none.json\n"))
    assert done.code == 2 and "2:10: found 'none.json' (no such file), expected auto" in done.err, done
