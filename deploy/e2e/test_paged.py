"""Data larger than memory: sums and totals are right with a pool that holds a tenth of the rows, whoever is killed."""

import glob
import json
import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from cluster import wait_until
from conftest import Document, Islands, WriteFile
from test_metrics import free_ports, scrape, total

ROWS = 160_000  # of micro: some 43 MiB
FILE = """
version: 1
name: larger
cores: 2
layout: {layout}
data: {{directory: data, sites: {sites}}}
storage: {{buffer_pool: {pool}, mode: {mode}, log: {{durability: {durability}}}}}
metrics: {{base_port: {metrics}}}
"""


class Larger:
    def __init__(self, islands: Islands, path: str, metrics: int) -> None:
        self.islands, self.path, self.metrics = islands, path, metrics

    def run(self, workload: str, *more: object) -> Document:
        done = self.islands.run("run", self.path, workload, "--duration", "1", "--warmup", "0.1", *more,
                                "--format", "json", timeout=120)
        assert done.code == 0, f"{done}\n{self.logs()}"
        result: Document = json.loads(done.out)
        assert result["sum_check"] == "ok" and result["committed"] > 0, result
        return result

    def logs(self) -> str:
        """Why an island has died, if one has."""
        ends = []
        for path in sorted(glob.glob(os.path.join(os.path.dirname(self.path), "run", "*.log"))):
            with open(path, encoding="utf-8") as file:
                ends.append("".join([f"{path}:\n", *file.readlines()[-20:]]))
        return "\n".join(ends)

    def status(self) -> list[Document]:
        found: list[Document] = self.islands.json("status", self.path, code=None)["islands"]
        return found

    def kill(self, *numbers: int) -> None:
        before = self.status()
        for number in numbers:
            os.kill(before[number]["pid"], signal.SIGKILL)
        deadline = time.monotonic() + 30
        while any(now["state"] != "ready" or now["pid"] == then["pid"]  # both of one look: the next may find it lost
                  for number, (now, then) in enumerate(zip(self.status(), before)) if number in numbers):
            assert time.monotonic() < deadline, self.status()
            time.sleep(0.1)

    def end(self) -> None:
        done = self.islands.run("down", self.path, timeout=60)
        assert done.code == 0, done


Make = Callable[..., Larger]


@pytest.fixture
def larger(islands: Islands, deployment: WriteFile) -> Iterator[Make]:
    made: list[Larger] = []

    def make(layout: str = "2ISL", pool: str = "8MiB", mode: str = "paged", durability: str = "lazy",
             workload: str = "micro", sites: int = 4, metrics: int = 0) -> Larger:
        wrote = islands.run("template", layout, "--workload", workload)
        tables = wrote.out[wrote.out.index("  tables:"):wrote.out.index("\nstorage:")]
        tables = tables.replace("range: [0, 24]", "range: [0, 1]")  # of warehouses
        text = FILE.format(layout=layout, pool=pool, mode=mode, durability=durability, sites=sites,
                           metrics=metrics)
        if workload != "micro":
            text = text.replace(f"data: {{directory: data, sites: {sites}}}",
                                f"data:\n  directory: data\n  sites: {sites}\n{tables}")
        path = deployment(text)
        done = islands.run("up", path, timeout=60)
        assert done.code == 0, done
        made.append(Larger(islands, path, metrics))
        return made[-1]
    yield make
    for each in made:
        islands.run("down", each.path, timeout=60)


@pytest.mark.parametrize("layout, durability", [
    pytest.param("1ISL", "lazy", marks=pytest.mark.soak), ("2ISL", "lazy"),
    pytest.param("2ISL", "sync", marks=pytest.mark.soak)])
def test_sums_are_right_whoever_is_killed(larger: Make, layout: str, durability: str) -> None:
    cluster = larger(layout, pool="4MiB" if layout == "1ISL" else "8MiB", durability=durability)
    rows = ("--rows-total", ROWS)
    read = cluster.run("micro", *rows, "--op", "read")
    waits = [queue for queue in read["profile"]["queues"] if queue["queue"].startswith("data files of island")]
    assert waits and all(queue["waits"] > 0 for queue in waits), read["profile"]["queues"]
    cluster.run("micro", *rows, "--op", "add", "--multisite", "20")
    pages = sum(cluster.status()[0]["pool_pages_per_node"].values())
    assert pages < 2048, "of 4 KiB, with what it needs besides"
    cluster.kill(0)
    cluster.run("micro", *rows, "--op", "update", "--multisite", "20")
    cluster.kill(*range(len(cluster.status())))
    cluster.run("micro", *rows, "--op", "read")
    cluster.end()
    found = cluster.islands.run("verify", cluster.path, timeout=120)
    assert found.code == 0, found


