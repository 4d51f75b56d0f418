"""The result directory of a sweep: what was to be run, what has been, by which build and on which machine.

    sweep.json              the whole: experiments, machine, build, command, begin and end, notes
    measured.json           what `islands machine --measure` wrote, if the sweep was given it, for the report
    EXPERIMENT/plan.json    axes, measure, plots: what Plan.document says
    EXPERIMENT/sweep.yaml   the file it came from
    EXPERIMENT/results.jsonl  a line per finished run, appended; of several lines with one id the last counts
    EXPERIMENT/runs/ID/     the run directory of `islands run`

Invariant: a line of results.jsonl is written only when its run has ended and its directory lies in its place.
"""

import contextlib
import datetime
import fcntl
import glob
import hashlib
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from islands_command import Document, Failed, Islands, json_of, run_program, writing
from sweeping.machine import Machine
from sweeping.plan import Block, Plan, Point, Run
from sweeping.sweep_file import SweepFile

SHOWN = ("title", "reference", "plots", "notes", "durability")  # that one follows from the others
MEASURED = "measured.json"
IDENTITY = ("build", "machine_summary", "cpu", "kernel")
MEMORY_SIZE = re.compile(r", [\d.]+ [KMGT]iB\b")  # in a machine's summary; some virtual machines' grows and shrinks


class Entry(TypedDict, total=False):
    """A line of results.jsonl, or what is known of it."""
    id: str
    repetition: int
    axes: Point
    ok: bool
    error: str | None
    skipped: str  # why
    metrics: dict[str, float | None]
    islands: int
    workers: int
    layout: str
    placement: str | None
    durability: str
    votes: str
    log_on: str | None  # kind of file system, if there is a log
    sum_check: str | None
    run_directory: str | None
    command: str  # `islands run ...`, or the program with its options
    started: str
    build: str


# Of the workers' time: more than that in other programs' hands, or another virtual machine's, is no quiet machine. The
# kernel needs some on any.
DISTURBED = {"others_share": 0.05, "stolen_share": 0.02}


def disturbed(metrics: Mapping[str, Any]) -> bool:
    """Whether others used the cores of a run while it measured."""
    return any((metrics.get(name) or 0) > limit for name, limit in DISTURBED.items())


def note_on_disturbance(metrics: Iterable[Mapping[str, Any]]) -> str:
    """Of these runs; "" if none was."""
    of_runs = [*metrics]
    found = [each for each in of_runs if disturbed(each)]
    if not found:
        return ""
    most = max(each.get(name) or 0 for each in found for name in DISTURBED)
    return (f"in {len(found)} of {len(of_runs)} runs other programs had the workers' cores for a part of the time, up "
            f"to {most:.0%}: such figures are too low, and uncertain")


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def cpu_model() -> str:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.lower().startswith(("model name", "cpu model", "cpu part")):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def operating_system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"


def build_hash(islands: Islands) -> str:
    """Of everything that runs: commands, islands, workloads, programs."""
    folder = os.path.dirname(os.path.realpath(islands.binary))
    files = [os.path.join(folder, name) for name in ("islands", "islandd", "islands-logger")]
    files += sorted(glob.glob(os.path.join(folder, "..", "lib", "islands", "*")))
    whole = hashlib.sha256()
    for file in filter(os.path.isfile, files):
        with open(file, "rb") as content:
            whole.update(os.path.basename(file).encode() + content.read())
    return whole.hexdigest()[:12]


def ask_doctor(islands: Islands, *file: str) -> Document | None:
    """What `islands doctor` says of the machine before anything is measured, told in one line on stderr; None if it
    cannot be asked, which stops nothing."""
    try:
        found: Document = json_of([islands.binary, "doctor", *file, "--brief", "--format", "json"], codes=(0, 1))
    except (Failed, OSError):
        found = {}
    if "brief" not in found:
        print("doctor: cannot be asked; see `islands doctor`", file=sys.stderr)
        return None
    print(f"doctor: {found['brief']}; see `islands doctor`", file=sys.stderr)
    return found


