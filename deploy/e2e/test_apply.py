"""A file that was edited while its deployment is up: what differs, what of it can be applied, and what cannot."""

import os
import signal

from cluster import Cluster, cluster, loaded, wait_until  # noqa: F401
from conftest import Document, Result
from test_durable import edit, rows_sum

MORE = "timeouts: {transaction_ms: 2000}\n"


def differences(cluster: Cluster, code: int) -> list[str]:
    found: list[str] = cluster.islands.json("status", cluster.file, "--diff", code=code)["differences"]
    return found


def applied(cluster: Cluster, *options: object) -> Document:
    document: Document = cluster.islands.json("apply", cluster.file, *options)
    return document


def test_what_may_change_does_and_nothing_is_lost(cluster: Cluster) -> None:
    cluster.write(durability="lazy", more=MORE).up()
    cluster.run("--op", "add", "--rows", 2)
    total, before = rows_sum(cluster), cluster.island_pids()
    assert differences(cluster, 0) == [] and applied(cluster)["restarted"] == []
    edit(cluster, "512MiB", "1GiB")
    edit(cluster, "transaction_ms: 2000", "transaction_ms: 1500, hung_ms: 7000")
    pool = "pool_bytes: 268435456 -> 536870912"
    expected = [f"island {i}: {what}" for i in (0, 1) for what in (pool, "transaction_timeout_ms: 2000 -> 1500")]
    expected.append("timeouts.hung_ms: auto -> 7000")
    assert differences(cluster, 3) == expected
    dry = applied(cluster, "--dry-run")
    assert dry["differences"] == expected and dry["restarted"] == [] and cluster.island_pids() == before
    done = cluster.islands.run("apply", cluster.file)
    assert done.code == 0 and pool in done.out and "test: applied" in done.out, done
    after = cluster.island_pids()
    assert all(pid != old for pid, old in zip(after, before))
    assert differences(cluster, 0) == [] and "does not describe" not in cluster.islands.run("status", cluster.file).err
    assert rows_sum(cluster) == total
    os.kill(after[0], signal.SIGKILL)  # the next life has it, too
    wait_until(lambda: cluster.island(0)["pid"] not in (0, after[0]) and cluster.island(0)["state"] == "ready",
               what="island 0")
    assert differences(cluster, 0) == []
    with open(os.path.join(cluster.folder, "run", "supervisor.log"), encoding="utf-8") as file:
        assert "timeouts.hung_ms 7000" in file.read()


def test_what_cannot_change_is_named_and_nothing_is_changed(cluster: Cluster) -> None:
    cluster.write(durability="lazy", more=MORE).up()
    before = cluster.island_pids()

    def refusal(old: str, new: str) -> Result:
        edit(cluster, old, new)
        done = cluster.islands.run("apply", cluster.file)
        edit(cluster, new, old)
        assert done.code == 2 and "nothing was changed" in done.err and "islands down" in done.err, done
        return done

    assert "2 islands -> 1" in refusal("layout: 2ISL", "layout: 1ISL").err
    assert "durability" in refusal("durability: lazy", "durability: sync").err
    assert "pool_bytes" in refusal("512MiB", "256MiB").err  # what is in use stays in use
    assert "storage.log.ring_bytes: 8388608 -> 4194304" in refusal(
        "votes: epoch", "votes: epoch, ring_bytes: 4MiB").err
    assert "gateway.enabled: false -> true" in refusal("timeouts: {", "gateway: {enabled: true}\ntimeouts: {").err
    assert "transport" in refusal("transport: shm", "transport: zmq").err
    assert cluster.island_pids() == before and differences(cluster, 0) == []


def test_without_durability_somebody_has_to_say_yes(cluster: Cluster) -> None:
    cluster.write(more=MORE).up()
    before = cluster.island_pids()
    edit(cluster, "transaction_ms: 2000", "transaction_ms: 1500")
    refused = cluster.islands.run("apply", cluster.file)
    assert refused.code == 1 and "durability is none" in refused.err and cluster.island_pids() == before
    assert len(differences(cluster, 3)) == 2
    assert len(applied(cluster, "--yes")["restarted"]) == 2
    assert differences(cluster, 0) == []


def test_not_while_a_run_is_under_way(cluster: Cluster) -> None:
    cluster.write(durability="lazy", more=MORE).up()
    edit(cluster, "transaction_ms: 2000", "transaction_ms: 1500")
    with loaded(cluster):
        refused = cluster.islands.run("apply", cluster.file)
        assert refused.code == 1 and "a run, a load or another `islands apply` is under way" in refused.err, refused
