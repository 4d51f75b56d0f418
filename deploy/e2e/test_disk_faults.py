"""The nth call with which a real deployment changes its disk goes wrong (disk_faults.cc): its process is killed in it,
it fails with EIO or ENOSPC, or it was for nothing and power fails. For every n, spread over all that a deployment does,
and for every process: what was acknowledged is there afterwards, and `islands verify` has nothing to say.

    ISLANDS_FULL_TABLE=1   all places instead of a twentieth of them
    ISLANDS_SEED=N         which tenth, and what else is drawn
"""

import contextlib
import glob
import os
import random
import shutil
import signal
import time
from collections.abc import Callable

import pytest

from box import Box
from chaos import judge
from cluster import wait_until
from conftest import Islands, Result
from disk_faults import DiskFaults, Place, library
from planted import planted_islands

PLACES = 6  # of each role in each phase
FULL_EVERY, QUICK_EVERY = 1, 20
SURE, SURE_SHARE = 12, 0.6  # of the calls of a run that was looked at, in which the next one is about the same
MOST_OF_ONE = 6  # strikes on a deployment: the judge reads all that was seen since a load
STOP_S = 10.0

WORDS = {"EIO": "Input/output error", "ENOSPC": "No space left on device"}

Strike = tuple[str, Place]  # a phase, and where in it


# ---- What a deployment does. All but the first begin with one that is up; faults come once it is armed ----

Arm = Callable[[], None]


def first(box: Box, arm: Arm) -> list[Result]:
    arm()
    return [box.up()]


def load(box: Box, arm: Arm) -> list[Result]:
    arm()
    return [box.run(0.1, "--reload")]


def work(box: Box, arm: Arm) -> list[Result]:
    arm()
    return [box.run(0.3)]


def island(box: Box, arm: Arm) -> list[Result]:
    """One is killed in the middle of a run, and comes back."""
    with box.running(0.4) as process:
        pid = box.cluster.island(1)["pid"]
        arm()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    wait_until(lambda: not box.supervisor_lives() or faults_of(box).struck() or box.ready(), what="island 1")
    return [Result(process.returncode, out, err)]


def recovery(box: Box, arm: Arm) -> list[Result]:
    with box.running(60):
        time.sleep(0.1)
        box.kill_all()
    arm()
    return [box.up()]


def stop(box: Box, arm: Arm) -> list[Result]:
    with box.running(60):
        time.sleep(0.1)
        arm()
        return [box.down()]


def start(box: Box, arm: Arm) -> list[Result]:
    assert (done := box.down()).code == 0, done
    arm()
    return [box.up()]


PHASES: dict[str, Callable[[Box, Arm], list[Result]]] = {
    "first": first, "load": load, "work": work, "island": island, "recovery": recovery, "stop": stop, "start": start}


def faults_of(box: Box) -> DiskFaults:
    assert box.faults
    return box.faults


def failing_box(islands: Islands, durability: str, workers: int = 1) -> Box:
    box = Box(islands, durability, workers)
    box.faults = DiskFaults(box.folder, box.data)
    return box


def all_calls(islands: Islands) -> dict[str, dict[str, int]]:
    """Of each phase, by role, when nothing goes wrong."""
    box, calls = failing_box(islands, "lazy"), {}
    try:
        for phase, act in PHASES.items():
            done = act(box, faults_of(box).arm)
            calls[phase] = faults_of(box).calls()
            faults_of(box).disarm()
            assert phase == "island" or [result.code for result in done] == [0], (phase, done)
            if phase == "stop":
                assert box.up().code == 0
    finally:
        box.remove()
    return calls


