"""`islands advise`: the model, the ranking, and the command on real clusters. Never whether the advice is good: that is
measured on a quiet machine."""

import json
import os
import signal
import subprocess
import sys

import pytest

from cluster import processes, wait_until
from conftest import ROOT, Islands, WriteFile

sys.path.insert(0, os.path.join(ROOT, "experiments"))
from advising import advice  # noqa: E402
from advising.contest import Contest  # noqa: E402
from advising.model import Load, Measured, Model, interpolate, zipf_mass  # noqa: E402
from advising.written import with_setting  # noqa: E402
from sweeping.results import note_on_disturbance  # noqa: E402
from sweeping.tree import Reader, Scalar  # noqa: E402

FILE = """version: 1
metrics: {base_port: 0}
storage: {buffer_pool: 128MiB}
data:
  tables: [{name: micro, key: [uint64], range: [0, 24000], row_bytes: 250}]
"""
SHORT = ("--seconds", "0.1", "--warmup", "0.05", "--repeat", "1", "--mpl", "4", "--settings", "none")
PREDICT = (*SHORT, "--rounds", "0")


@pytest.mark.parametrize("s", [0, 0.5, 1, 1.7])
def test_zipf_mass_is_the_sum(s: float) -> None:
    for ranks in (1, 10, 5000, 240_000):
        assert zipf_mass(ranks, s) == pytest.approx(sum(k ** -s for k in range(1, ranks + 1)), rel=1e-4)


def test_the_hottest_island_has_the_first_keys() -> None:
    load = Load(rows=10, table_rows=240_000, sites=24, update=True)
    assert load.hottest_share(4, 0, 1) == pytest.approx(1 / 4)  # local: even, whatever the skew
    assert load.hottest_share(4, 100, 0) == pytest.approx(1 / 4)  # uniform: even
    shares = [load.hottest_share(4, 100, s) for s in (0, 0.5, 1, 2)]
    assert shares == sorted(shares) and shares[-1] < 1
    assert shares[-1] == pytest.approx(1 / 40 + 9 / 10, abs=0.01)  # at zipf 2 nearly all rows but the first lie there
    assert load.hottest_row(4, 100, 0) == pytest.approx(9 / 240_000)
    assert load.hottest_row(4, 0, 0) == pytest.approx(10 / 240_000)  # one of 24 sites, then of 10,000 rows
    assert load.hottest_row(4, 100, 2) == pytest.approx(9 / 1.645, rel=0.01)


def test_clients_of_the_deployment_begin_where_the_law_says() -> None:
    """Section 7.3: the island of the first keys has the more transactions, local ones too, and every row is drawn by
    the law of the whole table."""
    load = Load(rows=2, table_rows=240_000, sites=24, update=True, skew="table", clients="deployment")
    mass = sum(1 / k for k in range(1, 60_001)) / sum(1 / k for k in range(1, 240_001))
    assert load.hottest_share(4, 0, 1) == pytest.approx(mass, rel=1e-3) == load.hottest_share(4, 50, 1)
    assert load.hottest_share(4, 0, 0) == pytest.approx(1 / 4) and load.hottest_share(1, 0, 1) == pytest.approx(1)
    # 2 rows at s = 1: 0.15 accesses of the hottest row per transaction.
    assert load.hottest_row(24, 0, 1) == pytest.approx(2 / sum(1 / k for k in range(1, 240_001)), rel=1e-3)
    own = Load(rows=2, table_rows=240_000, sites=24, update=True, skew="table")
    assert own.hottest_share(4, 0, 1) == pytest.approx(1 / 4)  # an island's own stay there
    assert own.hottest_row(4, 0, 1) == pytest.approx(2 / sum(1 / k for k in range(1, 60_001)) / 4, rel=1e-3)
    assert own.hottest_row(4, 0, 0) == pytest.approx(2 / 240_000)


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
    case = case_of(ranking)
    of = "sync+forced"
    verdict = advice.judge([case], {(of, "1ISL", 0, 0): [100.0], (of, "2ISL", 0, 0): [180.0],
                                    (of, "4ISL", 0, 0): [200.0]})
    assert case["regret"] == pytest.approx(0.1)
    assert verdict["largest_error"] == pytest.approx(200 / 180 - 1, abs=1e-4)
    assert verdict["median_error"] == pytest.approx(0.005, abs=1e-4)
    text = advice.case_text(case, True)
    assert "recommended: 2ISL" in text and "regret 10.0%" in text and "by prediction alone" in text
    assert "durability sync+forced" in text


