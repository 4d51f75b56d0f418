"""Durability `lazy` on real clusters: what was acknowledged is there after kills of anything, and after a loss of power
whole transactions only are missing."""

import glob
import os
import random
import shutil
import signal
import time

import pytest

from chaos import SHAPES, Chaos
from cluster import Cluster, cluster, loaded, wait_until  # noqa: F401
from conftest import Document

UPDATES = ("--op", "update", "--rows", 4, "--multisite", 40)


def up(cluster: Cluster, layout: str = "2ISL", more: str = "") -> Document:
    return cluster.write(layout, durability="lazy", more=more).up()


def rows_sum(cluster: Cluster) -> int:
    """A run changes nothing but what it says: the sum that it finds before is what was there."""
    return int(cluster.run("--op", "read", duration=0.2, warmup=0)["sum_before"])


def rings(cluster: Cluster) -> list[str]:
    return glob.glob(f"/dev/shm/islands-{cluster.status()['cluster_id'][:16]}/*.ring")


def test_what_was_committed_is_there_after_down_and_up(cluster: Cluster) -> None:
    up(cluster)
    result = cluster.run(*UPDATES)
    assert result["sum_check"] == "ok" and result["committed"] > 0
    total = rows_sum(cluster)
    assert total != 0
    shm = os.path.dirname(rings(cluster)[0])
    cluster.down()
    assert not os.path.exists(shm)
    cluster.up()
    assert rows_sum(cluster) == total
    assert cluster.status()["log"]["data_generation"] == 2  # nothing was loaded again


@pytest.mark.parametrize("layout", ["1ISL", "2ISL", "4ISL"])
def test_everybody_is_killed_at_once(cluster: Cluster, layout: str) -> None:
    """Supervisor, islands, logger: what the run has told is in the rings, or on disk."""
    up(cluster, layout, more="machine: 'pack:4 [numa(memory=1GB)] core:1 pu:1'\n" if layout == "4ISL" else "")
    total = 0
    for _ in range(3):
        result = cluster.run(*UPDATES, "--reload")
        assert result["sum_check"] == "ok"
        total = int(result["sum_after"])
        for pid in cluster.alive():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not cluster.alive(), what="the end of all processes")
        cluster.up()
        assert rows_sum(cluster) == total


def test_an_island_that_is_killed_comes_back_with_its_rows(cluster: Cluster) -> None:
    up(cluster)
    cluster.run(*UPDATES)
    total = rows_sum(cluster)
    os.kill(cluster.island(1)["pid"], signal.SIGKILL)
    wait_until(lambda: cluster.island(1)["restarts"] == 1 and cluster.island(1)["state"] == "ready", what="island 1")
    assert rows_sum(cluster) == total


def test_a_logger_that_is_killed_is_replaced(cluster: Cluster) -> None:
    up(cluster)
    with loaded(cluster, seconds=4):
        for _ in range(3):
            before = wait_until(lambda: cluster.status()["log"]["logger_pid"], what="a logger")
            os.kill(before, signal.SIGKILL)
            wait_until(lambda: cluster.status()["log"]["logger_pid"] not in (None, before), what="another logger")
    assert [island["restarts"] for island in cluster.status()["islands"]] == [0, 0]
    assert cluster.run(*UPDATES, "--reload")["sum_check"] == "ok"
    cluster.down()
    cluster.up()


def test_lost_rings_are_a_loss_of_power(cluster: Cluster) -> None:
    """Whole transactions are missing, on all islands the same ones: the sum is one that a transaction has left."""
    up(cluster)
    cluster.run(*UPDATES)
    total = rows_sum(cluster)
    time.sleep(1)  # longer than the log lags behind
    with loaded(cluster, seconds=30):
        for pid in cluster.alive():
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not cluster.alive(), what="the end of all processes")
    with open(os.path.join(cluster.folder, "data", "MANIFEST.json"), encoding="utf-8") as file:
        cluster_id = file.read().split('"cluster_id": "')[1][:16]
    shutil.rmtree(f"/dev/shm/islands-{cluster_id}")
    cluster.up()
    with open(os.path.join(cluster.folder, "run", "supervisor.log"), encoding="utf-8") as file:
        assert "power was lost" in file.read()
    assert rows_sum(cluster) >= total
    assert cluster.run(*UPDATES)["sum_check"] == "ok"


def test_durable_rows_are_not_replaced_by_accident(cluster: Cluster) -> None:
    up(cluster)
    cluster.run(*UPDATES)
    total = rows_sum(cluster)
    refused = cluster.islands.run("run", cluster.file, "micro", "--rows-total", 4800, "--results",
                                  os.path.join(cluster.folder, "results"))
    assert refused.code == 1 and "--reload" in refused.err
    assert rows_sum(cluster) == total
    result = cluster.run("--rows-total", 4800, "--reload")
    assert result["sum_check"] == "ok"
    assert cluster.status()["log"]["data_generation"] == 3
    # Files of generations that count no more are gone.
    pages = glob.glob(os.path.join(cluster.folder, "data", "island-*", "generation-*-checkpoint"))
    assert len(pages) == 2 and all("generation-0000000003" in path for path in pages)
    cluster.down()
    refused = cluster.islands.run("up", cluster.write("2ISL").file)
    assert refused.code == 1 and "outlive" in refused.err
    cluster.write("4ISL", durability="lazy", more="machine: 'pack:4 [numa(memory=1GB)] core:1 pu:1'\n")
    refused = cluster.islands.run("up", cluster.file)
    assert refused.code == 1 and "cut for 2 islands" in refused.err


def test_destroy_leaves_nothing(cluster: Cluster) -> None:
    up(cluster)
    shm = os.path.dirname(rings(cluster)[0])
    for pid in cluster.alive():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not cluster.alive(), what="the end of all processes")
    done = cluster.islands.run("destroy", cluster.file, "--yes")
    assert done.code == 0 and "kept" not in done.out, done
    assert not os.path.exists(shm)
    assert sorted(os.listdir(cluster.folder)) == ["deployment.yaml"]


@pytest.mark.parametrize("shape", ["2x1", "2x2"])
def test_histories_of_killed_islands_and_loggers(cluster: Cluster, shape: str) -> None:
    """Strictly serializable, with nothing excused."""
    seed = random.SystemRandom().randrange(1, 2**31)
    chaos = Chaos(cluster, SHAPES[shape], "kills", 8, (0.5, 2), seed, durability="lazy").run()
    print(chaos.summary())
    assert not chaos.findings, chaos.summary()
