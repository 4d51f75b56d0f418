"""The other engines, as `peers --serve` runs them (experiments/peers/): it loads them all, says that it is ready, then
answers each line `ENGINE OP SECONDS` with one JSON document. It cleans up and ends when its input does."""

import json
import os
import selectors
import subprocess
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from islands_command import Failed, end

if TYPE_CHECKING:
    from benchmarks.context import Context

LOAD_TIMEOUT_S = 1800


class Peers:
    @staticmethod
    def built(context: "Context") -> bool:
        return os.access(os.path.join(context.binaries, "peers"), os.X_OK)

    def __init__(self, context: "Context", rows_total: int, engines: Iterable[str] = (), more: Sequence[str] = (),
                 prefix: Sequence[str] = (), seconds: float | None = None, warmup: float | None = None) -> None:
        command = ["peers", "--serve", "--range", str(rows_total), *more]
        for engine in engines:
            command += ["--engine", engine]
        self.start(context, command, prefix, seconds, warmup)

    def start(self, context: "Context", command: Sequence[str], prefix: Sequence[str], seconds: float | None,
              warmup: float | None) -> None:
        """`prefix`: a command that becomes the one behind it."""
        self.seconds = context.seconds if seconds is None else seconds
        command = [*prefix, os.path.join(context.binaries, command[0]), *command[1:], "--warmup",
                   str(context.warmup if warmup is None else warmup)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        start_new_session=True)
        try:
            self.engines = self.answer("loading").get("engines", {})
        except BaseException:
            end(self.process)
            raise

    def answer(self, request: str) -> Any:
        assert self.process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            line = self.process.stdout.readline() if selector.select(LOAD_TIMEOUT_S) else ""
        try:
            answer = json.loads(line)
        except ValueError:
            raise Failed(f"peers, {request}: no answer but: {line.strip() or 'nothing'}") from None
        if "error" in answer:
            raise Failed(f"peers, {request}: {answer['error']}")
        return answer

    def ask(self, engine: str, op: str, threads: int | None = None) -> str:
        """Begins a measurement, in so many of its threads or in all; returns the request, for its answer."""
        words = (engine, op, str(self.seconds), str(threads) if threads else "")
        request = " ".join(word for word in words if word)
        try:
            assert self.process.stdin
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended, which its answer says
        return request

    def rate(self, engine: str, op: str) -> Callable[[], float]:
        """A function that measures transactions per second."""
        return lambda: self.answer(self.ask(engine, op))["per_s"]

    def close(self) -> None:
        try:
            self.process.communicate(timeout=60)  # ends its input
        except (OSError, ValueError, subprocess.TimeoutExpired):
            pass
        end(self.process)


class BarePages(Peers):
    """`bare_pages`, which answers in the same way: what the disk takes of a program that only moves pages."""

    @staticmethod
    def built(context: "Context") -> bool:
        return os.access(os.path.join(context.binaries, "bare_pages"), os.X_OK)

    def __init__(self, context: "Context", more: Sequence[str], seconds: float, warmup: float) -> None:
        self.start(context, ["bare_pages", *more], (), seconds, warmup)
