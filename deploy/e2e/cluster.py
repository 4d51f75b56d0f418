"""One deployment in a folder of its own, for tests: start it, look at it, hurt it, and leave nothing behind."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

import pytest

from conftest import Document, Islands

T = TypeVar("T")

FILE = """version: 1
name: {name}
layout: {layout}
storage: {{buffer_pool: {pool}, {mode}log: {{durability: {durability}, votes: {votes}}}}}
messaging: {{transport: {transport}}}
metrics: {{base_port: {port}}}
"""


def wait_until(condition: Callable[[], T], seconds: float = 20, what: str = "condition") -> T:
    """Polls until it holds and returns what it returned."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


def line_of(stream: IO[str] | None) -> str:
    """The next line of a process that was started with a pipe."""
    assert stream
    return stream.readline()


def processes(folder: str) -> dict[int, str]:
    """Command lines of live processes that mention the folder, by pid; zombies have none."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(folder + "/" in word for word in words):
            found[int(pid)] = " ".join(words)
    return found


class Cluster:
    def __init__(self, islands: Islands, folder: str) -> None:
        self.islands = islands
        self.folder = folder
        self.file = os.path.join(folder, "deployment.yaml")

    def write(self, layout: str = "2ISL", transport: str = "shm", name: str = "test", more: str = "",
              durability: str = "none", pool: str = "512MiB", mode: str = "", port: int = 0) -> "Cluster":
        """`durability`: none, lazy or sync; with +forced, votes wait for the disk too."""
        durability, _, votes = durability.partition("+")
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(FILE.format(name=name, layout=layout, transport=transport, durability=durability,
                                   votes=votes or "epoch", pool=pool, mode=f"mode: {mode}, " if mode else "", port=port)
                       + more)
        return self

    def up(self, *options: object) -> Document:
        return self.islands.json("up", self.file, *options)

    def down(self, *options: object) -> None:
        done = self.islands.run("down", self.file, *options)
        assert done.code == 0, done
        left = self.alive()
        assert left == {}, left

    def status(self) -> Document:
        done = self.islands.run("status", self.file, "--format", "json")
        assert done.code in (0, 3), done
        status: Document = json.loads(done.out)
        processes_of_it = status["islands"] + ([status["gateway"]] if "gateway" in status else [])
        assert done.code == 3 or all(process["state"] == "ready" for process in processes_of_it), done
        return status

    def island(self, number: int) -> Document:
        return self.status()["islands"][number]

    def run(self, *options: object, code: int | None = 0, duration: float = 0.5, warmup: float = 0.2,
            timeout: float = 60) -> Document:
        """`islands run` of the microbenchmark; short unless told otherwise."""
        return self.islands.json("run", self.file, "micro", "--duration", duration, "--warmup", warmup, "--results",
                                 os.path.join(self.folder, "results"), *options, code=code, timeout=timeout)

    def start(self, *arguments: object, **more: Any) -> subprocess.Popen[str]:
        """`islands ARGUMENTS` in the background."""
        return subprocess.Popen([self.islands, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, cwd=self.folder, **more)

    def alive(self) -> dict[int, str]:
        return processes(self.folder)

    def island_pids(self) -> list[int]:
        return [island["pid"] for island in self.status()["islands"]]

    def clean(self) -> dict[int, str]:
        self.islands.run("down", self.file)
        left = self.alive()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return left


@contextlib.contextmanager
def loaded(cluster: Cluster, seconds: float = 60, seed: int = 1) -> Iterator[subprocess.Popen[str]]:
    """A run in the background, from when it has begun; gone afterwards, whatever happens. Skewed, so that island 0
    works for the others."""
    process = cluster.start("run", cluster.file, "micro", "--op", "mix", "--update-percent", "50", "--multisite", "40",
                            "--zipf", "0.9", "--mpl", "8", "--warmup", "0", "--duration", str(seconds), "--seed",
                            str(seed), "--results", os.path.join(cluster.folder, "results"))

    def has_begun() -> bool:
        assert process.poll() is None, process.communicate()
        return cluster.island(0)["running"]

    try:
        wait_until(has_begun, what="the run")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def cluster(islands: Islands, folder: str) -> Iterator[Cluster]:
    if not os.access(os.path.join(os.path.dirname(islands), "islandd"), os.X_OK):
        pytest.skip("islandd is not built")
    made = Cluster(islands, folder)
    yield made
    assert made.clean() == {}, "processes were left behind"
