"""How long the disk of a folder keeps whoever syncs waiting, measured beside a run.

Islands with a log stand still when their rings are full and the disk takes nothing: for how long is the disk's affair,
so tests that limit a standstill allow for what a program saw that did nothing but write a block and sync it.
"""

import os
import threading
import time
from types import TracebackType

PAUSE_S = 0.1
BLOCK = b"d" * 4096


class DiskWatch(threading.Thread):
    def __init__(self, folder: str) -> None:
        super().__init__(daemon=True)
        self.path = os.path.join(folder, "disk-watch")
        self.longest_s = 0.0
        self.over = threading.Event()

    def run(self) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            while not self.over.wait(PAUSE_S):
                begin = time.monotonic()
                os.pwrite(file, BLOCK, 0)
                os.fdatasync(file)
                self.longest_s = max(self.longest_s, time.monotonic() - begin)
        finally:
            os.close(file)
            os.unlink(self.path)

    def __enter__(self) -> "DiskWatch":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.over.set()
        self.join()
