"""up, status, top, down, destroy, and what happens when islands, supervisors and users misbehave."""

import fcntl
import json
import os
import shutil
import signal
import time

import pytest

from cluster import Cluster, cluster, wait_until  # noqa: F401
from conftest import Islands


def pid_gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


# ---- up, status, down

def test_commands_know_whose_directory_it_is(cluster: Cluster) -> None:
    """Two files in one folder share `run`: what one of them started is not the other's to measure, show or end."""
    other = os.path.join(cluster.folder, "other.yaml")
    cluster.write()
    with open(cluster.file, encoding="utf-8") as file, open(other, "w", encoding="utf-8") as copy:
        copy.write(file.read().replace("name: test", "name: other").replace("2ISL", "1ISL"))
    cluster.up()
    for words in (["status", other], ["top", other, "--once"], ["run", other, "micro"], ["down", other], ["up", other]):
        done = cluster.islands.run(*words)
        assert done.code == 1 and "the deployment 'test' runs, not 'other'" in done.err, done
    assert len(cluster.alive()) == 3


def test_up_status_down(cluster: Cluster) -> None:
    up = cluster.write("2ISL").up()
    plan = cluster.islands.json("plan", cluster.file)
    assert up["state"] == "up" and up["layout"] == "2ISL"
    status = cluster.status()
    assert len(status["islands"]) == 2
    for planned, island in zip(plan["islands"], status["islands"]):
        assert {key: island[key] for key in planned} == planned
        assert island["state"] == "ready" and island["restarts"] == 0
        assert island["pid"] in cluster.alive()
        assert island["cpus_actual"] == planned["cpus"]
        assert island["links"] == island["links_expected"] == 1
    text = cluster.islands.run("status", cluster.file)
    assert text.code == 0 and text.out.count(" ready ") == 2
    cluster.down()
    assert not os.path.exists(os.path.join(cluster.folder, "run", "supervisor.sock"))


def test_file_that_was_edited_meanwhile_is_pointed_out(cluster: Cluster) -> None:
    cluster.write().up()
    results = os.path.join(cluster.folder, "results")
    commands: list[list[object]] = [["status", cluster.file],
                                    ["run", cluster.file, "micro", "--duration", 0.2, "--results", results]]
    for words in commands:
        done = cluster.islands.run(*words)
        assert done.code == 0 and "warning" not in done.err, done
    cluster.write(more="# a remark\n")
    assert "warning" not in cluster.islands.run("status", cluster.file).err
    cluster.write(more="timeouts: {transaction_ms: 500}\n")
    for words in commands:
        done = cluster.islands.run(*words)
        assert done.code == 0 and "does not describe what runs" in done.err, done
        assert "transaction_timeout_ms: 2000 -> 500" in done.err, done
    cluster.down()


def test_status_when_not_up_says_so(cluster: Cluster) -> None:
    cluster.write()
    done = cluster.islands.run("status", cluster.file)
    assert done.code == 1
    assert "not up" in done.err and "islands up" in done.err
    assert cluster.islands.run("down", cluster.file).code == 0


def test_more_islands_than_cores(cluster: Cluster) -> None:
    status = cluster.write("24ISL").up()
    assert len({island["pid"] for island in status["islands"]}) == 24
    assert [island["state"] for island in status["islands"]] == ["ready"] * 24
    assert all(island["cores_shared"] for island in status["islands"])
    assert len(cluster.alive()) == 25
    cluster.down()


def test_another_machines_file_runs_unbound_and_says_so(cluster: Cluster) -> None:
    cluster.write("4ISL", more="machine: 'pack:4 [numa(memory=1GB)] core:1 pu:1'\n")
    done = cluster.islands.run("up", cluster.file)
    assert done.code == 0 and "unbound" in done.err
    islands = cluster.status()["islands"]
    assert [island["cpus"] for island in islands] == ["0", "1", "2", "3"]
    every_cpu = sorted(os.sched_getaffinity(0))
    assert islands[3]["cpus_actual"] == ("0" if len(every_cpu) == 1 else f"{every_cpu[0]}-{every_cpu[-1]}")


def test_dry_run_starts_nothing(cluster: Cluster) -> None:
    cluster.write("3ISL")
    assert cluster.islands.json("up", cluster.file, "--dry-run") == {"would_start": 3}
    assert os.listdir(cluster.folder) == ["deployment.yaml"]


# ---- refusals

def test_second_up_is_refused(cluster: Cluster) -> None:
    first = cluster.write().up()
    done = cluster.islands.run("up", cluster.file)
    assert done.code == 1
    assert "already up" in done.err and str(first["supervisor_pid"]) in done.err
    assert cluster.island_pids() == [island["pid"] for island in first["islands"]]


