"""`without` of a deployment: the technique that it names is left out on real islands, and rows are right all the same.
What leaving out look-ahead does is looked at in executor_pages_test; of it, of key hints and of spinning nothing here
tells more than that islands take the word."""

import pytest

from cluster import Cluster, cluster  # noqa: F401
from test_metrics import free_ports, scrape, total

MICRO = ("--op", "update", "--multisite", 100)


def up(cluster: Cluster, layout: str, without: str, pool: str = "512MiB") -> int:
    port = free_ports(2)
    cluster.write(layout, pool=pool, more=f"without: {without}\n", port=port).up()
    return port


@pytest.mark.parametrize("without", ["none", "lock_inheritance"])
def test_locks_are_inherited_unless_left_out(cluster: Cluster, without: str) -> None:
    port = up(cluster, "1ISL", without)
    assert cluster.run(*MICRO)["sum_check"] == "ok"
    inherited = total(scrape(port), "islands_locks_inherited")
    assert inherited == 0 if without == "lock_inheritance" else inherited > 0


def huge_kib(cluster: Cluster) -> list[int]:
    """Of the islands' memory."""
    found = []
    for island in cluster.status()["islands"]:
        with open(f"/proc/{island['pid']}/smaps", encoding="utf-8") as file:
            found.append(sum(int(line.split()[1]) for line in file if line.startswith("AnonHugePages:")))
    return found


def test_huge_pages_unless_left_out(cluster: Cluster) -> None:
    found = {}
    for without in ("none", "huge_pages"):
        up(cluster, "2ISL", without, pool="2GiB")
        assert cluster.run("--op", "update")["sum_check"] == "ok"
        found[without] = huge_kib(cluster)
        cluster.down()
    if not any(found["none"]):
        pytest.skip("this kernel gives none")
    assert found["huge_pages"] == [0, 0]


@pytest.mark.parametrize("without", ["key_hints", "look_ahead", "spinning"])
def test_rows_are_right_without(cluster: Cluster, without: str) -> None:
    up(cluster, "2ISL", without)
    assert cluster.run("--op", "update", "--multisite", 20)["sum_check"] == "ok"
