"""Histories of transactions on lists, through the gateway, of several programs with several clients each, while others
kill islands, the gateway, the logger, the supervisor: strictly serializable, as two judges say that do not know each
other, list_append.py and the crate adya.

    ISLANDS_FULL_TABLE=1   20,000 transactions and 25 kills of each cluster instead of 800 and 3
    ISLANDS_SEED=N         which transactions, whom, and when
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

import adya
import list_append
from chaos import SHAPES, Meter
from cluster import Cluster, cluster, wait_until  # noqa: F401
from conftest import BINARIES, ROOT, Document, Islands
from list_append import Answer
from planted import planted_islands

sys.path[:0] = [os.path.join(ROOT, "instance", "gateway", each) for each in ("python", "tools")]
sys.path[:0] = [os.path.join(os.path.dirname(BINARIES), "lib", "islands", "python")]
pytest.importorskip("grpc")
import history as tool  # noqa: E402
import islands as client  # noqa: E402
from historians import TABLE, Historians, Transactions  # noqa: E402

IS_FULL = bool(os.environ.get("ISLANDS_FULL_TABLE"))
SEED = int(os.environ.get("ISLANDS_SEED") or random.SystemRandom().randrange(1, 2**31))
TRANSACTIONS, KILLS = (20_000, 25) if IS_FULL else (800, 3)
PROGRAMS = 2
CLUSTERS = [("4x1", "sync"), ("2x2", "lazy")]
VICTIMS = ("island", "gateway", "supervisor", "logger", "island and gateway")
# Which of the engine's bugs (runtime/planted_bug.h) both judges have to see.
BUGS = ("grant_every_lock", "release_read_locks_early")


def start(cluster: Cluster, shape: str, durability: str) -> None:
    Meter(cluster, SHAPES[shape], durability, f"data:\n  tables:\n    - {TABLE}\ngateway: {{enabled: true}}\n")
    up(cluster)


def up(cluster: Cluster) -> None:
    status = cluster.up("--restarts", 1000)
    assert status["gateway"]["state"] == "ready", status


class Killer:
    """Kills one after the other, and waits until all is as before."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.cluster, self.rng = cluster, rng
        self.killed: Counter[str] = Counter()

    def kill(self, whom: str) -> None:
        status = self.cluster.status()
        pids = {"island": self.rng.choice(status["islands"])["pid"], "gateway": status["gateway"]["pid"],
                "logger": status["log"]["logger_pid"], "supervisor": status["supervisor_pid"]}
        dead = {pids[each] for each in whom.split(" and ")}
        for pid in dead:
            with contextlib.suppress(ProcessLookupError):  # it has died with the others
                os.kill(pid, signal.SIGKILL)
        self.killed[whom] += 1
        if whom == "supervisor":  # and nobody outlives it
            wait_until(self.nobody_lives, what="the end of all processes")
            up(self.cluster)
        else:
            wait_until(lambda: self.is_whole(dead), seconds=60, what=f"another {whom}")

    def nobody_lives(self) -> bool:
        """But those who write the history."""
        return all("history" in words for words in self.cluster.alive().values())

    def is_whole(self, dead: set[int]) -> bool:
        status = self.cluster.status()
        members: list[Document] = [*status["islands"], status["gateway"]]
        pids = [*(each["pid"] for each in members), status["log"]["logger_pid"]]
        return all(pids) and not dead & set(pids) and all(each["state"] == "ready" for each in members)


def in_turns(kills: int, rng: random.Random) -> list[str]:
    return [whom for _ in range(0, kills, len(VICTIMS)) for whom in rng.sample(VICTIMS, len(VICTIMS))][:kills]


