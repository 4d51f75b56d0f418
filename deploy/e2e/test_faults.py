"""Islands are killed in the middle of a run: the others go on, the lost one comes back, and the run says so."""

import csv
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence

import pytest

from cluster import Cluster, cluster, wait_until  # noqa: F401
from conftest import Document
from test_workloads import TATP_TABLES


SMALL = ["--rows-total", "24000"]  # quick to load again for an island that comes back


def all_running(cluster: Cluster) -> bool:
    return all(island["running"] for island in cluster.status()["islands"])


def finish(process: subprocess.Popen[str], seconds: float) -> Document:
    out, err = process.communicate(timeout=seconds)
    assert process.returncode in (0, 1), out + err
    result: Document = json.loads(out)
    assert process.returncode == any(island["lost"] for island in result["per_island"]), out + err
    return result


def rates(result: Document) -> dict[int, list[float]]:
    """committed per second by island, in order of time."""
    by_island: dict[int, list[float]] = {}
    with open(os.path.join(result["run_directory"], "timeseries.csv"), encoding="utf-8") as file:
        for row in csv.DictReader(file):
            by_island.setdefault(int(row["island"]), []).append(float(row["committed_per_s"]))
    return by_island


def kept_serving(rates_of_island: Sequence[float]) -> bool:
    """An island may wait for a lost one until its transactions' deadline, two seconds, but not longer."""
    return sum(rate > 0 for rate in rates_of_island) >= len(rates_of_island) - 2 and rates_of_island[-1] > 0


@pytest.mark.parametrize("transport, op", [
    ("shm", "update"), ("uds", "update"), pytest.param("zmq", "update", marks=pytest.mark.soak),
    pytest.param("shm", "read", marks=pytest.mark.soak)])
def test_killed_island_rejoins_the_run(cluster: Cluster, transport: str, op: str) -> None:
    cluster.write("3ISL", transport).up()
    begin = time.monotonic()
    process = cluster.start("run", cluster.file, "micro", "--format", "json", "--op", op, "--multisite", "50",
                            "--duration", "5", "--warmup", "0.5", *SMALL)
    wait_until(lambda: all_running(cluster), what="the run")
    time.sleep(1.5)
    os.kill(cluster.island(1)["pid"], signal.SIGKILL)
    result = finish(process, 40)
    assert time.monotonic() - begin < 25, "the run did not end in time"
    assert result["sum_check"] == "skipped: island lost"
    assert [island["lost"] for island in result["per_island"]] == [False, True, False]
    per_second = rates(result)
    for survivor in (0, 2):
        assert kept_serving(per_second[survivor]), per_second
    assert per_second[1][-1] > 0, f"island 1 did not rejoin: {per_second}"
    island = cluster.island(1)
    assert (island["state"], island["restarts"]) == ("ready", 1)
    # Nothing is stuck: no transaction, no lock, and the reloaded rows add up again.
    assert cluster.run("--op", "update", "--multisite", 50, *SMALL)["sum_check"] == "ok"


def test_all_islands_but_one_are_killed(cluster: Cluster) -> None:
    cluster.write("3ISL").up()
    process = cluster.start("run", cluster.file, "micro", "--format", "json", "--op", "update", "--multisite", "50",
                            "--duration", "4", "--warmup", "0", *SMALL)
    wait_until(lambda: all_running(cluster), what="the run")
    for pid in cluster.island_pids()[1:]:
        os.kill(pid, signal.SIGKILL)
    result = finish(process, 40)
    assert result["sum_check"] == "skipped: island lost"
    assert kept_serving(rates(result)[0])
    wait_until(lambda: all(island["state"] == "ready" for island in cluster.status()["islands"]))
    assert cluster.run("--op", "update", "--multisite", 50, *SMALL)["sum_check"] == "ok"


def test_idle_island_is_killed_between_runs(cluster: Cluster) -> None:
    """A restarted island has its rows again without being told: the supervisor remembers the load."""
    cluster.write("2ISL").up()
    assert cluster.run("--op", "update", "--rows-total", 4800)["sum_check"] == "ok"
    os.kill(cluster.island(0)["pid"], signal.SIGKILL)
    wait_until(lambda: cluster.island(0)["restarts"] == 1 and cluster.island(0)["state"] == "ready")
    result = cluster.run("--op", "update", "--rows-total", 4800)
    assert result["sum_check"] == "ok"
    assert "4800 of 4800 rows" in result["sum_check_detail"]


