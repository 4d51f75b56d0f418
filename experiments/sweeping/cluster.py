"""One deployment of a sweep: its file, checked where the user wrote it; up, runs, down."""

import copy
import os
import re
import shlex
from collections.abc import Iterable
from typing import TypedDict

import yaml

from durability import LOG, NONE, file_system, given, name_in
from islands_command import Document, Failed, Islands, RunReport, json_of, option, word
from sweeping.machine import Machine
from sweeping.measured import machine_file
from sweeping.observing import Observer, wait_until_seen
from sweeping.plan import DIRECTORIES, Block, Plan, Run, cores_of, options_of, parameters_of
from sweeping.sweep_file import Experiment
from sweeping.tree import BadFile, Node, Reader, Scalar, line_and_column

METRICS_PORT = 9400  # with --observe, unless the file says another
RUN_TIMEOUT_S = 1800  # beside what the run itself takes: loading large tables takes long
PLACES = {"transport": ("messaging", "transport"), "latching": ("storage", "latching"), "sites": ("data", "sites"),
          "durability": (*LOG, "durability")}

Path = tuple[str | int, ...]  # keys and indexes from the top of a file


class ProgramReport(TypedDict, total=False):
    """What a program says."""
    metrics: dict[str, float | None]
    placement: str
    skipped: str


def document(block: Block, machine: Machine, name: str) -> Document:
    """The deployment file of a block."""
    experiment = block.experiment
    point = block.runs[0].point
    cores = cores_of(point, experiment, machine)
    islands = machine.islands_of(block.settings.get("layout", experiment.deployment.get("layout")), cores)
    base: Document = copy.deepcopy(machine.substitute(experiment.deployment, cores, islands))
    base.setdefault("version", 1)
    if isinstance(base.get("cores"), int):
        base["cores"] = min(base["cores"], machine.cores)
    for *folders, key in DIRECTORIES:
        section = given(base, folders)
        if isinstance(section, dict):
            section.pop(key, None)
    if experiment.positions and (file := machine_file(base, experiment.positions[0])):
        base["machine"] = file  # this file lies elsewhere than the one that says it
    base["name"] = name
    base.setdefault("metrics", {"base_port": 0})  # a cluster of the user's may have the ports
    chosen = block.settings.get("durability")
    name_in(base, None if chosen is None else str(chosen))
    for setting, value in block.settings.items():
        if setting in ("rows_total", "durability"):
            continue  # an option of the run; said above, with votes
        where = base
        *folders, key = PLACES.get(setting, (setting,))
        for folder in folders:
            where = where.setdefault(folder, {})
        if isinstance(where, dict):  # else `check` complains
            where[key] = value
    choose_cores(base, machine)
    return base


def choose_cores(base: Document, machine: Machine) -> None:
    """Of some of the machine's cores, `workers` says which. A deployment's own `cores: 4` are always the first four."""
    cores, workers = base.get("cores"), base.get("workers")
    if isinstance(cores, int) and 0 < cores < machine.cores:
        if workers in ("spread", "mix"):
            base["cores"] = machine.cpus(cores, workers)
        elif workers == "os":
            base.setdefault("placement", "os")  # else the kernel has the choice among these few alone


def path_at(node: Node, mark_text: str, path: Path = ()) -> Path | None:
    """The path of keys to what stands at line:column of a file."""
    children: list[tuple[str | int, Node]] = [*node.value.items()] if isinstance(node.value, dict) else [
        *enumerate(node.sequence())]
    for key, child in children:
        if isinstance(child.value, (dict, list)):
            found = path_at(child, mark_text, path + (key,))
            if found:
                return found
        if mark_text in (line_and_column(child.mark), line_and_column(child.key_mark)):
            return path + (key,)
    return None


def position(experiment: Experiment, block: Block, path: Path | None) -> str:
    """file:line:column in what the user wrote, of a path in a deployment file made from it."""
    settings = {"layout": "layout", "cut": "layout"} | {name: PLACES.get(name, (name,))[-1] for name in block.settings}
    for axis, key in settings.items():
        if path and path[-1] == key and axis in experiment.axis_marks:
            file, mark = experiment.axis_marks[axis]
            return f"{file}:{line_and_column(mark)}"
    if experiment.positions is None:
        return f"{experiment.file}:1:1"
    file, node = experiment.positions
    for step in path or ():
        if isinstance(node.value, dict) and isinstance(step, str):
            node = node.value.get(step, node)
        elif isinstance(node.value, list) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
    return f"{file}:{line_and_column(node.key_mark)}"


def check(islands: Islands, block: Block, machine: Machine, folder: str) -> list[str]:
    """Complaints about a block's deployment, with the places of the sweep file."""
    # A path as long as that of the cluster itself: those of sockets have a limit.
    file = os.path.join(folder, f"{block.experiment.name}-9999", "islands.yaml")
    os.makedirs(os.path.dirname(file), exist_ok=True)
    with open(file, "w", encoding="utf-8") as out:
        yaml.safe_dump(document(block, machine, "check"), out, sort_keys=False)
    answer = json_of([islands.binary, "check", file, "--format", "json"], codes=(0, 2))
    if "complaints" not in answer:
        raise Failed(answer.get("error", {}).get("message", f"`islands check` says {answer}"))
    found = []
    tree = Reader(file).tree() if answer["complaints"] else None
    for complaint in answer["complaints"]:
        parts = re.match(re.escape(file) + r":(\d+:\d+): (.*)", complaint, re.DOTALL)
        where = position(block.experiment, block, path_at(tree, parts[1]) if tree and parts else None)
        found.append(f"{where}: {parts[2] if parts else complaint}")
    return found


