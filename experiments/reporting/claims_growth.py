"""Claims about more cores (Figure 12), about skew (Figure 13) and about more data (Figure 14)."""

import statistics
from collections.abc import Callable, Iterator

from reporting import words
from reporting.evidence import (Case, Claim, Ratio, Untellable, Verdict, change, greater, keeps_up, most_lost,
                                ordered, quotient, retained)
from reporting.results import Figure, Sweep, Where, as_number, compare
from reporting.sizes import LINEAR, OCTO, QUAD, factor

OPS = {"read": "reading", "update": "updating"}


def fig12(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, multisite=20, rows=10)
    reference = "Section 7.2, Figure 12"
    quote = ("The shared-nothing configurations scale linearly, with CG (coarse-grained shared-nothing) configuration "
             "being competitive with the best case")
    for op, doing in OPS.items():
        where: Where = {"op": op}
        for cut, name in (("FG", "an island per core"), ("CG", "an island per socket")):
            yield case.claim(f"Shared-nothing with {name} grows with the cores, linearly ({doing} 10 rows, 20 % "
                             "multisite).", quote, reference, "linear, to 24 and to 80 cores",
                             grows_linearly(case, cut, where), where, LINEAR)
        yield case.claim(f"Shared-everything scales worse than shared-nothing ({doing}).",
                         "The configuration labeled SE (shared-everything) does not scale linearly, particularly on "
                         "the machine with 8 sockets.",
                         reference, "not linear, least so on 8 sockets", scales_worse(case, where), where)
        yield case.claim(f"On all cores, one island per socket competes with the best cut ({doing}).", quote, reference,
                         "competitive with the best case", coarse_competes(case, where), where)
    yield from fig12_links(sweep, figure)


