"""islands history FILE: transactions on lists, from standard input, and what became of them.

A line `{"value": [["append", 1, 7], ["r", 2, null]]}` is run as one transaction over gRPC: 7 is appended to list 1, and
list 2 is read. Its answer is a line of the same form, with `"type": "ok"` and what was read, `"fail"` if it was not
committed for certain, `"info"` if nobody knows; further, which line it was, and when it began and ended, by the
machine's clock. It is the form that checkers of list-append histories work with.

Lists are rows of a table whose key is one integer, or two: then a list goes on in a second row when its first is full,
after some hundred numbers. There may be as many lists as the range of the table has keys, numbered from 0; those that
follow each other lie far apart, so that most transactions touch several islands.

It goes on when islands, the gateway or the whole deployment die and come back. With --clients several transactions run
at a time, and answers come in the order in which they end.
"""

import argparse
import json
import math
import os
import sys
import threading
import time
from typing import Any, Optional, TextIO, Union

from gateway_tool import FAILED, INTERRUPTED, USAGE, Stop, address_of

import islands

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.6  # when nobody is there
PATIENCE_S = 30  # in the beginning
EXAMPLES = """examples:
  echo '{"value": [["append", 1, 7], ["r", 2, null]]}' | islands history my.yaml
  islands history my.yaml --clients 8 < transactions.jsonl > history.jsonl

exit codes: 0 ok, 1 failed, 2 usage or invalid file, 130 interrupted"""
FULL_BYTES = 1400  # of a row: one more number, and it still has fewer than a row may have
GOLDEN = (math.sqrt(5) - 1) / 2


class Full(Exception):
    """A list that cannot have another row."""


class Lists:
    """Where they are."""

    def __init__(self, table: islands.Table) -> None:
        if len(table.key) > 2 or "string" in table.key or table.row_bytes != 0 or table.replicated:
            raise Stop(f"table '{table.name}': expected one or two integers as key, and rows of any length")
        self.table = table.name
        self.has_many_rows = len(table.key) == 2
        self.begin, self.count = table.range[0], table.range[1] - table.range[0]
        # Steps of the golden section of the range spread any number of lists; they come back when all keys are taken.
        self.step = round(self.count * GOLDEN)
        while math.gcd(self.step, self.count) != 1:
            self.step += 1

    def key(self, number: int, row: int) -> Union[int, tuple[int, int]]:
        place = self.begin + number * self.step % self.count
        return (place, row) if self.has_many_rows else place

    def read(self, transaction: islands.Transaction, number: int) -> list[int]:
        elements: list[int] = []
        row = 0
        while True:
            text = transaction.get(self.table, self.key(number, row)) or b""
            elements += map(int, text.split())
            if len(text) < FULL_BYTES or not self.has_many_rows:
                return elements
            row += 1

    def append(self, transaction: islands.Transaction, number: int, element: int) -> None:
        row = 0
        while len(text := transaction.get(self.table, self.key(number, row), for_update=True) or b"") >= FULL_BYTES:
            if not self.has_many_rows:
                raise Full(f"list {number} is full; give table '{self.table}' a key of two integers")
            row += 1
        transaction.put(self.table, self.key(number, row), b"%s %d" % (text, element) if text else b"%d" % element)


