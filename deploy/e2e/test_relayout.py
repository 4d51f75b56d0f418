"""`islands relayout`: a stopped deployment's rows, cut as its file says now, at whatever call of it the process dies."""

import os
import random
import shutil
import subprocess

import pytest

from cluster import Cluster, cluster  # noqa: F401
from conftest import Document, Result
from disk_faults import DiskFaults, Place, library
from test_durable import edit, rows_sum, small_disk  # noqa: F401

ROWS = 40_000
TABLES = f"""machine: 'pack:4 [numa(memory=1GB)] core:6 pu:1'
data:
  sites: 24
  tables: [{{name: micro, key: [uint64], range: [0, {ROWS}], row_bytes: 250}}]
"""
ADDS = ("--op", "add", "--rows", 2, "--multisite", 40)


def loaded(cluster: Cluster, layout: str, more: str = TABLES) -> int:
    """The sum of all rows after a run on this layout; it is down then."""
    cluster.write(layout, durability="lazy", more=more).up()
    known: int = cluster.run(*ADDS, duration=0.2, warmup=0)["sum_after"]
    cluster.down()
    return known


def relayout(cluster: Cluster, *options: object, code: int = 0) -> Document:
    document: Document = cluster.islands.json("relayout", cluster.file, *options, code=code)
    return document


def total(cluster: Cluster, islands: int) -> int:
    """Of all rows, as the islands find them; what follows works on them."""
    assert len(cluster.up()["islands"]) == islands
    found = rows_sum(cluster)
    assert cluster.run(*ADDS, duration=0.1, warmup=0)["sum_check"] == "ok"
    return found


def sound(cluster: Cluster) -> None:
    found = cluster.islands.json("verify", cluster.file)
    assert found["sound"] and not found["findings"], found


def test_every_row_is_there_in_every_layout(cluster: Cluster) -> None:
    known, before = loaded(cluster, "24ISL"), "24ISL"
    for layout, islands in [("4ISL", 4), ("1ISL", 1), ("24ISL", 24)]:
        edit(cluster, f"layout: {before}", f"layout: {layout}")
        before = layout
        refused = cluster.islands.run("up", cluster.file)
        assert refused.code == 1 and "islands relayout" in refused.err, refused
        planned = relayout(cluster, "--dry-run")
        assert not planned["changed"] and planned["to"]["islands"] == islands and planned["bytes"] > ROWS * 250
        done = relayout(cluster)
        assert done["changed"] and len(done["rows"]) == islands and sum(done["rows"]) == ROWS
        assert not relayout(cluster)["changed"]
        sound(cluster)
        folders = [name for name in os.listdir(os.path.join(cluster.folder, "data")) if name.startswith("island-")]
        assert len(folders) == islands
        assert total(cluster, islands) == known
        known = rows_sum(cluster)
        cluster.down()


def test_other_sites(cluster: Cluster) -> None:
    known = loaded(cluster, "2ISL")
    edit(cluster, "sites: 24", "sites: 7")
    done = cluster.islands.run("relayout", cluster.file)
    assert done.code == 0 and "2 islands over 24 sites are now 2 islands over 7 sites" in done.out, done
    sound(cluster)
    assert total(cluster, 2) == known


def test_tables_that_clients_have_made(cluster: Cluster) -> None:
    more = TABLES + "gateway: {enabled: true}\n"
    known = loaded(cluster, "2ISL", more)
    cluster.up()
    made = cluster.islands.run("table", cluster.file, "create", "notes", "--key", "id:uint64", "--range", "0:1000",
                               "--field", "n:int64")
    assert made.code == 0, made
    put = cluster.islands.run("client", cluster.file, "put", "notes", 7, '{"n": 5}')
    assert put.code == 0, put
    cluster.down()
    edit(cluster, "layout: 2ISL", "layout: 3ISL")
    relayout(cluster)
    cluster.up()
    got = cluster.islands.run("client", cluster.file, "get", "notes", 7)
    assert got.code == 0 and "5" in got.out, got
    assert rows_sum(cluster) == known


