"""What happens to data directories, disks and memory while nobody looks: copies, moves, disks that are read-only, what
vanishes, and boots. Nothing that was acknowledged is lost, or it is said what is, and what to do."""

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest

from cluster import Cluster, cluster, loaded, wait_until  # noqa: F401
from conftest import Islands, Result
from disk_faults import DiskFaults, library
from test_durable import edit, rings, rows_sum, up

WORDS = ("Read-only file system; nothing is made durable any more, stop the deployment and mend the disk",
         "Input/output error; nothing is made durable any more, stop the deployment and mend the disk")
TEN = ("--op", "update", "--rows", 10, "--multisite", 40)  # what a transaction adds to the sum


def filled(cluster: Cluster, more: str = "") -> int:
    """Up, with rows; their sum."""
    up(cluster, more=more)
    return work(cluster)


def work(cluster: Cluster) -> int:
    """Some more; the sum that it leaves."""
    result = cluster.run(*TEN, duration=0.2, warmup=0)
    assert result["sum_check"] == "ok" and result["committed"] > 0
    return int(result["sum_after"])


def kill_all(cluster: Cluster, how: signal.Signals = signal.SIGKILL) -> None:
    for pid in cluster.alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
    wait_until(lambda: not cluster.alive(), what="the end of all processes")


def refused(done: Result, *words: str) -> None:
    assert done.code == 1 and all(word in done.err for word in words), (done.code, done.err)


def said(cluster: Cluster, who: str = "supervisor") -> str:
    with open(os.path.join(cluster.folder, "run", who + ".log"), encoding="utf-8") as file:
        return file.read()


def command(cluster: Cluster, *words: str) -> Result:
    return cluster.islands.run(words[0], cluster.file, *words[1:])


def stops(cluster: Cluster) -> None:
    """By itself, and soon."""
    wait_until(lambda: not cluster.alive(), what="the end of the deployment")


@pytest.fixture(autouse=True)
def no_rings_left() -> Iterator[None]:
    """Of deployments that were killed, and whose data is gone."""
    yield
    for owner in glob.glob("/dev/shm/islands-*/owner"):
        with contextlib.suppress(FileNotFoundError), open(owner, encoding="utf-8") as file:
            log = file.read().split(" ", 5)[5].strip()
            if log.startswith(tempfile.gettempdir() + "/islands-") and not os.path.exists(log):
                shutil.rmtree(os.path.dirname(owner), ignore_errors=True)


# ---- Copies ----

@pytest.fixture
def copies(islands: Islands) -> Iterator[list[Cluster]]:
    """What copied() makes, and its end."""
    made: list[Cluster] = []
    yield made
    for one in made:
        left = one.clean()
        shutil.rmtree(one.folder, ignore_errors=True)
        assert left == {}, "processes were left behind"


def copied(cluster: Cluster, copies: list[Cluster]) -> Cluster:
    folder = tempfile.mkdtemp(prefix="islands-")
    subprocess.run(["cp", "-a", cluster.folder + "/.", folder], check=True)
    copies.append(Cluster(cluster.islands, folder))
    return copies[-1]


def test_copy_beside_the_running_original(cluster: Cluster, copies: list[Cluster]) -> None:
    """They have the same name for their rings. The copy touches nothing, and goes where it is told to."""
    total = filled(cluster)
    cluster.down()
    copy = copied(cluster, copies)
    cluster.up()
    with loaded(cluster, seconds=30):
        there = sorted(rings(cluster))
        supervisor = cluster.status()["supervisor_pid"]
        refused(command(copy, "up"), f"process {supervisor}", cluster.folder, "storage.log.ring_directory")
        assert sorted(rings(cluster)) == there
        edit(copy, "log: {", "log: {ring_directory: rings, ")
        copy.up()
        assert rows_sum(copy) == total
        work(copy)
        kill_all(copy)
        edit(copy, "log: {ring_directory: rings, ", "log: {")
        assert command(copy, "destroy", "--yes").code == 0
        assert sorted(rings(cluster)) == there
    total = work(cluster)
    kill_all(cluster)
    assert rows_sum_of(cluster) == total


def test_copy_of_a_running_deployment(cluster: Cluster, copies: list[Cluster]) -> None:
    """No backup, but its start and its end must not harm the original."""
    total = filled(cluster)
    copy = copied(cluster, copies)
    there = sorted(rings(cluster))
    for verb, more in (("up", ()), ("verify", ()), ("destroy", ("--yes",))):
        done = command(copy, verb, *more)
        assert done.code == (0 if verb == "destroy" else 1), done
        assert sorted(rings(cluster)) == there
    kill_all(cluster)
    cluster.up()
    assert rows_sum(cluster) == total and "power was lost" not in said(cluster)