def distributed_share(history: list[Answer], islands: int) -> float:
    """Of what was committed: how much of it had lists on several islands, which have runs of the range, alike long."""
    lists = tool.Lists(client.Table("history", ("uint64", "uint32"), (0, 100_000), 0, False, ()))
    committed = [{lists.step * number % lists.count * islands // lists.count for _, number, _ in answer["value"]}
                 for answer in history if answer["type"] == "ok"]
    return sum(len(where) > 1 for where in committed) / len(committed)


def judge(history: list[Answer], folder: str) -> dict[str, list[str]]:
    """What each judge that is there has found."""
    found = {"ours": list_append.violations(history)}
    if adya.is_there():
        found["adya"] = adya.violations(history, os.path.join(folder, "history.jsonl"))
    return found


def keep(history: list[Answer]) -> str:
    path = os.path.join(ROOT, "build", f"history-{SEED}.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(answer) + "\n" for answer in history)
    return path


@pytest.mark.parametrize(("shape", "durability"), CLUSTERS)
def test_histories_are_strictly_serializable_whoever_is_killed(cluster: Cluster, shape: str, durability: str) -> None:
    print(f"again with ISLANDS_SEED={SEED}")
    assert adya.is_there() or not IS_FULL, adya.MISSING
    first = KILLS * CLUSTERS.index((shape, durability))
    order = in_turns(first + KILLS, random.Random(SEED))[first:]
    rng = random.Random(SEED + first)
    start(cluster, shape, durability)
    killer, begun = Killer(cluster, rng), time.monotonic()
    with Historians(cluster, Transactions(SEED, TRANSACTIONS), PROGRAMS) as historians:
        for number, whom in enumerate(order):
            historians.await_answers((number + 1) * TRANSACTIONS // (KILLS + 1) - rng.randrange(TRANSACTIONS // 50))
            killer.kill(whom)
        historians.await_end()  # they are processes of the cluster's folder, too
        cluster.down()
        up(cluster)
        history = historians.history()
    run_s, begun = time.monotonic() - begun, time.monotonic()
    found = judge(history, cluster.folder)
    kinds = Counter(answer["type"] for answer in history)
    share = distributed_share(history, SHAPES[shape].islands)
    print(f"{shape} {durability}: {dict(kinds)}, {share:.0%} distributed, {dict(killer.killed)}; {run_s:.0f} s, judged "
          f"in {time.monotonic() - begun:.1f} s by {' and '.join(found)}")
    assert not any(found.values()), (found, keep(history))
    assert kinds.total() - len(historians.transactions.lists) == TRANSACTIONS and killer.killed.total() == KILLS
    assert kinds["ok"] > TRANSACTIONS / 3 and share > 0.5  # a busy machine is slow to bring back who was killed


def say(cluster: Cluster, lines: list[str], *options: str, code: int = 0) -> tuple[list[Answer], str]:
    """To one program with one client; its answers, and its complaint."""
    done = cluster.islands.run("history", cluster.file, *options, input="".join(line + "\n" for line in lines))
    assert done.code == code, done
    return [json.loads(line) for line in done.out.splitlines()], done.err


def test_what_the_command_says(cluster: Cluster) -> None:
    """Answers in the order of the lines, lists that outgrow a row, and complaints."""
    cluster.write(durability="lazy", more=f"data:\n  tables:\n    - {TABLE}\n    - {{name: short, key: [uint64], "
                                          "range: [0, 100]}\ngateway: {enabled: true}\n")
    cluster.up()
    elements = [10**18 + number for number in range(200)]  # 70 of them in a row
    lines = [json.dumps({"value": [["append", 3, element], ["append", 4, element], ["r", 3, None]]})
             for element in elements]
    answers, _ = say(cluster, lines)
    assert [answer["line"] for answer in answers] == list(range(1, len(lines) + 1))
    assert answers[-1]["type"] == "ok" and answers[-1]["value"][2] == ["r", 3, elements]
    assert all(answer["begin"] < answer["end"] for answer in answers)
    answers, _ = say(cluster, lines, "--table", "short")
    assert answers[-1]["type"] == "fail" and "list 3 is full" in answers[-1]["error"]
    last = [answer for answer in answers if answer["type"] == "ok"][-1]["value"][2][2]
    assert 60 < len(last) < 80 and last == elements[:len(last)]

    answers, complaint = say(cluster, [lines[0], '{"value": [["r", -1, null]]}', lines[1]], code=2)
    assert len(answers) == 1 and "line 2: found '{" in complaint and "lists from 0 to below 100000" in complaint
    assert "there is no table 'nowhere'" in say(cluster, lines, "--table", "nowhere", code=1)[1]


@pytest.mark.planted
@pytest.mark.parametrize("bug", ["none", *BUGS])
def test_a_planted_bug_is_seen(islands: Islands, folder: str, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    monkeypatch.setenv("ISLANDS_PLANTED_BUG", bug)
    binaries = planted_islands(islands, folder, "islandd")
    cluster = Cluster(binaries, os.path.join(folder, "cluster"))
    os.mkdir(cluster.folder)
    try:
        start(cluster, "2x1", "lazy")
        with Historians(cluster, Transactions(SEED, 1000), PROGRAMS) as historians:
            found = judge(historians.history(), folder)
    finally:
        assert cluster.clean() == {}
    print({name: len(each) for name, each in found.items()})
    assert {bool(each) for each in found.values()} == {bug != "none"}, found


def test_adya_drives_it(cluster: Cluster) -> None:
    """Its own transactions, in the form that `islands history` is made for."""
    if not adya.is_there():
        pytest.skip(adya.MISSING)
    start(cluster, "2x1", "lazy")
    killer = Killer(cluster, random.Random(SEED))
    process = subprocess.Popen([adya.PROGRAM, "run", "exec", "--url", f"'{cluster.islands}' history '{cluster.file}'",
                                "--txns", str(TRANSACTIONS // 4), "--processes", "4", "--seed", str(SEED), "--out",
                                os.path.join(cluster.folder, "adya.jsonl")],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for whom in ("gateway", "island") * (2 if IS_FULL else 1):
        time.sleep(1)
        killer.kill(whom)
    out, _ = process.communicate(timeout=300)
    print(out)
    assert process.returncode == adya.VALID and "\ttrue" in out, out
