"""How sure a ratio of two measurements is: 95 % confidence intervals from Student's t distribution on logarithms.

Rates differ by factors, so what is averaged are their logarithms: a ratio's interval is the one of a difference, raised
again. The two sides may vary differently (Welch).
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

LEVEL = 0.95


class Interval(NamedTuple):
    """A ratio of geometric means and where it lies with a confidence of LEVEL."""
    ratio: float
    low: float
    high: float

    def leaves_out_one(self) -> bool:
        return self.low > 1 or self.high < 1


def ratio_interval(above: Sequence[float], below: Sequence[float]) -> Interval | None:
    """Of `above` / `below`, by independent runs of each; None where there are fewer than two or one counted nothing."""
    if min(len(above), len(below)) < 2 or min(*above, *below) <= 0:
        return None
    logs = [[math.log(value) for value in side] for side in (above, below)]
    middle = statistics.fmean(logs[0]) - statistics.fmean(logs[1])
    shares = [statistics.variance(side) / len(side) for side in logs]
    variance = sum(shares)
    if variance == 0:
        return Interval(math.exp(middle), math.exp(middle), math.exp(middle))
    freedom = variance ** 2 / sum(share ** 2 / (len(side) - 1) for share, side in zip(shares, logs))
    return around(middle, math.sqrt(variance), freedom)


def mean_ratio(ratios: Sequence[float]) -> Interval | None:
    """Of the geometric mean of ratios of many points; None for fewer than two."""
    if len(ratios) < 2 or min(ratios) <= 0:
        return None
    logs = [math.log(ratio) for ratio in ratios]
    return around(statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs)), len(logs) - 1)


def around(middle: float, error: float, freedom: float) -> Interval:
    half = t_quantile((1 + LEVEL) / 2, freedom) * error
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def t_quantile(probability: float, freedom: float) -> float:
    """What Student's t with so many degrees of freedom is below with this probability, of 0.5 to 0.9999."""
    low, high = 0.0, 1.0
    while t_probability(high, freedom) < probability:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, freedom) < probability else (low, middle)
    return high


def t_probability(t: float, freedom: float) -> float:
    """That Student's t is below `t` >= 0."""
    return 1 - incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Regularized; by its continued fraction (Lentz), on the side where that converges fast."""
    if x <= 0 or x >= 1:
        return max(0.0, min(1.0, x))
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, b, a)
    front = math.exp(a * math.log(x) + b * math.log(1 - x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)) / a
    tiny, c, d = 1e-300, 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for step in range(1, 300):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        for part in (even, odd):
            d = 1 / (1 + part * d or tiny)
            c = 1 + part / c or tiny
            fraction *= c * d
    return front * fraction


def at_least_by_chance(count: int, of: int) -> float:
    """The probability that so many of `of` intervals leave out the truth by chance, if they are independent."""
    miss = 1 - LEVEL
    return min(1.0, sum(math.exp(math.lgamma(of + 1) - math.lgamma(k + 1) - math.lgamma(of - k + 1)
                                 + k * math.log(miss) + (of - k) * math.log(LEVEL)) for k in range(count, of + 1)))
