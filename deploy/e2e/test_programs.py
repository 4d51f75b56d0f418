"""The programs that a sweep calls, counters and ipc: what they print, how they fail, what they leave behind."""

import json
import os
import signal
import subprocess
import time
from typing import Any

import pytest

from conftest import BINARIES, Result

BUILD = os.path.dirname(BINARIES if os.path.isdir(BINARIES) else os.path.dirname(BINARIES))
PROGRAMS = os.path.join(BUILD, "lib", "islands")
SHORT = ["--seconds", "0.1", "--warmup", "0.02", "--seed", "3"]
MECHANISMS = ["pipe", "fifo", "posix-mq", "tcp", "uds-stream", "uds-seqpacket", "uds-datagram", "zmq-ipc",
              "shared-memory"]

pytestmark = pytest.mark.skipif(not os.path.exists(os.path.join(PROGRAMS, "ipc")), reason="programs are not built")


def command(name: str, *arguments: object) -> list[str]:
    return [os.path.join(PROGRAMS, name), *map(str, arguments)]


def start(name: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(command(name, *arguments), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run(name: str, *arguments: object) -> Result:
    """Runs a program to its end, after which nothing of it may be left."""
    process = start(name, *arguments)
    out, err = process.communicate(timeout=30)
    assert not names_left(process.pid)
    return Result(process.returncode, out, err)


def run_json(name: str, *arguments: object) -> Any:
    done = run(name, *SHORT, *arguments, "--format", "json")
    assert (done.code, done.err) == (0, ""), done
    return json.loads(done.out)


def names_left(pid: int) -> list[str]:
    """What a mechanism might leave in the system: every such name has the process's id in it."""
    own = f"islands-ipc-{pid}-"
    found = []
    for folder in (os.environ.get("TMPDIR", "/tmp"), "/dev/mqueue", "/dev/shm"):
        if os.path.isdir(folder):
            found += [name for name in os.listdir(folder) if own in name]
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as sockets:
        return found + [line for line in sockets if own in line]


def start_ipc(*arguments: object, seconds: float = 60) -> tuple[subprocess.Popen[str], int]:
    """Starts a long exchange; returns the process and, once it runs, its peer's pid."""
    process = start("ipc", "--seconds", seconds, *arguments)
    deadline = time.monotonic() + 20
    while True:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as children:
            peers = children.read().split()
        # Loading the machine may fork as well, but not for as long as that.
        time.sleep(0.15)
        if peers and is_alive(int(peers[0])):
            return process, int(peers[0])


def is_alive(pid: int) -> bool:
    """One that has ended but waits for its new parent to ask for its exit code counts as gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} was left behind"
        time.sleep(0.01)


@pytest.mark.parametrize("counters", ["single", "per-socket", "per-core"])
@pytest.mark.parametrize("workers", ["spread", "grouped", "os"])
def test_counters(counters: str, workers: str) -> None:
    result = run_json("counters", "--counters", counters, "--workers", workers)
    assert list(result) == ["parameters", "metrics", "placement"]
    assert result["parameters"] | {"counters": counters, "workers": workers, "seconds": 0.1, "seed": 3,
                                   "lock": "spin"} == result["parameters"]
    metrics = result["metrics"]
    assert 0 <= metrics["thread_min_per_s"] <= metrics["thread_max_per_s"] <= metrics["increments_per_s"] * 1.0001
    assert metrics["increments_per_s"] > 0 and metrics["std_dev_percent"] >= 0
    assert metrics["threads"] == result["parameters"]["threads"] >= metrics["counters"] >= 1
    assert "thread" in result["placement"]


def test_counters_with_more_threads_than_cores() -> None:
    threads = 3 * (os.cpu_count() or 1)
    for lock in ("spin", "mutex"):
        result = run_json("counters", "--threads", threads, "--lock", lock, "--counters", "single")
        assert result["metrics"]["threads"] == threads
        assert f"{threads} threads sharing" in result["placement"]


def test_counters_interrupted() -> None:
    process = start("counters", "--seconds", 60)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=10) == ("", "")
    assert process.returncode == 130


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("wait", ["sleep", "spin"])
def test_ipc(mechanism: str, wait: str) -> None:
    for where, batch in [("same-core", 1), ("same-socket", 32)]:
        result = run_json("ipc", "--mechanism", mechanism, "--wait", wait, "--where", where, "--batch", batch)
        if "skipped" in result:
            assert list(result) == ["skipped"] and result["skipped"]
            continue
        assert list(result) == ["parameters", "metrics", "placement"]
        assert result["parameters"] | {"mechanism": mechanism, "wait": wait, "where": where, "batch": batch,
                                       "bytes": 64} == result["parameters"]
        metrics = result["metrics"]
        assert metrics["messages_per_s"] > 0 and result["placement"]
        assert 1 <= metrics["in_flight_max"] <= batch
        if batch == 1:
            assert 0 < metrics["round_trip_us_p50"] <= metrics["round_trip_us_p99"]
        else:
            assert "round_trip_us_p50" not in metrics


def test_ipc_skips_what_the_machine_has_not() -> None:
    result = run_json("ipc", "--cores", "1", "--where", "cross-socket")
    assert result == {"skipped": "all these cores are in one socket"}
    text = run("ipc", "--cores", "1", "--where", "same-cache")
    assert text.code == 0 and text.out.startswith("ipc: skipped: ") and text.out.count("\n") == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_ipc_peer_dies(mechanism: str) -> None:
    process, peer = start_ipc("--mechanism", mechanism, "--where", "same-core")
    os.kill(peer, signal.SIGKILL)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (1, "")
    assert err == "ipc: the peer process was killed by signal 9 (Killed)\n"
    assert not is_alive(peer) and not names_left(process.pid)


@pytest.mark.parametrize("number, mechanism, wait, code", [
    (signal.SIGINT, "pipe", "sleep", 130), (signal.SIGTERM, "shared-memory", "spin", 130),
    (signal.SIGTERM, "fifo", "sleep", 130), (signal.SIGINT, "zmq-ipc", "sleep", 130),
    (signal.SIGINT, "posix-mq", "spin", 130), (signal.SIGKILL, "posix-mq", "sleep", -9),
    (signal.SIGKILL, "zmq-ipc", "spin", -9), (signal.SIGKILL, "shared-memory", "sleep", -9)])
def test_ipc_ended_by_a_signal_leaves_nothing(number: signal.Signals, mechanism: str, wait: str, code: int) -> None:
    process, peer = start_ipc("--mechanism", mechanism, "--where", "same-core", "--wait", wait)
    process.send_signal(number)
    assert process.communicate(timeout=10) == ("", "")
    assert process.returncode == code
    if number == signal.SIGKILL:
        wait_until_gone(peer)  # the kernel ends it a little later, and somebody else must reap it
    assert not is_alive(peer) and not names_left(process.pid)


def test_ipc_peer_that_hangs() -> None:
    process, peer = start_ipc("--mechanism", "pipe", "--where", "same-core", "--patience", 0.3, seconds=1)
    os.kill(peer, signal.SIGSTOP)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (1, "")
    assert err == "ipc: no end after 1.5 s: the peer process does not answer\n"
    assert not is_alive(peer)


@pytest.mark.parametrize("arguments, complaint", [
    (["counters", "--counters", "many"], "many"),
    (["counters", "--workers", "mix"], "mix"),
    (["counters", "--seconds", "nan"], "nan"),
    (["counters", "--cores", "9999"], "--cores: found 9999 cores, expected at most the "),
    (["counters", "--cores", "a-b"], "--cores a-b"),
    (["ipc", "--mechanism", "telepathy"], "telepathy"),
    (["ipc", "--where", "elsewhere"], "elsewhere"),
    (["ipc", "--batch", "0"], "--batch"),
    (["ipc", "--bytes", "8"], "--bytes"),
    (["ipc", "--warmup", "-1"], "--warmup"),
    (["ipc", "--nonsense"], "--nonsense"),
])
def test_usage(arguments: list[str], complaint: str) -> None:
    done = run(*arguments)
    assert done.code == 2 and not done.out
    assert complaint in done.err and done.err.count("\n") == 1
    assert done.err.startswith(arguments[0] + ": ")


@pytest.mark.parametrize("name", ["counters", "ipc"])
def test_help_and_text(name: str) -> None:
    usage = run(name, "--help")
    assert usage.code == 0 and "Exit codes" in usage.out and not usage.err
    text = run(name, *SHORT)
    assert text.code == 0 and "placement: " in text.out and not text.err
