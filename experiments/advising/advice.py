"""Ranking, what was measured beside it, and how well predictions did; as text."""

import random
import statistics
from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from advising.contest import TIE, Beside, Contest
from advising.model import Predictor
from durability import word_of
from islands_command import Document
from reporting.confidence import mean_ratio
from sweeping.tree import Scalar

DRAWS = 2000
LEAST_NOISE = 0.03  # relative: two short runs may agree by chance
CLOSE = 0.35        # relative: what is predicted to be so far behind is not measured; the model has never erred so much
HOT = 0.1           # of the time: so much busier than the others on average is an island that limits


class Share(TypedDict):
    """Throughput as a share of the recommended one's; where it lies with 95 % confidence, by so many rounds."""
    share: float
    low: float
    high: float
    rounds: int


class Row(TypedDict):
    """A layout's place in a ranking."""
    layout: str
    predicted_per_s: float
    of_best: float
    chance_best: float            # by the predictions alone
    pool_bytes: NotRequired[int]  # of the smallest pool of an island
    held: NotRequired[float]      # of its data: so much its pools can hold at a time
    paged: NotRequired[bool]      # some island's is: what it does not hold is read from disk
    confirmed_per_s: NotRequired[float]  # where it was close: measured in turns with the others
    beside_first: NotRequired[Share]
    measured_per_s: NotRequired[float]   # --validate
    error: NotRequired[float]


class Variant(TypedDict):
    """The recommended layout with another setting."""
    setting: str
    value: Scalar
    beside: Share


class Hot(TypedDict):
    """An island that has more to do than the others."""
    island: int
    busy: float         # share of its workers' time
    others_busy: float
    committed_share: float


class Case(TypedDict):
    """A load, on clusters that keep so much of what they acknowledge, and what is advised for it."""
    durability: str
    votes: str
    multisite: float
    zipf: float
    recommended: str
    settings: dict[str, Scalar]  # beside the layout: what differs from the file
    ranking: list[Row]
    decided: NotRequired[bool]   # what was measured leaves no doubt that exceeds TIE
    variants: list[Variant]
    limits: NotRequired[Hot]
    why: NotRequired[str]
    changes: NotRequired[list[str]]
    regret: NotRequired[float]
    regret_low: NotRequired[float]
    regret_high: NotRequired[float]


class Verdict(TypedDict):
    median_error: float
    largest_error: float
    median_regret: float
    largest_regret: float
    mean_regret: float


class Pools(TypedDict):
    """What a layout's islands have for their data."""
    pool_bytes: int
    held: float
    paged: bool


def pools_of(summary: Document) -> Pools | None:
    """As a run has found them; None where an island has not told."""
    pools = [island.get("pool") for island in summary.get("per_island", [])]
    if not pools or not all(pools):
        return None
    data = sum(pool["data_bytes"] for pool in pools) or 1
    return {"pool_bytes": min(pool["bytes"] for pool in pools),
            "held": round(sum(min(pool["bytes"], pool["data_bytes"]) for pool in pools) / data, 3),
            "paged": any(pool["paged"] for pool in pools)}


def note_on_pools(ranking: Sequence[Row]) -> str:
    """"" where all layouts hold all data in memory."""
    paged = [row["layout"] for row in ranking if row.get("paged")]
    if not paged:
        return ""
    others = [row["layout"] for row in ranking if not row.get("paged")]
    beside = f"; {' and '.join(others)}: in memory as a whole" if others else ""
    return (f"{' and '.join(paged)}: read from disk what the pool does not hold{beside}. Runs begin with the pages "
            "that the load has left in memory, and the longer they warm up the more of what they want is there: give "
            "--warmup and --seconds more, or FILE a larger storage.buffer_pool")


def noise_of(rates: Sequence[Sequence[float]]) -> float:
    """Relative error of one calibrated throughput, from the spread of its repetitions."""
    spreads = [(max(found) - min(found)) / (2 * statistics.median(found)) for found in rates
               if len(found) > 1 and min(found) > 0]
    return max(LEAST_NOISE, statistics.median(spreads)) if spreads else LEAST_NOISE


def rank(models: Mapping[str, Predictor], multisite: float, zipf: float, noise: float) -> list[Row]:
    """Layouts, best first, with the chance that each is the best if every prediction is as uncertain as `noise`."""
    predicted = {layout: model.throughput(multisite, zipf) for layout, model in models.items()}
    draw, wins = random.Random(1), dict.fromkeys(predicted, 0)
    for _ in range(DRAWS):
        wins[max(predicted, key=lambda layout: predicted[layout] * (1 + draw.gauss(0, noise)))] += 1
    best = max(predicted.values())
    return [{"layout": layout, "predicted_per_s": round(rate, 1), "of_best": round(rate / best, 3),
             "chance_best": round(wins[layout] / DRAWS, 3)}
            for layout, rate in sorted(predicted.items(), key=lambda item: -item[1])]


def close(ranking: Sequence[Row]) -> list[str]:
    """Layouts that the predictions cannot tell from the best."""
    return [row["layout"] for row in ranking if row["of_best"] >= 1 - CLOSE]


