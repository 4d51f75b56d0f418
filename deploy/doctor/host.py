"""A machine as `islands doctor` sees it: what its kernel says in /proc and /sys, below any root, so that tests look at
machines that they have made up.

Nothing here judges. What cannot be read is None, which checks call unknown. For one thread.
"""

import contextlib
import glob
import os
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

FIELDS = 8  # of a CPU's line in /proc/stat: user nice system idle iowait irq softirq steal; guests are in the first two
IDLE, IOWAIT, STEAL = 3, 4, 7


def cpus_of(text: str) -> list[int]:
    """'0-2,5' as the kernel writes CPU lists."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def ranges(cpus: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of neighbours, first and last of each."""
    found: list[tuple[int, int]] = []
    for cpu in sorted(set(cpus)):
        if found and found[-1][1] == cpu - 1:
            found[-1] = (found[-1][0], cpu)
        else:
            found.append((cpu, cpu))
    return found


def cpu_list(cpus: Iterable[int]) -> str:
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges(cpus))


class Room(NamedTuple):
    """Of a file system."""
    bytes: int
    free_bytes: int


class Task(NamedTuple):
    """A thread at one moment."""
    pid: int
    name: str
    state: str
    ticks: int
    cpu: int  # where it ran last


class Moment(NamedTuple):
    cpus: dict[int, list[int]]  # ticks of each by FIELDS
    tasks: dict[int, Task]      # by thread


class Busy(NamedTuple):
    """What a process did on the cores asked about, while one looked."""
    pid: int
    name: str
    share: float  # of one core


class Load:
    """What has happened between two moments."""

    def __init__(self, before: Moment, after: Moment) -> None:
        self.before, self.after = before, after

    def shares(self, cpu: int) -> tuple[float, float] | None:
        """Of a CPU's time: busy here, taken by the hypervisor; None if the kernel does not say."""
        before, after = self.before.cpus.get(cpu), self.after.cpus.get(cpu)
        if before is None or after is None:
            return None
        ticks = [max(0, now - then) for then, now in zip(before, after)]
        whole = sum(ticks)
        if whole == 0:
            return None
        return (whole - ticks[IDLE] - ticks[IOWAIT] - ticks[STEAL]) / whole, ticks[STEAL] / whole

    def stolen_since_boot(self, cpus: Iterable[int]) -> float:
        ticks = [self.after.cpus[cpu] for cpu in cpus if cpu in self.after.cpus]
        return sum(each[STEAL] for each in ticks) / max(1, sum(sum(each) for each in ticks))

    def busiest(self, cpus: Iterable[int]) -> list[Busy]:
        """Processes that ran on these, the busiest first."""
        wanted = set(cpus)
        length = max((sum(self.after.cpus[cpu]) - sum(ticks) for cpu, ticks in self.before.cpus.items()
                      if cpu in self.after.cpus), default=0)
        ticks: dict[tuple[int, str], int] = {}
        for thread, task in self.after.tasks.items():
            then = self.before.tasks.get(thread)
            ran = task.ticks - (then.ticks if then else 0)
            if ran > 0 and task.cpu in wanted:
                process = self.after.tasks.get(task.pid, task)
                ticks[task.pid, process.name] = ticks.get((task.pid, process.name), 0) + ran
        found = [Busy(pid, name, ran / max(1, length)) for (pid, name), ran in ticks.items()]
        return sorted(found, key=lambda each: -each.share)

    def stuck(self, cpus: Iterable[int]) -> list[Task]:
        """Threads that waited uninterruptibly (state D) at both moments and did not run: a disk or a driver hangs."""
        wanted = set(cpus)
        return [task for thread, task in self.after.tasks.items()
                if task.state == "D" and task.cpu in wanted and self.before.tasks.get(thread) == task]


class Host:
    """The kernel's files below `root`. `pause` is called between the two moments of load()."""

    def __init__(self, root: str = "/", pause: Callable[[], None] = lambda: time.sleep(1)) -> None:
        self.root, self.pause = root, pause

    def path(self, name: str) -> str:
        return os.path.join(self.root, name.lstrip("/"))

    def read(self, name: str) -> str | None:
        """A file without its last end of line; None if it is not there or not for us."""
        try:
            with open(self.path(name), encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except OSError:
            return None

    def write(self, name: str, value: str) -> None:
        """OSError if the kernel refuses."""
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(value)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self.path(folder)))
        except OSError:
            return []

    def room(self, folder: str) -> Room | None:
        try:
            found = os.statvfs(self.path(folder))
        except OSError:
            return None
        return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def cpus(self) -> list[int]:
        """Online, and this process may run there, as far as either is known."""
        known = [cpus_of(text) for text in (self.status().get("Cpus_allowed_list"),
                                            self.read("/sys/devices/system/cpu/online")) if text]
        return sorted(set(known[0]).intersection(*known)) if known else []

    def status(self) -> dict[str, str]:
        lines = (self.read("/proc/self/status") or "").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def nodes(self) -> list[int] | None:
        """NUMA nodes with memory; None if the kernel does not say."""
        text = self.read("/sys/devices/system/node/has_memory") or self.read("/sys/devices/system/node/online")
        return cpus_of(text) if text is not None else None

    def is_virtual(self) -> bool:
        """Whether a hypervisor says so: x86 has a flag, others a name."""
        flags = [line for line in (self.read("/proc/cpuinfo") or "").splitlines() if line.startswith("flags")]
        return any(" hypervisor" in line for line in flags) or self.read("/sys/hypervisor/type") is not None

    def load(self) -> Load:
        before = self.moment()
        self.pause()
        return Load(before, self.moment())

    def moment(self) -> Moment:
        cpus: dict[int, list[int]] = {}
        for line in (self.read("/proc/stat") or "").splitlines():
            name, *ticks = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and len(ticks) >= FIELDS:
                cpus[int(name[3:])] = [int(each) for each in ticks[:FIELDS]]
        tasks: dict[int, Task] = {}
        for file in glob.iglob(os.path.join(glob.escape(self.path("/proc")), "[0-9]*", "task", "[0-9]*", "stat")):
            parts = file.split(os.sep)
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
                with open(file, encoding="utf-8", errors="replace") as opened:
                    text = opened.read()
                name, fields = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 1:].split()
                tasks[int(parts[-2])] = Task(int(parts[-4]), name, fields[0], int(fields[11]) + int(fields[12]),
                                             int(fields[36]))
        return Moment(cpus, tasks)
