#!/usr/bin/env python3
"""Writes the Grafana dashboards beside this file: cluster.json, island.json, experiment.json.

    dashboards/generate.py [FOLDER]       make dashboards

Needs the package named in requirements.txt; the JSON that is committed needs nothing, and a test compares both.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from cluster import cluster
from experiment import experiment
from island import island
from panels import Annotation, Board

HERE = os.path.dirname(os.path.abspath(__file__))
DASHBOARDS: dict[str, Callable[[], Board]] = {
    "cluster.json": cluster, "island.json": island, "experiment.json": experiment}


def document(made: Dashboard, annotations: Sequence[Annotation]) -> dict[str, Any]:
    """The dashboard as JSON values, panels numbered, what the SDK does not know about annotations added."""
    for builder, _ in annotations:
        made.annotation(builder)
    built = json.loads(JSONEncoder().encode(made.build()))
    for written, (_, more) in zip(built["annotations"]["list"], annotations):
        written.update(more)
    for number, panel in enumerate(built["panels"], 1):
        panel["id"] = number
    return built


def text(value: object, depth: int = 0) -> str:
    """JSON with a line for each property of a panel, so that a difference shows where it is and files stay short."""
    if depth == 3 or not isinstance(value, (dict, list)) or not value:
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    if isinstance(value, dict):
        begin, end = "{", "}"
        items = [f"{json.dumps(key)}: {text(value[key], depth + 1)}" for key in sorted(value)]
    else:
        begin, end = "[", "]"
        items = [text(each, depth + 1) for each in value]
    indent = "\n" + "  " * depth
    return begin + indent + "  " + ("," + indent + "  ").join(items) + indent + end


def write(folder: str) -> None:
    for name, make in DASHBOARDS.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text(document(*make())) + "\n")


if __name__ == "__main__":
    write(sys.argv[1] if len(sys.argv) > 1 else HERE)