def test_another_layout_has_the_same_rows(larger: Make, islands: Islands) -> None:
    cluster = larger("2ISL")
    cluster.run("micro", "--rows-total", ROWS, "--op", "add")
    cluster.end()
    with open(cluster.path, encoding="utf-8") as file:
        text = file.read()
    with open(cluster.path, "w", encoding="utf-8") as file:
        file.write(text.replace("2ISL", "1ISL").replace("8MiB", "4MiB"))
    for command in ("relayout", "up"):
        done = islands.run(command, cluster.path, timeout=60)
        assert done.code == 0, done
    assert [island["paged"] for island in cluster.status()] == [True]
    cluster.run("micro", "--rows-total", ROWS, "--op", "read")


def test_the_conditions_of_tpcc_hold_in_a_small_pool(larger: Make) -> None:
    cluster = larger("1ISL", pool="16MiB", workload="tpcc", sites=1)
    cluster.run("tpcc", "--items", "10000")
    cluster.kill(0)
    cluster.run("tpcc", "--items", "10000")


def test_scans_of_ycsb(larger: Make) -> None:
    cluster = larger("2ISL", workload="ycsb")
    cluster.run("ycsb", "--mix", "E", "--rows-total", "20000")
    cluster.run("ycsb", "--mix", "F", "--rows-total", "20000", "--reload")


def test_auto_goes_paged_when_a_load_has_no_room_and_stays_so(larger: Make, islands: Islands) -> None:
    cluster = larger(mode="auto")
    assert not any(island["paged"] for island in cluster.status())
    cluster.run("micro", "--rows-total", ROWS, "--op", "add")
    assert all(island["paged"] for island in cluster.status())
    assert "4MiB paged" in islands.run("status", cluster.path).out
    cluster.end()
    done = islands.run("up", cluster.path, timeout=60)
    assert done.code == 0, done
    assert all(island["paged"] for island in cluster.status())
    cluster.run("micro", "--rows-total", ROWS, "--op", "read")


def test_a_resident_pool_that_is_full_says_what_may_be_done(larger: Make, islands: Islands) -> None:
    cluster = larger(mode="resident")
    done = islands.run("load", cluster.path, "micro", "--rows-total", ROWS, timeout=60)
    assert done.code == 1 and "storage.mode: paged" in done.err, done


def test_metrics_tell_what_is_missed_by_site(larger: Make) -> None:
    cluster = larger("2ISL", metrics=free_ports(2))
    rows = ("--rows-total", ROWS)

    def sums(name: str, **labels: str) -> float:
        return sum(total(scrape(cluster.metrics + island), f"islands_{name}", **labels) for island in range(2))
    result = cluster.run("micro", *rows, "--op", "read")
    looks, misses = sums("page_looks_total"), sums("page_misses_total")
    assert result["pool_hit_fraction"] == pytest.approx(1 - misses / looks, abs=0.1), "warm-up is not measured"
    assert looks > 0 and 0.2 * looks < misses < looks, "of a pool that holds a fifth of the rows, drawn alike"
    by_site = {site: sums("page_misses_total", site=str(site)) for site in range(4)}
    assert sum(by_site.values()) == misses, by_site
    for first in (0, 2):  # of an island, which may do much less than the other
        assert 0 < by_site[first] < 3 * by_site[first + 1] < 9 * by_site[first], by_site
    assert 0.8 * misses < sums("pages_read_total") and sums("pages_read_alone_total") < sums("pages_read_total")
    assert 40e6 < sums("data_bytes") < 55e6
    written = sums("pages_written_total")
    cluster.run("micro", *rows, "--op", "update", "--zipf", "1")
    assert sums("pages_written_total") > written
    hot_looks, hot_misses = sums("page_looks_total") - looks, sums("page_misses_total") - misses
    assert hot_misses / hot_looks < misses / looks, "rows that are looked for again and again stay"


