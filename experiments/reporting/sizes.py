"""The second verdict of a claim: whether an effect is as large here as in the paper.

One rule for all. The paper's number is a factor above 1, and its gain is what that exceeds 1 by: 3.5 for "4.5 times as
fast", 0.67 for "40 % cheaper" (the other costs 1 / 0.6). The size agrees if the gain here lies within a factor of
TOLERANCE of the gain there, whichever way: 3.3 to 6.2 times as fast for 4.5, and 1.03 is never 1.3. What is held
against this band is the whole interval of our factor, as far as the spread of the runs lets it reach; an interval that
lies across an end of the band cannot be told.

A size on a machine of another size is not compared: cores and sockets, each, must be within a factor of TOLERANCE of
the paper's. Numbers that follow from the machine itself ("linear") are compared anywhere.
"""

import math
from typing import NamedTuple, Protocol

from reporting import words

TOLERANCE = 1.5
AGREES, SMALLER, LARGER, UNKNOWN = "agrees", "smaller", "larger", "cannot be told"
NO_NUMBER, INCOMPARABLE = "no number in the paper", "cannot be compared"
SIZES = (AGREES, SMALLER, LARGER, UNKNOWN, INCOMPARABLE, NO_NUMBER)

Size = tuple[str, str]  # one of SIZES, and what was compared


class Machine(NamedTuple):
    """What a paper measured on; None where it does not matter to the number."""
    sockets: int | None
    cores: int | None

    def __str__(self) -> str:
        return in_words(self.sockets, self.cores)


QUAD, OCTO = Machine(4, 24), Machine(8, 80)  # of "OLTP on Hardware Islands", Table 2


class Number(NamedTuple):
    """A factor in a paper, from `low` to `high`, and the machine that it holds for; None: for any."""
    low: float
    high: float
    on: Machine | None = None

    def band(self) -> tuple[float, float]:
        """Factors whose size agrees."""
        return 1 + (self.low - 1) / TOLERANCE, 1 + (self.high - 1) * TOLERANCE


LINEAR = Number(math.nan, math.nan)  # whoever decides the claim knows by how much the cores grow


def factor(value: float, on: Machine | None = None) -> Number:
    return Number(value, value, on)


class Interval(Protocol):
    """A factor of ours."""
    median: float
    low: float
    high: float
    runs: int


def in_words(sockets: int | None, cores: int | None) -> str:
    parts = [f"{count} {what}{'s' if count > 1 else ''}" for count, what in ((cores, "core"), (sockets, "socket"))
             if count]
    return " and ".join(parts) or "an unknown number of cores"


def near(here: int | None, there: int | None) -> bool:
    return there is None or here is not None and max(here, there) <= TOLERANCE * min(here, there)


def judge(number: Number | None, found: Interval | None, sockets: int | None, cores: int | None) -> Size:
    """`found` is None where the claim could not be decided; `sockets` and `cores` are this machine's."""
    if number is None:
        return NO_NUMBER, ""
    if number.on and not (near(sockets, number.on.sockets) and near(cores, number.on.cores)):
        here = in_words(sockets if number.on.sockets else None, cores if number.on.cores else None)
        return INCOMPARABLE, f"{words.times(found.median) + ' with ' if found else ''}{here}, there {number.on}"
    if found is None:
        return UNKNOWN, ""
    here = f"{words.times(found.median)} ({words.times(found.low)} to {words.times(found.high)})"
    if found.runs < 2:
        return UNKNOWN, f"{words.times(found.median)}: one run has no spread"
    least, most = number.band()
    there = f"from {words.times(least)}" + (f" to {words.times(most)}" if math.isfinite(most) else "") + " agrees"
    size = SMALLER if found.high < least else LARGER if found.low > most else (
        AGREES if least <= found.low and found.high <= most else UNKNOWN)
    return size, f"{here}; {there}"
