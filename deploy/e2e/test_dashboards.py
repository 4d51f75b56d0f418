"""The dashboards and rules as files: generated from their source, and as Grafana's dashboard-linter wants them.

Its rules (https://github.com/grafana/dashboard-linter, docs/index.md) are written here as tests, because it is a Go
program that no Debian package has. test_observed.py asks a real Prometheus for the data of every panel.
"""

import filecmp
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from conftest import Document
from dashboard_files import (FOLDER, NAMES, STRING, TOOLS, Target, load, panels, rules, selectors, substitute,
                             targets, tool)

# Units that the linter knows and that are used here; Grafana's list is valueFormats/categories.ts.
UNITS = {"none", "string", "short", "percentunit", "s", "bytes", "Bps", "ops", "cps"}
# Rules of the linter that are not followed, each with its reason.
NOT_FOLLOWED = {
    "template-instance-rule": "an island is chosen by its label `island`, which stays when its port does not",
    "target-instance-rule": "every selector has a matcher for island instead, see test_selectors_use_the_variables",
    "target-logql-rule": "no Loki", "target-logql-auto-rule": "no Loki",
}
# Counters that are looked at as they are, each with the reason.
WHOLE = {"islands_restarts_total": "goes on over restarts: no interval holds one that takes longer"}


@pytest.fixture(params=NAMES)
def dashboard(request: pytest.FixtureRequest) -> Document:
    return load(request.param)


def variables(dashboard: Document, kind: str) -> dict[str, Document]:
    return {each["name"]: each for each in dashboard["templating"]["list"] if each["type"] == kind}


def test_json_is_what_the_source_makes(tmp_path: pathlib.Path) -> None:
    python = next((each for each in (os.path.join(TOOLS, "venv", "bin", "python"), sys.executable)
                   if os.access(each, os.X_OK) and subprocess.run(
                       [each, "-c", "import grafana_foundation_sdk"], capture_output=True).returncode == 0), None)
    if python is None:
        pytest.skip("grafana-foundation-sdk is not installed (deploy/install-packages.sh test needs PyPI for it)")
    subprocess.run([python, "-B", os.path.join(FOLDER, "generate.py"), tmp_path], check=True, timeout=60)
    for name in NAMES:
        assert filecmp.cmp(tmp_path / f"{name}.json", os.path.join(FOLDER, f"{name}.json"), shallow=False), \
            f"{name}.json is not what dashboards/generate.py writes; run `make dashboards`"


def data_sources(part: object) -> Iterator[str]:
    """What is asked, by every panel, query, variable and annotation."""
    if isinstance(part, dict):
        if "datasource" in part:
            yield part["datasource"]["uid"]
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from data_sources(each)


def test_template_datasource(dashboard: Document) -> None:
    """Any Grafana's default Prometheus. It knows this by both words; any other name or uid is of one Grafana."""
    (source,) = variables(dashboard, "datasource").values()
    assert (source["name"], source["label"], source["query"]) == ("datasource", "Data source", "prometheus")
    assert (source["current"]["text"], source["current"]["value"]) == ("default", "default")
    assert "regex" not in source and not source["multi"] and not source["includeAll"]
    assert set(data_sources(dashboard)) == {"${datasource}"}


def test_template_job(dashboard: Document) -> None:
    job = variables(dashboard, "query")["job"]
    assert job["datasource"]["uid"] == "${datasource}"
    assert (job["label"], job["multi"], job["allValue"]) == ("Job", True, ".+")


def test_template_island(dashboard: Document) -> None:
    """What template-instance-rule asks for, of the variable that we have instead."""
    assert "instance" not in variables(dashboard, "query")
    island = variables(dashboard, "query")["island"]
    assert island["datasource"]["uid"] == "${datasource}"
    assert (island["label"], island["multi"], island["allValue"]) == ("Island", True, ".+")


def test_template_label_promql_and_reload(dashboard: Document) -> None:
    for each in variables(dashboard, "query").values():
        assert re.fullmatch(r"label_values\(islands_\w+(\{.*\})?, \w+\)", each["query"]), each["name"]
        assert each["refresh"] == 2, "reload when the time range changes"


def test_variables_are_used_and_known(dashboard: Document) -> None:
    known = {each["name"] for each in dashboard["templating"]["list"]} | {"__rate_interval", "__all"}
    text = json.dumps(dashboard)
    used = set(re.findall(r"\$\{?(\w+)", text))
    assert used <= known, "a variable that no one sets"
    assert known <= used, "a variable that nothing uses"


def test_panel_rules(dashboard: Document) -> None:
    titles = []
    for panel in panels(dashboard):
        titles.append(panel["title"])
        assert panel["title"] and panel["description"].endswith("."), panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}", panel["title"]
    assert dashboard["editable"] is True


def test_panels_are_placed_apart(dashboard: Document) -> None:
    """Each in the 24 columns, no two on the same cell, and every panel's and query's name is its own."""
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels(dashboard):
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters), panel["title"]


@pytest.mark.parametrize("target", list(targets()), ids=lambda target: f"{target.dashboard}, {target.panel}")
def test_selectors_use_the_variables(target: Target) -> None:
    """target-job-rule; target-rate-interval-rule; target-counter-agg-rule; and a matcher for island everywhere."""
    found = selectors(target.expr)
    assert found
    for match in found:
        # A gateway is of no island.
        of_gateway = match["metric"].startswith("islands_gateway_") or 'gateway!=""' in (match["matchers"] or "")
        by_job = '{job=~"$job"' if of_gateway else '{job=~"$job", island=~"$island"'
        assert match["matchers"] and match["matchers"].startswith(by_job), match[0]
        before = target.expr[:match.start()]
        if match["range"]:
            assert match["range"] == "[$__rate_interval]", match[0]
        if match["metric"].endswith(("_total", "_bucket", "_sum", "_count")) and match["metric"] not in WHOLE:
            assert re.search(r"\b(rate|increase|changes)\($", before), f"{match[0]}: a counter must be under rate"