def test_what_was_in_memory_is_read_back_after_a_restart(larger: Make, islands: Islands, folder: str) -> None:
    cluster = larger("2ISL", metrics=free_ports(2))
    cluster.run("micro", "--rows-total", ROWS, "--op", "read")  # so that the next life has no log to repeat
    cluster.end()
    lists = glob.glob(f"{folder}/data/island-*/generation-*-warm-pages")
    assert len(lists) == 2, lists
    listed = [(os.path.getsize(path) - 40) // 8 for path in sorted(lists)]
    assert all(800 < pages <= 1024 for pages in listed), "of 1,024 that a pool of 4 MiB has"
    done = islands.run("up", cluster.path, timeout=60)
    assert done.code == 0, done
    for island, pages in enumerate(listed):
        port, wanted = cluster.metrics + island, 0.9 * min(pages, 1024 - 16)
        wait_until(lambda: total(scrape(port), "islands_pages_read_total") > wanted,
                   what="pages, though no transaction has run")
        text = scrape(port)
        assert total(text, "islands_page_looks_total") == total(text, "islands_pages_evicted_total") == 0
    wait_until(lambda: all(island["mode_reason"] and "warm_up" not in island for island in cluster.status()),
               what="the end of it")
    for path in lists:
        with open(path, "r+b") as file:
            file.write(b"torn")
    cluster.kill(0, 1)
    cluster.run("micro", "--rows-total", ROWS, "--op", "read")
    destroyed = islands.run("down", cluster.path, timeout=60)
    assert destroyed.code == 0, destroyed
    destroyed = islands.run("destroy", cluster.path, "--yes", timeout=60)
    assert destroyed.code == 0 and not glob.glob(f"{folder}/data/island-*"), destroyed


def test_status_and_plan_say_which_mode_and_why(larger: Make, islands: Islands) -> None:
    cluster = larger("1ISL", pool="16MiB", mode="auto", sites=1)
    planned = islands.json("plan", cluster.path)["pools"][0]
    assert (planned["mode"], planned["on_disk"]) == ("paged", False), "240,000 rows, as the file has it"
    text = islands.run("status", cluster.path).out
    assert "island 0 resident: nothing loaded so far has had no room; data of " in text
    cluster.run("micro", "--rows-total", ROWS)
    assert "island 0 paged: a load had no room in the pool; data of 4" in islands.run("status", cluster.path).out
    cluster.end()
    planned = islands.json("plan", cluster.path)["pools"][0]
    assert (planned["mode"], planned["on_disk"]) == ("paged", True)
    done = islands.run("up", cluster.path, timeout=60)
    assert done.code == 0 and "island 0 paged: its data files have more than 7/8 of the pool" in done.out, done
    assert "note: island 0: data files have 4" in done.err, done
    assert planned["data_bytes"] == cluster.status()[0]["data_bytes"]
    with open(cluster.path, encoding="utf-8") as file:
        text = file.read().replace("mode: auto", "mode: resident")
    with open(cluster.path, "w", encoding="utf-8") as file:
        file.write(text)
    done = islands.run("plan", cluster.path)
    assert "it is resident, and will not start; take storage.buffer_pool: " in done.out, done


@pytest.mark.parametrize("layout", [pytest.param("1ISL", marks=pytest.mark.soak), "2ISL"])
def test_without_a_log_islands_swap(larger: Make, folder: str, layout: str) -> None:
    cluster = larger(layout, durability="none", pool="4MiB" if layout == "1ISL" else "8MiB")
    rows = ("--rows-total", ROWS)
    for operation in ("add", "read", "update"):
        cluster.run("micro", *rows, "--op", operation, "--multisite", "20")
    pages = sum(cluster.status()[0]["pool_pages_per_node"].values())
    assert pages < 2048, "of 4 KiB, with what it needs besides"
    files = glob.glob(f"{folder}/data/island-*/*")
    assert not files, "they have no names"
    cluster.kill(0)
    cluster.run("micro", *rows, "--op", "update")
    cluster.end()


def test_a_page_that_the_disk_has_lost_is_named(larger: Make, islands: Islands, folder: str) -> None:
    cluster = larger("1ISL", pool="4MiB")
    islands.run("load", cluster.path, "micro", "--rows-total", ROWS, timeout=60)
    cluster.end()
    for path in glob.glob(f"{folder}/data/island-0*/generation-*-site-00000"):
        with open(path, "r+b") as file:
            for page in range(20, 400, 2):
                file.seek(page * 4096 + 2000)
                file.write(b"lost")
    done = islands.run("up", cluster.path, timeout=60)
    assert done.code == 0, done
    done = islands.run("run", cluster.path, "micro", "--rows-total", ROWS, "--duration", "1", timeout=60)
    logs = "".join(open(path, encoding="utf-8").read() for path in glob.glob(f"{folder}/run/island-0.log*"))
    said = json.dumps(done) + logs
    assert "is not whole: restore data and log from a copy" in said, done