def settings_changed(before: Document | None, after: Document | None) -> str:
    """What of the machine has become a problem, or is none any more, between two answers of ask_doctor; "" if nothing.
    Load by others comes and goes, and each run says it of itself."""
    if not before or not after:
        return ""
    then, now = ({each["name"] for each in found["findings"] if each["severity"] == "problem"
                  and each["name"] not in ("other load", "steal")} for found in (before, after))
    return "; ".join([f"{name} is a problem now" for name in sorted(now - then)] +
                     [f"{name} is no problem any more" for name in sorted(then - now)])


def identify(islands: Islands, machine: Machine, *file: str) -> Document:
    """What makes results comparable, and more that a reader wants to know; with the state of the machine, of the cores
    of a deployment file if there is one."""
    text, _ = run_program([islands.binary, "machine"])
    version, _ = run_program([islands.binary, "--version"])
    return {"machine": machine.report, "machine_text": text.strip(), "machine_summary": machine.report["summary"],
            "system": {"cpu": cpu_model(), "kernel": platform.release(), "os": operating_system()},
            "cpu": cpu_model(), "kernel": platform.release(),
            "version": version.split()[-1], "build": build_hash(islands), "doctor": ask_doctor(islands, *file)}


def write_json(path: str, document: Document) -> None:
    """All or nothing: a power cut leaves the old file or the new one."""
    with writing(path + ".new") as out:
        json.dump(document, out, indent=1)
        out.write("\n")
        out.flush()
        os.fsync(out.fileno())
    os.replace(path + ".new", path)


