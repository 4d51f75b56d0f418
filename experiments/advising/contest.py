"""Which of a few clusters is the fastest under a load: measured in turns, in rounds, until it is known.

A round runs each of them once; what is compared are the ratios of one round, since what slows a machine down for
minutes slows both down. After each round whoever is behind for certain is left out. It ends when the first is certain
to be at most TIE behind any other, or after so many rounds as the caller allows.

That is looked at after every round, so the confidence of the whole is a little less than LEVEL of each interval.
"""

import statistics
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from reporting.confidence import Interval, mean_ratio

LEAST_ROUNDS = 3
TIE = 0.05  # relative: a layout that gains less is not worth the question

Name = TypeVar("Name", bound=Hashable)


class Beside(NamedTuple):
    """One that is not the first: its throughput as a share of the first's, and where that lies with 95 % confidence."""
    share: Interval
    rounds: int

    def behind(self) -> bool:
        return self.share.high < 1

    def open(self) -> bool:
        return self.share.high > 1 + TIE


class Contest(Generic[Name]):
    """Invariants: every contender has been measured in rounds 0 to n - 1 for an n of its own, the first in all."""

    def __init__(self, names: Sequence[Name]) -> None:
        self.rates: dict[Name, list[float]] = {name: [] for name in names}
        self.rounds = 0

    def due(self, most: int) -> list[Name]:
        """Who runs in the next round; nobody when it is over."""
        if len(self.rates) < 2 or self.rounds >= most:
            return []
        if self.rounds < min(LEAST_ROUNDS, most):
            return list(self.rates)
        first, others = self.first(), self.others()
        return [first, *(name for name, beside in others.items() if not beside.behind())] if any(
            beside.open() for beside in others.values()) else []

    def add(self, rates: Mapping[Name, float]) -> None:
        """What those that were due have done."""
        for name, rate in rates.items():
            self.rates[name].append(rate)
        self.rounds += 1

    def leave_out(self, name: Name) -> None:
        """It cannot be measured."""
        del self.rates[name]

    def first(self) -> Name:
        """The fastest, among those measured as often as any."""
        still = [name for name, rates in self.rates.items() if len(rates) == self.rounds]
        return max(still, key=lambda name: statistics.geometric_mean(self.rates[name]))

    def others(self) -> dict[Name, Beside]:
        """Beside the first, which has run whenever they have."""
        return {name: self.beside(name, self.first()) for name in self.rates if name != self.first()}

    def beside(self, name: Name, first: Name) -> Beside:
        ratios = [rate / of_first for rate, of_first in zip(self.rates[name], self.rates[first])]
        interval = mean_ratio(ratios) or Interval(ratios[0], 0.0, float("inf"))
        return Beside(interval, len(ratios))

    def decided(self) -> bool:
        return self.rounds > 0 and not any(beside.open() for beside in self.others().values())
