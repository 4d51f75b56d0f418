"""SIGKILL again and again on real clusters that keep a log, four islands of one worker and two of two: one island, two
at once, the logger, the supervisor alone, everybody. What is hurt are in turns runs of

    append     whose histories of all lives are one, strictly serializable, with nothing excused
    transfer   where a fifth of the transactions read all accounts of all islands, and find no other total than there
               was in the beginning

and after the end of the whole cluster, and in the end, the sum over all rows is right.

    ISLANDS_FULL_TABLE=1   all the kills instead of a tenth
    ISLANDS_SEED=N         whom, and when
"""

import contextlib
import glob
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence

import pytest

from chaos import SHAPES, Meter, Shape, judge
from cluster import Cluster, cluster, wait_until  # noqa: F401

FULL_KILLS, QUICK_KILLS = 20, 2  # of each of the four clusters
KILLS_OF_ROWS = 5  # then others are loaded, for the other workload
PAUSE_S = (0.05, 0.5)  # from when a run has begun, or somebody is back
ACCOUNTS = 200
TABLES = f"""data:
  tables:
    - {{name: append, key: [uint64], range: [0, 24000], row_bytes: 120}}
    - {{name: account, key: [uint64], range: [0, {ACCOUNTS}], row_bytes: 8}}
"""
CLUSTERS = [("4x1", "lazy"), ("4x1", "sync+forced"), ("2x2", "lazy"), ("2x2", "sync+forced")]
MORE_OF_THE_SAME = CLUSTERS[1:3]
VICTIMS = ("island", "two", "logger", "supervisor", "everybody")
SEED = int(os.environ.get("ISLANDS_SEED") or random.SystemRandom().randrange(1, 2**31))


def in_turns(kills: int) -> list[str]:
    """Whom, over all clusters, so that a few of them see each."""
    rng = random.Random(SEED)
    return [whom for _ in range(0, kills, len(VICTIMS)) for whom in rng.sample(VICTIMS, len(VICTIMS))][:kills]


class Killed:
    """Kills one after the other, on the same cluster."""

    def __init__(self, cluster: Cluster, shape: Shape, durability: str, order: Sequence[str],
                 rng: random.Random) -> None:
        self.cluster, self.order, self.rng = cluster, list(order), rng
        Meter(cluster, shape, durability, TABLES)  # writes the deployment
        self.killed: Counter[str] = Counter()
        self.dead: list[int] = []  # of the last time
        self.histories: list[str] = []
        cluster.up("--restarts", 1000)

    def run(self, workload: str, seconds: float, *more: object) -> list[object]:
        options = (["--history", self.histories[-1], "--rows", 4, "--multisite", 60, "--zipf", 0.9, "--mpl", 4]
                   if workload == "append" else ["--remote", 50, "--totals", 20, "--mpl", 8])
        return ["run", self.cluster.file, workload, *options, "--warmup", 0, "--duration", seconds, "--results",
                os.path.join(self.cluster.folder, "results"), "--format", "json", *more]

    def loop(self, workload: str, kills: int) -> None:
        if workload == "append":
            self.histories.append(os.path.join(self.cluster.folder, f"history-{len(self.histories)}"))
            os.mkdir(self.histories[-1])
        self.check(workload, "--reload")
        while kills > 0:
            kills -= self.hurt(workload, kills)
            self.check(workload)
        if workload == "append":
            found = judge(self.histories[-1], "--keeps")
            print({name: found[name] for name in ("committed", "distributed", "unknown", "open", "deaths")})
            assert not found["violations"], found
            assert found["distributed"] > 0

    def hurt(self, workload: str, most: int) -> int:
        """In one run; how often. The end of the cluster is the end of the run."""
        process = self.cluster.start(*self.run(workload, 60))
        kills = 0
        try:
            wait_until(lambda: process.poll() is not None or any(
                island["running"] for island in self.cluster.status()["islands"]), what="the run")
            while kills < most:
                time.sleep(self.rng.uniform(*PAUSE_S))
                assert process.poll() is None, process.communicate()
                kills += 1
                if self.kill():
                    wait_until(self.nobody_lives, what="the end of all processes")
                    self.cluster.up("--restarts", 1000)
                    break
                wait_until(self.ready, what="those that were killed")
        finally:
            process.kill()
            process.communicate()
        return kills

    def kill(self) -> bool:
        """Whether that was the end of the cluster: nobody outlives the supervisor."""
        whom, status = self.order.pop(0), self.cluster.status()
        islands = [island["pid"] for island in status["islands"]]
        logger, supervisor = status["log"]["logger_pid"], status["supervisor_pid"]
        self.dead = {"island": self.rng.sample(islands, 1), "two": self.rng.sample(islands, 2), "logger": [logger],
                     "supervisor": [supervisor], "everybody": [*islands, logger, supervisor]}[whom]
        for pid in self.dead:
            with contextlib.suppress(ProcessLookupError):  # it has died with the others
                os.kill(pid, signal.SIGKILL)
        self.killed[whom] += 1
        return whom in ("supervisor", "everybody")

    def nobody_lives(self) -> bool:
        """But the run."""
        return all(" run " in words for words in self.cluster.alive().values())

    def ready(self) -> bool:
        """The supervisor has seen who is dead, and others are there for them."""
        status = self.cluster.status()
        pids = [*(island["pid"] for island in status["islands"]), status["log"]["logger_pid"]]
        return (all(pids) and not set(pids) & set(self.dead) and
                all(island["state"] == "ready" for island in status["islands"]))

    def check(self, workload: str, *more: object) -> None:
        done = self.cluster.islands.run(*self.run(workload, 0.2, *more))
        assert done.code == 0, (done, self.killed)
        result = json.loads(done.out)
        assert result["sum_check"] == "ok" and result["committed"] > 0, (result, self.killed)
        for path in glob.glob(os.path.join(self.cluster.folder, "run", "island-*.log")):
            with open(path, encoding="utf-8") as file:  # of all lives, whose counters have died with them
                assert "has read what cannot be" not in file.read(), path


@pytest.mark.parametrize(("shape", "durability"), [
    pytest.param(*each, marks=pytest.mark.soak if each in MORE_OF_THE_SAME else ()) for each in CLUSTERS])
def test_all_lives_are_one(cluster: Cluster, shape: str, durability: str) -> None:
    print(f"again with ISLANDS_SEED={SEED}")
    kills = FULL_KILLS if os.environ.get("ISLANDS_FULL_TABLE") else QUICK_KILLS
    first = kills * CLUSTERS.index((shape, durability))
    killed = Killed(cluster, SHAPES[shape], durability, in_turns(first + kills)[first:], random.Random(SEED))
    rounds = max(2, kills // KILLS_OF_ROWS)
    for number in range(rounds):
        killed.loop(("append", "transfer")[number % 2], kills // rounds)
    cluster.down()
    assert cluster.islands.run("verify", cluster.file).code == 0
    print(dict(killed.killed))
    assert killed.killed.total() == kills
