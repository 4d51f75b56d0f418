"""Hurts islands at random in the middle of a run of a real cluster, and checks what must hold all the same.

`make chaos` runs this file for minutes, test_chaos.py the same for seconds. The workload `append`, with 80 % multisite
transactions at Zipf 0.9, writes down what its transactions see, while every few seconds a random island

    kills   gets SIGKILL, at times two at once; the supervisor starts it again, and it gets its part of the run again
    hangs   stands still (SIGSTOP), for longer than a deadline at times, and goes on (SIGCONT)
    cuts    loses all connections that others have dialled to one of its workers

What must hold:

 1. The run ends by itself, in time.
 2. No transaction waits longer for its answer than its deadline and SLACK_S, and as long as its own island stood still.
    Islands tell the longest wait of any of their transactions, answered or not; they are asked twice a second, and
    right before they are killed.
 3. Soon after the run every transaction has been answered (no slot is in flight), and no lock and no branch is left.
 4. Islands die of our kills only, each comes back, the supervisor is the one of the beginning.
 5. There is never a standstill of the whole cluster for longer than a deadline. With a log the rings are full within
    a second and wait for two syncs of the disk (disk_watch.py), and an island that recovers may be the only one that
    is left: that time is allowed as well.
 6. A short run afterwards finds the sum over all rows right, `down` works, no process is left.
 7. All that transactions of both runs saw is strictly serializable (experiments/append/append_judge.h says what holds
    for those whose island died); every transaction of an island that nobody killed has an end.

The clients of an island are its own slots: what was open on a killed island has nobody left to be answered. Victims and
pauses follow from the seed, the interleaving does not. Minutes are spent in rounds of at most ROUND_S, each on a
cluster of its own: a history has to fit into the judge's memory.
"""

import argparse
import contextlib
import csv
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cluster import Cluster, wait_until
from conftest import BINARIES, Document, Islands
from disk_watch import DiskWatch
from links import cut_links_to
from test_metrics import scrape

DEADLINE_S = 2.0  # timeouts.transaction_ms
SLACK_S = 1.0     # workers share cores with each other and with us
STOP_S = 15.0     # from the end of the run's time to the end of `islands run`
QUIET_S = 15.0    # from there until all islands are back and hold nothing
LOOK_S = 0.5
ROUND_S = 12.0
HANG_S = (0.2, 1.5 * DEADLINE_S)

MODES = ("kills", "hangs", "cuts")
DURABILITIES = ("none", "lazy", "sync", "lazy+forced", "sync+forced", "command")
TABLES = """data:
  tables:
    - {name: micro, key: [uint64], range: [0, 240000], row_bytes: 250}
    - {name: append, key: [uint64], range: [0, 24000], row_bytes: 120}
"""

Held = dict[str, float]  # what an island says of itself, by the words of GAUGES


class Shape(NamedTuple):
    islands: int
    workers: int  # of each island


SHAPES = {"2x1": Shape(2, 1), "4x1": Shape(4, 1), "2x2": Shape(2, 2)}

GAUGES = {"islands_transactions_in_flight": "in flight", "islands_participant_branches": "branches",
          "islands_locks_held": "locks held", "islands_transaction_longest_wait_seconds": "longest wait"}
HELD = ("in flight", "branches", "locks held")
LINE = re.compile(r"^(\w+)(?:\{.*\})? (\S+)$")


class Meter:
    """Reads the islands' metrics. Another cluster may have taken a port while an island was away, so the deployment's
    name is one of a kind and looked for in every answer."""

    def __init__(self, cluster: Cluster, shape: Shape, durability: str = "none", tables: str = TABLES) -> None:
        """Writes a deployment of this shape for any machine: it runs unbound."""
        self.islands = shape.islands
        self.base = free_ports(shape.islands)
        self.name = f"chaos-{random.SystemRandom().getrandbits(48):x}"
        machine = f"pack:{shape.islands} [numa(memory=1GB)] core:{shape.workers} pu:1"
        cluster.write(f"{shape.islands}ISL", name=self.name, durability=durability,
                      more=f"machine: '{machine}'\ntimeouts: {{transaction_ms: {DEADLINE_S * 1000:.0f}}}\n" + tables)
        with open(cluster.file, encoding="utf-8") as file:
            text = file.read().replace("base_port: 0", f"base_port: {self.base}")
        with open(cluster.file, "w", encoding="utf-8") as file:
            file.write(text)

    def one(self, island: int) -> Held | None:
        """What an island holds at this moment, and its longest wait; None if it does not answer."""
        try:
            text = scrape(self.base + island)
        except (OSError, http.client.HTTPException):
            return None
        return parse(text) if f'deployment="{self.name}"' in text else None

    def all(self) -> list[Held | None]:
        return [self.one(island) for island in range(self.islands)]


