"""Claims about the machine itself: where threads lie, how many meet at a lock, what messages between processes cost."""

import itertools
from collections.abc import Callable, Iterator, Sequence

from reporting import words
from reporting.evidence import (UNKNOWN, Case, Claim, Found, Untellable, Verdict, greater, ordered, quotient, steadier)
from reporting.results import Figure, Sweep, Where, compare
from reporting.sizes import OCTO, QUAD, Machine, Number, factor

ISLANDS_USE = "uds-stream"  # of the three kinds of Unix domain sockets
OTHERS = ("pipe", "fifo", "posix-mq", "tcp")  # what else the paper measured


def fig02(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, "increments_per_s", counters="per-socket")
    reference = "Section 3.1, Figure 2"
    aware = ("Allocating threads and memory in a topology-aware manner provides the best performance and lower "
             "variability.")
    system = "Leaving the allocation to the operating system leads to non-optimal results and higher variability."

    def at(name: str) -> Found:
        return case.at(name, workers=name)

    yield case.claim("Threads on the socket of the counter they share increment it faster than threads spread over all "
                     "sockets.", aware, reference, "grouped is the best of the three placements",
                     lambda: case.with_sockets(lambda: greater(at("grouped"), at("spread"))))
    yield case.claim("Grouping threads by hand beats leaving their placement to the operating system.", system,
                     reference, "the operating system places less than optimally",
                     lambda: case.with_sockets(lambda: greater(at("grouped"), at("os"))))
    yield case.claim("Placement by topology varies less from run to run than placement by the operating system.",
                     system, reference, "grouped varies least",
                     lambda: case.with_sockets(lambda: steadier(at("grouped"), at("os"))))


