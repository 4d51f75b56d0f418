"""`make bench` as a user runs it: every section comes, every check held, and no process stays. Never how fast."""

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import time
from argparse import Namespace
from types import SimpleNamespace
from typing import cast

import pytest

import disk_faults
from cluster import processes, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "experiments"))
import bench  # noqa: E402
from benchmarks import disks, restarts  # noqa: E402
from benchmarks.context import Context  # noqa: E402
from benchmarks.logs import Cost, rounds_in  # noqa: E402
from benchmarks.memory_group import MemoryGroup, NoGroups, hierarchy  # noqa: E402
from benchmarks.section import Bar, Section  # noqa: E402
from durability import file_system  # noqa: E402
from islands_command import Failed  # noqa: E402

COMMAND = [sys.executable, os.path.join(ROOT, "experiments", "bench.py")]
SECTIONS = ["peers", "cores", "multisite", "messages", "allocations", "many", "mpl", "sizes", "instructions",
            "workloads", "gateway", "durability", "disks", "replay", "cleaner", "larger"]

needs_islands = pytest.mark.skipif(not os.path.exists(os.path.join(ROOT, "build/release/bin/islandd")),
                                   reason="islandd is not built")


def start(directory: str, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMAND, "--directory", str(directory), *more], cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@needs_islands
@pytest.mark.soak
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
    if os.path.exists(os.path.join(ROOT, "build/release/bin/workload_peers")):
        rows = sections["workloads"]["rows"]
        assert list(rows) == ["TPC-C Payment", "TPC-C New-Order", "TATP"]
        assert all(rate > 0 for values in rows.values() for rate in values[:9]), "SQLite may be missing"
        assert len(sections["workloads"]["bars"]) == 3
    fronts = sections["gateway"]["rows"]
    assert [values[2] is not None for values in fronts.values()].count(True) == 8, "each beside the echo of its kind"
    assert all(rate > 0 and cpu_us > 0 and 0 < p50_us <= p99_us for rate, cpu_us, _, p50_us, p99_us in fronts.values())
    costs = sections["durability"]["rows"]
    for shape in ("2ISL, local", "1ISL, two workers", "2ISL, 100 % multisite"):
        rate, of_none, cpu_us, of_none_per_cpu, logger, log_bytes = costs[f"{shape}, none"]
        assert rate > 0 and cpu_us > 0 and (of_none, of_none_per_cpu, logger, log_bytes) == (1, 1, None, None)
        rate, _, cpu_us, of_none_per_cpu, logger, log_bytes = costs[f"{shape}, lazy"]
        assert rate > 0 and cpu_us > 0 and of_none_per_cpu > 0 and 0 <= logger < 1
        assert log_bytes > 100, "ten changed counters take more"
    assert sections["durability"]["notes"][-1].startswith("logs on ")
    for row in (disks.IN_MEMORY, disks.LAZY, disks.SYNC):
        rate, cpu_us, log_bytes, syncs, call_kib, disk_alone = sections["disks"]["rows"][row]
        assert rate > 0 and cpu_us > 0 and log_bytes > 100 and syncs > 0 and call_kib > 0
        assert (disk_alone is None) == (row == disks.IN_MEMORY), "beside what the disk takes stands what is on it"
    if os.path.exists(os.path.join(ROOT, "build/release/tests/disk_faults.so")):
        rate, cpu_us, records, redo_s, up_s = sections["replay"]["rows"]["replay"]
        assert rate > 0 and cpu_us > 0 and 0 < redo_s < up_s
        assert records > 0, "and not fewer than there were transactions: bench would say WRONG"
        assert sections["cleaner"]["rows"]["on"][3] > 0, "it writes no pages"
        assert sections["cleaner"]["rows"]["off"][3:5] == [0, 0], "it goes on writing"
    for row, cells in sections["larger"]["rows"].items():
        read, _, read_pages, update, _, update_pages = cells
        beside = row in ("LMDB", "RocksDB TransactionDB", "WiredTiger")
        assert beside and read is None or read > 0 and update > 0, "without a limit to memory there are no others"
        assert (read_pages is None) == (update_pages is None) == ("one worker" not in row and "loop" not in row)
    assert sections["larger"]["rows"]["islands, one worker"][2] > 0, "it reads no pages"
    completes = [bar for bar in sections["many"]["bars"] if bar["at_most"] == 0]
    assert [bar["value"] for bar in completes] == [0], completes
    assert not os.path.exists(directory)
    assert processes(folder) == {}


@needs_islands
@pytest.mark.parametrize("number, section", [
    (signal.SIGINT, "peers"), (signal.SIGTERM, "gateway"), (signal.SIGINT, "durability"), (signal.SIGTERM, "disks"),
    (signal.SIGINT, "replay"), (signal.SIGTERM, "replay"),
    pytest.param(signal.SIGTERM, "larger", marks=pytest.mark.soak)])
