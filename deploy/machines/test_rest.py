"""The machines that are no plain quad-socket, and what may be forbidden on one. See test_quad.py."""

from typing import Any

import pytest

from placement import check_kernel, expect, pool_of, share_on
from rack import Cluster, On, need_machines, on, rack  # noqa: F401
import shelf

need_machines()

EVERYTHING = "hardware_threads: all\n"
# Runs its command in the cgroup that make_part() makes.
INSIDE = "#!/bin/sh\necho $$ > /sys/fs/cgroup/part/cgroup.procs\nexec \"$@\"\n"


# ---- the quad-socket, what test_quad.py has no time for

@pytest.mark.parametrize("layout, how, policy", [
    (1, "islands", "bind"),
    (24, "islands", "bind"),
    (4, "spread", "preferred"),
    (8, "os", "preferred"),
    *[(layout, "islands", "bind") for layout in (2, 8)],
    *[(layout, "islands", "preferred") for layout in (1, 2, 8, 24)],
    *[(layout, "spread", "bind") for layout in (1, 2, 4, 8)],
    *[(layout, "spread", "preferred") for layout in (1, 2, 8, 24)],
    *[(layout, "os", "preferred") for layout in (1, 2, 4, 24)]])
def test_other_cuts(on: On, layout: int, how: str, policy: str) -> None:
    cluster = on("quad").write(layout, how, policy)
    machine = cluster.machine_facts()
    cluster.up_run_check(machine, expect(machine, layout, how, policy))


def test_workers_that_share_their_islands_cores(on: On) -> None:
    cluster = on("quad").write(4, policy="bind", more="workers: os\n")
    machine = cluster.machine_facts()
    cluster.up()
    assert cluster.load()["sum_check"] == "ok"
    islands, status = cluster.islands(), cluster.status()["islands"]
    for number, wanted in enumerate(expect(machine, 4, "islands", "bind").islands):
        tasks = [task for task in islands[number].tasks if task.cpus != machine.online]
        assert [task.cpus for task in tasks] == [wanted.cpus] * 6
        assert all(task.ran_on in wanted.cpus for task in tasks)
        assert share_on(wanted.nodes, pool_of(islands[number]).pages) == 1.0
        assert "warning" not in status[number]


def test_workers_and_their_io_threads_over_zmq(on: On) -> None:
    cluster = on("quad").write(4, more="messaging: {transport: zmq}\n")
    machine = cluster.machine_facts()
    cluster.up_run_check(machine, expect(machine, 4, "islands"))


@pytest.mark.parametrize("policy", ["bind", "preferred"])
def test_huge_pages_are_on_the_planned_nodes_too(on: On, policy: str) -> None:
    """From 32 MiB per site on the pool asks for huge pages."""
    cluster = on("quad").write(4, policy=policy, pool="1GiB")
    machine = cluster.machine_facts()
    for island in cluster.up_run_check(machine, expect(machine, 4, "islands", policy)).values():
        text = cluster.guest.check(f"grep AnonHugePages /proc/{island.pid}/smaps_rollup")
        assert int(text.split()[1]) >= 6 * 2048, "not one huge page per site"


# ---- not all of it allowed

def make_part(cluster: Cluster, cpus: str, mems: str) -> None:
    """A cgroup that allows these, and the command that runs others in it."""
    cluster.guest.check("cd /sys/fs/cgroup && echo +cpuset > cgroup.subtree_control && mkdir -p part && "
                        f"echo {cpus} > part/cpuset.cpus && echo {mems} > part/cpuset.mems")
    cluster.guest.write("/bin/inside", INSIDE)
    cluster.guest.check("chmod +x /bin/inside")


@pytest.mark.parametrize("layout, how, policy", [
    (1, "islands", "preferred"), (2, "islands", "bind"), (4, "islands", "preferred"), (3, "spread", "bind"),
    (4, "os", "preferred")])
def test_in_a_cgroup_islands_use_what_it_allows(on: On, layout: int, how: str, policy: str) -> None:
    cluster = on("quad", "inside")
    make_part(cluster, "6-17", "1-2")
    cluster.write(layout, how, policy)
    machine = cluster.machine_facts()
    islands = cluster.up_run_check(machine, expect(machine, layout, how, policy, cpus=range(6, 18)))
    for island in islands.values():
        assert all(task.mems == [1, 2] for task in island.tasks)
        assert set(pool_of(island).pages) <= {1, 2}