def test_copy_after_everybody_was_killed(cluster: Cluster, copies: list[Cluster]) -> None:
    """What was acknowledged last is in the rings of the original, whoever starts first."""
    total = filled(cluster)
    with loaded(cluster, seconds=30):
        time.sleep(0.2)
        kill_all(cluster)
    copy, other = copied(cluster, copies), copied(cluster, copies)
    words = (cluster.folder, copy.folder, "it is a copy", "`up` and `down`")
    refused(command(copy, "up"), *words)
    refused(command(copy, "verify"), *words)
    edit(copy, "log: {", "log: {ring_directory: rings, ")
    refused(command(copy, "up"), *words)
    edit(copy, "log: {ring_directory: rings, ", "log: {")
    assert command(other, "destroy", "--yes").code == 0
    cluster.up()
    after = rows_sum(cluster)
    assert after > total and "power was lost" not in said(cluster)
    cluster.down()
    assert rows_sum_of(copy) <= after and "power was lost" in said(copy)
    # Now the name is the copy's.
    refused(command(cluster, "up"), copy.folder)
    copy.down()
    assert rows_sum_of(cluster) == after


def rows_sum_of(cluster: Cluster) -> int:
    cluster.up()
    return rows_sum(cluster)


def test_copy_with_its_rings(cluster: Cluster, copies: list[Cluster]) -> None:
    """Nothing is missing from it."""
    cluster.write(durability="lazy")
    edit(cluster, "log: {", "log: {ring_directory: rings, ")
    cluster.up()
    total = work(cluster)
    kill_all(cluster)
    copy = copied(cluster, copies)
    for one in (copy, cluster):
        assert rows_sum_of(one) == total and "power was lost" not in said(one)
        work(one)


def test_copy_of_the_data_that_shares_its_log(cluster: Cluster, copies: list[Cluster]) -> None:
    cluster.write(durability="lazy")
    edit(cluster, "log: {", f"log: {{directory: {cluster.folder}/log, ")
    cluster.up()
    total = work(cluster)
    cluster.down()
    copy = copied(cluster, copies)
    shutil.rmtree(os.path.join(copy.folder, "log"))
    cluster.up()
    supervisor = cluster.status()["supervisor_pid"]
    for words in (("up",), ("verify",), ("destroy", "--yes")):
        refused(command(copy, *words), "the log is in use", str(supervisor), cluster.folder)
    work(cluster)
    cluster.down()
    refused(command(copy, "up"), "old copy")  # the log has gone on without it
    assert rows_sum_of(cluster) > total


def test_data_restored_from_a_copy(cluster: Cluster) -> None:
    """At its place, after what is there now was killed: its rings are not the copy's."""
    total = filled(cluster)
    cluster.down()
    data, saved = (os.path.join(cluster.folder, name) for name in ("data", "saved"))
    shutil.copytree(data, saved)
    cluster.up()
    assert work(cluster) > total
    folder = os.path.dirname(rings(cluster)[0])
    kill_all(cluster)
    shutil.rmtree(data)
    os.rename(saved, data)
    refused(command(cluster, "up"), "restored from a copy", f"If it is a copy: remove {folder};")
    shutil.rmtree(folder)
    assert rows_sum_of(cluster) == total


@pytest.mark.parametrize("end", ["down", "killed"])
def test_moved_data(cluster: Cluster, copies: list[Cluster], end: str) -> None:
    total = filled(cluster)
    if end == "down":
        cluster.down()
    else:
        kill_all(cluster)
    moved = copied(cluster, copies)
    shutil.rmtree(moved.folder)
    os.rename(cluster.folder, moved.folder)
    assert rows_sum_of(moved) == total and "power was lost" not in said(moved)
    moved.down()
    os.rename(moved.folder, cluster.folder)


# ---- Disks ----

