"""Real clusters that keep a log: what was acknowledged is there after kills of anything; after a loss of power too with
`sync`, and with `lazy` whole transactions only are missing."""

import contextlib
import glob
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from chaos import SHAPES, TABLES, Chaos, judge
from cluster import Cluster, cluster, loaded, wait_until  # noqa: F401
from conftest import Document

UPDATES = ("--op", "update", "--rows", 4, "--multisite", 40)


def up(cluster: Cluster, layout: str = "2ISL", more: str = "", durability: str = "lazy") -> Document:
    return cluster.write(layout, durability=durability, more=more).up()


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


def test_a_load_that_fails_says_what_becomes_of_the_islands(cluster: Cluster) -> None:
    edit(cluster.write(durability="lazy"), "512MiB", "64MiB")
    cluster.up()
    total = int(cluster.run(*UPDATES)["sum_after"])
    run = ["run", cluster.file, "micro", "--duration", 0.2, "--warmup", 0]
    failed = cluster.islands.run(*run, "--rows-total", 1_000_000, "--reload")
    assert failed.code == 1 and "pool is full" in failed.err and "rows of before count still" in failed.err, failed
    wait_until(lambda: any("after a load that has failed" in (island.get("detail") or "")
                           for island in cluster.status()["islands"]), what="the reason")
    wait_until(lambda: {island["state"] for island in cluster.status()["islands"]} == {"ready"}, what="the islands")
    assert rows_sum(cluster) == total


def test_reload_replaces_rows_of_the_same_load(cluster: Cluster) -> None:
    up(cluster)
    cluster.run(*UPDATES)
    fresh = cluster.run("--op", "read", "--reload", duration=0.2)
    assert int(fresh["sum_before"]) == 0 and fresh["sum_check"] == "ok"
    assert cluster.status()["log"]["data_generation"] == 3


@pytest.mark.parametrize("layout", [
    pytest.param("1ISL", marks=pytest.mark.soak), "2ISL", pytest.param("4ISL", marks=pytest.mark.soak)])
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


@pytest.mark.parametrize("layout", [pytest.param("1ISL", marks=pytest.mark.soak), "2ISL"])
def test_kills_in_the_middle_of_transactions(cluster: Cluster, layout: str) -> None:
    """Each adds 1 to ten rows: whatever is left of it is all of it, or nothing."""
    up(cluster, layout)
    cluster.run("--op", "update", "--rows", 10, "--multisite", 40)
    total = rows_sum(cluster)
    for n in range(4):
        with loaded(cluster, seconds=30):
            time.sleep(0.2 + 0.1 * n)
            for pid in cluster.alive():
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not cluster.alive(), what="the end of all processes")
        cluster.up()
        after = rows_sum(cluster)
        assert after > total and (after - total) % 10 == 0
        total = after
    cluster.down()
    assert cluster.islands.run("verify", cluster.file).code == 0


def test_an_island_that_is_killed_comes_back_with_its_rows(cluster: Cluster) -> None:
    up(cluster)
    cluster.run(*UPDATES)
    total = rows_sum(cluster)
    os.kill(cluster.island(1)["pid"], signal.SIGKILL)
    wait_until(lambda: cluster.island(1)["restarts"] == 1 and cluster.island(1)["state"] == "ready", what="island 1")
    assert rows_sum(cluster) == total


def test_a_logger_that_is_killed_is_replaced(cluster: Cluster) -> None:
    up(cluster)
    with loaded(cluster, seconds=4) as run:
        for _ in range(3):
            before = wait_until(lambda: cluster.status()["log"]["logger_pid"], what="a logger")
            os.kill(before, signal.SIGKILL)
            wait_until(lambda: cluster.status()["log"]["logger_pid"] not in (None, before), what="another logger")
        run.communicate(timeout=60)  # killed, it would leave transactions under way
    assert [island["restarts"] for island in cluster.status()["islands"]] == [0, 0]
    assert cluster.run(*UPDATES, "--reload")["sum_check"] == "ok"
    cluster.down()
    cluster.up()


def power_is_lost(cluster: Cluster) -> None:
    """All processes at once, and the rings, which are in memory; what is on disk stays."""
    shm = os.path.dirname(rings(cluster)[0])
    for pid in cluster.alive():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not cluster.alive(), what="the end of all processes")
    shutil.rmtree(shm)


@pytest.mark.parametrize("layout", [pytest.param("1ISL", marks=pytest.mark.soak), "2ISL"])
def test_lost_rings_are_a_loss_of_power(cluster: Cluster, layout: str) -> None:
    """Whole transactions are missing, on all islands the same ones: the sum is one that a transaction has left."""
    up(cluster, layout)
    cluster.run(*UPDATES)
    total = rows_sum(cluster)
    time.sleep(1)  # longer than the log lags behind
    with loaded(cluster, seconds=30):
        time.sleep(2)  # likewise
        power_is_lost(cluster)
    cluster.up()
    with open(os.path.join(cluster.folder, "run", "supervisor.log"), encoding="utf-8") as file:
        assert "power was lost" in file.read()
    after = rows_sum(cluster)
    assert after > total and (after - total) % 10 == 0, "what is left are transactions of 10 rows"
    assert cluster.run(*UPDATES)["sum_check"] == "ok"