def read_json(path: str) -> Document | None:
    """The object in a file, None if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def read_lines(path: str) -> dict[str, Entry]:
    """Lines of a results.jsonl by id; a torn last line, of a sweep that was killed, is no line."""
    found: dict[str, Entry] = {}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                    found[entry["id"]] = entry
                except (ValueError, KeyError, TypeError):
                    continue
    except OSError:
        pass
    return found


def same_plans(directory: str, document: Document, plans: Sequence[Plan]) -> bool:
    """Whether a directory with this sweep.json holds results of these very plans."""
    if document.get("figures") != [plan.experiment.name for plan in plans]:
        return False
    return all(deciding(read_json(os.path.join(directory, plan.experiment.name, "plan.json"))) ==
               deciding(json.loads(json.dumps(plan.document()))) for plan in plans)


def deciding(document: Document | None) -> Document:
    """The part of a plan.json that runs depend on; titles and plots may change between them."""
    return {key: value for key, value in (document or {}).items() if key not in SHOWN}


class Results:
    """An open result directory; nobody else writes to it meanwhile."""

    def __init__(self, directory: str, plans: Sequence[Plan]) -> None:
        self.directory, self.plans = directory, plans
        os.makedirs(directory, exist_ok=True)
        self.lock = open(os.path.join(directory, ".lock"), "w", encoding="utf-8")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Failed(f"another sweep is writing to {directory}; wait for it or stop it") from None
        self.read()

    def read(self) -> None:
        self.document = read_json(self.path("sweep.json")) or {}
        self.entries = {plan.experiment.name: read_lines(self.path(plan.experiment.name, "results.jsonl"))
                        for plan in self.plans}

    def path(self, *parts: str) -> str:
        return os.path.join(self.directory, *parts)

    def matches(self) -> bool:
        """Whether these are results of the very same plans."""
        return same_plans(self.directory, self.document, self.plans)

    def differences(self, identity: Document) -> list[str]:
        """What is not as it was when this began."""
        names = {"build": "the binaries", "machine_summary": "the machine", "cpu": "the processor",
                 "kernel": "the kernel"}
        return [f"{names[name]}: {self.document.get(name)} then, {identity[name]} now" for name in IDENTITY
                if MEMORY_SIZE.sub("", str(self.document.get(name))) != MEMORY_SIZE.sub("", str(identity[name]))]

    def begin(self, sweep: SweepFile, identity: Document, command: str) -> None:
        """Anew: what was there of these experiments is removed."""
        work = self.document.get("work")  # of one that was killed
        for plan in self.plans:
            shutil.rmtree(self.path(plan.experiment.name), ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path(MEASURED))
        self.read()
        self.document = {"format": 1, "name": sweep.name, "title": sweep.title,
                         "figures": [plan.experiment.name for plan in self.plans], **identity, "command": command,
                         "started": now(), "finished": None, "seconds": 0.0, "complete": False, "notes": []}
        if work:
            self.document["work"] = work
        self.describe(sweep)

    def describe(self, sweep: SweepFile) -> None:
        """Writes down what is to be run, and how it is to be shown."""
        self.document["title"] = sweep.title
        for plan in self.plans:
            os.makedirs(self.path(plan.experiment.name, "runs"), exist_ok=True)
            write_json(self.path(plan.experiment.name, "plan.json"), plan.document())
            with writing(self.path(plan.experiment.name, "sweep.yaml")) as out:
                out.write(plan.experiment.text)
        self.save()

    def keep_measured(self, file: str) -> None:
        shutil.copyfile(file, self.path(MEASURED + ".new"))
        os.replace(self.path(MEASURED + ".new"), self.path(MEASURED))

    def note(self, text: str) -> None:
        if text not in self.document["notes"]:
            self.document["notes"].append(text)
        self.save()

    def save(self) -> None:
        write_json(self.path("sweep.json"), self.document)

    def left(self, plan: Plan) -> list[tuple[Block, list[Run]]]:
        """Runs that have not ended well, in blocks."""
        done = {id for id, entry in self.entries[plan.experiment.name].items() if entry["ok"]}
        return [(block, runs) for block in plan.blocks
                if (runs := [run for run in block.runs if run.id not in done])]

    def add(self, plan: Plan, entry: Entry) -> None:
        name = plan.experiment.name
        self.entries[name][entry["id"]] = entry
        line = json.dumps(entry).encode() + b"\n"
        with open(self.path(name, "results.jsonl"), "ab+") as out:
            if out.tell() > 0:
                out.seek(-1, os.SEEK_END)
                line = line if out.read(1) == b"\n" else b"\n" + line  # after a torn line
            out.write(line)

    def finish(self, seconds: float) -> None:
        self.document["seconds"] = round(self.document["seconds"] + seconds, 1)
        self.document["complete"] = not any(self.left(plan) for plan in self.plans)
        self.document["commit"] = self.commit()
        if self.document["complete"]:
            self.document["finished"] = now()
        self.save()

    def commit(self) -> str:
        """As the newest run says; '' without one, or if not built from a checkout."""
        files = glob.glob(os.path.join(glob.escape(self.directory), "*", "runs", "*", "meta.json"))
        newest = read_json(max(files, key=os.path.getmtime)) if files else None
        return (newest or {}).get("commit", "")

    def failures(self) -> list[Document]:
        return [{**entry, "experiment": plan.experiment.name} for plan in self.plans
                for entry in self.entries[plan.experiment.name].values() if not entry["ok"]]


def sweeps_in(parent: str) -> list[tuple[str, Document]]:
    """(directory, sweep.json) of all that lie there."""
    files = glob.glob(os.path.join(glob.escape(parent), "*", "sweep.json"))
    return [(os.path.dirname(file), document) for file in files if (document := read_json(file)) is not None]


def of_sweep(parent: str, name: str) -> list[tuple[str, Document]]:
    """Those of this sweep, the newest first."""
    return sorted((found for found in sweeps_in(parent) if found[1].get("name") == name),
                  key=lambda found: (found[1].get("started", ""), found[0]), reverse=True)


def abandoned(parent: str) -> list[str]:
    """Folders of clusters of sweeps that were killed: their sweep.json names one, and nobody holds their lock."""
    found = []
    for directory, document in sweeps_in(parent):
        if document.get("work"):
            with open(os.path.join(directory, ".lock"), "a", encoding="utf-8") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    continue
                found.append(document["work"])
    return found


def new_directory(parent: str, name: str) -> str:
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    path = os.path.join(parent, f"{name}-{stamp}")
    number = 2
    while os.path.exists(path):
        path, number = os.path.join(parent, f"{name}-{stamp}-{number}"), number + 1
    return path
