"""`islands compact`: what deletes have left free goes back to the disk, whatever becomes of the call; until then it is
used again."""

import glob
import os
import random
import signal
import subprocess

import pytest

from cluster import Cluster, cluster, wait_until  # noqa: F401
from conftest import Document
from disk_faults import DiskFaults, Place, library
from test_durable import edit, rows_sum, small_disk  # noqa: F401

KEYS = 6_000
BYTES = 1500  # of a row
BIG = ("big", "--key", "uint64", "--range", f"0:{KEYS}")
MORE = """machine: 'pack:2 [numa(memory=1GB)] core:3 pu:1'
gateway: {enabled: true}
data:
  sites: 4
  tables: [{name: micro, key: [uint64], range: [0, 5000], row_bytes: 100}]
"""


def say(cluster: Cluster, *words: object) -> str:
    done = cluster.islands.run("table", cluster.file, *words)
    assert done.code == 0, done
    return str(done.out)


def fill(cluster: Cluster) -> None:
    path = os.path.join(cluster.folder, "big.csv")
    with open(path, "w", encoding="utf-8") as file:
        file.write("key,value\n" + "".join(f"{key},{str(key % 10) * BYTES}\n" for key in range(KEYS)))
    say(cluster, "create", *BIG)
    say(cluster, "load", "big", path)
    wait_until(lambda: sum(sizes(cluster)) > KEYS * BYTES, what="pages to go home")


def sizes(cluster: Cluster) -> list[int]:
    """Of the files of all sites, by island."""
    return [sum(map(os.path.getsize, glob.glob(f"{folder}/generation-*-site-*")))
            for folder in sorted(glob.glob(os.path.join(cluster.folder, "data", "island-*")))]


def generations(cluster: Cluster) -> set[str]:
    return {os.path.basename(path)[:len("generation-") + 10]
            for path in glob.glob(os.path.join(cluster.folder, "data", "island-*", "generation-*"))}


def compact(cluster: Cluster, *options: object) -> Document:
    document: Document = cluster.islands.json("compact", cluster.file, *options)
    return document


def emptied(cluster: Cluster, mode: str = "paged", durability: str = "lazy", pool: str = "8MiB") -> int:
    """More than paged pools hold has come and gone; the sum of the rows that are left. It is down then."""
    cluster.write(durability=durability, more=MORE)
    edit(cluster, "buffer_pool: 512MiB", f"buffer_pool: {pool}, mode: {mode}")
    cluster.up()
    known: int = cluster.run("--op", "add", duration=0.2, warmup=0)["sum_after"]
    fill(cluster)
    assert f"and {KEYS:,} rows" in say(cluster, "drop", "big", "--yes")
    cluster.down()
    return known


def same(cluster: Cluster, known: int) -> None:
    """Up it has the rows, and works on them; down it is sound."""
    cluster.up()
    assert rows_sum(cluster) == known
    assert len(generations(cluster)) == 1, generations(cluster)
    cluster.down()
    found = cluster.islands.json("verify", cluster.file)
    assert found["sound"], found


@pytest.mark.parametrize("mode, pool", [("paged", "8MiB"), ("resident", "64MiB")])
def test_what_was_freed_goes_back_to_the_disk(cluster: Cluster, mode: str, pool: str) -> None:
    known = emptied(cluster, mode, pool=pool)
    before = sizes(cluster)
    assert sum(before) > KEYS * BYTES
    planned = compact(cluster, "--dry-run")
    assert not planned["changed"] and planned["bytes_used"] < sum(before) < planned["bytes_available"]
    assert sizes(cluster) == before
    done = compact(cluster)
    after = sizes(cluster)
    assert done["changed"] and sum(done["rows"]) == 5000
    assert [(island["bytes_before"], island["bytes_after"]) for island in done["islands"]] == list(zip(before, after))
    assert sum(after) < sum(before) / 5
    again = cluster.islands.run("compact", cluster.file)
    assert again.code == 0 and "all is as it was" in again.out, again
    assert again.out.splitlines()[-1] == f"island 1: {after[1]} bytes before, {after[1]} bytes after"
    assert sizes(cluster) == after
    same(cluster, known)