@pytest.fixture
def small_disk(folder: str) -> Iterator[str]:
    """A file system of 400 MB, a log segment being 64 MiB and an island in need of two."""
    path = os.path.join(folder, "disk")
    os.mkdir(path)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", path], check=False).returncode:
        pytest.skip("cannot mount a file system here")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def test_full_disk_refuses_changes_until_it_has_room(small_disk: str, cluster: Cluster) -> None:
    """Nobody hangs meanwhile, and nothing is lost."""
    cluster.write(durability="lazy")
    with open(cluster.file, encoding="utf-8") as file:
        text = file.read().replace("log: {", f"log: {{directory: {small_disk}/log, ")
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(text)
    cluster.up()
    cluster.run(*UPDATES)
    filler = os.path.join(small_disk, "filler")
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 20))
    for _ in range(20):
        full = cluster.run("--op", "update", "--rows", 10, duration=1)
        if set(full["aborts_by_reason"]) == {"storage"}:
            break
    assert full["aborts_by_reason"]["storage"] > 0 and full["sum_check"] == "ok"
    with open(os.path.join(cluster.folder, "run", "logger.log"), encoding="utf-8") as file:
        assert f"cannot allocate {small_disk}" in file.read()
    assert small_disk in cluster.status()["log"]["full"]
    read = cluster.run("--op", "read", "--rows", 10)
    assert read["committed"] > 0 and read["aborted"] == 0
    supervisor = cluster.status()["supervisor_pid"]
    os.kill(cluster.island(1)["pid"], signal.SIGKILL)  # its next life has to be written down there
    time.sleep(1)
    assert cluster.island(1)["state"] == "lost"
    os.remove(filler)
    wait_until(lambda: cluster.island(1)["state"] == "ready", what="island 1")
    assert cluster.status()["supervisor_pid"] == supervisor
    wait_until(lambda: cluster.run("--op", "update", "--rows", 10)["committed"] > 1000, what="room")
    assert cluster.status()["log"]["full"] == ""
    total = rows_sum(cluster)
    cluster.down()
    cluster.up()
    assert rows_sum(cluster) == total


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


def edit(cluster: Cluster, old: str, new: str) -> None:
    with open(cluster.file, encoding="utf-8") as file:
        text = file.read()
    assert old in text
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(text.replace(old, new))


def test_a_file_that_names_another_place_loses_nothing(cluster: Cluster) -> None:
    """Rings that are elsewhere were taken for lost with the power, and a log that is elsewhere for none at all."""
    up(cluster)
    result = cluster.run(*UPDATES)
    total = int(result["sum_after"])
    for pid in cluster.alive():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not cluster.alive(), what="the end of all processes")
    for edited, word in (("log: {ring_directory: rings, ", "storage.log.ring_directory"),
                         ("log: {directory: elsewhere, ", "storage.log.directory")):
        edit(cluster, "log: {", edited)
        refused = cluster.islands.run("up", cluster.file)
        assert refused.code == 1 and word in refused.err, refused
        verified = cluster.islands.run("verify", cluster.file)
        assert verified.code in (1, 3) and word in verified.out + verified.err, verified
        edit(cluster, edited, "log: {")
    assert not os.path.exists(os.path.join(cluster.folder, "rings"))
    edit(cluster, "name: test", "name: other")
    refused = cluster.islands.run("up", cluster.file)
    assert refused.code == 1 and "of the deployment 'test'" in refused.err, refused
    assert "data.directory of its own" in refused.err
    edit(cluster, "name: other", "name: test")
    cluster.up()
    assert rows_sum(cluster) == total
    cluster.down()
    # What was taken down has no rings; its log has to stay.
    edit(cluster, "log: {", "log: {ring_directory: rings, ")
    cluster.up()
    assert rows_sum(cluster) == total and len(glob.glob(os.path.join(cluster.folder, "rings", "*.ring"))) == 2
    cluster.down()
    edit(cluster, "log: {", "log: {directory: elsewhere, ")
    refused = cluster.islands.run("up", cluster.file)
    assert refused.code == 1 and "move all of the log there" in refused.err, refused
    os.rename(os.path.join(cluster.folder, "data", "log"), os.path.join(cluster.folder, "elsewhere"))
    cluster.up()
    assert rows_sum(cluster) == total