def test_ranking_says_whose_pools_hold_the_data() -> None:
    def found(*islands: tuple[int, int, bool]) -> dict[str, object]:
        return {"per_island": [{"pool": {"bytes": pool << 20, "data_bytes": data << 20, "paged": paged}}
                               for pool, data, paged in islands]}
    assert advice.pools_of({"per_island": [{"pool": None}]}) is None is advice.pools_of({"per_island": []})
    assert advice.pools_of(found((64, 40, False))) == {"pool_bytes": 64 << 20, "held": 1, "paged": False}
    split = advice.pools_of(found((8, 40, True), (56, 40, False)))
    assert split == {"pool_bytes": 8 << 20, "held": 0.6, "paged": True}
    rows = [row_of("1ISL", 2), row_of("2ISL", 1)]
    assert "pool" not in advice.case_text(case_of(rows), True), "of runs of an older build"
    rows[0]["pool_bytes"], rows[0]["held"], rows[0]["paged"] = 64 << 20, 1, False
    rows[1]["pool_bytes"], rows[1]["held"], rows[1]["paged"] = 8 << 20, 0.6, True
    text = advice.case_text(case_of(rows), True)
    assert "  pools: 2ISL: read from disk what the pool does not hold; 1ISL: in memory as a whole." in text
    assert "pool/island  holds " in text and "      8MiB    60% " in text and "     64MiB   100% " in text
    rows[1]["held"], rows[1]["paged"] = 1, False
    assert "pools:" not in advice.case_text(case_of(rows), True)


def row_of(layout: str, rate: float) -> advice.Row:
    return {"layout": layout, "predicted_per_s": rate, "of_best": rate / 2, "chance_best": 0.5}


def case_of(ranking: list[advice.Row]) -> advice.Case:
    return {"durability": "sync", "votes": "forced", "multisite": 0, "zipf": 0, "settings": {}, "variants": [],
            "recommended": ranking[0]["layout"], "ranking": ranking}


def contest_of(rates: dict[str, list[float]], most: int = 12) -> Contest[str]:
    """As it ends where the contenders do this in each round."""
    contest = Contest([*rates])
    while names := contest.due(most):
        contest.add({name: rates[name][contest.rounds] for name in names})
    return contest


def test_a_contest_ends_when_it_is_known() -> None:
    slow = [100.0, 130.0, 90.0, 110.0] * 3  # the machine's own ups and downs, which all share
    clear = contest_of({"a": [2 * rate * wobble for rate, wobble in zip(slow, [1, 1.01, 0.99, 1] * 3)], "b": slow})
    assert clear.first() == "a" and clear.rounds == 3 and clear.decided() and clear.others()["b"].behind()
    # As good as each other: it ends as soon as neither can be TIE better, whoever is first.
    even = contest_of({"a": slow, "b": [rate * wobble for rate, wobble in zip(slow, [0.99, 1.01, 1, 0.995] * 3)]})
    assert even.rounds < 12 and even.decided() and not [*even.others().values()][0].behind()
    # Never known: 30 % up and down against each other.
    open_ = contest_of({"a": [100.0, 130.0, 70.0, 105.0] * 3, "b": [110.0, 80.0, 120.0, 95.0] * 3})
    assert open_.rounds == 12 and not open_.decided()
    # Who is behind is not measured on and on.
    three = contest_of({"a": open_.rates["a"], "b": open_.rates["b"], "c": [rate / 9 for rate in slow]})
    assert (len(three.rates["c"]), len(three.rates["a"])) == (3, 12) and three.first() in ("a", "b")
    assert contest_of({"a": slow}).rounds == 0 and contest_of({"a": slow, "b": slow}, 0).rounds == 0


