"""Durability `command` on real islands: every workload that can be repeated is, after a kill in the middle of a run,
and its audit holds; `down` leaves no command behind; another object than the one that wrote the log is refused."""

import contextlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from cluster import Cluster, cluster, wait_until  # noqa: F401
from conftest import BINARIES, ROOT, Document

sys.path[:0] = [os.path.join(ROOT, "instance", "gateway", "python"),
                os.path.join(os.path.dirname(BINARIES), "lib", "islands", "python")]  # the client, and its stubs
import islands as client  # noqa: E402

WORKLOADS: dict[str, tuple[int, tuple[object, ...]]] = {
    "micro": (1000, ("--op", "update", "--rows", 4, "--multisite", 20)),
    "payment": (4, ()), "smallbank": (1000, ()), "tatp": (300, ()),
    "tpcc": (4, ("--customers", 30, "--items", 100, "--remote-lines", 20)), "voter": (1000, ())}


def up(cluster: Cluster, workload: str, durability: str = "command", layout: str = "2ISL") -> None:
    cluster.islands.json("template", layout, "--workload", workload, "--scale", WORKLOADS[workload][0], "--output",
                         cluster.file)
    set_durability(cluster, durability)
    cluster.up()


def set_durability(cluster: Cluster, durability: str) -> None:
    set_key(cluster, "durability", durability)


def set_key(cluster: Cluster, key: str, value: str) -> None:
    with open(cluster.file, encoding="utf-8") as file:
        text, changed = re.subn(rf"\b{key}: \w+", f"{key}: {value}", file.read())
    assert changed == 1
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(text)


def run(cluster: Cluster, workload: str) -> Document:
    result = cluster.islands.json("run", cluster.file, workload, "--duration", 0.4, "--warmup", 0, "--results",
                                  os.path.join(cluster.folder, "results"), *WORKLOADS[workload][1])
    assert result["sum_check"] == "ok" and result["unknown"] == 0, result["sum_check_detail"]
    assert result["committed"] > 0
    return result


def commands_repeated(cluster: Cluster, island: int) -> int:
    """At its last start."""
    with open(os.path.join(cluster.folder, "run", f"island-{island}.log"), encoding="utf-8") as file:
        found = re.findall(r"of the log repeated, (\d+) of them commands", file.read())
    return int(found[-1])


def kill(cluster: Cluster, island: int) -> None:
    restarts = cluster.island(island)["restarts"]
    os.kill(cluster.island(island)["pid"], signal.SIGKILL)
    wait_until(lambda: cluster.island(island)["restarts"] == restarts + 1 and
               cluster.island(island)["state"] == "ready", what=f"island {island}")


def kill_in_the_middle(cluster: Cluster, workload: str) -> None:
    process = cluster.start("run", cluster.file, workload, "--format", "json", "--duration", 2, "--warmup", 0,
                            *WORKLOADS[workload][1])
    wait_until(lambda: all(island["running"] for island in cluster.status()["islands"]), what="the run")
    time.sleep(0.4)  # into the middle of it
    kill(cluster, 1)
    out, err = process.communicate(timeout=60)
    assert "skipped: island lost" in out, out + err


@pytest.mark.parametrize("workload", WORKLOADS)
def test_workload_is_repeated(cluster: Cluster, workload: str) -> None:
    up(cluster, workload)
    run(cluster, workload)
    for _ in range(2):  # the second from a snapshot, or with commands of two lives
        kill_in_the_middle(cluster, workload)
        assert commands_repeated(cluster, 1) > 0
        run(cluster, workload)
    cluster.down()
    verified = cluster.islands.run("verify", cluster.file)
    assert verified.code == 0, verified
    cluster.up()
    assert [commands_repeated(cluster, island) for island in (0, 1)] == [0, 0], "`down` ends with a snapshot"
    run(cluster, workload)
    cluster.down()


TRANSFERS = """data:
  tables:
    - {name: account, key: [uint64], range: [0, 200], row_bytes: 8}
gateway: {enabled: true}
"""


def up_with_transfers(cluster: Cluster) -> str:
    """The gateway's address."""
    cluster.write(layout="2ISL", durability="command", more=TRANSFERS)
    address = str(cluster.up()["gateway"]["addresses"][0])
    assert cluster.islands.run("load", cluster.file, "transfer").code == 0
    return address


def transfer(cluster: Cluster) -> None:
    result = cluster.islands.json("run", cluster.file, "transfer", "--duration", 0.2, "--warmup", 0, "--results",
                                  os.path.join(cluster.folder, "results"))
    assert result["sum_check"] == "ok", result["sum_check_detail"]


