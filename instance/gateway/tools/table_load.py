"""`islands table FILE load`: rows from a file, many transactions at a time."""

import argparse
import collections
import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Optional, TextIO

from gateway_tool import PASSING, PATIENCE_S, StatusLine, Stop, Usage, pace, persist
from row_files import FORMATS, READERS, Cells, Line

import islands
from islands.attempts import Pauses

IN_CALL, CALLS = 256, 4    # transactions in a call, calls under way
MOST_ROW_BYTES = 1 << 16   # no table takes so much; one row must not make a call too large
MOST_NAMED = 10            # rejects that are told on stderr


def key_of(line: Line) -> islands.Key:
    assert line.key is not None  # those without are wrong, and never sent
    return line.key


class Sender:
    """Writes lines, each as a transaction of its own, until each is written or refused. For several threads.

    A write whose outcome nobody knows is sent again. A put is the same twice over. An insert that then finds a row
    there looks at it: if it is the line's very row, it was ours, or is as good, and the line is loaded; otherwise it is
    refused. So nothing is doubled, and nothing refused for being there by our own doing, unless somebody else has
    changed the row between the two attempts. Tokens would tell even then, but cost a row more for every row.
    """

    def __init__(self, db: islands.Client, table: str, replace: bool) -> None:
        self.db, self.table, self.replace = db, table, replace
        self.stopped = threading.Event()

    def send(self, lines: list[Line]) -> None:
        """Whatever is refused is `wrong` then."""
        left = [line for line in lines if not line.wrong]
        moved, pauses = time.monotonic(), Pauses()
        while left:
            before = len(left)
            left, why = self.attempt(left)
            if len(left) < before:
                moved, pauses = time.monotonic(), Pauses()
            if left and why:
                if self.stopped.is_set() or time.monotonic() > moved + PATIENCE_S:
                    raise why
                self.stopped.wait(pauses.next_s())

    def attempt(self, lines: list[Line]) -> tuple[list[Line], Optional[islands.Error]]:
        """Those that have to be sent again, and why."""
        try:
            outcomes = self.db.execute_many([self.batch(line) for line in lines])
        except islands.Error as error:
            outcomes = [error] * len(lines)
        again, why = [], None
        for line, outcome in zip(lines, outcomes):
            if not isinstance(outcome, islands.Error):
                continue
            if isinstance(outcome, PASSING):
                line.unsure = line.unsure or outcome.committed is None
                again.append(line)
                why = outcome
            elif not isinstance(outcome, islands.ConditionFailed):
                line.wrong = str(outcome)
            elif not (line.unsure and self.is_there(line)):
                line.wrong = "there is such a row already"
        return again, why

    def batch(self, line: Line) -> islands.Batch:
        batch = islands.Batch()
        if self.replace:
            batch.put(self.table, key_of(line), line.value)
        else:
            batch.insert(self.table, key_of(line), line.value)
        return batch

    def is_there(self, line: Line) -> bool:
        found = persist(lambda: self.db.get(self.table, key_of(line)))
        return found == line.value


class Rejects:
    """Says on stderr which lines were refused and why, and keeps them in a file, if there is one."""

    def __init__(self, file: Optional[TextIO], status: StatusLine) -> None:
        self.file, self.status, self.count = file, status, 0

    def add(self, line: Line) -> None:
        self.count += 1
        self.status.clear()
        if self.count <= MOST_NAMED:
            print(f"line {line.number}: {line.wrong}", file=sys.stderr)
        elif self.count == MOST_NAMED + 1:
            print("more lines are rejected, which are only counted", file=sys.stderr)
        self.keep(line)

    def keep(self, line: Line) -> None:
        if self.file:
            self.file.write(line.text if line.text.endswith("\n") else line.text + "\n")


class Load:
    """Reads on while calls are under way, and takes their ends in the order of the lines."""

    def __init__(self, sender: Sender, rejects: Rejects) -> None:
        self.sender, self.rejects = sender, rejects
        self.loaded = 0
        self.pool = ThreadPoolExecutor(CALLS)
        self.calls: "collections.deque[tuple[Future[None], list[Line]]]" = collections.deque()
        self.next: list[Line] = []
        self.keys: set[islands.Key] = set()  # of lines that are not written yet: two with one key take turns

    def add(self, line: Line) -> None:
        if line.key is not None and not line.wrong:
            if len(line.value) > MOST_ROW_BYTES:
                line.wrong = f"a row of {len(line.value)} bytes, which is too long"
            if line.key in self.keys:
                self.drain()
            self.keys.add(line.key)
        self.next.append(line)
        if len(self.next) == IN_CALL:
            self.start()

    def start(self) -> None:
        if self.next:
            self.calls.append((self.pool.submit(self.sender.send, self.next), self.next))
            self.next = []
        while len(self.calls) > CALLS:
            self.end_one()

    def drain(self) -> None:
        self.start()
        while self.calls:
            self.end_one()

    def end_one(self) -> None:
        call, lines = self.calls[0]
        try:
            call.result()
        except islands.Error as error:
            raise Stop(f"lines from {lines[0].number} on may be loaded or not: {error}. Once all are back, load again "
                       "with --replace") from None
        self.calls.popleft()
        self.keys.difference_update(line.key for line in lines if line.key is not None)
        for line in lines:
            if line.wrong:
                self.rejects.add(line)
        self.loaded += sum(not line.wrong for line in lines)

    def close(self) -> None:
        self.sender.stopped.set()
        self.pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def source(path: str) -> Iterator[TextIO]:
    """Bytes that are no UTF-8 come through: a key may have them, and rejects are what stood there."""
    if path == "-":
        yield open(0, encoding="utf-8-sig", errors="surrogateescape", newline="", closefd=False)
        return
    try:
        file = open(path, encoding="utf-8-sig", errors="surrogateescape", newline="")
    except OSError as error:
        raise Usage(f"{path}: {error.strerror}") from None
    with file:
        yield file


def target(path: str) -> TextIO:
    try:
        return open(path, "w", encoding="utf-8", errors="surrogateescape", newline="")
    except OSError as error:
        raise Usage(f"{path}: {error.strerror}") from None


def percentage(file: IO[str]) -> str:
    """How much of a file is read; of a pipe nobody knows."""
    size = os.fstat(file.fileno()).st_size
    if not size:
        return ""
    return f"[{100 * os.lseek(file.fileno(), 0, os.SEEK_CUR) // size:3} %] "


def load(db: islands.Client, table: islands.Table, arguments: argparse.Namespace) -> dict[str, object]:
    form = arguments.rows or FORMATS.get(os.path.splitext(arguments.input)[1], "csv")
    status = StatusLine()
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(source(arguments.input))
        kept = stack.enter_context(target(arguments.rejects)) if arguments.rejects else None
        rejects = Rejects(kept, status)
        loading = Load(Sender(db, table.name, arguments.replace), rejects)
        stack.callback(status.clear)
        stack.callback(loading.close)
        try:
            for line in READERS[form](file, Cells(islands.Fields(table))):
                if line.key is None and not line.wrong:
                    rejects.keep(line)  # the header: what is mended can be loaded as it is
                    continue
                loading.add(line)
                status.show(lambda: f"{percentage(file)}{pace(loading.loaded, status.seconds)}, "
                                    f"{rejects.count:,} rejected")
            loading.drain()
        except KeyboardInterrupt:
            status.clear()
            print(f"{loading.loaded:,} rows are loaded, and perhaps some after them; --replace loads them again",
                  file=sys.stderr)
            raise
    return {"table": table.name, "loaded": loading.loaded, "rejected": rejects.count,
            "seconds": round(status.seconds, 3)}