def test_hung_island_does_not_hold_up_the_run(cluster: Cluster) -> None:
    cluster.write("3ISL").up()
    begin = time.monotonic()
    process = cluster.start("run", cluster.file, "micro", "--format", "json", "--op", "update", "--multisite", "50",
                            "--duration", "3", "--warmup", "0", *SMALL)
    wait_until(lambda: all_running(cluster), what="the run")
    hung = cluster.island(2)["pid"]
    os.kill(hung, signal.SIGSTOP)
    assert "does not answer" in cluster.islands.run("status", cluster.file).out
    result = finish(process, 60)
    assert time.monotonic() - begin < 30
    assert result["sum_check"] == "skipped: island lost"
    assert kept_serving(rates(result)[0])
    os.kill(hung, signal.SIGCONT)
    wait_until(lambda: not cluster.island(2)["running"] and not cluster.island(2)["hung_ms"],
               what="the island to stop its part of the run")
    assert cluster.run("--op", "update", "--multisite", 50, *SMALL)["sum_check"] == "ok"


def test_cluster_taken_down_during_a_run(cluster: Cluster) -> None:
    """The run ends by itself, soon, and does not pretend to have measured anything."""
    cluster.write("2ISL").up()
    process = cluster.start("run", cluster.file, "micro", "--duration", "60", "--multisite", "50")
    wait_until(lambda: all_running(cluster), what="the run")
    cluster.islands.run("down", cluster.file)
    err = process.communicate(timeout=30)[1]
    assert process.returncode == 1 and "taken down" in err
    assert os.listdir(os.path.join(cluster.folder, "results")) == []


def new_life(cluster: Cluster, island: int = 1) -> None:
    pid = cluster.island(island)["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: cluster.island(island)["pid"] not in (None, pid) and cluster.island(island)["state"] == "ready",
               what="a new life")


def test_refused_load_does_not_keep_islands_from_coming_back(cluster: Cluster) -> None:
    """A workload without its tables, and more rows than fit: no island that dies later may be started with either."""
    cluster.write("2ISL").up()
    assert cluster.run("--op", "update", *SMALL)["sum_check"] == "ok"
    for refused in (["tatp"], ["micro", "--rows-total", "40000000"]):
        done = cluster.islands.run("run", cluster.file, *refused, "--duration", "0.2")
        assert done.code in (1, 2), done
        new_life(cluster)
        assert cluster.run("--op", "update", *SMALL)["sum_check"] == "ok"


def test_interrupted_load_does_not_keep_islands_from_coming_back(cluster: Cluster) -> None:
    cluster.write("2ISL").up()
    process = cluster.start("run", cluster.file, "micro", "--rows-total", "40000000", "--duration", "0.2")
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode == 130
    new_life(cluster)
    assert cluster.run("--op", "update", *SMALL)["sum_check"] == "ok"


def test_refused_load_is_the_end_of_the_one_before(cluster: Cluster) -> None:
    """Its tables are empty on whoever has not died: half of them measured is worse than none."""
    def tatp() -> str:
        result = cluster.islands.json("run", cluster.file, "tatp", "--remote", 50, "--duration", "0.3",
                                      "--warmup", "0.1", "--results", os.path.join(cluster.folder, "results"))
        return result["sum_check_detail"].rpartition("; ")[2]
    micro = "    - {name: micro, key: [uint64], range: [0, 24000], row_bytes: 250}\n"
    cluster.write("2ISL", more=TATP_TABLES + micro).up()
    rows = tatp()
    assert cluster.islands.run("run", cluster.file, "micro", "--rows-total", "40000000").code == 1
    new_life(cluster)
    again = tatp()
    # Call forwardings are inserted and deleted: a few more or less.
    assert abs(int(again.split()[0]) - int(rows.split()[0])) < 0.1 * int(rows.split()[0]), (rows, again)
