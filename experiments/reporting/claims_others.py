"""Claims of the other four papers that a sweep can test, with the load of ours that is nearest to theirs."""

from collections.abc import Callable, Iterator

from reporting import words
from reporting.claims_growth import growth
from reporting.evidence import AGREES, DISAGREES, UNKNOWN, Case, Claim, Untellable, Verdict, greater, quotient
from reporting.results import Figure, Sweep, Where, as_number, compare
from reporting.sizes import LINEAR, Machine, factor

SHORE_MT = "Shore-MT: A Scalable Storage Manager for the Multicore Era"
LOCK_MANAGER = "A Scalable Lock Manager for Multicores"
H_STORE = "Performance Bottlenecks in a Main-Memory DBMS (H-Store)"
HORIKAWA = "Identification and Elimination of Scalability Bottlenecks"
# Of the peak: what MySQL keeps on 8 cores, which the lock manager's paper calls degraded (section 1, Figure 1).
DEGRADED = 0.75


def shoremt(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, layout="1ISL")
    case.source = SHORE_MT
    yield case.claim("One shared-everything island scales with the cores as Shore-MT does (Payment, every worker at "
                     "warehouses of its own).", "Shore-MT scales commensurately with the hardware we make available "
                                                "to it",
                     "Section 5, Figure 4 (record insertion there)", "commensurately, to 32 threads on 8 cores",
                     lambda: growth(case, {}), None, LINEAR)
    yield case.claim("Payment, whose warehouses nobody shares, still gains from the last cores.",
                     "Payment, in contrast, imposes no application-level contention, allowing Shore-MT to scale all "
                     "the way to 32 threads.",
                     "Section 5, Figure 5", "all the way to 32 threads", lambda: last_cores_gain(case))
    of_socket = f", {sweep.cores // sweep.sockets} cores" if sweep.cores else ""
    yield case.claim(f"On one socket{of_socket}, it scales nearly linearly.", "it provides near linear scalability on "
                     "single multicore machines", "“OLTP on Hardware Islands”, section 5.1", "near linear",
                     lambda: growth(case, {}, most=(sweep.cores or 1) / sweep.sockets), None, LINEAR)


def last_cores_gain(case: Case) -> Verdict:
    counts = sorted(cores for value in case.values("cores") if (cores := as_number(value)))
    if len(counts) < 2:
        raise Untellable("it takes two numbers of cores to compare")
    return greater(*(case.at(f"{cores:g} cores", cores=cores) for cores in (counts[-1], counts[-2])))


def lockmgr_mpl(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, cut="SE")
    case.source = LOCK_MANAGER
    yield case.claim("Reads do not collapse as transactions in flight grow far beyond the cores: shared-everything "
                     "keeps its peak (TATP).",
                     "our system never shows a performance collapse, at worst there is a small "
                     "degradation from the peak at increasing load", "Sections 5.2.1 and 5.3.4, Figures 12 and 17",
                     f"no collapse up to 500 in flight; degraded is {words.percent(DEGRADED)} of the peak",
                     keeps_peak(case, {"mix": "read"}), {"mix": "read"})
    yield case.claim("With updates among them it does not collapse either (TATP's standard mix).",
                     "Our system does not show any collapse",
                     "Section 5.3.4, Figure 17", "no collapse up to 256 in flight; degraded is "
                     f"{words.percent(DEGRADED)} of the peak", keeps_peak(case, {"mix": "standard"}),
                     {"mix": "standard"})


def keeps_peak(case: Case, where: Where) -> Callable[[], Verdict]:
    """That throughput at the most transactions in flight is not degraded from the peak."""
    def decide() -> Verdict:
        levels = [level for value in case.values("mpl") if (level := as_number(value))]
        if not levels or max(levels) < 64:
            raise Untellable(f"at most {max(levels, default=0):g} transactions in flight for each worker were measured")
        found = [case.at(f"MPL {level:g}", **where, mpl=level) for level in levels]
        peak, end = max(found, key=lambda one: one.stat.median), found[levels.index(max(levels))]
        ratio = quotient(end.stat, peak.stat)
        here = f"{words.percent(ratio.median)} of the peak ({peak}, {end}; MPL is of each worker)"
        if compare(end.stat, peak.stat) == "~" or ratio.low > DEGRADED:
            return Verdict(AGREES, here)
        return Verdict(DISAGREES if ratio.high < DEGRADED else UNKNOWN, here)
    return decide


def hstore(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, cut="FG", latching="auto")
    case.source = H_STORE
    yield case.claim("Single-threaded executors, an island per core, scale linearly with the cores (TATP; up to 13 "
                     "cores).",
                     "Its performance linearly increases with up to 13 execution cores.",
                     "Section 4.3, Figure 7 (Voter there)",
                     "linear up to 13 cores", lambda: growth(case, {}, most=13), None, LINEAR)
    yield case.claim("What need not be synchronized makes single-threaded executors faster: without locks and latches "
                     "they do more than with them.", "Our fixed version of H-Store improves throughput by 70% over the "
                     "original non-optimized version.", "Section 4.3, Figure 7 (fewer objects and shorter log buffers "
                                                        "are part of it there, and cannot be taken back here)",
                     "+70 % on up to 16 cores",
                     lambda: without_latches(case), None, factor(1.7, Machine(None, 16)))


def without_latches(case: Case) -> Verdict:
    cores = max((cores for value in case.values("cores") if (cores := as_number(value))), default=0)
    return greater(*(case.at(name, latching=value, cores=cores)
                     for name, value in (("without", "auto"), ("with", "always"))))


def horikawa(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, layout="1ISL")
    case.source = HORIKAWA
    yield case.claim("Breaking up what all threads contend for raises the most that a machine does: here the data of a "
                     "shared-everything island, with its trees and table locks, in one site or in many.",
                     "the bottleneck elimination produced the performance improvement of 1.6 times from the original "
                     "system", "Section 4.3.2, Figure 18 (MySQL's buffer pool lock there)", "1.6x with 16 cores",
                     lambda: finer_is_faster(case), None, factor(1.6, Machine(None, 16)))


def finer_is_faster(case: Case) -> Verdict:
    low, high = case.range_of("sites", least=1, most=4)
    return greater(*(case.at(f"{sites:g} site{'s'[:sites > 1]}", sites=sites) for sites in (high, low)))
