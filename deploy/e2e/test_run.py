"""`islands run`: every layout and transport end to end, its output, its run directory, its refusals."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import time
from xml.etree import ElementTree

import pytest

from cluster import Cluster, cluster, wait_until  # noqa: F401
from conftest import Document, Islands

SCOPES = ("local", "multisite", "distributed")


def check_result(result: Document, layout: str, op: str, multisite: float, transport: str) -> None:
    islands = int(layout.removesuffix("ISL"))
    assert result["sum_check"] == "ok", result["sum_check_detail"]
    assert (result["layout"], result["islands"], result["transport"]) == (layout, islands, transport)
    assert (result["workload"], result["op"], result["rows"]) == ("micro", op, 10)
    assert result["multisite_percent"] == multisite
    assert result["committed"] > 0
    assert result["unknown"] == 0
    scopes = result["per_scope"]
    assert sum(scopes[scope]["committed"] for scope in SCOPES) == result["committed"]
    assert sum(island["committed"] for island in result["per_island"]) == result["committed"]
    assert [island["id"] for island in result["per_island"]] == list(range(islands))
    # Ten rows over all sites practically never lie in one site, nor on one of two islands or more.
    far = "distributed" if islands > 1 else "multisite"
    assert (scopes["local"]["committed"] > 0) == (multisite < 100)
    assert (scopes[far]["committed"] > 0) == (multisite > 0)
    assert (result["messages_per_transaction"] > 0) == (multisite > 0 and islands > 1)
    latency = result["latency_us"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["p999"]


@pytest.mark.parametrize("transport", ["shm", "uds", "zmq"])
@pytest.mark.parametrize("layout", ["1ISL", "2ISL", pytest.param("3ISL", marks=pytest.mark.soak), "24ISL"])
def test_every_layout_keeps_the_sum(cluster: Cluster, layout: str, transport: str) -> None:
    cluster.write(layout, transport).up()
    for op in ("read", "update"):
        for multisite in (0, 50, 100):
            result = cluster.run("--op", op, "--multisite", multisite)
            check_result(result, layout, op, multisite, transport)
    cluster.down()


def test_contended_updates_keep_the_sum(cluster: Cluster) -> None:
    """Few rows, strong skew, many at a time: deadlocks and aborts, and still nothing is lost or done twice."""
    cluster.write("2ISL").up()
    result = cluster.run("--op", "update", "--multisite", 50, "--rows", 4, "--rows-total", 96, "--zipf", 1.0,
                         "--mpl", 16, duration=1)
    assert result["sum_check"] == "ok", result["sum_check_detail"]
    assert result["committed"] > 0 and result["rows_total"] == 96
    assert sum(result["aborts_by_reason"].values()) == result["aborted"]


def test_clients_of_the_deployment_crowd_at_the_hot_island(cluster: Cluster) -> None:
    cluster.write("2ISL").up()
    skewed = ("--op", "update", "--rows", 2, "--multisite", 20, "--zipf", 1, "--skew", "table", "--local", "island")
    crowd = cluster.run(*skewed, "--clients", "deployment", duration=0.5)
    apart = cluster.run(*skewed, duration=0.5)
    assert crowd["sum_check"] == apart["sum_check"] == "ok"
    assert (crowd["clients"], apart["clients"]) == ("deployment", "island")
    hot, cold = (island["committed"] for island in crowd["per_island"])
    assert hot > 4 * cold > 0  # 0.94 of the rows that are drawn lie in the first half of the table
    assert 0.03 < crowd["clients_moved_per_transaction"] < 0.2 and apart["clients_moved_per_transaction"] == 0
    assert "client" in crowd["latency_from"] and "there is no client" in apart["latency_from"]


def test_rate_is_kept_and_latency_counts_from_when_it_was_due(cluster: Cluster) -> None:
    cluster.write("2ISL").up()
    result = cluster.run("--rate", 3000, "--even", duration=1)
    assert result["committed_per_s"] == pytest.approx(3000, rel=0.2)
    assert result["sum_check"] == "ok" and result["arrivals_refused"] == 0
    assert "was due" in result["latency_from"]
    # More than it can do, by far: the queue grows, and with it what each waits.
    flooded = cluster.run("--op", "update", "--rate", 5e7, "--clients", "deployment", duration=0.5)
    assert flooded["sum_check"] == "ok" and flooded["latency_us"]["p50"] > 20_000


def test_rate_auto_finds_the_knee_and_measures_there(cluster: Cluster) -> None:
    """No more than the steps and what follows from them: how fast this machine is, and how quiet, is not known."""
    cluster.write("2ISL").up()
    result = cluster.run("--rate", "auto", "--p99-ms", 100, "--op", "update", duration=0.2, warmup=0.05, code=None)
    assert result["sum_check"] == "ok", result["sum_check_detail"]
    search = result["rate_search"]
    steps = search["steps"]
    assert search["p99_limit_us"] == 100_000 and search["limit_given"]
    assert steps[0]["rate_per_s"] == 0 and not steps[0]["held"] and 3 < len(steps) <= 60
    assert steps[1]["rate_per_s"] == pytest.approx(steps[0]["committed_per_s"] / 5, rel=0.01)
    assert steps[-1]["rate_per_s"] == pytest.approx(result["rate_per_s"], rel=0.01) and result["rate_per_s"] > 0
    assert steps[-1]["latency_us"]["p99"] == result["latency_us"]["p99"]
    assert search["found"] == steps[-1]["held"]
    for step in steps[1:]:
        assert step["held"] == (step["fault"] == "")
        assert not step["held"] or step["latency_us"]["p99"] <= 100_000
        assert 0 < step["utilisation"] <= 1
    with open(os.path.join(result["run_directory"], "summary.json"), encoding="utf-8") as file:
        assert json.load(file)["rate_search"] == search
    assert os.listdir(os.path.join(cluster.folder, "results")) == [os.path.basename(result["run_directory"])]
    assert "rate_search" not in cluster.run(duration=0.1)


def test_rate_auto_says_when_no_rate_holds_and_ends_with_its_command(cluster: Cluster) -> None:
    cluster.write("2ISL").up()
    short = ("--duration", "0.1", "--warmup", "0")
    done = cluster.islands.run("run", cluster.file, "micro", "--rate", "auto", "--p99-ms", "0.001", *short,
                               cwd=cluster.folder, timeout=60)
    assert done.code == 1 and "--rate auto: no rate holds: at " in done.err, done
    assert len(re.findall(r" does not hold: (p99 is above|[\d,]+/s too few|[\d,]+ (waited|were))", done.err)) > 5
    for wrong, complaint in (
            (("--rate", "most"), "--rate: found 'most'"),
            (("--p99-ms", "5"), "--p99-ms: found 5, expected it only with --rate auto"),
            (("--rate", "auto", "--p99-ms", "0"), "--p99-ms: found 0, expected 0.001 to 60000 milliseconds"),
            (("--sites-touched", "2"), "--sites-touched: found '2', which has no effect with --multisite 0; ")):
        done = cluster.islands.run("run", cluster.file, "micro", *wrong)
        assert done.code == 2 and complaint in done.err, done
    process = cluster.start("run", cluster.file, "micro", "--rate", "auto", "--duration", "30")
    assert process.stderr and any("committed/s" in line for line in process.stderr)  # the doctor may speak first
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert running(cluster) == [False, False]
    assert os.listdir(os.path.join(cluster.folder, "results")) == []
    # Killed in a step: the lock names the step's run, which the next command ends.
    process = cluster.start("run", cluster.file, "micro", "--rate", "auto", "--duration", "30")
    assert process.stderr and any("committed/s" in line for line in process.stderr)  # the doctor may speak first
    wait_until(lambda: all(running(cluster)), what="the second step")
    process.kill()
    process.communicate()
    assert cluster.run(duration=0.1)["sum_check"] == "ok"


def test_hot_rows_drift_from_island_to_island(cluster: Cluster) -> None:
    """In a second from the first half of the table, which is the first island's, to the second."""
    cluster.write("2ISL").up()
    skewed = ("--op", "update", "--rows", 2, "--zipf", 1.2, "--skew", "table", "--local", "island", "--clients",
              "deployment", "--rows-total", 24000)
    still = cluster.run(*skewed, "--drift", 0, duration=0.5)
    moved = cluster.run(*skewed, "--drift", 24000, duration=2, warmup=0)
    assert still["sum_check"] == moved["sum_check"] == "ok" and moved["drift"] == 24000
    hot, cold = (island["committed"] for island in still["per_island"])
    first, second = (island["committed"] for island in moved["per_island"])
    assert hot > 4 * cold and 1 / 3 < first / second < 3