def test_what_draws_them_is_pinned() -> None:
    """test_drawn.py's packages: one release each, Grafana's that of compose.yaml, from whatever registry there is."""
    wanted, locked = (read_json(f"draw/{name}.json") for name in ("package", "package-lock"))
    releases = wanted["dependencies"] | wanted["devDependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", release) for release in releases.values())
    packages = locked["packages"]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in releases} == releases
    assert all("resolved" not in package for package in packages.values())
    image = read_yaml("compose.yaml")["services"]["grafana"]["image"]
    assert {releases[f"@grafana/{name}"] for name in ("data", "schema", "ui")} == {image.rpartition(":")[2]}


def run_promtool(folder: str | pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    promtool = tool("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (package prometheus)")
    return subprocess.run([promtool, *arguments], capture_output=True, text=True, timeout=60, cwd=folder)


def test_promtool_parses_every_expression(tmp_path: pathlib.Path) -> None:
    written = [{"record": f"panel:number:{number}", "expr": substitute(target.expr)}
               for number, target in enumerate(targets())]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": written}]}))
    done = run_promtool(tmp_path, "check", "rules", "--lint=none", "panels.yml")
    assert done.returncode == 0, done.stderr


# ---- Rules -----------------------------------------------------------------------------------------------------------


def test_rules_are_named_and_explained() -> None:
    for rule in rules():
        if "record" in rule:
            assert re.fullmatch(r"[a-z_]+:[a-z_]+:[a-z0-9_]+", rule["record"]), "level:metric:operations"
            continue
        assert rule["labels"]["severity"] in ("warning", "critical"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description", "what_to_do"}, rule["alert"]
        assert all(text.strip() for text in rule["annotations"].values())


def test_readme_lists_every_alert() -> None:
    with open(os.path.join(FOLDER, "README.md"), encoding="utf-8") as file:
        listed = re.findall(r"^\| (Island\w+) \| (\w+) \|", file.read(), re.M)
    assert listed == [(rule["alert"], rule["labels"]["severity"]) for rule in rules() if "alert" in rule]


def test_promtool_tests_the_rules() -> None:
    checked = run_promtool(FOLDER, "check", "rules", "rules.yml")
    assert checked.returncode == 0, checked
    done = run_promtool(FOLDER, "test", "rules", "rules_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("instead", ["never", "always"])
def test_every_alert_is_tested_both_ways(instead: str, tmp_path: pathlib.Path) -> None:
    """rules_test.yml must notice each alert that never fires, and each that fires whatever happens."""
    with open(os.path.join(FOLDER, "rules.yml"), encoding="utf-8") as file:
        document = yaml.safe_load(file)
    alerts = [rule for group in document["groups"] for rule in group["rules"] if "alert" in rule]
    for rule in alerts:
        rule.pop("for", None)
        metric = re.search(r"\b(up|islands_\w+|\w+:\w+:\w+)\b", STRING.sub("", rule["expr"]))
        assert metric, rule
        rule["expr"] = "vector(0) > 1" if instead == "never" else f"{metric[0]} * 0 == 0"
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(document))
    with open(os.path.join(FOLDER, "rules_test.yml"), encoding="utf-8") as file:
        (tmp_path / "rules_test.yml").write_text(file.read())
    done = run_promtool(tmp_path, "test", "rules", "rules_test.yml")
    assert done.returncode != 0
    for rule in alerts:
        assert rule["alert"] in done.stdout + done.stderr


# ---- Files for Prometheus and Grafana servers ------------------------------------------------------------------------


def read_yaml(name: str) -> Any:
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return yaml.safe_load(file)


def read_json(name: str) -> Any:
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return json.load(file)


def test_promtool_accepts_the_configuration() -> None:
    done = run_promtool(FOLDER, "check", "config", "prometheus.yml")
    assert done.returncode == 0, done


def test_intervals_agree() -> None:
    """Grafana's $__rate_interval is made from the data source's timeInterval, which has to be the scrape interval."""
    (source,) = read_yaml("provisioning/datasources/islands.yaml")["datasources"]
    assert source["jsonData"]["timeInterval"] == read_yaml("prometheus.yml")["global"]["scrape_interval"]
    (provider,) = read_yaml("provisioning/dashboards/islands.yaml")["providers"]
    variables = {source["url"], provider["options"]["path"]}
    assert variables == {"${ISLANDS_PROMETHEUS_URL}", "${ISLANDS_DASHBOARDS}"}


def test_containers_listen_on_loopback_and_mount_what_exists() -> None:
    services = read_yaml("compose.yaml")["services"]
    assert "--web.listen-address=127.0.0.1:9090" in services["prometheus"]["command"]
    grafana = services["grafana"]["environment"]
    assert grafana["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    for service in services.values():
        # With the host's network there are no published ports: what listens is what the two lines above say.
        assert service["network_mode"] == "host" and "ports" not in service
        for source in (volume.rsplit(":", 2 if volume.endswith(":ro") else 1)[0] for volume in service["volumes"]):
            if source.startswith("."):
                assert os.path.exists(os.path.join(FOLDER, source)), source
    mounts = [volume.rsplit(":", 2) for volume in services["grafana"]["volumes"] if ":ro" in volume]
    mounted = {inside: outside for outside, inside, _ in mounts}
    assert mounted[grafana["ISLANDS_DASHBOARDS"]] == "."
    assert mounted[os.path.dirname(grafana["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])] == "."
