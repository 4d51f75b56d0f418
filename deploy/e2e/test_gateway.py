"""The front door of real clusters: what a program gets through it, and what it is told when processes die."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import certificates
from cluster import Cluster, cluster, line_of, wait_until  # noqa: F401
from conftest import BINARIES, ROOT, Document, Islands, WriteFile
from test_metrics import free_ports, scrape, total

PYTHON = [os.path.join(ROOT, "instance", "gateway", "python"),
          os.path.join(os.path.dirname(BINARIES), "lib", "islands", "python")]  # the client, and its stubs
sys.path[:0] = PYTHON
grpc = pytest.importorskip("grpc")
import islands as client  # noqa: E402
import islands.aio as asyncio_client  # noqa: E402

TABLES = """data:
  tables:
    - {name: micro, key: [uint64], range: [0, 24000], row_bytes: 250}
    - {name: accounts, key: [uint64], range: [0, 1000]}
    - {name: history, key: [uint64], range: [0, 1000]}
"""
FAR = 900  # a key of the last island
ROW = (100).to_bytes(8, "little", signed=True)


def started(cluster: Cluster, durability: str = "lazy", gateway: str = "{enabled: true}", **shape: Any) -> str:
    """Its address."""
    cluster.write(durability=durability, more=f"{TABLES}gateway: {gateway}\n", **shape)
    status = cluster.up()
    assert status["gateway"]["state"] == "ready", status
    return str(status["gateway"]["addresses"][0])


def gateway_of(cluster: Cluster) -> Document:
    gateway: Document = cluster.status()["gateway"]
    return gateway


def log_of(cluster: Cluster) -> str:
    with open(os.path.join(cluster.folder, "run", "gateway.log"), encoding="utf-8") as file:
        return file.read()


def await_gateway(cluster: Cluster, restarts: int) -> None:
    wait_until(lambda: gateway_of(cluster)["state"] == "ready" and gateway_of(cluster)["restarts"] == restarts,
               what="the gateway")


def again(function: Callable[[], Any]) -> Any:
    """Until nobody is away any more."""
    def attempt() -> Any:
        try:
            return function() or True
        except (client.Unavailable, client.Aborted):
            return None
    return wait_until(attempt, what="an answer")


def test_the_gateway_is_built_to_be_attacked() -> None:
    program = os.path.join(os.path.dirname(BINARIES) if os.path.isfile(BINARIES) else BINARIES, "islands-gateway")
    shown = subprocess.run(["readelf", "--wide", "--dynamic", "--dyn-syms", program], capture_output=True, text=True,
                           check=True).stdout
    if "__asan" in shown or "__tsan" in shown:
        pytest.skip("sanitizers look after it")
    for word in ("BIND_NOW", "PIE", "__stack_chk_fail", "_chk@"):
        assert word in shown, word


@pytest.mark.parametrize("transport", ["shm", "uds", "zmq"])
def test_rows_of_several_islands_are_one_transaction_and_outlive_processes(cluster: Cluster, transport: str) -> None:
    address = started(cluster, transport=transport)
    with client.connect(address) as db:
        assert [table.name for table in db.tables()] == ["micro", "accounts", "history"]
        batch = client.Batch()
        batch.put("accounts", 1, ROW)
        batch.put("accounts", FAR, ROW)
        assert all(result.found for result in db.execute(batch))
        with db.transaction() as transaction:
            assert transaction.add("accounts", 1, -30) == 70
            assert transaction.add("accounts", FAR, 30) == 130
        with pytest.raises(client.ConditionFailed) as caught:
            db.insert("accounts", FAR, b"again")
        assert caught.value.operation == 0 and caught.value.committed is False
        assert [row.key for row in db.scan("accounts")] == [1, FAR]
    os.kill(cluster.status()["supervisor_pid"], signal.SIGKILL)
    wait_until(lambda: cluster.alive() == {}, what="all of them to end")
    cluster.up()
    with client.connect(address) as db:
        assert db.get("accounts", FAR) == (130).to_bytes(8, "little")


def test_a_gateway_that_is_killed_comes_back_and_leaves_no_lock(cluster: Cluster) -> None:
    address = started(cluster, layout="1ISL")
    with client.connect(address) as db:
        db.put("accounts", 1, b"before")
        transaction = db.transaction()
        transaction.put("accounts", 1, b"during")
        os.kill(gateway_of(cluster)["pid"], signal.SIGKILL)
        with pytest.raises(client.Unavailable):  # it was not told to commit: for certain it has not
            transaction.get("accounts", 1)
        await_gateway(cluster, restarts=1)
        assert again(lambda: db.get("accounts", 1)) == b"before"
        assert "killed by signal 9" in gateway_of(cluster)["detail"] or gateway_of(cluster)["detail"] == ""


def test_a_gateway_that_is_stopped_is_hung(cluster: Cluster) -> None:
    started(cluster)
    pid = gateway_of(cluster)["pid"]
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: gateway_of(cluster)["state"] == "hung", what="a gateway that hangs")
    assert gateway_of(cluster)["hung_ms"] >= 1000
    assert "gateway: hung" in cluster.islands.run("status", cluster.file).out
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: gateway_of(cluster)["state"] == "ready", what="a gateway that moves")
    assert gateway_of(cluster)["pid"] == pid and gateway_of(cluster)["hung_ms"] == 0


def test_a_client_that_asks_again_and_again_finds_the_gateway_when_it_is_back(cluster: Cluster) -> None:
    address = started(cluster, layout="1ISL", durability="none")
    with client.connect(address) as db:
        db.tables()
        os.kill(gateway_of(cluster)["pid"], signal.SIGKILL)
        killed = time.monotonic()
        with pytest.raises(client.Unavailable):
            while time.monotonic() < killed + 0.05:
                db.tables()
        again(db.tables)
        assert time.monotonic() < killed + 3  # in half a second, unless the machine is busy; gRPC alone would take five


@contextlib.contextmanager
def waiting_commit(cluster: Cluster, db: client.Client) -> Iterator[list[Exception]]:
    """It waits for a row that somebody has locked; it has ended when this is over, and the list has how."""
    caught: list[Exception] = []

    def commit() -> None:
        try:
            db.put("accounts", FAR, b"waiting")
        except client.Error as error:
            caught.append(error)

    waiting = threading.Thread(target=commit)
    waiting.start()
    wait_until(lambda: "lock" in cluster.islands.run("txn", cluster.file, "list").out, what="the wait")
    yield caught
    waiting.join()


def test_a_commit_under_a_gateway_that_is_killed_is_unknown(cluster: Cluster) -> None:
    address = started(cluster)
    with client.connect(address) as db, client.connect(address) as other:
        db.put("accounts", FAR, b"before")
        holder = db.transaction()
        holder.put("accounts", FAR, b"holder")
        with waiting_commit(cluster, other) as caught:
            os.kill(gateway_of(cluster)["pid"], signal.SIGKILL)
        assert isinstance(caught[0], client.UnknownOutcome) and caught[0].committed is None
        await_gateway(cluster, restarts=1)
        assert again(lambda: db.get("accounts", FAR)) in (b"before", b"waiting")


def test_what_is_said_of_islands_that_die(cluster: Cluster) -> None:
    address = started(cluster)
    with client.connect(address) as db:
        db.put("accounts", FAR, b"there")
        transaction = db.transaction()
        transaction.put("accounts", FAR, b"open")
        os.kill(cluster.island(1)["pid"], signal.SIGKILL)
        wait_until(lambda: "island 1 is out of reach" in log_of(cluster), what="the gateway to notice")
        with pytest.raises(client.Unavailable) as lost:
            transaction.commit()
        assert lost.value.committed is False
        db.put("accounts", 1, b"the others go on")
        assert again(lambda: db.get("accounts", FAR)) == b"there"


def test_asyncio_speaks_likewise(cluster: Cluster) -> None:
    import asyncio

    address = started(cluster, durability="none")

    async def speak() -> None:
        async with asyncio_client.connect(address) as db:
            await db.put("accounts", 1, ROW)
            await db.put("accounts", FAR, ROW)

            async def transfer(transaction: asyncio_client.Transaction) -> None:
                await transaction.add("accounts", 1, -1)
                await transaction.add("accounts", FAR, 1)

            await asyncio.gather(*(db.run(transfer) for _ in range(20)))
            assert await db.add("accounts", FAR, 0) == 120
            with pytest.raises(ZeroDivisionError):
                async with db.transaction() as transaction:
                    await transaction.put("accounts", 1, b"gone")
                    _ = 1 // 0
            assert await db.add("accounts", 1, 0) == 80
            with pytest.raises(client.InvalidRequest):
                await db.get("nowhere", 1)
            with pytest.raises(client.ConditionFailed):
                await db.replace("accounts", 2, b"x")

    asyncio.run(speak())


def test_only_certificates_get_in_over_tcp(cluster: Cluster, folder: str) -> None:
    certificates.make(folder, ("authority", "stranger"), {"server": "authority", "friend": "authority",
                                                          "enemy": "stranger"})
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started(cluster, gateway=f"{{listen: 'localhost:{port}', certificate: server.pem, key: server.key, "
                             "clients: authority.pem}")
    address = gateway_of(cluster)["addresses"][1]
    assert address == f"localhost:{port}"

    def pem(name: str) -> bytes:
        with open(os.path.join(folder, name), "rb") as file:
            return file.read()

    def put(certificate: str) -> None:
        tls = client.tls(pem("authority.pem"), pem(f"{certificate}.pem"), pem(f"{certificate}.key"))
        with client.connect(address, credentials=tls, timeout=5) as db:
            db.put("accounts", 1, certificate.encode())

    put("friend")
    with pytest.raises(client.Error):
        put("enemy")
    with pytest.raises(client.InvalidRequest, match="certificate"):
        client.connect(address)
    plain = client.Client(grpc.insecure_channel(address), 2, None)  # who tries it all the same
    with pytest.raises(client.Error):
        plain.put("accounts", 1, b"plain")
    with client.connect(gateway_of(cluster)["addresses"][0]) as db:
        assert db.get("accounts", 1) == b"friend"


@pytest.mark.parametrize("gateway, complaint", [
    ("{listen: 'localhost:9'}", "found no 'certificate', expected the PEM files"),
    ("{listen: everywhere}", "expected unix, or HOST:PORT"),
    ("{listen: 'localhost:0'}", "expected unix, or HOST:PORT"),
    ("{certificate: a.pem}", "found 'certificate' without an address to listen on"),
    ("{enabled: perhaps}", "found 'perhaps'"),
    ("{insecure: true}", "insecure"),
    ("{idle_ms: 0}", "expected a whole number from 1 to 3600000"),
])
def test_check_says_what_is_wrong_with_the_gateway(islands: Islands, deployment: WriteFile, gateway: str,
                                                   complaint: str) -> None:
    done = islands.run("check", deployment(f"version: 1\nlayout: 1ISL\ngateway: {gateway}\n"))
    assert done.code == 2 and complaint in done.err and "deployment.yaml:3:" in done.err, done


@pytest.mark.parametrize("command", ["check", "up"])
def test_files_that_are_no_pem_are_named(cluster: Cluster, command: str) -> None:
    cluster.write(more=f"{TABLES}gateway:\n  {{listen: 'localhost:9', certificate: no.pem, key: text, clients: .}}\n")
    with open(os.path.join(cluster.folder, "text"), "w", encoding="utf-8") as file:
        file.write("no key")
    done = cluster.islands.run(command, cluster.file)
    assert done.code == 2 and "PEM file with one" in done.err, done
    for line, says in zip(done.err.splitlines(), ("no.pem: No such file", "without 'PRIVATE KEY-----'", "directory")):
        assert line.startswith(f"{cluster.file}:") and says in line, done


def test_a_gateway_that_cannot_start_is_a_start_that_failed(cluster: Cluster) -> None:
    cluster.write(more=f"{TABLES}gateway: {{listen: 'localhost:9', certificate: bad, key: bad, clients: bad}}\n")
    with open(os.path.join(cluster.folder, "bad"), "w", encoding="utf-8") as file:
        file.write("-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n")
    done = cluster.islands.run("up", cluster.file)
    assert done.code == 1 and "the gateway failed to start" in done.err and "a pair?" in done.err, done
    assert cluster.alive() == {}


def test_plan_says_where_it_will_be(islands: Islands, deployment: WriteFile) -> None:
    file = deployment("version: 1\nlayout: 1ISL\ngateway: {enabled: true}\n")
    socket_path = os.path.join(os.path.dirname(file), "run", "gateway.sock")
    assert f"unix:{socket_path}, metrics at port 9401" in islands.run("plan", file).out
    assert islands.json("plan", file)["gateway"] == {"addresses": [f"unix:{socket_path}"], "metrics_port": 9401}


def test_without_it_there_is_none(cluster: Cluster) -> None:
    cluster.write(more=f"{TABLES}gateway: {{enabled: false}}\n")
    assert "gateway" not in cluster.up()
    done = cluster.islands.run("client", cluster.file, "tables")
    assert done.code == 1 and "has no gateway; add" in done.err, done


@pytest.mark.parametrize("durability", ["lazy", "none"])
def test_a_load_leaves_rows_alone_that_it_cannot_bring_back(cluster: Cluster, durability: str) -> None:
    address = started(cluster, durability)
    with client.connect(address) as db:
        cluster.run(duration=0.1)
        # Nobody but workloads has put rows anywhere: other tables are no loss.
        cluster.run("--rows-total", 1000, "--reload", duration=0.1)
        row = bytes(250)
        with pytest.raises(client.InvalidRequest):
            again(lambda: db.put("micro", 23_000, row))  # there are fewer now, and the gateway knows
        db.put("accounts", 1, b"mine")
        refused = cluster.islands.run("run", cluster.file, "micro", "--rows-total", 24_000, "--reload", "--duration",
                                      0.1)
        assert refused.code == 1 and "table 'accounts' has rows that" in refused.err, refused
        wait_until(lambda: {island["state"] for island in cluster.status()["islands"]} == {"ready"}, what="the islands")
        assert again(lambda: db.get("accounts", 1)) == b"mine"
        cluster.run("--reload", "--rows-total", 1000, duration=0.1)  # as it is, only its own are loaded anew
        assert again(lambda: db.get("accounts", 1)) == b"mine"


def test_client_is_for_people(cluster: Cluster) -> None:
    started(cluster)

    def say(*words: object) -> Any:
        return cluster.islands.run("client", cluster.file, *words)

    assert "accounts: key uint64 from 0 to below 1000" in say("tables").out
    assert say("put", "accounts", 7, "some text").out == "put\n"
    assert say("get", "accounts", 7).out == "some text\n"
    assert say("get", "accounts", 8).code == 1
    assert "there is no table 'account', but" in say("get", "account", 8).err
    assert "key 'x': part 0 is no number" in say("get", "accounts", "x").err
    assert say("insert", "accounts", 7, "again").err.endswith("there is such a row already\n")
    scanned = say("--format", "json", "scan", "accounts")
    assert json.loads(scanned.out) == [{"key": "7", "value": "some text"}], scanned
    assert say("txn", "put accounts 20 one", f"insert accounts {FAR} two", "get accounts 7").out == (
        "put\ninserted\nsome text\ncommitted\n")
    half = say("txn", "put accounts 20 changed", f"insert accounts {FAR} two")
    assert half.code == 1 and half.err == "there is such a row already\n" and say("get", "accounts", 20).out == "one\n"
    both = say("txn", "--format", "json", "delete accounts 20", f"get accounts {FAR}")
    assert json.loads(both.out) == {"results": [{"deleted": True}, {"value": "two"}], "committed": True}
    assert "'tables': expected one of get, put" in say("txn", "tables").err
    assert "invalid choice: 'jump'" in say("txn", "jump").err and "No closing quotation" in say("txn", "'").err
    prompt = subprocess.run([cluster.islands, "client", cluster.file], capture_output=True, text=True, timeout=60,
                            input="begin\nput accounts 9 nine\nrollback\nget accounts 9\nbegin\nput accounts 10 ten\n"
                                  "commit\nget accounts 10\nnonsense\nquit\n")
    assert prompt.returncode == 0 and "there is no such row" in prompt.stdout and "ten" in prompt.stdout, prompt
    assert "invalid choice: 'nonsense'" in prompt.stdout


def test_rows_with_fields_by_hand(cluster: Cluster) -> None:
    """By name: bytes without names would make other fields of them without a word."""
    started(cluster)

    def say(*words: object) -> Any:
        return cluster.islands.run("client", cluster.file, *words)

    made = cluster.islands.run("table", cluster.file, "create", "people", "--key", "id:uint64", "--range", "0:1000",
                               "--field", "name:string:20", "--field", "visits:int64")
    assert made.code == 0, made
    assert "expected the row's fields as JSON: {\"name\": ..., \"visits\": ...}" in say("put", "people", 7, "ann").err
    assert "people': found no visits" in say("put", "people", 7, '{"name": "ann"}').err
    assert "found id 8, expected 7" in say("put", "people", 7, '{"id": 8, "name": "ann", "visits": 1}').err
    assert say("put", "people", 7, '{"name": "zoë", "visits": 1}').out == "put\n"
    assert "expected --field with one of type int64: visits" in say("add", "people", 7, 1).err
    assert "found 'name', expected a field of type int64" in say("add", "people", 7, 1, "--field", "name").err
    assert say("add", "people", 7, 1, "--field", "visits").out == "2\n"
    assert say("add", "people", 7, 1, "--offset", 20).out == "3\n"
    row = {"id": 7, "name": "zoë", "visits": 3}
    assert json.loads(say("get", "people", 7).out) == row
    assert json.loads(say("scan", "people", "--format", "json").out) == [row]
    other = cluster.islands.run("table", cluster.file, "create", "people", "--key", "uint64", "--range", "0:1000")
    assert "another table of that name, people: key id uint64 from 0 to below 1000" in other.err and other.code == 1
    for words in (["get", "people", 1 << 64], ["add", "people", 7, 1 << 64, "--field", "visits"],
                  ["scan", "people", "--limit", -1], ["put", "accounts", 7, "abc\\"],
                  ["put", "accounts", 7, "\\u2603"]):
        wrong = say(*words)
        assert wrong.code == 1 and "found" in wrong.err and "Traceback" not in wrong.err, wrong
    prompt = subprocess.run([cluster.islands, "client", cluster.file], capture_output=True, text=True, timeout=60,
                            input="begin\nadd people 7 1 --field visits\n")
    assert prompt.stdout.endswith("rolled back\n"), prompt


def test_the_example_loses_no_money_whoever_is_killed(cluster: Cluster) -> None:
    address = started(cluster)
    process = subprocess.Popen(["/usr/bin/python3", os.path.join(ROOT, "instance/gateway/python/examples/transfer.py"),
                                address, "--seconds", "3"], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": os.pathsep.join(PYTHON)})
    assert line_of(process.stdout) == "100 accounts, 100000 in all\n"
    for kill in (lambda: cluster.island(1)["pid"], lambda: gateway_of(cluster)["pid"]):
        wait_until(lambda: cluster.status()["islands"][1]["state"] == "ready", what="island 1")
        os.kill(kill(), signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "total 100000, was 100000" in out, out
    assert int(out.split()[0]) > 0, out  # on a busy machine they are few


# ---- metrics

def write_with_metrics(cluster: Cluster, base: int, durability: str) -> None:
    cluster.write(durability=durability, more=f"{TABLES}gateway: {{enabled: true}}\n")
    with open(cluster.file, encoding="utf-8") as file:
        text = file.read().replace("base_port: 0", f"base_port: {base}")
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(text)


def counted(cluster: Cluster, durability: str = "none") -> tuple[str, int]:
    """Address and metrics port of a gateway before two islands."""
    base = free_ports(3)
    write_with_metrics(cluster, base, durability)
    gateway = cluster.up()["gateway"]
    assert gateway["metrics_port"] == base + 2
    return gateway["addresses"][0], base + 2


def outcomes(page: str) -> dict[str, float]:
    found = {outcome: total(page, "islands_gateway_transactions_total", outcome=outcome)
             for outcome in ("committed", "aborted", "unknown", "rolled_back")}
    return {outcome: count for outcome, count in found.items() if count}


def test_a_metrics_port_that_is_taken_is_said_at_once(cluster: Cluster) -> None:
    base = free_ports(3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", base + 2))
        taken.listen()
        write_with_metrics(cluster, base, "none")
        done = cluster.islands.run("up", cluster.file)
        assert done.code == 0, done
        assert (f"warning: the gateway serves no metrics: cannot listen on 127.0.0.1:{base + 2}: Address already in "
                "use; change metrics.base_port\n") in done.out


def test_every_call_is_counted_once(cluster: Cluster) -> None:
    address, port = counted(cluster)
    before = scrape(port)
    assert outcomes(before) == {}
    with client.connect(address) as db:
        for key in range(10):
            db.put("accounts", key, ROW)
        db.put("accounts", FAR, ROW)
        with pytest.raises(client.ConditionFailed):
            db.insert("accounts", 1, ROW)
        with pytest.raises(client.InvalidRequest):
            db.put("nowhere", 1, ROW)
        batches = [client.Batch() for _ in range(5)]
        for key, batch in enumerate(batches):
            batch.add("accounts", key, 1)
        db.execute_many(batches)
        db.tables()
        with db.transaction() as transaction:
            transaction.add("accounts", 1, 1)
            transaction.add("accounts", FAR, 1)
        open_one = db.transaction()
        open_one.add("accounts", 1, 1)
        page = scrape(port)
        assert total(page, "islands_gateway_transactions_open") == 1
        open_one.rollback()
        page = scrape(port)
    assert outcomes(page) == {"committed": 11 + 5 + 1, "aborted": 2, "rolled_back": 1}
    for reason in ("condition", "invalid"):
        assert total(page, "islands_gateway_failures_total", reason=reason) == 1
    assert total(page, "islands_gateway_failures_total") == 2
    calls = {(method, code): total(page, "islands_gateway_calls_total", method=method, code=code)
             for method in ("Execute", "ExecuteMany", "Transact", "ListTables")
             for code in ("OK", "FAILED_PRECONDITION", "INVALID_ARGUMENT")}
    assert {call: count for call, count in calls.items() if count} == {
        ("Execute", "OK"): 11, ("Execute", "FAILED_PRECONDITION"): 1, ("Execute", "INVALID_ARGUMENT"): 1,
        ("ExecuteMany", "OK"): 1, ("Transact", "OK"): 2, ("ListTables", "OK"): 1}
    assert total(page, "islands_gateway_latency_seconds_count", method="Execute") == 13
    assert total(page, "islands_gateway_latency_seconds_count", method="ExecuteMany") == 1
    wait_until(lambda: total(scrape(port), "islands_gateway_transactions_open") == 0, what="the end of all")
    assert total(page, "islands_gateway_messages_total", island="1", direction="sent") == 1
    assert total(page, "islands_gateway_messages_total", direction="sent") \
        == total(page, "islands_gateway_messages_total", direction="received")
    for method in ("Execute", "ExecuteMany", "Transact"):
        took, waited = (total(page, f"islands_gateway_{name}_seconds_sum", method=method)
                        for name in ("latency", "island_wait"))
        assert 0 < waited < took < 10, method
    connections = [total(text, "islands_gateway_connections_total", result="admitted") for text in (before, page)]
    assert connections[1] - connections[0] == 2, "the client, in frames and, for tables, over gRPC"
    assert total(page, "islands_gateway_cpu_seconds_total") > 0


def test_metrics_of_a_gateway_that_is_killed_begin_anew(cluster: Cluster) -> None:
    address, port = counted(cluster)
    with client.connect(address) as db:
        db.put("accounts", 1, ROW)
    before = total(scrape(port), "islands_gateway_start_time_seconds")
    os.kill(gateway_of(cluster)["pid"], signal.SIGKILL)
    await_gateway(cluster, restarts=1)
    assert gateway_of(cluster)["metrics_port"] == port
    page = wait_until(lambda: answer_of(port), what="the metrics")
    assert outcomes(page) == {} and total(page, "islands_gateway_start_time_seconds") >= before
    wait_until(lambda: total(scrape(port), "islands_gateway_island_reachable") == 2, what="its links")
    with client.connect(address) as db:
        db.put("accounts", 1, ROW)
    assert outcomes(scrape(port)) == {"committed": 1}


def answer_of(port: int) -> str:
    try:
        return scrape(port)
    except OSError:
        return ""


def test_an_island_that_dies_is_out_of_reach_and_its_commits_are_unknown(cluster: Cluster) -> None:
    address, port = counted(cluster, durability="lazy")
    with client.connect(address) as db, client.connect(address) as other:
        db.put("accounts", FAR, b"before")
        holder = db.transaction()
        holder.put("accounts", FAR, b"holder")
        supervisor = cluster.status()["supervisor_pid"]
        victim = cluster.island(1)["pid"]
        try:
            with waiting_commit(cluster, other) as caught:
                os.kill(supervisor, signal.SIGSTOP)  # else it is back before anybody looks
                os.kill(victim, signal.SIGKILL)
            assert isinstance(caught[0], client.UnknownOutcome)
            page = scrape(port)
            assert total(page, "islands_gateway_island_reachable", island="1") == 0
            assert total(page, "islands_gateway_island_reachable", island="0") == 1
            assert total(page, "islands_gateway_failures_total", reason="unknown") == 1
            assert outcomes(page)["unknown"] == 1
        finally:
            os.kill(supervisor, signal.SIGCONT)
        wait_until(lambda: total(scrape(port), "islands_gateway_island_reachable") == 2, what="island 1")


# ---- procedures

ACCOUNTS, MONEY = 200, 200 * 1000


@pytest.mark.parametrize("layout, durability", [("2ISL", "lazy"), ("1ISL", "sync")])
def test_procedures_of_a_loaded_workload_are_called_while_islands_die(cluster: Cluster, layout: str,
                                                                      durability: str) -> None:
    cluster.write(layout=layout, durability=durability, more=f"""data:
  tables:
    - {{name: account, key: [uint64], range: [0, {ACCOUNTS}], row_bytes: 8}}
