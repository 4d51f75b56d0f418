"""Whole workloads on the engines of experiments/bench_engines.py, for one class of durability: their own rows,
generators, procedures and audits, on `workload_peers`.

Invariants: those of engines.py; after every measurement each engine's rows have passed the workload's audit.
"""

from collections.abc import Sequence

from benchmarks.context import Context
from benchmarks.engines import EMBEDDED, MPL, Contender, Contest
from benchmarks.peers import Peers
from benchmarks.workloads import Engines, Island, Load

# As few customers and items as let servers be loaded in seconds, and warehouses for their clients to keep apart.
SMALL = {"customers": "300", "items": "10000"}
LOADS = (Load("Payment", "tpcc", 4, {"mix": "payment", **SMALL}),
         Load("New-Order", "tpcc", 4, {"mix": "new_order", **SMALL}),
         Load("TATP", "tatp", 10_000, {}), Load("YCSB A", "ycsb", 100_000, {"mix": "A"}))
TITLES = tuple(load.title for load in LOADS)


class LoadContest(Contest):
    """Everything that takes part in one load."""

    def __init__(self, context: Context, durability: str, data_directory: str, load: Load) -> None:
        super().__init__(context, durability, data_directory)
        self.load, self.ops = load, (load.title,)

    def start(self, engines: Sequence[str]) -> None:
        self.island = Island(self.context, self.load, self.durability)
        self.cpu = self.island.worker()[1]
        self.contenders.append(Contender(EMBEDDED, "islands, one worker", False, MPL,
                                         lambda _, clients: self.island.rate(mpl=clients), self.facts(), self.ops))
        for engine in engines:
            self.add_engine(engine)

    def loaded(self, name: str, more: Sequence[str]) -> Peers:
        return Engines(self.context, self.island, ["--engine", name, *more])

    def stop(self) -> None:
        self.island.down()


def measured(context: Context, durability: str, data_directory: str, engines: Sequence[str], loads: Sequence[Load],
             missing: list[str]) -> list[Contender]:
    """What each has done of all loads."""
    found: dict[str, Contender] = {}
    for load in loads:
        contest = LoadContest(context, durability, data_directory, load)
        try:
            contest.start(engines)
            contest.find_best()
            contest.measure()
            contest.stop()
        finally:
            contest.close()
        missing += [f"{load.title}: {what}" for what in contest.missing]
        for contender in contest.contenders:
            of_all = found.setdefault(contender.name, contender)
            of_all.best |= contender.best
            of_all.rates |= contender.rates
    for contender in found.values():
        contender.ops = tuple(contender.rates)
    return list(found.values())
