"""Claims of the other four papers that a sweep can test, with the load of ours that is nearest to theirs."""

from collections.abc import Callable, Iterator

from reporting import words
from reporting.claims_growth import growth
from reporting.evidence import (AGREES, DISAGREES, STEADY, UNKNOWN, Case, Claim, Found, Untellable, Verdict, greater,
                                ordered, quotient)
from reporting.results import Figure, Sweep, Where, as_number, compare
from reporting.sizes import LINEAR, Machine, factor

SHORE_MT = "Shore-MT: A Scalable Storage Manager for the Multicore Era"
LOCK_MANAGER = "A Scalable Lock Manager for Multicores"
H_STORE = "Performance Bottlenecks in a Main-Memory DBMS (H-Store)"
HORIKAWA = "Identification and Elimination of Scalability Bottlenecks"
# Of the peak: what MySQL keeps on 8 cores, which the lock manager's paper calls degraded (section 1, Figure 1).
DEGRADED = 0.75
DIP = 16  # clients, where New-Order's scalability has its dip in Shore-MT's Figure 5
HELD = 0.95  # of what is due: an island that commits so much of it is not saturated


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


def shoremt_fig4(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, layout="1ISL")
    case.source = SHORE_MT
    yield case.claim("One shared-everything island inserts records of private tables (here: private trees) at a rate "
                     "that grows with the cores.", "Shore-MT exhibits excellent scaling", "Section 5, Figure 4",
                     "to 32 threads on 8 cores", lambda: growth(case, {}), None, LINEAR)


def shoremt_fig5(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, layout="1ISL")
    case.source = SHORE_MT
    yield case.claim("New-Order, which contends for stock and items, gains less from many cores than Payment does "
                     "(items are read without locks here).",
                     "All three systems encounter high contention in the STOCK and ITEM tables, causing a significant "
                     "dip in scalability for all three around 16 clients.",
                     "Section 5, Figure 5", f"a dip at {DIP} clients, which Payment has not", lambda: dips(case))


def dips(case: Case) -> Verdict:
    counts = core_counts(case)
    if len(counts) < 2 or counts[-1] < DIP:
        raise Untellable(f"at most {max(counts, default=0):g} cores were measured, and the dip is at {DIP} clients")
    new_order, payment = (quotient(case.at(mix=mix, cores=counts[-1]).stat, case.at(mix=mix, cores=counts[0]).stat)
                          for mix in ("new_order", "payment"))
    return ordered(compare(new_order, payment), "<", f"{words.times(new_order.median)} for New-Order, "
                   f"{words.times(payment.median)} for Payment, from {counts[0]:g} to {counts[-1]:g} cores")


def core_counts(case: Case) -> list[float]:
    return sorted(cores for value in case.values("cores") if (cores := as_number(value)))


def last_cores_gain(case: Case) -> Verdict:
    counts = core_counts(case)
    if len(counts) < 2:
        raise Untellable("it takes two numbers of cores to compare")
    return greater(*(case.at(cores_named(cores), cores=cores) for cores in (counts[-1], counts[-2])))