@pytest.mark.parametrize("fault", ["kill", "EIO", "lost"])
def test_whatever_call_goes_wrong(cluster: Cluster, fault: str) -> None:
    """The old layout or the new one, and nothing of the rows is lost; the same command again ends in the new one."""
    if not os.path.exists(library()):
        pytest.skip("disk_faults.so is not built")
    seed = int(os.environ.get("ISLANDS_SEED", random.randrange(10**6)))
    print(f"ISLANDS_SEED={seed}")
    draw = random.Random(seed)
    known = loaded(cluster, "3ISL")
    edit(cluster, "layout: 3ISL", "layout: 2ISL")
    data, kept = os.path.join(cluster.folder, "data"), os.path.join(cluster.folder, "kept")
    shutil.copytree(data, kept)
    faults = DiskFaults(cluster.folder, data)

    def attempt(kind: str, nth: int) -> Result:
        shutil.rmtree(data)
        shutil.copytree(kept, data)
        faults.arm(kind, Place("supervisor", nth))
        done = cluster.islands.run("relayout", cluster.file, env={**os.environ, **faults.environment})
        faults.disarm()
        return done

    assert attempt("none", 0).code == 0
    calls = faults.calls()["supervisor"]
    assert calls > 20
    ends = {"old": 0, "new": 0}
    # The last ones are the switch and what follows.
    places = sorted({*draw.sample(range(1, calls), 5), *range(max(1, calls - 12), calls, 3)})
    for nth in places:
        done = attempt(fault, nth)
        assert faults.struck(), f"call {nth} of {calls}"
        assert done.code != 0 or fault == "lost", (nth, faults.struck(), done)
        retried = cluster.islands.run("relayout", cluster.file)
        assert retried.code == 0, (nth, faults.struck(), retried)
        ends["new" if "nothing to do" in retried.out else "old"] += 1
        sound(cluster)
    assert ends["old"] and ends["new"], ends
    assert total(cluster, 2) == known


def test_up_finishes_what_was_interrupted_behind_the_switch(cluster: Cluster) -> None:
    known = loaded(cluster, "2ISL")
    edit(cluster, "layout: 2ISL", "layout: 1ISL")
    manifest = os.path.join(cluster.folder, "data", "MANIFEST.json")
    faults = DiskFaults(cluster.folder, os.path.join(cluster.folder, "data"))
    environment = {**os.environ, **faults.environment}
    for nth in range(1, 1000):
        faults.arm("kill", Place("supervisor", nth))
        done = cluster.islands.run("relayout", cluster.file, env=environment)
        faults.disarm()
        with open(manifest, encoding="utf-8") as file:
            switched = '"relaid"' in file.read()
        assert done.code != 0, "it was never caught between its switch and its end"
        if switched:
            break
    looked = cluster.islands.run("verify", cluster.file)
    assert looked.code == 1 and "islands relayout" in looked.err, looked
    assert total(cluster, 1) == known
    cluster.down()
    sound(cluster)


def test_refusals(cluster: Cluster) -> None:
    def refusal(code: int = 1) -> str:
        done = cluster.islands.run("relayout", cluster.file)
        assert done.code == code, done
        return done.err

    cluster.write("2ISL", durability="lazy", more=TABLES)
    assert "nothing has been up here yet" in refusal()
    cluster.up()
    assert "already up" in refusal()
    known: int = cluster.run(*ADDS, duration=0.1, warmup=0)["sum_after"]
    for pid in cluster.alive():
        os.kill(pid, 9)
    edit(cluster, "layout: 2ISL", "layout: 1ISL")
    assert "not taken down" in refusal()
    edit(cluster, "layout: 1ISL", "layout: 2ISL")
    cluster.up()
    cluster.down()
    edit(cluster, f"[0, {ROWS}]", f"[0, {ROWS + 1}]")
    assert "has range" in refusal()
    edit(cluster, f"[0, {ROWS + 1}]", f"[0, {ROWS}]")
    edit(cluster, "durability: lazy", "durability: none")
    assert "'none'" in refusal()
    edit(cluster, "durability: none", "durability: lazy")
    assert total(cluster, 2) == known


def test_a_full_disk_leaves_the_old_layout(small_disk: str, cluster: Cluster) -> None:
    more = TABLES.replace("data:\n", f"data:\n  directory: {small_disk}/data\n")
    known = loaded(cluster, "2ISL", more)
    room = os.statvfs(small_disk)
    subprocess.run(["fallocate", "-l", str(room.f_bavail * room.f_bsize - (2 << 20)), f"{small_disk}/filler"], check=True)
    edit(cluster, "layout: 2ISL", "layout: 1ISL")
    done = cluster.islands.run("relayout", cluster.file)
    assert done.code == 1 and "No space left" in done.err and "island-0" in done.err, done
    assert not os.path.exists(f"{small_disk}/data/island-2")
    os.remove(f"{small_disk}/filler")
    edit(cluster, "layout: 1ISL", "layout: 2ISL")
    sound(cluster)
    assert total(cluster, 2) == known
