"""A Prometheus beside a sweep: `islands observe`, and waiting until it has found a cluster."""

import contextlib
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

from islands_command import Islands, complain, end

# Prometheus takes up new targets every 5 s. A cluster whose runs are short would be gone by then.
PATIENCE_S = 10
OWNER = "__islands_control_directory"  # label of a target, dropped when it is scraped


class Observer(NamedTuple):
    targets: str     # where clusters write theirs
    url: str | None  # None if Prometheus does not run


def said_by(process: subprocess.Popen[str]) -> Any:
    """What `islands observe` reports: one line when all is there, or an error when it ends."""
    assert process.stdout
    text = process.stdout.readline()
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(text + process.stdout.read() or "{}")


@contextlib.contextmanager
def observing(islands: Islands, folder: str, port: int) -> Iterator[Observer]:
    """An Observer, while Prometheus runs; what it lacks is said, and the sweep goes on."""
    process = subprocess.Popen([islands.binary, "observe", folder, "--prometheus-port", str(port), "--end-with-parent",
                                "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               start_new_session=True)
    try:
        said = said_by(process)
        url = said.get("prometheus_url")
        if url:
            complain(f"Prometheus: {url} (process {said['prometheus_pid']})")
            for note in said["notes"]:
                complain(note)
        else:
            why = said.get("error", {}).get("message", "`islands observe` did not start")
            complain(f"{why}; the sweep goes on")
        yield Observer(os.path.join(folder, "targets"), url)
    finally:
        end(process)


def wait_until_seen(observer: Observer, deployment: str) -> bool:
    """Until Prometheus has read every island of a deployment that is up; false when it takes too long. It may still be
    about to drop the cluster before, whose islands had the same addresses; so the target's owner is looked at."""
    try:
        with open(os.path.join(observer.targets, deployment + ".json"), encoding="utf-8") as file:
            wanted = {(group["targets"][0], group["labels"][OWNER]) for group in json.load(file)}
    except OSError:
        return False  # they could not be written; the sweep goes on
    deadline = time.monotonic() + PATIENCE_S
    while observer.url and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{observer.url}/api/v1/targets?state=active", timeout=2) as answer:
                targets = json.load(answer)["data"]["activeTargets"]
        except (OSError, ValueError):
            return False  # gone, or not what we started
        if wanted <= {(target["discoveredLabels"]["__address__"], target["discoveredLabels"].get(OWNER))
                      for target in targets if target["health"] == "up"}:
            return True
        time.sleep(0.1)
    return False
