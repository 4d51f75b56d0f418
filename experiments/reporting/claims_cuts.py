"""Claims about how the machine is cut into islands and where these lie: sections 1, 4, 6 and 7.1."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from reporting import words
from reporting.evidence import (UNKNOWN, Case, Claim, Found, Ratio, Untellable, Verdict, all_of, change, cheaper,
                                greater, keeps_up, most_lost, ordered, quotient, retained, steady)
from reporting.results import Figure, Spread, Sweep, Value, Where, as_number, compare, islands_of
from reporting.sizes import QUAD, factor

OPS = {"read": "reading", "update": "updating"}
SECTION_1 = ("when the workload is not partitionable and/or exhibits skew, shared-everything achieves twice as high a "
             "throughput as shared-nothing")


def fig04(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure)
    case.usual.update({**case.pick("op", "update"), **case.pick("multisite", 20)})
    load = words.settings(case.usual)
    at_load = f" ({load})" if load else ""
    where = dict(case.usual)
    worst = ("islands-aware thread assignment can improve the worst-case scenario by a factor of 2 without hurting the "
             "best-case performance much")
    yield case.claim(f"An island per socket is faster where its cores are neighbours than where they are spread over "
                     f"the sockets{at_load}.", "the cost of a topology-aware islands configuration of a certain size "
                                               "is lower than the cost of a topology-unaware shared-nothing "
                                               "configuration", "Section 4, Figure 4",
                     "expected, no number", lambda: case.with_sockets(lambda: greater(
                         placed(case, case.coarse(), "islands"), placed(case, case.coarse(), "spread"))), where)
    yield case.claim(f"Placing islands by topology doubles the throughput of the worst case{at_load}: of the layout "
                     "and placement that is slowest.", worst, "Section 1 (no figure is named)", "2x",
                     lambda: case.with_sockets(lambda: improves_worst(case)), where, factor(2, QUAD))
    yield case.claim(f"It does not hurt the best case much{at_load}: the layout and placement that is fastest.", worst,
                     "Section 1 (no figure is named)", "not much",
                     lambda: case.with_sockets(lambda: keeps_best(case)), where)


def placed(case: Case, layout: str, placement: str) -> Found:
    return case.at(f"{layout} {placement}", layout=layout, placement=placement)


def placed_otherwise(case: Case) -> list[tuple[str, Found]]:
    """(layout, what it does) of all placements that do not ask where islands belong."""
    others = [str(value) for value in case.values("placement") if value != "islands"]
    found = [(layout, placed(case, layout, placement)) for layout in case.layouts() for placement in others]
    if not found:
        raise Untellable("islands were placed in one way only")
    return found


def improves_worst(case: Case) -> Verdict:
    layout, slowest = min(placed_otherwise(case), key=lambda pair: pair[1].stat.median)
    return greater(placed(case, layout, "islands"), slowest)


def keeps_best(case: Case) -> Verdict:
    layout, fastest = max(placed_otherwise(case), key=lambda pair: pair[1].stat.median)
    return keeps_up(placed(case, layout, "islands"), [fastest])


def fig07(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure)
    yield case.claim("Fine-grained beats shared-everything on local Payment.", "The fine-grained shared-nothing "
                     "configuration outperforms shared-everything by 4.5x", "Section 6.1, Figure 7", "4.5x on 24 cores",
                     lambda: greater(case.at(layout=case.fine()), case.at(layout=case.shared())), None,
                     factor(4.5, QUAD))
    yield case.claim("The fewer threads share an island, the cheaper its local transactions: one island per core beats "
                     "one per socket.", "the cost of a (local) transaction of a coarse-grained shared-nothing "
                     "configuration is higher than the cost of a (local) transaction of a very fine-grained "
                     "configuration", "Section 4 (Figure 7 has 1ISL and 24ISL only)", "expected, no number",
                     lambda: greater(case.at(layout=case.fine()), case.at(layout=case.coarse())))
    yield case.claim("On the microbenchmark, whose rows are less contended, the gain is smaller than on Payment.",
                     "Experiments with short-running microbenchmarks in later sections, however, do not show such a "
                     "large difference between shared-everything and shared-nothing.",
                     "Section 6.1, Figures 7 and 9", "4.5x for Payment, less there",
                     lambda: smaller_on_micro(sweep, case))


def smaller_on_micro(sweep: Sweep, case: Case) -> Verdict:
    micro = sweep.figure("fig09")
    if not micro:
        raise Untellable("it needs fig09 too, which this sweep does not have with the same durability")
    other = Case(sweep, micro)
    payment = quotient(case.at(layout=case.fine()).stat, case.at(layout=case.shared()).stat)
    where: Where = {"multisite": 0, "op": "update"}
    small = quotient(other.at(layout=other.fine(), **where).stat, other.at(layout=other.shared(), **where).stat)
    here = f"{words.times(payment.median)} for Payment, {words.times(small.median)} for local updates in fig09"
    return ordered(compare(payment, small), ">", here)


def fig09(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, rows=10, zipf=0)
    reference = "Section 7.1, Figure 9"
    drop = ("there is a drop in performance of the remaining configurations, which is more significant in the case of "
            "the fine-grained one")
    for op, doing in OPS.items():
        where: Where = {"op": op}
        yield case.claim(f"Shared-everything does not mind multisite transactions ({doing} 10 rows).",
                         "the configuration 1ISL (i.e. shared-everything) is not affected by varying the percentage of "
                         "multisite transactions", reference, "not affected", shared_steady(case, where), where)
        yield case.claim(f"Every layout of several islands slows down as multisite transactions increase ({doing}).",
                         drop, reference, "all drop", all_drop(case, where), where)
        yield case.claim(f"The drop is more significant with one island per core than with fewer, larger ones "
                         f"({doing}).",
                         drop, reference, "the finest drops most", finest_drops_most(case, where), where)
        yield case.claim(f"Where every transaction is multisite, shared-everything beats one island per core "
                         f"({doing}).",
                         SECTION_1, "Section 1 (no figure is named); Figure 9", "2x", shared_wins(case, where), where,
                         factor(2, QUAD))
    local: Where = {"op": "read", "multisite": 0}
    yield case.claim("Local reads of 10 rows are fastest with one island per core: it beats larger islands and "
                     "shared-everything.", "two cases where fine-grained shared-nothing configurations outperform "
                     "coarser-grained shared-nothing configurations as well as shared-everything", "Sections 6 and 6.2",
                     "better, no number", lambda: finest_fastest(case, local), {"op": "read"})
    messages = Case(sweep, figure, "messages_per_distributed", rows=10, zipf=0)
    for op, doing in OPS.items():
        where = {"op": op}
        yield messages.claim(f"A distributed transaction costs as many messages however many there are ({doing}).",
                             "The messaging overhead is high in the read-only case, although it has a constant cost "
                             "per transaction.",
                             "Section 7.1.3, Figure 11", "constant", messages_constant(messages, where),
                             where)


def shared_steady(case: Case, where: Where) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        case.range_of("multisite", least=0, most=50)
        found = [case.at(f"at {value:g} %", **where, multisite=value, layout=case.shared())
                 for value in map(as_number, case.values("multisite")) if value is not None]
        # The one that is farthest from where nothing is multisite speaks for all.
        return steady(found[0], max(found[1:], key=lambda one: abs(one.stat.median - found[0].stat.median)))
    return decide


def all_drop(case: Case, where: Where) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        low, high = case.range_of("multisite", least=0, most=50)
        parts = []
        for layout in case.cuts():
            start, end = (case.at(**where, multisite=value, layout=layout) for value in (low, high))
            parts.append(ordered(compare(start.stat, end.stat), ">",
                                 f"{layout} {change(end.stat.median / start.stat.median)}"))
        found = all_of(parts)
        return found._replace(here=f"from {low:g} to {high:g} %: {found.here}")
    return decide


def finest_drops_most(case: Case, where: Where) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        low, high = case.range_of("multisite", least=0, most=50)
        finest = case.fine()
        others = [layout for layout in case.cuts() if layout != finest]
        if not others:
            raise Untellable(f"there is no layout between 1ISL and {finest}")
        found = most_lost((finest, retained(case, finest, "multisite", low, high, **where)),
                          [(layout, retained(case, layout, "multisite", low, high, **where)) for layout in others])
        return found._replace(here=f"from {low:g} to {high:g} %: {found.here}")
    return decide


def shared_wins(case: Case, where: Where) -> Callable[[], Verdict]:
    return lambda: greater(*(case.at(**where, multisite=100, layout=layout) for layout in (case.shared(), case.fine())))


def finest_fastest(case: Case, where: Where) -> Verdict:
    finest = case.at(layout=case.fine(), **where)
    others = [case.at(layout=layout, **where) for layout in case.layouts() if layout != finest.name]
    return greater(finest, max(others, key=lambda other: other.stat.median))


def messages_constant(case: Case, where: Where) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        shares = [share for value in case.values("multisite") if (share := as_number(value))]
        if len(shares) < 2:
            raise Untellable("messages were counted at fewer than two percentages of multisite transactions")
        return all_of(steady(*(case.at(f"{layout} at {share:g} %", **where, multisite=share, layout=layout)
                               for share in (min(shares), max(shares)))) for layout in case.cuts())
    return decide


def fig10(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, "us_per_transaction", zipf=0, rows=10)
    reading, writing = "Section 7.1.1, Figure 10", "Section 7.1.2, Figure 10"
    local: Where = {"op": "read", "multisite": 0}
    distributed: Where = {"op": "read", "multisite": 100}
    opposite = "In the multisite case, however, the costs decrease with the size of an instance."
    yield case.claim("A local read costs least with one island per core, which needs no locks and latches (10 rows).",
                     "locking and latching are disabled, which leads to roughly 40% lower costs than the next best "
                     "configuration", reading, "about 40 % below the next best", lambda: finest_cheapest(case, local),
                     local, factor(1 / 0.6, QUAD))
    yield case.claim("The larger the island, the dearer a local read (10 rows).", "In the local case, the costs of a "
                     "single transaction rise as the size of an instance grows.", reading,
                     "costs rise with the size of the island",
                     lambda: cost_order(case, list(reversed(case.layouts())), local), local)
    yield case.claim("Multisite reads turn the order round: the more islands, the dearer (10 rows; of layouts with "
                     "several islands).", opposite, reading, "costs fall with the size of the island",
                     lambda: cost_order(case, case.cuts(), distributed), distributed)
    yield case.claim("Shared-everything is the exception: its multisite reads cost more than those of the largest "
                     "islands, by communication between sockets (10 rows).", "The exception is the shared-everything "
                     "configuration, which has higher costs due to inter-socket communication", reading,
                     "dearer, no number", lambda: case.with_sockets(lambda: greater(
                         case.at(layout=case.shared(), **distributed), case.at(layout=case.cuts()[0], **distributed))),
                     distributed)
    yield case.claim("What being distributed adds to a read grows in proportion to the islands that take part (10 "
                     "rows).",
                     "Overhead Proportional to the Number of Participating Instances", "Section 7.1.1 (its title)",
                     "proportional", lambda: overhead_by_participants(case, local, distributed), distributed,
                     factor(1))
    local, distributed = {"op": "update", "multisite": 0}, {"op": "update", "multisite": 100}
    yield case.claim("The more threads share an island, the dearer a local update (10 rows).",
                     "The cost of a transaction increases with the number of threads in the system, due to contention "
                     "on shared data structures.",
                     writing, "costs rise with the number of threads",
                     lambda: cost_order(case, list(reversed(case.layouts())), local), local)
    yield case.claim("Multisite updates cost more on every layout of several islands than on shared-everything (10 "
                     "rows).",
                     "Any configuration that requires distributed transactions is more expensive than the "
                     "shared-everything configuration.", writing, "all dearer",
                     lambda: dearer_than_shared(case, distributed), distributed)
    yield case.claim("Multisite updates cost much more than local ones (10 rows).",
                     "Multisite shared-nothing transactions ... are significantly more expensive than their local "
                     "counterparts.", writing,
                     "significantly dearer",
                     lambda: multisite_dearer(case, local, distributed), distributed)
    messages = Case(sweep, figure, "messages_per_distributed", zipf=0, rows=4)
    yield messages.claim("Distributed updates exchange twice as many messages as reads (4 rows).", "distributed "
                         "transactions require exchange of twice as many messages in the update case", "Section 7.1.3, "
                         "Figure 11", "2x with 4ISL", lambda: more_messages(messages), {"multisite": 100}, factor(2))


def finest_cheapest(case: Case, where: Where) -> Verdict:
    finest = case.at(layout=case.fine(), **where)
    others = [case.at(layout=layout, **where) for layout in case.layouts() if layout != finest.name]
    return cheaper(finest, min(others, key=lambda found: found.stat.median))


def each(pairs: Iterable[tuple[str, Found, Found]]) -> Verdict:
    """That in every pair the first costs more; told by `name`s and factors. `pairs`: (name, dear, cheap)."""
    parts = []
    for name, dear, cheap in pairs:
        found = greater(dear, cheap)
        times = words.times(dear.stat.median / cheap.stat.median)
        doubt = " (within the spread)" if found.direction == UNKNOWN else ""
        parts.append(found._replace(here=f"{name} {times}{doubt}"))
    found = all_of(parts)
    return found._replace(here=found.here.replace("; ", ", "))


def dearer_than_shared(case: Case, where: Where) -> Verdict:
    shared = case.at(layout=case.shared(), **where)
    found = each((layout, case.at(layout=layout, **where), shared) for layout in case.cuts())
    return found._replace(here=f"cost of {shared}; {found.here} of that")


def multisite_dearer(case: Case, local: Where, distributed: Where) -> Verdict:
    found = each((layout, case.at(layout=layout, **distributed), case.at(layout=layout, **local))
                 for layout in case.cuts())
    return found._replace(here=f"{found.here} the local cost")


def cost_order(case: Case, layouts: Sequence[str], where: Where) -> Verdict:
    """That the cost rises along `layouts`: the ends differ, and no neighbours stand the other way round."""
    if len(layouts) < 2:
        raise Untellable("it takes two layouts of several islands to compare")
    found = [case.at(layout=layout, **where) for layout in layouts]
    orders = [compare(cheap.stat, dear.stat) for cheap, dear in zip(found, found[1:])]
    here = str(found[0]) + "".join(f" {'<' if order == '<' else '≈'} {dear}" for order, dear in zip(orders, found[1:]))
    if ">" in orders:
        first = orders.index(">")
        return ordered(">", "<", f"{found[first]}, but {found[first + 1]}")
    if compare(found[0].stat, found[-1].stat) == "~":
        return ordered("~", "<", ", ".join(map(str, found)))
    return ordered("<", "<", here)


def difference(above: Spread, below: Spread) -> Ratio:
    """What `above` is more; its range is the widest that theirs allow."""
    return Ratio(above.median - below.median, above.low - below.high, above.high - below.low,
                 min(above.runs, below.runs), max(above.noise, below.noise))


def others_taking_part(islands: int, rows: float) -> float:
    """Expected number of other islands in a multisite transaction: its first row is local, the others lie anywhere."""
    return (islands - 1) * (1 - (1 - 1 / islands) ** (rows - 1))


def overhead_by_participants(case: Case, local: Where, distributed: Where) -> Verdict:
    layouts = case.cuts()
    if len(layouts) < 2:
        raise Untellable("it takes two layouts of several islands to compare")
    few, many = layouts[0], layouts[-1]
    adds = [difference(case.at(layout=layout, **distributed).stat, case.at(layout=layout, **local).stat)
            for layout in (few, many)]
    part = [others_taking_part(islands_of(layout) or 1, 10) for layout in (few, many)]
    if adds[0].low <= 0:
        raise Untellable(f"on {few} being distributed costs nothing beyond the spread")
    ratio, wanted = quotient(adds[1], adds[0]), part[1] / part[0]
    here = (f"{few} +{words.quantity(case.metric, adds[0].median)} for {part[0]:.1f} other islands, {many} "
            f"+{words.quantity(case.metric, adds[1].median)} for {part[1]:.1f}: {words.times(ratio.median)} for "
            f"{words.times(wanted)} as many")
    return ordered(compare(adds[1], adds[0]), ">", here, ratio, factor(wanted))


def more_messages(case: Case) -> Verdict:
    layout = case.coarsest()
    found = greater(*(case.at(f"{layout} {op}", layout=layout, op=op, multisite=100) for op in ("update", "read")))
    return found._replace(here=f"{found.here}; reads end with their vote, updates hear the decision and acknowledge it")


def logging(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    """Figure 11's share of logging: the same load with a log and without one."""
    case = Case(sweep, figure, "us_per_transaction", op="update", rows=4)
    reference = "Section 7.1.3, Figure 11"
    where: Where = {"multisite": 100}
    quote = "in the update case overheads are divided between communication and additional logging"
    yield case.claim("Logging is a part of what a distributed update costs (4 rows).", quote, reference,
                     "the values of the figure are not in its text", lambda: logging_costs(case, where), where)
    yield case.claim("A distributed update logs more than a local one: logging adds more to it (4 rows).", quote,
                     reference, "additional logging", lambda: additional_logging(case), where)


def with_log(case: Case, durability: str, where: Where) -> Found:
    return case.at(durability, durability=durability, layout=case.coarsest(), **where)


def logging_costs(case: Case, where: Where) -> Verdict:
    return greater(with_log(case, "lazy", where), with_log(case, "none", where))


def logging_adds(case: Case, multisite: Value) -> Ratio:
    where: Where = {"multisite": multisite}
    return difference(with_log(case, "lazy", where).stat, with_log(case, "none", where).stat)


def additional_logging(case: Case) -> Verdict:
    local, distributed = logging_adds(case, 0), logging_adds(case, 100)
    here = ", ".join([*(f"{'+' if adds.median >= 0 else '−'}{words.quantity(case.metric, abs(adds.median))} {name}"
                        for name, adds in (("distributed", distributed), ("local", local))), case.coarsest()])
    order = "~" if distributed.low <= local.high and local.low <= distributed.high else (
        ">" if distributed.median > local.median else "<")
    return ordered(order, ">", here)