def strikes(calls: dict[str, dict[str, int]]) -> list[Strike]:
    """Spread evenly over the calls of every role in every phase; how many of a run there are, depends on time."""
    found = []
    for phase, by_role in calls.items():
        for role, count in by_role.items():
            count = count if count < SURE else max(SURE, int(SURE_SHARE * count))
            steps = min(PLACES, count)
            found += [(phase, Place(role, 1 + i * (count - 1) // max(1, steps - 1))) for i in range(steps)]
    return found


class Series:
    """Strikes one after the other, on the same deployment as long as that is possible."""

    def __init__(self, islands: Islands, fault: str, rng: random.Random) -> None:
        self.islands, self.fault, self.rng = islands, fault, rng
        self.box: Box | None = None
        self.lost_power = False  # since the last load
        self.of_box = 0
        self.struck = 0
        self.lines: list[str] = []

    def close(self) -> None:
        if self.box:
            self.box.remove()
        self.box = None

    def strike(self, phase: str, place: Place) -> None:
        if phase == "first" or self.of_box >= MOST_OF_ONE:
            self.close()
        box = self.box = self.box or self.new_box()
        self.of_box += 1
        if phase != "first" and not box.cluster.alive():
            assert (begun := box.up()).code == 0, begun
        before = self.generation(box) if phase != "first" else 0
        older = box.history
        if phase == "load":
            box.new_history()
        began = time.monotonic()
        faults, before_words = faults_of(box), self.words(box, [])
        done = PHASES[phase](box, lambda: faults.arm(self.fault, place))
        struck = faults.struck()
        if struck and self.fault in WORDS:
            wait_until(lambda: self.words(box, done) > before_words, 5, f"words on {self.fault} in {struck}")
        self.settle(box, phase, place, struck)
        faults.disarm()
        self.struck += bool(struck)
        what = f"{self.fault} in {phase}, {place.role} {place.nth}: {struck.replace(box.folder, '')}"
        print(what, flush=True)
        self.check(box, phase, before, older, what)
        self.lines.append(f"{time.monotonic() - began:.2f} s {what}")

    def new_box(self) -> Box:
        """A loss of power must not take what was acknowledged, which is what `sync` promises."""
        self.of_box = 0
        kept = ("sync", "sync+forced") if self.fault == "lost" else ("lazy", "sync", "lazy+forced")
        durability = self.rng.choice(kept)
        self.lost_power = False
        box = failing_box(self.islands, durability, workers=self.rng.choice((1, 1, 2)))
        self.lines.append(f"{durability}, {box.workers} workers each")
        return box

    def generation(self, box: Box) -> int:
        return int(box.cluster.status()["log"]["data_generation"])

    def words(self, box: Box, done: list[Result]) -> int:
        """How often logs and commands have said that this went wrong."""
        text = "".join(result.out + result.err for result in done)
        for path in glob.glob(os.path.join(box.folder, "run", "*.log")):
            with open(path, encoding="utf-8") as file:
                text += file.read()
        return text.count(WORDS.get(self.fault, "?"))

    def settle(self, box: Box, phase: str, place: Place, struck: str) -> None:
        """Until nobody is alive."""
        if not struck:
            box.kill_all()
            return
        if self.fault == "lost":
            wait_until(lambda: not box.cluster.alive(), what="the end of all processes")
            shutil.rmtree(box.rings, ignore_errors=True)
            for spare in glob.glob(os.path.join(box.data, "spare-*")):
                os.remove(spare)
            self.lost_power = True
            return
        if self.fault == "EIO" and place.role == "logger" and struck.startswith("fdatasync"):
            wait_until(lambda: not box.supervisor_lives(), STOP_S, "the box to stop: a sync has failed")
        if self.fault == "kill" and place.role != "supervisor" and phase in ("work", "island"):
            wait_until(box.ready, what="those that were killed")
        if box.supervisor_lives() and self.rng.random() < 0.5:
            box.down()
        box.kill_all()

    def check(self, box: Box, phase: str, before: int, older: str, what: str) -> None:
        if phase != "first" or os.path.exists(os.path.join(box.data, "MANIFEST.json")):
            assert (done := box.verify()).code == 0, (what, done)
        assert (done := box.up()).code == 0, (what, done)
        if phase == "load" and self.generation(box) == before:
            box.history = older
        assert (ran := box.run()).code == 0, (what, ran)
        found = judge(box.history, "--keeps-answered" if self.lost_power else "--keeps")
        assert found["committed"] > 0 and not found["violations"], (what, found)


@pytest.fixture(scope="module")
def calls(islands: Islands) -> dict[str, dict[str, int]]:
    if not os.access(library(), os.R_OK):
        pytest.skip(f"{library()} is not built")
    return all_calls(islands)


@pytest.mark.parametrize("fault", [
    "kill", pytest.param("EIO", marks=pytest.mark.soak), pytest.param("ENOSPC", marks=pytest.mark.soak), "lost"])
def test_nth_call(islands: Islands, calls: dict[str, dict[str, int]], fault: str) -> None:
    seed = int(os.environ.get("ISLANDS_SEED") or random.SystemRandom().randrange(1, 2**31))
    print(f"again with ISLANDS_SEED={seed}; calls: {calls}")
    rng = random.Random(seed)
    places = strikes(calls)
    every = FULL_EVERY if os.environ.get("ISLANDS_FULL_TABLE") else QUICK_EVERY
    chosen = places[rng.randrange(every)::every]
    series = Series(islands, fault, rng)
    try:
        for phase, place in chosen:
            series.strike(phase, place)
    finally:
        print(*series.lines, sep="\n")
        series.close()
    print(f"{fault}: {series.struck} of {len(chosen)} struck")
    assert series.struck >= 0.5 * len(chosen)


def test_calls_that_are_interrupted_are_made_again(islands: Islands) -> None:
    """Every one, of everybody, once. Nothing may show."""
    box = failing_box(islands, "sync", workers=2)
    try:
        for phase, act in PHASES.items():
            done = act(box, lambda: faults_of(box).arm("EINTR"))
            assert faults_of(box).struck()
            faults_of(box).disarm()
            assert phase == "island" or [result.code for result in done] == [0], (phase, done)
            for path in glob.glob(os.path.join(box.folder, "run", "*.log")):
                with open(path, encoding="utf-8") as file:
                    assert "Interrupted" not in file.read(), (phase, path)
            if phase == "load":
                box.new_history()
                assert (done := [box.run(0.1, "--reload")])[0].code == 0, done
            if phase == "stop":
                assert box.up().code == 0
        assert box.run().code == 0
        found = judge(box.history, "--keeps")
        assert found["committed"] > 0 and not found["violations"], found
    finally:
        box.remove()


@pytest.mark.planted
def test_a_logger_that_skips_a_sync_is_found(islands: Islands, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that all is durable, and did not sync the log: whatever is lost then was acknowledged."""
    monkeypatch.setenv("ISLANDS_PLANTED_BUG", "skip_log_sync")
    series = Series(planted_islands(islands, folder, "islands-logger"), "lost", random.Random(1))
    try:
        with pytest.raises(AssertionError, match="lost in work"):
            for nth in range(7, 37):
                series.strike("work", Place("logger", nth))
    finally:
        series.close()
