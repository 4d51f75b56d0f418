"""The engines of experiments/bench_engines.py beside islands, for one class of durability: what is started, in which
numbers of clients it is at its best, and what it does then.

Invariants:
 1. All have the same rows and transactions drawn alike, and the counters are added up after every measurement of
    updates or adds.
 2. Nobody is compared at a number of clients that another would do more with: each takes its best, found before.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.context import ROWS, Context, pin
from benchmarks.peers import Peers
from benchmarks.section import median
from durability import NONE
from islands_command import Document, Failed, json_of

OPS = ("read", "update", "add")
EMBEDDED, FRONT_DOOR, OVER_GRPC = "islands", "islands, front door", "islands, front door, gRPC"
IN_PROCESS = ("lmdb", "rocksdb", "bdb", "wiredtiger", "sqlite")
SERVERS = ("postgres", "mariadb")
ENGINES = (*IN_PROCESS, *SERVERS)
GATEWAY_OPS = {"read": "get", "add": "add"}  # an update is read first: two calls, or a procedure of one's own
CLIENTS_OF_SERVERS = (2, 4, 8, 16, 32)
CLIENTS_OF_GATEWAY = (4, 16, 64)
CLIENTS_IN_PROCESS = {NONE: (1,), "lazy": (1, 4), "sync": (1, 4, 16)}  # on one core; several share a sync
ONE_WRITER = ("lmdb", "sqlite")  # a second thread would wait for the first
MPL = (4, 16)
NO_CALL, LONGEST_S = "no call ended", 10
PILOT_S = 0.4  # of a measurement that looks for the best number of clients, at most

Rate = Callable[[str, int], float]  # transactions per second of an operation, with so many clients


@dataclass
class Contender:
    """Something that runs the transactions, and what it did."""
    name: str
    title: str
    server: bool  # clients talk to another process, and share the machine's cores with it
    clients: Sequence[int]
    rate: Rate
    facts: Document
    ops: Sequence[str] = OPS
    best: dict[str, int] = field(default_factory=dict)            # operation -> clients
    rates: dict[str, list[float]] = field(default_factory=dict)  # operation -> of each round

    def median(self, op: str) -> float | None:
        return median(self.rates[op]) if op in self.rates else None

    def json(self) -> Document:
        return {"title": self.title, "server": self.server, "facts": self.facts,
                "ops": {op: {"clients": self.best[op], "median_per_s": median(rates), "per_s": rates}
                        for op, rates in self.rates.items()}}


class Contest:
    """Everything that takes part in one class."""
    ops: Sequence[str] = OPS

    def __init__(self, context: Context, durability: str, data_directory: str) -> None:
        self.context, self.durability, self.data_directory = context, durability, data_directory
        self.contenders: list[Contender] = []
        self.peers: list[Peers] = []
        self.missing: list[str] = []
        self.failed: set[str] = set()  # titles

    def start(self, engines: Sequence[str]) -> None:
        context, durability = self.context, self.durability
        self.deployment = context.deployment(f"engines-{durability}", "1ISL", cores=1, sites=1, durability=durability,
                                             gateway=True, log_parent=self.data_directory)
        self.cpu = self.deployment.first_worker()[1]
        self.add_islands()
        for engine in engines:
            self.add_engine(engine)

    def facts(self) -> Document:
        """Of islands."""
        keeps = {NONE: "a commit does not outlive its process: no log",
                 "lazy": "a commit outlives its process; the machine, once the log is synced: in less than a second",
                 "sync": "a commit outlives the machine: the log is synced, for all that wait together"}
        return {"version": "islands", "keeps": keeps[self.durability], "isolation": "strict serializability"}

    def add_islands(self) -> None:
        context, deployment, facts = self.context, self.deployment, self.facts()
        self.contenders.append(Contender(EMBEDDED, "islands, one worker", False, MPL,
                                         lambda op, clients: deployment.rate(op, mpl=clients)(), facts))
        pid, address = deployment.gateway()
        program = os.path.join(context.binaries, "gateway_load")

        def through(over: Sequence[str]) -> Rate:
            def calls(op: str, clients: int, seconds: float) -> float:
                try:
                    return calls_in(op, clients, seconds)
                except Failed as failure:  # on a busy machine a short measurement may see the end of no call
                    if NO_CALL not in str(failure) or seconds >= LONGEST_S:
                        raise
                    return calls(op, clients, 4 * seconds)

            def calls_in(op: str, clients: int, seconds: float) -> float:
                found = json_of([program, "load", address, *over, "--process", str(pid), "--op", GATEWAY_OPS[op],
                                 "--rows", str(ROWS), "--clients", str(clients), "--range", str(context.rows_total),
                                 "--seconds", str(seconds), "--warmup", str(context.warmup)], context.directory)
                return float(found["transactions"]) / float(found["seconds"])

            return lambda op, clients: calls(op, clients, context.seconds)

        ways: dict[str, list[str]] = {FRONT_DOOR: ["--frames"], OVER_GRPC: []}
        for name, over in ways.items():
            self.contenders.append(Contender(name, name, True, CLIENTS_OF_GATEWAY, through(over), facts,
                                             tuple(GATEWAY_OPS)))

    def loaded(self, name: str, more: Sequence[str]) -> Peers:
        return Peers(self.context, self.context.rows_total, [name], more)

    def add_engine(self, name: str) -> None:
        """Loaded, and bound to the islands' core if it is in its clients' process."""
        context, server = self.context, name in SERVERS
        clients: Sequence[int] = CLIENTS_OF_SERVERS if server else CLIENTS_IN_PROCESS[self.durability]
        if name in ONE_WRITER:
            clients = clients[:1]
        context.progress.show(f"loading {name}")
        more = ["--durability", self.durability, "--threads", str(max(clients))]
        if self.durability != NONE:
            more += ["--directory", self.data_directory]
        try:
            peers = self.loaded(name, more)
        except Failed as failure:
            self.missing.append(f"{name} is left out: {failure}")
            return
        self.peers.append(peers)
        if not server:
            pin(peers.process.pid, self.cpu)

        def rate(op: str, count: int) -> float:
            peers.seconds = context.seconds
            return float(peers.answer(peers.ask(name, op, count))["per_s"])

        facts = peers.engines[name]
        title = re.split(r" \(|-|,", facts["version"])[0]  # without the distribution's own number
        self.contenders.append(Contender(name, title, server, clients, rate, facts, self.ops))

    def find_best(self) -> None:
        """The number of clients with which each does most, by short measurements."""
        seconds, self.context.seconds = self.context.seconds, min(self.context.seconds, PILOT_S)
        try:
            for contender in self.contenders:
                for op in contender.ops:
                    self.context.progress.show(f"{contender.title}: {op} with how many clients?")
                    found = {count: self.rate(contender, op, count) if len(contender.clients) > 1 else 0.0
                             for count in contender.clients}
                    contender.best[op] = max(found, key=lambda count: found[count])
        finally:
            self.context.seconds = seconds

    def rate(self, contender: Contender, op: str, clients: int) -> float:
        """An engine that is wrong, or ends, leaves the contest: what others have done in half an hour stays."""
        if contender.title in self.failed:
            return 0
        try:
            return contender.rate(op, clients)
        except Failed as failure:
            if contender.facts["version"] == "islands":
                raise
            self.failed.add(contender.title)
            self.context.wrong.append(f"{self.durability}, {contender.title} is left out of {op}: {failure}")
            return 0

    def measure(self) -> None:
        by_label = {(contender.title, op): contender for contender in self.contenders for op in contender.ops}

        def one(contender: Contender, op: str) -> Callable[[], float]:
            def run() -> float:
                per_s = self.rate(contender, op, contender.best[op])
                contender.rates.setdefault(op, []).append(per_s)
                return per_s
            return run

        self.context.alternate({(title, op): one(contender, op) for (title, op), contender in by_label.items()},
                               self.durability)
        self.contenders = [contender for contender in self.contenders if contender.title not in self.failed]

    def stop(self) -> None:
        """The islands of this class, before those of the next."""
        self.deployment.down()

    def close(self) -> None:
        """The engines. Islands are stopped by who guards the program, whatever happens."""
        for peers in self.peers:
            peers.close()

