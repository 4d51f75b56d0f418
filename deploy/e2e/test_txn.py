"""`islands txn FILE list`: what is open on real islands, and whom it waits for."""

import os
import signal
import time

from chaos import Meter, SHAPES
from cluster import Cluster, cluster, wait_until  # noqa: F401
from conftest import Document
from test_hang import finish, metric, start_run, stop_with_a_voter_in_doubt


def listed(cluster: Cluster, *options: object) -> Document:
    found: Document = cluster.islands.json("txn", cluster.file, "list", *options)
    return found


def in_doubt_on(cluster: Cluster, island: int) -> list[Document]:
    return [line for line in listed(cluster, "--in-doubt")["transactions"] if line["island"] == island]


def test_branch_in_doubt_is_named_until_its_coordinator_goes_on(cluster: Cluster) -> None:
    meter = Meter(cluster, SHAPES["2x1"], durability="lazy")
    with open(cluster.file, encoding="utf-8") as file:
        text = file.read()
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(text.replace("timeouts: {", "timeouts: {hung_ms: 3600000, "))  # or it would be killed after 5 s
    cluster.up()
    process = start_run(cluster, 6, "--multisite", "100")
    time.sleep(0.5)
    pid, waiting = stop_with_a_voter_in_doubt(cluster, meter, coordinator=0, voter=1)
    wait_until(lambda: cluster.island(0)["hung_ms"] > 0, what="the hang to be noticed")
    found = listed(cluster, "--in-doubt")
    assert found["only_in_doubt"] and len(found["transactions"]) == waiting, found
    for line in found["transactions"]:
        assert line["island"] == 1 and line["state"] == "in doubt" and line["transaction"].startswith("0.0."), line
        assert line["coordinator"]["island"] == 0 and line["coordinator"]["state"] == "hung", line
        assert line["waits_for"]["what"] == "decision" and line["waits_for"]["islands"] == [0], line
        assert line["participants"] == [1] and not line["restored"] and line["locks"] > 0, line
        assert 0 < line["in_doubt_s"] <= line["age_s"] < 60, line
    assert "hung" in found["islands"][0]["missing"] and "missing" not in found["islands"][1], found
    wait_until(lambda: cluster.island(1)["in_doubt_oldest_ms"] > 3000, what="status to know it")
    assert metric(meter, 1, "islands_in_doubt_oldest_seconds") > 3
    done = cluster.islands.run("status", cluster.file)
    assert "`islands txn FILE list --in-doubt`" in done.out, done
    done = cluster.islands.run("txn", cluster.file, "list", "--in-doubt")
    assert done.code == 0 and "asks island 0, which is hung for" in done.out, done
    assert "warning: what island 0 has is missing: it is hung for" in done.out, done
    os.kill(pid, signal.SIGCONT)
    finish(process, 60)
    assert in_doubt_on(cluster, 1) == [] and metric(meter, 1, "islands_in_doubt_oldest_seconds") == 0
    assert "in doubt" not in cluster.islands.run("status", cluster.file).out
    assert cluster.islands.run("txn", cluster.file, "list").out == "no transaction is open\n"


def test_branch_in_doubt_outlives_its_island(cluster: Cluster) -> None:
    """Its coordinator is given up; the voter is killed, and its next life has the branch from the log; so has the one
    after `down` and `up`, which bring the coordinator back: it says the outcome."""
    meter = Meter(cluster, SHAPES["2x1"], durability="lazy")
    cluster.up("--restarts", 1)
    process = start_run(cluster, 60, "--multisite", "100")
    os.kill(cluster.island(0)["pid"], signal.SIGKILL)
    wait_until(lambda: cluster.island(0)["restarts"] == 1 and cluster.island(0)["running"], what="the next life")
    pid, _ = stop_with_a_voter_in_doubt(cluster, meter, coordinator=0, voter=1)
    names = {line["transaction"] for line in in_doubt_on(cluster, 1)}
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: cluster.island(0)["state"] == "given_up", what="island 0 to be given up")
    assert names and {line["transaction"] for line in in_doubt_on(cluster, 1)} == names
    process.kill()
    process.communicate()

    voter = cluster.island(1)["pid"]
    os.kill(voter, signal.SIGKILL)
    wait_until(lambda: cluster.island(1)["pid"] not in (None, voter) and in_doubt_on(cluster, 1), what="the next life")
    after = in_doubt_on(cluster, 1)
    assert {line["transaction"] for line in after} == names, (after, names)
    for line in after:
        assert line["restored"] and line["locks"] > 0 and line["participants"] == [1], line
        assert line["coordinator"]["state"] == "given up" and line["waits_for"]["out_of_reach"] == [0], line
    done = cluster.islands.run("txn", cluster.file, "list")
    assert "asks island 0, which is given up for" in done.out and "  yes  " in done.out, done
    assert "what island 0 has is missing: it is given up for" in done.out, done
    cluster.down()
    cluster.up()
    wait_until(lambda: not listed(cluster)["transactions"], what="the outcome")
    assert cluster.run("--op", "update", "--rows-total", 48000, "--multisite", 50)["sum_check"] == "ok"


def test_list_of_a_run_names_what_is_open(cluster: Cluster) -> None:
    cluster.write().up()
    process = start_run(cluster, 2, "--multisite", "50", mpl=4)
    seen: set[str] = set()
    for _ in range(10):
        found = listed(cluster)
        assert all("missing" not in island and island["silent_workers"] == [] for island in found["islands"]), found
        for line in found["transactions"]:
            seen.add(line["state"])
            assert line["coordinator"] == {"island": int(line["transaction"].split(".")[0]), "state": "up", "for_s": 0}
            assert line["age_s"] < 3, line
    finish(process, 60)
    assert "running" in seen, seen


def test_what_cannot_be_asked_is_said(cluster: Cluster) -> None:
    cluster.write()
    done = cluster.islands.run("txn", cluster.file, "list")
    assert done.code == 1 and "not up" in done.err and done.out == "", done
    done = cluster.islands.run("txn", cluster.file, "commit")
    assert done.code == 2 and "list" in done.err, done
    done = cluster.islands.run("txn", cluster.file)
    assert done.code == 2 and "ACTION" in done.err, done
    help_text = cluster.islands.run("txn", "--help").out
    assert "--in-doubt" in help_text and "in doubt: has voted yes" in help_text

    cluster.up("--restarts", 0)
    os.kill(cluster.island(1)["pid"], signal.SIGKILL)
    wait_until(lambda: cluster.island(1)["state"] == "given_up", what="island 1 to be given up")
    done = cluster.islands.run("txn", cluster.file, "list")
    assert done.code == 0 and "what island 1 has is missing: it is given up for" in done.out, done
