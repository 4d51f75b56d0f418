"""The throughput of a layout under a load of P % multisite transactions with skew S, from a few measured anchors.

The paper's model (section 4) is T = (1 - p) T_local + p T_distr, with T_local and T_distr measured per layout. Two
things are different here.

 1. What adds up over a mix is time, not throughput: 1/T = (1 - p)/T_local + p/T_distr. (At 20 % multisite on two
    islands of this repository's engine the paper's form says twice what is measured, this one a quarter too much.)
    And an island that has something distributed under way takes locks for its local transactions too, which it does
    without when alone: the price of the first few percent is higher than that of the following. So there are anchors
    in between, and the time per transaction is linear from one to the next.
 2. Under skew two things become the bottleneck (section 7.3): the hottest island, and among updates the hottest row,
    which one transaction holds at a time. Between anchors of different skew the time per transaction is linear in the
    sum of that island's share of all row accesses and, for updates, the hottest row's accesses per transaction.

Which share of the multisite transactions is distributed depends on the layout, and is in its anchors already.
"""

import bisect
import math
from collections.abc import Mapping, Sequence
from typing import Protocol

MULTISITE_ANCHORS = (0, 5, 20, 100)
ZIPF_ANCHORS = (0, 0.5, 0.75, 1)


class Predictor(Protocol):
    def throughput(self, multisite: float, s: float) -> float: ...


def zipf_mass(ranks: int, s: float) -> float:
    """Sum of 1/k^s for k = 1 .. ranks: exact for the first thousand, by the integral from there on."""
    exact = min(ranks, 1000)
    total = sum(k ** -s for k in range(1, exact + 1))
    if ranks > exact:
        low, high = exact + 0.5, ranks + 0.5
        total += math.log(high / low) if abs(s - 1) < 1e-9 else (high ** (1 - s) - low ** (1 - s)) / (1 - s)
    return total


class Load:
    """What the model needs to know of the microbenchmark and its table (experiments/micro/micro.h). `clients` of the
    deployment begin where their first row is, so that a hot island has more of them; those of an island stay there."""

    def __init__(self, rows: int, table_rows: int, sites: int, update: bool, skew: str = "per_site",
                 clients: str = "island") -> None:
        self.rows, self.table_rows, self.sites, self.update = rows, table_rows, sites, update
        self.skew, self.clients = skew, clients

    def mass(self, islands: int, s: float) -> float:
        """Of what the law of the whole table draws, the share in the island that holds the table's first keys: rank r
        is the r-th key."""
        mine = -(-self.sites // islands)  # runs of sites differ by at most one; the first may be the larger
        return zipf_mass(self.rows_of(mine), s) / zipf_mass(self.table_rows, s)

    def rows_of(self, sites: int) -> int:
        return max(1, self.table_rows * sites // self.sites)

    def hottest_share(self, islands: int, multisite: float, s: float) -> float:
        """Of all row accesses, the share of the island that holds the table's first keys."""
        mass, p = self.mass(islands, s), multisite / 100
        if self.clients == "deployment":
            return mass  # first rows, and with them local transactions, and all others follow the same law
        return (1 - p) / islands + p * (1 / islands + (self.rows - 1) * mass) / self.rows

    def hottest_row(self, islands: int, multisite: float, s: float) -> float:
        """Accesses of the hottest row, per transaction."""
        p, whole = multisite / 100, zipf_mass(self.table_rows, s)
        if self.clients == "deployment":
            return self.rows / whole
        if self.skew == "table":
            own = 1 / zipf_mass(self.rows_of(-(-self.sites // islands)), s) / islands
            return (1 - p) * self.rows * own + p * (own + (self.rows - 1) / whole)
        # A local one draws from one site of many, a multisite one all but its first row from the whole table.
        return (1 - p) * self.rows / zipf_mass(self.rows_of(1), s) / self.sites + p * (self.rows - 1) / whole

    def heat(self, islands: int, multisite: float, s: float) -> float:
        """How hot the hottest place of a layout is; grows with the skew."""
        # Reads do not wait for each other in a row, but find it cached: little, and it keeps heats apart.
        return (self.hottest_share(islands, multisite, s)
                + self.hottest_row(islands, multisite, s) * (1.0 if self.update else 0.01))


def interpolate(points: Sequence[tuple[float, float]], x: float) -> float:
    """Linear between (x, y) pairs in ascending x; beyond the ends the last segment goes on."""
    if len(points) == 1:
        return points[0][1]
    at = min(max(bisect.bisect_left([point[0] for point in points], x), 1), len(points) - 1)
    (x0, y0), (x1, y1) = points[at - 1], points[at]
    return y0 if x1 == x0 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)


class Model:
    """One layout. `anchors`: {(multisite, zipf): committed transactions per second}."""

    def __init__(self, islands: int, load: Load, anchors: Mapping[tuple[float, float], float]) -> None:
        self.islands, self.load, self.anchors = islands, load, anchors
        self.multisites = sorted({multisite for multisite, _ in anchors})
        self.zipfs = sorted({s for _, s in anchors})

    def time_at(self, multisite: float, s: float) -> float:
        """Seconds per transaction of the whole layout at an anchor's multisite percentage, any skew."""
        points = [(self.load.heat(self.islands, multisite, anchor), 1 / self.anchors[multisite, anchor])
                  for anchor in self.zipfs]
        heat = self.load.heat(self.islands, multisite, s)
        return max(interpolate(points, heat), min(time for _, time in points) / 2)  # beyond the anchors: not below 0

    def throughput(self, multisite: float, s: float) -> float:
        points = [(anchor, self.time_at(anchor, s)) for anchor in self.multisites]
        return 1 / interpolate(points, multisite)


class Measured:
    """A layout under a load without those two dimensions: what was measured is what is predicted."""

    def __init__(self, islands: int, rate: float) -> None:
        self.islands, self.rate = islands, rate

    def throughput(self, multisite: float, s: float) -> float:
        return self.rate