gateway: {{enabled: true}}
""")
    address = str(cluster.up()["gateway"]["addresses"][0])
    with client.connect(address, timeout=20) as db:
        assert db.procedures() == []
        with pytest.raises(client.InvalidRequest, match="there is no procedure 'transfer.pay'"):
            db.call("transfer.pay", 1, 2, 30)
        cluster.islands.json("run", cluster.file, "transfer", "--duration", 0.2, "--warmup", 0, "--results",
                             os.path.join(cluster.folder, "results"))

        def balances() -> list[int]:
            return [int.from_bytes(row.value, "little", signed=True) for row in db.scan("account")]

        assert [str(procedure) for procedure in db.procedures()] == [
            "transfer.pay(from int64, to int64, amount int64) -> (paid int64, balance int64)"]
        before = balances()
        assert sum(before) == MONEY
        payer = max(range(ACCOUNTS - 1), key=before.__getitem__)  # the run has left some with nothing
        assert db.call("transfer.pay", payer, ACCOUNTS - 1, 1) == (1, before[payer] - 1)
        assert db.call("transfer.pay", payer, ACCOUNTS - 1, 1_000_000) == (0, before[payer] - 1)
        with pytest.raises(client.InvalidRequest, match="argument 3 'amount': found text, expected int64"):
            db.call("transfer.pay", 1, 2, "much")
        with pytest.raises(client.InvalidRequest, match="argument 1 'from', of table 'account'"):
            db.call("transfer.pay", ACCOUNTS, 2, 1)
        with pytest.raises(client.InvalidRequest, match="expected two accounts from 0 to 199") as caught:
            db.call("transfer.pay", 1, ACCOUNTS, 1)
        assert caught.value.reason == "procedure" and caught.value.committed is False
        hand = cluster.islands.run("client", cluster.file, "call", "transfer.pay", payer, ACCOUNTS - 1, 1)
        assert hand.out == f"paid 1\nbalance {before[payer] - 2}\n", hand
        hand = cluster.islands.run("client", cluster.file, "call", "transfer.pay", 1, "x", 1)
        assert hand.code == 1 and "argument 'to': found 'x', expected int64" in hand.err, hand
        assert "transfer.pay(from int64" in cluster.islands.run("client", cluster.file, "procedures").out
        pay_while_islands_die(cluster, db, victims=[1, 0] if layout == "2ISL" else [0])
        assert again(lambda: sum(balances())) == MONEY
        before = balances()
    cluster.down()
    cluster.up()
    with client.connect(address) as db:  # from files: nobody has loaded anything
        assert balances() == before
        assert again(lambda: db.call("transfer.pay", 3, 2, 0)) == (1, before[3])
        assert again(lambda: db.call("transfer.pay", ACCOUNTS - 1, 2, 0)) == (1, before[-1])


def await_island(cluster: Cluster, number: int) -> None:
    def is_back() -> bool:
        island = cluster.island(number)
        return bool(island["restarts"] == 1 and island["state"] == "ready")
    wait_until(is_back, what="the island")


def pay_while_islands_die(cluster: Cluster, db: client.Client, victims: list[int]) -> None:
    """With tokens, so that each is known to have been paid."""
    over = threading.Event()
    failed: list[Exception] = []
    paid: list[int] = []

    def pay(seed: int) -> None:
        number = seed
        while not over.is_set():
            number = (number * 7 + 3) % ACCOUNTS
            other = (number + ACCOUNTS // 2) % ACCOUNTS  # on the other island
            try:
                answer = db.call("transfer.pay", number, other, 5, token=client.new_token())
                paid.append(1 if answer.earlier else answer[0])
            except client.Aborted:
                pass
            except client.Error as error:
                failed.append(error)
                return

    payers = [threading.Thread(target=pay, args=(seed,)) for seed in range(4)]
    for payer in payers:
        payer.start()
    try:
        for victim in victims:
            wait_until(lambda: len(paid) > 20, what="payments")
            os.kill(cluster.island(victim)["pid"], signal.SIGKILL)
            await_island(cluster, victim)
            paid.clear()
        wait_until(lambda: len(paid) > 20, what="payments")
    finally:
        over.set()
        for payer in payers:
            payer.join()
    assert not failed, failed
