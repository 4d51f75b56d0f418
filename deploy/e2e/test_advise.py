"""`islands advise`: the model, the ranking, and the command on real clusters. Never whether the advice is good: that is
measured on a quiet machine."""

import os
import signal
import subprocess
import sys

import pytest

from cluster import processes, wait_until
from conftest import ROOT, Islands, WriteFile

sys.path.insert(0, os.path.join(ROOT, "experiments"))
from advising import advice  # noqa: E402
from advising.model import Load, Measured, Model, hottest_row, hottest_share, interpolate, zipf_mass  # noqa: E402

FILE = """version: 1
metrics: {base_port: 0}
storage: {buffer_pool: 128MiB}
data:
  tables: [{name: micro, key: [uint64], range: [0, 24000], row_bytes: 250}]
"""
SHORT = ("--seconds", "0.1", "--warmup", "0.05", "--repeat", "1", "--mpl", "4")


@pytest.mark.parametrize("s", [0, 0.5, 1, 1.7])
def test_zipf_mass_is_the_sum(s: float) -> None:
    for ranks in (1, 10, 5000, 240_000):
        assert zipf_mass(ranks, s) == pytest.approx(sum(k ** -s for k in range(1, ranks + 1)), rel=1e-4)


def test_the_hottest_island_has_the_first_keys() -> None:
    assert hottest_share(4, 24, 10, 240_000, 0, 1) == pytest.approx(1 / 4)  # local: even, whatever the skew
    assert hottest_share(4, 24, 10, 240_000, 100, 0) == pytest.approx(1 / 4)  # uniform: even
    shares = [hottest_share(4, 24, 10, 240_000, 100, s) for s in (0, 0.5, 1, 2)]
    assert shares == sorted(shares) and shares[-1] < 1
    assert shares[-1] == pytest.approx(1 / 40 + 9 / 10, abs=0.01)  # at zipf 2 nearly all rows but the first lie there
    assert hottest_row(24, 10, 240_000, 100, 0) == pytest.approx(9 / 240_000)
    assert hottest_row(24, 10, 240_000, 0, 0) == pytest.approx(10 / 240_000)  # one of 24 sites, then of 10,000 rows
    assert hottest_row(24, 10, 240_000, 100, 2) == pytest.approx(9 / 1.645, rel=0.01)


def test_lines_between_points() -> None:
    points = [(0, 1.0), (10, 3.0), (20, 3.0)]
    assert [interpolate(points, x) for x in (0, 5, 10, 15, 20)] == [1, 2, 3, 3, 3]
    assert interpolate(points, 25) == 3 and interpolate(points, -5) == 0
    assert interpolate([(4, 2.0)], 99) == 2


def test_the_model_is_exact_at_its_anchors_and_adds_times_between() -> None:
    load = Load(rows=10, table_rows=240_000, sites=24, update=True)
    anchors: dict[tuple[float, float], float] = {
        (p, s): 1000 / (1 + p / 10 + s * p / 20) for p in (0, 20, 100) for s in (0, 0.5, 1)}
    model = Model(2, load, anchors)
    for (p, s), rate in anchors.items():
        assert model.throughput(p, s) == pytest.approx(rate)
    # Half of the transactions of each kind: the mean of the times, not of the throughputs.
    two = Model(2, load, {(0, 0): 1000.0, (100, 0): 100.0})
    assert two.throughput(50, 0) == pytest.approx(1 / (0.5 / 1000 + 0.5 / 100))
    assert two.throughput(50, 3) == two.throughput(50, 0)  # nothing is known of skew
    reads = Load(rows=10, table_rows=240_000, sites=24, update=False)
    assert [reads.heat(1, 0, s) for s in (0, 1, 2)] == sorted(reads.heat(1, 0, s) for s in (0, 1, 2))
    hot = [model.throughput(50, s) for s in (0, 0.3, 0.7, 1, 3)]
    assert hot == sorted(hot, reverse=True) and hot[-1] > 0
    one = Model(1, load, anchors)  # a single island has no hottest one, but rows where transactions meet
    assert one.throughput(100, 0.7) < one.throughput(100, 0.5)


def test_ranking_says_how_sure_it_is() -> None:
    models = {"1ISL": Measured(1, 100.0), "2ISL": Measured(2, 200.0), "4ISL": Measured(4, 199.0)}
    ranking = advice.rank(models, 0, 0, 0.03)
    assert [row["layout"] for row in ranking] == ["2ISL", "4ISL", "1ISL"]
    assert 0.4 < ranking[0]["chance_best"] < 0.7 and ranking[2]["chance_best"] == 0
    assert advice.rank({"1ISL": models["1ISL"], "2ISL": models["2ISL"]}, 0, 0, 0.03)[0]["chance_best"] == 1
    case: advice.Case = {"durability": "sync", "votes": "forced", "multisite": 0, "zipf": 0, "recommended": "2ISL",
                         "ranking": ranking}
    of = "sync+forced"
    verdict = advice.judge([case], {(of, "1ISL", 0, 0): 100.0, (of, "2ISL", 0, 0): 180.0, (of, "4ISL", 0, 0): 200.0})
    assert case["regret"] == pytest.approx(0.1)
    assert verdict["largest_error"] == pytest.approx(200 / 180 - 1, abs=1e-4)
    assert verdict["median_error"] == pytest.approx(0.005, abs=1e-4)
    text = advice.case_text(case, True)
    assert "recommended: 2ISL" in text and "regret 10.0%" in text and "low" in text and "durability sync+forced" in text