def test_two_ups_at_once_start_one(cluster: Cluster) -> None:
    cluster.write()
    both = [cluster.start("up", cluster.file) for _ in range(2)]
    codes = sorted((process.communicate(timeout=60), process.returncode)[1] for process in both)
    assert codes == [0, 1]
    assert len(cluster.alive()) == 3


def test_same_data_under_another_control_directory_is_refused(cluster: Cluster, islands: Islands) -> None:
    first = cluster.write().up()
    other = Cluster(islands, cluster.folder)
    other.file = os.path.join(cluster.folder, "other.yaml")
    other.write(more="control: {directory: other}\n")
    done = islands.run("up", other.file)
    assert done.code == 1
    assert "in use" in done.err and str(first["supervisor_pid"]) in done.err
    assert len(cluster.alive()) == 3


@pytest.mark.parametrize("text, where, what", [
    ("version: 1\nlayuot: 2ISL\n", "2:1", "layuot"),
    ("version: 1\nlayout: 2ISL\nlayout: 3ISL\n", "3:1", "layout"),
    ("version: 1\nlayout: 0ISL\n", "2:9", "0ISL"),
    ("version: 1\nlayout: 30ISL\ndata: {sites: 24}\n", "3:", "24"),
    ("version: 1\ncores: '0-4000'\n", "2:8", "4000"),
    ("version: 1\nmessaging: {transport: tcp}\n", "2:24", "tcp"),
    ("version: 1\nstorage: {buffer_pool: 9000TiB}\n", "2:", "9000TiB"),
    ("version: 1\ncontrol: {directory: " + "x" * 200 + "}\n", "2:", "107"),
    ("version: 1\n\tlayout: 2ISL\n", "2:", ""),
])
def test_bad_files_start_nothing(cluster: Cluster, text: str, where: str, what: str) -> None:
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(text)
    done = cluster.islands.run("up", cluster.file)
    assert done.code == 2, done
    assert f"{cluster.file}:{where}" in done.err and what in done.err
    assert os.listdir(cluster.folder) == ["deployment.yaml"]
    assert cluster.alive() == {}


def test_bad_command_lines(cluster: Cluster) -> None:
    cluster.write()
    for arguments in (["up"], ["up", "absent.yaml"], ["up", cluster.file, "--timeout", "0"],
                      ["up", cluster.file, "--timeout", "soon"], ["down", cluster.file, "--force"]):
        assert cluster.islands.run(*arguments).code == 2, arguments
    assert cluster.alive() == {}


# ---- a start that fails

def test_island_that_fails_to_start_is_shown_and_nothing_stays(cluster: Cluster) -> None:
    run = os.path.join(cluster.write("3ISL").folder, "run")
    os.mkdir(run, 0o700)
    os.makedirs(os.path.join(run, "island-1.ctl", "in-the-way"))
    done = cluster.islands.run("up", cluster.file)
    assert done.code == 1
    assert "island 1 failed to start: exit code" in done.err
    assert "island-1.log ends with:" in done.err and "island-1.ctl" in done.err.partition("ends with:")[2]
    assert cluster.alive() == {}


@pytest.fixture
def sleepy(cluster: Cluster) -> Cluster:
    """The same command with an islandd that never gets ready."""
    folder = os.path.join(cluster.folder, "bin")
    os.mkdir(folder)
    shutil.copy(cluster.islands, folder)
    with open(os.path.join(folder, "islandd"), "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\necho dreaming\nexec sleep 1000\n")
    os.chmod(file.name, 0o755)
    made = Cluster(type(cluster.islands)(os.path.join(folder, "islands")), cluster.folder)
    return made.write()


def test_up_timeout_stops_everything(sleepy: Cluster) -> None:
    done = sleepy.islands.run("up", sleepy.file, "--timeout", "0.5")
    assert done.code == 124
    assert "not ready within 0.5 s" in done.err
    assert "island 1" in done.err and "dreaming" in done.err
    assert sleepy.alive() == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_interrupted_stops_everything(sleepy: Cluster, number: signal.Signals) -> None:
    process = sleepy.start("up", sleepy.file)
    wait_until(lambda: len(sleepy.alive()) >= 2)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert sleepy.alive() == {}


# ---- losses

