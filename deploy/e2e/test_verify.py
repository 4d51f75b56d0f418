"""`islands verify` on real data: sound after everything that a cluster lives through, and a line for each damage."""

import contextlib
import glob
import hashlib
import os
import pty
import re
import shutil
import signal
import subprocess
import time

import pytest

from cluster import Cluster, cluster, loaded, wait_until  # noqa: F401
from conftest import Document, Result

UPDATES = ("--op", "update", "--rows", 4, "--multisite", 40)


def up(cluster: Cluster, durability: str = "lazy", layout: str = "2ISL") -> Document:
    return cluster.write(layout, durability=durability).up()


def verify(cluster: Cluster, code: int = 0) -> Document:
    return cluster.islands.json("verify", cluster.file, code=code)


def text(cluster: Cluster) -> Result:
    return cluster.islands.run("verify", cluster.file)


def kill_all(cluster: Cluster) -> None:
    for pid in cluster.alive():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not cluster.alive(), what="the end of all processes")


def contents(cluster: Cluster) -> dict[str, str]:
    """Of everything that is kept; who holds the lock is written into it, and that alone."""
    found = {}
    for folder, _, names in os.walk(os.path.join(cluster.folder, "data")):
        for name in names:
            if name not in ("LOCK", "LOG.LOCK"):
                with open(os.path.join(folder, name), "rb") as file:
                    found[os.path.join(folder, name)] = hashlib.sha256(file.read()).hexdigest()
    return found