def free_ports(count: int) -> int:
    """A base port with `count` free ports in a row, below those that the kernel hands out by itself."""
    while True:
        base = random.SystemRandom().randrange(20000, 32000)
        with contextlib.ExitStack() as opened:
            try:
                for port in range(base, base + count):
                    opened.enter_context(socket.create_server(("127.0.0.1", port)))
                return base
            except OSError:
                continue


def parse(text: str) -> Held:
    values: dict[str, list[float]] = {name: [] for name in GAUGES}
    for line in text.splitlines():
        match = LINE.match(line)
        if match and match[1] in values:
            values[match[1]].append(float(match[2]))
    return {word: max(values[name]) if word == "longest wait" else sum(values[name]) for name, word in GAUGES.items()}


def holds_nothing(found: Held | None) -> bool:
    return found is not None and not any(found[name] for name in HELD)


def held_text(found: Sequence[Held | None]) -> str:
    def text(one: Held | None) -> str:
        return ", ".join(f"{one[name]:.0f} {name}" for name in HELD) if one else "no answer"
    return "; ".join(f"island {island}: {text(one)}" for island, one in enumerate(found))


def rates_per_second(result: Document) -> list[tuple[str, float]]:
    """Committed per second of all islands together, in order of time."""
    sums: dict[str, float] = {}
    with open(os.path.join(result["run_directory"], "timeseries.csv"), encoding="utf-8") as file:
        for row in csv.DictReader(file):
            sums[row["elapsed_s"]] = sums.get(row["elapsed_s"], 0.0) + float(row["committed_per_s"])
    return list(sums.items())


def longest_standstill(result: Document) -> float:
    """Seconds in a row in which no island committed anything."""
    longest = last = 0.0
    for elapsed, rate in rates_per_second(result):
        if rate > 0:
            last = float(elapsed)
        longest = max(longest, float(elapsed) - last)
    return longest


def abort_share(result: Document) -> float:
    return result["aborted"] / max(1, result["committed"] + result["aborted"])


def outcomes_text(result: Document) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(result["aborts_by_reason"].items()))
    return (f"committed {result['committed']} ({result['committed_per_s']:.0f}/s), aborted {result['aborted']} = "
            f"{100 * abort_share(result):.3f} % ({reasons}), unknown {result['unknown']}")


def judge(history: str, *options: str) -> Document:
    """What `append_judge` finds."""
    binaries = os.path.dirname(BINARIES) if os.path.isfile(BINARIES) else BINARIES
    program = os.path.join(binaries, "..", "tests", "append_judge")
    done = subprocess.run([program, *options, history], capture_output=True, text=True, timeout=600)
    if done.returncode not in (0, 1):
        raise ValueError(f"the judge does not understand the history: {done.stderr}")
    return json.loads(done.stdout)