def share_of(beside: Beside) -> Share:
    ratio, low, high = beside.share
    return {"share": round(ratio, 4), "low": round(low, 4), "high": round(min(high, 99.0), 4), "rounds": beside.rounds}


def confirm(case: Case, contest: Contest[str]) -> None:
    """Puts first what was measured to be first."""
    first, others = contest.first(), contest.others()
    for row in case["ranking"]:
        if row["layout"] in contest.rates:
            row["confirmed_per_s"] = round(statistics.geometric_mean(contest.rates[row["layout"]]), 1)
        if row["layout"] in others:
            row["beside_first"] = share_of(others[row["layout"]])
    case["ranking"].sort(key=lambda row: (row["layout"] not in contest.rates,
                                          -row.get("confirmed_per_s", row["predicted_per_s"])))
    case["ranking"].sort(key=lambda row: row["layout"] != first)
    case["recommended"], case["decided"] = first, contest.decided()


def limiting(summary: Document) -> Hot | None:
    """The island that limits a run, if one does: its workers are busy, and the others' wait."""
    islands = summary.get("per_island", [])
    if len(islands) < 2:
        return None
    hot = max(islands, key=lambda island: island["busy_fraction"])
    others = statistics.fmean(island["busy_fraction"] for island in islands if island is not hot)
    if hot["busy_fraction"] - others < HOT:
        return None
    committed = sum(island["committed_per_s"] for island in islands) or 1
    return {"island": hot["id"], "busy": round(hot["busy_fraction"], 3), "others_busy": round(others, 3),
            "committed_share": round(hot["committed_per_s"] / committed, 3)}


def why(models: Mapping[str, Predictor], ranking: Sequence[Row], zipf: float) -> str:
    """The two ends of the model for the first two of the ranking."""
    first, second = (row["layout"] for row in ranking[:2])
    local, distributed = (models[first].throughput(end, zipf) / models[second].throughput(end, zipf)
                          for end in (0, 100))
    return (f"beside {second}, {first} does {times(local)} as many transactions where none is multisite, "
            f"{times(distributed)} where all are" + (f" (at zipf {zipf:g})" if zipf else ""))


def times(factor: float) -> str:
    return f"{factor:.2g} times" if factor < 10 else f"{factor:.0f} times"


def best_at(models: Mapping[str, Predictor], multisite: float, zipf: float) -> str:
    return max(models, key=lambda layout: models[layout].throughput(multisite, zipf))


def changes(models: Mapping[str, Predictor], multisite: float, zipf: float, skews: bool) -> list[str]:
    """Where another layout is predicted to be the best than at this load: the nearest such multisite percentages and
    skews, above and below. `skews`: they were measured."""
    here = best_at(models, multisite, zipf)
    found = []
    for upwards in (True, False):
        percents = range(int(multisite) + 1, 101) if upwards else range(int(multisite) - 1, -1, -1)
        for percent in percents:
            if (there := best_at(models, percent, zipf)) != here:
                found.append(f"{there} at {percent} % multisite and {'more' if upwards else 'less'}")
                break
    for upwards in (True, False) if skews else ():
        steps = [step / 20 for step in range(0, 31)]
        for s in (s for s in (steps if upwards else reversed(steps)) if (s > zipf if upwards else s < zipf)):
            if (there := best_at(models, multisite, s)) != here:
                found.append(f"{there} at zipf {s:g} and {'more' if upwards else 'less'}")
                break
    return found


def overall(cases: Sequence[Case]) -> tuple[str, float]:
    """The layout that is least behind the best at its worst load, and by how much it is (0.1: 10 %)."""
    def worst(layout: str) -> float:
        return max(1 - standing(case, layout) for case in cases)

    layouts = [row["layout"] for row in cases[0]["ranking"]]
    best = min(layouts, key=worst)
    return best, max(0.0, worst(best))


def standing(case: Case, layout: str) -> float:
    """Throughput as a share of the recommended layout's: measured, or else predicted."""
    row = next(row for row in case["ranking"] if row["layout"] == layout)
    if layout == case["recommended"]:
        return 1.0
    first = case["ranking"][0]
    return row["beside_first"]["share"] if "beside_first" in row else row["predicted_per_s"] / first["predicted_per_s"]


def judge(cases: Sequence[Case], measured: Mapping[tuple[str, str, float, float], Sequence[float]]) -> Verdict:
    """Adds to each case what was measured, errors, and the regret: by how much the recommended layout stays behind the
    best. `measured`: rates of runs in turns, by durability as one word, layout, multisite percentage, skew."""
    for case in cases:
        durability = word_of(case["durability"], case["votes"])
        runs = {row["layout"]: measured[durability, row["layout"], case["multisite"], case["zipf"]]
                for row in case["ranking"]}
        rates = {layout: statistics.median(of_layout) for layout, of_layout in runs.items()}
        for row in case["ranking"]:
            row["measured_per_s"] = rates[row["layout"]]
            row["error"] = round(row["predicted_per_s"] / rates[row["layout"]] - 1, 4)
        best = max(rates, key=lambda layout: rates[layout])
        case["regret"] = round(1 - rates[case["recommended"]] / rates[best], 4)
        interval = mean_ratio([mine / of_best for mine, of_best in zip(runs[case["recommended"]], runs[best])])
        if interval and best != case["recommended"]:
            case["regret_low"], case["regret_high"] = round(1 - interval.high, 4), round(1 - interval.low, 4)
    errors = [abs(row["error"]) for case in cases for row in case["ranking"]]
    regrets = [case["regret"] for case in cases]
    return {"median_error": statistics.median(errors), "largest_error": max(errors),
            "median_regret": statistics.median(regrets), "largest_regret": max(regrets),
            "mean_regret": round(statistics.mean(regrets), 4)}


