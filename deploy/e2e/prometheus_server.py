"""A real Prometheus on loopback, for tests: it reads islands every second and is asked over its HTTP API."""

import json
import math
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

import yaml

from cluster import wait_until
from dashboard_files import FOLDER

Labels = dict[str, str]


class Prometheus:
    """In `folder`, with dashboards/prometheus.yml and rules.yml; targets are written as file_sd, as --observe does."""

    def __init__(self, binary: str, folder: str, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.folder = os.path.join(folder, "prometheus")
        os.makedirs(os.path.join(self.folder, "targets"))
        for name in ("prometheus.yml", "rules.yml"):
            with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
                document = yaml.safe_load(file)
            if name == "prometheus.yml":
                document["global"]["evaluation_interval"] = "1s"
            else:
                for group in document["groups"]:
                    group["interval"] = "1s"
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                yaml.safe_dump(document, file)
        self.binary, self.listen = binary, f"127.0.0.1:{port}"
        self.process: subprocess.Popen[bytes] | None = None

    def targets(self, ports: Mapping[int, int], gateway: int = 0) -> None:
        """ports: {island: port}; `gateway`: its port, if there is one."""
        written = [{"targets": [f"127.0.0.1:{port}"], "labels": {"island": str(island)}}
                   for island, port in ports.items()]
        if gateway:
            written.append({"targets": [f"127.0.0.1:{gateway}"], "labels": {"gateway": "0"}})
        with open(os.path.join(self.folder, "targets", "islands.json"), "w", encoding="utf-8") as file:
            json.dump(written, file)

    def start(self) -> None:
        with open(os.path.join(self.folder, "log"), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [self.binary, f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/data",
                 f"--web.listen-address={self.listen}"], stdout=log, stderr=log)
        wait_until(self.ready, what="Prometheus, see its log: " + log.name)

    def ready(self) -> bool:
        assert self.process and self.process.poll() is None, "Prometheus ended: " + self.log()
        try:
            with urllib.request.urlopen(self.url + "/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def log(self) -> str:
        with open(os.path.join(self.folder, "log"), encoding="utf-8") as log:
            return log.read()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=30)

    def ask(self, path: str, **parameters: object) -> Any:
        request = urllib.request.Request(f"{self.url}/api/v1/{path}",
                                         urllib.parse.urlencode(parameters).encode() if parameters else None)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def at(self, expression: str, moment: float | None = None) -> list[tuple[Labels, float]]:
        """[(labels, value)] of an instant query; NaN is no value."""
        found = self.ask("query", query=expression, time=moment or time.time())["result"]
        return [(each["metric"], float(each["value"][1])) for each in found
                if not math.isnan(float(each["value"][1]))]

    def over(self, expression: str, start: float, end: float,
             step: float = 1) -> list[tuple[Labels, list[tuple[float, float]]]]:
        """[(labels, [(time, value)])] of a range query; NaN is no value."""
        found = self.ask("query_range", query=expression, start=start, end=end, step=step)["result"]
        series = [(each["metric"], [(moment, float(value)) for moment, value in each["values"]
                                    if not math.isnan(float(value))]) for each in found]
        return [(labels, values) for labels, values in series if values]
