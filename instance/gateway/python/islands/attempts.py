"""Doing it again: how long to wait, and what is known after several attempts."""

import random
import time
import uuid
from typing import Optional

from islands import errors

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.5


def new_token() -> bytes:
    """One that nobody else uses."""
    return uuid.uuid4().bytes


def check_token(token: Optional[bytes]) -> None:
    """One that is empty would be none, and nobody would notice."""
    if token is not None and not token:
        raise errors.InvalidRequest("a token of 0 bytes, expected 1 to 64; islands.new_token() makes one")


class Pauses:
    """Between attempts: at random, and longer each time."""

    def __init__(self) -> None:
        self.longest_s = FIRST_PAUSE_S

    def next_s(self) -> float:
        pause_s = random.uniform(0, self.longest_s)
        self.longest_s = min(2 * self.longest_s, LONGEST_PAUSE_S)
        return pause_s


class Attempts:
    """Of one request that may be sent several times: it has a token, or changes nothing.

    An attempt that failed for certain says nothing of those before it. `unknown`: one of them may have been committed,
    so the request may have been.
    """

    def __init__(self, timeout: float, again: tuple[type[errors.Error], ...]) -> None:
        self._until, self._again = time.monotonic() + timeout, again
        self._pauses = Pauses()
        self.unknown = False

    @property
    def left_s(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def pause_s(self, error: errors.Error) -> Optional[float]:
        """After one that failed: until the next. None: there is none."""
        self.unknown = self.unknown or error.committed is None
        # Once an earlier attempt may have been committed, these two are no answer either.
        passing = self.unknown and isinstance(error, (errors.Aborted, errors.LimitExceeded))
        pause_s = self._pauses.next_s()
        return pause_s if (passing or isinstance(error, self._again)) and pause_s < self.left_s else None


TOKEN_AGAIN = (errors.UnknownOutcome, errors.Unavailable)
ASK_AGAIN = (errors.Unavailable, errors.Aborted)


def not_committed(failed: errors.Error) -> errors.Error:
    """Of a request whose token is not there, nor ever will be."""
    if failed.committed is not None:
        return failed
    return errors.Aborted(f"it was lost on its way, and is not committed: {failed}", failed.code, failed.reason)


def still_unknown(failed: errors.Error) -> errors.UnknownOutcome:
    """The last of several attempts, of which an earlier one may have been committed."""
    if isinstance(failed, errors.UnknownOutcome):
        return failed
    return errors.UnknownOutcome(f"an earlier attempt was lost on its way; the last one: {failed}", failed.code)
