"""TPC-C on real islands: its consistency conditions hold after runs, over islands, and after one was killed in the
middle of them; and what breaks them is found."""

import os
import re
import signal
import time

import pytest

from cluster import Cluster, cluster, wait_until  # noqa: F401
from conftest import Document
from test_metrics import free_ports, scrape, total

# So small that transactions meet.
SMALL = ("--customers", 30, "--items", 100)
REMOTE = (*SMALL, "--remote-lines", 20, "--remote-payments", 30)


def up(cluster: Cluster, layout: str, durability: str = "none", more: str = "", scale: int = 4, port: int = 0) -> None:
    template = cluster.islands.json("template", layout, "--workload", "tpcc", "--scale", scale)["yaml"]
    tables = re.search(r"^  tables:\n(?:    .*\n)+", template, re.MULTILINE)
    assert tables
    cluster.write(layout, durability=durability, more=f"data:\n  sites: {scale}\n" + tables[0] + more, port=port).up()


def run(cluster: Cluster, *options: object, code: int = 0, duration: float = 0.5) -> Document:
    return cluster.islands.json("run", cluster.file, "tpcc", "--duration", duration, "--warmup", 0.1, "--results",
                                os.path.join(cluster.folder, "results"), *options, code=code)


def check(result: Document) -> int:
    """That it did something and left all in order; rows afterwards. The sum is 0 as long as the conditions that islands
    know only together hold."""
    assert result["sum_check"] == "ok" and result["unknown"] == 0, result["sum_check_detail"]
    assert "before 0, after 0" in result["sum_check_detail"], result["sum_check_detail"]
    assert result["committed"] > 0
    found = re.search(r"(\d+) rows found", result["sum_check_detail"])
    assert found
    return int(found[1])


@pytest.mark.parametrize("layout", ["1ISL", "2ISL"])
def test_conditions_hold_after_runs(cluster: Cluster, layout: str) -> None:
    up(cluster, layout)
    for mix in ("standard", "new_order", "payment"):
        result = run(cluster, *REMOTE, "--mix", mix, "--mpl", 4)
        check(result)
        assert (result["per_scope"]["distributed"]["committed"] > 0) == (layout == "2ISL")
        assert (result["aborts_by_reason"].get("procedure", 0) > 0) == (mix != "payment"), result["aborts_by_reason"]
    cluster.down()


def test_payments_on_one_worker_do_not_wait_for_each_other(cluster: Cluster) -> None:
    """All of them want the row of one warehouse. They run one after the other: none waits for a lock, however many are
    in flight."""
    port = free_ports(1)
    up(cluster, "1ISL", more="cores: 1\n", scale=1, port=port)
    check(run(cluster, *SMALL, "--mix", "payment", "--mpl", 16))
    assert total(scrape(port), "islands_lock_waits_total") == 0
    cluster.down()


def test_terminals_think(cluster: Cluster) -> None:
    """Forty terminals, ten for each warehouse, with a two hundredth of their times: with all of them each does a
    transaction in 21 s. A run that ends while they think is ended by all islands."""
    up(cluster, "2ISL")
    result = run(cluster, *SMALL, "--think", 0.5, "--mpl", 20, duration=3)
    check(result)
    expected = 40 * 200 / 20.99
    assert result["committed_per_s"] < 1.2 * expected, "however fast the machine"
    result = run(cluster, *SMALL, "--think", 100, "--mpl", 20, duration=1)
    assert not any(island["lost"] or island["unresponsive"] for island in result["per_island"]), result
    assert not any(island["running"] for island in cluster.status()["islands"])


def test_conditions_hold_after_a_kill(cluster: Cluster) -> None:
    up(cluster, "2ISL", "lazy")
    rows = check(run(cluster, *REMOTE))
    process = cluster.start("run", cluster.file, "tpcc", "--format", "json", "--duration", 2, "--warmup", 0, "--mpl", 4,
                            *REMOTE)
    wait_until(lambda: all(island["running"] for island in cluster.status()["islands"]), what="the run")
    time.sleep(0.5)  # into the middle of it
    os.kill(cluster.island(1)["pid"], signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert "skipped: island lost" in out, out + err
    wait_until(lambda: cluster.island(1)["restarts"] == 1 and cluster.island(1)["state"] == "ready", what="island 1")
    kept = run(cluster, *REMOTE)
    assert check(kept) > rows, "the rows of before, and more: nothing was loaded again"
    cluster.down()


def test_broken_conditions_are_told(cluster: Cluster) -> None:
    up(cluster, "2ISL", more="gateway: {enabled: true}\n")
    check(run(cluster, *SMALL))
    done = cluster.islands.run("client", cluster.file, "delete", "orders", "3/7/5")
    assert done.code == 0, done
    refused = cluster.islands.run("run", cluster.file, "tpcc", *SMALL, "--duration", 0.2, "--warmup", 0)
    assert refused.code == 1 and "the rows are not consistent: condition 4 at district 3/7" in refused.err, refused
    check(run(cluster, *SMALL, "--reload"))
    cluster.down()
