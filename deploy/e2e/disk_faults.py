"""The plan of disk_faults.so (disk_faults.cc): which call on the disk goes wrong, and how, in which process."""

import mmap
import os
import struct
from typing import NamedTuple

from conftest import BINARIES

ROLES = ("supervisor", "logger", "island")
FAULTS = ("none", "kill", "EIO", "ENOSPC", "lost")  # at one place
OF_ALL = ("EINTR", "EROFS")                           # of every call, whatever the place

PLAN = struct.Struct("<4IQ3Q464s")  # as disk_faults.cc has it
ARMED = struct.Struct("<I")


class Place(NamedTuple):
    """The nth call of a role, counted from when the plan was armed."""
    role: str
    nth: int


class DiskFaults:
    """Of the processes that are started with `environment`."""

    def __init__(self, folder: str, under: str) -> None:
        path = os.path.join(folder, "faults")
        with open(path, "wb") as file:
            file.write(bytes(PLAN.size))
        with open(path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), PLAN.size)
        self.environment = {"LD_PRELOAD": library(), "ISLANDS_FAULTS": path, "ISLANDS_FAULTS_UNDER": under}

    def arm(self, fault: str = "none", place: Place = Place("island", 0)) -> None:
        """Counts from now on; `none` does nothing else."""
        self.disarm()
        self.page[:] = PLAN.pack(0, ROLES.index(place.role), (FAULTS + OF_ALL).index(fault), 0, place.nth, 0, 0, 0, b"")
        self.page[:ARMED.size] = ARMED.pack(1)

    def disarm(self) -> None:
        self.page[:ARMED.size] = ARMED.pack(0)

    def calls(self) -> dict[str, int]:
        return dict(zip(ROLES, PLAN.unpack(self.page[:])[5:8]))

    def struck(self) -> str:
        """The call, and of what; empty: it has not come to that."""
        fields = PLAN.unpack(self.page[:])
        return str(fields[8].rstrip(b"\0").decode()) if fields[3] else ""


def library() -> str:
    binaries = os.path.dirname(BINARIES) if os.path.isfile(BINARIES) else BINARIES
    return os.path.abspath(os.path.join(binaries, "..", "tests", "disk_faults.so"))
