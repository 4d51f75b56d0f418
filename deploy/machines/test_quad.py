"""The papers' quad-socket machine, booted: is every island where the plan says, according to the kernel?

What is expected follows from the guest's /sys and the definition of layouts and placements (placement.py), what is
found from its /proc (facts.py). Timings inside emulation mean nothing; none is looked at. Durability is `none`:
there is no log to look for.
"""

import pytest

from placement import check_kernel, expect
from rack import On, need_machines, on, rack  # noqa: F401
import shelf

need_machines()

CUTS = [(4, "islands", "bind")]  # more in test_rest.py

# Of a machine whose processors pass no counters on.
REASON = "this machine has no counters, or a virtual machine does not pass them on"


def test_the_kernel_finds_the_machine_and_islands_finds_the_same(on: On) -> None:
    cluster, wanted = on("quad"), shelf.MACHINES["quad"]
    machine = cluster.machine_facts()
    assert len(machine.cores) == 24 and machine.online == list(range(24))
    assert [machine.distances[node] for node in range(4)] == wanted.distances
    assert [(core.package, core.node) for core in machine.cores] == [(cpu // 6, cpu // 6) for cpu in range(24)]
    seen = cluster.json("machine")
    assert seen["node_distances"] == wanted.distances
    assert [(core["package"], core["pus"]) for core in seen["cores"]] == [
        (core.package, list(core.cpus)) for core in machine.cores]


def test_the_processors_counters_are_absent_with_the_reason(on: On) -> None:
    """Emulation counts nothing: no figure, and no 0, but why; in a run's result, in `profile`, in its text."""
    cluster = on("quad").write(4)
    cluster.up()
    for hardware in (cluster.load()["profile"]["hardware"],
                     cluster.json(f"profile {cluster.file} --seconds 1")["hardware"]):
        assert set(hardware) == {"problem"} and REASON in hardware["problem"], hardware
    assert f"hardware counters: none ({hardware['problem']})" in cluster.run(f"profile {cluster.file} --seconds 1").out


@pytest.mark.parametrize("layout, how, policy", CUTS)
def test_every_island_is_where_it_belongs(on: On, layout: int, how: str, policy: str) -> None:
    cluster = on("quad").write(layout, how, policy)
    machine = cluster.machine_facts()
    cluster.up_run_check(machine, expect(machine, layout, how, policy))


# ---- the checks can fail

def test_a_worker_on_another_socket_is_noticed(on: On) -> None:
    cluster = on("quad").write(4)
    machine = cluster.machine_facts()
    expected = expect(machine, 4, "islands")
    cluster.up_run_check(machine, expected)
    worker = next(task for task in cluster.islands()[1].tasks if task.cpus == [8])
    cluster.guest.check(f"taskset -p -c 20 {worker.tid}; sleep 1")  # a thread moves when it next runs
    complaints = check_kernel(machine, expected, cluster.islands())
    assert complaints == [
        "island 1: worker threads are pinned to CPUs [6, 7, 9, 10, 11, 20], expected one each on 6-11",
        "island 1: threads on packages [1, 3], expected 1 package(s)"]
    said = cluster.status()["islands"][1]
    assert said["cpus_actual"] == "6-7,9-11,20" and "CPUs 20, planned is 8" in said["warning"]


def test_memory_on_another_node_is_noticed(on: On) -> None:
    """An island list that gives island 1 the memory of a far node is obeyed, and is not what the machine asks for."""
    cluster = on("quad").write(policy="bind", cut="islands:\n  - {cpus: '0-5'}\n  - {cpus: '6-11', numa_nodes: '3'}\n"
                                                  "  - {cpus: '12-17'}\n  - {cpus: '18-23'}")
    machine = cluster.machine_facts()
    expected = expect(machine, 4, "islands", "bind")
    cluster.up()
    assert cluster.load()["sum_check"] == "ok"
    complaints = check_kernel(machine, expected, cluster.islands())
    assert complaints and all(complaint.startswith("island 1: ") for complaint in complaints)
    assert complaints[0] == "island 1: the pool's policy is bind:3, expected bind:1"
    assert "expected 100% of them on 1" in complaints[1]


def test_another_placement_is_noticed(on: On) -> None:
    cluster = on("quad").write(4, "spread")
    machine = cluster.machine_facts()
    cluster.up()
    complaints = check_kernel(machine, expect(machine, 4, "islands"), cluster.islands())
    for number in range(4):
        assert f"island {number}: threads on packages [0, 1, 2, 3], expected 1 package(s)" in complaints


# ---- losses

def test_a_cpu_that_is_unplugged_during_a_run_is_survived_and_reported(on: On) -> None:
    """The kernel lets the worker of a CPU that is gone run anywhere, and does not take that back."""
    cluster = on("quad").write(4, policy="bind")
    machine = cluster.machine_facts()
    expected = expect(machine, 4, "islands", "bind")
    cluster.up()
    try:
        result = cluster.disturb_load("echo 0 > /sys/devices/system/cpu/cpu7/online")
        assert result["sum_check"] == "ok" and not any(island["lost"] for island in result["per_island"])
        assert cluster.machine_facts().online == [cpu for cpu in range(24) if cpu != 7]
        complaints = check_kernel(machine, expected, cluster.islands())
        assert complaints == [
            "island 1: worker threads are pinned to CPUs [6, 8, 9, 10, 11], expected one each on 6-11"]
        warnings = [island.get("warning", "") for island in cluster.status()["islands"]]
        assert "planned is 7: it was moved, or that CPU went offline" in warnings[1]
        assert warnings[0] == warnings[2] == warnings[3] == ""

        cluster.guest.check(f"kill -9 {cluster.islands()[1].pid}")
        restarted = cluster.wait_until(lambda islands: islands[1]["restarts"] == 1 and islands[1]["state"] == "ready",
                                       "island 1 to come back on five CPUs")
        assert "bind thread to CPU 7" in restarted[1]["warning"] and "offline" in restarted[1]["warning"]
    finally:
        cluster.guest.check("echo 1 > /sys/devices/system/cpu/cpu7/online")
    cluster.guest.check(f"kill -9 {cluster.islands()[1].pid}")
    cluster.wait_until(lambda islands: islands[1]["restarts"] == 2 and islands[1]["state"] == "ready",
                       "island 1 to come back on six CPUs")
    assert cluster.load()["sum_check"] == "ok"
    cluster.check(machine, expected)
