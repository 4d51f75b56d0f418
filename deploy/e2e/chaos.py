"""Kills islands at random in the middle of a run of a real cluster, and checks what must hold all the same.

`make chaos` runs this file for minutes, test_chaos.py the same for seconds. The microbenchmark updates rows with
50 % multisite transactions at Zipf 0.9 while SIGKILL hits a random island, at times two at once, every few seconds; the
supervisor starts them again and `islands run` gives them their part of the run again. What must hold:

 1. The run ends by itself, in time.
 2. No transaction waits longer for its answer than its deadline and SLACK_S. Islands tell the longest wait of any of
    their transactions, answered or not; they are asked twice a second, and right before they are killed.
 3. Soon after the run every transaction has been answered (no slot is in flight), and no lock and no branch is left.
 4. Islands die of our kills only, each comes back, the supervisor is the one of the beginning.
 5. There is never a standstill of the whole cluster for longer than a deadline.
 6. A short run afterwards finds the sum over all rows right, `down` works, no process is left.

The clients of an island are its own slots: what was open on a killed island has nobody left to be answered. Kills and
victims follow from the seed, the interleaving does not.
"""

import argparse
import collections
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

from cluster import Cluster, wait_until
from conftest import BINARIES, Islands
from test_metrics import scrape

DEADLINE_S = 2.0  # timeouts.transaction_ms
SLACK_S = 1.0     # workers share cores with each other and with us
STOP_S = 15.0     # from the end of the run's time to the end of `islands run`
QUIET_S = 15.0    # from there until all islands are back and hold nothing
LOOK_S = 0.5

Shape = collections.namedtuple("Shape", "islands workers")  # workers of each island
SHAPES = {"2x1": Shape(2, 1), "4x1": Shape(4, 1), "2x2": Shape(2, 2)}

GAUGES = {"islands_transactions_in_flight": "in flight", "islands_participant_branches": "branches",
          "islands_locks_held": "locks held", "islands_transaction_longest_wait_seconds": "longest wait"}
HELD = ("in flight", "branches", "locks held")
LINE = re.compile(r"^(\w+)(?:\{.*\})? (\S+)$")


class Meter:
    """Reads the islands' metrics. Another cluster may have taken a port while an island was away, so the deployment's
    name is one of a kind and looked for in every answer."""

    def __init__(self, cluster, shape):
        """Writes a deployment of this shape for any machine: it runs unbound."""
        self.islands = shape.islands
        self.base = free_ports(shape.islands)
        self.name = f"chaos-{random.SystemRandom().getrandbits(48):x}"
        machine = f"pack:{shape.islands} [numa(memory=1GB)] core:{shape.workers} pu:1"
        cluster.write(f"{shape.islands}ISL", name=self.name,
                      more=f"machine: '{machine}'\ntimeouts: {{transaction_ms: {DEADLINE_S * 1000:.0f}}}\n")
        with open(cluster.file, encoding="utf-8") as file:
            text = file.read().replace("base_port: 0", f"base_port: {self.base}")
        with open(cluster.file, "w", encoding="utf-8") as file:
            file.write(text)

    def one(self, island):
        """What an island holds at this moment, and its longest wait; None if it does not answer."""
        try:
            text = scrape(self.base + island)
        except (OSError, http.client.HTTPException):
            return None
        return parse(text) if f'deployment="{self.name}"' in text else None

    def all(self):
        return [self.one(island) for island in range(self.islands)]


def free_ports(count):
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


def parse(text):
    values = {name: [] for name in GAUGES}
    for line in text.splitlines():
        match = LINE.match(line)
        if match and match[1] in values:
            values[match[1]].append(float(match[2]))
    return {word: max(values[name]) if word == "longest wait" else sum(values[name]) for name, word in GAUGES.items()}


def holds_nothing(found):
    return found is not None and not any(found[name] for name in HELD)


def held_text(found):
    def text(one):
        return ", ".join(f"{one[name]:.0f} {name}" for name in HELD) if one else "no answer"
    return "; ".join(f"island {island}: {text(one)}" for island, one in enumerate(found))


def rates_per_second(result):
    """Committed per second of all islands together, in order of time."""
    sums = collections.OrderedDict()
    with open(os.path.join(result["run_directory"], "timeseries.csv"), encoding="utf-8") as file:
        for row in csv.DictReader(file):
            sums[row["elapsed_s"]] = sums.get(row["elapsed_s"], 0.0) + float(row["committed_per_s"])
    return list(sums.items())


def longest_standstill(result):
    """Seconds in a row in which no island committed anything."""
    longest = last = 0.0
    for elapsed, rate in rates_per_second(result):
        if rate > 0:
            last = float(elapsed)
        longest = max(longest, float(elapsed) - last)
    return longest


def abort_share(result):
    return result["aborted"] / max(1, result["committed"] + result["aborted"])