def test_sites_touched_are_participants_on_the_finest_layout(cluster: Cluster) -> None:
    cluster.write("3ISL", more="data: {sites: 3}\n").up()
    per_transaction = [cluster.run("--rows", 6, "--multisite", 100, "--sites-touched", touched, duration=0.3)
                       for touched in (1, 2, 3)]
    assert all(result["sum_check"] == "ok" for result in per_transaction)
    one, two, three = (result["messages_per_transaction"] for result in per_transaction)
    assert one == 0 and two > 1 and three == pytest.approx(2 * two, rel=0.2)
    done = cluster.islands.run("run", cluster.file, "micro", "--rows", "6", "--multisite", "100", "--sites-touched",
                               "4", cwd=cluster.folder)
    assert done.code == 2 and "--sites-touched: found 4, expected at most the 3 sites" in done.err


def test_clients_of_the_deployment_need_a_workload_that_says_where_it_begins(cluster: Cluster) -> None:
    cluster.write("2ISL", more="data: {tables: [{name: account, key: [uint64], range: [0, 200], row_bytes: 8}]}\n").up()
    done = cluster.islands.run("run", cluster.file, "transfer", "--clients", "deployment", "--duration", 0.1,
                               cwd=cluster.folder)
    assert done.code == 2 and "workload 'transfer' does not say where its transactions begin" in done.err
    for wrong in (("--clients", "all"), ("--rate", "-1"), ("--rate", "nan")):
        assert cluster.islands.run("run", cluster.file, "transfer", *wrong).code == 2


