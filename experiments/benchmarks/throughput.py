"""Sections that measure running islands: transactions of the microbenchmark on deployments cut in different ways."""

from benchmarks.context import ROWS, Context, Deployment, Measure, available_bytes, cpus_of, memory_mib, pin
from benchmarks.peers import Peers
from benchmarks.section import Section, median, ratio
from islands_command import RunReport
from collections.abc import Iterable

THOUSAND = "{:.1f}"
RATIO = "{:.2f}"
OPS = ("read", "add", "update")
CHANGES = ("add", "update")
ENGINES = {"lmdb": "LMDB", "rocksdb": "RocksDB TransactionDB", "bdb": "Berkeley DB",
           "wiredtiger": "WiredTiger"}
BARE = {"descents": "bare descents", "interleaved": "bare, interleaved: the limit"}
RETRIED = ("deadlock", "lock_timeout", "vote_no")  # as instance/execution/abort_reason.h says
PEERS_MISSING = "the other engines are not built: deploy/install-packages.sh build test, then make bench"


def thousands(rate: float | None) -> float | None:
    return None if rate is None else rate / 1000


def one_worker(context: Context) -> Deployment:
    """Its transactions draw their rows from all data, as those of the other engines do."""
    return context.deployment("one", "1ISL", cores=1, sites=1)


def two_islands(context: Context) -> Deployment:
    return context.deployment("two", "2ISL", cores=context.cores, sites=2)


def two_workers(context: Context) -> Deployment:
    return context.deployment("shared", "1ISL", cores=context.cores, sites=2)


def say_if_one_core(context: Context, section: Section) -> None:
    if context.cores < 2:
        section.note("this machine has one core; two workers share it, and the bars mean nothing")


def peers(context: Context) -> Section:
    """`add` counts by each engine's own best way; `update` copies a row and writes all of it back."""
    section = Section(f"Peers: {ROWS} random rows of {context.rows_total:,} x 250 bytes, one thread each, thousand "
                      "transactions/s", "engine",
                      [column for op in OPS for column in ((f"{op}-10", THOUSAND), ("x LMDB", RATIO))])
    one = one_worker(context)
    engines = context.peers(one)
    pin(*one.first_worker())  # its service threads as well
    measures = {("islands", op): one.rate(op) for op in OPS}
    if engines is None:
        section.note(PEERS_MISSING)
    else:
        measures.update({(engine, op): engines.rate(engine, op) for engine in ENGINES for op in OPS})
        measures.update({(engine, "read"): engines.rate(engine, "read") for engine in BARE})
    found = context.alternate(measures)
    for engine, name in {"islands": "islands, one worker", **ENGINES, **BARE}.items():
        cells = []
        for op in OPS:
            rate = found.get((engine, op))
            cells += [thousands(rate), ratio(rate, found.get(("lmdb", op)))]
        section.row(name, *cells)
    for op in ("read", "add"):
        section.bar(f"{op}-10 / LMDB", ratio(found["islands", op], found.get(("lmdb", op))), at_least=4)
    say_how_alike(section, one.first_worker()[0], engines)
    return section


def say_how_alike(section: Section, pid: int, engines: Peers | None) -> None:
    """What the engines differ in beside speed: whoever compares has to know."""
    memory, huge = memory_mib(pid)
    section.note(f"islands: a commit does not outlive the process: no log; strict serializability; rolls back; {huge} "
                 f"of {memory} MiB in huge pages; every thread on CPU {listed(cpus_of(pid))}")
    if engines is None:
        return
    for engine, about in engines.engines.items():
        if engine in ENGINES:
            section.note(f"{about['version']}: {about['keeps']}; {about['isolation']}; "
                         f"{'rolls back' if about['rolls_back'] else 'does not roll back'}; {about['huge_mib']} of "
                         f"{about['memory_mib']} MiB in huge pages")
    section.note(f"every thread of the other engines on CPU {listed(cpus_of(engines.process.pid))}")


def listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def cores(context: Context) -> Section:
    section = Section("Cores: local transactions, thousand/s", "deployment", [(f"{op}-10", THOUSAND) for op in OPS])
    say_if_one_core(context, section)
    deployments = {
        "one worker": context.deployment("one-of-2-sites", "1ISL", cores=1, sites=2),
        "one worker, locks and latches": context.deployment("latched", "1ISL", cores=1, sites=2, latching="always"),
        "2ISL": two_islands(context),
        "1ISL, two workers": two_workers(context)}
    ops = CHANGES if context.quick else OPS  # an update that loses its lock shows in the sum, an add does not
    found = context.alternate({(name, op): deployment.rate(op) for op in ops
                               for name, deployment in deployments.items()})
    for name in deployments:
        section.row(name, *(thousands(found.get((name, op))) for op in OPS))
    for op in ops:
        one, latched, two, shared = (found[name, op] for name in deployments)
        if op != "update":
            section.bar(f"{op}-10: 2ISL / one worker", ratio(two, one), at_least=1.9)
            section.bar(f"{op}-10: 1ISL with two workers / one worker with locks and latches", ratio(shared, latched),
                        at_least=1.7)
        section.note(f"{op}-10: one worker gains {100 * (one / latched - 1):.0f} % by doing without locks and latches "
                     "(the paper: about 40 %)")
    return section


def multisite(context: Context) -> Section:
    """`update` is there to be seen; its bars are those of `add`."""
    section = Section("Multisite: 2ISL, beside LMDB: two cores against one thread", "multisite %",
                      [column for op in CHANGES
                       for column in ((f"{op}-10, thousand/s", THOUSAND), ("2 cores x LMDB", RATIO))])
    say_if_one_core(context, section)
    two = two_islands(context)
    percentages = [0, 20, 50, 100]
    engines = context.peers(two)
    if engines is None:
        section.note(PEERS_MISSING)
    measures: dict[tuple[str, int | str], Measure] = {}
    for op in ["add"] if context.quick else CHANGES:
        measures.update({(op, percent): two.rate(op, multisite=percent) for percent in percentages})
        if engines is not None:
            measures[op, "LMDB, one thread"] = engines.rate("lmdb", op)
    found = context.alternate(measures)
    labels: list[int | str] = [*percentages, "LMDB, one thread"]
    for label in labels:
        cells = []
        for op in CHANGES:
            rate = found.get((op, label))
            cells += [thousands(rate), ratio(rate, found.get((op, "LMDB, one thread")))]
        section.row(str(label), *cells)
    for percent, at_least in ((20, 4.5), (100, 1.9)):
        section.bar(f"add-10, {percent} % multisite, two cores / LMDB, one thread",
                    ratio(found["add", percent], found.get(("add", "LMDB, one thread"))), at_least=at_least)
    return section


def failed(result: RunReport) -> int:
    """Transactions that were given up. Victims of deadlocks run again, and count as aborted once per attempt."""
    return sum(count for reason, count in result["aborts_by_reason"].items() if reason not in RETRIED)


def many(context: Context) -> Section:
    section = Section("Many islands: 24 on two cores, thousand transactions/s", "layout",
                      [("read-10", THOUSAND), ("add-10", THOUSAND), ("add-10, 100 % multisite", THOUSAND)])
    deployments = {"2ISL": context.deployment("two-of-24-sites", "2ISL", cores=context.cores, sites=24),
                   "24ISL": context.deployment("many", "24ISL", cores=context.cores, sites=24)}
    ops = ["add"] if context.quick else ["read", "add"]
    found = context.alternate({(name, op): deployment.rate(op) for op in ops
                               for name, deployment in deployments.items()})
    outcomes = []

    def distributed(deployment: Deployment) -> Measure:
        def measure() -> float:
            outcomes.append((deployment.name, deployment.run("add", multisite=100)))
            return outcomes[-1][1]["committed_per_s"]
        return measure

    all_multisite = context.alternate({name: distributed(deployment) for name, deployment in deployments.items()},
                                      "add, 100 % multisite")
    for name in deployments:
        section.row(name, *(thousands(found.get((name, op))) for op in ("read", "add")),
                    thousands(all_multisite[name]))
    for op in ops:
        section.bar(f"{op}-10: 24ISL / 2ISL", ratio(found["24ISL", op], found["2ISL", op]), at_least=0.5)
    runs = [result for name, result in outcomes if name == "many"]
    section.bar("24ISL at 100 %: transactions that failed or whose outcome is unknown",
                sum(failed(result) + result["unknown"] for result in runs), at_most=0, form="{:g}")
    section.note(f"24ISL at 100 %: {sum(result['committed'] for result in runs):,} committed, latency p99 "
                 f"{median([result['latency_us']['p99'] for result in runs]) / 1000:.1f} ms "
                 f"{runs[0]['latency_from']}")
    return section


