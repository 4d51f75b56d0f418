"""The machines: how QEMU is told to build each, and what its Linux then has to find."""

from typing import NamedTuple

# `sockets` x `cores` x `threads` CPUs, dealt to `nodes` in blocks; MiB of memory per node (0: none); SLIT distances
# [from][to]. Node 0 also holds the kernel and the files, so it has to have some.
class Machine(NamedTuple):
    name: str
    says: str
    sockets: int
    cores: int
    threads: int
    memory_mib: list[int]
    distances: list[list[int]]


def all_alike(nodes: int, far: int = 20) -> list[list[int]]:
    return [[10 if a == b else far for b in range(nodes)] for a in range(nodes)]


def two_hops(nodes: int) -> list[list[int]]:
    """Sockets in two fully connected halves; each has one partner in the other half, the rest is two hops away."""
    half = nodes // 2

    def distance(a: int, b: int) -> int:
        if a == b:
            return 10
        return 20 if a // half == b // half or a % half == b % half else 30
    return [[distance(a, b) for b in range(nodes)] for a in range(nodes)]


MACHINES = {machine.name: machine for machine in [
    Machine("quad", "the papers' quad-socket: 4 x 6 cores, fully connected", 4, 6, 1, [1024] * 4, all_alike(4)),
    Machine("octo", "the papers' octo-socket: 8 x 10 cores, some sockets two hops away", 8, 10, 1,
            [768] + [512] * 7, two_hops(8)),
    Machine("memoryless", "two sockets, the second one's node without memory", 2, 2, 1, [2048, 0], all_alike(2)),
    Machine("smt", "two sockets of 3 cores with 2 hardware threads each", 2, 3, 2, [1024] * 2, all_alike(2)),
    Machine("lopsided", "two sockets of 2 cores, the second node with little memory", 2, 2, 1, [2048, 160],
            all_alike(2)),
]}


def cpus_of(machine: Machine) -> int:
    return machine.sockets * machine.cores * machine.threads


def qemu_arguments(machine: Machine) -> list[str]:
    """-smp, memory and -numa of QEMU: one NUMA node per socket, its memory in a backend of its own."""
    per_node = cpus_of(machine) // machine.sockets
    arguments = ["-smp", f"{cpus_of(machine)},sockets={machine.sockets},cores={machine.cores},"
                         f"threads={machine.threads}", "-m", f"{sum(machine.memory_mib)}M"]
    for node, mib in enumerate(machine.memory_mib):
        numa = f"node,nodeid={node},cpus={node * per_node}-{(node + 1) * per_node - 1}"
        if mib:
            arguments += ["-object", f"memory-backend-ram,id=ram{node},size={mib}M"]
            numa += f",memdev=ram{node}"
        arguments += ["-numa", numa]
    for a, row in enumerate(machine.distances):
        for b, value in enumerate(row):
            if a != b:
                arguments += ["-numa", f"dist,src={a},dst={b},val={value}"]
    return arguments