def test_result_and_run_directory(cluster: Cluster) -> None:
    cluster.write("2ISL").up()
    result = cluster.run("--multisite", 20, "--seed", 7, "--mpl", 2, duration=2.2)
    promised = {"layout", "islands", "workload", "op", "rows", "multisite_percent", "zipf", "mpl", "duration_s",
                "committed", "committed_per_s", "aborted", "latency_us", "messages_per_transaction", "sum_check",
                "run_directory"}
    assert promised <= result.keys()
    assert set(result["latency_us"]) == {"p50", "p95", "p99", "p999"}
    assert (result["duration_s"], result["seed"], result["mpl"], result["zipf"]) == (2.2, 7, 2, 0)
    assert result["committed_per_s"] == pytest.approx(result["committed"] / 2.2, rel=0.2)

    directory = result["run_directory"]
    assert os.path.dirname(directory) == os.path.join(cluster.folder, "results")
    assert os.path.basename(directory).endswith("-test-2ISL-micro")
    assert set(os.listdir(directory)) == {"summary.json", "timeseries.csv", "latency.csv", "deployment.yaml",
                                          "machine.xml", "meta.json"}

    def text(name: str) -> str:
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            return file.read()

    assert json.loads(text("summary.json")) == result
    meta = json.loads(text("meta.json"))
    assert meta["seed"] == 7 and "--multisite 20" in meta["command_line"] and meta["version"]
    assert {"commit", "cpu_model", "kernel"} <= meta.keys()
    assert ElementTree.parse(os.path.join(directory, "machine.xml")).getroot().tag == "topology"
    series = list(csv.DictReader(text("timeseries.csv").splitlines()))
    assert [(round(float(row["elapsed_s"]), 0), row["island"]) for row in series] == [
        (1, "0"), (1, "1"), (2, "0"), (2, "1"), (2, "0"), (2, "1")]
    assert all(float(row["committed_per_s"]) > 0 for row in series)
    histogram = list(csv.DictReader(text("latency.csv").splitlines()))
    counted = sum(int(row[scope]) for row in histogram for scope in SCOPES)
    assert counted == pytest.approx(result["committed"], rel=0.01)
    resolved = cluster.islands.json("plan", os.path.join(directory, "deployment.yaml"))
    wanted = cluster.islands.json("plan", cluster.file)
    for key in ("cpus", "numa_nodes", "memory_bytes", "sites"):
        assert [island[key] for island in resolved["islands"]] == [island[key] for island in wanted["islands"]]