def lockmgr_mpl(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, cut="SE")
    case.source = LOCK_MANAGER
    yield case.claim("Reads do not collapse as transactions in flight grow far beyond the cores: shared-everything "
                     "keeps its peak (TATP at scale factor 1; Figure 12's reads are a microbenchmark's).",
                     "our system never shows a performance collapse, at worst there is a small "
                     "degradation from the peak at increasing load", "Sections 5.2.1 and 5.3.4, Figures 12 and 17",
                     f"no collapse up to 500 in flight; degraded is {words.percent(DEGRADED)} of the peak",
                     keeps_peak(case, {"mix": "read"}), {"mix": "read"})
    yield case.claim("With updates among them it does not collapse either (TATP's standard mix, with inserts and "
                     "deletes; there updates in place, at scale factor 64: tatp64.yaml).",
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


def hstore_fig2(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, cut="FG")
    case.source = H_STORE
    yield case.claim("Voter, whose transactions are all local, does not scale to many cores: with more than 8 it does "
                     "less (H-Store before it was mended).",
                     "the system does not scale linearly with more than 8 cores. In fact, the performance actually "
                     "gets worse.", "Section 3.1, Figure 2", "less with 16 cores than with 8",
                     lambda: greater(*(case.at(cores_named(cores), cores=cores) for cores in beyond(case, 8))))


def beyond(case: Case, least: float) -> tuple[float, float]:
    """The smallest number of cores that is not less, and the greatest."""
    counts = sorted(cores for value in case.values("cores") if (cores := as_number(value)) and cores >= least)
    if len(counts) < 2:
        raise Untellable(f"not measured on more than {least:g} cores")
    return counts[0], counts[-1]


def without_latches(case: Case) -> Verdict:
    cores = max((cores for value in case.values("cores") if (cores := as_number(value))), default=0)
    return greater(*(case.at(name, latching=value, cores=cores)
                     for name, value in (("without", "auto"), ("with", "always"))))


def hstore_fig3(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, "utilisation", cut="FG")
    case.source = H_STORE
    yield case.claim("The more cores have an executor, the less each of them is used (TATP).",
                     "the average CPU utilization rate of execution cores decreases with more cores",
                     "Section 3.2, Figure 3 (Voter there, before H-Store was mended)", "decreases, from 1 to 16 cores",
                     lambda: greater(*(case.at(cores_named(cores), cores=cores) for cores in case.range_of("cores"))))
    yield case.claim("With clients inside, no executor is without work, on as many cores as there are (H-Store's cores "
                     "were not fully used all the same).",
                     "the Partition Execution cores should be fully used with this new Client Imitator", "Section 3.3",
                     "expected; it was not so", lambda: used_fully(case))


def cores_named(cores: float) -> str:
    return f"{cores:g} core{'s'[:cores > 1]}"


def used_fully(case: Case) -> Verdict:
    most = max((cores for value in case.values("cores") if (cores := as_number(value))), default=0)
    found = case.at(cores_named(most), cores=most)
    if not found.stat.median > 0:
        raise Untellable("the executors did nothing")
    full, here = 1 - STEADY, f"{words.percent(found.stat.median)} with {found.name}"
    if found.stat.low < full <= found.stat.high:
        return Verdict(UNKNOWN, f"{here}: within the spread")
    return Verdict(AGREES if found.stat.low >= full else DISAGREES, here)


def horikawa(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, layout="1ISL")
    case.source = HORIKAWA
    yield case.claim("Breaking up what all threads contend for raises the most that a machine does: here the data of a "
                     "shared-everything island, with its trees and table locks, in one site or in many.",
                     "Maximum throughput of original and baseline system with 16 CPUs measured by the DBT-1 benchmark "
                     "program were about 580 BT/s and 800 BT/s respectively, and that of the tuned system was about "
                     "930 BT/s", "Section 4.3.2, Figure 18 (MySQL's buffer pool lock there)",
                     "1.16x (800 to 930) with 16 cores; 1.6x with what was mended before",
                     lambda: with_contention(case, lambda: finer_is_faster(case)), None,
                     factor(930 / 800, Machine(None, 16)))


LEAST_CPUS = 4  # of the paper's measurements, section 2.4.1


def with_contention(case: Case, decide: Callable[[], Verdict]) -> Verdict:
    """The verdict where there are as many cores as in the paper; with fewer, the numbers alone."""
    cores = case.sweep.cores or 0
    if cores >= LEAST_CPUS:
        return decide()
    return Verdict(UNKNOWN, f"there with {LEAST_CPUS} to 16 CPUs, this machine has {cores}; here: {decide().here}")


def finer_is_faster(case: Case) -> Verdict:
    low, high = case.range_of("sites", least=1, most=4)
    return greater(*(case.at(f"{sites:g} site{'s'[:sites > 1]}", sites=sites) for sites in (high, low)))


def horikawa_fig4(sweep: Sweep, figure: Figure) -> Iterator[Claim]:
    case = Case(sweep, figure, layout="1ISL")
    case.source = HORIKAWA
    yield case.claim("Where all threads contend for one thing, cores get busy at saturation without doing more: busy "
                     "time per transaction jumps (a shared-everything island with its data in one site).",
                     "CPU utilizations of the 16-CPU system in the region of throughput saturation was "
                     "sharply-increased (from about 500% to 1600%) without appropriate improvement in the throughput",
                     "Section 2.4.1, Figure 4 (MySQL's buffer pool lock there)", "3.2x the CPU time with 16 CPUs",
                     lambda: with_contention(case, lambda: busy_jumps(sweep, figure)), None,
                     factor(3.2, Machine(None, 16)))
    yield case.claim("Its peak is lower with all cores than with fewer.",
                     "the performance degraded along with the increase in the number of the processors",
                     "Section 2.4.2, Figure 4", "degraded, from 4 to 16 CPUs",
                     lambda: with_contention(case, lambda: peaks_with_fewer(case)))


def busy_jumps(sweep: Sweep, figure: Figure) -> Verdict:
    """From the last rate that was held to the highest, with the most cores."""
    rates, busy = Case(sweep, figure), Case(sweep, figure, "busy_us_per_transaction")
    cores = rates.range_of("cores")[1]
    due = [rate for value in rates.values("rate") if (rate := as_number(value))]
    held = [rate for rate in due if rates.at(cores=cores, rate=rate).stat.median >= HELD * rate]
    if not held or max(held) == max(due):
        raise Untellable(f"{'all' if held else 'none'} of the rates could be held with {cores:g} cores: saturation "
                         "does not lie between them")
    end, begin = (busy.at(f"{words.number(rate)}/s due", cores=cores, rate=rate) for rate in (max(due), max(held)))
    return greater(end, begin)


def peaks_with_fewer(case: Case) -> Verdict:
    counts = sorted(cores for value in case.values("cores") if (cores := as_number(value)))
    if len(counts) < 2:
        raise Untellable("it takes two numbers of cores to compare")
    *fewer, most = (peak(case, cores) for cores in counts)
    return greater(max(fewer, key=lambda one: one.stat.median), most)


def peak(case: Case, cores: float) -> Found:
    found = [case.at(cores_named(cores), cores=cores, rate=rate) for rate in case.values("rate")]
    return max(found, key=lambda one: one.stat.median)