@contextlib.contextmanager
def mounted(path: str, *words: str) -> Iterator[str]:
    os.makedirs(path, exist_ok=True)
    if subprocess.run(["mount", *words, path], check=False, capture_output=True).returncode:
        pytest.skip("cannot mount a file system here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


@pytest.mark.parametrize("what", ["data", "log"])
def test_read_only_at_the_start(cluster: Cluster, what: str) -> None:
    cluster.write(durability="lazy")
    edit(cluster, "log: {", "log: {directory: log, ")
    with mounted(os.path.join(cluster.folder, what), "-t", "tmpfs", "tmpfs") as disk:
        cluster.up()
        total = work(cluster)
        kill_all(cluster)
        # Who was killed may still be closing his files.
        wait_until(lambda: subprocess.run(["mount", "-o", "remount,ro", disk], check=False, capture_output=True)
                   .returncode == 0, what="the disk to be read-only")
        refused(command(cluster, "up"), "Read-only file system", disk)
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        assert rows_sum_of(cluster) == total and "power was lost" not in said(cluster)
        cluster.down()


def test_results_on_a_full_disk(cluster: Cluster) -> None:
    cluster.write("1ISL").up()
    with mounted(os.path.join(cluster.folder, "results"), "-t", "tmpfs", "-o", "size=4k", "tmpfs") as disk:
        done = command(cluster, "run", "micro", "--duration", "0.2", "--warmup", "0", "--results", disk)
    refused(done, f"cannot write {disk}/", "No space left on device")


def test_read_only_in_the_midst(cluster: Cluster) -> None:
    """As ext4 does when it finds damage, and what is on its way to disk is not there afterwards."""
    image = os.path.join(cluster.folder, "image")
    with open(image, "wb") as file:
        file.truncate(1 << 30)
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=1", image], check=True)
    cluster.write(durability="lazy")
    data = os.path.join(cluster.folder, "data")
    with mounted(data, "-o", "loop", image):
        cluster.up()
        total = work(cluster)
        with loaded(cluster, seconds=30):
            time.sleep(0.5)
            subprocess.run(["mount", "-o", "remount,abort", data], check=True)
            stops(cluster)
        # Of the first call that notices.
        assert any(f"{data}/log" in line and line.endswith(WORDS) for line in said(cluster).splitlines()), said(cluster)
        refused(command(cluster, "up"), "Read-only file system", data)
    with mounted(data, "-o", "loop", image):
        after = rows_sum_of(cluster)
        assert after > total and "power was lost" not in said(cluster)
        work(cluster)
        cluster.down()


def test_every_call_fails_from_now_on(cluster: Cluster) -> None:
    """The box stops and says why; what it has told is there once the disk can be written to."""
    if not os.access(library(), os.R_OK):
        pytest.skip(f"{library()} is not built")
    faults = DiskFaults(cluster.folder, os.path.join(cluster.folder, "data"))
    cluster.write(durability="sync+forced")
    done = cluster.islands.run("up", cluster.file, env={**os.environ, **faults.environment})
    assert done.code == 0, done
    total = work(cluster)
    with loaded(cluster, seconds=30):
        time.sleep(0.3)
        faults.arm("EROFS")
        stops(cluster)
    assert faults.struck() and "Read-only file system" in said(cluster)
    after = rows_sum_of(cluster)
    assert after > total and "power was lost" not in said(cluster)


# ---- What vanishes ----

@pytest.mark.parametrize("what", ["data", "data/log"])
def test_directory_vanishes(cluster: Cluster, what: str) -> None:
    total = filled(cluster)
    path, away = os.path.join(cluster.folder, what), os.path.join(cluster.folder, "away")
    with loaded(cluster, seconds=30):
        time.sleep(0.3)
        os.rename(path, away)
        stops(cluster)
    assert path in said(cluster), said(cluster)
    if what == "data/log":
        refused(command(cluster, "up"), "has no log of theirs")
        assert not os.path.exists(path), "what is to be moved there would be one level too deep"
    os.rename(away, path)
    after = rows_sum_of(cluster)
    assert after > total and "power was lost" not in said(cluster)


def test_log_that_vanishes_while_nothing_happens(cluster: Cluster) -> None:
    """Nobody has to write into it: what is acknowledged is to be safe."""
    up(cluster)
    shutil.rmtree(os.path.join(cluster.folder, "data", "log"))
    stops(cluster)
    assert "EPOCH was removed or moved" in said(cluster)
    refused(command(cluster, "status"), "It has ended by itself", "EPOCH was removed or moved")
    assert command(cluster, "destroy", "--yes").code == 0
    assert not os.path.exists(os.path.join(cluster.folder, "run")), "with all that was in it"


def test_one_ring_vanishes(cluster: Cluster) -> None:
    """The others would not be enough after a kill: so it ends, while those who have it open still have all of it."""
    total = filled(cluster)
    ring = rings(cluster)[1]
    with loaded(cluster, seconds=30):
        time.sleep(0.3)
        os.remove(ring)
        stops(cluster)
    assert f"{ring} was removed or moved" in said(cluster)
    refused(command(cluster, "status"), "It has ended by itself", ring)
    after = rows_sum_of(cluster)
    assert "power was lost" not in said(cluster) and after > total


# ---- Memory, and boots ----

def up_with(cluster: Cluster, *mount: str) -> Result:
    """With another mount in place, which nobody else sees."""
    words = " && ".join((f"mount {' '.join(mount)}", f"exec {cluster.islands} up {cluster.file}"))
    done = subprocess.run(["unshare", "-m", "sh", "-c", words], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode == 32 or "unshare" in done.stderr:
        pytest.skip("cannot mount here: " + done.stderr)
    return Result(done.returncode, done.stdout, done.stderr)


def test_little_shared_memory(cluster: Cluster) -> None:
    """As in a container. Rings are beside the log then, and do for kills all the same."""
    cluster.write(durability="lazy")
    small = ("-t", "tmpfs", "-o", "size=24m", "tmpfs", "/dev/shm")  # two islands need 32 MiB
    total = 0
    for _ in range(2):
        assert (done := up_with(cluster, *small)).code == 0, done
        assert "has room for 23 MiB" in said(cluster) and f"{cluster.folder}/data/log/rings" in said(cluster)
        assert total in (0, rows_sum(cluster))
        total = work(cluster)
        kill_all(cluster)
    assert rows_sum_of(cluster) == total and "power was lost" not in said(cluster)


def test_little_memory_that_was_named(cluster: Cluster) -> None:
    with mounted(os.path.join(cluster.folder, "memory"), "-t", "tmpfs", "-o", "size=24m", "tmpfs") as memory:
        cluster.write(durability="lazy")
        edit(cluster, "log: {", f"log: {{ring_directory: {memory}/rings, ")
        refused(command(cluster, "up"), f"{memory}/rings has room for 23 MiB", "need 33", "ring_bytes")
        edit(cluster, "log: {", "log: {ring_bytes: 1MiB, ")
        cluster.up()
        total = work(cluster)
        kill_all(cluster)
        assert rows_sum_of(cluster) == total and "power was lost" not in said(cluster)
        cluster.down()


def test_room_for_rings_is_waited_for(cluster: Cluster) -> None:
    """The next life of an island has rings beside those of the one before."""
    with mounted(os.path.join(cluster.folder, "memory"), "-t", "tmpfs", "-o", "size=24m", "tmpfs") as memory:
        cluster.write(durability="lazy")
        edit(cluster, "log: {", f"log: {{ring_directory: {memory}/rings, ring_bytes: 4MiB, ")
        cluster.up()
        total = work(cluster)
        filler = os.path.join(memory, "filler")
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            while file.write(bytes(1 << 20)):
                pass
        os.kill(cluster.island(0)["pid"], signal.SIGKILL)
        wait_until(lambda: f"waits for room: {memory}/rings" in said(cluster), what="an island that waits for room")
        time.sleep(1)
        assert cluster.island(0)["state"] == "lost"
        os.unlink(filler)
        wait_until(lambda: cluster.island(0)["state"] == "ready", what="island 0")
        assert rows_sum(cluster) == total
        cluster.down()


def test_another_boot_of_the_kernel(cluster: Cluster) -> None:
    """Rings that are on disk, and of the boot before, count for nothing."""
    total = filled(cluster)
    time.sleep(0.3)  # longer than the log lags behind
    kill_all(cluster)
    boot = os.path.join(cluster.folder, "boot")
    with open(boot, "w", encoding="utf-8") as file:
        file.write("01234567-89ab-cdef-0123-456789abcdef\n")
    done = up_with(cluster, "--bind", boot, "/proc/sys/kernel/random/boot_id")
    assert done.code == 0 and "power was lost" in said(cluster), done
    assert rows_sum(cluster) == total
    work(cluster)


@pytest.mark.parametrize("rest", ["rings stay", "rings go"])
def test_everybody_is_told_to_end_at_once(cluster: Cluster, rest: str) -> None:
    """As when a machine goes down, and does not ask who depends on whom."""
    total = filled(cluster)
    shm = os.path.dirname(rings(cluster)[0])
    with loaded(cluster, seconds=30):
        time.sleep(0.2)
        kill_all(cluster, signal.SIGTERM)
    if rest == "rings go":
        shutil.rmtree(shm, ignore_errors=True)
    after = rows_sum_of(cluster)
    assert after > total
    work(cluster)
    if rest == "rings stay":
        assert "power was lost" not in said(cluster)