def outcomes_text(result):
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(result["aborts_by_reason"].items()))
    return (f"committed {result['committed']} ({result['committed_per_s']:.0f}/s), aborted {result['aborted']} = "
            f"{100 * abort_share(result):.3f} % ({reasons}), unknown {result['unknown']}")


class Chaos:
    """One run under kills. `findings` are the promises that were broken, `lines` the summary."""

    def __init__(self, cluster, shape, seconds, pause, seed, zipf=0.9, progress=None):
        self.cluster, self.shape, self.seconds, self.pause = cluster, shape, seconds, pause
        self.seed, self.zipf, self.random = seed, zipf, random.Random(seed)
        self.progress = progress or (lambda text: None)
        self.findings, self.lines = [], []
        self.killed = []  # (island, state, how many at once)
        self.pids = set()
        self.longest_wait = self.most_locks = 0.0
        self.looks = 0  # that were answered

    def run(self):
        self.meter = Meter(self.cluster, self.shape)
        self.cluster.up("--restarts", 1000)
        supervisor = self.cluster.status()["supervisor_pid"]
        result = self.attack()
        if result:
            self.check_result(result)
        self.demand(self.looks > 0, "no island told its metrics during the run")
        self.check_quiet()
        self.check_lives(supervisor)
        if result:
            self.check_sum()
        self.check_down()
        return self

    def say(self, name, text):
        self.lines.append(f"  {name:<18} {text}")

    def demand(self, holds, finding):
        if not holds:
            self.findings.append(finding)

    def attack(self):
        options = ["--op", "update", "--multisite", 50, "--zipf", self.zipf, "--mpl", 4, "--duration", self.seconds,
                   "--warmup", 0, "--seed", self.seed, "--results", os.path.join(self.cluster.folder, "results")]
        out, err = (os.path.join(self.cluster.folder, name) for name in ("run.out", "run.err"))
        with open(out, "w", encoding="utf-8") as out_file, open(err, "w", encoding="utf-8") as err_file:
            process = subprocess.Popen([self.cluster.islands, "run", self.cluster.file, "micro", "--format", "json",
                                        *map(str, options)], stdout=out_file, stderr=err_file)
        try:
            ended = self.kill_until_it_ends(process)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if not ended:
            self.demand(False, f"the run did not end within {STOP_S:.0f} s after its time")
            return None
        with open(out, encoding="utf-8") as out_file, open(err, encoding="utf-8") as err_file:
            self.demand(process.returncode == 0,
                        f"`islands run` failed with {process.returncode}: {err_file.read()[-2000:]}")
            return json.loads(out_file.read()) if process.returncode == 0 else None

    def kill_until_it_ends(self, process):
        """False when it had to be ended."""
        wait_until(lambda: process.poll() is not None or any(
            island["running"] for island in self.cluster.status()["islands"]), seconds=60, what="the run")
        begin = time.monotonic()
        end = begin + self.seconds
        next_kill = begin + self.random.uniform(*self.pause)
        next_word = begin + 60
        while process.poll() is None:
            now = time.monotonic()
            if now > end + STOP_S:
                return False
            if next_kill <= now < end:
                self.kill()
                next_kill = time.monotonic() + self.random.uniform(*self.pause)
            self.look(range(self.shape.islands))
            if now >= next_word:
                next_word += 60
                self.progress(f"{now - begin:.0f} s: {len(self.killed)} kills, longest wait {self.longest_wait:.2f} s")
            time.sleep(max(0, min(now + LOOK_S, max(next_kill, now)) - time.monotonic()))
        self.say("run ended", f"{max(0.0, time.monotonic() - end):.1f} s after its time")
        return True

    def look(self, islands):
        for island in islands:
            found = self.meter.one(island)
            if found:
                self.looks += 1
                self.longest_wait = max(self.longest_wait, found["longest wait"])
                self.most_locks = max(self.most_locks, found["locks held"])

    def kill(self):
        # Drawn before anything that depends on time, so that a seed means the same victims.
        count = 1 + (self.shape.islands > 2 and self.random.random() < 0.25)
        victims = self.random.sample(range(self.shape.islands), count)
        islands = self.cluster.status()["islands"]
        victims = [islands[victim] for victim in victims
                   if islands[victim]["pid"] > 0 and islands[victim]["pid"] not in self.pids]
        for victim in victims:
            self.look([victim["id"]])
            os.kill(victim["pid"], signal.SIGKILL)
            self.pids.add(victim["pid"])
            self.killed.append((victim["id"], victim["state"], len(victims)))

    def check_result(self, result):
        standstill = longest_standstill(result)
        self.demand(result["committed"] > 0, "nothing was committed")
        self.demand(standstill <= DEADLINE_S + SLACK_S, f"no island committed anything for {standstill:.1f} s")
        self.say("outcomes", outcomes_text(result))
        rates = ", ".join(f"{one['committed_per_s']:.0f}" for one in result["per_island"])
        self.say("committed/s", f"by island {rates}")
        self.say("latency us", ", ".join(f"{name} {value:.0f}" for name, value in result["latency_us"].items()))
        self.say("standstill", f"at most {standstill:.1f} s")

    def check_quiet(self):
        """Every island is back and holds nothing; kills until the last second leave some of them starting."""
        begin = time.monotonic()
        found = states = None
        while time.monotonic() < begin + QUIET_S:
            states = [island["state"] for island in self.cluster.status()["islands"]]
            found = self.meter.all()
            if all(map(holds_nothing, found)) and set(states) == {"ready"}:
                break
            time.sleep(0.05)
        else:
            self.findings.append(f"{QUIET_S:.0f} s after the run: {', '.join(states)}; {held_text(found)}")
        self.look(range(self.shape.islands))
        self.demand(self.longest_wait <= DEADLINE_S + SLACK_S,
                    f"a transaction waited {self.longest_wait:.2f} s for its answer; its deadline is {DEADLINE_S:g} s")
        self.demand(self.longest_wait > 0 and self.most_locks > 0, "islands tell no waits and no locks")
        self.say("longest wait", f"{self.longest_wait:.2f} s for an answer; allowed {DEADLINE_S:g} + {SLACK_S:g} s; "
                                 f"{self.looks} looks")
        self.say("locks held", f"at most {self.most_locks:.0f} on an island when looked at")
        self.say("at the end", f"{held_text(found)}; after {time.monotonic() - begin:.1f} s")

    def check_lives(self, supervisor):
        status = self.cluster.status()
        restarts = sum(island["restarts"] for island in status["islands"])
        by_island = [sum(island == killed[0] for killed in self.killed) for island in range(self.shape.islands)]
        self.demand(self.killed, "nothing was killed")
        self.demand(restarts == len(self.killed), f"{len(self.killed)} kills and {restarts} restarts: islands died by "
                                                  "themselves, or did not come back")
        self.demand(status["supervisor_pid"] == supervisor, "the supervisor is another one")
        pairs = sum(many > 1 for _, _, many in self.killed) // 2
        early = sum(state != "ready" for _, state, _ in self.killed)
        self.say("kills", f"{len(self.killed)}, by island {', '.join(map(str, by_island))}; {pairs} times two at once, "
                          f"{early} hit an island that was not ready yet; {restarts} restarts")

    def check_sum(self):
        after = self.cluster.run("--op", "update", "--multisite", 50, "--zipf", self.zipf, duration=1)
        self.demand(after["sum_check"] == "ok", f"the run afterwards: {after['sum_check_detail']}")
        self.say("afterwards", f"sum check {after['sum_check']}, {outcomes_text(after)}")

    def check_down(self):
        done = self.cluster.islands.run("down", self.cluster.file)
        left = self.cluster.alive()
        self.demand(done.code == 0, f"`islands down` failed: {done.err}")
        self.demand(not left, f"processes were left behind: {left}")

    def summary(self):
        head = (f"chaos on {self.shape.islands} islands x {self.shape.workers} workers, {self.seconds:.0f} s, seed "
                f"{self.seed}: update 10 rows, 50 % multisite, zipf {self.zipf:g}, mpl 4")
        verdict = [f"  BROKEN: {finding}" for finding in self.findings] or ["  every promise was kept"]
        return "\n".join([head, *self.lines, *verdict])


