"""What every island tells Prometheus, scraped from a running cluster and held against what the run itself reports."""

import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.request

import pytest

from cluster import cluster, wait_until  # noqa: F401
from conftest import ROOT

LINE = re.compile(r"^(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def free_ports(count):
    """A base port with `count` free ports in a row."""
    for base in range(21000, 60000, 97):
        sockets = []
        try:
            for port in range(base, base + count):
                sockets.append(socket.create_server(("127.0.0.1", port)))
            return base
        except OSError:
            continue
        finally:
            for opened in sockets:
                opened.close()
    raise AssertionError("no free ports")


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


def samples(text):
    """(name, labels, value) of every line that is not a comment."""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = LINE.match(line)
        assert match, line
        yield match["name"], dict(LABEL.findall(match["labels"] or "")), float(match["value"])


def total(text, name, **labels):
    return sum(value for found, has, value in samples(text)
               if found == name and all(has.get(key) == wanted for key, wanted in labels.items()))


@pytest.fixture
def watched(cluster):
    base = free_ports(2)
    cluster.write("2ISL")
    with open(cluster.file, encoding="utf-8") as file:
        text = file.read().replace("base_port: 0", f"base_port: {base}")
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(text)
    cluster.up()
    return cluster, base


def test_counters_agree_with_the_run(watched):
    cluster, base = watched
    result = cluster.run("--op", "update", "--multisite", 50, warmup=0)
    texts = [scrape(base + island) for island in range(2)]
    for scope in ("local", "multisite", "distributed"):
        counted = sum(total(text, "islands_transactions_total", scope=scope, outcome="committed") for text in texts)
        # The run measures a window; the counters know all transactions from the first to the last.
        assert counted >= result["per_scope"][scope]["committed"]
        latencies = sum(total(text, "islands_transaction_latency_seconds_count", scope=scope) for text in texts)
        assert latencies == counted
    sent = total(texts[0], "islands_messages_total", direction="sent", peer="1")
    received = total(texts[1], "islands_messages_total", direction="received", peer="0")
    assert sent == received > 0
    for island, text in enumerate(texts):
        assert {labels["island"] for _, labels, _ in samples(text) if "island" in labels} == {str(island)}
        assert total(text, "islands_worker_busy_seconds_total") > 0
        assert total(text, "islands_buffer_pool_resident_bytes") > 20e6  # half of 240,000 rows of 250 bytes
        assert total(text, "islands_peer_links_connected") == total(text, "islands_peer_links_expected") == 1
        assert total(text, "islands_island_info", layout="2ISL") == 1
        assert total(text, "islands_locks_held") == 0


def locks_during_run(cluster, port, moments=20):
    """How many locks an island holds at each of some moments of a run."""
    process = cluster.start("run", cluster.file, "micro", "--mpl", "1", "--duration", "60", "--op", "update")
    try:
        wait_until(lambda: cluster.island(0)["running"], what="the run")
        return [total(scrape(port), "islands_locks_held") for _ in range(moments)]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


@pytest.mark.parametrize("latching", ["auto", "always"])
def test_one_worker_takes_locks_only_when_told_to(cluster, latching):
    port = free_ports(1)
    cluster.write("1ISL", more="cores: 1\n")
    with open(cluster.file, encoding="utf-8") as file:
        text = file.read().replace("base_port: 0", f"base_port: {port}").replace("MiB", f"MiB, latching: {latching}")
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(text)
    cluster.up()
    held = locks_during_run(cluster, port)
    assert any(held) if latching == "always" else not any(held), held
    assert cluster.run("--op", "update")["sum_check"] == "ok"


def test_histogram_is_cumulative(watched):
    cluster, base = watched
    cluster.run("--op", "read")
    last = {}
    for name, labels, value in samples(scrape(base)):
        if name == "islands_transaction_latency_seconds_bucket":
            bound = float(labels["le"])
            before = last.get(labels["scope"], (0.0, 0.0))
            assert bound > before[0] and value >= before[1]
            last[labels["scope"]] = (bound, value)
    assert last["local"][0] == float("inf") and last["local"][1] > 0


def test_promtool_finds_nothing(watched):
    cluster, base = watched
    promtool = shutil.which("promtool") or os.path.join(ROOT, "build", "tools", "promtool")
    if not os.access(promtool, os.X_OK):
        pytest.skip("promtool is not installed (package prometheus)")
    cluster.run("--op", "update", "--multisite", 50)
    for island in range(2):
        done = subprocess.run([promtool, "check", "metrics"], input=scrape(base + island), capture_output=True,
                              text=True, timeout=30)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done


def test_port_in_use_is_said_and_the_island_runs(cluster):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cluster.write("1ISL")
        port = taken.getsockname()[1]
        with open(cluster.file, encoding="utf-8") as file:
            text = file.read().replace("base_port: 0", f"base_port: {port}")
        with open(cluster.file, "w", encoding="utf-8") as file:
            file.write(text)
        cluster.up()
        with open(os.path.join(cluster.folder, "run", "island-0.log"), encoding="utf-8") as log:
            assert f"127.0.0.1:{port}" in log.read()
        assert cluster.run("--op", "read")["sum_check"] == "ok"
