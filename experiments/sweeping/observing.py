"""A Prometheus beside a sweep: `islands observe`, and waiting until it has found a cluster."""

import collections
import contextlib
import json
import os
import subprocess
import time
import urllib.parse
import urllib.request

from islands_command import complain, end

# Prometheus takes up new targets every 5 s. A cluster whose runs are short would be gone by then.
PATIENCE_S = 10

# targets: where clusters write theirs. url: None if Prometheus does not run.
Observer = collections.namedtuple("Observer", "targets url")


def said_by(process):
    """What `islands observe` reports: one line when all is there, or an error when it ends."""
    text = process.stdout.readline()
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(text + process.stdout.read() or "{}")


@contextlib.contextmanager
def observing(islands, folder, port):
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


def wait_until_seen(observer, job, islands):
    """Until Prometheus has read every island of a job; false when it takes too long."""
    query = urllib.parse.urlencode({"query": f'count(up{{job="{job}"}} == 1)'})
    deadline = time.monotonic() + PATIENCE_S
    while observer.url and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{observer.url}/api/v1/query?{query}", timeout=2) as answer:
                found = json.load(answer)["data"]["result"]
        except (OSError, ValueError):
            return False  # gone, or not what we started
        if found and int(found[0]["value"][1]) == islands:
            return True
        time.sleep(0.1)
    return False