def test_tables_that_another_load_has_shaped(cluster: Cluster) -> None:
    """They are in the generation, too, and whoever reads it has to know their shape."""
    up(cluster, more=TABLES)
    cluster.run("--rows-total", 4800)
    history = os.path.join(cluster.folder, "history")
    os.mkdir(history)
    append = ["run", cluster.file, "append", "--history", history, "--duration", 0.3, "--warmup", 0, "--results",
              os.path.join(cluster.folder, "results")]
    assert cluster.islands.run(*append, "--reload").code == 0
    os.kill(cluster.island(1)["pid"], signal.SIGKILL)
    wait_until(lambda: cluster.island(1)["restarts"] == 1 and cluster.island(1)["state"] == "ready", what="island 1")
    cluster.down()
    verified = cluster.islands.run("verify", cluster.file)
    assert verified.code == 0, verified
    cluster.up()
    assert cluster.islands.run(*append).code == 0
    assert cluster.run("--rows-total", 4800, "--reload")["sum_check"] == "ok"


@contextlib.contextmanager
def resource_limit(name: int, soft: int) -> Iterator[None]:
    """For processes that are started meanwhile."""
    before = resource.getrlimit(name)
    resource.setrlimit(name, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(name, before)


def test_more_sites_than_a_shell_lets_a_process_open_files(cluster: Cluster) -> None:
    with resource_limit(resource.RLIMIT_NOFILE, 256):
        up(cluster, "1ISL", more="data:\n  sites: 300\n" + TABLES.removeprefix("data:\n"))
        assert cluster.run(*UPDATES)["sum_check"] == "ok"
        cluster.down()
        assert cluster.islands.run("verify", cluster.file).code == 0
        cluster.up()
    assert cluster.run(*UPDATES)["sum_check"] == "ok"


def has_files(pid: int) -> bool:
    try:
        return bool(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return False


@pytest.mark.parametrize("durability", ["lazy", "command"])
def test_destroy_leaves_nothing(cluster: Cluster, durability: str) -> None:
    up(cluster, durability=durability)
    if durability == "command":
        cluster.run(*UPDATES)
        second_set = os.path.join(cluster.folder, "data", "island-*", "generation-*-b")
        wait_until(lambda: bool(glob.glob(second_set)), what="snapshots in the second set of files")
        shutil.rmtree(os.path.join(cluster.folder, "results"))
    shm = os.path.dirname(rings(cluster)[0])
    killed = [*cluster.alive()]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    # A process that dies gives up its memory, and with it its name, before its files, and with them its locks.
    wait_until(lambda: not any(has_files(pid) for pid in killed), what="the end of all processes")
    done = cluster.islands.run("destroy", cluster.file, "--yes")
    assert done.code == 0 and "kept" not in done.out, done
    assert not os.path.exists(shm)
    assert sorted(os.listdir(cluster.folder)) == ["deployment.yaml"]


@pytest.mark.parametrize("durability", ["sync", pytest.param("sync+forced", marks=pytest.mark.soak)])
def test_sync_keeps_all_that_it_has_told_when_power_is_lost(cluster: Cluster, durability: str) -> None:
    """Histories of lives before and after are one, strictly serializable, with nothing excused."""
    up(cluster, durability=durability, more=TABLES)
    history = os.path.join(cluster.folder, "history")
    os.mkdir(history)
    run = ["run", cluster.file, "append", "--history", history, "--rows", "4", "--multisite", "60", "--zipf", "0.9",
           "--warmup", "0", "--results", os.path.join(cluster.folder, "results"), "--format", "json"]
    for seconds in (1, 1.7, 0.6):
        process = cluster.start(*run, "--mpl", 8, "--duration", 60)
        wait_until(lambda: cluster.island(0)["running"], what="the run")
        time.sleep(seconds)
        power_is_lost(cluster)
        process.communicate(timeout=60)
        cluster.up()
        assert "power was lost" in open(os.path.join(cluster.folder, "run", "supervisor.log"), encoding="utf-8").read()
    done = cluster.islands.run(*run, "--duration", 1)
    assert done.code == 0, done
    found = judge(history, "--keeps-answered")
    print(found)
    assert found["committed"] > 100 and found["distributed"] > 10 and found["deaths"] == 6
    assert not found["violations"]


@pytest.mark.parametrize(("shape", "durability"), [
    pytest.param("2x1", "lazy", marks=pytest.mark.soak), ("2x2", "lazy"), ("2x1", "sync+forced")])
def test_histories_of_killed_islands_and_loggers(cluster: Cluster, shape: str, durability: str) -> None:
    """Strictly serializable, with nothing excused."""
    seed = random.SystemRandom().randrange(1, 2**31)
    chaos = Chaos(cluster, SHAPES[shape], "kills", 8, (0.5, 2), seed, durability=durability).run()
    print(chaos.summary())
    assert not chaos.findings, chaos.summary()
