"""Claims about what a distributed transaction costs beyond a local one: section 4's estimate, and where the time goes
(Figures 5 and 11)."""

from collections.abc import Callable, Iterator

from reporting import words
from reporting.evidence import AGREES, DISAGREES, UNKNOWN, Case, Claim, Found, Untellable, Verdict, ordered
from reporting.results import Figure, Stat, Sweep, Where, as_number, compare

COMMUNICATION = ("us_building", "us_reading", "us_waiting")
CAPTION = ("The cost of communication dominates in the cost of distributed transaction in the read-only case, while in "
           "the update case overheads are divided between communication and additional logging.")


def fig05(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, cut="FG")
    yield case.claim("The straight line between all local and all multisite promises more than there is in between: "
                     "one island per core.",
                     "An oversimplified estimation of the throughput of a shared-nothing deployment as a function of "
                     "the number of distributed transactions", "Section 4, Figure 5", "oversimplified, no number",
                     lambda: less_than_estimated(case), {"cut": "FG"})


def less_than_estimated(case: Case) -> Verdict:
    between = [percent for value in case.values("multisite") if (percent := as_number(value)) and 0 < percent < 100]
    if not between:
        raise Untellable("nothing between 0 and 100 % multisite was measured")
    local, distributed = (case.at(multisite=end).stat for end in (0, 100))
    percent = min(between)
    p = percent / 100
    estimated = Stat(((1 - p) * getattr(local, end) + p * getattr(distributed, end)
                      for end in ("low", "median", "high")), max(local.noise, distributed.noise))
    found = case.at(multisite=percent).stat
    here = (f"{words.times(found.median / estimated.median)} of the estimate at {percent:g} % "
            f"({words.number(found.median)}/s, estimated {words.number(estimated.median)}/s)")
    return ordered(compare(found, estimated), "<", here)


def fig11(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    reference = "Figure 11 (4ISL there)"
    total = Case(sweep, figure, "us_per_transaction")
    yield total.claim("Communication (building and reading messages, and waiting) is most of what distributed reads "
                      "cost more than local ones (4 rows).", CAPTION, reference, "dominates, no number",
                      lambda: communication_dominates(total), {"op": "read"})
    logging = Case(sweep, figure, "us_logging")
    yield logging.claim("Distributed updates log more than distributed reads (4 rows).", CAPTION, reference,
                        "additional logging", logs_more(logging), {"op": "update"})


def layout_of(case: Case) -> str:
    return "4ISL" if "4ISL" in case.layouts() else case.fine()


def added(case: Case, metrics: tuple[str, ...], layout: str, op: str) -> tuple[float, float, float]:
    """By how much the sum of these grows from local to multisite: in the middle, at least, at most."""
    middle = least = most = 0.0
    for metric in metrics:
        part = Case(case.sweep, case.figure, metric)
        local, distributed = (part.at(layout=layout, op=op, multisite=end).stat for end in (0, 100))
        middle += distributed.median - local.median
        least += distributed.low - local.high
        most += distributed.high - local.low
    return middle, least, most


def communication_dominates(case: Case) -> Verdict:
    layout = layout_of(case)
    parts, whole = (added(case, metrics, layout, "read") for metrics in (COMMUNICATION, ("us_per_transaction",)))
    if min(whole) <= 0:
        raise Untellable(f"distributed reads cost {layout} no more than local ones")
    share, low, high = parts[0] / whole[0], parts[1] / whole[2], parts[2] / whole[1]
    here = f"{words.percent(share)} of {words.number(whole[0])} µs more, {layout}"
    if low < 0.5 <= high:
        return Verdict(UNKNOWN, f"{here}: within the spread")
    return Verdict(AGREES if low >= 0.5 else DISAGREES, here)


def logs_more(case: Case) -> Callable[[], Verdict]:
    def decide() -> Verdict:
        layout = layout_of(case)
        where: Where = {"layout": layout, "multisite": 100}
        update, read = (case.at(op, **where, op=op) for op in ("update", "read"))
        return ordered(compare(update.stat, read.stat), ">", f"{spelled(update)}, {spelled(read)}, {layout}")
    return decide


def spelled(found: Found) -> str:
    return f"{found.name} {words.number(found.stat.median)} µs"