def fig08(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    reference = "Section 6.2, Figure 8"
    instructions = Case(sweep, figure, "instructions_per_cycle")
    stalls = Case(sweep, figure, "stalled_backend_share")

    def sharing() -> Verdict:
        raise Untellable("no counter of lines that cores share is read")

    yield instructions.claim("One island per core gets more instructions done in a cycle than shared-everything.",
                             "IPC is much higher for smaller instances.", reference, "much higher, no number",
                             lambda: greater(instructions.at(layout=instructions.fine()),
                                             instructions.at(layout=instructions.shared())))
    yield stalls.claim("An island that spans sockets has a larger share of stalled cycles than islands that do not.",
                       "instances that span across sockets have a much higher percentage of stalled cycles", reference,
                       "much higher, no number",
                       lambda: stalls.with_sockets(lambda: greater(stalls.at(layout=stalls.shared()),
                                                                   stalls.at(layout=stalls.coarse()))))
    yield instructions.claim("Within a socket smaller islands do better because fewer cores share what they have.",
                             "due to less sharing between cores running threads from the same instance", reference,
                             "less sharing", sharing)


def tab01(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, "increments_per_s", workers="grouped")
    reference = "Section 3.2, Table 1"
    faster = ("An exclusive counter per core achieves lower variability and 18x higher throughput than a counter per "
              "socket, and 517x higher throughput than a single counter for the entire machine.")
    linear = "In both cases, this is a super-linear speedup."

    def at(name: str) -> Found:
        return case.at(f"{name} counter{'' if name == 'single' else 's'}", counters=name)

    yield case.claim("A counter for each core beats a single one for the whole machine.", faster, reference,
                     "516.8x on 80 cores", lambda: greater(at("per-core"), at("single")), number=factor(516.8, OCTO))
    yield case.claim("The gain is more than linear: larger than the number of counters.", linear, reference,
                     "516.8x with 80 counters, 6.5x as many",
                     lambda: super_linear(sweep.cores, at("per-core"), at("single")), number=factor(516.8 / 80, OCTO))
    yield case.claim("A counter for each socket already beats a single one.", "Per socket 8 341.7 (18.5x)", reference,
                     "18.5x on 8 sockets", lambda: case.with_sockets(lambda: greater(at("per-socket"), at("single"))),
                     number=factor(18.5, OCTO))
    yield case.claim("A counter for each core beats one for each socket.", faster, reference,
                     "18x in the text, 27.9x in the table, with 10 cores on a socket",
                     lambda: case.with_sockets(lambda: greater(at("per-core"), at("per-socket"))),
                     number=Number(18, 27.9, OCTO))
    yield case.claim("Counters that nobody shares vary less from run to run than a single one.", faster, reference,
                     "standard deviation 0.03 % against 9.33 %", lambda: steadier(at("per-core"), at("single")),
                     number=factor(9.33 / 0.03, OCTO))
    yield case.claim("Counters that only a socket shares vary less from run to run than a single one.",
                     "Per socket ... 0.86%", reference, "standard deviation 0.86 % against 9.33 %",
                     lambda: case.with_sockets(lambda: steadier(at("per-socket"), at("single"))),
                     number=factor(9.33 / 0.86, OCTO))


def super_linear(cores: int | None, many: Found, one: Found) -> Verdict:
    if not cores or cores < 2:
        raise Untellable("the number of counters is not known" if not cores else "one core has one counter")
    ratio = quotient(many.stat, one.stat, 1 / cores)
    here = f"{words.times(ratio.median * cores)} with {cores} counters"
    order = "~" if ratio.low <= 1 <= ratio.high else ">" if ratio.median > 1 else "<"
    return ordered(order, ">", here, ratio)


def fig03(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, layout="1ISL")
    reference = "Section 3.1, Figure 3"
    quote = ("The OS does not optimally allocate work to cores, and a topology-aware configuration achieves 20-30% "
             "better performance and less variation.")
    sockets = Machine(QUAD.sockets, None)  # four workers are as many on every machine

    def at(name: str) -> Found:
        return case.at(name, workers=name)

    def against(name: str) -> Callable[[], Verdict]:
        return lambda: case.with_sockets(lambda: greater(at("grouped"), at(name)))

    for name, what in (("spread", "one worker on each socket"), ("os", "workers that the operating system places"),
                       ("mix", "two workers on each of two sockets")):
        yield case.claim(f"Payment with all four workers on one socket is faster than with {what}.", quote, reference,
                         "20 to 30 % faster", against(name), number=Number(1.2, 1.3, sockets))
    yield case.claim("Workers grouped on one socket vary less from run to run than workers that the operating system "
                     "places.", quote, reference, "less variation",
                     lambda: case.with_sockets(lambda: steadier(at("grouped"), at("os"))))
    yield case.claim("Payment gains less from workers on one socket than counters do: a transaction does other things, "
                     "too.", "The absolute difference in performance is much lower than in the case of counter "
                     "incrementing.", "Section 3.1, Figures 2 and 3", "20 to 30 %, much less than of counters",
                     lambda: case.with_sockets(lambda: smaller_than_of_counters(sweep, at)))


def smaller_than_of_counters(sweep: Sweep, at: Callable[[str], Found]) -> Verdict:
    figure = sweep.figure("fig02")
    if not figure:
        raise Untellable("it needs fig02 too, which this sweep does not have")
    counters = Case(sweep, figure, "increments_per_s", counters="per-socket")
    fast, slow = (counters.at(workers=name).stat for name in ("grouped", "spread"))
    payment, increments = quotient(at("grouped").stat, at("spread").stat), quotient(fast, slow)
    here = f"{words.times(payment.median)} for Payment, {words.times(increments.median)} for counters in fig02"
    return ordered(compare(payment, increments), "<", here)


def fig06(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, "messages_per_s")
    case.usual.update({**case.pick("batch", 1), **case.pick("wait", "sleep")})
    reference = "Section 5, Figure 6"
    quote = "Unix domain sockets achieve the highest performance and are used throughout the remaining evaluation."
    near, far = ("same-socket", "same-cache"), ("cross-socket", "across-sockets")
    yield case.claim(f"Within a socket, Unix domain sockets ({ISLANDS_USE}, which islands use) exchange more messages "
                     "than pipes, FIFOs, message queues and TCP.", quote, reference, "Unix domain sockets are fastest",
                     lambda: unix_fastest(case, distance(case, near)))
    yield case.claim(f"Across sockets, too, Unix domain sockets ({ISLANDS_USE}) exchange the most messages.", quote,
                     reference, "Unix domain sockets are fastest", lambda: across_sockets(case, far))
    yield case.claim(f"Unix domain sockets ({ISLANDS_USE}) exchange messages faster within a socket than across "
                     "sockets.",
                     "communication in multicores is more efficient than in multisockets", "Section 3, Figure 6",
                     "communication within a socket is faster", lambda: near_beats_far(case, near, far))


def distance(case: Case, names: Sequence[str]) -> str:
    """The value of the axis `where` that stands for a distance."""
    values = case.values("where")
    for name in names:
        if name in values:
            return name
    raise Untellable(f"no results for {' or '.join(names)}")


def of_mechanism(case: Case, name: str, where: Where, named: str = "") -> Found:
    return case.at(named or name, mechanism=name, **where)


def unix_fastest(case: Case, where: str) -> Verdict:
    """However many messages are on their way, and however receivers wait: the paper does not say how it was."""
    found = []
    for batch, wait in itertools.product(case.values("batch") or [None], case.values("wait") or [None]):
        use = {name: value for name, value in (("batch", batch), ("wait", wait)) if value is not None}
        one = unix_fastest_so_used(case, {"where": where, **use})
        found.append((one.direction, f"{words.settings(use)}: {one.here}" if use else one.here))
    told = {verdict for verdict, _ in found if verdict != UNKNOWN}
    here = f"{where}: {'; '.join(text for _, text in found)}"
    if len(told) == 1:
        return Verdict(told.pop(), here)
    return Verdict(UNKNOWN, f"it depends on their use, {here}" if told else here)


def unix_fastest_so_used(case: Case, where: Where) -> Verdict:
    measured = case.values("mechanism")
    others = [of_mechanism(case, name, where) for name in OTHERS if name in measured]
    if not others:
        raise Untellable(f"no results for {', '.join(OTHERS)} with {where['where']}")
    return greater(of_mechanism(case, ISLANDS_USE, where), max(others, key=lambda other: other.stat.median))


def across_sockets(case: Case, far: Sequence[str]) -> Verdict:
    case.need_sockets()
    return unix_fastest(case, distance(case, far))


def near_beats_far(case: Case, near: Sequence[str], far: Sequence[str]) -> Verdict:
    case.need_sockets()
    here, there = (of_mechanism(case, ISLANDS_USE, {"where": where}, f"{ISLANDS_USE} {where}")
                   for where in (distance(case, near), distance(case, far)))
    return greater(here, there)