def find_lists(db: islands.Client, table: str) -> Lists:
    """Waits for a gateway that is on its way."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            found = {each.name: each for each in db.tables()}
            break
        except (islands.Unavailable, islands.DeadlineExceeded) as error:
            if time.monotonic() > give_up:
                raise Stop(str(error)) from None
        except islands.Error as error:
            raise Stop(str(error)) from None
        time.sleep(FIRST_PAUSE_S)
    if table not in found:
        raise Stop(f"there is no table '{table}'; its rows are lists, so it wants rows of any length, such as "
                   f"{{name: {table}, key: [uint64, uint32], range: [0, 100000]}}")
    return Lists(found[table])


def run(db: islands.Client, lists: Lists, operations: list[list[Any]]) -> tuple[dict[str, Any], bool]:
    """One attempt: what it came to, and whether somebody was there."""
    answers: list[list[Any]] = []
    try:
        with db.transaction() as transaction:
            for kind, number, value in operations:
                if kind == "append":
                    lists.append(transaction, number, value)
                    answers.append([kind, number, value])
                else:
                    answers.append([kind, number, lists.read(transaction, number)])
    except Full as error:
        return {"type": "fail", "value": operations, "error": str(error)}, True
    except islands.Error as error:
        kind = "info" if error.committed is None else "fail"
        return {"type": kind, "value": operations, "error": str(error)}, not isinstance(error, islands.Unavailable)
    return {"type": "ok", "value": answers}, True


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -2**63 <= value < 2**63


def operations_of(line: str, number: int, lists: int) -> list[list[Any]]:
    try:
        operations = json.loads(line)["value"]
        good = all(kind in ("append", "r") and is_integer(key) and 0 <= key < lists and
                   (kind == "r" or is_integer(value)) for kind, key, value in operations)
    except (ValueError, TypeError, KeyError):
        good = False
    if not good:
        raise Stop(f"line {number}: found {line.strip()!r}, expected "
                   '{"value": [["append", LIST, NUMBER], ["r", LIST, null]]}, with lists from 0 to below ' + str(lists))
    return list(operations)


class Runner:
    """Takes lines from the input, with several threads: each is a client that goes on when it has its answer."""

    def __init__(self, address: str, arguments: argparse.Namespace) -> None:
        self.address, self.timeout = address, arguments.timeout
        with islands.connect(address, timeout=arguments.timeout) as db:
            self.lists = find_lists(db, arguments.table)
        self.lock = threading.Lock()
        self.lines = 0
        self.wrong: Optional[str] = None

    def next_line(self, source: TextIO) -> Optional[tuple[int, str]]:
        with self.lock:
            line = "" if self.wrong else source.readline()
            self.lines += 1
            return (self.lines, line) if line else None

    def serve(self, process: int) -> None:
        try:
            pause_s = FIRST_PAUSE_S
            with islands.connect(self.address, timeout=self.timeout) as db:
                while (taken := self.next_line(sys.stdin)) is not None:
                    number, line = taken
                    operations = operations_of(line, number, self.lists.count)
                    begin = time.monotonic_ns()
                    answer, was_there = run(db, self.lists, operations)
                    answer |= {"line": number, "process": process, "begin": begin, "end": time.monotonic_ns()}
                    with self.lock:
                        print(json.dumps(answer), flush=True)
                    if not was_there:
                        time.sleep(pause_s)  # the next one would fail at once, too
                    pause_s = FIRST_PAUSE_S if was_there else min(2 * pause_s, LONGEST_PAUSE_S)
        except Stop as stop:
            with self.lock:
                self.wrong = str(stop)


def main() -> int:
    parser = argparse.ArgumentParser(prog="islands history", description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="the deployment file")
    parser.add_argument("--table", default="history", help="whose rows are the lists; default: history")
    parser.add_argument("--clients", type=int, default=1, help="transactions at a time; default: 1")
    parser.add_argument("--timeout", type=float, default=5, help="of a transaction, in seconds; default: 5")
    arguments = parser.parse_args()
    if arguments.clients < 1 or not arguments.timeout > 0:
        parser.error("--clients and --timeout: expected at least 1, and more than 0")
    try:
        runner = Runner(address_of(arguments.file), arguments)
        threads = [threading.Thread(target=runner.serve, args=(i,), daemon=True) for i in range(arguments.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except Stop as stop:
        print(stop, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)  # threads may be waiting for their answers
    if runner.wrong:
        print(runner.wrong, file=sys.stderr)
        return USAGE if runner.wrong.startswith("line ") else FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
