"""What `islands machine --measure` found, as a sweep has kept it beside its results (heat_map.py draws it)."""

import json
import os
from collections.abc import Sequence
from typing import NamedTuple

from sweeping.results import MEASURED

FIRMWARE = {"packages": "packages", "numa_nodes": "NUMA nodes", "l3_groups": "L3 groups"}  # the file's keys, in words


class Level(NamedTuple):
    """Clusters of near cores, as indexes; `firmware`: what they are to the groups that it names."""
    clusters: list[list[int]]
    within_ns: int
    across_ns: int
    lone: str
    firmware: dict[str, str]


class RoundTrips:
    """`ns[i][j]`: between cpus[i] and cpus[j], which differ. Levels are as in the file, the coarsest first."""

    def __init__(self, cpus: list[int], ns: list[list[int]], levels: list[Level]) -> None:
        self.cpus, self.ns, self.levels = cpus, ns, levels
        self.order = list(range(len(cpus)))
        for level in reversed(levels):
            cluster_of = {core: number for number, cores in enumerate(level.clusters) for core in cores}
            self.order.sort(key=lambda core: cluster_of[core])
        self.pairs = sorted(ns[i][j] for i in self.order for j in self.order if i < j)


def cpus_of(text: str) -> list[int]:
    """0-2,5 as [0, 1, 2, 5]."""
    ends = [part.split("-") for part in text.split(",") if part]
    return [cpu for part in ends for cpu in range(int(part[0]), int(part[-1]) + 1)]


def list_of(cpus: Sequence[int]) -> str:
    """[0, 1, 2, 5] as 0-2,5."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in runs)


def read(folder: str) -> RoundTrips | None:
    """Of a result directory; None if it has none. ValueError, with a line for the user: they cannot be read. The sweep
    that put them there had `islands machine` check them to the last number."""
    path = os.path.join(folder, MEASURED)
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    try:
        cpus, ns = [int(cpu) for cpu in document["cpus"]], document["round_trip_ns"]
        if not cpus or any(len(row) != len(cpus) for row in (ns, *ns)) or any(
                ns[i][j] <= 0 or ns[i][j] != ns[j][i] for i in range(len(cpus)) for j in range(i)):
            raise ValueError("no symmetric matrix of as many positive numbers as CPUs")
        place = {cpu: i for i, cpu in enumerate(cpus)}
        levels = []
        for level in document["clusters"]:
            clusters = [[place[cpu] for cpu in cpus_of(cluster)] for cluster in level["cpus"]]
            if sorted(core for cluster in clusters for core in cluster) != list(range(len(cpus))):
                raise ValueError("clusters without some of the CPUs")
            levels.append(Level(clusters, *medians(ns, clusters), level.get("lone_cpus", ""),
                                {name: level[key] for key, name in FIRMWARE.items() if key in level}))
        return RoundTrips(cpus, ns, levels)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"cannot read {path}: it is not what `islands machine --measure` writes ({error})") from None


def medians(ns: list[list[int]], clusters: list[list[int]]) -> tuple[int, int]:
    """Of the pairs within clusters and of the others, 0 of none; the file may leave them out, and has no others."""
    cluster_of = {core: number for number, cores in enumerate(clusters) for core in cores}
    pairs = [(i, j) for i in cluster_of for j in cluster_of if i < j]
    within = sorted(ns[i][j] for i, j in pairs if cluster_of[i] == cluster_of[j])
    across = sorted(ns[i][j] for i, j in pairs if cluster_of[i] != cluster_of[j])
    return within[len(within) // 2] if within else 0, across[len(across) // 2] if across else 0


def level_text(trips: RoundTrips, level: Level) -> str:
    clusters = "; ".join(list_of([trips.cpus[core] for core in cluster]) for cluster in level.clusters)
    lone = f"; {level.lone} far from all others, or disturbed, and counted to the nearest" if level.lone else ""
    seen = "; ".join(f"{likeness} the firmware's {name}" for name, likeness in level.firmware.items())
    return (f"{len(level.clusters)} clusters of CPUs, {level.within_ns} ns within and {level.across_ns} ns across: "
            f"{clusters}{lone}{f' ({seen})' if seen else ''}.")


def caption(trips: RoundTrips) -> str:
    if not trips.pairs:
        return "One core: there is no round trip to measure."
    text = (f"Round trips of a cache line between any two cores: {trips.pairs[0]} to {trips.pairs[-1]} ns, half of the "
            f"pairs below {trips.pairs[len(trips.pairs) // 2]} ns. Darker is longer, in equal steps of ratio.")
    if not trips.levels:
        return f"{text} No clusters were found."
    return " ".join([text, "Cores are ordered by cluster, with lines between.",
                     *(level_text(trips, level) for level in trips.levels)])
