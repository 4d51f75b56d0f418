#!/usr/bin/env python3
"""Writes the shelf: hwloc XML files of machines that nobody here owns, for the tests of topology/.

Run it in this folder after changing a machine below; the files are committed so tests need no tool. Sizes
and core counts of the first two are Table 2 of "OLTP on Hardware Islands"; their distances follow the links
described there (fully connected; three links per CPU, as a Moebius ladder with at most two hops).
"""

from collections.abc import Callable, Collection, Iterable, Sequence

GIB = 1 << 30
MIB = 1 << 20

Group = list[list[int]]  # cores; a core is a list of PU OS indexes
Groups = list[Group]
Matrix = list[list[int]]


def bits(indexes: Iterable[int]) -> str:
    value = sum(1 << i for i in set(indexes))
    words = []
    while True:
        words.append(f"0x{value & 0xffffffff:08x}")
        value >>= 32
        if not value:
            return ",".join(reversed(words))


class Node:
    """One NUMA node: its memory and L3 groups."""

    def __init__(self, os_index: int, memory: int, groups: Groups, l3_bytes: int) -> None:
        self.os_index, self.memory, self.groups, self.l3_bytes = os_index, memory, groups, l3_bytes

    def pus(self) -> list[int]:
        return [pu for group in self.groups for core in group for pu in core]


class Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth, self.next_gp, self.core = 0, 1, 0

    def open(self, kind: str, pus: Collection[int], nodes: Iterable[int], extra: str = "",
             offline: Collection[int] = ()) -> None:
        self.lines.append(
            "  " * self.depth + f'<object type="{kind}"{extra} cpuset="{bits(set(pus) - set(offline))}" '
            f'complete_cpuset="{bits(pus)}" nodeset="{bits(nodes)}" complete_nodeset="{bits(nodes)}" '
            f'gp_index="{self.next_gp}"')
        self.next_gp += 1
        self.depth += 1

    def attributes(self, text: str = "") -> None:
        self.lines[-1] += text + ">"

    def leaf(self, text: str = "") -> None:
        self.lines[-1] += text + "/>"
        self.depth -= 1

    def close(self) -> None:
        self.depth -= 1
        self.lines.append("  " * self.depth + "</object>")

    def raw(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)


def write(name: str, packages: Sequence[Sequence[Node]], model: str, distances: Matrix | None = None,
          offline: Iterable[int] = (), disallowed: Iterable[int] = (),
          kinds: Iterable[tuple[int, str, Iterable[int]]] = ()) -> None:
    """packages: a list of lists of Node. kinds: (efficiency, core type, PUs) of hybrid machines."""
    w, offline = Writer(), set(offline)
    everything = [node for package in packages for node in package]
    all_pus = [pu for node in everything for pu in node.pus()]
    all_nodes = [node.os_index for node in everything]
    allowed = set(all_pus) - offline - set(disallowed)
    w.depth = 1
    w.open("Machine", all_pus, all_nodes, ' os_index="0"', offline)
    w.attributes(f' allowed_cpuset="{bits(allowed)}" allowed_nodeset="{bits(all_nodes)}"')
    for number, package in enumerate(packages):
        w.open("Package", [pu for node in package for pu in node.pus()], [node.os_index for node in package],
               f' os_index="{number}"', offline)
        w.attributes()
        w.raw(f'<info name="CPUModel" value="{model}"/>')
        for node in package:
            write_node(w, node, len(package) > 1, offline)
        w.close()
    w.close()
    w.depth = 1
    if distances:
        write_distances(w, all_nodes, distances)
    for efficiency, core_type, pus in kinds:
        w.raw(f'<cpukind cpuset="{bits(pus)}" forced_efficiency="{efficiency}">')
        w.raw(f'  <info name="CoreType" value="{core_type}"/>')
        w.raw("</cpukind>")
    with open(name + ".xml", "w", encoding="ascii") as out:
        out.write('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
                  '<topology version="2.0">\n' + "\n".join(w.lines) + "\n</topology>\n")


