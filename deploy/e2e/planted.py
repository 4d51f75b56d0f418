"""Binaries of which some have bugs that can be switched on with ISLANDS_PLANTED_BUG (instance/simulation/planted)."""

import os
import shutil

import pytest

from conftest import Islands


def planted_islands(islands: Islands, folder: str, *programs: str) -> Islands:
    """In the folder: these programs are planted ones, the others are as they are."""
    build = os.path.dirname(os.path.dirname(islands))
    binaries = os.path.join(folder, "build", "bin")
    os.makedirs(binaries)
    shutil.copy(islands, binaries)  # it looks for the others beside itself
    for program in ("islandd", "islands-logger", "islands-gateway"):
        path = os.path.join(build, *(("tests", "planted") if program in programs else ("bin",)), program)
        if not os.access(path, os.X_OK):
            pytest.skip(f"{path} is not built")
        os.symlink(path, os.path.join(binaries, program))
    os.symlink(os.path.join(build, "lib"), os.path.join(folder, "build", "lib"))
    return Islands(os.path.join(binaries, "islands"))