def test_interrupted_leaves_nothing(folder: str, number: signal.Signals, section: str) -> None:
    """One handler has all signals, so both of them only where most is going on."""
    directory, logs = os.path.join(folder, "bench"), os.path.join(folder, "logs")
    process = start(directory, "--only", section, "--seconds", "1000", "--log-directory", logs)
    wait_until(lambda: any("islandd" in line for line in processes(folder).values()), what="an island")
    if section != "peers":  # in the midst of a measurement
        run = "gateway_load load" if section == "gateway" else "islands run"
        wait_until(lambda: any(run in line for line in processes(folder).values()), what="a run")
    time.sleep(0.3)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "stopping the islands" in err
    assert processes(folder) == {}
    assert not os.path.exists(directory) and os.listdir(logs) == []
    with contextlib.suppress(NoGroups):
        with open("/proc/self/mounts", encoding="utf-8") as file:
            parent, _ = hierarchy(file.read())
        assert not [name for name in os.listdir(parent) if name.startswith(f"islands-bench-{process.pid}-")]


@pytest.mark.soak
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


def epoch_block(number: int, magic: bytes = b"ISLEPOCH") -> bytes:
    return (magic + struct.pack("<Q", number)).ljust(4096, b"\0")


@pytest.mark.parametrize("blocks, rounds", [((6, 7), 7), ((8, 7), 8)])
def test_rounds_of_a_logger_are_counted_by_its_epoch_file(blocks: tuple[int, int], rounds: int) -> None:
    assert rounds_in(b"".join(map(epoch_block, blocks))) == rounds
    assert rounds_in(epoch_block(0, bytes(8)) + epoch_block(1)) == 1, "the first block is the second one's"
    with pytest.raises(Failed, match="EPOCH"):
        rounds_in(epoch_block(1, bytes(8)) + epoch_block(2, bytes(8)))


def test_metrics_are_added_up_by_name() -> None:
    found = restarts.totals('# HELP islands_a_total Some, e.g. islands_a_total 7\n# TYPE islands_a_total counter\n'
                            'islands_a_total{worker="0",reason="a b} 9"} 3\nislands_a_total{worker="1"} 4\n'
                            'islands_b_seconds 2.5e-03\n')
    assert found == {"islands_a_total": 7, "islands_b_seconds": 0.0025}


def test_replay_is_what_a_start_takes_longer_than_one_with_nothing_to_repeat() -> None:
    before = [restarts.Recovered(0, 0.2, 0.5), restarts.Recovered(10, 0.3, 0.5)]
    after = [restarts.Recovered(1000, 0.7, 2.5), restarts.Recovered(3010, 1.3, 6.5)]
    run = Cost(committed=4000, per_s=8000, cpu_us=4000, logger=0.25, log_bytes=200, rounds_per_s=10, call_bytes=100)
    assert restarts.replay_of(before, after, run, 1.5) == restarts.Replay(4000, 2500, 3000, 2000, 4000, 1.0, 1.5)


def test_faults_are_planned_as_their_library_reads_them(folder: str) -> None:
    planned = disk_faults.DiskFaults(folder, folder)
    faults = restarts.Faults(cast(Context, SimpleNamespace(binaries=os.path.join(ROOT, "build/release/bin"),
                                                           directory=folder)))
    assert faults.library == disk_faults.library() or "ISLANDS_BIN" in os.environ
    assert faults.path == planned.environment["ISLANDS_FAULTS"]
    faults.arm()
    found = bytes(planned.page)
    planned.arm("EIO", disk_faults.Place("island", 1))
    assert found == bytes(planned.page)
    faults.disarm()
    assert bytes(planned.page)[:4] == bytes(4)


def test_the_disk_alone_writes_and_leaves_nothing(folder: str) -> None:
    assert disks.plain_bytes_per_s(folder, files=2, call_bytes=5000, seconds=0.05) > 0
    assert os.listdir(folder) == []
    with pytest.raises(OSError):
        disks.plain_bytes_per_s("/proc", files=1, call_bytes=1, seconds=0.05)


V1 = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /groups/memory cgroup rw,relatime,memory 0 0\n"
V2 = "cgroup2 /groups/unified cgroup2 rw,nosuid 0 0\n"


@pytest.mark.parametrize("mounts, found", [
    (V1, ("/groups/memory", 1)), (V2, ("/groups/unified", 2)), (V2 + V1, ("/groups/memory", 1)),
    (V1.replace("memory 0", "cpu 0") + V2, ("/groups/unified", 2))])
def test_groups_are_made_where_the_kernel_limits_memory(mounts: str, found: tuple[str, int]) -> None:
    assert hierarchy(mounts) == found


def test_without_groups_it_says_why() -> None:
    with pytest.raises(NoGroups, match="no control groups"):
        hierarchy("tmpfs / tmpfs rw 0 0\n")


def test_a_program_cannot_have_more_memory_than_its_group() -> None:
    try:
        group = MemoryGroup("test", 32 << 20)
    except NoGroups as reason:
        pytest.skip(f"no limits to memory: {reason}")
    try:
        program = [sys.executable, "-c", "import sys; print(len(b'x' * (int(sys.argv[1]) << 20)), flush=True)"]
        small, large = (subprocess.run([*group.prefix, *program, mib], stdout=subprocess.PIPE, text=True, timeout=60)
                        for mib in ("1", "200"))
        assert (small.returncode, small.stdout) == (0, f"{1 << 20}\n")
        assert (large.returncode, large.stdout) == (-signal.SIGKILL, "")
        assert group.kills() == 1
    finally:
        group.remove()
    assert not os.path.exists(group.path)


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