def fig12_links(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    """What of the traffic of memory crosses sockets."""
    case = Case(sweep, figure, "links_of_memory", multisite=20, rows=10, op="read")
    quote = ("The QPI/IMC ratio for the experiment with read-only workload on octo-socket server using all 80 cores is "
             "1.73 for SE, 1.54 for CG, and 1.52 for FG.")
    most = max((cores for value in case.values("cores") if (cores := as_number(value))), default=0)
    for cut, name, ratio in (("CG", "an island per socket", 1.73 / 1.54), ("FG", "an island per core", 1.73 / 1.52)):
        yield case.claim(f"More of what shared-everything reads crosses sockets than with {name} (reading 10 rows, "
                         "20 % multisite, all cores).", quote, "Section 7.2", f"{ratio:.2f}x, on 8 sockets",
                         links_more(case, cut, most), number=factor(ratio, OCTO))


def links_more(case: Case, cut: str, cores: float) -> Callable[[], Verdict]:
    return lambda: case.with_sockets(lambda: greater(case.at(cut="SE", cores=cores), case.at(cut=cut, cores=cores)))


def grows_linearly(case: Case, cut: str, where: Where) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        if cut == "CG":
            case.need_sockets()
        # Shared-nothing starts where it has several islands: one has no distributed transactions to begin with.
        return growth(case, {**where, "cut": cut}, islands=2)
    return decide


def growth(case: Case, where: Where, islands: int = 1, least: float = 1, most: float = float("inf")) -> Verdict:
    """That throughput grows from the fewest cores, with at least so many islands, to the most: the factor is by how
    much, its number is by how much the cores grow."""
    counts = {count for count in counts_of(case, where, islands) if least <= count <= most}
    if not counts or max(counts) < 2 * min(counts):
        several = " with several islands" if islands > 1 else ""
        raise Untellable(f"measured{several} on {', '.join(f'{count:g}' for count in sorted(counts)) or 0} cores, not "
                         "on twice as many")
    low, high = min(counts), max(counts)
    few, many = (case.at(**where, cores=count).stat for count in (low, high))
    ratio = quotient(many, few)
    here = (f"{words.times(ratio.median)} from {low:g} to {high:g} cores, {words.percent(ratio.median * low / high)} "
            "of linear")
    return ordered(compare(many, few), ">", here, ratio, factor(high / low))


def counts_of(case: Case, where: Where, islands: int) -> set[float]:
    """Numbers of cores that were measured with at least so many islands."""
    found = set()
    for point in case.figure.select({**case.usual, **where}):
        cores = as_number(point.axes.get("cores"))
        if cores and point.stat(case.metric) and (point.islands() or 0) >= islands:
            found.add(cores)
    return found


def scales_worse(case: Case, where: Where) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        starts = counts_of(case, {**where, "cut": "FG"}, 2)
        fine = growth(case, {**where, "cut": "FG"}, islands=2)
        shared = growth(case, {**where, "cut": "SE"}, least=min(starts))
        assert shared.ratio and fine.ratio, "growth() raises otherwise"
        return ordered(compare(shared.ratio, fine.ratio), "<", f"SE {shared.here}; FG {fine.here}")
    return decide


def coarse_competes(case: Case, where: Where) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        case.need_sockets()
        cores = max((cores for value in case.values("cores") if (cores := as_number(value))), default=0)
        coarse, *others = (case.at(**where, cut=cut, cores=cores) for cut in ("CG", "SE", "FG"))
        return keeps_up(coarse, others)
    return decide


def fig13(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, rows=2)
    case.usual.update(case.pick("multisite", 20, 50))
    reference = "Section 7.3, Figure 13"
    usual = case.usual.get("multisite")
    at_multisite = f" ({usual:g} % multisite)" if usual is not None else ""
    shown: Where = {"multisite": usual} if usual is not None else {}
    for op, done in (("read", "read"), ("update", "updated")):
        where: Where = {**shown, "op": op}
        yield case.claim(f"Heavy skew slows shared-everything down when rows are {done}{at_multisite}.",
                         "For shared-everything, heavily skewed workloads result in a significant performance drop due "
                         "to increased contention.", reference, "a significant drop", drops(case, case.shared, where),
                         where)
    where = {**shown, "op": "update"}
    yield case.claim(f"For shared-everything, skew hurts updates more than reads{at_multisite}.",
                     "This effect is apparent particularly in the update case.", reference,
                     "particularly in the update case", lambda: update_worse(case), where)
    yield case.claim("While skew is weak, shared-everything updates fairly fast: no slower than the middle one of the "
                     f"other layouts{at_multisite}.", "When requests are not strongly skewed, shared-everything "
                                                      "achieves fairly high performance in the update microbenchmark",
                     reference, "fairly high, no number",
                     lambda: fairly_high(case, where), where)
    for op, done in (("read", "read"), ("update", "updated")):
        where = {**shown, "op": op}
        yield case.claim(f"Skew slows one island per core down when rows are {done}: its hottest island has one worker"
                         f"{at_multisite}.", "the additional load cannot be divided and the most loaded instance "
                                             "becomes a bottleneck",
                         reference, "the most loaded island is the bottleneck",
                         drops(case, case.fine, where), where)
        yield case.claim(f"One island per socket copes better with skew than one per core when rows are {done}"
                         f"{at_multisite}.", "the increased load due to skewed accesses is naturally distributed among "
                         "all worker threads in the affected instance", reference, "its workers share the load",
                         coarse_copes(case, where), where)
    yield from fig13_distributed(case, reference)


def fig13_distributed(case: Case, reference: str) -> Iterator[Claim]:
    """Where most is multisite: the hot island holds the others up, and shared-everything wins."""
    numbers = [number for value in case.values("multisite") if (number := as_number(value)) is not None]
    most = max(numbers, default=0.0)
    for op, done in (("read", "read"), ("update", "updated")):
        where: Where = {"op": op, "multisite": most}
        slowest = Case(case.sweep, case.figure, "slowest_island_per_s", rows=2)
        yield slowest.claim("The hottest island holds the others up: with skew, one island per core, the least loaded "
                            f"one loses more where {most:g} % is multisite than where all is local, and fewer clients "
                            f"are all that it loses (rows are {done}).",
                            "the throughput of other instances also drops as they cannot complete transactions "
                            "involving the overloaded instance", reference, "others drop, too",
                            others_drop(slowest, where), where)
        if op == "update":  # of which section 7.3 says that shared-everything drops
            continue
        yield case.claim("With multisite transactions and strong skew, shared-everything beats one island per core "
                         f"when rows are {done} ({most:g} % multisite).",
                         "when the workload is not partitionable and/or "
                         "exhibits skew, shared-everything achieves twice as high a throughput as shared-nothing",
                         "Section 1 (no figure is named); Figure 13", "2x", shared_wins(case, where), where,
                         factor(2, QUAD))


def skewed(case: Case) -> tuple[float, float]:
    return case.range_of("zipf", least=0, most=0.7)


def drops(case: Case, layout: Callable[[], str], where: Where) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        start, end = (case.at(f"s = {value:g}", **where, zipf=value, layout=layout()) for value in skewed(case))
        here = f"{layout()} {change(end.stat.median / start.stat.median)} ({start}, {end})"
        return ordered(compare(start.stat, end.stat), ">", here)
    return decide


def others_drop(case: Case, where: Where) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        if as_number(where["multisite"]) == 0:
            raise Untellable("the sweep has no multisite transactions")
        fine = case.fine()
        try:  # clients follow their rows to the hot island: as much of it is no waiting
            local = lost(case, fine, {**where, "multisite": 0})
        except Untellable:
            raise Untellable("where all is local was not measured, so that it is not known what is waiting, and what "
                             "is clients that have gone to the hot island") from None
        return most_lost(("multisite", lost(case, fine, where)), [("local", local)])
    return decide


def lost(case: Case, layout: str, where: Where) -> Ratio:
    low, high = skewed(case)
    return retained(case, layout, "zipf", low, high, **where)


def update_worse(case: Case) -> Verdict:
    low, high = skewed(case)
    updates, reads = (lost(case, case.shared(), {"op": op}) for op in ("update", "read"))
    found = most_lost(("updates", updates), [("reads", reads)])
    return found._replace(here=f"from s = {low:g} to {high:g}: {found.here}")


def coarse_copes(case: Case, where: Where) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        coarse, fine = case.coarse(), case.fine()
        low, high = skewed(case)
        found = most_lost((fine, lost(case, fine, where)), [(coarse, lost(case, coarse, where))])
        return found._replace(here=f"from s = {low:g} to {high:g}: {found.here}")
    return decide


def shared_wins(case: Case, where: Where) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        high = skewed(case)[1]
        found = greater(*(case.at(**where, zipf=high, layout=layout) for layout in (case.shared(), case.fine())))
        return found._replace(here=f"{found.here}, s = {high:g}")
    return decide


def fairly_high(case: Case, where: Where) -> Verdict:
    weak = [number for value in case.values("zipf") if (number := as_number(value)) is not None and 0 < number <= 0.5]
    if not weak:
        raise Untellable("no weak skew, above 0 and up to 0.5, was measured")
    shared, *others = (case.at(layout=layout, zipf=max(weak), **where) for layout in (case.shared(), *case.cuts()))
    middle = statistics.median_low([other.stat.median for other in others])
    of_middle = next(other for other in others if other.stat.median == middle)
    order = compare(shared.stat, of_middle.stat)
    here = f"{words.times(shared.stat.median / middle)} ({shared}, {of_middle}), s = {max(weak):g}"
    return ordered("<" if order == "<" else ">", ">", here)


BEYOND_POOL = 2  # of the sizes in fig14.yaml, the largest


def fig14(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, rows=2)
    reference = "Section 7.4, Figure 14"
    local = case.pick("multisite", 0)
    for op, doing in OPS.items():
        where: Where = {**local, "op": op}
        yield case.claim(f"With the least data, an island per core is faster than shared-everything ({doing} 2 rows, "
                         "all local).", "For the smaller dataset, shared-nothing configurations exhibit very good "
                         "performance as a significant part of the dataset fits in processor last-level caches",
                         reference, "very good performance, no number", least_data(case, where), where)
        yield case.claim(f"While all fits into the pool, an island per core slows down as the data grow ({doing}).",
                         "As data sizes increase, the performance of shared-nothing configurations decrease steadily",
                         reference, "decreases steadily", declines(case, where), where)
        yield case.claim(f"Beyond the pool it loses more than all growth within the pool has cost ({doing}).",
                         "when the dataset becomes larger than the buffer pool, the performance drops sharply due to "
                         "disk I/O", reference, "drops sharply", drops_beyond(case, where), where)
        yield case.claim(f"Multisite transactions lose less by it ({doing}).",
                         "These effects are less pronounced when the percentage of multisite transaction is higher",
                         reference, "less pronounced", softer(case, op), {"op": op})


def sizes_of(case: Case) -> tuple[float, float, float]:
    """The least number of rows, the most within the pool, the most."""
    sizes = sorted(number for value in case.values("rows_total") if (number := as_number(value)) is not None)
    if len(sizes) < BEYOND_POOL + 2:
        raise Untellable("the sweep was not measured with the sizes of its file")
    return sizes[0], sizes[-1 - BEYOND_POOL], sizes[-1]


def least_data(case: Case, where: Where) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        least = sizes_of(case)[0]
        return greater(*(case.at(**where, rows_total=least, layout=layout) for layout in (case.fine(), case.shared())))
    return decide


def declines(case: Case, where: Where) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        start, end = (case.at(f"{size:g} rows", **where, rows_total=size, layout=case.fine())
                      for size in sizes_of(case)[:2])
        return ordered(compare(start.stat, end.stat), ">",
                       f"{case.fine()} {change(end.stat.median / start.stat.median)} ({start}, {end})")
    return decide


def drops_beyond(case: Case, where: Where) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        least, within, most = sizes_of(case)
        lost_within, lost_beyond = (retained(case, case.fine(), "rows_total", low, high, **where)
                                    for low, high in ((least, within), (within, most)))
        return most_lost(("beyond the pool", lost_beyond), [("within", lost_within)])
    return decide


def softer(case: Case, op: str) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        least, _, most = sizes_of(case)
        shares = [number for value in case.values("multisite") if (number := as_number(value)) is not None]
        if len(shares) < 2:
            raise Untellable("the sweep does not vary multisite")
        local, multisite = (retained(case, case.fine(), "rows_total", least, most, op=op, multisite=share)
                            for share in (min(shares), max(shares)))
        return most_lost(("local", local), [(f"{max(shares):g} % multisite", multisite)])
    return decide
