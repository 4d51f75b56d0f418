"""What every island tells Prometheus, scraped from a running cluster and held against what the run itself reports."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator

import pytest

from cluster import Cluster, cluster, loaded, wait_until  # noqa: F401
from conftest import ROOT, Islands
from dashboard_files import tool

PAGE = os.path.join(ROOT, "dashboards", "METRICS.md")
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<type>\w+) \| (?P<labels>.*?) \| (?P<meaning>.+) \|$")
LINE = re.compile(r"^(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Watched = tuple[Cluster, int]  # two islands, and the first one's port


# Files of tests run side by side: what one has found free, another may take before it is used.
FIRST_PORT = 21000 + 5000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def free_ports(count: int, above: int = FIRST_PORT) -> int:
    """A base port with `count` free ports in a row."""
    for base in range(above, 60000, 97):
        sockets: list[socket.socket] = []
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


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


def samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """(name, labels, value) of every line that is not a comment."""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = LINE.match(line)
        assert match, line
        yield match["name"], dict(LABEL.findall(match["labels"] or "")), float(match["value"])


def total(text: str, name: str, **labels: str) -> float:
    return sum(value for found, has, value in samples(text)
               if found == name and all(has.get(key) == wanted for key, wanted in labels.items()))


def up_watched(cluster: Cluster, durability: str = "none", more: str = "") -> Watched:
    """`more` of the deployment file. A gateway has the port after those of the islands."""
    base = free_ports(3)
    cluster.write("2ISL", durability=durability, more=more)
    with open(cluster.file, encoding="utf-8") as file:
        text = file.read().replace("base_port: 0", f"base_port: {base}")
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(text)
    cluster.up()
    return cluster, base


@pytest.fixture
def watched(cluster: Cluster) -> Watched:
    return up_watched(cluster)


def test_counters_agree_with_the_run(watched: Watched) -> None:
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
    phases = {phase: sum(total(text, "islands_two_phase_total", phase=phase) for text in texts)
              for phase in ("prepare_sent", "voted_yes", "voted_read", "voted_no", "commit_sent", "acknowledged")}
    assert phases["prepare_sent"] == phases["voted_yes"] + phases["voted_read"] + phases["voted_no"] > 0
    assert phases["commit_sent"] == phases["acknowledged"] > 0
    for island, text in enumerate(texts):
        assert {labels["island"] for _, labels, _ in samples(text) if "island" in labels} == {str(island)}
        for activity in ("executing", "messaging", "waiting"):
            assert total(text, "islands_worker_seconds_total", activity=activity) > 0
        assert total(text, "islands_experiment_info") == 0
        assert total(text, "islands_build_info") == total(text, "islands_boot_epoch") == 1
        assert total(text, "islands_restarts_total") == 0
        assert total(text, "islands_buffer_pool_resident_bytes") > 20e6  # half of 240,000 rows of 250 bytes
        assert total(text, "islands_peer_links_connected") == total(text, "islands_peer_links_expected") == 1
        assert total(text, "islands_island_info", layout="2ISL") == 1
        assert total(text, "islands_locks_held") == 0


def locks_during_run(cluster: Cluster, port: int, moments: int = 20) -> list[float]:
    """How many locks an island holds at each of some moments of a run."""
    process = cluster.start("run", cluster.file, "micro", "--mpl", "1", "--duration", "60", "--op", "update")
    try:
        wait_until(lambda: cluster.island(0)["running"], what="the run")
        return [total(scrape(port), "islands_locks_held") for _ in range(moments)]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


@pytest.mark.parametrize("latching", ["auto", "always"])
def test_one_worker_takes_locks_only_when_told_to(cluster: Cluster, latching: str) -> None:
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


def documented(section: str = "") -> dict[str, tuple[str, set[str], bool]]:
    """name -> (type, names of its labels, whether there may be more) of every metric on the page, or in a section."""
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [match for match in map(ROW.match, text.splitlines()) if match]
    found = {}
    for row in rows:
        labels = row["labels"].split("; ") if row["labels"] else []
        found[row["name"]] = (row["type"], {label.split(":")[0].strip("`") for label in labels} - {"parameters"},
                              "parameters" in labels)
    return found


def test_page_is_what_the_code_says(islands: Islands) -> None:
    islandd = os.path.join(os.path.dirname(islands), "islandd")
    page = subprocess.run([islandd, "--metrics-page"], capture_output=True, text=True, timeout=30, check=True).stdout
    with open(PAGE, encoding="utf-8") as file:
        assert file.read() == page, "islandd --metrics-page > dashboards/METRICS.md"
    assert len(documented()) > 30


@pytest.mark.parametrize("durability", ["none", "lazy"])
def test_islands_serve_what_the_page_says(cluster: Cluster, durability: str) -> None:
    """While a run is going on: all of it, with these types and labels, and nothing else."""
    _, base = up_watched(cluster, durability)
    of_log, of_gateway = documented("Log and checkpoints").keys(), documented("The gateway").keys()
    page = {name: rest for name, rest in documented().items() if name not in of_gateway}
    assert len(of_log) > 10 and len(of_gateway) > 10
    process = cluster.start("run", cluster.file, "micro", "--duration", "60", "--op", "update", "--multisite", "50")
    try:
        wait_until(lambda: cluster.island(0)["running"] and cluster.island(1)["running"], what="the run")
        for island in range(2):
            scrape(base + island)  # the endpoint's own metrics know of scrapes that are over
            text = scrape(base + island)
            types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
            may_be_absent = {"islands_memory_node_bytes"}  # where the kernel does not tell
            assert types.keys() & of_log == (set() if durability == "none" else of_log)
            assert types.keys() - page.keys() == set() and page.keys() - types.keys() <= may_be_absent | of_log
            for name, kind in types.items():
                assert kind == page[name][0], name
            for name, labels, _ in samples(text):
                family = name if name in page else re.sub("_(bucket|count|sum)$", "", name)
                kind, expected, more = page[family]
                has = labels.keys() - {"le", "quantile"}
                expected = (expected | {"island"} if family.startswith("islands_") else expected) - {"quantile"}
                assert has == expected or (more and has > expected), (name, labels)
            assert total(text, "islands_experiment_info", workload="micro", op="update", multisite="50", zipf="0") == 1
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def test_the_gateway_serves_what_the_page_says(cluster: Cluster) -> None:
    _, base = up_watched(cluster, more="gateway: {enabled: true}\n")
    port = cluster.status()["gateway"]["metrics_port"]
    assert port == base + 2
    page = {**documented("The gateway"), **documented("The metrics endpoint")}
    scrape(port)
    text = scrape(port)
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    assert types == {name: kind for name, (kind, _, _) in page.items()}
    for name, labels, _ in samples(text):
        family = name if name in page else re.sub("_(bucket|count|sum)$", "", name)
        assert labels.keys() - {"le", "quantile"} == page[family][1] - {"quantile"}, (name, labels)
    promtool = tool("promtool")
    if promtool:
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=30)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done


def test_the_gateways_port_in_use_is_said_and_it_serves_clients(cluster: Cluster) -> None:
    base = free_ports(3)
    with socket.create_server(("127.0.0.1", base + 2)):
        cluster.write("2ISL", more="gateway: {enabled: true}\n")
        with open(cluster.file, encoding="utf-8") as file:
            text = file.read().replace("base_port: 0", f"base_port: {base}")
        with open(cluster.file, "w", encoding="utf-8") as file:
            file.write(text)
        assert cluster.up()["gateway"]["state"] == "ready"
        with open(os.path.join(cluster.folder, "run", "gateway.log"), encoding="utf-8") as log:
            assert f"cannot listen on 127.0.0.1:{base + 2}" in log.read()


def epochs(port: int) -> dict[str, float]:
    text = scrape(port)
    return {kind: total(text, "islands_log_epoch", kind=kind)
            for kind in ("current", "durable", "commit", "checkpoint")}


def value(port: int, name: str) -> float:
    return total(scrape(port), name)


@pytest.mark.parametrize("durability", ["lazy", pytest.param("sync", marks=pytest.mark.soak)])
def test_log_and_checkpoints_move_on(cluster: Cluster, durability: str) -> None:
    """And what a start repeats of the log is told by the next life."""
    _, base = up_watched(cluster, durability)
    assert value(base, "islands_recovery_seconds") == value(base, "islands_recovery_records") == 0
    counters = ("islands_log_bytes_total", "islands_checkpoints_total", "islands_cleaner_pages_written_total")
    waiting: list[float] = []
    with loaded(cluster, seconds=60) as run:
        for counter in counters:
            wait_until(lambda: value(base, counter) > 0 and value(base + 1, counter) > 0, what=counter)
        before = {counter: value(base + 1, counter) for counter in counters}
        wait_until(lambda: epochs(base)["durable"] > epochs(base)["checkpoint"] > 2, what="a later checkpoint")
        for _ in range(100):
            waiting.append(value(base, "islands_answers_waiting"))
        assert any(waiting) == (durability == "sync"), waiting
        os.kill(cluster.island(0)["pid"], signal.SIGKILL)
        wait_until(lambda: cluster.island(0)["restarts"] == 1 and cluster.island(0)["state"] == "ready",
                   what="a restart")
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=30)
    wait_until(lambda: not any(island["running"] for island in cluster.status()["islands"]), what="the end of the run")
    assert value(base, "islands_recovery_records") > 0 and value(base, "islands_recovery_seconds") > 0
    for port in (base, base + 1):
        wait_until(lambda: value(port, "islands_log_ring_used_bytes") == 0, what="all to be on disk")
        after = epochs(port)
        assert after["commit"] <= after["durable"] < after["current"], after
        assert value(port, "islands_answers_waiting") == 0
        assert value(port, "islands_cleaner_failed") == 0
        wait_until(lambda: epochs(port)["checkpoint"] > after["commit"], what="a checkpoint of all")
        assert value(port, "islands_checkpoint_age_seconds") < 1
    for counter in counters:  # of the island that nobody killed, by the pass that this last checkpoint was made by
        assert value(base + 1, counter) > before[counter], counter


def test_a_logger_that_stands_still_is_seen(cluster: Cluster) -> None:
    _, base = up_watched(cluster, "sync")
    logger = cluster.status()["log"]["logger_pid"]
    with loaded(cluster, seconds=60):
        wait_until(lambda: value(base, "islands_log_bytes_total") > 0, what="records")
        os.kill(logger, signal.SIGSTOP)
        try:
            wait_until(lambda: value(base, "islands_answers_waiting") > 0, what="answers that wait")
            wait_until(lambda: value(base, "islands_log_ring_used_bytes") > 0, what="records that wait")
            durable = epochs(base)["durable"]
            wait_until(lambda: value(base, "islands_answers_overdue_total") > 0, what="answers that waited too long")
            assert epochs(base)["durable"] == durable < epochs(base)["commit"]
        finally:
            os.kill(logger, signal.SIGCONT)
        wait_until(lambda: epochs(base)["durable"] > durable, what="the log to go on")


def seconds_of(port: int) -> tuple[float, dict[str, dict[str, float]]]:
    """Worker -> seconds by activity, and when that was."""
    begun = time.monotonic()
    text = scrape(port)
    at = (begun + time.monotonic()) / 2
    found: dict[str, dict[str, float]] = {}
    for name, labels, value in samples(text):
        if name == "islands_worker_seconds_total":
            found.setdefault(labels["worker"], {})[labels["activity"]] = value
    return at, found


def test_worker_seconds_add_up_to_the_time(watched: Watched) -> None:
    cluster, base = watched
    before_at, before = seconds_of(base)
    cluster.run("--op", "update", "--multisite", 50, duration=2)
    wait_until(lambda: total(scrape(base), "islands_transactions_in_flight") == 0, what="the end of the run")
    time.sleep(3)
    after_at, after = seconds_of(base)
    assert before.keys() == after.keys() and before
    for worker, seconds in after.items():
        spent = {activity: seconds[activity] - before[worker][activity] for activity in seconds}
        assert sum(spent.values()) == pytest.approx(after_at - before_at, rel=0.02), spent
        assert spent["idle"] > 2 and spent["executing"] > 0.1, spent


def test_restarts_are_counted(watched: Watched) -> None:
    cluster, base = watched
    assert total(scrape(base + 1), "islands_restarts_total") == 0
    epoch, begun = (total(scrape(base + 1), name) for name in ("islands_boot_epoch", "islands_start_time_seconds"))
    assert abs(begun - time.time()) < 120
    os.kill(cluster.island(1)["pid"], signal.SIGKILL)
    wait_until(lambda: cluster.island(1)["restarts"] == 1 and cluster.island(1)["state"] == "ready", what="a restart")
    text = scrape(base + 1)
    assert total(text, "islands_restarts_total") == 1
    assert total(text, "islands_boot_epoch") > epoch and total(text, "islands_start_time_seconds") >= begun
    assert total(scrape(base), "islands_restarts_total") == 0


def test_histogram_is_cumulative(watched: Watched) -> None:
    cluster, base = watched
    cluster.run("--op", "read")
    last: dict[str, tuple[float, float]] = {}
    for name, labels, value in samples(scrape(base)):
        if name == "islands_transaction_latency_seconds_bucket":
            bound = float(labels["le"])
            before = last.get(labels["scope"], (0.0, 0.0))
            assert bound > before[0] and value >= before[1]
            last[labels["scope"]] = (bound, value)
    assert last["local"][0] == float("inf") and last["local"][1] > 0


def test_promtool_finds_nothing(watched: Watched) -> None:
    cluster, base = watched
    promtool = shutil.which("promtool") or os.path.join(ROOT, "build", "tools", "promtool")
    if not os.access(promtool, os.X_OK):
        pytest.skip("promtool is not installed (package prometheus)")
    process = cluster.start("run", cluster.file, "micro", "--duration", "60", "--op", "update", "--multisite", "50")
    try:
        wait_until(lambda: all(total(scrape(base + island), "islands_experiment_info") for island in range(2)),
                   what="the run")
        texts = [scrape(base + island) for island in range(2)]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    for text in texts:
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=30)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done


def connect(port: int, receive_bytes: int | None = None) -> socket.socket:
    client = socket.socket()
    if receive_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.settimeout(10)
    client.connect(("127.0.0.1", port))
    return client


def scrape_seconds(port: int) -> float:
    begun = time.monotonic()
    assert "islands_transactions_total" in scrape(port)
    return time.monotonic() - begun


def test_clients_that_say_or_read_nothing_blind_nobody(watched: Watched) -> None:
    _, port = watched
    with contextlib.ExitStack() as held:
        for _ in range(5):
            held.enter_context(connect(port))
        half = held.enter_context(connect(port))
        half.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
        slow = held.enter_context(connect(port, receive_bytes=1))
        slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert max(scrape_seconds(port) for _ in range(5)) < 1
        time.sleep(3)
        assert slow.recv(1) and max(scrape_seconds(port) for _ in range(5)) < 1


def test_any_number_of_silent_clients_is_got_rid_of(watched: Watched) -> None:
    _, port = watched
    with contextlib.ExitStack() as held:
        for _ in range(40):
            held.enter_context(connect(port))
        assert scrape_seconds(port) < 8
        assert max(scrape_seconds(port) for _ in range(5)) < 1


def test_port_in_use_is_said_and_the_island_runs(cluster: Cluster) -> None:
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
