"""The promises under concurrency on real clusters: kills, hangs and cuts in the middle of a run (shortly; `make chaos`
does it for minutes), few aborts without contention, no livelock with much of it."""

import os
import random
import time

import pytest

from chaos import (DEADLINE_S, SHAPES, SLACK_S, Chaos, Meter, abort_share, held_text, holds_nothing, outcomes_text,
                   rates_per_second)
from cluster import Cluster, cluster  # noqa: F401
from conftest import Document


@pytest.mark.parametrize("mode, shape, seconds, pause", [
    ("kills", "4x1", 7, (0.7, 2)), pytest.param("hangs", "4x1", 5, (0.3, 1), marks=pytest.mark.soak),
    pytest.param("cuts", "2x2", 3, (0.3, 0.8), marks=pytest.mark.soak)])
def test_random(cluster: Cluster, mode: str, shape: str, seconds: float, pause: tuple[float, float]) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1, 2**31))
    chaos = Chaos(cluster, SHAPES[shape], mode, seconds, pause, seed).run()
    print(chaos.summary(), f"again with CHAOS_SEED={seed}", sep="\n")
    assert not chaos.findings


def run(cluster: Cluster, meter: Meter, *options: object, duration: float = 2) -> Document:
    """Updates, half of them multisite. Nothing is lost, nobody waits beyond the deadline, nothing stays locked."""
    result = cluster.run("--op", "update", "--multisite", 50, *options, duration=duration, warmup=0.3)
    print(*options, outcomes_text(result), rates_per_second(result), sep="; ")
    assert result["sum_check"] == "ok", result["sum_check_detail"]
    end = time.monotonic() + 5
    while not all(map(holds_nothing, found := meter.all())):
        assert time.monotonic() < end, held_text(found)
        time.sleep(0.05)
    assert max(one["longest wait"] for one in found if one) <= DEADLINE_S + SLACK_S, found
    return result


def assert_no_livelock(result: Document) -> None:
    rates = rates_per_second(result)
    assert len(rates) >= 2 and all(rate > 0 for _, rate in rates), rates


@pytest.mark.parametrize("name", ["2x1", "4x1", "2x2"])
def test_few_aborts_without_skew_and_no_livelock_with_it(cluster: Cluster, name: str) -> None:
    meter = Meter(cluster, SHAPES[name])
    cluster.up()
    result = run(cluster, meter, "--zipf", 0, duration=1)
    assert abort_share(result) < 0.01, outcomes_text(result)
    # Nearly all multisite transactions want the same rows; rows are sorted, so they queue up for the first one.
    assert_no_livelock(run(cluster, meter, "--zipf", 2))
    # Two rows of each island, and many transactions that want them: deadlocks across islands all the time.
    assert_no_livelock(run(cluster, meter, "--zipf", 2, "--rows-total", 96, "--rows", 4, "--mpl", 16))


def test_overload_is_answered_in_time(cluster: Cluster) -> None:
    """A thousand transactions of twenty rows want the same thousand: most give up, at their deadline and not later. Any
    of the locks one waits for may take a while; looking at the deadline only when it begins would not be enough."""
    meter = Meter(cluster, SHAPES["2x1"])
    cluster.up()
    run(cluster, meter, "--rows-total", 960, "--rows", 20, "--mpl", 500, duration=DEADLINE_S + 1)
