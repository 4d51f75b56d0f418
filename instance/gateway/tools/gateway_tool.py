"""What the commands here share: the Python client, where a deployment's gateway is, what tables look like."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Optional, TypeVar

BINARY = os.environ.get("ISLANDS_BIN") or "islands"
HERE = os.path.dirname(os.path.realpath(__file__))
# The client lies beside this file; its stubs are built, and lie beside the programs.
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "python"),
                os.path.join(os.path.dirname(BINARY), "..", "lib", "islands", "python")]

import islands  # noqa: E402
from islands.attempts import Pauses  # noqa: E402

T = TypeVar("T")
FAILED, USAGE, INTERRUPTED = 1, 2, 130  # exit codes, as of every command
PATIENCE_S = 60                         # for islands and a gateway that are away
# What may be otherwise a little later.
PASSING = (islands.Aborted, islands.DeadlineExceeded, islands.LimitExceeded, islands.Unavailable,
           islands.UnknownOutcome)
SLICES = 64


class Stop(Exception):
    """Ends the program, with these words."""

    code = FAILED


class Usage(Stop):
    code = USAGE


def address_of(deployment: str) -> str:
    """The gateway's, as `islands status` says it."""
    done = subprocess.run([BINARY, "status", deployment, "--format", "json"], capture_output=True, text=True)
    if done.returncode not in (0, 3):  # 3: not all of it works, and the gateway may
        raise Stop(done.stderr.strip())
    gateway = json.loads(done.stdout).get("gateway")
    if gateway is None:
        raise Stop(f"{deployment}: the deployment has no gateway; add `gateway: {{enabled: true}}` to the file, then "
                   "`islands down` and `islands up`")
    return str(gateway["addresses"][0])


def description(table: islands.Table) -> str:
    key = "/".join(" ".join(pair) for pair in zip(table.key_names, table.key)) or "/".join(table.key)
    where = "replicated" if table.replicated else f"from {table.range[0]} to below {table.range[1]}"
    rows = f"rows of {table.row_bytes} bytes" if table.row_bytes else "rows of any length"
    fields = f": {', '.join(f'{field.name} {field.type}' for field in table.fields)}" if table.fields else ""
    indexes = f"; indexes: {', '.join(table.index_names)}" if table.indexes else ""
    return f"{table.name}: key {key} {where}, {rows}{fields}{indexes}"


def persist(function: Callable[[], T]) -> T:
    """Again while somebody is away: of what may be done twice."""
    until, pauses = time.monotonic() + PATIENCE_S, Pauses()
    while True:
        try:
            return function()
        except PASSING:
            if time.monotonic() > until:
                raise
        time.sleep(pauses.next_s())


def pages(db: islands.Client, table: islands.Table, rows: int) -> Iterator[tuple[islands.Row, ...]]:
    """All rows in key order, so many at a time, each page as it is at a time of its own.

    By slices of the first component: a scan without bounds asks every island for a whole page."""
    begin, end = table.range
    count = 1 if table.replicated else min(SLICES, end - begin)
    inner = [begin + (end - begin) * number // count for number in range(1, count)]
    for first, beyond in zip([None, *inner], [*inner, None]):
        last: Optional[islands.Key] = None
        while True:
            limit = rows if last is None else rows + 1  # the last row comes again: no key says `after this one`
            page = persist(lambda: db.scan(table.name, first if last is None else last, beyond, limit))
            fresh = page[1:] if page and page[0].key == last else page
            if fresh:
                last = fresh[-1].key
                yield fresh
            if len(page) < limit:
                break


class StatusLine:
    """On stderr, rewritten while somebody watches: on a terminal only. Goes in the end."""

    EVERY_S = 0.1

    def __init__(self) -> None:
        self.there, self.open, self.shown = sys.stderr.isatty(), False, 0.0
        self.begin = time.monotonic()

    def show(self, text: Callable[[], str]) -> None:
        now = time.monotonic()
        if self.there and now - self.shown >= self.EVERY_S:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            print(f"\r{text()[:columns - 1]}\x1b[K", end="", file=sys.stderr, flush=True)
            self.open, self.shown = True, now

    def clear(self) -> None:
        if self.open:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self.open = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begin


def pace(rows: int, seconds: float) -> str:
    return f"{rows:,} rows, {rows / max(seconds, 0.001):,.0f} rows/s"
