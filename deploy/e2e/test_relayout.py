"""`islands relayout`: a stopped deployment's rows, cut as its file says now, whatever call of it goes wrong."""

import os
import random
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


class Interrupted:
    """Cuts 3ISL into 2ISL and back again, whatever it is now, with a call that goes wrong."""

    def __init__(self, cluster: Cluster) -> None:
        if not os.path.exists(library()):
            pytest.skip("disk_faults.so is not built")
        self.cluster = cluster
        self.known = loaded(cluster, "3ISL")
        self.islands = 3
        self.faults = DiskFaults(cluster.folder, os.path.join(cluster.folder, "data"))
        self.calls: dict[int, int] = {}  # by islands before
        for _ in range(3):  # the first has more to remove
            before = self.islands
            assert self.attempt().code == 0
            self.calls[before] = self.faults.calls()["supervisor"]

    def attempt(self, fault: str = "none", nth: int = 0) -> Result:
        other = 5 - self.islands
        edit(self.cluster, f"layout: {self.islands}ISL", f"layout: {other}ISL")
        self.islands = other
        self.faults.arm(fault, Place("supervisor", nth))
        done = self.cluster.islands.run("relayout", self.cluster.file, env={**os.environ, **self.faults.environment})
        self.faults.disarm()
        return done


    def die_behind_the_switch(self) -> None:
        for back in range(40):
            assert self.attempt("kill", self.calls[self.islands] - back).code != 0
            with open(os.path.join(self.cluster.folder, "data", "MANIFEST.json"), encoding="utf-8") as file:
                if '"relaid"' in file.read():
                    return
        pytest.fail("it was never caught between its switch and its end")


@pytest.mark.parametrize("fault", [
    "kill", pytest.param("EIO", marks=pytest.mark.soak), pytest.param("lost", marks=pytest.mark.soak)])
def test_whatever_call_goes_wrong(cluster: Cluster, fault: str) -> None:
    """The old layout or the new one, and nothing of the rows is lost; the same command again ends in the new one."""
    seed = int(os.environ.get("ISLANDS_SEED", random.randrange(10**6)))
    print(f"ISLANDS_SEED={seed}")
    draw = random.Random(seed)
    recut = Interrupted(cluster)
    ends = {"old": 0, "new": 0}
    for turn in range(8):
        last = recut.calls[recut.islands]
        nth = draw.randrange(1, last - 12) if turn < 4 else last - draw.randrange(2, 12)  # the switch and what follows
        done = recut.attempt(fault, nth)
        struck = recut.faults.struck()
        assert struck or (fault == "lost" and done.code == 0), f"call {nth} of {last}"  # or it was durable by then
        assert done.code != 0 or not struck, (nth, struck, done)
        retried = cluster.islands.run("relayout", cluster.file)
        assert retried.code == 0, (nth, struck, retried)
        ends["new" if "nothing to do" in retried.out else "old"] += 1
        sound(cluster)
    assert ends["old"] and ends["new"], ends
    assert total(cluster, recut.islands) == recut.known


def test_up_finishes_what_was_interrupted_behind_the_switch(cluster: Cluster) -> None:
    recut = Interrupted(cluster)
    recut.die_behind_the_switch()
    looked = cluster.islands.run("verify", cluster.file)
    assert looked.code == 1 and "islands relayout" in looked.err, looked
    assert total(cluster, recut.islands) == recut.known
    cluster.down()
    sound(cluster)


def test_it_is_finished_where_the_log_was_and_nowhere_else(cluster: Cluster) -> None:
    recut = Interrupted(cluster)
    recut.die_behind_the_switch()
    edit(cluster, "log: {durability", "log: {directory: elsewhere, durability")
    for command in ("up", "relayout"):
        done = cluster.islands.run(command, cluster.file)
        assert done.code == 1 and "change it back" in done.err, done
        assert "are in their new files all the same" in done.err, done
    assert not os.path.exists(os.path.join(cluster.folder, "elsewhere", "MANIFEST"))
    edit(cluster, "log: {directory: elsewhere, durability", "log: {durability")
    assert total(cluster, recut.islands) == recut.known
    cluster.down()
    for folder in ("data", "data/log"):
        names = os.listdir(os.path.join(cluster.folder, folder))
        assert sum(name.startswith("island-") for name in names) == recut.islands, names
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


@pytest.mark.soak
def test_a_full_disk_leaves_the_old_layout(small_disk: str, cluster: Cluster) -> None:
    more = TABLES.replace("data:\n", f"data:\n  directory: {small_disk}/data\n")
    known = loaded(cluster, "2ISL", more)
    room = os.statvfs(small_disk)
    left = room.f_bavail * room.f_bsize - (2 << 20)
    subprocess.run(["fallocate", "-l", str(left), f"{small_disk}/filler"], check=True)
    edit(cluster, "layout: 2ISL", "layout: 1ISL")
    done = cluster.islands.run("relayout", cluster.file)
    assert done.code == 1 and "No space left" in done.err and "island-0" in done.err, done
    assert not os.path.exists(f"{small_disk}/data/island-2")
    os.remove(f"{small_disk}/filler")
    edit(cluster, "layout: 1ISL", "layout: 2ISL")
    sound(cluster)
    assert total(cluster, 2) == known
