"""What a sweep's words mean on this machine: `machine`, SE, CG, FG, $cores, $islands.

A file is written once and runs anywhere: on a machine of two cores `layout: machine` is 1ISL and 2ISL, on one of four
sockets with six cores each it is 1ISL, 2ISL, 4ISL, 8ISL, 12ISL and 24ISL.
"""

import re
from typing import Any

from islands_command import MachineReport
from sweeping.tree import Scalar

LAYOUT, LAYOUTS = re.compile(r"[1-9]\d{0,2}ISL$"), "1ISL to 999ISL"
CUTS = ("SE", "CG", "FG")  # shared everything, coarse-grained: an island per socket, fine-grained: one per core
ONE_DOMAIN = "one socket, one cache for all cores: spread puts islands where placement islands does"


class Machine:
    """Counts of a machine as `islands machine` reports it."""

    def __init__(self, report: MachineReport) -> None:
        self.report = report
        self.cores = len(report["cores"])
        packages = [core["package"] for core in report["cores"]]
        self.sockets = max(1, len(set(packages)))
        self.domains = len({(core["package"], core["cache_group"], *core["nodes"]) for core in report["cores"]})
        self.socket_cores = max(packages.count(package) for package in set(packages))
        self.threads = max(len(core["pus"]) for core in report["cores"])  # of a core

    def sockets_of(self, cores: int) -> int:
        """That the first `cores` cores lie on."""
        packages = [core["package"] for core in self.report["cores"]]
        return len(set(packages[:cores])) or 1

    def layouts(self, cores: int | None = None) -> list[str]:
        """From one island to one per core, such that islands are equally large; sockets are never missed out."""
        cores = cores or self.cores
        wanted = {1, cores, self.sockets_of(cores)}
        islands = 1
        while islands < cores:
            wanted.add(islands)
            islands *= 2
        sockets = self.sockets_of(cores)
        wanted.update(sockets * part for part in range(1, cores // sockets + 1) if (cores // sockets) % part == 0)
        return [f"{count}ISL" for count in sorted(wanted) if cores % count == 0]

    def core_counts(self) -> list[int]:
        """1, 2, 4, ... within a socket, then whole sockets."""
        counts = {self.cores}
        count = 1
        while count < self.socket_cores:
            counts.add(count)
            count *= 2
        counts.update(range(self.socket_cores, self.cores + 1, self.socket_cores))
        return sorted(counts)

    def values(self, axis: str, cores: int | None = None) -> tuple[list[Scalar], str | None] | None:
        """What `AXIS: machine` stands for, with a note where the machine leaves less than there is; None: no such word.
        `cores`: how many of them the deployment has, if not all."""
        if axis == "layout":
            return list(self.layouts(cores)), None
        if axis == "cores":
            return list(self.core_counts()), None
        if axis == "cut":
            if self.sockets == 1:
                return ["SE", "FG"], "one socket: CG, an island per socket, is SE here"
            return list(CUTS), None
        if axis == "workers":
            if self.sockets == 1:
                return ["grouped", "os"], "one socket: spread and mix put workers where grouped does"
            return ["spread", "grouped", "mix", "os"], None
        if axis == "hardware_threads":
            return (["one", "all"], None) if self.threads > 1 else (["one"], "cores have one hardware thread each")
        if axis == "placement":
            return ["islands", "spread", "os"], None  # less spread where it is no different, as in a list
        return None

    def cpus(self, count: int, workers: str) -> str:
        """CPU list of `count` cores: `spread` one of each socket in turn, `mix` two (Figure 3)."""
        sockets: dict[int, list[list[int]]] = {}
        for core in self.report["cores"]:
            sockets.setdefault(core["package"], []).append(core["pus"])
        chosen: list[list[int]] = []
        each = {"spread": 1, "mix": 2}[workers]
        while len(chosen) < min(count, self.cores):
            for cores in sockets.values():
                chosen += cores[:each]
                del cores[:each]
        return ",".join(str(pu) for pus in chosen[:count] for pu in pus)

    def layout_of_cut(self, cut: str, cores: int) -> str:
        return f"{ {'SE': 1, 'CG': self.sockets_of(cores), 'FG': cores}[cut] }ISL"

    def islands_of(self, layout: Scalar, cores: int) -> int:
        """4 of "4ISL"; where the layout is left to the machine, its sockets."""
        text = str(layout)
        return int(text.removesuffix("ISL")) if LAYOUT.match(text) else self.sockets_of(cores)

    def substitute(self, value: Any, cores: int, islands: int) -> Any:
        """`value` with $cores, $sockets and $islands in its strings replaced; a string that is nothing else becomes a
        number."""
        if isinstance(value, dict):
            return {name: self.substitute(part, cores, islands) for name, part in value.items()}
        if isinstance(value, list):
            return [self.substitute(part, cores, islands) for part in value]
        if not isinstance(value, str):
            return value
        numbers = {"cores": cores, "sockets": self.sockets_of(cores), "islands": islands}
        for name, number in numbers.items():
            if value == f"${name}":
                return number
        return re.sub(r"\$(cores|sockets|islands)\b", lambda found: str(numbers[found.group(1)]), value)