def confidence(case: Case) -> str:
    """In words, how sure the layout is."""
    first, *others = case["ranking"]
    contended = [row for row in others if "beside_first" in row]
    if "decided" not in case:
        chance = first["chance_best"]
        if len(case["ranking"]) == 1:
            return "there is no other"
        return f"by prediction alone; {'likely' if chance >= 0.95 else f'{chance:.0%} likely'} to be the best"
    if not contended:
        return f"no other is predicted to come within {CLOSE:.0%}"
    rounds = max(row["beside_first"]["rounds"] for row in contended)
    even = [row["layout"] for row in contended if row["beside_first"]["high"] >= 1]
    if not case["decided"]:
        return (f"not certain: after {rounds} rounds {' and '.join(even)} may still be more than {TIE:.0%} better; "
                "measure again when the machine is quieter, with longer --seconds or more --rounds")
    if even:
        return f"measured in {rounds} rounds: as good as {' and '.join(even)}, or better"
    return f"measured in {rounds} rounds: faster than {' and '.join(row['layout'] for row in contended)}"


def interval_text(share: Share) -> str:
    return f"{share['share']:.2f} ({share['low']:.2f} to {share['high']:.2f})"


def variant_text(variant: Variant) -> str:
    """One line: by how much, and what that means."""
    beside = variant["beside"]
    verdict = ("better" if beside["low"] > 1 else "worse" if beside["high"] < 1 else
               f"within {TIE:.0%}, or worse" if beside["high"] <= 1 + TIE else
               f"not certain after {beside['rounds']} rounds")
    name = f"{variant['setting'].replace('_', ' ')} {variant['value']}"
    return f"{name:<28} {interval_text(beside)} {verdict}"


def case_text(case: Case, with_load: bool) -> str:
    load = f"{case['multisite']:g} % multisite, zipf {case['zipf']:g}, " if with_load else ""
    settings = "".join(f", {name} {value}" for name, value in case["settings"].items())
    regret = ""
    if "regret" in case:
        between = f" ({case['regret_low']:.1%} to {case['regret_high']:.1%})" if "regret_low" in case else ""
        regret = f"; regret {case['regret']:.1%}{between}"
    lines = [f"{load}durability {word_of(case['durability'], case['votes'])}",
             f"  recommended: {case['recommended']}{settings}; {confidence(case)}{regret}"]
    if "why" in case:
        lines.append(f"  why: {case['why']}")
    if note := note_on_pools(case["ranking"]):
        lines.append(f"  pools: {note}")
    if hot := case.get("limits"):
        lines.append(f"  limits: island {hot['island']}, busy {hot['busy']:.0%} of the time, the others "
                     f"{hot['others_busy']:.0%}; it commits {hot['committed_share']:.0%} of all")
    for change in case.get("changes", []):
        lines.append(f"  changes: {change}")
    confirmed = any("confirmed_per_s" in row for row in case["ranking"])
    validated = "measured_per_s" in case["ranking"][0]
    pools = all("held" in row for row in case["ranking"])
    lines.append(f"  {'rank':>4}  {'layout':<7} " + (f"{'pool/island':>11} {'holds':>6} " if pools else "")
                 + f"{'predicted/s':>12} {'of best':>8}"
                 + (f" {'in turns/s':>12}  {'beside the first (95 %)':<24}" if confirmed else f" {'likely best':>12}")
                 + (f" {'measured/s':>12} {'error':>7}" if validated else ""))
    for number, row in enumerate(case["ranking"], 1):
        turns = f"{row['confirmed_per_s']:,.0f}" if "confirmed_per_s" in row else "-"
        beside = interval_text(row["beside_first"]) if "beside_first" in row else ""
        held = f"{row['pool_bytes'] / 2**20:>8,.0f}MiB {row['held']:>6.0%} " if pools else ""
        lines.append((f"  {number:>4}  {row['layout']:<7} {held}{row['predicted_per_s']:>12,.0f} {row['of_best']:>8.0%}"
                      + (f" {turns:>12}  {beside:<24}" if confirmed else f" {row['chance_best']:>12.0%}")
                      + (f" {row['measured_per_s']:>12,.0f} {row['error']:>+7.0%}" if validated else "")).rstrip())
    if case["variants"]:
        lines.append(f"  {case['recommended']} with another setting, in turns with it as it is (95 %):")
        lines += [f"        {variant_text(variant)}" for variant in case["variants"]]
    return "\n".join(lines)