def test_text_report(cluster: Cluster) -> None:
    cluster.write("2ISL").up()
    done = cluster.islands.run("run", cluster.file, "micro", "--duration", 1, "--warmup", 0, "--multisite", 50,
                               cwd=cluster.folder)
    assert done.code == 0
    for words in ("micro, op read, rows 10, multisite 50, zipf 0, skew per_site, local site, sites_touched 0, drift 0, "
                  "mpl 4", "committed  ", "latency      p50", "per transaction",
                  "sum check    ok", "results in " + os.path.join(cluster.folder, "results")):
        assert words in done.out
    assert "committed/s" in done.err


def test_rows_are_loaded_once_and_again_when_asked_for_others(cluster: Cluster) -> None:
    cluster.write("2ISL").up()
    assert cluster.run("--op", "update")["rows_total"] == 240000
    again = cluster.run("--op", "update")
    assert "before 0," not in again["sum_check_detail"], "loaded again, although nothing had changed"
    other = cluster.run("--op", "update", "--rows-total", 4800)
    assert other["rows_total"] == 4800 and "before 0," in other["sum_check_detail"]
    assert "4800 of 4800 rows" in other["sum_check_detail"]
    assert cluster.run("--op", "update")["rows_total"] == 240000
    refused = cluster.run("--rows", 100, "--rows-total", 240, code=2)
    assert "--rows: found 100, expected at most the 10 rows" in refused["error"]["message"]
    assert "before 0," not in cluster.run()["sum_check_detail"], "a run that was refused has emptied the table"


@pytest.mark.parametrize("options, complaint", [
    (["--op", "write"], "--op: found 'write', expected read | update | add | mix"),
    (["--op", "mix"], "--update-percent: found none, expected a percentage from 0 to 100 with --op mix"),
    (["--update-percent", "20"], "--update-percent: found '20', expected it only with --op mix"),
    (["--rows", "0"], "--rows: found '0', expected a whole number from 1 to 10000"), (["--rows", "-1"], "--rows"),
    (["--rows", "ten"], "--rows"), (["--rows=7", "--rows=8"], "--rows"), (["--rows"], "--rows"),
    (["--multisite", "101"], "--multisite: found '101', expected a percentage"),
    (["--multisite", "nan"], "--multisite"),
    (["--zipf", "-1"], "--zipf"), (["--zipf", "inf"], "--zipf"), (["--mpl", "0"], "--mpl"),
    (["--duration", "0"], "--duration"), (["--duration", "-3"], "--duration"), (["--warmup", "-1"], "--warmup"),
    (["--seed", "x"], "--seed"), (["--rows-total", "0"], "--rows-total"),
    (["--multisit", "5"], "found unknown option '--multisit', expected '--multisite'?"),
    (["--frobnicate"], "found unknown option '--frobnicate', expected one of --"),
    (["--set", "rows=5"], "found unknown option '--set', expected"),
])
def test_bad_options(cluster: Cluster, options: list[str], complaint: str) -> None:
    done = cluster.write().islands.run("run", cluster.file, "micro", *options)
    assert done.code == 2, done
    assert complaint in done.err


