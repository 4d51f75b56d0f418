"""What the single runs of `islands sweep` are told."""

import json
import os

from conftest import Document
from test_sweep import ONE, Sweeps, one, sweeps  # noqa: F401


def summary_of(sweeps: Sweeps, line: Document) -> Document:
    """Of the run of a line of one.yaml's results."""
    with open(os.path.join(sweeps.results()[-1], "one", "runs", line["id"], "summary.json"), encoding="utf-8") as file:
        summary: Document = json.load(file)
        return summary


def test_rates_may_be_found(sweeps: Sweeps) -> None:
    """A limit is for the knee alone; it is no obstacle to other rates of the axis."""
    one(sweeps, axes="{rate: [auto, 100], p99_ms: [500]}")
    done = sweeps.run(*ONE, code=None)
    found, fixed = sorted(map(json.loads, sweeps.lines("one")), key=lambda line: line["axes"]["rate"] == 100)
    # A busy machine may hold no rate even for a tenth of a second; then the run has failed, and says so.
    assert found["ok"] == summary_of(sweeps, found)["rate_search"]["found"] == (done.code == 0), done
    assert found["ok"] or "no rate held for as long as the run was to take" in found["error"], done
    assert fixed["ok"] and found["axes"]["rate"] == "auto"
    for line in (found, fixed):
        summary = summary_of(sweeps, line)
        assert ("rate_search" in summary) == (line is found)
        assert line["metrics"]["committed_per_s"] == summary["committed_per_s"] > 0


def test_what_has_no_effect_in_some_runs_is_left_out_of_them(sweeps: Sweeps) -> None:
    one(sweeps, axes="{multisite: [0, 100], sites_touched: [2]}")
    sweeps.run(*ONE)
    told = {}
    for line in map(json.loads, sweeps.lines("one")):
        told[line["axes"]["multisite"]] = summary_of(sweeps, line)["sites_touched"]
        assert line["ok"] and line["axes"]["sites_touched"] == 2
    assert told == {0: 0, 100: 2}
