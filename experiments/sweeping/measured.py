"""The file of `islands machine --measure` that is kept with a sweep's results, for its report to show."""

import os

from islands_command import Document, Islands, json_of
from sweeping.machine import Machine
from sweeping.results import read_json
from sweeping.sweep_file import Experiment
from sweeping.tree import BadFile

OPTION = "--measured"


def machine_file(deployment: Document, written_in: str) -> str | None:
    """The file that `machine:` names, if it names one, seen from here; `written_in` is the file that says it."""
    named = deployment.get("machine")
    if not isinstance(named, str) or not ("/" in named or named.endswith((".xml", ".json"))):
        return None
    return os.path.abspath(os.path.join(os.path.dirname(written_in), named))


def check(islands: Islands, file: str, machine: Machine) -> str | None:
    """What keeps it from being shown as this machine's round trips."""
    answer = json_of([islands.binary, "machine", file, "--format", "json"], codes=(0, 1, 2))
    if "error" in answer:
        return str(answer["error"]["message"])
    if "round_trip_ns" not in (read_json(file) or {}):
        return f"found {file}, expected what `islands machine --measure` writes"
    if not answer["is_this_machine"]:
        return (f"found {file} of another machine ({answer['summary']}), expected it of this one "
                f"({machine.report['summary']})")
    return None


def to_keep(islands: Islands, machine: Machine, experiments: list[Experiment], given: str | None) -> str | None:
    """The one that was given, or the first that a deployment has for this machine. BadFile: what was given is none."""
    if given is not None:
        if what := check(islands, given, machine):
            raise BadFile(f"{OPTION}: {what}")
        return given
    files = [file for experiment in experiments if experiment.positions
             and (file := machine_file(experiment.deployment, experiment.positions[0]))]
    return next((file for file in files if check(islands, file, machine) is None), None)
