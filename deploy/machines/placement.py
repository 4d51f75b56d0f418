"""Where every island has to be, worked out from the kernel's description of the machine, and what is wrong with where
it is. The checks return complaints, so that a test can also demand some.

`islands plan` has no part in it: the expectation follows from what the layouts and placements are defined to be.
"""

import collections
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import facts

# Of the pool's pages on the planned nodes.
LEAST_SHARE = {"bind": 1.0, "preferred": 0.95}
# Of all other anonymous memory so much may lie elsewhere: what a process touches before it has read its configuration.
EARLY_PAGES = 192  # 768 KiB
EVEN_PAGES = 40  # from so many pages per node on an interleaved pool has to look even

POOL_BYTES = 1 << 30


class ExpectedIsland(NamedTuple):
    cpus: list[int]
    workers: int
    nodes: list[int]


class Expected(NamedTuple):
    placement: str
    policy: str
    allowed: list[int]  # CPUs of the processes
    islands: list[ExpectedIsland]


def expect(machine: facts.MachineFacts, layout: int, placement: str, policy: str = "preferred",
           cpus: Iterable[int] | None = None, all_threads: bool = False) -> Expected:
    """What layout and placement mean on this machine; `cpus` is what the processes may use. The number of islands has
    to divide that of cores, so that there is only one answer.

    `islands`: runs of neighbouring cores. `spread`: neighbouring cores go to different islands in turn. `os`: the same
    numbers of workers, bound to nothing.
    """
    allowed = sorted(machine.online if cpus is None else cpus)
    cores = [threads for threads in ([cpu for cpu in core.cpus if cpu in allowed] for core in machine.cores) if threads]
    assert len(cores) % layout == 0, "choose a layout that divides the cores"
    size = len(cores) // layout
    islands = []
    for number in range(layout):
        mine = cores[number::layout] if placement == "spread" else cores[number * size:(number + 1) * size]
        chosen = [cpu for threads in mine for cpu in (threads if all_threads else threads[:1])]
        if placement == "os":
            islands.append(ExpectedIsland([], len(chosen), []))
        else:
            islands.append(ExpectedIsland(sorted(chosen), len(chosen), machine.nodes_of(chosen)))
    return Expected(placement, "default" if placement == "os" else policy, allowed, islands)


def policy_text(expected: Expected, island: ExpectedIsland) -> str:
    """As numa_maps prints it."""
    if expected.policy == "default":
        return "default"
    nodes = facts.list_text(island.nodes)
    if expected.policy == "bind":
        return f"bind:{nodes}"
    return f"prefer:{nodes}" if len(island.nodes) == 1 else f"interleave:{nodes}"


def is_pool(mapping: facts.Mapping) -> bool:
    """The buffer pool is by far the largest thing an island maps: address space for many times its pages. It is two
    mappings where it asks for huge pages, as the pages' state words before them do not."""
    return mapping.bytes >= POOL_BYTES and not mapping.name


def pool_of(island: facts.Island) -> facts.Mapping:
    """The mappings of the pool as one."""
    parts = [mapping for mapping in island.mappings if is_pool(mapping)]
    assert parts, f"island {island.number} has no pool"
    pages: collections.Counter[int] = sum((collections.Counter(part.pages) for part in parts), collections.Counter())
    policies = sorted({part.policy for part in parts})
    return facts.Mapping(parts[0].begin, sum(part.bytes for part in parts), " and ".join(policies), dict(pages), "")


def check_threads(machine: facts.MachineFacts, expected: Expected, number: int, island: facts.Island) -> Iterator[str]:
    """Every worker on its own CPU; whatever else is pinned keeps off all workers' CPUs; the rest may run anywhere."""
    wanted = expected.islands[number]
    workers_cpus = {cpu for other in expected.islands for cpu in other.cpus}
    pinned = sorted(task.cpus[0] for task in island.tasks if len(task.cpus) == 1)
    workers = [cpu for cpu in pinned if cpu in workers_cpus]
    free = [task for task in island.tasks if task.cpus == expected.allowed]
    if workers != wanted.cpus:
        yield (f"island {number}: worker threads are pinned to CPUs {workers}, expected one each on "
               f"{facts.list_text(wanted.cpus) or 'none'}")
    if expected.placement == "os" and (pinned or len(free) < wanted.workers):
        yield (f"island {number}: {len(free)} threads may run anywhere, {len(pinned)} are pinned, expected "
               f"{wanted.workers} workers that may run anywhere")
    for task in island.tasks:
        if len(task.cpus) > 1 and task not in free:
            yield (f"island {number}: thread {task.tid} may run on CPUs {facts.list_text(task.cpus)}, expected one or "
                   f"all of {facts.list_text(expected.allowed)}")
        if task.ran_on not in task.cpus:
            yield f"island {number}: thread {task.tid} ran on CPU {task.ran_on}, allowed are {task.cpus}"
    if expected.placement == "islands":
        yield from check_straddling(machine, number, wanted, pinned)


