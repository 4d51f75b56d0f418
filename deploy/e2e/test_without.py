"""`without` of a deployment: the technique that it names is left out on real islands, and rows are right all the same.
That look-ahead and huge pages are left out is looked at in executor_pages_test and pager_test; of spinning nothing here
tells a sleep at once from a later one."""

import pytest

from cluster import Cluster, cluster  # noqa: F401
from test_metrics import free_ports, scrape, total

MICRO = ("--op", "update", "--multisite", 100)


def up(cluster: Cluster, layout: str, without: str) -> int:
    port = free_ports(2)
    cluster.write(layout, more=f"without: {without}\n")
    with open(cluster.file, encoding="utf-8") as file:
        text = file.read().replace("base_port: 0", f"base_port: {port}")
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(text)
    cluster.up()
    return port


@pytest.mark.parametrize("without", ["none", "lock_inheritance"])
def test_locks_are_inherited_unless_left_out(cluster: Cluster, without: str) -> None:
    port = up(cluster, "1ISL", without)
    assert cluster.run(*MICRO)["sum_check"] == "ok"
    inherited = total(scrape(port), "islands_locks_inherited")
    assert inherited == 0 if without == "lock_inheritance" else inherited > 0


@pytest.mark.parametrize("without", ["huge_pages", "look_ahead", "spinning"])
def test_rows_are_right_without(cluster: Cluster, without: str) -> None:
    up(cluster, "2ISL", without)
    assert cluster.run("--op", "update", "--multisite", 20)["sum_check"] == "ok"