def write_node(w: Writer, node: Node, grouped: bool, offline: set[int]) -> None:
    here = [node.os_index]
    if grouped:
        w.open("Group", node.pus(), here, "", offline)
        w.attributes(' kind="0" subkind="0"')
    w.open("NUMANode", node.pus(), here, f' os_index="{node.os_index}"', offline)
    w.leaf(f' local_memory="{node.memory}"' if node.memory else "")
    for group in node.groups:
        pus = [pu for core in group for pu in core]
        if node.l3_bytes:
            w.open("L3Cache", pus, here, "", offline)
            w.attributes(f' cache_size="{node.l3_bytes}" depth="3" cache_linesize="64" '
                         'cache_associativity="16" cache_type="0"')
        for core in group:
            number, w.core = w.core, w.core + 1
            if offline.issuperset(core):
                continue
            w.open("Core", core, here, f' os_index="{number}"', offline)
            w.attributes()
            for pu in core:
                if pu not in offline:
                    w.open("PU", [pu], here, f' os_index="{pu}"')
                    w.leaf()
            w.close()
        if node.l3_bytes:
            w.close()
    if grouped:
        w.close()


def write_distances(w: Writer, nodes: Sequence[int], matrix: Matrix) -> None:
    indexes = " ".join(str(n) for n in nodes) + " "
    values = " ".join(str(v) for row in matrix for v in row) + " "
    w.raw(f'<distances2 type="NUMANode" nbobjs="{len(nodes)}" kind="5" name="NUMALatency" indexing="os">')
    w.raw(f'  <indexes length="{len(indexes)}">{indexes}</indexes>')
    w.raw(f'  <u64values length="{len(values)}">{values}</u64values>')
    w.raw("</distances2>")


def slit(count: int, distance: Callable[[int, int], int]) -> Matrix:
    return [[10 if a == b else distance(a, b) for b in range(count)] for a in range(count)]


def cores(first: int, count: int, sibling: int | None = None) -> Group:
    """`count` cores from PU `first`; `sibling`: the offset of the second hardware thread."""
    return [[first + i] + ([first + i + sibling] if sibling else []) for i in range(count)]


def main() -> None:
    write("quad-socket-4x6", [[Node(p, 16 * GIB, [cores(6 * p, 6)], 12 * MIB)] for p in range(4)],
          "Intel(R) Xeon(R) CPU E7530 @ 1.87GHz", slit(4, lambda a, b: 21))
    write("octo-socket-8x10", [[Node(p, 24 * GIB, [cores(10 * p, 10)], 30 * MIB)] for p in range(8)],
          "Intel(R) Xeon(R) CPU E7-L8867 @ 2.13GHz",
          slit(8, lambda a, b: 16 if (a - b) % 8 in (1, 4, 7) else 22))
    write("epyc-2x64", [[Node(p, 256 * GIB, [cores(64 * p + 8 * g, 8, 128) for g in range(8)], 32 * MIB)]
                        for p in range(2)], "AMD EPYC 7763 64-Core Processor", slit(2, lambda a, b: 32))
    quarters = [[Node(4 * p + n, 32 * GIB, [cores(16 * p + 4 * n + 2 * g, 2) for g in range(2)], 16 * MIB)
                 for n in range(4)] for p in range(2)]
    write("epyc-nps4-2x16", quarters, "AMD EPYC 7282 16-Core Processor",
          slit(8, lambda a, b: 12 if a // 4 == b // 4 else 32))
    write("smt-1x8", [[Node(0, 32 * GIB, [cores(0, 8, 8)], 16 * MIB)]],
          "Intel(R) Xeon(R) E-2288G CPU @ 3.70GHz")
    write("memoryless-2x8",
          [[Node(0, 64 * GIB, [cores(0, 8)], 20 * MIB)], [Node(1, 0, [cores(8, 8)], 20 * MIB)]],
          "Intel(R) Xeon(R) CPU E5-2650 0 @ 2.00GHz", slit(2, lambda a, b: 21))
    write("restricted-2x8",
          [[Node(0, 32 * GIB, [cores(0, 8)], 20 * MIB)], [Node(1, 32 * GIB, [cores(8, 8)], 20 * MIB)]],
          "Intel(R) Xeon(R) CPU E5-2650 0 @ 2.00GHz", slit(2, lambda a, b: 21), offline=[6, 7],
          disallowed=[0, 1, 14, 15])
    fast_and_slow = [[2 * i, 2 * i + 1] for i in range(8)] + cores(16, 8)
    write("hybrid-8p8e", [[Node(0, 32 * GIB, [fast_and_slow], 30 * MIB)]],
          "12th Gen Intel(R) Core(TM) i9-12900K",
          kinds=[(0, "IntelAtom", range(16, 24)), (1, "IntelCore", range(0, 16))])
    write("vm-2core", [[Node(0, 4 * GIB, [cores(0, 2)], 0)]], "QEMU Virtual CPU version 2.5+")


if __name__ == "__main__":
    main()
