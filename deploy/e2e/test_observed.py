"""A real Prometheus reads two real islands and their gateway under load; one island is killed and comes back. Every
panel has data."""

import contextlib
import os
import re
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from cluster import Cluster, loaded, wait_until
from conftest import Islands
from dashboard_files import NAMES, load, rules, selectors, substitute, targets, tool, used_metrics
from prometheus_server import Prometheus
from test_gateway import FAR, ROW, TABLES
from test_metrics import free_ports, scrape, total

import islands as client  # where it is test_gateway has said

# Panels that may be empty in such a run when one island is looked at, with the reason. None may be for all islands.
MAY_BE_EMPTY = {"Mean lock wait": "an island without hot rows may see no wait: 0 / 0"}
# Metrics that islands and gateway export and no panel or rule uses, with the reason.
UNUSED = {
    "islands_recovery_records": "says why islands_recovery_seconds is what it is; once in a life",
    "islands_recovery_transactions_undone": "likewise",
    "islands_in_doubt_oldest_seconds": "`islands status` warns by it; the alert has a clock of its own",
    "islands_log_room_wait_seconds_total": "of `islands profile`, which ranks it among the queues",
    "islands_boot_epoch": "names an island's life in logs and transaction ids; panels show restarts",
    "exposer_transferred_bytes_total": "of the library that serves the page, not of islands",
    "exposer_scrapes_total": "of the library that serves the page, not of islands",
    "exposer_request_latencies": "of the library that serves the page, not of islands",
}


@contextlib.contextmanager
def clients(address: str) -> Iterator[None]:
    """Two programs: one that succeeds, one of whose transactions do not; for as long as the context."""
    over = threading.Event()

    def speak(say: Callable[[Any], object]) -> None:
        with client.connect(address, timeout=2) as db:
            while not over.wait(0.02):
                with contextlib.suppress(client.Error):
                    say(db)

    def succeed(db: Any) -> None:
        db.put("accounts", FAR, ROW)
        db.execute_many([client.Batch(), client.Batch()])
        with db.transaction() as transaction:
            transaction.add("accounts", FAR, 1)

    threads = [threading.Thread(target=speak, args=(say,))
               for say in (succeed, lambda db: db.insert("accounts", FAR, ROW))]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


Spent = tuple[float, float, float]  # between which moments a page was made, and the seconds on it


class Seen(NamedTuple):
    prometheus: Prometheus
    start: float
    under_load: float
    end: float
    pages: list[str]  # of islands 0 and 1, and of the gateway
    worker_seconds: tuple[list[Spent], list[Spent]]


def worker_seconds(base: int) -> list[Spent]:
    """By island: between which moments its page was made, and the seconds that its worker had spent by then."""
    found = []
    for island in range(2):
        before = time.monotonic()
        page = scrape(base + island)
        found.append((before, time.monotonic(), total(page, "islands_worker_seconds_total")))
    return found


def observe(cluster: Cluster, prometheus: Prometheus, base: int, longer: int) -> Seen:
    """About twenty seconds, or as many times that: a run in whose midst island 1 is killed and restarted, then a run
    that stays well."""
    start = time.time()
    address = cluster.status()["gateway"]["addresses"][0]
    with loaded(cluster, seconds=7 * longer, seed=1) as run, clients(address):
        time.sleep(3 * longer)
        victim = cluster.island(1)["pid"]
        # The supervisor restarts it within less than a scrape; so it is held back until Prometheus has seen it down.
        supervisor = cluster.status()["supervisor_pid"]
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(victim, signal.SIGKILL)
        try:
            wait_until(lambda: prometheus.at('up{island="1"} == 0'), what="Prometheus to see island 1 down")
        finally:
            os.kill(supervisor, signal.SIGCONT)
        wait_until(lambda: cluster.island(1)["state"] == "ready" and cluster.island(1)["pid"] != victim,
                   what="the restart of island 1")
        run.communicate(timeout=60)  # whether it succeeds is not what is looked at here
    with loaded(cluster, seconds=8 * longer, seed=2) as run, clients(address):
        time.sleep(5.5 * longer)  # more than the 4 s over which rates are taken
        under_load = time.time()
        pages = [scrape(base + process) for process in range(3)]
        first = worker_seconds(base)
        time.sleep(1)
        spent = first, worker_seconds(base)
        out, err = run.communicate(timeout=60)
        assert run.returncode == 0, out + err
    time.sleep(2)
    return Seen(prometheus, start, under_load, time.time(), pages, spent)


@pytest.fixture(scope="module")
def seen(islands: Islands, request: pytest.FixtureRequest) -> Iterator[Seen]:
    binary = tool("prometheus")
    if binary is None:
        pytest.skip("prometheus is not installed (deploy/install-packages.sh test unpacks it)")
    folder = tempfile.mkdtemp(prefix="islands-")
    base = free_ports(4)
    cluster = Cluster(islands, folder)
    prometheus = Prometheus(binary, folder, base + 3)
    try:
        # A pool that holds a third of the rows: pages are read and written, too.
        tables = TABLES.replace("24000", "96000")
        cluster.write("2ISL", durability="sync", pool="8MiB", mode="paged",
                      more=tables + "gateway: {enabled: true}\n")
        with open(cluster.file, encoding="utf-8") as file:
            text = file.read().replace("base_port: 0", f"base_port: {base}")
        with open(cluster.file, "w", encoding="utf-8") as file:
            file.write(text)
        cluster.up()
        prometheus.targets({0: base, 1: base + 1}, gateway=base + 2)
        prometheus.start()
        wait_until(lambda: sum(value for _, value in prometheus.at("up")) == 3, what="islands and gateway read")
        yield observe(cluster, prometheus, base, getattr(request.module, "LONGER", 1))
    finally:
        prometheus.stop()
        left = cluster.clean()
        shutil.rmtree(folder, ignore_errors=True)
    assert left == {}, "processes were left behind"


