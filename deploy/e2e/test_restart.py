"""`islands restart`: islands come back one after the other, with what was acknowledged."""

import os
import signal

from cluster import Cluster, cluster, loaded, wait_until  # noqa: F401


def lives(cluster: Cluster) -> list[int]:
    return [island["boot_epoch"] for island in cluster.status()["islands"]]


def test_all_come_back_one_after_the_other_with_their_rows(cluster: Cluster) -> None:
    cluster.write(durability="lazy").up()
    cluster.run("--op", "update", "--multisite", 20)
    before, pids = lives(cluster), cluster.island_pids()
    done = cluster.islands.run("restart", cluster.file)
    assert (done.code, done.out) == (0, "test: restarted islands 0, 1\n"), done
    assert [line.split(":")[0] for line in done.err.splitlines()] == ["island 0"] * 2 + ["island 1"] * 2, done
    status = cluster.status()
    assert [island["state"] for island in status["islands"]] == ["ready", "ready"]
    assert all(new > old for new, old in zip(lives(cluster), before, strict=True))
    assert not set(pids) & set(cluster.island_pids())
    with open(os.path.join(cluster.folder, "run", "supervisor.log"), encoding="utf-8") as file:
        text = file.read()
    ended = [text.index(f"island {island}: process {pids[island]} ended as it was asked to") for island in (0, 1)]
    assert ended[0] < text.rindex("island 0: ready") < ended[1], text
    assert " error " not in text
    result = cluster.run("--op", "update", "--multisite", 20)  # of the rows that were there
    assert result["sum_check"] == "ok", result
    cluster.down()


def test_only_those_that_are_named_and_as_often_as_one_likes(cluster: Cluster) -> None:
    cluster.write(durability="lazy").up("--restarts", "1")
    before = lives(cluster)
    for _ in range(3):
        answer = cluster.islands.json("restart", cluster.file, "1")
        assert [one["island"] for one in answer["restarted"]] == [1] and answer["restarted"][0]["seconds"] > 0
        assert answer["restarted"][0]["pid"] == cluster.island_pids()[1]
    assert lives(cluster)[0] == before[0] and cluster.island(1)["restarts"] == 3
    cluster.down()


def test_under_load_nothing_acknowledged_is_lost(cluster: Cluster) -> None:
    cluster.write(durability="lazy").up()
    with loaded(cluster, seconds=2) as run:
        assert cluster.islands.run("restart", cluster.file).code == 0
        out, err = run.communicate(timeout=30)
        assert "sum check" in out and "sum check failed" not in err, (out, err)
    cluster.down()
    assert cluster.islands.run("verify", cluster.file).code == 0


def test_durability_none_needs_consent(cluster: Cluster) -> None:
    cluster.write().up()
    before = lives(cluster)
    refused = cluster.islands.run("restart", cluster.file, "0")
    assert refused.code == 1 and "on island 0, is lost; --yes" in refused.err, refused
    dry = cluster.islands.run("restart", cluster.file, "--dry-run")
    assert (dry.code, dry.out) == (0, "test: would restart islands 0, 1\n"), dry
    assert lives(cluster) == before
    assert cluster.islands.run("restart", cluster.file, "0", "--yes").code == 0
    assert lives(cluster)[0] > before[0] and lives(cluster)[1] == before[1]


def test_what_cannot_be_restarted_is_said(cluster: Cluster) -> None:
    down = cluster.write(durability="lazy").islands.run("restart", cluster.file)
    assert down.code == 1 and "not up" in down.err, down
    pid = cluster.up("--restarts", "0")["islands"][1]["pid"]
    absent = cluster.islands.run("restart", cluster.file, "2")
    assert absent.code == 2 and "found island 2, expected 0 to 1" in absent.err, absent
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: cluster.island(1)["state"] == "given_up", what="the island to be given up")
    refused = cluster.islands.run("restart", cluster.file, "0")
    assert refused.code == 1 and "island 1 is given_up" in refused.err, refused


def test_ctrl_c_leaves_the_others_alone(cluster: Cluster) -> None:
    before = [island["boot_epoch"] for island in cluster.write(durability="lazy").up()["islands"]]
    restarting = cluster.start("restart", cluster.file)
    assert restarting.stderr
    assert "island 0: process" in restarting.stderr.readline()
    restarting.send_signal(signal.SIGINT)
    out, err = restarting.communicate(timeout=20)
    assert restarting.returncode == 130 and out == "" and "0 of 2 islands have been restarted" in err, err
    wait_until(lambda: lives(cluster)[0] > before[0] and cluster.island(0)["state"] == "ready", what="island 0")
    assert lives(cluster)[1] == before[1]