def test_advice_validated_and_its_runs_used_again(islands: Islands, deployment: WriteFile, folder: str) -> None:
    file, kept = deployment(FILE), os.path.join(folder, "kept")
    command = ("advise", file, "--op", "update", "--multisite", "10", "50", "--zipf", "0.7", "--results", kept, *SHORT)
    answer = islands.json(*command, "--validate", timeout=120, cwd=folder)
    assert [(case["multisite"], case["zipf"]) for case in answer["cases"]] == [(10, 0.7), (50, 0.7)]
    layouts = {row["layout"] for row in answer["cases"][0]["ranking"]}
    assert "1ISL" in layouts and answer["calibration_runs"] == len(layouts) * 16
    for case in answer["cases"]:
        assert case["recommended"] == case["ranking"][0]["layout"] and 0 <= case["regret"] < 1
        assert sum(row["chance_best"] for row in case["ranking"]) == pytest.approx(1, abs=0.01)
        assert all(row["predicted_per_s"] > 0 and row["measured_per_s"] > 0 for row in case["ranking"])
    assert answer["validation"]["median_error"] >= 0
    done = islands.run(*command, timeout=60, cwd=folder)
    assert done.code == 0 and "using the runs" in done.err, done
    assert "recommended: " in done.out and "10 % multisite, zipf 0.7" in done.out
    assert processes(folder) == {}


def test_nothing_is_measured_that_is_not_asked_for(islands: Islands, deployment: WriteFile, folder: str) -> None:
    answer = islands.json("advise", deployment(FILE), *SHORT, cwd=folder)
    assert answer["calibration_runs"] == len(answer["cases"][0]["ranking"])


def test_advice_for_every_durability_asked_about(islands: Islands, deployment: WriteFile, folder: str) -> None:
    """As the file says, unless told otherwise; and what the file's directories hold is left alone."""
    own = os.path.join(folder, "own")
    log = f"log: {{durability: lazy, votes: forced, directory: {own}}}"
    file = deployment(FILE.replace("128MiB", "128MiB, " + log).replace("data:", f"data:\n  directory: {own}"))
    command = ("advise", file, "--results", os.path.join(folder, "kept"), *SHORT)
    answer = islands.json(*command, cwd=folder, timeout=120)
    assert [(case["durability"], case["votes"]) for case in answer["cases"]] == [("lazy", "forced")]
    answer = islands.json(*command, "--durability", "none", "lazy", "--validate", cwd=folder, timeout=120)
    assert [(case["durability"], case["votes"]) for case in answer["cases"]] == [
        ("none", "epoch"), ("lazy", "epoch")]
    assert all(row["measured_per_s"] > 0 for case in answer["cases"] for row in case["ranking"])
    assert sorted(os.listdir(os.path.join(folder, "kept"))) == [
        "calibration-lazy", "calibration-lazy+forced", "calibration-none", "validation-lazy", "validation-none"]
    done = islands.run(*command, "--durability", "lazy", cwd=folder, timeout=60)
    assert done.code == 0 and "durability lazy\n" in done.out, done
    assert not os.path.exists(own) and processes(folder) == {}


@pytest.mark.parametrize("arguments, complaint", [
    (["nosuch.yaml"], "nosuch.yaml"),
    (["FILE", "--durability", "often"], "--durability: invalid choice: 'often' (choose from 'none', 'lazy'"),
    (["FILE", "--multisite", "101"], "--multisite: found 101, expected a percentage from 0 to 100"),
    (["FILE", "--zipf", "0", "nan"], "--zipf: found nan, expected a number from 0 to 1000"),
    (["FILE", "--rows", "1", "2"], "unrecognized arguments: 2"),
    (["FILE", "--layouts", "2"], "--layouts: found '2'"),
    (["FILE", "--mix", "read"], "unrecognized arguments: --mix"),
    (["FILE", "--workload", "tatp", "--multisite", "5"], "unrecognized arguments: --multisite"),
    (["FILE", "--workload", "tatp", "--mix", "write"],
     "--mix: found write, expected standard | read | update | in_place"),
    (["FILE", "--op", "mix"], "found no --update-percent, expected a percentage from 0 to 100 with --op mix"),
    (["FILE", "--sites-touched", "2"], "found --sites-touched 2, which has no effect with --multisite 0; expected "),
    (["FILE", "--workload", "append"], "found no --history, expected an absolute path"),
    (["FILE", "--workload", "tpcc"], "--workload: found 'tpcc', expected one that is built"),
    (["FILE", "--layouts", "99ISL"], "deployment.yaml"),  # fewer sites than islands
    ([], "FILE"),
])
def test_bad_usage(islands: Islands, deployment: WriteFile, folder: str, arguments: list[str], complaint: str) -> None:
    file = deployment(FILE)
    done = islands.run("advise", *[file if word == "FILE" else word for word in arguments], cwd=folder)
    assert done.code == 2 and complaint in done.err and "Traceback" not in done.err, done


def test_a_workload_that_cannot_run_is_told(islands: Islands, deployment: WriteFile, folder: str) -> None:
    done = islands.run("advise", deployment(FILE), "--workload", "tatp", *SHORT, cwd=folder)
    assert done.code == 1 and "subscriber" in done.err and "Traceback" not in done.err, done
    assert processes(folder) == {}


def test_ctrl_c_leaves_nothing(islands: Islands, deployment: WriteFile, folder: str) -> None:
    process = subprocess.Popen([islands, "advise", deployment(FILE), "--seconds", "5"], cwd=folder, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, TMPDIR=folder))
    wait_until(lambda: any("islandd" in command for command in processes(folder).values()), what="an island")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err, err
    wait_until(lambda: not processes(folder), what="the islands' end")
