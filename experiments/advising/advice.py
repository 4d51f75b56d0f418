"""Ranking, confidence, and how well predictions did; as text and as JSON."""

import random
import statistics
from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from advising.model import Predictor
from durability import word_of
from sweeping.table import PointMedians

DRAWS = 2000
LEAST_NOISE = 0.03  # relative: two short runs may agree by chance


class Row(TypedDict):
    """A layout's place in a ranking; the last two once it was measured."""
    layout: str
    predicted_per_s: float
    of_best: float
    chance_best: float
    measured_per_s: NotRequired[float]
    error: NotRequired[float]


class Case(TypedDict):
    """A load, on clusters that keep so much of what they acknowledge, and what is advised for it."""
    durability: str
    votes: str
    multisite: float
    zipf: float
    recommended: str
    ranking: list[Row]
    regret: NotRequired[float]


class Verdict(TypedDict):
    median_error: float
    largest_error: float
    median_regret: float
    largest_regret: float
    mean_regret: float


def noise_of(points: Sequence[PointMedians]) -> float:
    """Relative error of one calibrated throughput, from the spread of its repetitions."""
    spreads = [(found["max"] - found["min"]) / (2 * found["median"])
               for found in (point["metrics"]["committed_per_s"] for point in points) if found["n"] > 1]
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


def judge(cases: list[Case], measured: Mapping[tuple[str, str, float, float], float]) -> Verdict:
    """Adds to each case what was measured, errors, and the regret: by how much the recommended layout stays behind the
    best. `measured`: by durability as one word, layout, multisite percentage, skew."""
    for case in cases:
        durability = word_of(case["durability"], case["votes"])
        rates = {row["layout"]: measured[durability, row["layout"], case["multisite"], case["zipf"]]
                 for row in case["ranking"]}
        for row in case["ranking"]:
            row["measured_per_s"] = rates[row["layout"]]
            row["error"] = round(row["predicted_per_s"] / rates[row["layout"]] - 1, 4)
        case["regret"] = round(1 - rates[case["recommended"]] / max(rates.values()), 4)
    errors = [abs(row["error"]) for case in cases for row in case["ranking"]]
    regrets = [case["regret"] for case in cases]
    return {"median_error": statistics.median(errors), "largest_error": max(errors),
            "median_regret": statistics.median(regrets), "largest_regret": max(regrets),
            "mean_regret": round(statistics.mean(regrets), 4)}


def in_words(chance: float) -> str:
    return "high" if chance >= 0.95 else "fair" if chance >= 0.75 else "low: the best two are as good as equal"


def case_text(case: Case, with_load: bool) -> str:
    load = f"{case['multisite']:g} % multisite, zipf {case['zipf']:g}, " if with_load else ""
    lines = [f"{load}durability {word_of(case['durability'], case['votes'])}"]
    measured = "measured_per_s" in case["ranking"][0]
    lines.append(f"  {'rank':>4}  {'layout':<7} {'predicted/s':>12} {'of best':>8} {'chance of being best':>21}"
                 + (f" {'measured/s':>12} {'error':>7}" if measured else ""))
    for number, row in enumerate(case["ranking"], 1):
        lines.append(f"  {number:>4}  {row['layout']:<7} {row['predicted_per_s']:>12,.0f} {row['of_best']:>8.0%} "
                     f"{row['chance_best']:>21.0%}"
                     + (f" {row['measured_per_s']:>12,.0f} {row['error']:>+7.0%}" if measured else ""))
    regret = f"; regret {case['regret']:.1%}" if measured else ""
    confidence = in_words(case["ranking"][0]["chance_best"])
    lines.append(f"  recommended: {case['recommended']}; confidence {confidence}{regret}")
    return "\n".join(lines)
