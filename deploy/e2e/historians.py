"""Programs that run transactions on lists through the gateway, `islands history`, and all that they have answered."""

import itertools
import json
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from cluster import Cluster, wait_until
from list_append import Answer

TABLE = "{name: history, key: [uint64, uint32], range: [0, 100000]}"
HOT = 24       # lists at a time
RETIRED = 40   # appends, and another list takes the place; but for list 0, which grows over many rows
LONG_SHARE = 0.04
MOST = 5       # operations of a transaction
CLIENTS = 4    # of each program
LATE_S = 120   # nothing is answered for so long: something is stuck


class Transactions:
    """Lines for `islands history`; several threads may draw them."""

    def __init__(self, seed: int, count: int) -> None:
        self.random, self.left = random.Random(seed), count
        self.lock = threading.Lock()
        self.hot = list(range(1, HOT + 1))
        self.appends = {number: 0 for number in (0, *self.hot)}

    @property
    def lists(self) -> list[int]:
        return list(self.appends)

    def operation(self) -> list[object]:
        place = self.random.randrange(HOT)
        number = 0 if self.random.random() < LONG_SHARE else self.hot[place]
        if self.random.random() < 0.5:
            return ["r", number, None]
        self.appends[number] += 1
        element = self.appends[number]
        if number != 0 and element == RETIRED:
            self.hot[place] = len(self.appends)
            self.appends[self.hot[place]] = 0
        return ["append", number, element]

    def lines(self) -> Iterator[str]:
        while True:
            with self.lock:
                if self.left == 0:
                    return
                self.left -= 1
                value = [self.operation() for _ in range(self.random.randint(1, MOST))]
            yield json.dumps({"value": value}) + "\n"


class Historian:
    """One program. Its threads come to their end with the lines."""

    def __init__(self, cluster: Cluster, number: int, lines: Iterable[str]) -> None:
        self.first, self.answers = number * CLIENTS, list[Answer]()
        self.process = subprocess.Popen([cluster.islands, "history", cluster.file, "--clients", str(CLIENTS)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.threads = [threading.Thread(target=each, daemon=True) for each in (lambda: self.say(lines), self.hear)]
        for thread in self.threads:
            thread.start()

    def say(self, lines: Iterable[str]) -> None:
        assert self.process.stdin
        with self.process.stdin as source:
            for line in lines:
                source.write(line)
                source.flush()

    def hear(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            answer = json.loads(line)
            answer["process"] += self.first
            self.answers.append(answer)

    def has_ended(self) -> bool:
        return not any(thread.is_alive() for thread in self.threads)


class Historians:
    """Several of them at once."""

    def __init__(self, cluster: Cluster, transactions: Transactions, programs: int) -> None:
        self.cluster, self.transactions = cluster, transactions
        self.all = [Historian(cluster, number, transactions.lines()) for number in range(programs)]

    def __enter__(self) -> "Historians":
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.all:
            each.process.kill()
            each.process.wait()

    @property
    def answers(self) -> list[Answer]:
        return list(itertools.chain.from_iterable(each.answers for each in self.all))

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """For as long as there are answers."""
        known, since = -1, time.monotonic()
        while not condition():
            if (now := len(self.answers)) != known:
                known, since = now, time.monotonic()
            assert time.monotonic() - since < LATE_S, f"waited in vain for {what}; {known} answers"
            assert all(each.process.poll() in (None, 0) for each in self.all), "a program has ended"
            time.sleep(0.02)

    def await_answers(self, count: int) -> None:
        self.wait(lambda: len(self.answers) >= count, f"{count} answers")

    def await_end(self) -> None:
        self.wait(lambda: all(each.has_ended() for each in self.all), "the end")
        assert all(each.process.wait() == 0 for each in self.all)

    def history(self) -> list[Answer]:
        """All of it, with a read of every list in the end."""
        self.await_end()
        return self.answers + self.final_reads()

    def final_reads(self) -> list[Answer]:
        lines = [json.dumps({"value": [["r", number, None]]}) + "\n" for number in self.transactions.lists]
        last = Historian(self.cluster, len(self.all), lines)
        wait_until(last.has_ended, seconds=LATE_S, what="reads of all lists")
        assert last.process.wait() == 0 and len(last.answers) == len(lines)
        assert {answer["type"] for answer in last.answers} == {"ok"}, \
            [answer for answer in last.answers if answer["type"] != "ok"]
        return last.answers