def test_what_was_measured_goes_before_what_was_predicted() -> None:
    models = {"1ISL": Measured(1, 100.0), "2ISL": Measured(2, 90.0), "4ISL": Measured(4, 30.0)}
    case = case_of(advice.rank(models, 0, 0, 0.03))
    assert advice.close(case["ranking"]) == ["1ISL", "2ISL"]
    advice.confirm(case, contest_of({"1ISL": [100.0] * 3, "2ISL": [120.0, 121.0, 119.0]}))
    assert case["recommended"] == "2ISL" and case["decided"]
    assert [row["layout"] for row in case["ranking"]] == ["2ISL", "1ISL", "4ISL"]
    assert "measured in 3 rounds: faster than 1ISL" in advice.case_text(case, False)
    assert advice.overall([case]) == ("2ISL", 0)
    models["2ISL"] = Measured(2, 95.0)
    other = case_of(advice.rank(models, 0, 0, 0.03))
    assert advice.overall([case, other])[1] == pytest.approx(0.05)
    case["ranking"][1]["beside_first"] = {"share": 0.99, "low": 0.8, "high": 1.2, "rounds": 12}
    case["decided"] = False
    assert "not certain: after 12 rounds 1ISL may still" in advice.case_text(case, False)


def test_where_another_layout_is_the_best() -> None:
    load = Load(rows=10, table_rows=240_000, sites=24, update=True)
    models = {"1ISL": Model(1, load, {(0, 0): 1000.0, (100, 0): 1000.0}),
              "2ISL": Model(2, load, {(0, 0): 2000.0, (100, 0): 500.0})}
    # 1/T: 0.5 and 2 ms against 1 ms: as good at a third.
    assert advice.changes(models, 10, 0, False) == ["1ISL at 34 % multisite and more"]
    assert advice.changes(models, 80, 0, False) == ["2ISL at 33 % multisite and less"]
    assert "2 times as many" in advice.why(models, advice.rank(models, 10, 0, 0.03), 0)


def test_the_island_that_limits_is_the_busy_one() -> None:
    def islands(*busy: float) -> dict[str, object]:
        return {"per_island": [{"id": number, "busy_fraction": share, "committed_per_s": 100 * share}
                               for number, share in enumerate(busy)]}

    assert advice.limiting(islands(0.4, 1.0, 0.6)) == {"island": 1, "busy": 1.0, "others_busy": 0.5,
                                                       "committed_share": 0.5}
    assert advice.limiting(islands(0.95, 1.0, 0.93)) is None and advice.limiting(islands(1.0)) is None


@pytest.mark.parametrize("text, path, value, expected", [
    ("version: 1\nlayout: auto  # mine\n", ["layout"], "2ISL", "version: 1\nlayout: 2ISL  # mine\n"),
    ("version: 1\n# a\ndata: {sites: 4}\n", ["layout"], "2ISL", "version: 1\n# a\nlayout: 2ISL\ndata: {sites: 4}\n"),
    ("version: 1\n", ["cores"], "6", "cores: '6'\nversion: 1\n"),
    ("messaging: {}\n", ["messaging", "transport"], "zmq", "messaging: {transport: zmq}\n"),
    ("messaging:\nversion: 1\n", ["messaging", "transport"], "zmq", "messaging: {transport: zmq}\nversion: 1\n"),
    ("storage:\n  # big\n  buffer_pool: 1GiB\n", ["storage", "log", "durability"], "lazy",
     "storage:\n  # big\n  log: {durability: lazy}\n  buffer_pool: 1GiB\n"),
    ("{version: 1}\n", ["placement"], "os", "{placement: os, version: 1}\n"),
    ("{version: 1}\n", ["cores"], "0,2", "{cores: '0,2', version: 1}\n"),
    ("data: {sites: 4}\n", ["data", "sites"], 2, "data: {sites: 2}\n"),
])
def test_a_file_keeps_what_its_author_wrote(deployment: WriteFile, text: str, path: list[str], value: Scalar,
                                            expected: str) -> None:
    assert with_setting(text, Reader(deployment(text)).tree(), path, value) == expected