def test_what_the_cgroup_does_not_allow_is_refused(on: On) -> None:
    cluster = on("quad", "inside")
    make_part(cluster, "6-17", "1-2")
    cluster.write(cut="layout: 2ISL\ncores: '0-11'")
    done = cluster.run(f"up {cluster.file}")
    assert done.code == 2 and "found CPU 0-5, which is offline or not allowed here" in done.err
    assert "expected CPUs from 6-17" in done.err
    seen = cluster.run("machine").out
    assert "12 cores" in seen and "not usable: CPUs 0-5,18-23" in seen


def test_a_cgroup_that_lets_memory_come_from_another_node_only(on: On) -> None:
    """CPUs of one node, memory of another: the islands take what there is, and say so in their plan."""
    cluster = on("quad", "inside")
    make_part(cluster, "6-11", "2")
    cluster.write(2, policy="bind")
    machine = cluster.machine_facts()
    machine.memory_kib = {node: kib if node == 2 else 0 for node, kib in machine.memory_kib.items()}
    cluster.up_run_check(machine, expect(machine, 2, "islands", "bind", cpus=range(6, 12)))


def test_where_binding_is_forbidden_islands_run_unbound_with_one_warning(on: On) -> None:
    cluster = on("quad", "forbid_binding").write(4, policy="bind")
    machine = cluster.machine_facts()
    done = cluster.run(f"up {cluster.file}")
    assert done.code == 0 and (done.out + done.err).count("warning:") == 1
    assert "islands 0-3" in done.out and "Operation not permitted" in done.out
    assert cluster.load()["sum_check"] == "ok"
    islands = cluster.islands()
    assert all(task.cpus == machine.online for island in islands.values() for task in island.tasks)
    assert {pool_of(island).policy for island in islands.values()} == {"default"}
    for said in cluster.status()["islands"]:
        assert said["memory_policy"] == "default" and "Operation not permitted" in said["warning"]
        assert said["cpus_actual"] == "0-23" and said["cpus"] == f"{6 * said['id']}-{6 * said['id'] + 5}"
    complaints = check_kernel(machine, expect(machine, 4, "islands", "bind"), islands)
    assert sum("worker threads are pinned to CPUs []" in complaint for complaint in complaints) == 4


# ---- two hardware threads per core

@pytest.mark.parametrize("layout, how, all_threads", [
    (1, "islands", False), (2, "islands", False), (6, "islands", False), (3, "spread", False), (2, "os", False),
    (2, "islands", True), (6, "islands", True), (3, "spread", True)])
def test_hardware_threads(on: On, layout: int, how: str, all_threads: bool) -> None:
    """One worker per core by default; the islands' other threads go to the cores' other hardware threads."""
    cluster = on("smt").write(layout, how, "bind", more=EVERYTHING if all_threads else "")
    machine = cluster.machine_facts()
    assert [core.cpus for core in machine.cores] == [(cpu, cpu + 1) for cpu in range(0, 12, 2)]
    expected = expect(machine, layout, how, "bind", all_threads=all_threads)
    islands = cluster.up_run_check(machine, expected)
    if how != "os" and not all_threads:
        for number, island in islands.items():
            siblings = [cpu + 1 for cpu in expected.islands[number].cpus]
            others = {tuple(task.cpus) for task in island.tasks} - {(cpu,) for cpu in expected.islands[number].cpus}
            assert len(others) == 1 and others <= {(cpu,) for cpu in siblings}


# ---- memory that is missing

@pytest.mark.parametrize("layout, how, policy", [
    (1, "islands", "bind"), (2, "islands", "bind"), (2, "islands", "preferred"), (4, "islands", "bind"),
    (2, "spread", "preferred"), (2, "os", "preferred")])
def test_the_socket_without_memory_takes_the_other_ones(on: On, layout: int, how: str, policy: str) -> None:
    cluster = on("memoryless").write(layout, how, policy)
    machine = cluster.machine_facts()
    assert machine.memory_kib[1] == 0 and machine.node_of[2] == machine.node_of[3] == 1
    cluster.up_run_check(machine, expect(machine, layout, how, policy))
    assert "no memory" in cluster.run("machine").out


def test_a_node_without_memory_cannot_be_asked_for(on: On) -> None:
    cluster = on("memoryless").write(cut="islands:\n  - {cpus: '0-1'}\n  - {cpus: '2-3', numa_nodes: '1'}")
    done = cluster.run(f"up {cluster.file}")
    assert done.code == 2
    assert "found NUMA node 1, which does not exist or has no memory" in done.err
    assert "expected nodes from 0" in done.err


