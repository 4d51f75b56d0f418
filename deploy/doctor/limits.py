"""Checks of what this process, and those that it starts, may have."""

import math

from findings import FINE, PROBLEM, SILENT, UNKNOWN, Finding, Findings, Scope, size
from host import Host

URING_BYTES = 32 << 10  # of locked memory that a queue of io_uring takes, where that is counted


def limit(host: Host, name: str, column: int) -> float | None:
    """Of this process: column 0 is the soft one, 1 the hard one."""
    for line in (host.read("/proc/self/limits") or "").splitlines():
        if line.startswith(name):
            value = line[len(name):].split()[column]
            return math.inf if value == "unlimited" else float(value)
    return None


def files_needed(scope: Scope) -> int:
    """Of the island that needs most: its sites' files, connections to and from workers of others, and some."""
    sites = scope.plan["sites"] if scope.plan else max(24, len(scope.cpus))
    of_islands = [island["workers"] for island in scope.plan["islands"]] if scope.plan else [1] * len(scope.cpus)
    count, workers = max(1, len(of_islands)), sum(of_islands)
    most = max(of_islands, default=1)
    return 64 + math.ceil(sites / count) + most * (count - 1) + (workers - most) + 8 * most


def open_files(host: Host, scope: Scope) -> Findings:
    why = "an island raises its limit to the hard one, and has a file per site and connections to every worker; " \
          "without room it does not start"
    hard, needed = limit(host, "Max open files", 1), files_needed(scope)
    if hard is None:
        yield Finding("open files", UNKNOWN, SILENT, f"{needed} per process", why)
    elif hard < needed:
        yield Finding("open files", PROBLEM, f"at most {hard:.0f}", f"{needed} per process", why,
                      "in a root shell, ulimit -Hn 65536, and start from there; for good: nofile in "
                      "/etc/security/limits.conf, of a service LimitNOFILE=")
    else:
        yield Finding("open files", FINE, f"at most {hard:.0f}")


def locked_memory(host: Host, scope: Scope) -> Findings:
    why = "kernels before 5.12 count the queues of io_uring as locked memory; those that get none use a thread " \
          "instead, which is slower"
    needed = URING_BYTES * (2 * scope.workers() + 4)
    release, found = host.read("/proc/sys/kernel/osrelease"), limit(host, "Max locked memory", 0)
    version = [int(part) for part in (release or "").split("-")[0].split(".")[:2] if part.isdigit()]
    if len(version) == 2 and version >= [5, 12]:
        yield Finding("locked memory", FINE, "not counted by this kernel")
    elif len(version) < 2 or found is None:
        yield Finding("locked memory", UNKNOWN, SILENT, size(needed), why)
    elif found < needed and not int(host.status().get("CapEff", "0"), 16) >> 14 & 1:  # CAP_IPC_LOCK: not counted
        yield Finding("locked memory", PROBLEM, size(found), size(needed), why, f"ulimit -l {needed >> 10}; for good: "
                      "memlock in /etc/security/limits.conf, of a service LimitMEMLOCK=")
    else:
        yield Finding("locked memory", FINE, "unlimited" if found == math.inf else size(found))


def address_space(host: Host, scope: Scope) -> Findings:
    why = "a pool is one reserved region of addresses, several times as large as what it uses"
    found = limit(host, "Max address space", 0)
    if found is None:
        yield Finding("address space", UNKNOWN, SILENT, "unlimited", why)
    elif found != math.inf:
        yield Finding("address space", PROBLEM, size(found), "unlimited", why, "ulimit -v unlimited; for good: as in "
                      "/etc/security/limits.conf, of a service LimitAS=infinity")
    else:
        yield Finding("address space", FINE, "unlimited")
