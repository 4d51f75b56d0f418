"""`without` of a deployment: the technique that it names is left out on real islands, and rows are right all the same.
look_ahead: executor_pages_test. Huge pages are also what the kernel gives: pager_test."""

import os

import pytest

from cluster import Cluster, cluster  # noqa: F401
from test_metrics import free_ports, scrape, total

MICRO = ("--op", "update", "--multisite", 100)


def up(cluster: Cluster, layout: str, without: str) -> int:
    port = free_ports(2)
    cluster.write(layout, more=f"without: {without}\n")
    with open(cluster.file, encoding="utf-8") as file:
        text = file.read().replace("base_port: 0", f"base_port: {port}")
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(text)
    cluster.up()
    return port


def sleeps(pid: int) -> int:
    """How often threads of the process have given up their core by themselves."""
    found = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status", encoding="utf-8") as file:
            found += sum(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))
    return found


@pytest.mark.parametrize("without", ["none", "lock_inheritance"])
def test_locks_are_inherited_unless_left_out(cluster: Cluster, without: str) -> None:
    port = up(cluster, "1ISL", without)
    assert cluster.run(*MICRO)["sum_check"] == "ok"
    inherited = total(scrape(port), "islands_locks_inherited")
    assert inherited == 0 if without == "lock_inheritance" else inherited > 0


def test_workers_sleep_at_once_without_spinning(cluster: Cluster) -> None:
    each = {}
    for without in ("none", "spinning"):
        up(cluster, "2ISL", without)
        before = sum(sleeps(island["pid"]) for island in cluster.status()["islands"])
        result = cluster.run(*MICRO, "--mpl", 1, warmup=0)
        slept = sum(sleeps(island["pid"]) for island in cluster.status()["islands"]) - before
        each[without] = slept / result["per_scope"]["distributed"]["committed"]
        assert result["sum_check"] == "ok"
        cluster.down()
    assert each["spinning"] > 1 and each["spinning"] > 2 * each["none"], each


@pytest.mark.parametrize("without", ["huge_pages", "look_ahead"])
def test_rows_are_right_without(cluster: Cluster, without: str) -> None:
    up(cluster, "2ISL", without)
    assert cluster.run("--op", "update", "--multisite", 20)["sum_check"] == "ok"