def test_killed_island_is_restarted(cluster: Cluster) -> None:
    before = cluster.write("3ISL").up()["islands"]
    os.kill(before[1]["pid"], signal.SIGKILL)
    wait_until(lambda: cluster.island(1)["restarts"] == 1 and cluster.island(1)["state"] == "ready")
    after = cluster.status()["islands"]
    assert after[1]["pid"] != before[1]["pid"] and pid_gone(before[1]["pid"])
    assert after[1]["boot_epoch"] == before[1]["boot_epoch"] + 1
    assert [after[i]["pid"] for i in (0, 2)] == [before[i]["pid"] for i in (0, 2)]
    wait_until(lambda: all(island["links"] == 2 for island in cluster.status()["islands"]), what="links")


def test_island_killed_too_often_is_given_up(cluster: Cluster) -> None:
    cluster.write().up("--restarts", "2")
    for restarts in (1, 2):
        os.kill(cluster.island(0)["pid"], signal.SIGKILL)
        wait_until(lambda: cluster.island(0)["restarts"] == restarts and cluster.island(0)["state"] == "ready")
    os.kill(cluster.island(0)["pid"], signal.SIGKILL)
    lost = wait_until(lambda: (island := cluster.island(0))["state"] == "given_up" and island)
    assert lost["pid"] is None and "2 restarts" in lost["detail"] and "signal 9" in lost["detail"]
    time.sleep(0.5)
    assert cluster.island(0)["state"] == "given_up" and cluster.island(1)["state"] == "ready"
    done = cluster.islands.run("status", cluster.file)
    assert done.code == 3, "not all of it works"
    assert "given_up" in done.out and "2 restarts" in done.out
    cluster.down()


def test_killed_supervisor_leaves_no_orphans(cluster: Cluster) -> None:
    before = cluster.write("3ISL").up()
    os.kill(before["supervisor_pid"], signal.SIGKILL)
    wait_until(lambda: cluster.alive() == {}, seconds=5, what="islands to die with their supervisor")
    assert cluster.islands.run("status", cluster.file).code == 1
    after = cluster.up()
    assert len(cluster.alive()) == 4
    for old, new in zip(before["islands"], after["islands"]):
        assert new["boot_epoch"] > old["boot_epoch"]


def test_new_supervisor_right_after_a_killed_one_starts_no_doubles(cluster: Cluster) -> None:
    before = cluster.write("3ISL").up()
    for _ in range(5):
        os.kill(before["supervisor_pid"], signal.SIGKILL)
        wait_until(lambda: pid_gone(before["supervisor_pid"]))
        after = cluster.up()
        assert len(cluster.alive()) == 4
        assert not {island["pid"] for island in before["islands"]} & {island["pid"] for island in after["islands"]}
        before = after


@pytest.mark.parametrize("delay_ms", [0, 5, 10, 15, 20, 30, 40, 60])
def test_supervisor_killed_while_it_starts_leaves_nothing(cluster: Cluster, delay_ms: int) -> None:
    process = cluster.write("4ISL").start("up", cluster.file)
    supervisor = wait_until(lambda: [pid for pid, words in cluster.alive().items() if " supervise " in words])[0]
    time.sleep(delay_ms / 1000)
    os.kill(supervisor, signal.SIGKILL)
    err = process.communicate(timeout=30)[1]
    assert process.returncode == 0 or "supervisor ended during start-up" in err or "not up" in err
    wait_until(lambda: cluster.alive() == {}, seconds=5, what="islands to die with their supervisor")
    assert [island["state"] for island in cluster.up()["islands"]] == ["ready"] * 4


def test_down_after_the_supervisor_died(cluster: Cluster) -> None:
    status = cluster.write().up()
    os.kill(status["supervisor_pid"], signal.SIGKILL)
    cluster.down()


def test_down_with_a_spoilt_file(cluster: Cluster) -> None:
    cluster.write().up()
    with open(cluster.file, "a", encoding="utf-8") as file:
        file.write("foo: 1\n")
    done = cluster.islands.run("down", cluster.file)
    assert done.code == 0 and "found unknown key 'foo'" in done.err and "going by its name 'test'" in done.err, done
    assert cluster.alive() == {}


def test_down_kills_a_hung_island(cluster: Cluster) -> None:
    cluster.write().up()
    os.kill(cluster.island(1)["pid"], signal.SIGSTOP)
    cluster.down("--timeout", "20")


def test_down_kills_a_hung_supervisor(cluster: Cluster) -> None:
    status = cluster.write().up()
    os.kill(status["supervisor_pid"], signal.SIGSTOP)
    cluster.down("--timeout", "6")


