"""`islands up --observe` and `islands observe`: a real Prometheus, targets that follow the cluster, Grafana's files."""

import json
import os
import shutil
import signal
import socket
import urllib.parse
import urllib.request
from typing import Any

import pytest
import yaml

from cluster import Cluster, cluster, line_of, processes, wait_until  # noqa: F401
from conftest import Document, Islands
from dashboard_files import FOLDER, NAMES, tool
from test_metrics import free_ports, scrape


@pytest.fixture
def ports() -> int:
    """Three free ones in a row: of two islands, and of Prometheus."""
    return free_ports(3)


@pytest.fixture
def observed(cluster: Cluster, ports: int, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A deployment of two islands that can be observed, on a machine without Grafana."""
    binary = tool("prometheus")
    if binary is None:
        pytest.skip("prometheus is not installed (deploy/install-packages.sh test unpacks it)")
    monkeypatch.setenv("PATH", os.path.dirname(binary) + ":" + os.environ["PATH"])
    monkeypatch.setenv("GF_PATHS_PROVISIONING", os.path.join(cluster.folder, "nowhere"))
    give_metrics(cluster, ports)
    return cluster


def give_metrics(cluster: Cluster, port: int, name: str = "test") -> None:
    cluster.write("2ISL", name=name)
    with open(cluster.file, encoding="utf-8") as file:
        text = file.read().replace("base_port: 0", f"base_port: {port}")
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(text)


def ask(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=10) as answer:
        return json.load(answer)["data"]


def value(port: int, query: str) -> dict[str, float]:
    """{island: value} of an instant query."""
    result = ask(port, "query?query=" + urllib.parse.quote(query))["result"]
    return {each["metric"]["island"]: float(each["value"][1]) for each in result}


def targets(folder: str) -> Document:
    return {name: json.load(open(os.path.join(folder, name), encoding="utf-8")) for name in os.listdir(folder)}


def control(cluster: Cluster) -> str:
    return os.path.join(cluster.folder, "run")


def prometheus_pids(folder: str) -> list[int]:
    return [pid for pid, words in processes(folder).items() if "--storage.tsdb.path" in words]


def test_up_observe_follows_islands_and_leaves_nothing(observed: Cluster, ports: int) -> None:
    port = ports + 2
    status = observed.up("--observe", "--prometheus-port", port)
    observation = status["observation"]
    assert observation["prometheus_url"] == f"http://127.0.0.1:{port}"
    assert [observation["prometheus_pid"]] == prometheus_pids(observed.folder)
    assert observation["targets"] == os.path.join(observed.folder, "data", "observe", "targets")
    assert targets(observation["targets"]) == {"test.json": [
        {"targets": [f"127.0.0.1:{ports + island}"],
         "labels": {"job": "islands-test", "island": str(island), "__islands_control_directory": control(observed)}}
        for island in range(2)]}
    # It listens for this machine only.
    with open(f"/proc/{observation['prometheus_pid']}/net/tcp6", encoding="ascii") as file:
        assert f":{port:04X} " not in file.read()
    wait_until(lambda: value(port, "up") == {"0": 1, "1": 1}, what="both islands read")
    assert {group["name"] for group in ask(port, "rules")["groups"]}, "the rules are loaded"
    # A lost island stays a target, is seen down, and up again.
    os.kill(status["supervisor_pid"], signal.SIGSTOP)  # else it is back before Prometheus looks
    os.kill(status["islands"][1]["pid"], signal.SIGKILL)
    try:
        wait_until(lambda: value(port, "up") == {"0": 1, "1": 0}, what="island 1 down")
    finally:
        os.kill(status["supervisor_pid"], signal.SIGCONT)
    wait_until(lambda: value(port, "up") == {"0": 1, "1": 1}, what="island 1 up again")
    assert value(port, "islands_restarts_total") == {"0": 0, "1": 1}
    # So does Prometheus itself, with its data.
    os.kill(observation["prometheus_pid"], signal.SIGKILL)
    wait_until(lambda: observed.status()["observation"]["prometheus_pid"] not in (None, observation["prometheus_pid"]),
               what="Prometheus restarted")
    wait_until(lambda: "islands_up_then" if answers(port) else None, what="Prometheus to answer")
    assert value(port, "min_over_time(up[1m])")["1"] == 0, "what was read before is still known"
    observed.down()
    assert targets(observation["targets"]) == {}
    assert os.path.isdir(os.path.join(observed.folder, "data", "observe", "prometheus")), "kept for the next time"
    destroyed = observed.islands.json("destroy", observed.file, "--yes")
    assert os.path.join(observed.folder, "data", "observe") in destroyed["files"]
    assert not os.path.exists(os.path.join(observed.folder, "data", "observe"))


def test_targets_include_the_gateway(observed: Cluster, ports: int) -> None:
    with open(observed.file, "a", encoding="utf-8") as file:
        file.write("gateway: {enabled: true}\n")
    done = observed.islands.run("up", observed.file, "--observe", "--prometheus-port", ports + 2)
    assert done.code == 2 and "is the gateway's metrics port" in done.err, done
    folder = os.path.join(observed.folder, "targets")
    status = observed.up("--targets", folder)
    assert status["gateway"]["metrics_port"] == ports + 2
    assert targets(folder)["test.json"][2] == {
        "targets": [f"127.0.0.1:{ports + 2}"],
        "labels": {"job": "islands-test", "gateway": "0", "__islands_control_directory": control(observed)}}
    assert "islands_gateway_calls_total" in scrape(ports + 2)


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_ports_in_use_are_one_line_each_and_the_cluster_runs(observed: Cluster, ports: int) -> None:
    with socket.create_server(("127.0.0.1", ports + 1)), socket.create_server(("127.0.0.1", ports + 2)):
        done = observed.islands.run("up", observed.file, "--observe", "--prometheus-port", ports + 2)
    assert done.code == 0, done
    lines = done.out.splitlines()
    assert [line for line in lines if f"127.0.0.1:{ports + 1}" in line] == [
        f"warning: island 1 serves no metrics: cannot listen on 127.0.0.1:{ports + 1}, most likely it is in use; "
        "change metrics.base_port"]
    assert [line for line in lines if f"127.0.0.1:{ports + 2}" in line] == [
        f"observe: Prometheus was not started: cannot listen on 127.0.0.1:{ports + 2}: Address already "
        "in use; choose another with --prometheus-port"]
    assert observed.run("--op", "update")["sum_check"] == "ok"
    assert "islands_" in scrape(ports)


def elsewhere(cluster: Cluster) -> Islands:
    """The same `islands` where no tools were unpacked beside it."""
    binaries, folder = os.path.dirname(cluster.islands), os.path.join(cluster.folder, "installed")
    os.makedirs(os.path.join(folder, "bin"))
    shutil.copy(cluster.islands, os.path.join(folder, "bin", "islands"))  # it asks the kernel where it lies
    os.symlink(os.path.join(binaries, "islandd"), os.path.join(folder, "bin", "islandd"))
    os.symlink(os.path.join(binaries, "..", "lib"), os.path.join(folder, "lib"))
    return Islands(os.path.join(folder, "bin", "islands"))


def test_without_prometheus_the_cluster_runs(observed: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    observed.islands = elsewhere(observed)
    status = observed.up("--observe")
    assert status["observation"]["prometheus_url"] is None
    missing, grafana = status["observation"]["notes"]
    assert "there is no program `prometheus` in PATH" in missing and status["observation"]["targets"] in missing
    assert grafana.startswith("Grafana: none found")
    assert os.listdir(status["observation"]["targets"]) == ["test.json"], "another Prometheus may read them"
    assert [island["state"] for island in status["islands"]] == ["ready", "ready"]


def test_a_prometheus_that_does_not_answer_holds_nobody_up(observed: Cluster, ports: int,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.path.join(observed.folder, "slow")
    os.mkdir(folder)
    with open(os.path.join(folder, "prometheus"), "w", encoding="ascii") as script:
        script.write("#!/bin/sh\nexec sleep 300\n")
    os.chmod(script.name, 0o755)
    monkeypatch.setenv("PATH", folder + ":" + os.environ["PATH"])
    status = observed.up("--observe", "--prometheus-port", ports + 2, "--timeout", "5")
    assert [island["state"] for island in status["islands"]] == ["ready", "ready"]
    assert status["observation"]["notes"][0].startswith("Prometheus has not answered within 10 s")


def test_the_islands_ports_are_not_for_prometheus(observed: Cluster, ports: int) -> None:
    done = observed.islands.run("up", observed.file, "--observe", "--prometheus-port", ports + 1)
    assert done.code == 2 and "is an island's metrics port" in done.err
    done = observed.islands.run("up", observed.file, "--prometheus-port", ports + 2)
    assert done.code == 2 and "--observe" in done.err
    assert observed.alive() == {}


def test_grafana_is_told(observed: Cluster, ports: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.path.join(observed.folder, "provisioning")
    os.mkdir(folder)
    monkeypatch.setenv("GF_PATHS_PROVISIONING", folder)
    notes = observed.up("--observe", "--prometheus-port", ports + 2)["observation"]["notes"]
    assert notes == [f"Grafana: data source and dashboards are in {folder}; restart Grafana to load them"]
    with open(os.path.join(folder, "datasources", "islands.yaml"), encoding="utf-8") as file:
        source, = yaml.safe_load(file)["datasources"]
    assert source["isDefault"] is False, "a Grafana that has a default one would not start any more"
    assert source["url"] == f"http://127.0.0.1:{ports + 2}" and source["type"] == "prometheus"
    with open(os.path.join(folder, "dashboards", "islands.yaml"), encoding="utf-8") as file:
        provider, = yaml.safe_load(file)["providers"]
    for name in NAMES:
        with open(os.path.join(provider["options"]["path"], name + ".json"), encoding="utf-8") as copied, \
                open(os.path.join(FOLDER, name + ".json"), encoding="utf-8") as made:
            copy, original = json.load(copied), json.load(made)
        (variable,) = (each for each in copy["templating"]["list"] if each["type"] == "datasource")
        current = variable["current"]
        assert (current["text"], current["value"]) == (source["name"], source["uid"])
        current.update(text="default", value="default")
        assert copy == original


@pytest.mark.parametrize("option", [["--observe"], ["--targets", "targets"]])
def test_nothing_to_observe_is_refused(cluster: Cluster, option: list[str]) -> None:
    cluster.write("2ISL")
    done = cluster.islands.run("up", cluster.file, *option, cwd=cluster.folder)
    assert done.code == 2 and "deployment.yaml:6:" in done.err and "no metrics" in done.err, done
    assert cluster.alive() == {}


@pytest.mark.soak
def test_one_prometheus_for_several_deployments(observed: Cluster, ports: int) -> None:
    """`islands observe` outlives the deployments that write their targets for it."""
    port, folder = ports + 2, os.path.join(observed.folder, "watch")
    observer = observed.start("observe", folder, "--prometheus-port", port, "--format", "json")
    try:
        said = json.loads(line_of(observer.stdout))
        assert said["prometheus_url"] == f"http://127.0.0.1:{port}" and said["targets"] == folder + "/targets"
        status = observed.islands.json("up", observed.file, "--targets", "watch/targets", cwd=observed.folder)
        assert status["observation"] == {"prometheus_url": None, "prometheus_pid": None, "targets": folder + "/targets",
                                         "notes": []}
        wait_until(lambda: value(port, 'up{job="islands-test"}') == {"0": 1, "1": 1}, what="both islands read")
        done = observed.islands.run("down", observed.file)
        assert done.code == 0 and os.listdir(folder + "/targets") == []
        wait_until(lambda: value(port, "up") == {}, what="Prometheus to forget the islands")
    finally:
        observer.send_signal(signal.SIGINT)
        _, err = observer.communicate(timeout=20)
    assert observer.returncode == 130, err
    assert prometheus_pids(observed.folder) == []


def test_after_a_crash_down_takes_targets_back(observed: Cluster) -> None:
    status = observed.islands.json("up", observed.file, "--targets", os.path.join(observed.folder, "shared"))
    os.kill(status["supervisor_pid"], signal.SIGKILL)
    wait_until(lambda: not observed.alive(), what="the islands' end")
    assert os.listdir(os.path.join(observed.folder, "shared")) == ["test.json"], "they shall be seen down"
    assert observed.islands.run("down", observed.file).out.strip() == "nothing is running"
    assert os.listdir(os.path.join(observed.folder, "shared")) == []


def test_deployments_of_one_name_do_not_take_each_others_targets(observed: Cluster, ports: int) -> None:
    shared = os.path.join(observed.folder, "shared")
    observed.islands.json("up", observed.file, "--targets", shared)
    before = targets(shared)
    twin = Cluster(observed.islands, os.path.join(observed.folder, "twin"))
    os.mkdir(twin.folder)
    give_metrics(twin, free_ports(2, above=ports + 100))
    try:
        status = twin.islands.json("up", twin.file, "--targets", shared)
        note, = status["observation"]["notes"]
        assert "is of another deployment named 'test'" in note and control(observed) in note
        assert [island["state"] for island in status["islands"]] == ["ready", "ready"]
    finally:
        assert twin.clean() == {}
    assert targets(shared) == before
    observed.down()
    assert targets(shared) == {}


def test_observe_prints_one_document_and_ends_with_its_prometheus(observed: Cluster, ports: int) -> None:
    folder = os.path.join(observed.folder, "watch")
    observer = observed.start("observe", folder, "--prometheus-port", ports + 2, "--format", "json")
    json.loads(line_of(observer.stdout))
    # One more on the same data would spoil it.
    done = observed.islands.run("observe", folder, "--prometheus-port", ports)
    assert done.code == 1 and "is held by process" in done.err, done
    for killed in range(4):
        pid, = wait_until(lambda: prometheus_pids(folder), what="Prometheus")
        wait_until(lambda: answers(ports + 2), what="its answer")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pid not in prometheus_pids(folder), what="its end")
        wait_until(lambda: observer.poll() is not None or prometheus_pids(folder), what="a restart")
    out, err = observer.communicate(timeout=20)
    assert observer.returncode == 1 and out == "", out
    assert "given up after 3 restarts" in err.splitlines()[-1]


def test_observe_says_why_it_cannot(observed: Cluster, ports: int) -> None:
    with socket.create_server(("127.0.0.1", ports + 2)):
        done = observed.islands.run("observe", os.path.join(observed.folder, "watch"), "--prometheus-port", ports + 2)
    assert done.code == 1 and f"cannot listen on 127.0.0.1:{ports + 2}" in done.err, done
    assert len(done.err.splitlines()) == 1


LAST = "query?query=last_over_time("
SWEEP = """version: 1
workload: micro
deployment:
  data: {{tables: [{{name: micro, key: [uint64], range: [0, 24000], row_bytes: 250}}]}}
  storage: {{buffer_pool: 512MiB}}
  metrics: {{base_port: {port}}}
parameters: {{rows: 4}}
axes: {{layout: [1ISL, 2ISL], multisite: [0, 50]}}
measure: {{seconds: 2, warmup: 0.2, repeat: 1}}
"""


@pytest.mark.soak
def test_a_sweep_is_observed_layout_by_layout(observed: Cluster, ports: int) -> None:
    """The experiment dashboard's data: which run went on when, with its layout and parameters."""
    port = ports + 2
    file = os.path.join(observed.folder, "watched.yaml")
    with open(file, "w", encoding="utf-8") as out:
        out.write(SWEEP.format(port=ports))
    results = os.path.join(observed.folder, "results")
    done = observed.islands.run("sweep", file, "--results", results, "--observe", "--prometheus-port", port,
                                timeout=120)
    assert done.code == 0, done
    assert f"Prometheus: http://127.0.0.1:{port}" in done.err
    assert prometheus_pids(observed.folder) == [], "ended with the sweep"
    # Its data stays: another Prometheus shows it.
    again = observed.start("observe", os.path.join(results, "observe"), "--prometheus-port", port, "--format", "json")
    try:
        json.loads(line_of(again.stdout))
        runs = ask(port, LAST + "islands_experiment_info[5m])")["result"]
        islands = ask(port, LAST + "islands_island_info[5m])")["result"]
    finally:
        again.send_signal(signal.SIGINT)
        again.communicate(timeout=20)
    assert {each["metric"]["job"] for each in runs + islands} == {"islands-watched"}
    assert {each["metric"]["layout"] for each in islands} == {"1ISL", "2ISL"}
    assert {each["metric"]["multisite"] for each in runs} == {"0", "50"}
    assert len({each["metric"]["run_id"] for each in runs}) == 4, "every run was seen, though clusters lived for 5 s"


def test_sweep_goes_on_without_prometheus(observed: Cluster, ports: int) -> None:
    file = os.path.join(observed.folder, "watched.yaml")
    with open(file, "w", encoding="utf-8") as out:
        out.write(SWEEP.format(port=ports).replace("seconds: 2", "seconds: 0.2").replace("1ISL, ", "")
                  .replace("0, 50", "0"))
    with socket.create_server(("127.0.0.1", ports + 2)):
        done = observed.islands.run("sweep", file, "--results", os.path.join(observed.folder, "results"), "--observe",
                                    "--prometheus-port", ports + 2, timeout=60)
    assert done.code == 0, done
    assert ": Address already in use; choose another with --prometheus-port; the sweep goes on" in done.err