def test_advice_validated_and_its_runs_used_again(islands: Islands, deployment: WriteFile, folder: str) -> None:
    """What is asked for decides what is run, not what is kept: other questions find the runs, and go beside them."""
    file, kept = deployment(FILE), os.path.join(folder, "kept")
    of = ("advise", file, "--op", "update", "--results", kept, *PREDICT)
    answer = islands.json(*of, "--multisite", "10", "50", "--validate", timeout=120, cwd=folder)
    assert [(case["multisite"], case["zipf"]) for case in answer["cases"]] == [(10, 0), (50, 0)]
    layouts = {row["layout"] for row in answer["cases"][0]["ranking"]}
    assert "1ISL" in layouts and answer["calibration_runs"] == len(layouts) * 4
    assert answer["runs_made"] == len(layouts) * 6
    for case in answer["cases"]:
        assert case["recommended"] == case["ranking"][0]["layout"] and 0 <= case["regret"] < 1
        assert sum(row["chance_best"] for row in case["ranking"]) == pytest.approx(1, abs=0.01)
        assert all(row["predicted_per_s"] > 0 and row["measured_per_s"] > 0 for row in case["ranking"])
        for row in case["ranking"]:
            assert row["pool_bytes"] == (128 << 20) // int(row["layout"].removesuffix("ISL")), row
            assert (row["held"], row["paged"]) == (1, False), row
    assert answer["validation"]["median_error"] >= 0
    before = files_in(kept)
    done = islands.run(*of, "--multisite", "10.0", timeout=60, cwd=folder)  # less
    assert done.code == 0 and "using the runs" in done.err and "starting" not in done.err, done
    assert "recommended: " in done.out and "10 % multisite, zipf 0" in done.out
    answer = islands.json(*of, "--multisite", "50", "90", "--validate", timeout=60, cwd=folder)  # more
    assert answer["runs_made"] == len(layouts)
    answer = islands.json(*of, "--rows", "2", timeout=60, cwd=folder)  # another load
    assert answer["runs_made"] == answer["calibration_runs"] and len(os.listdir(kept)) == 2
    assert before <= files_in(kept) and processes(folder) == {}


def files_in(folder: str) -> set[str]:
    return {os.path.join(where, name) for where, _, names in os.walk(folder) for name in names}


def test_disturbed_runs_are_said_and_made_again(islands: Islands, deployment: WriteFile, folder: str) -> None:
    file, kept = deployment(FILE), os.path.join(folder, "kept")
    command = ("advise", file, "--results", kept, *PREDICT, "--layouts", "1ISL")
    assert islands.json(*command, cwd=folder)["runs_made"] == 4
    lines, = [os.path.join(where, name) for where, _, names in os.walk(kept) for name in names
              if name == "results.jsonl"]
    with open(lines, encoding="utf-8") as source:
        runs = [json.loads(line) for line in source]
    for number, run in enumerate(runs):
        run["metrics"] |= {"others_share": 0.4 if number == 2 else 0.01, "stolen_share": 0.0}
    with open(lines, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(run) + "\n" for run in runs)
    before = files_in(kept)
    assert islands.json(*command, cwd=folder)["runs_made"] == 0
    done = islands.run(*command, "--again", cwd=folder)
    assert done.code == 0 and "but 1 that others disturbed" in done.err, done
    with open(lines, encoding="utf-8") as source:
        again = [json.loads(line)["id"] for line in source]
    assert again == [run["id"] for run in runs] + [f"{runs[2]['id']}-2"]
    assert before <= files_in(kept)


def test_a_run_that_committed_nothing_is_an_error(islands: Islands, deployment: WriteFile, folder: str) -> None:
    command = ("advise", deployment(FILE), "--results", os.path.join(folder, "kept"), *PREDICT, "--layouts", "1ISL",
               "--validate")
    assert islands.json(*command, cwd=folder)["runs_made"] == 5
    lines, = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names
              if name == "results.jsonl"]
    with open(lines, encoding="utf-8") as source:
        runs = [json.loads(line) for line in source]
    runs[-1]["metrics"]["committed_per_s"] = 0.0  # that of the validation
    with open(lines, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(run) + "\n" for run in runs)
    done = islands.run(*command, cwd=folder)
    assert done.code == 1 and "nothing was committed in a run on 1ISL" in done.err and "Traceback" not in done.err, done


def test_a_setting_that_cannot_be_is_left_out(islands: Islands, deployment: WriteFile, folder: str) -> None:
    """Fewer sites than each transaction is to touch: that variant fails, and the advice stands."""
    done = islands.run("advise", deployment(FILE), *PREDICT, "--rounds", "1", "--layouts", "1ISL", "--settings",
                       "placement", "sites", "--multisite", "100", "--sites-touched", "3", timeout=120, cwd=folder)
    assert done.code == 0 and "recommended: 1ISL" in done.out and "placement os" in done.out, done
    assert "sites 1" not in done.out and "--sites-touched: found 3" in done.err, done


