"""`islands profile`, and the same in a run's results: where the time of cores and transactions goes."""

import json
import os
import signal
import time

import pytest

from cluster import Cluster, cluster, loaded, wait_until  # noqa: F401
from conftest import Document

WAITS = ("queue", "turn", "lock", "remote", "votes", "disk", "retry")


def check_cores(profile: Document, cores: float, committed_per_s: float) -> None:
    """The parts add up to what passed on all cores, by another clock than theirs."""
    parts = profile["core_us_per_transaction"]
    together = sum(us for name, us in parts.items() if name != "together")
    assert together == pytest.approx(parts["together"], rel=0.02)
    assert parts["together"] == pytest.approx(cores * 1e6 / committed_per_s, rel=0.05)
    assert sum(profile["core_shares"].values()) == pytest.approx(1, abs=0.02)
    assert 0 < profile["measured_share_of_busy"] < 0.2


def check_transactions(profile: Document, scope: str) -> Document:
    stays: Document = profile["transaction_us"][scope]
    assert stays["watched"] > 0
    errors = stays["relative_standard_error"]
    assert set(errors) == {name for name in ("running", *WAITS, "together") if name in errors}
    assert stays["watched"] < 2 or 0 < errors["running"] < 1 and 0 < errors["together"] < 1
    assert sum(stays[name] for name in ("running", *WAITS)) == pytest.approx(stays["together"], rel=0.02)
    return stays


def test_a_run_says_where_its_time_went(cluster: Cluster) -> None:
    """Two islands of one worker: local work without locks and latches, distributed work that waits for the other."""
    cluster.write("2ISL").up()
    result = cluster.run("--op", "update", "--multisite", 30, duration=1.5)
    profile = result["profile"]
    check_cores(profile, 2, result["committed_per_s"])
    parts = profile["core_us_per_transaction"]
    assert all(parts[name] > 0 for name in ("executing", "searching", "building", "reading", "committing"))
    local, distributed = (check_transactions(profile, scope) for scope in ("local", "distributed"))
    assert local["remote"] == local["votes"] == 0
    assert distributed["remote"] > 0
    assert distributed["votes"] < distributed["remote"] / 2  # they come with the answers
    cluster.down()


def test_a_hot_row_and_its_locks_come_out_on_top(cluster: Cluster) -> None:
    """Planted: nearly all transactions of two workers want row 0."""
    cluster.write("1ISL").up()
    result = cluster.run("--op", "update", "--rows", 2, "--zipf", 3, "--skew", "table", duration=1.5)
    profile = result["profile"]
    check_cores(profile, 2, result["committed_per_s"])
    assert profile["core_us_per_transaction"]["locking"] > 0
    assert sum(row["waits"] * row["us_per_wait"] for row in profile["rows"]) < 2 * 16 * 1.5e6, "of 16 slots of each"
    assert all(row["us_per_wait"] < 1.5e6 for row in profile["rows"])
    hottest = profile["rows"][0]
    assert (hottest["table"], hottest["key"]) == ("micro", "0") and hottest["waits"] > 0
    holders = hottest["holder_us_per_transaction"]
    assert set(holders) <= {"running", *WAITS} and sum(holders.values()) == pytest.approx(
        hottest["us_per_transaction"], rel=0.05, abs=0.01)
    assert [queue for queue in profile["queues"] if queue["queue"] == "run queue of a worker"]
    waited = profile["transaction_us"].get("local", {}).get("lock", 0)
    waited += profile["transaction_us"].get("multisite", {}).get("lock", 0)
    assert waited > 0
    cluster.down()


def test_profile_of_what_runs(cluster: Cluster) -> None:
    cluster.write("2ISL").up()
    with loaded(cluster):
        profile = cluster.islands.json("profile", cluster.file, "--seconds", "2")
        text = cluster.islands.run("profile", cluster.file, "--seconds", "0.5").out
    assert profile["layout"] == "2ISL" and profile["committed"] > 0
    check_cores(profile, 2, profile["committed"] / profile["seconds"])
    assert [(core["island"], core["worker"]) for core in profile["cores"]] == [(0, 0), (1, 0)]
    assert all(len(core["busy"]) == 2 and max(core["busy"]) > 0.05 for core in profile["cores"])
    for word in ("executing", "together", "of a transaction", "rows whose locks", "queues that", "second to second"):
        assert word in text
    cluster.down()


def test_profile_of_nothing(cluster: Cluster) -> None:
    """Idle cores are idle; what is not up is said; Ctrl-C ends at once."""
    cluster.write("2ISL").up()
    profile = cluster.islands.json("profile", cluster.file, "--seconds", "1")
    assert profile["committed"] == 0 and profile["core_shares"]["idle"] > 0.9 and profile["transaction_us"] == {}
    long = cluster.start("profile", cluster.file)
    time.sleep(0.5)
    long.send_signal(signal.SIGINT)
    out, _ = long.communicate(timeout=5)
    assert long.returncode == 130 and "from second to second" in out, "what is known by then is shown"
    refused = cluster.islands.run("profile", cluster.file, "--seconds", "nan")
    assert refused.code == 2 and "nan" in refused.err
    cluster.down()
    refused = cluster.islands.run("profile", cluster.file)
    assert refused.code == 1 and "not up" in refused.err


def test_profile_goes_on_without_an_island(cluster: Cluster) -> None:
    """One dies and comes back: the others are shown, and it is said."""
    cluster.write("2ISL").up()
    with loaded(cluster):
        watching = cluster.start("profile", cluster.file, "--seconds", "3", "--format", "json")
        time.sleep(1)
        os.kill(cluster.island_pids()[1], signal.SIGKILL)
        out, err = watching.communicate(timeout=20)
    profile = json.loads(out)
    assert watching.returncode == 1 and "island 1" in err
    assert profile["missed_islands"] == [1] and profile["committed"] > 0
    wait_until(lambda: cluster.island(1)["state"] == "ready", what="its next life")
    cluster.down()