def check_name(islands: Islands, experiment: Experiment) -> list[str]:
    """Whether there is such a workload or program."""
    where = f"{experiment.file}:{line_and_column(experiment.kind_mark)}"
    if experiment.object:
        return [] if os.path.isfile(experiment.object) else [f"{where}: found '{experiment.object}', expected a "
                                                             "workload's object that is built"]
    folders = [islands.library, *([] if experiment.program else [islands.own_library])]
    file = experiment.program or f"{experiment.workload}.so"
    if any(os.path.isfile(os.path.join(folder, file)) for folder in folders):
        return []
    built = sorted({name.removesuffix(".so") for folder in folders if os.path.isdir(folder)
                    for name in os.listdir(folder) if name.endswith(".so") != bool(experiment.program)
                    and os.path.isfile(os.path.join(folder, name))})
    return [f"{where}: found '{experiment.program or experiment.workload}', expected one that is built: "
            f"{', '.join(built)}"]


def check_all(islands: Islands, plans: Iterable[Plan], machine: Machine, folder: str) -> None:
    """Raises BadFile when a deployment of any plan cannot be, or there is nothing that would run."""
    complaints = []
    for plan in plans:
        complaints += check_name(islands, plan.experiment)
        blocks = {tuple(sorted(block.settings.items())): block for block in plan.blocks if plan.experiment.workload}
        found: dict[str, list[tuple[tuple[str, Scalar], ...]]] = {}  # complaint -> with which settings
        for settings, block in blocks.items():
            for complaint in check(islands, block, machine, folder):
                found.setdefault(complaint, []).append(settings)
        for complaint, where in found.items():
            first = ", ".join(f"{name} {word(value)}" for name, value in where[0])
            others = f" and {len(where) - 1} more" if len(where) > 1 else ""
            always = len(where) == len(blocks) > 1 or not first
            complaints.append(complaint + ("" if always else f" (with {first}{others})"))
    if complaints:
        raise BadFile("\n".join(dict.fromkeys(complaints)))


def workload_of(experiment: Experiment) -> str:
    """As `islands run` takes it."""
    return experiment.object or experiment.workload or ""


class Cluster:
    """A block's deployment, running."""

    def __init__(self, islands: Islands, block: Block, machine: Machine, folder: str,
                 observer: Observer | None = None) -> None:
        self.islands, self.block, self.observer = islands, block, observer
        os.makedirs(folder, exist_ok=True)
        self.file = os.path.join(folder, "islands.yaml")
        made = document(block, machine, block.experiment.name.replace("_", "-")[:32])
        if observer and made["metrics"] == {"base_port": 0}:
            made["metrics"] = {"base_port": METRICS_PORT}
        with open(self.file, "w", encoding="utf-8") as out:
            yaml.safe_dump(made, out, sort_keys=False)
        durable = given(made, (*LOG, "durability")) != NONE
        self.log_on = file_system(folder) if durable else None

    def up(self) -> None:
        if self.observer is None:
            self.islands.call("up", self.file)
            return
        status = self.islands.call("up", self.file, "--targets", self.observer.targets)
        wait_until_seen(self.observer, status["deployment"])

    def down(self) -> None:
        """What it has kept is destroyed too: rings of a log lie outside of its folder, in shared memory."""
        self.islands.call("down", self.file)
        if self.log_on:
            self.islands.call("destroy", self.file, "--yes")

    def options(self, run: Run) -> list[str]:
        """Of `islands run`."""
        experiment = self.block.experiment
        measure = experiment.measure
        words = ["--duration", str(measure["seconds"]), "--warmup", str(measure["warmup"]), "--seed",
                 str(experiment.seed + run.repetition)]
        for name, value in options_of(run.point, experiment).items():
            words += [option(name), word(value)]
        if self.log_on:
            words.append("--reload")  # rows that another run of this block has needed outlive it
        return words

    def command(self, run: Run, file: str) -> str:
        """What a user would type to make this run again, on a cluster of this deployment file that is up."""
        return shlex.join(["islands", "run", file, workload_of(self.block.experiment), *self.options(run)])

    def run(self, run: Run, results: str) -> RunReport:
        """What `islands run` reports."""
        experiment = self.block.experiment
        assert experiment.workload, "programs run alone"
        measure = experiment.measure
        # Exit code 1 with a result: its check failed. Without one there is an error.
        report = json_of([self.islands.binary, "run", self.file, workload_of(experiment), *self.options(run),
                          "--no-doctor", "--results", results, "--format", "json"],
                         timeout_s=RUN_TIMEOUT_S + measure["seconds"] + measure["warmup"], codes=(0, 1, 2, 124))
        if "error" in report:
            raise Failed(report["error"]["message"])
        for island in report["per_island"]:
            if island["lost"] or island["unresponsive"]:
                raise Failed(f"island {island['id']} " + ("was lost" if island["lost"] else "did not answer") +
                             " meanwhile: no measurement of this layout")
        return report


def program_words(experiment: Experiment, run: Run) -> list[str]:
    """The program's name and its options."""
    measure = experiment.measure
    words = [str(experiment.program), "--seconds", str(measure["seconds"]), "--warmup", str(measure["warmup"]),
             "--seed", str(experiment.seed + run.repetition)]
    for name, value in parameters_of(run.point, experiment).items():
        words += [option(name), word(value)]
    return words


def run_alone(islands: Islands, experiment: Experiment, run: Run) -> ProgramReport:
    """What a program prints: {"metrics": {...}} or {"skipped": "why"}."""
    assert experiment.program
    program = os.path.join(islands.library, experiment.program)
    if not os.access(program, os.X_OK):
        raise Failed(f"there is no program '{experiment.program}': no {program}")
    return json_of([program, *program_words(experiment, run)[1:], "--format", "json"],
                   timeout_s=120 + experiment.measure["seconds"] + experiment.measure["warmup"])