def test_who_else_has_the_cores_is_said() -> None:
    quiet, busy, stolen = ({"others_share": 0.01}, {"others_share": 0.5, "stolen_share": 0.0},
                           {"others_share": None, "stolen_share": 0.03})
    assert note_on_disturbance([quiet, quiet]) == "" == note_on_disturbance([])
    said = note_on_disturbance([quiet, busy, stolen])
    assert "in 2 of 3 runs other programs had the workers' cores" in said and "up to 50%" in said


@pytest.mark.soak
def test_layouts_that_are_close_are_measured_in_turns(islands: Islands, deployment: WriteFile, folder: str) -> None:
    """And written down: the user's file with what is recommended, as a deployment that `islands check` takes."""
    file, new = deployment(FILE + "# mine\nlayout: auto\n"), os.path.join(folder, "best.yaml")
    command = ("advise", file, *PREDICT, "--rounds", "2", "--durability", "none", "--write", new)
    answer = islands.json(*command, "--settings", "placement", "sites", timeout=120, cwd=folder)
    case = answer["cases"][0]
    assert answer["calibration_runs"] == 4 * len(case["ranking"]), "of skew nothing was asked"
    for row in case["ranking"][1:]:
        assert ("beside_first" in row) == ("confirmed_per_s" in row)
        assert row.get("beside_first", {"rounds": 2})["rounds"] == 2
    count = int(case["recommended"].removesuffix("ISL"))
    assert [(variant["setting"], variant["value"]) for variant in case["variants"]] == [("placement", "os"),
                                                                                        ("sites", count)]
    assert case["variants"][0]["beside"]["rounds"] == 2
    with open(new, encoding="utf-8") as source:
        text = source.read()
    assert f"# mine\nlayout: {case['recommended']}\n" in text and "durability: none" in text
    assert islands.run("check", new).code == 0
    done = islands.run(*command, cwd=folder)
    assert done.code == 2 and "expected the name of a new file" in done.err, done


@pytest.mark.soak
def test_a_hot_island_is_named(islands: Islands, deployment: WriteFile, folder: str) -> None:
    answer = islands.json("advise", deployment(FILE), *PREDICT, "--rounds", "1", "--layouts", "2ISL", "--zipf", "1.5",
                          "--skew", "table", "--local", "island", "--clients", "deployment", "--op", "update",
                          timeout=120, cwd=folder)
    limits = answer["cases"][0]["limits"]
    assert limits["island"] == 0 and limits["committed_share"] > 0.7 and limits["busy"] > limits["others_busy"]


@pytest.mark.soak
def test_advice_for_every_durability_asked_about(islands: Islands, deployment: WriteFile, folder: str) -> None:
    """As the file says, unless told otherwise; and what the file's directories hold is left alone."""
    own = os.path.join(folder, "own")
    log = f"log: {{durability: lazy, votes: forced, directory: {own}}}"
    file = deployment(FILE.replace("128MiB", "128MiB, " + log).replace("data:", f"data:\n  directory: {own}"))
    command = ("advise", file, "--results", os.path.join(folder, "kept"), *PREDICT)
    answer = islands.json(*command, cwd=folder, timeout=120)
    assert [(case["durability"], case["votes"]) for case in answer["cases"]] == [("lazy", "forced")]
    answer = islands.json(*command, "--durability", "none", "lazy", "--validate", cwd=folder, timeout=120)
    assert [(case["durability"], case["votes"]) for case in answer["cases"]] == [
        ("none", "epoch"), ("lazy", "epoch")]
    assert all(row["measured_per_s"] > 0 for case in answer["cases"] for row in case["ranking"])
    done = islands.run(*command, "--durability", "lazy", "none", cwd=folder, timeout=60)
    assert done.code == 0 and "durability lazy\n" in done.out and "starting" not in done.err, done
    assert "by durability:\n  0 % multisite, zipf 0: lazy " in done.out, done
    assert not os.path.exists(own) and processes(folder) == {}


@pytest.mark.parametrize("arguments, complaint", [
    (["nosuch.yaml"], "nosuch.yaml"),
    (["FILE", "--durability", "often"], "--durability: invalid choice: 'often' (choose from 'none', 'lazy'"),
    (["FILE", "--clients", "deployment"], "--clients: found deployment, expected island, or --skew table"),
    (["FILE", "--settings", "colour"], "--settings: invalid choice: 'colour'"),
    (["FILE", "--rounds", "-1"], "--rounds: found -1, expected 0 to 100"),
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
    (["FILE", "--workload", "tpce"], "--workload: found 'tpce', expected one that is built"),
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
