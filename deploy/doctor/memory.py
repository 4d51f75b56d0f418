"""Checks of memory: pages of pools, and the rings of the log."""

import contextlib
import math
import os

from findings import ADVICE, FINE, PROBLEM, SILENT, UNKNOWN, Finding, Findings, Scope, Write, chosen, size
from host import Host

HUGE = "/sys/kernel/mm/transparent_hugepage"
MIB = 1 << 20
RING_BYTES = 8 * MIB      # storage.log.ring_bytes unless a deployment says otherwise
RING_HEADER_BYTES = 4096  # of its file
IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")
MOST_SWAPPINESS = 10


def huge_pages(host: Host, scope: Scope) -> Findings:
    name, file = "transparent huge pages", f"{HUGE}/enabled"
    why = "buffer pools ask for huge pages, without which a descent of a tree misses the TLB at every level"
    text = host.read(file)
    if text is None:
        yield Finding(name, UNKNOWN, SILENT, "madvise", why)
        return
    value, write = chosen(text), Write((file,), "madvise")
    if value == "never":
        yield Finding(name, PROBLEM, value, "madvise", why, write.command(), write)
        return
    if value == "always":
        yield Finding(name, ADVICE, value, "madvise", "programs that did not ask get them too: the kernel moves pages "
                      "about to make them, at times when a transaction waits", write.command())
    elif chosen(host.read(f"{HUGE}/defrag") or "") == "never":
        write = Write((f"{HUGE}/defrag",), "madvise")
        yield Finding(name, ADVICE, f"{value}, defrag never", "madvise, defrag madvise", "on a machine that has been "
                      f"up for long few huge pages are free, and the kernel is told not to make any; {why}",
                      write.command())
    else:
        yield Finding(name, FINE, value)


def numa_balancing(host: Host, scope: Scope) -> Findings:
    name, file = "numa balancing", "/proc/sys/kernel/numa_balancing"
    why = "the kernel takes pages away from workers for a moment, to see who uses them, and moves them off the nodes " \
          "where islands have put them"
    nodes, value = host.nodes(), host.read(file)
    if nodes is not None and len(nodes) == 1:
        yield Finding(name, FINE, "one NUMA node")
    elif value is None:
        yield Finding(name, UNKNOWN, SILENT, "off", why)
    elif value == "0":
        yield Finding(name, FINE, "off")
    else:
        write = Write((file,), "0")
        yield Finding(name, PROBLEM, "on", "off", why, write.command(), write)


def swappiness(host: Host, scope: Scope) -> Findings:
    file = "/proc/sys/vm/swappiness"
    why = "pages of a pool that were not used for a while go to disk while files keep their cache; the next " \
          "transaction that needs one waits for it"
    wanted = f"at most {MOST_SWAPPINESS}, or no swap"
    swaps, value = host.read("/proc/swaps"), host.read(file)
    if swaps is not None and len(swaps.splitlines()) <= 1:
        yield Finding("swappiness", FINE, "no swap")
    elif value is None or not value.isdigit():
        yield Finding("swappiness", UNKNOWN, SILENT, wanted, why)
    elif int(value) > MOST_SWAPPINESS:
        write = Write((file,), "1")
        yield Finding("swappiness", PROBLEM, value, wanted, why, write.command(), write)
    else:
        yield Finding("swappiness", FINE, value)


def file_system_of(host: Host, folder: str) -> str | None:
    """Kind of the one that is mounted there, or above."""
    best, kind = "", None
    for line in (host.read("/proc/self/mounts") or "").splitlines():
        words = line.split()
        point = words[1].rstrip("/") if len(words) > 2 else None
        if point is not None and (folder + "/").startswith(point + "/") and len(point) >= len(best):
            best, kind = point, words[2]
    return kind


def rings_there(host: Host, folder: str, log_directory: str) -> int:
    """Bytes that rings of this log take there already."""
    whole = 0
    for each in [folder, *(f"{folder}/{name}" for name in host.names(folder) if name.startswith("islands-"))]:
        owner = host.read(f"{each}/owner") or ""  # device inode device inode process path
        if owner.split(" ", 5)[5:] == [log_directory]:
            with contextlib.suppress(OSError):  # they are just being removed
                whole += sum(os.stat(host.path(f"{each}/{file}")).st_blocks * 512 for file in host.names(each))
    return whole


def rings(host: Host, scope: Scope) -> Findings:
    """Where the rings of a log go: two for each worker, since those of a life are there before the last one's go."""
    plan = scope.plan or {}
    folder = plan.get("ring_directory") or "/dev/shm"
    if plan.get("durability") == "none":
        yield Finding(folder, FINE, "not needed without a log")
        return
    needed = 2 * scope.workers() * (plan.get("ring_bytes", RING_BYTES) + RING_HEADER_BYTES)
    why = "rings of the log are there, in memory that outlives islands; without room they are in the log's " \
          "directory, on a disk, or `islands up` refuses"
    wanted = f"{size(needed)} free, in memory"
    named, there = folder, folder
    while not os.path.isdir(host.path(there)) and there not in ("/", "", "/dev/shm"):
        there = os.path.dirname(there)  # `up` makes it
    room, kind = host.room(there), file_system_of(host, there)
    if room is None:
        yield Finding(named, PROBLEM, "not there", wanted, why, f"mount -t tmpfs -o mode=1777 tmpfs {there}")
        return
    if kind is None:
        yield Finding(named, UNKNOWN, "the kernel does not say what is mounted", wanted, why)
    elif kind not in IN_MEMORY:
        yield Finding(named, PROBLEM, f"on {kind}", wanted, why, f"mount -t tmpfs -o mode=1777 tmpfs {there}, while "
                      "nothing is up")
    free = room.free_bytes + rings_there(host, there, str(plan.get("log_directory")))
    if free < needed:
        more = math.ceil((room.bytes + needed - free) / MIB)
        yield Finding(named, PROBLEM, f"{size(free)} free", wanted, why, f"mount -o remount,size={more}m {there}; of a "
                      f"container: --shm-size={more}m. `islands ps`, and ls {there}: what nobody needs may go")
    elif kind in IN_MEMORY:
        yield Finding(named, FINE, f"{size(free)} free")
