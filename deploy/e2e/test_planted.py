"""Would the checks that users run notice? The islands of instance/simulation/planted have a bug that can be switched
on, every lock is granted at once: demo, benchmark, chaos and totals amid transfers have to fail with it, and without it
to pass."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from chaos import SHAPES, Chaos
from cluster import Cluster, processes
from conftest import ROOT, Islands
from planted import planted_islands

EXPERIMENTS = os.path.join(ROOT, "experiments")
pytestmark = pytest.mark.planted
BUGS = {"none": False, "grant_every_lock": True}  # to be found?


@pytest.fixture(params=BUGS)
def planted(request: pytest.FixtureRequest, islands: Islands, folder: str,
            monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, bool]]:
    """A folder of binaries whose islandd is the planted one, and whether its bug is to be found."""
    binaries = os.path.dirname(planted_islands(islands, folder, "islandd"))
    monkeypatch.setenv("ISLANDS_PLANTED_BUG", request.param)
    yield binaries, BUGS[request.param]
    assert processes(folder) == {}


def start(program: str, binaries: str, folder: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, os.path.join(EXPERIMENTS, program), "--quick", "--bin", binaries,
                             "--directory", os.path.join(folder, program.removesuffix(".py")), *arguments],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_checks(planted: tuple[str, bool], islands: Islands, folder: str) -> None:
    """All three at once, since they mostly wait."""
    binaries, found = planted
    programs = [start("demo.py", binaries, folder, "--seconds", "0.2", "--warmup", "0"),
                # Its last measurement loses an update in every 70 ms, and outlasts the others, which take its cores.
                start("bench.py", binaries, folder, "--only", "cores", "--seconds", "0.8")]
    os.mkdir(os.path.join(folder, "chaos"))
    cluster = Cluster(type(islands)(os.path.join(binaries, "islands")), os.path.join(folder, "chaos"))
    try:
        chaos = Chaos(cluster, SHAPES["2x1"], "cuts", seconds=2, pause=(0.3, 0.8), seed=1).run()
        print(chaos.summary())
        ended = [(*program.communicate(timeout=120), program.returncode) for program in programs]
    finally:
        cluster.clean()
        for program in programs:
            if program.poll() is None:
                program.send_signal(signal.SIGINT)  # takes its islands along
                program.communicate(timeout=60)
    assert any("not strictly serializable" in finding for finding in chaos.findings) == found
    assert bool(chaos.findings) == found
    for out, err, code in ended:
        print(out[-500:], err[-500:])
        assert (code != 0) == found
        assert ("the sum check failed" in err) == found


def test_totals_inside_reads(planted: tuple[str, bool], folder: str) -> None:
    """Counters are added to in place, so that the sum afterwards is right all the same."""
    binaries, found = planted
    os.mkdir(os.path.join(folder, "totals"))
    cluster = Cluster(Islands(os.path.join(binaries, "islands")), os.path.join(folder, "totals"))
    cluster.write(more="data: {tables: [{name: account, key: [uint64], range: [0, 200], row_bytes: 8}]}\n").up()
    try:
        done = cluster.islands.run("run", cluster.file, "transfer", "--remote", 50, "--totals", 20, "--duration", 1,
                                   "--warmup", 0, "--format", "json", "--results",
                                   os.path.join(cluster.folder, "results"))
    finally:
        cluster.clean()
    result = json.loads(done.out)
    assert result["committed"] > 0 and result["sum_check"] == "ok", done
    assert done.code == (1 if found else 0), done
    assert ("transactions of island 0 have read what cannot be" in done.err) == found, done
    assert ("contradiction" in result["aborts_by_reason"]) == found, done
    with open(os.path.join(cluster.folder, "run", "island-0.log"), encoding="utf-8") as file:
        assert ("transfer: all accounts together have " in file.read()) == found
