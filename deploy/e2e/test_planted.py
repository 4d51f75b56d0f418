"""Would the checks that users run notice? The islands of instance/simulation/planted have a bug that can be switched
on, every lock is granted at once: demo, benchmark and chaos have to fail with it, and without it to pass."""

import os
import shutil
import subprocess
import sys

import pytest

from chaos import SHAPES, Chaos
from cluster import Cluster, processes
from conftest import ROOT

EXPERIMENTS = os.path.join(ROOT, "experiments")
BUGS = {"none": False, "grant_every_lock": True}  # to be found?


@pytest.fixture(params=BUGS)
def planted(request, islands, folder, monkeypatch):
    """A folder of binaries whose islandd is the planted one, and whether its bug is to be found."""
    build = os.path.dirname(os.path.dirname(islands))
    program = os.path.join(build, "tests", "planted", "islandd")
    if not os.access(program, os.X_OK):
        pytest.skip(f"{program} is not built")
    binaries = os.path.join(folder, "build", "bin")
    os.makedirs(binaries)
    shutil.copy(islands, binaries)  # it looks for the others beside itself
    os.symlink(program, os.path.join(binaries, "islandd"))
    os.symlink(os.path.join(build, "lib"), os.path.join(folder, "build", "lib"))
    monkeypatch.setenv("ISLANDS_PLANTED_BUG", request.param)
    yield binaries, BUGS[request.param]
    assert processes(folder) == {}


def run(program, binaries, folder, *arguments):
    done = subprocess.run([sys.executable, os.path.join(EXPERIMENTS, program), "--quick", "--bin", binaries,
                           "--directory", os.path.join(folder, "work"), *arguments], capture_output=True, text=True,
                          timeout=120)
    print(done.stdout[-500:], done.stderr[-500:])
    return done


def check(done, found):
    assert (done.returncode != 0) == found
    assert ("the sum check failed" in done.stderr) == found


def test_demo(planted, folder):
    """Two workers seldom change the same one of 240,000 rows at the same time: a few times in a second. Where the bug
    is, the first run that shows it ends the demonstration."""
    binaries, found = planted
    check(run("demo.py", binaries, folder, "--seconds", "1.5" if found else "0.2", "--warmup", "0"), found)


def test_bench(planted, folder):
    binaries, found = planted
    check(run("bench.py", binaries, folder, "--only", "cores"), found)


def test_chaos(planted, islands, folder):
    binaries, found = planted
    cluster = Cluster(type(islands)(os.path.join(binaries, "islands")), folder)
    try:
        chaos = Chaos(cluster, SHAPES["2x1"], "cuts", seconds=2, pause=(0.3, 0.8), seed=1).run()
    finally:
        cluster.clean()
    print(chaos.summary())
    assert any("not strictly serializable" in finding for finding in chaos.findings) == found
    assert bool(chaos.findings) == found