def test_down_timeout(cluster: Cluster) -> None:
    """Somebody holds an island's lock who is no island: down must neither kill nor wait for ever."""
    cluster.write().up()
    cluster.down()
    with open(os.path.join(cluster.folder, "run", "island-7.lock"), "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(str(os.getpid()))
        file.flush()
        done = cluster.islands.run("down", cluster.file, "--timeout", "0.5")
        assert done.code == 124
        assert str(os.getpid()) in done.err


# ---- data

def test_another_layout_on_the_same_data_never_reuses_epochs(cluster: Cluster) -> None:
    cluster.write("2ISL").up()
    os.kill(cluster.island(1)["pid"], signal.SIGKILL)
    wait_until(lambda: cluster.island(1)["restarts"] == 1 and cluster.island(1)["state"] == "ready")
    highest = max(island["boot_epoch"] for island in cluster.status()["islands"])
    cluster.down()
    first = cluster.write("3ISL").up()
    assert all(island["boot_epoch"] > highest for island in first["islands"])
    cluster.down()
    with open(os.path.join(cluster.folder, "data", "MANIFEST.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    assert manifest["layout_generation"] == 2 and manifest["islands"] == 3
    assert manifest["cluster_id"] == first["cluster_id"]


def test_broken_manifest_is_refused(cluster: Cluster) -> None:
    os.mkdir(os.path.join(cluster.write().folder, "data"))
    with open(os.path.join(cluster.folder, "data", "MANIFEST.json"), "w", encoding="utf-8") as file:
        file.write('{"format": 1, "clus')
    done = cluster.islands.run("up", cluster.file)
    assert done.code == 1 and "MANIFEST.json" in done.err
    assert cluster.alive() == {}


def test_destroy(cluster: Cluster) -> None:
    cluster.write().up()
    refused = cluster.islands.run("destroy", cluster.file)
    assert refused.code == 1 and "already up" in refused.err
    cluster.down()
    for name in ("run/island-notes.txt", "data/mine.txt"):
        with open(os.path.join(cluster.folder, name), "w", encoding="utf-8") as file:
            file.write("a user's file")
    listed = cluster.islands.json("destroy", cluster.file, "--dry-run")
    assert os.path.join(cluster.folder, "data", "MANIFEST.json") in listed["files"]
    assert all(os.path.exists(path) for path in listed["files"])
    unasked = cluster.islands.run("destroy", cluster.file)
    assert unasked.code == 1 and "--yes" in unasked.err
    assert all(os.path.exists(path) for path in listed["files"])
    assert cluster.islands.json("destroy", cluster.file, "--yes")["files"] == listed["files"]
    left = {os.path.relpath(os.path.join(folder, name), cluster.folder)
            for folder, _, names in os.walk(cluster.folder) for name in names}
    assert left == {"deployment.yaml", "run/island-notes.txt", "data/mine.txt"}


def test_destroy_without_a_terminal_asks_for_yes_even_where_no_file_is_left(cluster: Cluster) -> None:
    cluster.write(more="data: {directory: kept/in/data}\ncontrol: {directory: kept/run}\n")
    os.makedirs(os.path.join(cluster.folder, "kept/in/data/island-0"))
    done = cluster.islands.run("destroy", cluster.file, input="yes\n")
    assert done.code == 1 and "nothing removed; --yes" in done.err, done
    assert os.path.isdir(os.path.join(cluster.folder, "kept/in/data/island-0"))
    assert cluster.islands.run("destroy", cluster.file, "--yes").code == 0
    assert os.listdir(cluster.folder) == ["deployment.yaml"]
    assert cluster.islands.run("destroy", cluster.file).out == "nothing to remove\n"


def test_destroy_leaves_no_empty_directory(cluster: Cluster) -> None:
    cluster.write(more="data: {directory: a/b/data}\ncontrol: {directory: a/run}\n", durability="lazy").up()
    cluster.down()
    assert cluster.islands.run("destroy", cluster.file, "--yes").code == 0
    assert os.listdir(cluster.folder) == ["deployment.yaml"]


@pytest.mark.parametrize("place", ["data/MANIFEST.json", "run", "run/supervisor.lock"])
def test_destroy_recommends_to_remove_nothing_that_is_a_users(cluster: Cluster, place: str) -> None:
    cluster.write()
    path = os.path.join(cluster.folder, place)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    if place.endswith(".lock"):
        os.symlink(cluster.file, path)
    else:
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"name": "of something else"}')
    done = cluster.islands.run("destroy", cluster.file, "--yes")
    assert done.code == 1 and "remove it" not in done.err and "by hand" not in done.err, done
    assert os.path.lexists(path)


def test_destroy_does_not_touch_another_deployments_data(cluster: Cluster) -> None:
    cluster.write(name="first").up()
    cluster.down()
    done = cluster.write(name="second").islands.run("destroy", cluster.file)
    assert done.code == 1 and "'first'" in done.err
    assert os.path.exists(os.path.join(cluster.folder, "data", "MANIFEST.json"))
