"""What "OLTP on Hardware Islands" (VLDB 2012) says, figure by figure, decided on a machine's results.

Each function yields the claims about one figure, in our own words, with the paper's section and number. The paper's
machines had 4 sockets of 6 cores and 8 sockets of 10; here 1ISL stands for shared-everything, one island per core for
fine-grained and one per socket for coarse-grained shared-nothing, whatever the machine. To add a figure, write its
function and enter it in FIGURES.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from reporting import words
from reporting.evidence import (AGREES, DISAGREES, LINEAR, UNKNOWN, Case, Claim, Found, Ratio, Untellable, Verdict,
                                all_of, change, cheaper, greater, most_lost, overlapping, retained, steadier, steady)
from reporting.results import Figure, Sweep, Where, as_number, compare

OPS = {"read": "reading", "update": "updating"}


def claims_of(sweep: Sweep) -> list[Claim]:
    """The claims of all figures that the sweep has, in its order; with every durability that a figure has."""
    found = []
    for figure in sweep.figures:
        durabilities = figure.durabilities()
        for durability in durabilities or [""]:
            part = sweep.under(durability) if durability else sweep
            of_part = f"{figure.name}.{durability}" if len(durabilities) > 1 else figure.name
            claims = FIGURES[figure.name](part, figure.under(durability)) if figure.name in FIGURES else []
            for number, claim in enumerate(claims, 1):
                claim.id, claim.durability = f"{of_part}.{number}", durability
                if len(durabilities) > 1:
                    claim.where = {**claim.where, "durability": durability}
                found.append(claim)
    return found


def fig02(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, "increments_per_s", counters="per-socket")
    reference = "Section 3.1, Figure 2"

    def at(name: str) -> Found:
        return case.at(name, workers=name)

    yield case.claim("Threads on the socket of the counter they share increment it faster than threads spread over all "
                     "sockets.", reference, "grouped is the best of the three placements",
                     lambda: case.with_sockets(lambda: greater(at("grouped"), at("spread"))))
    yield case.claim("Grouping threads by hand beats leaving their placement to the operating system.", reference,
                     "the operating system places less than optimally",
                     lambda: case.with_sockets(lambda: greater(at("grouped"), at("os"))))
    yield case.claim("Placement by topology varies less from run to run than placement by the operating system.",
                     reference, "grouped varies least",
                     lambda: case.with_sockets(lambda: steadier(at("grouped"), at("os"))))


def tab01(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, "increments_per_s", workers="grouped")
    reference = "Section 3.2, Table 1"

    def at(name: str) -> Found:
        return case.at(f"{name} counter{'' if name == 'single' else 's'}", counters=name)

    yield case.claim("A counter for each core beats a single one for the whole machine.", reference, "517x on 80 cores",
                     lambda: greater(at("per-core"), at("single")))
    yield case.claim("The gain is more than linear: larger than the number of counters.", reference,
                     "517x with 80 counters", lambda: super_linear(sweep, at("per-core"), at("single")))
    yield case.claim("A counter for each socket already beats a single one.", reference, "18.5x on 8 sockets",
                     lambda: case.with_sockets(lambda: greater(at("per-socket"), at("single"))))
    yield case.claim("Counters that nobody shares vary less from run to run than a single one.", reference,
                     "standard deviation 0.03 % against 9.33 %", lambda: steadier(at("per-core"), at("single")))


def super_linear(sweep: Sweep, many: Found, one: Found) -> Verdict:
    if not sweep.cores or sweep.cores < 2:
        raise Untellable("the number of counters is not known" if not sweep.cores else "one core has one counter")
    ratio = Ratio(many.stat, one.stat)
    here = f"{words.times(ratio.median)} with {sweep.cores} counters"
    if ratio.low <= sweep.cores <= ratio.high:
        return overlapping(here)
    return AGREES if ratio.median > sweep.cores else DISAGREES, here


def fig03(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, layout="1ISL")
    reference = "Section 3.1, Figure 3"

    def at(name: str) -> Found:
        return case.at(name, workers=name)

    for name, what in (("spread", "one worker on each socket"), ("os", "workers that the operating system places"),
                       ("mix", "two workers on each of two sockets")):
        yield case.claim(f"Payment with all four workers on one socket is faster than with {what}.", reference,
                         "20 to 30 % faster",
                         lambda: case.with_sockets(lambda: greater(at("grouped"), at(name))))
    yield case.claim("Workers grouped on one socket vary less from run to run than workers that the operating system "
                     "places.", reference, "less variation",
                     lambda: case.with_sockets(lambda: steadier(at("grouped"), at("os"))))


def fig06(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, "messages_per_s")
    case.usual.update({**case.pick("batch", 1), **case.pick("wait", "sleep")})
    reference = "Section 5, Figure 6"
    near, far = ("same-socket", "same-cache"), ("cross-socket", "across-sockets")
    yield case.claim("Within a socket, Unix domain sockets exchange more messages than pipes, FIFOs, message queues "
                     "and TCP.", reference, "Unix domain sockets are fastest", lambda: unix_fastest(case, near))
    yield case.claim("Across sockets, too, Unix domain sockets exchange the most messages.", reference,
                     "Unix domain sockets are fastest",
                     lambda: across_sockets(case, far))
    yield case.claim("Unix domain sockets exchange messages faster within a socket than across sockets.",
                     "Section 3, Figure 6", "communication within a socket is faster",
                     lambda: near_beats_far(case, near, far))


def distance(case: Case, names: Sequence[str]) -> str:
    """The value of the axis `where` that stands for a distance."""
    values = case.values("where")
    for name in names:
        if name in values:
            return name
    raise Untellable(f"no results for {' or '.join(names)}")


def of_mechanisms(case: Case, where: str, pattern: str, besides: str = "(?!)") -> list[Found]:
    """Mechanisms whose name matches, the fastest first. What the paper did not measure is in none of our patterns."""
    names = [name for name in case.values("mechanism")
             if re.search(pattern, str(name)) and not re.search(besides, str(name))]
    found = []
    for name in names:
        try:
            found.append(case.at(str(name), mechanism=name, where=where))
        except Untellable:
            continue
    if not found:
        raise Untellable(f"no results for {pattern.replace('|', ' or ')} with {where}")
    return sorted(found, key=lambda one: -one.stat.median)


def unix_fastest(case: Case, names: Sequence[str]) -> Verdict:
    where = distance(case, names)
    others = of_mechanisms(case, where, "pipe|fifo|mq|queue|tcp", "unix|uds|zmq|zeromq")
    verdict, here = greater(of_mechanisms(case, where, "unix|uds")[0], others[0])
    return verdict, f"{here}, {where}"


def across_sockets(case: Case, far: Sequence[str]) -> Verdict:
    case.need_sockets()
    return unix_fastest(case, far)


def near_beats_far(case: Case, near: Sequence[str], far: Sequence[str]) -> Verdict:
    case.need_sockets()
    here, there = distance(case, near), distance(case, far)
    name = of_mechanisms(case, here, "unix|uds")[0].name
    return greater(case.at(f"{name} {here}", mechanism=name, where=here),
                   case.at(f"{name} {there}", mechanism=name, where=there))


def fig07(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure)
    reference = "Section 6.1, Figure 7"
    yield case.claim("Fine-grained beats shared-everything on local Payment.", reference, "4.5x on 24 cores",
                     lambda: greater(case.at(layout=case.fine()), case.at(layout=case.shared())))
    yield case.claim("The fewer threads share an island, the cheaper its local transactions: one island per core beats "
                     "one per socket.", "Sections 4 and 6.1", "expected, no number",
                     lambda: greater(case.at(layout=case.fine()), case.at(layout=case.coarse())))
    yield case.claim("On the microbenchmark, whose rows are less contended, the gain is smaller than on Payment.",
                     "Sections 6.1 and 7.1, Figures 7 and 9", "4.5x for Payment, less there",
                     lambda: smaller_on_micro(sweep, case))


def smaller_on_micro(sweep: Sweep, case: Case) -> Verdict:
    micro = sweep.figure("fig09")
    if not micro:
        raise Untellable("it needs fig09 too, which this sweep does not have with the same durability")
    other = Case(sweep, micro)
    payment = Ratio(case.at(layout=case.fine()).stat, case.at(layout=case.shared()).stat)
    where: Where = {"multisite": 0, "op": "update"}
    small = Ratio(other.at(layout=other.fine(), **where).stat, other.at(layout=other.shared(), **where).stat)
    here = f"{words.times(payment.median)} for Payment, {words.times(small.median)} for local updates in fig09"
    order = compare(payment, small)
    return overlapping(here) if order == "~" else (AGREES if order == ">" else DISAGREES, here)


def fig09(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, rows=10, zipf=0)
    reference = "Section 7.1, Figure 9"
    for op, doing in OPS.items():
        where: Where = {"op": op}
        yield case.claim(f"Shared-everything does not mind multisite transactions ({doing} 10 rows).", reference,
                         "unaffected by their percentage", lambda: shared_steady(case, where), where)
        yield case.claim(f"Every layout of several islands slows down as multisite transactions increase ({doing}).",
                         reference, "all drop", lambda: all_drop(case, where), where)
        yield case.claim(f"One island per core loses most of its throughput to multisite transactions ({doing}).",
                         reference, "the finest drops most", lambda: finest_drops_most(case, where), where)
    yield case.claim("When all transactions are multisite updates, shared-everything beats one island per core.",
                     "Sections 1 and 7.1, Figure 9", "about 2x",
                     lambda: greater(case.at(op="update", multisite=100, layout=case.shared()),
                                     case.at(op="update", multisite=100, layout=case.fine())), {"op": "update"})


def shared_steady(case: Case, where: Where) -> Verdict:
    low, high = case.range_of("multisite", least=0, most=50)
    return steady(*(case.at(f"at {value:g} %", **where, multisite=value, layout=case.shared())
                    for value in (low, high)))


def all_drop(case: Case, where: Where) -> Verdict:
    low, high = case.range_of("multisite", least=0, most=50)
    parts = []
    for layout in case.cuts():
        start, end = (case.at(**where, multisite=value, layout=layout) for value in (low, high))
        order = compare(start.stat, end.stat)
        text = f"{layout} {change(end.stat.median / start.stat.median)}"
        parts.append(overlapping(text) if order == "~" else (AGREES if order == ">" else DISAGREES, text))
    verdict, here = all_of(parts)
    return verdict, f"from {low:g} to {high:g} %: {here}"


def finest_drops_most(case: Case, where: Where) -> Verdict:
    low, high = case.range_of("multisite", least=0, most=50)
    finest = case.fine()
    others = [layout for layout in case.cuts() if layout != finest]
    if not others:
        raise Untellable(f"there is no layout between 1ISL and {finest}")
    verdict, here = most_lost(*((finest, retained(case, finest, "multisite", low, high, **where)),
                                [(layout, retained(case, layout, "multisite", low, high, **where))
                                 for layout in others]))
    return verdict, f"from {low:g} to {high:g} %: {here}"


def fig10(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, "us_per_transaction", zipf=0)
    case.usual.update(case.pick("rows", 10))
    rows = case.usual.get("rows")
    at_rows = f" ({rows:g} rows)" if rows is not None else ""
    reading, writing = "Section 7.1.1, Figure 10", "Section 7.1.2, Figure 10"
    local: Where = {"op": "read", "multisite": 0}
    distributed: Where = {"op": "read", "multisite": 100}
    yield case.claim(f"A local read costs least with one island per core, which needs no locks and latches{at_rows}.",
                     reading, "about 40 % below the next best", lambda: finest_cheapest(case, local), local)
    yield case.claim(f"The larger the island, the dearer a local read{at_rows}.", reading,
                     "costs rise with the size of the island",
                     lambda: cost_order(case, list(reversed(case.layouts())), local), local)
    yield case.claim(f"Multisite reads turn the order round: the more islands, the dearer{at_rows}.", reading,
                     "costs fall with the size of the island",
                     lambda: cost_order(case, case.cuts(), distributed), distributed)
    local, distributed = {"op": "update", "multisite": 0}, {"op": "update", "multisite": 100}
    yield case.claim(f"The more threads share an island, the dearer a local update{at_rows}.", writing,
                     "costs rise with the number of threads",
                     lambda: cost_order(case, list(reversed(case.layouts())), local), local)
    yield case.claim(f"Multisite updates cost more on every layout of several islands than on shared-everything"
                     f"{at_rows}.", writing, "all dearer",
                     lambda: dearer_than_shared(case, distributed), distributed)
    yield case.claim(f"Multisite updates cost much more than local ones{at_rows}.", writing, "significantly dearer",
                     lambda: multisite_dearer(case, local, distributed), distributed)


def finest_cheapest(case: Case, where: Where) -> Verdict:
    finest = case.at(layout=case.fine(), **where)
    others = [case.at(layout=layout, **where) for layout in case.layouts() if layout != finest.name]
    return cheaper(finest, min(others, key=lambda found: found.stat.median))


def each(pairs: Iterable[tuple[str, Found, Found]]) -> Verdict:
    """That in every pair the first costs more; told by `name`s and factors. `pairs`: (name, dear, cheap)."""
    parts = []
    for name, dear, cheap in pairs:
        verdict, _ = greater(dear, cheap)
        factor = words.times(dear.stat.median / cheap.stat.median)
        parts.append((verdict, f"{name} {factor}" + (" (within the spread)" if verdict == UNKNOWN else "")))
    verdict, here = all_of(parts)
    return verdict, here.replace("; ", ", ")


def dearer_than_shared(case: Case, where: Where) -> Verdict:
    shared = case.at(layout=case.shared(), **where)
    verdict, here = each([(layout, case.at(layout=layout, **where), shared) for layout in case.cuts()])
    return verdict, f"cost of {shared}; {here} of that"


def multisite_dearer(case: Case, local: Where, distributed: Where) -> Verdict:
    verdict, here = each([(layout, case.at(layout=layout, **distributed), case.at(layout=layout, **local))
                          for layout in case.cuts()])
    return verdict, f"{here} the local cost"


def cost_order(case: Case, layouts: Sequence[str], where: Where) -> Verdict:
    """That the cost rises along `layouts`: the ends differ, and no neighbours stand the other way round."""
    if len(layouts) < 2:
        raise Untellable("it takes two layouts of several islands to compare")
    found = [case.at(layout=layout, **where) for layout in layouts]
    orders = [compare(cheap.stat, dear.stat) for cheap, dear in zip(found, found[1:])]
    here = str(found[0]) + "".join(f" {'<' if order == '<' else '≈'} {dear}" for order, dear in zip(orders, found[1:]))
    if ">" in orders:
        first = orders.index(">")
        return DISAGREES, f"{found[first]}, but {found[first + 1]}"
    if compare(found[0].stat, found[-1].stat) == "~":
        return overlapping(", ".join(map(str, found)))
    return AGREES, here


def fig12(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    axis = "cut" if "cut" in figure.axes else "layout"
    case = Case(sweep, figure, multisite=20, rows=10)
    reference = "Section 7.2, Figure 12"
    for op, doing in OPS.items():
        where: Where = {"op": op}
        yield case.claim(f"Shared-nothing, fine- and coarse-grained, scales linearly with the cores ({doing} 10 rows, "
                         "20 % multisite).", reference, "linear",
                         lambda: scales_linearly(case, axis, where), where)
        yield case.claim(f"Shared-everything scales worse than shared-nothing ({doing}).", reference,
                         "not linear, least so on 8 sockets",
                         lambda: shared_scales_worse(case, axis, where), where)
        yield case.claim(f"On all cores, one island per socket keeps up with the best cut ({doing}).", reference,
                         "competitive with the best case", lambda: coarse_keeps_up(case, axis, where),
                         where)


def counts_of(case: Case, axis: str, cut: str, where: Where, islands: int = 1) -> set[float]:
    """Numbers of cores that a cut was measured on with at least so many islands."""
    found = set()
    for point in case.figure.select({**case.usual, **where, axis: cut}):
        cores = as_number(point.axes.get("cores"))
        if cores and point.stat(case.metric) and (point.islands() or 0) >= islands:
            found.add(cores)
    return found


def growth(case: Case, axis: str, cut: str, where: Where, least: float = 1) -> tuple[Ratio, str]:
    """How near to linear a cut grows from the fewest cores, `least` or more, to all: 1 is linear.

    Shared-nothing starts where it has several islands: one island has no distributed transactions to begin with.
    """
    counts = {count for count in counts_of(case, axis, cut, where, 1 if cut == "SE" else 2) if count >= least}
    if not counts or max(counts) < 2 * min(counts):
        several = "" if cut == "SE" else " with several islands"
        raise Untellable(f"{cut} was measured{several} on {', '.join(f'{count:g}' for count in sorted(counts)) or 0} "
                         "cores, not on twice as many")
    low, high = min(counts), max(counts)
    few, many = (case.at(**where, **{axis: cut}, cores=count).stat for count in (low, high))
    text = f"{cut} {words.times(many.median / few.median)} from {low:g} to {high:g} cores"
    return Ratio(many, few, low / high), text


def scales_linearly(case: Case, axis: str, where: Where) -> Verdict:
    parts = []
    for cut in ("FG", "CG") if case.sweep.sockets > 1 else ("FG",):
        ratio, text = growth(case, axis, cut, where)
        near = ratio.low < LINEAR <= ratio.high and ratio.runs > 1
        parts.append((UNKNOWN if near else AGREES if ratio.median >= LINEAR else DISAGREES,
                      f"{text}, {words.percent(ratio.median)} of linear"))
    return all_of(parts)


def shared_scales_worse(case: Case, axis: str, where: Where) -> Verdict:
    fine, fine_text = growth(case, axis, "FG", where)
    shared, shared_text = growth(case, axis, "SE", where, min(counts_of(case, axis, "FG", where, islands=2)))
    here = f"{shared_text}; {fine_text}"
    order = compare(shared, fine)
    return overlapping(here) if order == "~" else (AGREES if order == "<" else DISAGREES, here)


def coarse_keeps_up(case: Case, axis: str, where: Where) -> Verdict:
    case.need_sockets()
    cores = max((cores for value in case.values("cores") if (cores := as_number(value))), default=0)
    coarse, *others = (case.at(**where, **{axis: cut}, cores=cores) for cut in ("CG", "SE", "FG"))
    best = max(others, key=lambda found: found.stat.median)
    ratio = Ratio(coarse.stat, best.stat)
    here = f"{words.percent(ratio.median)} of the best other ({coarse}, {best})"
    if ratio.low < LINEAR <= ratio.high and ratio.runs > 1:
        return overlapping(here)
    return AGREES if ratio.median >= LINEAR else DISAGREES, f"{here}; keeps up: at least {words.percent(LINEAR)}"


def fig13(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, rows=2)
    case.usual.update(case.pick("multisite", 20, 50))
    reference = "Section 7.3, Figure 13"
    read, update = (case.usual | {"op": op} for op in OPS)
    at_multisite = f" ({case.usual['multisite']:g} % multisite)" if "multisite" in case.usual else ""
    where = {name: value for name, value in update.items() if name != "rows"}
    yield case.claim(f"Heavy skew slows shared-everything down when rows are updated{at_multisite}.", reference,
                     "significant drop, by contention", lambda: drops(case, case.shared(), update), where)
    yield case.claim(f"For shared-everything, skew hurts updates more than reads{at_multisite}.", reference,
                     "particularly in the update case", lambda: update_worse(case, read, update), where)
    for one, op in ((read, "read"), (update, "updated")):
        where = {name: value for name, value in one.items() if name != "rows"}
        yield case.claim(f"Skew slows one island per core down when rows are {op}: its hottest island has one worker"
                         f"{at_multisite}.", reference, "the most loaded island is the bottleneck",
                         lambda: drops(case, case.fine(), one), where)
        yield case.claim(f"One island per socket copes better with skew than one per core when rows are {op}"
                         f"{at_multisite}.", reference, "its workers share the load",
                         lambda: coarse_copes(case, one), where)
    where = {name: value for name, value in read.items() if name != "rows"}
    yield case.claim(f"Heavy skew slows shared-everything down when rows are read, too{at_multisite}.", reference,
                     "a drop, less than of updates", lambda: drops(case, case.shared(), read), where)


def skew(case: Case, layout: str, where: Where) -> tuple[Ratio, str]:
    low, high = case.range_of("zipf", least=0, most=0.7)
    return retained(case, layout, "zipf", low, high, **where), f"from s = {low:g} to {high:g}"


def drops(case: Case, layout: str, where: Where) -> Verdict:
    low, high = case.range_of("zipf", least=0, most=0.7)
    start, end = (case.at(f"s = {value:g}", **where, zipf=value, layout=layout) for value in (low, high))
    here = f"{layout} {change(end.stat.median / start.stat.median)} ({start}, {end})"
    order = compare(start.stat, end.stat)
    return overlapping(here) if order == "~" else (AGREES if order == ">" else DISAGREES, here)


def update_worse(case: Case, read: Where, update: Where) -> Verdict:
    (reads, text), (updates, _) = (skew(case, case.shared(), where) for where in (read, update))
    verdict, here = most_lost(("updates", updates), [("reads", reads)])
    return verdict, f"{text}: {here}"


def coarse_copes(case: Case, where: Where) -> Verdict:
    coarse, fine = case.coarse(), case.fine()
    ratio, text = skew(case, coarse, where)
    verdict, here = most_lost((fine, skew(case, fine, where)[0]), [(coarse, ratio)])
    return verdict, f"{text}: {here}"


def tatp(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, multisite=0)
    note = " (the paper does not run TATP)"
    for mix, paper, reference, there in (
            ("standard", "Work that partitions perfectly, as TATP by subscriber, runs faster on one island per core "
             "than on shared-everything.", "Sections 1 and 6.1" + note, "more than 4x at best"),
            ("read", "Read-only work, too, runs faster on one island per core.", "Section 6.2" + note,
             "better, no number"),
            ("update", "Updates that stay local run faster on one island per core, too.", "Section 7.1.2" + note,
             "cheaper, no number")):
        where: Where = {"mix": mix}
        yield case.claim(paper, reference, there,
                         lambda: greater(case.at(layout=case.fine(), **where),
                                                     case.at(layout=case.shared(), **where)), where)


FIGURES = {"fig02": fig02, "tab01": tab01, "fig03": fig03, "fig06": fig06, "fig07": fig07, "fig09": fig09,
           "fig10": fig10, "fig12": fig12, "fig13": fig13, "tatp": tatp}