def again(function: Callable[[], Any]) -> Any:
    """Until an island that has just come back is known to have."""
    def attempt() -> Any:
        with contextlib.suppress(client.Unavailable):
            return function()
        return None
    return wait_until(attempt, what="an answer")


def pay(db: client.Client, taker: int) -> Any:
    """From account 1."""
    return again(lambda: db.call("transfer.pay", 1, taker, 1))


def money(db: client.Client) -> Any:
    return again(lambda: sum(int.from_bytes(row.value, "little", signed=True) for row in db.scan("account")))


def test_calls_from_outside_are_repeated(cluster: Cluster) -> None:
    """One that touches both islands is in the log by its changes."""
    address = up_with_transfers(cluster)
    with client.connect(address, timeout=20) as db:
        for _ in range(5):  # a snapshot may come between the calls and the kill
            answers = [pay(db, taker) for taker in (2, 199, 2, 199, 2)]
            assert answers == [(1, answers[0][1] - paid) for paid in range(5)]
            kill(cluster, 0)
            assert pay(db, 2) == (1, answers[-1][1] - 1)
            repeated = commands_repeated(cluster, 0)
            assert repeated <= 4  # and not those that went to the other island
            if repeated:
                break
        assert repeated
    transfer(cluster)
    cluster.down()
    assert cluster.islands.run("verify", cluster.file).code == 0


def test_calls_go_on_while_rows_are_loaded_anew_and_islands_die(cluster: Cluster) -> None:
    address = up_with_transfers(cluster)
    over = threading.Event()
    paid: list[int] = []
    loads, repeated = 0, 0

    def pay_on(giver: int) -> None:
        """Within island 0."""
        with client.connect(address, timeout=20) as db:
            while not over.is_set():
                with contextlib.suppress(client.Error):  # the island is gone, or stands still for a load
                    paid.append(db.call("transfer.pay", giver, giver + 1, 1)[0])

    with client.connect(address, timeout=20) as db:
        before = money(db)
        payers = [threading.Thread(target=pay_on, args=(giver,)) for giver in range(0, 32, 2)]
        for payer in payers:
            payer.start()
        try:
            for _ in range(4):
                paid.clear()
                wait_until(lambda: len(paid) > 50, what="payments")
                loads += cluster.islands.run("load", cluster.file, "transfer", "--reload").code == 0
                kill(cluster, 0)  # before the first snapshot of the new rows, as often as not
                repeated += commands_repeated(cluster, 0)
        finally:
            over.set()
            for payer in payers:
                payer.join()
        assert loads > 0 and repeated > 0
        assert money(db) == before
    transfer(cluster)
    cluster.down()
    assert cluster.islands.run("verify", cluster.file).code == 0


def test_lives_of_other_durabilities_come_between(cluster: Cluster) -> None:
    """Power is lost, as far as islands can tell, behind each of them."""
    up(cluster, "tpcc")
    for durability in ("lazy", "command", "sync", "command"):
        run(cluster, "tpcc")
        time.sleep(0.3)  # the log is on disk
        supervisor = cluster.status()["supervisor_pid"]
        os.kill(supervisor, signal.SIGKILL)
        wait_until(lambda: not cluster.alive(), what="the end of all")
        set_durability(cluster, durability)
        cluster.up()
        run(cluster, "tpcc")
    cluster.down()
    assert cluster.islands.run("verify", cluster.file).code == 0
    cluster.up()
    run(cluster, "tpcc")
    cluster.down()


def test_a_life_that_can_take_no_snapshots_repeats_no_commands(cluster: Cluster) -> None:
    up(cluster, "micro")
    run(cluster, "micro")
    os.kill(cluster.status()["supervisor_pid"], signal.SIGKILL)
    wait_until(lambda: not cluster.alive(), what="the end of all")
    verified = cluster.islands.run("verify", cluster.file)
    assert verified.code == 1 and "no procedure is run here" in verified.err, "it is no damage"
    compacted = cluster.islands.run("compact", cluster.file)
    assert compacted.code == 1 and "`islands up` and `islands down`" in compacted.err, compacted
    assert "not sound" not in compacted.err
    set_key(cluster, "latching", "always")
    refused = cluster.islands.run("up", cluster.file)
    assert refused.code == 1 and "that takes an island of one worker" in refused.err, refused
    set_key(cluster, "latching", "auto")
    cluster.up()
    assert commands_repeated(cluster, 0) > 0, "nothing was lost by the attempt"
    run(cluster, "micro")
    cluster.down()


def test_mode_paged_is_refused(cluster: Cluster) -> None:
    cluster.write("2ISL", durability="command", mode="paged")
    refused = cluster.islands.run("check", cluster.file)
    assert refused.code == 2 and "found 'command' with mode paged" in refused.err, refused
