"""islands history FILE: transactions on lists, from standard input, and what became of them.

A line `{"value": [["append", 1, 7], ["r", 2, null]]}` is run as one transaction over gRPC: 7 is appended to list 1, and
list 2 is read. Its answer is a line of the same form, with `"type": "ok"` and what was read, `"fail"` if it was not
committed for certain, `"info"` if nobody knows. It is the form that checkers of list-append histories work with. Lists
are rows of a table, keys spread over all of its range, so that most transactions touch several islands.
"""

import argparse
import json
import os
import random
import sys
import threading
import time
from typing import Any, Optional, TextIO

from gateway_tool import FAILED, INTERRUPTED, USAGE, Stop, address_of

import islands

PAUSE_S = 0.1


class Lists:
    """List n is the row at a place of its own."""

    def __init__(self, db: islands.Client, table: str, lists: int) -> None:
        found = {each.name: each for each in db.tables()}
        if table not in found:
            raise Stop(f"there is no table '{table}'; its rows are lists, so it wants rows of any length, such as "
                       f"{{name: {table}, key: [uint64], range: [0, 1000]}}")
        of = found[table]
        if len(of.key) != 1 or of.key[0] == "string" or of.row_bytes != 0 or of.replicated:
            raise Stop(f"table '{table}': expected one integer as key, and rows of any length")
        begin, end = of.range
        if end - begin < lists:
            raise Stop(f"table '{table}' has {end - begin} keys, expected at least {lists}: one for each list")
        self.table = table
        # Spread over all of the range, and lists that follow each other lie far apart; the same in every run.
        self.keys = [begin + place * ((end - begin) // lists) for place in range(lists)]
        random.Random(1).shuffle(self.keys)


def parse(row: Optional[bytes]) -> list[int]:
    return [int(word) for word in row.split()] if row else []


def run(db: islands.Client, lists: Lists, operations: list[list[Any]]) -> dict[str, Any]:
    """One attempt; what it came to."""
    answers: list[list[Any]] = []
    try:
        with db.transaction() as transaction:
            for kind, number, value in operations:
                key = lists.keys[number]
                row = parse(transaction.get(lists.table, key, for_update=kind == "append"))
                if kind == "append":
                    transaction.put(lists.table, key, " ".join(map(str, row + [value])).encode())
                    answers.append([kind, number, value])
                else:
                    answers.append([kind, number, row])
    except islands.UnknownOutcome as error:
        return {"type": "info", "value": operations, "error": str(error)}
    except islands.Error as error:
        if isinstance(error, islands.Unavailable):
            time.sleep(PAUSE_S)  # nobody is there: the next one would fail at once, too
        return {"type": "fail", "value": operations, "error": str(error)}
    return {"type": "ok", "value": answers}


def operations_of(line: str, number: int, lists: int) -> list[list[Any]]:
    try:
        operations = json.loads(line)["value"]
        good = all(kind in ("append", "r") and isinstance(key, int) and 0 <= key < lists and
                   (kind == "r" or isinstance(value, int)) for kind, key, value in operations)
    except (ValueError, TypeError, KeyError):
        good = False
    if not good:
        raise Stop(f"line {number}: found {line.strip()!r}, expected "
                   '{"value": [["append", LIST, NUMBER], ["r", LIST, null]]}, with lists below ' + str(lists))
    return list(operations)


class Runner:
    """Takes lines from the input, with several threads: each is a client that goes on when it has its answer."""

    def __init__(self, address: str, arguments: argparse.Namespace) -> None:
        self.address, self.arguments = address, arguments
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
            with islands.connect(self.address, timeout=self.arguments.timeout) as db:
                lists = Lists(db, self.arguments.table, self.arguments.lists)
                while (taken := self.next_line(sys.stdin)) is not None:
                    begin = time.monotonic_ns()
                    answer = run(db, lists, operations_of(taken[1], taken[0], self.arguments.lists))
                    answer |= {"process": process, "begin": begin, "end": time.monotonic_ns()}
                    with self.lock:
                        print(json.dumps(answer), flush=True)
        except (Stop, islands.Error) as error:
            with self.lock:
                self.wrong = str(error)


def main() -> int:
    parser = argparse.ArgumentParser(prog="islands history", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="the deployment file")
    parser.add_argument("--table", default="history", help="whose rows are the lists; default: history")
    parser.add_argument("--lists", type=int, default=100, help="how many there are; default: 100")
    parser.add_argument("--clients", type=int, default=1, help="transactions at a time; default: 1")
    parser.add_argument("--timeout", type=float, default=5, help="of a transaction, in seconds; default: 5")
    arguments = parser.parse_args()
    if arguments.lists < 1 or arguments.clients < 1:
        parser.error("--lists and --clients: expected at least 1")
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
