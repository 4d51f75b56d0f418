"""A small deployment that keeps a log, for tests that end it again and again: two islands with a table of `append`, the
rings beside the data, and perhaps a disk that fails (disk_faults.py)."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator

from cluster import Cluster, wait_until
from conftest import Islands, Result
from disk_faults import DiskFaults

MORE = """machine: 'pack:2 [numa(memory=1GB)] core:{workers} pu:1'
data:
  sites: 2
  tables:
    - {{name: append, key: [uint64], range: [0, 2000], row_bytes: 120}}
"""

class Box:
    """In a folder of its own."""

    def __init__(self, islands: Islands, durability: str, workers: int = 1) -> None:
        self.durability, self.workers = durability, workers
        self.folder = tempfile.mkdtemp(prefix="islands-")
        self.data, self.rings = (os.path.join(self.folder, name) for name in ("data", "rings"))
        self.cluster = Cluster(islands, self.folder).write("2ISL", durability=durability,
                                                           more=MORE.format(workers=workers))
        with open(self.cluster.file, encoding="utf-8") as file:
            text = file.read().replace("log: {", f"log: {{ring_directory: {self.rings}, ring_bytes: 1MiB, ")
        with open(self.cluster.file, "w", encoding="utf-8") as file:
            file.write(text)
        self.faults: DiskFaults | None = None
        self.histories = 0
        self.history = self.new_history()

    def remove(self) -> None:
        left = self.cluster.clean()
        shutil.rmtree(self.folder, ignore_errors=True)
        assert left == {}, "processes were left behind"

    def new_history(self) -> str:
        """Where runs write from now on; those that do not load write where the load has said."""
        self.histories += 1
        self.history = os.path.join(self.folder, f"history-{self.histories}")
        os.mkdir(self.history)
        return self.history

    def up(self) -> Result:
        faults = self.faults.environment if self.faults else {}
        return self.cluster.islands.run("up", self.cluster.file, env={**os.environ, **faults})

    def down(self) -> Result:
        return self.cluster.islands.run("down", self.cluster.file)

    def verify(self) -> Result:
        return self.cluster.islands.run("verify", self.cluster.file)

    def run(self, seconds: float = 0.1, *more: str) -> Result:
        return self.cluster.islands.run(*self.words(seconds), *more)

    def words(self, seconds: float) -> list[object]:
        return ["run", self.cluster.file, "append", "--history", self.history, "--rows", "4", "--multisite", "50",
                "--zipf", "0.7", "--mpl", "8", "--warmup", "0", "--duration", seconds, "--results",
                os.path.join(self.folder, "results")]

    @contextlib.contextmanager
    def running(self, seconds: float) -> Iterator[subprocess.Popen[str]]:
        """A run in the background, from when it has begun; gone afterwards, whatever happens."""
        process = self.cluster.start(*self.words(seconds))
        try:
            wait_until(lambda: process.poll() is not None or self.cluster.island(1)["running"], what="the run")
            yield process
        finally:
            process.kill()
            process.communicate()

    def ready(self) -> bool:
        status = self.cluster.islands.run("status", self.cluster.file, "--format", "json")
        return status.code == 0 and {one["state"] for one in json.loads(status.out)["islands"]} == {"ready"}

    def supervisor_lives(self) -> bool:
        return any(" supervise " in words for words in self.cluster.alive().values())

    def islands_live(self) -> bool:
        """Or their supervisor, or their logger."""
        return any(" run " not in words for words in self.cluster.alive().values())

    def kill_all(self) -> None:
        for pid in self.cluster.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.cluster.alive(), what="the end of all processes")