def test_help_of_a_workload_shows_its_parameters(islands: Islands) -> None:
    """From its description: no deployment is needed for it."""
    done = islands.run("run", "no.yaml", "micro", "--help")
    text = " ".join(done.out.split())
    assert done.code == 0, done
    for words in ("Parameters of micro:", "--update-percent PERCENT", "with --op mix only", "--rows N",
                  "distinct rows of a transaction; a whole number from 1 to 10000", "read | update | add | mix",
                  "Rows of table micro", "--mpl", "Exit codes: 0 ok"):
        assert words in text, words
    other = islands.run("run", "no.yaml", "payment", "--help").out
    assert "Parameters of payment:" in other and "--customers" in other and "--multisite" not in other
    assert "--rows-total" not in other, "how many rows it has, its parameters say"
    assert "--history PATH" in islands.run("run", "no.yaml", "append", "--help").out


def test_help_without_a_workload_names_those_there_are(islands: Islands) -> None:
    done = islands.run("run", "--help")
    assert done.code == 0 and "`islands run FILE WORKLOAD --help`" in done.out
    words = " ".join(done.out.split())
    assert "append, insert, micro, payment, smallbank, tatp, tpcc" in words and "--multisite" not in words


def test_help_of_what_is_no_workload_says_so(islands: Islands) -> None:
    done = islands.run("run", "no.yaml", "tpce", "--help")
    assert done.code == 0 and "there is no workload 'tpce'" in done.out and "--mpl" in done.out


def test_options_may_stand_before_the_workload(cluster: Cluster) -> None:
    done = cluster.write().islands.run("run", "--rows", "0", cluster.file, "--zipf=1", "micro")
    assert done.code == 2 and "--rows: found '0'" in done.err


