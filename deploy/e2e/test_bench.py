"""`make bench` as a user runs it: every section comes, every check held, and no process stays. Never how fast."""

import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from types import SimpleNamespace
from typing import cast

import pytest

from cluster import processes, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "experiments"))
import bench  # noqa: E402
from benchmarks.context import Context  # noqa: E402
from benchmarks.section import Bar, Section  # noqa: E402
from durability import file_system  # noqa: E402

COMMAND = [sys.executable, os.path.join(ROOT, "experiments", "bench.py")]
SECTIONS = ["peers", "cores", "multisite", "messages", "allocations", "many", "mpl", "sizes", "instructions",
            "durability"]

needs_islands = pytest.mark.skipif(not os.path.exists(os.path.join(ROOT, "build/release/bin/islandd")),
                                   reason="islandd is not built")


def start(directory: str, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMAND, "--directory", str(directory), *more], cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@needs_islands
def test_quick_shows_every_section_and_all_rows_add_up(folder: str) -> None:
    directory, file = os.path.join(folder, "bench"), os.path.join(folder, "bench.json")
    process = start(directory, "--quick", "--json", file)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, out + err
    assert "in every run the rows added up" in out
    assert "left" in err, "no ETA"
    with open(file, encoding="utf-8") as stream:
        found = json.load(stream)
    assert found["wrong"] == []
    sections = found["sections"]
    assert list(sections) == SECTIONS
    for name, section in sections.items():
        assert section["title"] in out
        assert section["rows"] or section["notes"], name
        assert all(len(values) == len(section["columns"]) for values in section["rows"].values())
        assert all(rate > 0 for samples in section["samples"].values() for rate in samples)
    # Like for like, and where it is not, it says so.
    assert "two cores against one thread" in sections["multisite"]["title"]
    assert "there is no client" in sections["many"]["notes"][-1]
    if os.path.exists(os.path.join(ROOT, "build/release/bin/peers")):
        bound = [note.rsplit("every thread", 1)[1] for note in sections["peers"]["notes"] if "every thread" in note]
        assert len(bound) == 2 and len({words.rsplit("CPU", 1)[1] for words in bound}) == 1, bound
        assert [bar["what"] for bar in sections["peers"]["bars"]] == ["read-10 / LMDB", "add-10 / LMDB"]
        assert all(value > 0 for value in sections["peers"]["rows"]["LMDB"]), "no column without a figure"
    # What needs nothing but islands is there on every machine.
    assert all(sections["cores"]["rows"][row][1] > 0 for row in ("one worker", "2ISL", "1ISL, two workers"))
    assert all(value > 0 for value in sections["multisite"]["rows"]["100"][:1])
    costs = sections["durability"]["rows"]
    for shape in ("2ISL, local", "1ISL, two workers", "2ISL, 100 % multisite"):
        rate, of_none, cpu_us, of_none_per_cpu, logger, log_bytes = costs[f"{shape}, none"]
        assert rate > 0 and cpu_us > 0 and (of_none, of_none_per_cpu, logger, log_bytes) == (1, 1, None, None)
        rate, _, cpu_us, of_none_per_cpu, logger, log_bytes = costs[f"{shape}, lazy"]
        assert rate > 0 and cpu_us > 0 and of_none_per_cpu > 0 and 0 <= logger < 1
        assert log_bytes > 100, "ten changed counters take more"
    assert sections["durability"]["notes"][-1].startswith("logs on ")
    completes = [bar for bar in sections["many"]["bars"] if bar["at_most"] == 0]
    assert [bar["value"] for bar in completes] == [0], completes
    assert not os.path.exists(directory)
    assert processes(folder) == {}


@needs_islands
@pytest.mark.parametrize("section", ["peers", "durability"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_leaves_nothing(folder: str, number: signal.Signals, section: str) -> None:
    directory, logs = os.path.join(folder, "bench"), os.path.join(folder, "logs")
    process = start(directory, "--only", section, "--seconds", "1000", "--log-directory", logs)
    wait_until(lambda: any("islandd" in line for line in processes(folder).values()), what="an island")
    if section == "durability":  # in the midst of a measurement
        wait_until(lambda: any("islands run" in line for line in processes(folder).values()), what="a run")
    time.sleep(1)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "stopping the islands" in err
    assert processes(folder) == {}
    assert not os.path.exists(directory) and os.listdir(logs) == []


@needs_islands
def test_log_on_a_disk_is_not_judged_as_one_in_memory(folder: str) -> None:
    if file_system(folder) == "tmpfs":
        pytest.skip(f"{folder} is in memory")
    file = os.path.join(folder, "bench.json")
    process = start(os.path.join(folder, "bench"), "--quick", "--only", "durability", "--log-directory",
                    os.path.join(folder, "logs"), "--json", file)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    assert "0 bars met, 0 missed, 3 not measured" in out and f"logs on {file_system(folder)} ({folder}/logs/" in out
    with open(file, encoding="utf-8") as stream:
        rows = json.load(stream)["sections"]["durability"]["rows"]
    assert all(values[0] > 0 for values in rows.values()) and len(rows) == 6
    assert os.listdir(os.path.join(folder, "logs")) == []


def test_nothing_built_says_so(folder: str) -> None:
    process = start(os.path.join(folder, "bench"), "--bin", folder)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "make build" in err


@pytest.mark.parametrize("arguments", [["--only", "everything"], ["--seconds", "0"], ["--repeat", "0"]])
def test_bad_arguments(folder: str, arguments: list[str]) -> None:
    process = start(os.path.join(folder, "bench"), *arguments)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 2 and arguments[0] in err


@pytest.mark.parametrize("wrong, code", [([], 0), (["one, update: sum check failed"], 1)])
def test_rows_that_do_not_add_up_fail_it_and_missed_bars_do_not(capsys: pytest.CaptureFixture[str], wrong: list[str],
                                                                code: int) -> None:
    section = Section("Title", "engine", [])
    section.bar("a / b", 1.0, at_least=4)
    context = cast(Context, SimpleNamespace(wrong=wrong, machine={"summary": "a machine"}))
    arguments = Namespace(repeat=5, seconds=1.0, json=None)
    assert bench.summarize(arguments, context, {"peers": section.json()}, 60, ["noisy"]) == code
    out = capsys.readouterr().out
    assert "NOTE: noisy" in out and "0 bars met, 1 missed" in out
    assert ("WRONG: one, update" in out) == bool(wrong)


@pytest.mark.parametrize("bar, met, words", [
    (Bar("a / b", 4.0, at_least=4), True, "a / b >= 4: 4.00, met"),
    (Bar("a / b", 3.99, at_least=4), False, "a / b >= 4: 3.99, MISSED"),
    (Bar("a / b", 1.3, at_most=1.3), True, "a / b <= 1.3: 1.30, met"),
    (Bar("a / b", 0.001, at_most=0), False, "MISSED"),
    (Bar("a / b", None, at_least=4), None, "a / b >= 4: not measured"),
])
def test_bars(bar: Bar, met: bool | None, words: str) -> None:
    assert bar.met() is met
    assert words in bar.text()


def test_section_lines_up() -> None:
    section = Section("Title", "engine", [("rate", "{:.1f}"), ("x", "{:.2f}")])
    section.row("long name", 12345.67, None)
    section.row("b", 1.0, 2.0)
    assert section.text().split("\n") == ["Title",
                                          "  engine        rate     x",
                                          "  long name  12345.7     -",
                                          "  b              1.0  2.00"]
    assert section.json()["rows"] == {"long name": (12345.67, None), "b": (1.0, 2.0)}