def multiprogramming(context: Context) -> Section:
    section = Section("Multiprogramming: 1ISL with two workers, thousand transactions/s", "MPL per worker",
                      [("read-10", THOUSAND), ("20 % update-10, 80 % read-10", THOUSAND)])
    shared = two_workers(context)
    levels = [1, 500] if context.quick else [1, 4, 16, 64, 250, 500]
    measures = {}
    for level in levels:
        measures[level, "read"] = shared.rate("read", mpl=level)
        measures[level, "mixed"] = shared.rate("mix", mpl=level, more=("--update-percent", "20"))
    found = context.alternate(measures, "MPL")
    for level in levels:
        section.row(str(level), thousands(found[level, "read"]), thousands(found[level, "mixed"]))
    for kind, (name, _) in zip(("read", "mixed"), section.columns):
        section.bar(f"{name}: at 500 / peak", ratio(found[500, kind], max(found[level, kind] for level in levels)),
                    at_least=0.9)
    return section


def sizes(context: Context) -> Section:
    """Islands and the bare loops over the same number of rows, both in memory at once, one size after the other."""
    section = Section("Sizes: read-10, nanoseconds per row, and how much more than at the smallest size", "rows",
                      [(column, form) for name in ("islands", "bare", "interleaved")
                       for column, form in ((name, "{:.0f}"), ("growth", RATIO))])
    wanted = [24_000, 48_000] if context.quick else [1_000_000, 10_000_000]
    wanted += [30_000_000, 100_000_000] if context.large and not context.quick else []
    smallest = None
    for rows_total in wanted:
        need = rows_total * 800 + (1 << 30)  # twice the rows, with pages that are not full
        if available_bytes() < need:
            section.note(f"{rows_total:,} rows: skipped, {available_bytes() >> 30} GiB of memory available, "
                         f"{need >> 30} needed")
            continue
        costs = size(context, rows_total)
        smallest = smallest or costs
        growth = {name: ratio(cost, smallest[name]) for name, cost in costs.items()}
        section.row(f"{rows_total:,}", *(cell for name in ("islands", *BARE)
                                         for cell in (costs.get(name), growth.get(name))))
        if costs is not smallest and "descents" in costs:
            section.bar(f"{rows_total:,} rows: growth of islands / growth of bare descents",
                        ratio(growth["islands"], growth["descents"]), at_most=1)
    if not Peers.built(context):
        section.note(PEERS_MISSING)
    return section


def size(context: Context, rows_total: int) -> dict[str, float]:
    """Nanoseconds per row, by engine."""
    deployment = context.deployment(f"rows-{rows_total}", "1ISL", cores=1, sites=1, rows_total=rows_total)
    measures = {"islands": deployment.rate("read")}
    bare = None
    try:
        if Peers.built(context):
            context.progress.show(f"loading bare trees of {rows_total:,} rows")
            bare = Peers(context, rows_total, BARE)
            pin(bare.process.pid, deployment.first_worker()[1])
            measures.update({engine: bare.rate(engine, "read") for engine in BARE})
        found = context.alternate(measures, f"{rows_total:,} rows")
    finally:
        if bare is not None:
            bare.close()
    deployment.down()
    return {name: 1e9 / (rate * ROWS) for name, rate in found.items()}
