"""What the guest's kernel says, as values: its CPUs and nodes from /sys, every island's threads and memory from /proc.

Nothing here asks `islands`: the processes are found by their command lines.
"""

import collections
import re
from collections.abc import Iterable
from typing import NamedTuple

SYS = "/sys/devices/system"
READ_MACHINE = (f"grep -H . {SYS}/cpu/online {SYS}/cpu/cpu[0-9]*/topology/physical_package_id "
                f"{SYS}/cpu/cpu[0-9]*/topology/core_cpus_list {SYS}/node/node[0-9]*/cpulist "
                f"{SYS}/node/node[0-9]*/distance {SYS}/node/node[0-9]*/meminfo; true")
# Pages of files (libraries, the program) are shared by all islands and lie where the first one put them. Few processes,
# as under emulation it is starting them that takes the time.
READ_ISLANDS = r"""
pids=$(pidof islandd)
all() { for pid in $pids; do echo /proc/$pid/$1; done; }
ps -o pid,args | grep -- '--name .*/island-[0-9]*$'
[ -z "$pids" ] || {
  grep -HE '^(Cpus|Mems)_allowed_list' $(all status) $(all 'task/*/status')
  grep -H . $(all 'task/*/stat')
  grep -HE ' 00:00 0 *(\[heap\])?$' $(all maps)
  grep -Hv file= $(all numa_maps)
}
true"""


class Core(NamedTuple):
    package: int
    node: int
    cpus: tuple[int, ...]  # hardware threads that are online


class Task(NamedTuple):
    tid: int
    ran_on: int
    cpus: list[int]
    mems: list[int]


class Mapping(NamedTuple):
    begin: int
    bytes: int
    policy: str
    pages: dict[int, int]  # node -> 4 KiB pages
    name: str


class Island(NamedTuple):
    number: int
    pid: int
    cpus: list[int]
    tasks: list[Task]
    mappings: list[Mapping]


def cpu_list(text: str) -> list[int]:
    """'0-2,7' -> [0, 1, 2, 7]"""
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def list_text(numbers: Iterable[int]) -> str:
    """[0, 1, 2, 7] -> '0-2,7', as the kernel and `islands` write it."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


class MachineFacts:
    """CPUs, cores and nodes as the kernel of the guest has them."""

    def __init__(self, text: str) -> None:
        found: dict[str, list[str]] = {}
        for line in text.splitlines():
            path, _, value = line[len(SYS) + 1:].partition(":")
            found.setdefault(path, []).append(value)
        self.online = cpu_list(found["cpu/online"][0])
        self.node_of: dict[int, int] = {}
        self.distances: dict[int, list[int]] = {}
        self.memory_kib: dict[int, int] = {}
        for path, values in found.items():
            match = re.fullmatch(r"node/node(\d+)/(\w+)", path)
            if not match:
                continue
            node = int(match.group(1))
            if match.group(2) == "cpulist":
                self.node_of.update({cpu: node for cpu in cpu_list(values[0])})
            elif match.group(2) == "distance":
                self.distances[node] = [int(word) for word in values[0].split()]
            elif match.group(2) == "meminfo":
                total = re.search(r"MemTotal:\s+(\d+) kB", "\n".join(values))
                assert total, values
                self.memory_kib[node] = int(total[1])
        self.package_of = {cpu: int(found[f"cpu/cpu{cpu}/topology/physical_package_id"][0]) for cpu in self.online}
        threads = {tuple(cpu_list(found[f"cpu/cpu{cpu}/topology/core_cpus_list"][0])) for cpu in self.online}
        # In the machine's order: package by package, node by node.
        self.cores = sorted(Core(self.package_of[cpus[0]], self.node_of[cpus[0]], cpus) for cpus in threads)

    def memory_of(self, cpu: int) -> int:
        """The node this CPU takes memory from: its own, or the nearest that has any."""
        own = self.node_of[cpu]
        with_memory = [node for node, kib in sorted(self.memory_kib.items()) if kib > 0]
        return own if own in with_memory else min(with_memory, key=lambda node: self.distances[own][node])

    def nodes_of(self, cpus: Iterable[int]) -> list[int]:
        return sorted({self.memory_of(cpu) for cpu in cpus})

    def packages_of(self, cpus: Iterable[int]) -> set[int]:
        return {self.package_of[cpu] for cpu in cpus}


def read_mappings(sizes: Iterable[str], places: Iterable[str]) -> list[Mapping]:
    """Anonymous memory: sizes from the lines of maps, policy and pages from those of numa_maps."""
    known = {}
    for line in sizes:
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        known[begin] = (end - begin, line.split()[5] if len(line.split()) > 5 else "")
    mappings = []
    for line in places:
        start, rest = line.split(" ", 1)
        policy = re.match(r"prefer \(many\):\S+|\S+", rest)
        if int(start, 16) in known and policy:
            pages = {int(node): int(count) for node, count in re.findall(r"\bN(\d+)=(\d+)", rest)}
            size, name = known[int(start, 16)]
            mappings.append(Mapping(int(start, 16), size, policy[0], pages, name))
    return mappings


def read_task(tid: int, status: Iterable[str], stat: list[str]) -> Task:
    """A thread: the CPU it ran on last, the CPUs and nodes it may use."""
    allowed = dict(line.split() for line in status)
    return Task(tid, int(stat[0].rpartition(")")[2].split()[36]), cpu_list(allowed["Cpus_allowed_list:"]),
                cpu_list(allowed["Mems_allowed_list:"]))


def read_islands(text: str) -> dict[int, Island]:
    """Every islandd of the guest, by its number."""
    lines_of: dict[str, list[str]] = collections.defaultdict(list)
    islands: dict[int, Island] = {}
    for path, line in re.findall(r"^/proc/([\w/]+):(.*)", text, flags=re.M):
        lines_of[path].append(line)
    for pid, number in re.findall(r"^ *(\d+) .* --name \S*/island-(\d+)\s*$", text, flags=re.M):
        assert int(number) not in islands, f"two processes are island {number}"
        tids = sorted(int(path.split("/")[2]) for path in lines_of if re.fullmatch(pid + r"/task/\d+/stat", path))
        tasks = [read_task(tid, lines_of[f"{pid}/task/{tid}/status"], lines_of[f"{pid}/task/{tid}/stat"])
                 for tid in tids]
        allowed = dict(line.split() for line in lines_of[f"{pid}/status"])
        islands[int(number)] = Island(int(number), int(pid), cpu_list(allowed["Cpus_allowed_list:"]), tasks,
                                      read_mappings(lines_of[f"{pid}/maps"], lines_of[f"{pid}/numa_maps"]))
    return islands