@pytest.mark.parametrize("island", [".+", "1"], ids=["all islands", "the killed island"])
@pytest.mark.parametrize("dashboard", NAMES)
def test_every_panel_has_data(seen: Seen, dashboard: str, island: str) -> None:
    wrong = []
    for target in (each for each in targets() if each.dashboard == dashboard):
        expression = substitute(target.expr, job="islands", island=island)
        if target.instant:
            found = [labels for labels, _ in seen.prometheus.at(expression, seen.under_load)]
        else:
            found = [labels for labels, _ in seen.prometheus.over(expression, seen.start, seen.end)]
        if not found and (island == ".+" or target.panel not in MAY_BE_EMPTY):
            wrong.append(f"{target.panel}: no data from {expression}")
        missing = {label for label in re.findall(r"{{(\w+)}}", target.legend)
                   for labels in found if not labels.get(label)}
        if missing:
            wrong.append(f"{target.panel}: its legend names {missing}, which series from {expression} lack")
    assert not wrong, "\n".join(wrong)


def test_variables_have_values(seen: Seen) -> None:
    """What Grafana's label_values(METRIC{...}, LABEL) asks for."""
    for name in NAMES:
        for variable in load(name)["templating"]["list"]:
            if variable["type"] != "query":
                continue
            inside = variable["query"].removeprefix("label_values(").removesuffix(")")
            series, label = inside.rsplit(", ", 1)
            found = {labels[label] for labels, _ in seen.prometheus.at(substitute(series), seen.under_load)}
            assert found, f"{name}: {variable['name']}"
            if variable["name"] in ("job", "island", "layout"):
                assert found == {"job": {"islands"}, "island": {"0", "1"}, "layout": {"2ISL"}}[variable["name"]]


def test_every_rule_is_evaluated(seen: Seen) -> None:
    for group in seen.prometheus.ask("rules")["groups"]:
        for rule in group["rules"]:
            assert (rule["health"], rule.get("lastError", "")) == ("ok", ""), rule["name"]
    for rule in rules():
        if "record" in rule:
            assert seen.prometheus.over(rule["record"], seen.start, seen.end), rule["record"]
        # A well cluster fires no alert; but everything that an alert looks at must be there.
        for match in selectors(rule["expr"]):
            assert seen.prometheus.over(match[0].split("[")[0], seen.start, seen.end), (rule, match[0])


def test_the_killed_island_is_seen(seen: Seen) -> None:
    # One scrape may be all that sees it down: an island with a log is back at once.
    down = seen.prometheus.over('up{island="1"} == 0', seen.start, seen.end, step=0.2)
    assert down and not seen.prometheus.over('up{island="0"} == 0', seen.start, seen.end)
    restarts = seen.prometheus.at("islands_restarts_total", seen.end)
    assert {labels["island"]: value for labels, value in restarts} == {"0": 0, "1": 1}
    last_down = down[0][1][-1][0]
    assert seen.prometheus.at('island:transactions_committed:rate1m{island="1"} > 0', seen.end), "works again"
    assert seen.under_load > last_down
    # Nothing that an island's own label could have been renamed to, and no label is lost.
    assert not seen.prometheus.at('{exported_island!=""}', seen.under_load)
    assert not seen.prometheus.at('{__name__=~"islands_.*", island="", gateway=""}', seen.under_load)


def test_messages_are_seen_from_both_sides(seen: Seen) -> None:
    """What island 0 sent, island 1 received: of the second run, and within what is on its way."""
    sent = seen.prometheus.at('rate(islands_messages_total{island="0", peer="1", direction="sent"}[4s])',
                              seen.under_load)
    received = seen.prometheus.at('rate(islands_messages_total{island="1", peer="0", direction="received"}[4s])',
                                  seen.under_load)
    assert sent[0][1] > 0 and received[0][1] == pytest.approx(sent[0][1], rel=0.5)


def test_workers_time_adds_up(seen: Seen) -> None:
    """A worker's activities are all of its time."""
    for (before, after, spent), (before_later, after_later, spent_later) in zip(*seen.worker_seconds):
        least, most = before_later - after, after_later - before
        assert least - 0.1 < spent_later - spent < most + 0.1


def test_metrics_used_and_exported_are_the_same(seen: Seen) -> None:
    exported = {line.split()[2] for page in seen.pages for line in page.splitlines() if line.startswith("# TYPE")}
    used = used_metrics()
    assert used - exported == set(), "used in dashboards or rules, but nobody exports it"
    assert exported - used - set(UNUSED) == set(), "exported, but neither used nor listed in UNUSED with a reason"
    assert set(UNUSED) - exported == set() and not set(UNUSED) & used, "UNUSED lists what is used, or does not exist"