def test_refusals(cluster: Cluster) -> None:
    def refusal() -> str:
        done = cluster.islands.run("compact", cluster.file)
        assert done.code == 1, done
        return done.err

    cluster.write(durability="lazy", more=MORE)
    assert "nothing has been up here yet" in refusal()
    cluster.up()
    assert "already up" in refusal()
    known: int = cluster.run("--op", "add", duration=0.1, warmup=0)["sum_after"]
    for pid in cluster.alive():
        os.kill(pid, signal.SIGKILL)
    assert "not taken down" in refusal()
    cluster.up()
    cluster.down()
    edit(cluster, "layout: 2ISL", "layout: 1ISL")
    assert "`islands relayout` cuts it so" in refusal()
    edit(cluster, "layout: 1ISL", "layout: 2ISL")
    edit(cluster, "durability: lazy", "durability: none")
    assert "'none'" in refusal()
    edit(cluster, "durability: none", "durability: lazy")
    same(cluster, known)


@pytest.mark.soak
def test_whatever_call_it_dies_at(cluster: Cluster) -> None:
    """`up` finds all rows, and removes what the dead one has left."""
    if not os.path.exists(library()):
        pytest.skip("disk_faults.so is not built")
    seed = int(os.environ.get("ISLANDS_SEED", random.randrange(10**6)))
    print(f"ISLANDS_SEED={seed}")
    draw = random.Random(seed)
    known = emptied(cluster)
    faults = DiskFaults(cluster.folder, os.path.join(cluster.folder, "data"))
    environment = {**os.environ, **faults.environment}
    faults.arm()
    copy = os.path.join(cluster.folder, "copy")
    subprocess.run(["cp", "-a", os.path.join(cluster.folder, "data"), copy], check=True)
    assert cluster.islands.run("compact", cluster.file, env=environment).code == 0
    last = faults.calls()["supervisor"]
    left = 0
    for nth in [draw.randrange(1, last - 12), last // 2, *(last - draw.randrange(1, 12) for _ in range(2))]:
        subprocess.run(["rm", "-r", os.path.join(cluster.folder, "data")], check=True)
        subprocess.run(["cp", "-a", copy, os.path.join(cluster.folder, "data")], check=True)
        faults.arm("kill", Place("supervisor", nth))
        done = cluster.islands.run("compact", cluster.file, env=environment)
        assert done.code != 0 and faults.struck(), (nth, last, done)
        faults.disarm()
        left += len(generations(cluster)) - 1
        same(cluster, known)
    assert left > 0, "it never left anything"


def test_ctrl_c_leaves_nothing(cluster: Cluster) -> None:
    known = emptied(cluster)
    cluster.up()
    fill(cluster)
    cluster.down()
    for _ in range(50):  # or it is faster than who looks at it
        before, there = sizes(cluster), generations(cluster)
        process = cluster.start("compact", cluster.file)
        while process.poll() is None and generations(cluster) == there:
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        if process.returncode == 130:
            break
        assert process.returncode == 0, (out, err)
    assert process.returncode == 130 and "all is as it was" in err, (out, err)
    assert sizes(cluster) == before and generations(cluster) == there
    same(cluster, known)


def test_a_disk_without_room_is_told_beforehand(small_disk: str, cluster: Cluster) -> None:
    cluster.write(durability="lazy", more=MORE.replace("data:\n", f"data:\n  directory: {small_disk}/data\n"))
    cluster.up()
    known: int = cluster.run("--op", "add", duration=0.1, warmup=0)["sum_after"]
    cluster.down()
    room = os.statvfs(small_disk)
    subprocess.run(["fallocate", "-l", str(room.f_bavail * room.f_bsize - (64 << 10)), f"{small_disk}/filler"],
                   check=True)
    done = cluster.islands.run("compact", cluster.file)
    assert done.code == 1 and "there is room for 6" in done.err and "beside what is there" in done.err, done
    os.remove(f"{small_disk}/filler")
    cluster.up()
    assert rows_sum(cluster) == known


def test_pages_that_rows_have_left_are_used_again_by_the_next_life(cluster: Cluster) -> None:
    """Files grow no further, whether the island that has freed pages is killed or taken down."""
    emptied(cluster)
    grown = sum(sizes(cluster))
    cluster.up()
    before = cluster.status()["islands"]
    for island in before:
        os.kill(island["pid"], signal.SIGKILL)
    wait_until(lambda: all(now["state"] == "ready" and now["pid"] != then["pid"]
                           for now, then in zip(cluster.status()["islands"], before)), 30, "islands to come back")
    fill(cluster)
    assert say(cluster, "dump", "big").count("\n") == KEYS + 1
    cluster.down()
    assert sum(sizes(cluster)) < grown * 1.3
