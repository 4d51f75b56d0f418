"""`make demo` as a user runs it: the table comes, and no process stays, whether it ends, is interrupted or fails."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "experiments"))
import demo  # noqa: E402
from islands_command import RunReport, processes_of, run_program  # noqa: E402

COMMAND = [sys.executable, os.path.join(ROOT, "experiments", "demo.py"), "--quick"]

needs_islands = pytest.mark.skipif(not os.path.exists(os.path.join(ROOT, "build/release/bin/islandd")),
                                   reason="islandd is not built")


def start(directory: pathlib.Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMAND, "--directory", str(directory), *more], cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@needs_islands
def test_table_and_no_process_left(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "demo"
    process = start(directory)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, out + err
    assert "thousand transactions per second" in out
    assert "18 of 18 runs: the sum over all rows equals the committed row updates" in out
    runs = json.loads((directory / "demo.json").read_text())["runs"]
    assert [run["sum_check"] for run in runs] == ["ok"] * 18
    assert all(run["committed"] > 0 for run in runs)
    # Ten rows over all data at 100 % multisite: hardly ever one island's alone, unless there is only one.
    distributed = {run["layout"]: run["per_scope"]["distributed"]["committed"] / run["committed"]
                   for run in runs if run["multisite_percent"] == 100}
    assert distributed.pop("1ISL") == 0
    assert all(share > 0.9 for share in distributed.values()), distributed
    assert processes_of(str(directory)) == []


@needs_islands
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_leaves_no_process(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    directory = tmp_path / "demo"
    process = start(directory, "--seconds", "1000")
    wait_until(lambda: any(b"islandd" in command_line(pid) for pid in processes_of(str(directory))))
    time.sleep(1)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "stopping the islands" in err
    assert processes_of(str(directory)) == []


def command_line(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_nothing_built_says_so(tmp_path: pathlib.Path) -> None:
    process = start(tmp_path / "demo", "--bin", str(tmp_path))
    out, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "make build" in err


def test_table_has_a_row_per_layout() -> None:
    results = [cast(RunReport, {"layout": layout, "op": op, "multisite_percent": percent, "zipf": 0,
                                "committed_per_s": 1500.0})
               for layout in ("1ISL", "2ISL") for op in demo.OPERATIONS for percent in demo.MULTISITE]
    text = demo.table(results, ["1ISL", "2ISL"])
    assert text.count("1ISL" + " " * 10) == 2
    assert text.count("1.5") == 16


def test_signal_while_a_program_starts_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes when the program is there and its handle is not: nobody would end it, and it may be an `islands up`."""
    begun: list[subprocess.Popen[str]] = []

    class Interrupted(Exception):
        pass

    class Starting(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            begun.append(self)
            signal.raise_signal(signal.SIGINT)

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    monkeypatch.setattr(subprocess, "Popen", Starting)
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(Interrupted):
            run_program(["sleep", "60"])
        assert signal.getsignal(signal.SIGINT) is interrupt
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        assert [process.poll() for process in begun] == [-signal.SIGINT]
    finally:
        begun[0].kill()
        begun[0].wait()
