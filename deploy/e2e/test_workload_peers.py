"""The driver that runs workloads on other engines (experiments/peers/): its answers, and what it leaves behind."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile

import pytest

from cluster import Cluster, cluster, line_of, processes, wait_until  # noqa: F401
from conftest import BINARIES
from test_peers import servers

PROGRAM = os.path.join(BINARIES if os.path.isdir(BINARIES) else os.path.dirname(BINARIES), "workload_peers")

pytestmark = pytest.mark.skipif(not os.path.exists(PROGRAM), reason="workload_peers is not built")


@pytest.fixture
def island(cluster: Cluster) -> str:  # noqa: F811
    cluster.write("1ISL", more="data: {sites: 1, tables: [{name: micro, key: [uint64], range: [0, 1000], "
                               "row_bytes: 250}]}\n").up()
    return os.path.join(os.path.dirname(cluster.file), "run", "island-0.json")


def start(directory: pathlib.Path, island: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([PROGRAM, "micro", "--parameter", "op=update", "--island", island, "--warmup", "0.01",
                             "--directory", str(directory), *arguments], text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_serve_answers_line_by_line(tmp_path: pathlib.Path, island: str) -> None:
    process = start(tmp_path, island, "--serve", "--engine", "lmdb,bdb,lmdb")
    assert sorted(json.loads(line_of(process.stdout))["engines"]) == ["bdb", "lmdb"]
    for engine in ("lmdb", "bdb"):
        print(engine, 0.05, file=process.stdin, flush=True)
        answer = json.loads(line_of(process.stdout))
        assert (answer["engine"], answer["audit"], answer["conflicts"]) == (engine, "ok", 0)
        assert answer["per_s"] == pytest.approx(answer["committed"] / answer["seconds"])
    print("lmdb", "fast", file=process.stdin, flush=True)
    assert "expected ENGINE SECONDS" in json.loads(line_of(process.stdout))["error"]
    process.communicate(timeout=30)
    assert process.returncode == 1 and not list(tmp_path.iterdir())


def test_engine_that_is_named_twice_has_one_row(tmp_path: pathlib.Path, island: str) -> None:
    process = start(tmp_path, island, "--engine", "lmdb,lmdb", "--seconds", "0.02", "--repeat", "1")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert [line.split()[0] for line in out.splitlines()] == ["engine", "lmdb"]


@pytest.mark.parametrize("engine", ["lmdb", "postgres", "mariadb"])
def test_interrupted_leaves_nothing(island: str, engine: str) -> None:
    if engine != "lmdb" and engine not in servers():
        pytest.skip(f"{engine} is not built or not installed")
    with tempfile.TemporaryDirectory(prefix="islands-") as folder:  # short enough for a socket, and open to all
        os.chmod(folder, 0o711)
        process = start(pathlib.Path(folder), island, "--serve", "--engine", engine)
        assert json.loads(line_of(process.stdout))["ready"]
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        wait_until(lambda: not [pid for pid in processes(folder) if pid != process.pid], what="the server's end")
        assert process.returncode == 130 and not os.listdir(folder)
