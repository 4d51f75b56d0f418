"""A limit to the memory of processes: a control group of the kernel's, of either version.

The limit is on all that a group's processes have in memory, pages of files that the kernel keeps for them included.
Making one takes root, as a rule.
"""

import contextlib
import os
import time

from islands_command import Failed

PREFIX = "islands-bench-"
GONE_S = 10.0
MOUNTS = "/proc/self/mounts"


class NoGroups(Exception):
    """Why there are none."""


def hierarchy(mounts: str) -> tuple[str, int]:
    """Where groups with a memory limit are made, and of which version they are."""
    unified = ""
    for line in mounts.splitlines():
        _, path, kind, options = line.split()[:4]
        if kind == "cgroup" and "memory" in options.split(","):
            return path, 1
        if kind == "cgroup2":
            unified = path
    if not unified:
        raise NoGroups("no control groups are mounted")
    return unified, 2


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


class MemoryGroup:
    def __init__(self, name: str, limit_bytes: int) -> None:
        """Raises NoGroups where there can be none."""
        with open(MOUNTS, encoding="utf-8") as file:
            parent, version = hierarchy(file.read())
        self.path = os.path.join(parent, f"{PREFIX}{os.getpid()}-{name}")
        try:
            if version == 2:
                with open(os.path.join(parent, "cgroup.subtree_control"), encoding="ascii") as file:
                    passed_on = file.read().split()
                if "memory" not in passed_on:
                    write(os.path.join(parent, "cgroup.subtree_control"), "+memory")
            os.mkdir(self.path)
            write(os.path.join(self.path, "memory.limit_in_bytes" if version == 1 else "memory.max"), str(limit_bytes))
            with contextlib.suppress(OSError):  # the kernel may have none
                write(os.path.join(self.path, "memory.swappiness" if version == 1 else "memory.swap.max"), "0")
        except OSError as fault:
            self.remove()
            raise NoGroups(f"{fault.filename}: {fault.strerror}") from None
        self.events = "memory.oom_control" if version == 1 else "memory.events"
        self.members = os.path.join(self.path, "cgroup.procs")
        # A shell puts itself into the group, and then is the command.
        self.prefix = ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', self.members]

    def kills(self) -> int:
        """Of its processes, by the kernel, because they wanted more than there is."""
        with open(os.path.join(self.path, self.events), encoding="ascii") as file:
            counts = dict(line.split() for line in file)
        return int(counts["oom_kill"])

    def remove(self) -> None:
        """Once its processes are gone, or nearly so."""
        until_s = time.monotonic() + GONE_S
        while os.path.isdir(self.path):
            try:
                os.rmdir(self.path)
            except OSError as fault:
                if time.monotonic() > until_s:
                    raise Failed(f"{self.path} stays: {fault.strerror}") from None
                time.sleep(0.05)


def remove_groups() -> None:
    """All that this process has made, whose processes are gone."""
    with contextlib.suppress(NoGroups, OSError):
        with open(MOUNTS, encoding="utf-8") as file:
            parent, _ = hierarchy(file.read())
        for name in os.listdir(parent):
            if name.startswith(f"{PREFIX}{os.getpid()}-"):
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(parent, name))