class Chaos:
    """One run that is hurt. `findings` are the promises that were broken, `lines` the summary."""

    def __init__(self, cluster: Cluster, shape: Shape, mode: str, seconds: float, pause: Sequence[float], seed: int,
                 zipf: float = 0.9, durability: str = "none") -> None:
        self.durability = durability
        self.logger_kills = 0
        self.cluster, self.shape, self.mode, self.seconds, self.pause = cluster, shape, mode, seconds, pause
        self.seed, self.zipf, self.random = seed, zipf, random.Random(seed)
        self.history = os.path.join(cluster.folder, "history")
        self.findings: list[str] = []
        self.lines: list[str] = []
        self.hurts: list[tuple[int, str, int]] = []  # (island, how, how many at once)
        self.pids: set[int] = set()  # that were killed
        self.stopped: tuple[int, int, float] | None = None  # (island, pid, until when)
        self.hung_s = dict.fromkeys(range(shape.islands), 0.0)  # the longest of each
        self.longest_wait = dict(self.hung_s)
        self.most_locks = 0.0
        self.looks = 0  # that were answered
        self.disk_s = self.nobody_s = 0.0  # longest sync; longest time in which no island was ready
        self.somebody_at = 0.0

    def run(self) -> "Chaos":
        self.meter = Meter(self.cluster, self.shape, self.durability)
        self.cluster.up("--restarts", 1000)
        supervisor = self.cluster.status()["supervisor_pid"]
        os.mkdir(self.history)
        with DiskWatch(self.cluster.folder) as disk:
            result = self.attack()
        self.disk_s = disk.longest_s
        if result:
            self.check_result(result)
        self.demand(self.looks > 0, "no island told its metrics during the run")
        self.check_quiet()
        self.check_lives(supervisor)
        if result:
            self.check_sum()
        self.check_down()
        self.check_history()
        return self

    def say(self, name: str, text: str) -> None:
        self.lines.append(f"  {name:<18} {text}")

    def demand(self, holds: object, finding: str) -> None:
        if not holds:
            self.findings.append(finding)

    def options(self) -> list[str]:
        return ["append", "--history", self.history, "--rows", "4", "--multisite", "80", "--zipf", str(self.zipf),
                "--results", os.path.join(self.cluster.folder, "results")]

    def attack(self) -> Document | None:
        options = [*self.options(), "--mpl", 4, "--duration", self.seconds, "--warmup", 0, "--seed", self.seed]
        out, err = (os.path.join(self.cluster.folder, name) for name in ("run.out", "run.err"))
        with open(out, "w", encoding="utf-8") as out_file, open(err, "w", encoding="utf-8") as err_file:
            process = subprocess.Popen([self.cluster.islands, "run", self.cluster.file, *map(str, options), "--format",
                                        "json"], stdout=out_file, stderr=err_file)
        try:
            ended = self.hurt_until_it_ends(process)
        finally:
            self.go_on()
            if process.poll() is None:
                process.kill()
                process.wait()
        if not ended:
            self.demand(False, f"the run did not end within {STOP_S:.0f} s after its time")
            return None
        with open(out, encoding="utf-8") as out_file, open(err, encoding="utf-8") as err_file:
            text = out_file.read()
            result = json.loads(text) if text else None  # also where its sum check failed
            lost = any(island["lost"] for island in (result or {}).get("per_island", ()))
            self.demand(process.returncode == lost,
                        f"`islands run` failed with {process.returncode}: {err_file.read()[-2000:]}")
            return result

    def hurt_until_it_ends(self, process: subprocess.Popen[bytes]) -> bool:
        """False when it had to be ended."""
        wait_until(lambda: process.poll() is not None or any(
            island["running"] for island in self.cluster.status()["islands"]), seconds=60, what="the run")
        begin = self.somebody_at = time.monotonic()
        end = begin + self.seconds
        next_hurt = begin + self.random.uniform(*self.pause)
        while process.poll() is None:
            now = time.monotonic()
            if now > end + STOP_S:
                return False
            if self.stopped and now >= min(self.stopped[2], end):
                self.go_on()
            if next_hurt <= now < end and not self.stopped:
                {"kills": self.kill, "hangs": self.hang, "cuts": self.cut}[self.mode]()
                next_hurt = time.monotonic() + self.random.uniform(*self.pause)
            self.look(range(self.shape.islands))
            self.look_for_anybody()
            wake = min(now + LOOK_S, self.stopped[2] if self.stopped else max(next_hurt, now))
            time.sleep(max(0, wake - time.monotonic()))
        self.say("run ended", f"{max(0.0, time.monotonic() - end):.1f} s after its time")
        return True

    def look(self, islands: Iterable[int]) -> None:
        for island in islands:
            if self.stopped and self.stopped[0] == island:
                continue
            found = self.meter.one(island)
            if found:
                self.looks += 1
                self.longest_wait[island] = max(self.longest_wait[island], found["longest wait"])
                self.most_locks = max(self.most_locks, found["locks held"])

    def look_for_anybody(self) -> None:
        now = time.monotonic()
        if any(island["state"] == "ready" for island in self.cluster.status()["islands"]):
            self.somebody_at = now
        self.nobody_s = max(self.nobody_s, now - self.somebody_at)

    def kill(self) -> None:
        # Drawn before anything that depends on time, so that a seed means the same victims.
        count = 1 + (self.shape.islands > 2 and self.random.random() < 0.25)
        drawn = self.random.sample(range(self.shape.islands), count)
        if self.durability != "none" and self.random.random() < 0.3:
            self.kill_logger()
        islands = self.cluster.status()["islands"]
        victims = [islands[victim] for victim in drawn
                   if islands[victim]["pid"] and islands[victim]["pid"] not in self.pids]
        for victim in victims:
            self.look([victim["id"]])
            os.kill(victim["pid"], signal.SIGKILL)
            self.pids.add(victim["pid"])
            self.hurts.append((victim["id"], victim["state"], len(victims)))

    def kill_logger(self) -> None:
        pid = self.cluster.status()["log"]["logger_pid"]
        if pid:
            os.kill(pid, signal.SIGKILL)
            self.logger_kills += 1

    def hang(self) -> None:
        victim, seconds = self.random.randrange(self.shape.islands), self.random.uniform(*HANG_S)
        pid = self.cluster.island(victim)["pid"]
        self.stopped = (victim, pid, time.monotonic() + seconds)
        os.kill(pid, signal.SIGSTOP)
        self.hurts.append((victim, f"{seconds:.1f} s", 1))

    def go_on(self) -> None:
        if self.stopped:
            island, pid, until = self.stopped
            os.kill(pid, signal.SIGCONT)
            late_s = max(0.0, time.monotonic() - until)
            self.hung_s[island] = max(self.hung_s[island], float(self.hurts[-1][1].split()[0]) + late_s)
            self.stopped = None

    def cut(self) -> None:
        victim, worker = self.random.randrange(self.shape.islands), self.random.randrange(self.shape.workers)
        connections = cut_links_to(self.cluster.island(victim)["pid"], victim, worker)
        self.hurts.append((victim, f"{connections} connections", 1))

    def check_result(self, result: Document) -> None:
        standstill = longest_standstill(result)
        self.demand(result["committed"] > 0, "nothing was committed")
        allowed = DEADLINE_S + SLACK_S + (2 * self.disk_s + self.nobody_s if self.durability != "none" else 0)
        self.demand(standstill <= allowed, f"no island committed anything for {standstill:.1f} s")
        self.say("outcomes", outcomes_text(result))
        rates = ", ".join(f"{one['committed_per_s']:.0f}" for one in result["per_island"])
        self.say("committed/s", f"by island {rates}")
        self.say("latency us", ", ".join(f"{name} {value:.0f}" for name, value in result["latency_us"].items()))
        self.say("standstill", f"at most {standstill:.1f} s; allowed {allowed:.1f} s; longest sync of the disk "
                               f"{self.disk_s:.2f} s; no island ready for {self.nobody_s:.1f} s")

    def check_quiet(self) -> None:
        """Every island is back and holds nothing; kills until the last second leave some of them starting."""
        begin = time.monotonic()
        found: list[Held | None] = []
        states: list[str] = []
        while time.monotonic() < begin + QUIET_S:
            states = [island["state"] for island in self.cluster.status()["islands"]]
            found = self.meter.all()
            if all(map(holds_nothing, found)) and set(states) == {"ready"}:
                break
            time.sleep(0.05)
        else:
            self.findings.append(f"{QUIET_S:.0f} s after the run: {', '.join(states)}; {held_text(found)}")
        self.look(range(self.shape.islands))
        for island, longest_s in self.longest_wait.items():
            self.demand(longest_s <= DEADLINE_S + SLACK_S + self.hung_s[island],
                        f"a transaction of island {island} waited {longest_s:.2f} s for its answer; its deadline is "
                        f"{DEADLINE_S:g} s, and the island stood still for at most {self.hung_s[island]:.2f} s")
        longest_s = max(self.longest_wait.values())
        self.demand(longest_s > 0 and self.most_locks > 0, "islands tell no waits and no locks")
        self.say("longest wait", f"{longest_s:.2f} s for an answer; allowed {DEADLINE_S:g} + {SLACK_S:g} s; "
                                 f"{self.looks} looks")
        self.say("locks held", f"at most {self.most_locks:.0f} on an island when looked at")
        self.say("at the end", f"{held_text(found)}; after {time.monotonic() - begin:.1f} s")

    def check_lives(self, supervisor: int) -> None:
        status = self.cluster.status()
        restarts = sum(island["restarts"] for island in status["islands"])
        by_island = [sum(island == hurt[0] for hurt in self.hurts) for island in range(self.shape.islands)]
        kills = len(self.hurts) if self.mode == "kills" else 0
        self.demand(self.hurts, "nothing was hurt")
        self.demand(restarts == kills, f"{kills} kills and {restarts} restarts: islands died by themselves, or did not "
                                       "come back")
        self.demand(status["supervisor_pid"] == supervisor, "the supervisor is another one")
        text = f"{len(self.hurts)}, by island {', '.join(map(str, by_island))}"
        if self.mode == "kills":
            early = sum(state != "ready" for _, state, _ in self.hurts)
            text += (f"; {sum(many > 1 for _, _, many in self.hurts) // 2} times two at once, {early} hit an island "
                     f"that was not ready yet; {restarts} restarts; the logger {self.logger_kills} times")
        else:
            text += "; " + ", ".join(how for _, how, _ in self.hurts)
        self.say(self.mode, text)

    def check_sum(self) -> None:
        """Every island takes part: afterwards the history knows the last life of each."""
        done = self.cluster.islands.run("run", self.cluster.file, *self.options(), "--duration", 0.3, "--warmup", 0,
                                        "--format", "json")
        self.demand(done.out, f"the run afterwards failed: {done.err}")
        if not done.out:
            return
        after = json.loads(done.out)
        self.demand(after["sum_check"] == "ok", f"the run afterwards: {after['sum_check_detail']}")
        self.say("afterwards", f"sum check {after['sum_check']}, {outcomes_text(after)}")

    def check_history(self) -> None:
        try:
            found = judge(self.history, *(["--keeps"] if self.durability != "none" else []))
        except ValueError as error:
            self.findings.append(str(error))
            return
        for violation in found["violations"]:
            self.findings.append(f"not strictly serializable: {violation}")
        self.demand(found["distributed"] > 0, "no distributed transaction committed")
        if self.mode == "kills":
            # A transaction without an end makes a life dead for the judge, which then forgives it more.
            self.demand(found["deaths"] <= len(self.hurts),
                        f"{found['deaths']} lives of islands ended, and {len(self.hurts)} were killed: a transaction "
                        "of one that nobody killed has no end")
        else:
            self.demand(found["deaths"] == found["open"] == 0, f"transactions without an end, or islands that died: "
                                                               f"{found['open']}, {found['deaths']}")
        self.say("history", ", ".join(f"{found[name]} {name}" for name in (
            "committed", "distributed", "aborted", "unknown", "open", "cut", "deaths", "edges")))

    def check_down(self) -> None:
        done = self.cluster.islands.run("down", self.cluster.file)
        left = self.cluster.alive()
        self.demand(done.code == 0, f"`islands down` failed: {done.err}")
        self.demand(not left, f"processes were left behind: {left}")

    def summary(self) -> str:
        head = (f"{self.mode} on {self.shape.islands} islands x {self.shape.workers} workers, {self.seconds:.0f} s, "
                f"seed {self.seed}: append to 4 rows, 80 % multisite, zipf {self.zipf:g}, mpl 4, "
                f"durability {self.durability}")
        verdict = [f"  BROKEN: {finding}" for finding in self.findings] or ["  every promise was kept"]
        return "\n".join([head, *self.lines, *verdict])