def test_description_is_told_by_islandd_and_nothing_else_is_opened(islands: Islands, folder: str) -> None:
    islandd = os.path.join(os.path.dirname(islands), "islandd")
    library = os.path.join(os.path.dirname(islands), "..", "lib", "islands")

    def describe(file: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([islandd, "--describe", file], capture_output=True, text=True, timeout=30, check=False)
    done = describe(os.path.join(library, "micro.so"))
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    assert [parameter["name"] for parameter in told["parameters"]] == [
        "op", "update_percent", "rows", "multisite", "zipf", "skew", "local", "sites_touched", "drift"]
    assert told["tables"] == ["micro"] and told["rows_total_of"] == "micro" and told["row_per_key"]
    text = os.path.join(folder, "text.so")
    with open(text, "w", encoding="utf-8") as file:
        file.write("no object")
    for found, code, complaint in ((text, 1, "cannot open workload"), (text + "x", 1, "No such file"),
                                   (folder, 1, "cannot open workload")):
        done = describe(found)
        assert (done.returncode, done.stdout) == (code, "") and complaint in done.stderr, done
    shutil.copy(os.path.join(library, "micro.so"), text)
    os.chmod(text, 0o666)
    done = describe(text)
    assert done.returncode == 1 and "can be changed by other users" in done.stderr, done


def test_an_object_that_is_no_workload_is_told(islands: Islands, folder: str) -> None:
    source = os.path.join(folder, "none.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write("int nothing(void) { return 0; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", source + ".so"], check=True)
    done = subprocess.run([os.path.join(os.path.dirname(islands), "islandd"), "--describe", source + ".so"],
                          capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2 and "is not a workload: it lacks ISLANDS_WORKLOAD" in done.stderr, done


def test_refusals_that_need_a_cluster(cluster: Cluster) -> None:
    cluster.write()
    done = cluster.islands.run("run", cluster.file, "micro")
    assert done.code == 1 and "not up" in done.err
    done = cluster.islands.run("run", cluster.file, "tpce", "--warehouses", "5")
    assert done.code == 2 and "there is no workload 'tpce'" in done.err and "micro" in done.err
    cluster.up()
    done = cluster.islands.run("run", cluster.file, "micro", "--rows", "100", "--rows-total", "240", cwd=cluster.folder)
    assert done.code == 2 and "--rows: found 100, expected at most the 10 rows" in done.err
    assert not os.path.exists(os.path.join(cluster.folder, "results"))


def test_mix_updates_as_often_as_asked(cluster: Cluster) -> None:
    cluster.write("2ISL").up()
    result = cluster.run("--op", "mix", "--update-percent", 20, "--rows", 5)
    assert result["sum_check"] == "ok" and result["update_percent"] == 20
    changed = re.search(r"after \d+: changed by (\d+);", result["sum_check_detail"])
    assert changed and int(changed[1]) > 0 and int(changed[1]) % 5 == 0


def running(cluster: Cluster) -> list[bool]:
    return [island["running"] for island in cluster.status()["islands"]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_stops_everywhere(cluster: Cluster, number: signal.Signals) -> None:
    cluster.write("2ISL").up()
    process = cluster.start("run", cluster.file, "micro", "--duration", "60", "--multisite", "50")
    wait_until(lambda: all(running(cluster)), what="the run")
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert running(cluster) == [False, False]
    assert os.listdir(os.path.join(cluster.folder, "results")) == []


def test_one_run_at_a_time_and_a_killed_one_is_cleared_away(cluster: Cluster) -> None:
    cluster.write("2ISL").up()
    process = cluster.start("run", cluster.file, "micro", "--duration", "60", "--op", "update", "--multisite", "50")
    wait_until(lambda: all(running(cluster)), what="the run")
    done = cluster.islands.run("run", cluster.file, "micro", cwd=cluster.folder)
    assert done.code == 1 and "another `islands run`" in done.err and str(process.pid) in done.err
    process.kill()
    process.communicate()
    time.sleep(0.1)
    assert running(cluster) == [True, True]
    assert cluster.run("--op", "update", "--multisite", 50)["sum_check"] == "ok"
    assert running(cluster) == [False, False]


def test_results_say_what_the_doctor_found(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.write().up()
    assert cluster.run(duration=0.1)["doctor"] == ""  # these tests do not ask
    monkeypatch.delenv("ISLANDS_NO_DOCTOR")
    result = cluster.run(duration=0.1)
    said = cluster.islands.json("doctor", cluster.file, "--brief", code=None)
    names = {finding["name"] for finding in said["findings"]}
    assert any(name in result["doctor"] for name in names), result["doctor"]
    with open(os.path.join(result["run_directory"], "summary.json"), encoding="utf-8") as file:
        assert json.load(file)["doctor"] == result["doctor"]
    assert cluster.run("--no-doctor", duration=0.1)["doctor"] == ""


def test_every_help_has_an_example_of_what_there_is(islands: Islands) -> None:
    listed = islands.run("--help").out
    commands = re.findall(r"^  ([a-z]+)  ", listed[listed.index("Subcommands:"):listed.index("Examples:")], re.M)
    assert {"up", "run", "load", "relayout", "doctor", "client"} <= set(commands)
    for command in commands:
        shown = islands.run(command, "--help").out
        examples = [line for line in shown.splitlines() if re.match(rf" +(.* )?islands {command}\b", line)]
        assert examples, f"{command}: no example"
        if "--format text|json may stand" not in shown:
            continue  # a tool of its own, whose words have options, too
        for option in re.findall(r" (--[a-z][a-z-]+)", " ".join(line[:50] for line in examples)):
            assert shown.count(option) > 1, f"{command}: its example has {option}, which it does not have"