def flip(path: str, offset: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


def begun(path: str) -> bool:
    """A segment that is in use, and not only made for later."""
    with open(path, "rb") as file:
        return file.read(7) == b"ISLSEGM"


def data(cluster: Cluster, pattern: str) -> list[str]:
    return sorted(glob.glob(os.path.join(cluster.folder, "data", pattern)))


@pytest.mark.parametrize("durability", ["lazy", "sync"])
def test_sound_after_down(cluster: Cluster, durability: str) -> None:
    up(cluster, durability)
    assert cluster.run(*UPDATES)["sum_check"] == "ok"
    cluster.down()
    before = contents(cluster)
    found = verify(cluster)
    assert found["sound"] and not found["findings"]
    assert [island["island"] for island in found["islands"]] == [0, 1]
    assert all(island["pages"] > 0 and island["undone"] == 0 and island["in_doubt"] == 0 for island in found["islands"])
    assert contents(cluster) == before
    done = text(cluster)
    assert done.code == 0 and done.out.endswith("sound\n") and not done.err, done
    cluster.up()
    assert cluster.run("--op", "read", duration=0.2, warmup=0)["sum_check"] == "ok"


@pytest.mark.parametrize("layout", [pytest.param("1ISL", marks=pytest.mark.soak), "2ISL"])
def test_sound_after_kills_and_after_lost_rings(cluster: Cluster, layout: str) -> None:
    """1ISL: one island with several workers, whose records one order is made of."""
    up(cluster, layout=layout)
    with loaded(cluster, seconds=30):
        time.sleep(1)
        kill_all(cluster)
    before = contents(cluster)
    found = verify(cluster)
    assert found["sound"], found
    assert any("`up` takes them along" in note for note in found["notes"]), found
    assert contents(cluster) == before
    with open(os.path.join(cluster.folder, "data", "MANIFEST.json"), encoding="utf-8") as file:
        cluster_id = file.read().split('"cluster_id": "')[1][:16]
    shutil.rmtree(f"/dev/shm/islands-{cluster_id}")
    found = verify(cluster)
    assert found["sound"], found
    assert any("power was lost" in note for note in found["notes"]), found
    assert contents(cluster) == before
    cluster.up()
    assert cluster.run(*UPDATES)["sum_check"] == "ok"
    cluster.down()
    assert verify(cluster)["sound"]


def test_damage_is_found_and_named(cluster: Cluster) -> None:
    up(cluster)
    cluster.run(*UPDATES)
    cluster.down()
    assert verify(cluster)["sound"]
    page_file = data(cluster, "island-1/generation-*-site-*")[0]
    flip(page_file, 3 * 4096 + 1000)
    found = verify(cluster, code=3)
    assert [finding["path"] for finding in found["findings"]] == [page_file], found
    assert "page 3 " in found["findings"][0]["text"]
    segment = [path for path in data(cluster, "log/island-0/segment-*") if begun(path)][-1]
    flip(segment, 20)
    done = text(cluster)
    lines = [line for line in done.out.splitlines() if line.startswith("finding: ")]
    assert done.code == 3 and len(lines) == 2, done
    assert any(segment in line and "damaged" in line for line in lines), done
    assert any(page_file in line for line in lines), done
    flip(segment, 20)
    flip(page_file, 3 * 4096 + 1000)
    assert verify(cluster)["sound"]
    flip(os.path.join(cluster.folder, "data", "log", "MANIFEST"), 20)
    assert "/log/MANIFEST" in verify(cluster, code=3)["findings"][0]["path"]
    flip(os.path.join(cluster.folder, "data", "log", "MANIFEST"), 20)
    manifest = os.path.join(cluster.folder, "data", "MANIFEST.json")
    with open(manifest, "r+", encoding="utf-8") as file:
        file.write("?")
    assert verify(cluster, code=3)["findings"][0]["path"] == manifest
    os.remove(manifest)  # `up` would begin anew
    assert verify(cluster, code=3)["findings"][0]["path"] == manifest


def test_up_looks_at_what_costs_no_walk(cluster: Cluster) -> None:
    """It does not start on such damage, and says what `verify` says."""
    up(cluster)
    cluster.run(*UPDATES)
    cluster.down()
    epoch, checkpoint, segment, page_file = (data(cluster, pattern)[-1] for pattern in (
        "log/EPOCH", "island-1/generation-*-checkpoint", "log/island-0/segment-*1", "island-1/generation-*-site-*"))

    def refused(path: str) -> None:
        found = [finding for finding in verify(cluster, code=3)["findings"] if finding["path"] == path]
        done = cluster.islands.run("up", cluster.file)
        assert done.code == 1 and len(found) == 1 and found[0]["text"] in done.err, (done, found)
        assert cluster.alive() == {}

    for path in (epoch, checkpoint):
        for offset in (25, 4096 + 25):
            flip(path, offset)
        refused(path)
        for offset in (25, 4096 + 25):
            flip(path, offset)
    flip(segment, 20)
    refused(segment)
    flip(segment, 20)
    size = os.path.getsize(page_file)
    for damaged in (lambda: os.truncate(page_file, 4096), lambda: os.remove(page_file)):
        shutil.copy(page_file, page_file + ".kept")
        damaged()
        refused(page_file)
        os.replace(page_file + ".kept", page_file)
    assert os.path.getsize(page_file) == size
    begin = time.monotonic()
    cluster.up()
    print(f"up in {time.monotonic() - begin:.2f} s")


def test_cannot_look(cluster: Cluster) -> None:
    refused = cluster.islands.run("verify", cluster.write(durability="lazy").file)
    assert refused.code == 1 and "nothing has been up here" in refused.err
    assert os.listdir(cluster.folder) == ["deployment.yaml"]
    cluster.up()
    refused = text(cluster)
    assert refused.code == 1 and "already up" in refused.err and not refused.out
    assert cluster.islands.json("verify", cluster.file, code=1)["error"]["exit_code"] == 1
    cluster.down()
    assert text(cluster).code == 0
    refused = cluster.islands.run("verify", cluster.write(durability="none").file)
    assert refused.code == 1 and "nothing for `islands verify`" in refused.err
    assert cluster.islands.run("verify", os.path.join(cluster.folder, "no.yaml")).code == 2


def test_somebody_else_has_the_data(cluster: Cluster) -> None:
    up(cluster)
    cluster.down()
    lock = os.path.join(cluster.folder, "data", "LOCK")
    holder = subprocess.Popen(["flock", "--no-fork", lock, "sleep", "60"])
    try:
        wait_until(lambda: text(cluster).code == 1, what="the lock")
        assert "LOCK is held" in text(cluster).err
    finally:
        holder.kill()
        holder.wait()
    wait_until(lambda: text(cluster).code == 0, what="the lock to fall")


def state(pid: int) -> str:
    """Of a child of ours: `T` is stopped."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rsplit(") ", 1)[1][0]


def stopped(cluster: Cluster) -> subprocess.Popen[str]:
    """A `verify` that stands still while it looks: it has the lock, and says so in its file."""
    lock = os.path.join(cluster.folder, "data", "LOCK")
    for _ in range(50):
        process = cluster.start("verify", cluster.file)
        while process.poll() is None:
            with open(lock, encoding="utf-8") as file:
                if file.readline().strip() != str(process.pid):
                    continue
            process.send_signal(signal.SIGSTOP)
            wait_until(lambda: process.poll() is not None or state(process.pid) == "T", what="it to stand still")
            if process.poll() is None:
                return process
        process.communicate()
    pytest.fail("it was never caught in the middle")


def test_up_is_refused_meanwhile(cluster: Cluster) -> None:
    up(cluster)
    cluster.down()
    process = stopped(cluster)
    try:
        refused = cluster.islands.run("up", cluster.file)
        assert refused.code == 1 and "which `islands verify` looks at" in refused.err, refused
        assert text(cluster).code == 1
    finally:
        process.send_signal(signal.SIGCONT)
    out, _ = process.communicate()
    assert process.returncode == 0 and out.endswith("sound\n")
    cluster.up()


def on_a_terminal(cluster: Cluster, command: str) -> tuple[bytes, bytes]:
    """Its output, and what its line has shown meanwhile."""
    leader, follower = pty.openpty()
    done = subprocess.run([cluster.islands, command, cluster.file], stdout=subprocess.PIPE, stderr=follower,
                          timeout=60, check=True)
    os.close(follower)
    shown = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while chunk := os.read(leader, 1 << 16):
            shown += chunk
    os.close(leader)
    assert shown.endswith(b"\r\x1b[K"), "the line goes"
    return done.stdout, shown


def test_up_shows_how_far_recovery_is(cluster: Cluster) -> None:
    up(cluster)
    cluster.run("--op", "update", "--rows", 10, duration=4)
    kill_all(cluster)
    out, shown = on_a_terminal(cluster, "up")
    assert re.search(rb"island \d: .*\d+ records", shown), shown
    assert b"records" not in out


def test_progress_is_for_terminals(cluster: Cluster) -> None:
    up(cluster)
    cluster.down()
    out, shown = on_a_terminal(cluster, "verify")
    assert b"\risland 0: pages " in shown and b"\risland 1: trees" in shown
    assert out.endswith(b"sound\n")
    assert text(cluster).err == ""