def one_round(shape_name: str, mode: str, seconds: float, seed: int, arguments: argparse.Namespace) -> bool:
    """Whether every promise was kept."""
    folder = tempfile.mkdtemp(prefix="islands-")
    path = BINARIES if os.path.isfile(BINARIES) else os.path.join(BINARIES, "islands")
    cluster = Cluster(Islands(path), folder)
    print(f"repeat with: {sys.argv[0]} --shape {shape_name} --mode {mode} --minutes {seconds / 60:g} --seed {seed} "
          f"--zipf {arguments.zipf:g} --durability {arguments.durability}", flush=True)
    try:
        pause = arguments.pause or ((1, 5) if mode == "kills" else (0.5, 2))
        chaos = Chaos(cluster, SHAPES[shape_name], mode, seconds, pause, seed, arguments.zipf,
                      arguments.durability).run()
    finally:
        cluster.clean()
    print(chaos.summary(), flush=True)
    if chaos.findings:
        print(f"  logs and histories are kept in {folder}", flush=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return not chaos.findings


def soak(shape_name: str, arguments: argparse.Namespace) -> bool:
    """In rounds, the modes in turns; the time of a round without what starting and judging take."""
    kept, left_s, number = True, arguments.minutes * 60, 0
    while left_s > 0:
        modes = arguments.mode or MODES
        kept &= one_round(shape_name, modes[number % len(modes)], min(left_s, ROUND_S), arguments.seed + number,
                          arguments)
        left_s, number = left_s - ROUND_S, number + 1
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description="Hurt islands during a run, and check what must hold all the same.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--shape", choices=sorted(SHAPES), action="append", help="islands x workers; 4x1 and 2x2")
    parser.add_argument("--mode", choices=MODES, action="append", help="all of them")
    parser.add_argument("--pause", type=float, nargs=2, metavar=("MIN", "MAX"), help="seconds between two of them")
    parser.add_argument("--zipf", type=float, default=0.9)
    parser.add_argument("--durability", choices=DURABILITIES, default="none",
                        help="but none: the logger is killed as well, and nothing that was acknowledged may be lost")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31))
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    kept = [soak(shape, arguments) for shape in arguments.shape or ["4x1", "2x2"]]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
