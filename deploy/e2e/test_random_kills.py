"""SIGKILL at a random instruction: another process's timer kills an island, and everybody else right after it. Then the
rings and the log files are read record by record: they are whole, and have all that clients were told (log_judge). The
next start recovers it, and histories of all lives are one, strictly serializable, with nothing excused.

    ISLANDS_FULL_TABLE=1   all the kills instead of a twentieth
    ISLANDS_SEED=N         when and whom
"""

import contextlib
import glob
import json
import os
import random
import signal
import subprocess
import time

import pytest

from box import Box
from chaos import judge
from cluster import wait_until
from conftest import BINARIES, Document, Islands
from planted import planted_islands

FULL_KILLS, QUICK_KILLS = 100, 5  # of each shape
LATEST_S = 0.05  # from when the run has begun
MOST_OF_ONE = 10  # kills of a deployment: its log is read from the beginning each time

def kill_later(seconds: float, pids: list[int]) -> int:
    """A process of its own, which sleeps and then kills them, one right after the other. Its id."""
    killer = os.fork()
    if killer:
        return killer
    end = time.monotonic() + seconds
    time.sleep(max(0.0, seconds - 0.001))
    while time.monotonic() < end:
        pass
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(0)


def judge_log(box: Box) -> Document:
    """What `log_judge` finds."""
    with open(os.path.join(box.data, "MANIFEST.json"), encoding="utf-8") as file:
        cluster_id = json.load(file)["cluster_id"]
    binaries = os.path.dirname(BINARIES) if os.path.isfile(BINARIES) else BINARIES
    program = os.path.join(binaries, "..", "tests", "log_judge")
    done = subprocess.run([program, "--cluster", cluster_id, "--islands", "2", "--log",
                           os.path.join(box.data, "log"), "--rings", box.rings, box.history], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode in (0, 1), done
    found: Document = json.loads(done.stdout)
    return found


class Killed:
    """Kills one after the other, on the same rows."""

    def __init__(self, islands: Islands, durability: str, workers: int, rng: random.Random) -> None:
        self.rng = rng
        self.box = Box(islands, durability, workers)
        self.all = os.path.join(self.box.folder, "all")  # histories of lives that have been looked at
        os.mkdir(self.all)
        self.answered = self.in_rings = self.in_files = 0

    def once(self) -> None:
        assert (done := self.box.up()).code == 0, done
        with self.box.running(60):
            status = self.box.cluster.status()
            pids = [one["pid"] for one in status["islands"]]
            victims = self.rng.sample(pids, self.rng.choice((1, 1, 2)))
            if self.rng.random() < 0.2:
                victims.insert(0, status["log"]["logger_pid"])
            # Who dies with the supervisor dies by the kernel's signal, at an instruction as random as the others.
            killer = kill_later(self.rng.uniform(0, LATEST_S), [*victims, status["supervisor_pid"]])
            os.waitpid(killer, 0)
            wait_until(lambda: not self.box.islands_live(), what="the end of all processes")
        found = judge_log(self.box)
        assert found["whole"], (victims, pids, found)
        self.answered += found["answered"]
        self.in_rings += found["records_in_rings"]
        self.in_files += found["records_in_files"]
        self.keep()

    def keep(self) -> None:
        for path in glob.glob(os.path.join(self.box.history, "*.history")):
            os.rename(path, os.path.join(self.all, os.path.basename(path)))

    def end(self) -> Document:
        """What the judge finds in all histories."""
        assert (done := self.box.up()).code == 0, done
        assert (done := self.box.run(0.3)).code == 0, done
        self.keep()
        assert (done := self.box.down()).code == 0, done
        assert (done := self.box.verify()).code == 0, done
        return judge(self.all, "--keeps")


@pytest.mark.parametrize(("workers", "durability"), [
    pytest.param(1, "lazy", marks=pytest.mark.soak), (2, "lazy"), (1, "sync")])
def test_rings_have_what_was_answered(islands: Islands, workers: int, durability: str) -> None:
    seed = int(os.environ.get("ISLANDS_SEED") or random.SystemRandom().randrange(1, 2**31))
    print(f"again with ISLANDS_SEED={seed}")
    rng, kills = random.Random(seed), FULL_KILLS if os.environ.get("ISLANDS_FULL_TABLE") else QUICK_KILLS
    answered = 0
    while kills > 0:
        killed = Killed(islands, durability, workers, rng)
        try:
            for _ in range(min(kills, MOST_OF_ONE)):
                killed.once()
            found = killed.end()
        finally:
            killed.box.remove()
        print(f"{killed.answered} answers, {killed.in_rings} records in rings, {killed.in_files} in files;",
              {name: found[name] for name in ("committed", "distributed", "unknown", "open", "deaths")})
        assert not found["violations"], found
        assert killed.answered > 100 and killed.in_rings > 0 and found["deaths"] > 0
        kills -= MOST_OF_ONE


@pytest.mark.planted
def test_a_vote_without_its_record_is_found(islands: Islands, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A participant says YES, and nothing of its branch is in its log."""
    monkeypatch.setenv("ISLANDS_PLANTED_BUG", "vote_unprepared")
    killed = Killed(planted_islands(islands, folder, "islandd"), "lazy", 1, random.Random(1))
    try:
        with pytest.raises(AssertionError, match="answered as committed, and the log of island . does not say so"):
            for _ in range(10):
                killed.once()
    finally:
        killed.box.remove()
