"""What is in dashboards/: the panels' expressions, the rules', and which metrics they use. For the tests of them."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from conftest import ROOT, Document

FOLDER = os.path.join(ROOT, "dashboards")
TOOLS = os.path.join(ROOT, "build", "tools")
NAMES = ("cluster", "island", "experiment")
# A vector selector, its matchers, its range. Islands' metrics all have the prefix; `up` is Prometheus' own.
SELECTOR = re.compile(r"\b(?P<metric>islands_\w+|exposer_\w+|up)\b(?P<matchers>\{[^}]*\})?(?P<range>\[[^\]]*\])?")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


class Target(NamedTuple):
    dashboard: str
    panel: str
    expr: str
    legend: str
    instant: bool


def tool(name: str) -> str | None:
    """Path of a program that deploy/install-packages.sh keeps in build/tools, or None."""
    path = shutil.which(name) or os.path.join(TOOLS, name)
    return path if os.access(path, os.X_OK) else None


def load(name: str) -> Any:
    with open(os.path.join(FOLDER, name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def panels(dashboard: Document) -> list[Document]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def targets() -> Iterator[Target]:
    """Every query of every panel, and those of annotations."""
    for name in NAMES:
        dashboard = load(name)
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield Target(name, panel["title"], target["expr"], target["legendFormat"],
                             target.get("instant", False))
        for annotation in dashboard["annotations"]["list"]:
            yield Target(name, "annotation " + annotation["name"], annotation["expr"],
                         annotation["titleFormat"] + annotation["textFormat"], False)


def rules() -> list[Document]:
    with open(os.path.join(FOLDER, "rules.yml"), encoding="utf-8") as file:
        return [rule for group in yaml.safe_load(file)["groups"] for rule in group["rules"]]


def selectors(expression: str) -> list[re.Match[str]]:
    return list(SELECTOR.finditer(expression))


def substitute(expression: str, rate_interval: str = "4s", **values: str) -> str:
    """What Grafana makes of it: every variable that is not given stands for all."""
    expression = expression.replace("$__rate_interval", rate_interval)
    for name, value in values.items():
        expression = re.sub(rf"\$({name}\b|{{{name}}})", value, expression)
    return re.sub(r"\$(\w+)", ".*", expression)


def used_metrics() -> set[str]:
    """Names in panels, annotations, variables and rules; a histogram counts once."""
    texts = [target.expr for target in targets()] + [rule["expr"] for rule in rules()]
    for name in NAMES:
        texts += [each["query"] for each in load(name)["templating"]["list"] if each["type"] == "query"]
    names = {match["metric"] for text in texts for match in selectors(STRING.sub('""', text))}
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names} - {"up"}