def soak(shape_name, arguments):
    folder = tempfile.mkdtemp(prefix="islands-")
    path = BINARIES if os.path.isfile(BINARIES) else os.path.join(BINARIES, "islands")
    cluster = Cluster(Islands(path), folder)
    chaos = Chaos(cluster, SHAPES[shape_name], arguments.minutes * 60, arguments.pause, arguments.seed, arguments.zipf,
                  lambda text: print(f"{shape_name} {text}", flush=True))
    print(f"{shape_name} repeat with: {sys.argv[0]} --shape {shape_name} --minutes {arguments.minutes:g} --seed "
          f"{arguments.seed} --zipf {arguments.zipf:g}", flush=True)
    try:
        chaos.run()
    finally:
        cluster.clean()
    print(chaos.summary(), flush=True)
    if chaos.findings:
        print(f"  logs are kept in {folder}", flush=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return not chaos.findings


def main():
    parser = argparse.ArgumentParser(description="Kill islands during a run, and check what must hold all the same.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--shape", choices=sorted(SHAPES), action="append", help="islands x workers; 4x1 and 2x2")
    parser.add_argument("--pause", type=float, nargs=2, default=(3, 15), metavar=("MIN", "MAX"),
                        help="seconds from one kill to the next")
    parser.add_argument("--zipf", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31))
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    kept = [soak(shape, arguments) for shape in arguments.shape or ["4x1", "2x2"]]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
