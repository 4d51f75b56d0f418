"""The driver of other engines (experiments/peers/) as `make bench` uses it: its answers, and what it leaves behind."""

import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from cluster import line_of, processes, wait_until
from conftest import BINARIES

PEERS = os.path.join(BINARIES if os.path.isdir(BINARIES) else os.path.dirname(BINARIES), "peers")
ENGINES = ["lmdb", "rocksdb", "bdb", "wiredtiger", "descents", "interleaved"]
SMALL = ["--range", "2000", "--warmup", "0.01"]

pytestmark = pytest.mark.skipif(not os.path.exists(PEERS), reason="peers is not built")


def start(directory: pathlib.Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([PEERS, "--directory", str(directory), *SMALL, *arguments], text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_every_engine_and_op(tmp_path: pathlib.Path) -> None:
    process = start(tmp_path, "--seconds", "0.02", "--repeat", "3", "--format", "json")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    report = json.loads(out)
    results = report["results"]
    assert [(row["op"], row["engine"]) for row in results] == [(op, engine) for op in ("read", "update", "add")
                                                                for engine in ENGINES]
    for row in results:
        assert row["sum_check"] == "ok" and len(row["per_s"]) == 3
        assert 0 < row["min_per_s"] <= row["median_per_s"] <= row["max_per_s"]
    assert [row["ratio_to_lmdb"] for row in results if row["engine"] == "lmdb"] == [1, 1, 1]
    assert sorted(report["engines"]) == sorted(ENGINES)
    for name, about in report["engines"].items():
        assert about["version"] and about["isolation"] and about["keeps"]
        assert about["rolls_back"] == (name not in ("descents", "interleaved"))
        assert 0 <= about["huge_mib"] <= about["memory_mib"]
    assert not list(tmp_path.iterdir())


def test_serve_answers_line_by_line(tmp_path: pathlib.Path) -> None:
    process = start(tmp_path, "--serve", "--engine", "lmdb,descents")
    ready = json.loads(line_of(process.stdout))
    assert ready["ready"] and sorted(ready["engines"]) == ["descents", "lmdb"]
    for engine, op in [("lmdb", "update"), ("lmdb", "add"), ("descents", "read"), ("lmdb", "read")]:
        print(engine, op, 0.05, file=process.stdin, flush=True)
        answer = json.loads(line_of(process.stdout))
        assert (answer["engine"], answer["op"], answer["sum_check"]) == (engine, op, "ok")
        assert answer["per_s"] == pytest.approx(answer["transactions"] / answer["seconds"])
        assert answer["seconds"] >= 0.05
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("line", ["", "lmdb", "lmdb read", "lmdb delete 1", "lmdb read -1", "lmdb read nan",
                                  "lmdb read 1 0", "lmdb read 1 2", "lmdb read 1 1 1", "bdb read 0.01"])
def test_serve_says_what_it_did_not_understand_and_goes_on(tmp_path: pathlib.Path, line: str) -> None:
    process = start(tmp_path, "--serve", "--engine", "lmdb")
    out, _ = process.communicate(f"{line}\nlmdb read 0.01\n", timeout=30)
    _, bad, good = map(json.loads, out.splitlines())
    assert "error" in bad and good["transactions"] > 0
    assert process.returncode == 1


def test_every_thread_is_pinned(tmp_path: pathlib.Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    process = start(tmp_path, "--serve", "--cpu", str(cpu))
    assert json.loads(line_of(process.stdout))["ready"]
    threads = os.listdir(f"/proc/{process.pid}/task")
    assert len(threads) > 1, "RocksDB has threads of its own"
    assert all(os.sched_getaffinity(int(thread)) == {cpu} for thread in threads)
    process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_leaves_no_file(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    process = start(tmp_path, "--seconds", "60")
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob("*/bdb")):  # in the middle of loading, or soon after
        assert time.monotonic() < deadline, "no engine was loaded"
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert not list(tmp_path.iterdir())


def servers() -> list[str]:
    """Of the engines that are servers, those that are built and installed here."""
    said = subprocess.run([PEERS, "--help"], capture_output=True, text=True, timeout=30).stdout
    found = {"postgres": shutil.which("initdb") or glob.glob("/usr/lib/postgresql/*/bin/postgres"),
             "mariadb": shutil.which("mariadbd", path="/usr/sbin:/usr/libexec:" + os.environ.get("PATH", ""))}
    return [name for name, program in found.items() if program and name in said]


@pytest.mark.parametrize("engine", ["postgres", "mariadb"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_server_ends_with_who_started_it(engine: str, number: signal.Signals) -> None:
    if engine not in servers():
        pytest.skip(f"{engine} is not built or not installed")
    with tempfile.TemporaryDirectory(prefix="islands-") as folder:  # short enough for a socket, and open to all
        os.chmod(folder, 0o711)
        process = start(pathlib.Path(folder), "--serve", "--engine", engine)
        assert json.loads(line_of(process.stdout))["ready"]
        assert [line for line in processes(folder).values() if "data" in line], "no server"
        process.send_signal(number)
        process.wait(timeout=60)  # its input stays open: where that ends, so does it, with 0
        wait_until(lambda: not [pid for pid in processes(folder) if pid != process.pid], what="the server's end")
        if number == signal.SIGINT:
            assert process.returncode == 130 and not os.listdir(folder)


@pytest.mark.parametrize("durability", ["lazy", "sync"])
def test_durability(tmp_path: pathlib.Path, durability: str) -> None:
    engines = ["lmdb", "rocksdb", "bdb", "wiredtiger"]
    process = start(tmp_path, "--seconds", "0.02", "--repeat", "1", "--threads", "2", "--op", "update", "--format",
                    "json", "--durability", durability, "--engine", ",".join(engines))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    report = json.loads(out)
    assert [(row["engine"], row["sum_check"]) for row in report["results"]] == [(name, "ok") for name in engines]
    assert report["durability"] == durability
    assert all("the machine" in about["keeps"] or "synced" in about["keeps"] for about in report["engines"].values())


def test_what_keeps_nothing_says_so(tmp_path: pathlib.Path) -> None:
    process = start(tmp_path, "--engine", "descents", "--durability", "lazy")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and "descents keeps nothing: --durability none" in err


@pytest.mark.parametrize("arguments, complaint", [
    (["--engine", "oracle"], "oracle"),
    (["--durability", "some"], "durability"),
    (["--op", "delete"], "delete"),
    (["--row-bytes", "7"], "row-bytes"),
    (["--directory", "/nowhere"], "/nowhere"),
    (["--cpu", "4095"], "--cpu 4095"),
])
def test_usage(arguments: str, complaint: str) -> None:
    done = subprocess.run([PEERS, *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert complaint in done.stderr and not done.stdout