def check_straddling(machine: facts.MachineFacts, number: int, wanted: ExpectedIsland,
                     pinned: Iterable[int]) -> Iterator[str]:
    """As few packages as its number of workers can do with."""
    largest = collections.Counter(core.package for core in machine.cores)
    per_core = max(1, len(wanted.cpus) // len({core for core in machine.cores if set(core.cpus) & set(wanted.cpus)}))
    fewest = -(-len(wanted.cpus) // (max(largest.values()) * per_core))
    packages = machine.packages_of(pinned)
    if len(packages) > fewest:
        yield f"island {number}: threads on packages {sorted(packages)}, expected {fewest} package(s)"


def share_on(nodes: Collection[int], pages: dict[int, int]) -> float:
    total = sum(pages.values())
    return sum(count for node, count in pages.items() if node in nodes) / total if total else 0.0


def check_memory(expected: Expected, number: int, island: facts.Island) -> Iterator[str]:
    wanted = expected.islands[number]
    pool = pool_of(island)
    if pool.policy != policy_text(expected, wanted):
        yield f"island {number}: the pool's policy is {pool.policy}, expected {policy_text(expected, wanted)}"
    if not pool.pages:
        yield f"island {number}: the pool has no pages"
    if expected.policy == "default":
        return
    least = LEAST_SHARE[expected.policy]
    if share_on(wanted.nodes, pool.pages) < least:
        yield (f"island {number}: the pool's pages are on nodes {pool.pages}, expected {least:.0%} of them on "
               f"{facts.list_text(wanted.nodes)}")
    elsewhere: collections.Counter[int] = collections.Counter()
    for mapping in island.mappings:
        if not is_pool(mapping):
            elsewhere.update({node: count for node, count in mapping.pages.items() if node not in wanted.nodes})
    if sum(elsewhere.values()) > EARLY_PAGES:
        yield (f"island {number}: outside of the pool {dict(elsewhere)} pages are on other nodes than "
               f"{facts.list_text(wanted.nodes)}")
    even = sum(pool.pages.values()) / len(wanted.nodes)
    if expected.policy == "preferred" and len(wanted.nodes) > 1 and even >= EVEN_PAGES:
        if min(pool.pages.get(node, 0) for node in wanted.nodes) < even / 2:
            yield f"island {number}: the pool is not interleaved evenly: {pool.pages}"


def check_kernel(machine: facts.MachineFacts, expected: Expected, islands: dict[int, facts.Island]) -> list[str]:
    """Every complaint about the islands' processes, as the kernel shows them."""
    if sorted(islands) != list(range(len(expected.islands))):
        return [f"processes of islands {sorted(islands)}, expected {len(expected.islands)} islands"]
    complaints: list[str] = []
    for number, island in sorted(islands.items()):
        complaints += check_threads(machine, expected, number, island)
        complaints += check_memory(expected, number, island)
    return complaints


def check_status(expected: Expected, islands: dict[int, facts.Island], status: dict[str, Any]) -> list[str]:
    """What `islands status` says against the kernel, and its plan against the expectation."""
    complaints: list[str] = []

    def same(number: int | str, what: str, said: object, wanted: object) -> None:
        if said != wanted:
            complaints.append(f"island {number}: status says {what} {said}, expected {wanted}")
    workers_cpus = {cpu for wanted in expected.islands for cpu in wanted.cpus}
    for said in status["islands"]:
        number = said["id"]
        island, wanted = islands[number], expected.islands[number]
        pool = pool_of(island)
        pinned = sorted(task.cpus for task in island.tasks if len(task.cpus) == 1 and task.cpus[0] in workers_cpus)
        free = [island.cpus] * wanted.workers
        same(number, "state", said["state"], "ready")
        same(number, "warning", said.get("warning"), None)
        same(number, "pid", said["pid"], island.pid)
        same(number, "workers", said["workers"], wanted.workers)
        same(number, "cpus", facts.cpu_list(said["cpus"]), wanted.cpus)
        same(number, "numa_nodes", facts.cpu_list(said["numa_nodes"]), wanted.nodes)
        same(number, "worker_cpus_actual", sorted(map(facts.cpu_list, said["worker_cpus_actual"])),
             free if expected.placement == "os" else pinned)
        same(number, "memory_policy", said["memory_policy"], pool.policy)
        same(number, "pool_pages_per_node", {int(n): pages for n, pages in said["pool_pages_per_node"].items()},
             pool.pages)
    same("all", "islands", len(status["islands"]), len(expected.islands))
    return complaints
