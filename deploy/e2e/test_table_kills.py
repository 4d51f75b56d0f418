"""Tables that come and go while processes are killed: one that was said to be there is there, with all the rows that
were acknowledged, in all lives; one that was dropped is gone, and its name is free.

    ISLANDS_FULL_TABLE=1   a hundred kills of each deployment instead of five
    ISLANDS_SEED=N         when, and which tables
"""

import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from cluster import Cluster, cluster, wait_until  # noqa: F401
from conftest import BINARIES, ROOT

sys.path[:0] = [os.path.join(ROOT, "instance", "gateway", "python"),
                os.path.join(os.path.dirname(BINARIES), "lib", "islands", "python")]
grpc = pytest.importorskip("grpc")
import islands as client  # noqa: E402

MORE = """machine: 'pack:2 [numa(memory=1GB)] core:{workers} pu:1'
gateway: {{enabled: true}}
data: {{tables: [{{name: micro, key: [uint64], range: [0, 24000], row_bytes: 250}}]}}
"""
ROUNDS = 100 if os.environ.get("ISLANDS_FULL_TABLE") else 5
VICTIMS = ("island", "gateway", "logger", "supervisor", "everybody")
KEYS = (1, 500, 999)  # of both islands
LATEST_S = 0.15  # a change of tables takes a few milliseconds
PATIENCE_S = 30.0


class Tables:
    """What there is to be, as clients were told."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster, self.rng = cluster, random.Random(seed)
        self.address = cluster.up("--restarts", 1000)["gateway"]["addresses"][0]
        self.expected: dict[str, int] = {}  # the value in all rows, by table
        self.killed: list[str] = []

    def again(self, function: Callable[[client.Client], None]) -> None:
        """Until it is said to be so; everything here may be done twice."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with client.connect(self.address, timeout=5) as db:
                    function(db)
                return
            except client.Error:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def create(self, name: str, value: int) -> None:
        fields = {"value": "int64"} if value % 2 else {"text": "string:6", "value": "int64"}
        indexes = {"by_value": ["value"]} if value % 3 else {}

        def rows(db: client.Client) -> None:
            table = db.create_table(name, key={"id": "uint64"}, range=(0, 1000), fields=fields, indexes=indexes)
            for key in KEYS:
                table.put({"id": key, **{field: value if field == "value" else "text" for field in fields}})

        self.again(rows)
        self.expected[name] = value

    def drop(self, name: str) -> None:
        def gone(db: client.Client) -> None:
            if name not in {table.name for table in db.tables()}:
                return
            for key in KEYS:
                db.delete(name, key, may_miss=True)
            db.drop_table(name)

        self.again(gone)
        del self.expected[name]

    def check(self) -> None:
        def look(db: client.Client) -> None:
            assert {table.name for table in db.tables()} == {"micro", *self.expected}
            for name, value in self.expected.items():
                table = db.table(name)
                found = {row["id"]: row["value"] for row in table.scan()}
                assert found == dict.fromkeys(KEYS, value), (name, found)

        self.again(look)

    @contextlib.contextmanager
    def killing(self, whom: str) -> Iterator[None]:
        """Somewhere in what is done meanwhile; all are there again before it is over."""
        killer = threading.Thread(target=self.kill, args=(whom, self.rng.uniform(0, LATEST_S)))
        killer.start()
        try:
            yield
        finally:
            killer.join()

    def kill(self, whom: str, after_s: float) -> None:
        status = self.cluster.status()
        victims = {"island": [self.rng.choice(status["islands"])["pid"]], "gateway": [status["gateway"]["pid"]],
                   "logger": [status["log"]["logger_pid"]], "supervisor": [status["supervisor_pid"]],
                   "everybody": list(self.cluster.alive())}[whom]
        time.sleep(after_s)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.killed.append(whom)
        if whom in ("supervisor", "everybody"):
            wait_until(lambda: self.cluster.alive() == {}, what="the end of all processes")
            self.cluster.up("--restarts", 1000)


@pytest.mark.parametrize("workers, durability", [(1, "lazy"), (2, "sync")])
def test_tables_are_what_clients_were_told(cluster: Cluster, workers: int, durability: str) -> None:
    seed = int(os.environ.get("ISLANDS_SEED") or random.SystemRandom().randrange(1, 2**31))
    print(f"again with ISLANDS_SEED={seed}")
    cluster.write(durability=durability, more=MORE.format(workers=workers))
    tables = Tables(cluster, seed)
    for number in range(ROUNDS):
        with tables.killing(VICTIMS[number % len(VICTIMS)]):
            name = f"t{tables.rng.randrange(6)}"
            if name in tables.expected:
                tables.drop(name)
            tables.create(name, number)
        tables.check()
    done = cluster.islands.run("down", cluster.file)
    assert done.code == 0, done
    verified = cluster.islands.run("verify", cluster.file)
    assert verified.code == 0, verified
    cluster.up()
    tables.check()
    ran = cluster.run(duration=0.1, warmup=0)  # and loads, which make a generation of all of them, find them, too
    assert ran["committed"] > 0
    tables.check()