def test_a_pool_that_does_not_fit_its_node_is_refused(on: On) -> None:
    cluster = on("lopsided").write(2, pool="400MiB")
    done = cluster.run(f"up {cluster.file}")
    assert done.code == 2 and cluster.islands() == {}
    assert "NUMA node 1 has " in done.err and "but island 1 needs 200 MiB of it" in done.err


# All but what the kernel and the processes take themselves.
FILLS_THE_NODE: dict[str, Any] = {"pool": "308MiB", "rows": 1150000}


def test_preferred_memory_of_a_full_node_comes_from_the_other_one_and_is_reported(on: On) -> None:
    cluster = on("lopsided").write(2, **FILLS_THE_NODE)
    machine = cluster.machine_facts()
    cluster.up()
    assert cluster.load()["sum_check"] == "ok"
    pages = pool_of(cluster.islands()[1]).pages
    assert 0 < share_on([0], pages) < 0.5
    complaints = check_kernel(machine, expect(machine, 2, "islands"), cluster.islands())
    assert complaints == [f"island 1: the pool's pages are on nodes {pages}, expected 95% of them on 1"]
    first, second = cluster.status()["islands"]
    assert "warning" not in first and second["pool_pages_per_node"] == {str(n): p for n, p in pages.items()}
    assert f"{100 * share_on([0], pages):.0f} % of the pool's memory is not on NUMA node 1" in second["warning"]


def test_bound_memory_of_a_full_node_costs_that_island_only(on: On) -> None:
    """The kernel kills what is bound to a node that has nothing left; the supervisor tries again, then gives up."""
    cluster = on("lopsided").write(2, policy="bind", **FILLS_THE_NODE)
    machine = cluster.machine_facts()
    cluster.up("--restarts 1")
    first = cluster.islands()[0].pid
    done = cluster.run(f"run {cluster.file} micro --duration 0.3 --warmup 0.1")
    assert done.code == 1 and "island 1" in done.err
    lost = cluster.wait_until(lambda islands: islands[1]["state"] == "given_up", "island 1 to be given up")[1]
    assert "killed by signal 9" in lost["detail"] and lost["pid"] is None
    assert "oom-kill:constraint=CONSTRAINT_MEMORY_POLICY" in cluster.guest.check("dmesg")
    left = cluster.islands()
    assert list(left) == [0] and left[0].pid == first
    assert share_on([0], pool_of(left[0]).pages) == 1.0
    assert [task.cpus for task in left[0].tasks if len(task.cpus) == 1] == [[0], [1]]


# ---- the papers' octo-socket

@pytest.mark.parametrize("layout, how, policy", [
    (1, "islands", "bind"), (2, "islands", "preferred"), (4, "islands", "preferred"), (8, "islands", "bind"),
    (16, "islands", "bind"), (8, "spread", "preferred"), (8, "os", "preferred")])
def test_eighty_cores_on_eight_sockets(on: On, layout: int, how: str, policy: str) -> None:
    cluster = on("octo").write(layout, how, policy)
    machine = cluster.machine_facts()
    assert len(machine.cores) == 80
    assert [machine.distances[node] for node in range(8)] == shelf.MACHINES["octo"].distances
    assert cluster.json("machine")["node_distances"] == shelf.MACHINES["octo"].distances
    expected = expect(machine, layout, how, policy)
    cluster.up_run_check(machine, expected)
    if layout in (2, 4):  # within one hop
        for island in expected.islands:
            assert max(machine.distances[a][b] for a in island.nodes for b in island.nodes) == 20


def test_an_island_that_is_killed_during_a_run_comes_back_to_its_place(on: On) -> None:
    cluster = on("quad").write(4, policy="bind")
    machine = cluster.machine_facts()
    expected = expect(machine, 4, "islands", "bind")
    cluster.up()
    before = cluster.islands()
    result = cluster.disturb_load(f"kill -9 {before[2].pid}", code=1)
    assert result["sum_check"] == "skipped: island lost"
    assert [island["lost"] for island in result["per_island"]] == [False, False, True, False]
    cluster.wait_until(lambda islands: all(island["state"] == "ready" and island["links"] == island["links_expected"]
                                           for island in islands), "all links")
    after = cluster.check(machine, expected)
    assert [after[number].pid == before[number].pid for number in range(4)] == [True, True, False, True]
    assert cluster.load()["sum_check"] == "ok"
    cluster.check(machine, expected)
