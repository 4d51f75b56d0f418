"""What a check says: a finding, with the setting of the kernel that would change it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from host import Host, Load, ranges

PROBLEM, ADVICE, FINE, UNKNOWN = "problem", "advice", "fine", "unknown"
CPU = "/sys/devices/system/cpu"
SILENT = "the kernel does not say"


class Write(NamedTuple):
    """A setting of the running kernel: a value for files that exist. A restart of the machine takes it back."""
    files: tuple[str, ...]
    value: str

    def command(self) -> str:
        words = [f"{CPU}/cpu{braces(cpus)}/{rest}" for rest, cpus in self.by_cpu().items()]
        return f"echo {self.value} | tee {' '.join(words + [file for file in self.files if not cpu_of(file)])}"

    def by_cpu(self) -> dict[str, list[int]]:
        """What follows cpuN/ in their names."""
        found: dict[str, list[int]] = {}
        for file in self.files:
            if of_cpu := cpu_of(file):
                found.setdefault(of_cpu[1], []).append(of_cpu[0])
        return found


class Finding(NamedTuple):
    name: str
    severity: str  # problem, advice, fine, unknown
    found: str
    wanted: str = ""
    why: str = ""
    command: str = ""  # that changes it, or what to do in words; root's
    write: Write | None = None  # the same for --fix, where that may do it


class Scope(NamedTuple):
    """What a machine is judged for: the cores of one deployment, or all that this process may use."""
    cpus: list[int]
    load: Load
    plan: dict[str, Any] | None = None  # of `islands plan FILE`

    def workers(self) -> int:
        return sum(island["workers"] for island in self.plan["islands"]) if self.plan else len(self.cpus)


Findings = Iterator[Finding]
Check = Callable[[Host, Scope], Findings]


def cpu_of(file: str) -> tuple[int, str] | None:
    """.../cpu3/cpufreq/x -> 3, cpufreq/x"""
    name, _, rest = file.removeprefix(f"{CPU}/cpu").partition("/")
    return (int(name), rest) if file.startswith(f"{CPU}/cpu") and name.isdigit() else None


def braces(cpus: Iterable[int]) -> str:
    """As a shell takes them together: 3, {0..3}, {{0..3},8}."""
    parts = [str(first) if first == last else f"{{{first}..{last}}}" for first, last in ranges(cpus)]
    return parts[0] if len(parts) == 1 else f"{{{','.join(parts)}}}"


def size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def chosen(text: str) -> str:
    """The one in brackets, where the kernel lists what there is: always [madvise] never."""
    return text.partition("[")[2].partition("]")[0] or text
