"""From an experiment and a machine to runs: points (values of all axes), blocks (points of one deployment), order.

A run is a point and a repetition. Runs of one deployment and one repetition are a block: the cluster is started with
fresh data, carries them out, and is stopped. Blocks are shuffled within a repetition, and runs within a block, by the
sweep's seed, so that what changes slowly on a machine does not follow an axis; repetitions come one after the other, so
that an interrupted sweep has some of everything.
"""

import hashlib
import itertools
import random
from collections.abc import Iterable, Sequence

from durability import given, named_in
from islands_command import Document, idle, misplaced, option, without_effect, word
from sweeping.machine import ONE_DOMAIN, Machine
from sweeping.sweep_file import DEPLOYMENT_AXES, RATE_AUTO, ROWS_TOTAL, RUN_OPTIONS, Experiment
from sweeping.tree import BadFile, Scalar, line_and_column

MAX_RUNS = 100_000
# Of a deployment, never used: a sweep must not touch data that is there already, and loads every layout's afresh.
DIRECTORIES = (("data", "directory"), ("storage", "log", "directory"), ("storage", "log", "ring_directory"),
               ("control", "directory"))

Point = dict[str, Scalar]     # axis -> value
Settings = dict[str, Scalar]  # those of a point that a deployment has


class Run:
    def __init__(self, id: str, point: Point, repetition: int) -> None:
        self.id, self.point, self.repetition = id, point, repetition


class Block:
    def __init__(self, experiment: Experiment, settings: Settings, repetition: int, runs: list[Run]) -> None:
        self.experiment, self.settings, self.repetition, self.runs = experiment, settings, repetition, runs


def object_of(path: str) -> Document:
    """One that is built again is another: a sweep does not go on with it."""
    with open(path, "rb") as file:
        return {"path": path, "sha256": hashlib.sha256(file.read()).hexdigest()}


class Plan:
    def __init__(self, experiment: Experiment, axes: dict[str, list[Scalar]], notes: list[str], points: list[Point],
                 runs: list[Run], blocks: list[Block]) -> None:
        self.experiment, self.axes, self.notes = experiment, axes, notes
        self.points, self.runs, self.blocks = points, runs, blocks

    def durability(self) -> str | None:
        """Of all clusters; None where there are none, or an axis says it."""
        experiment = self.experiment
        return named_in(experiment.deployment) if experiment.workload and "durability" not in self.axes else None

    def document(self) -> Document:
        """What plan.json holds: for people, for the report, and to tell whether a sweep can go on."""
        experiment = self.experiment
        return {"format": 1, "name": experiment.name, "title": experiment.title, "reference": experiment.reference,
                "workload": experiment.workload, "program": experiment.program,
                **({"object": object_of(experiment.object)} if experiment.object else {}),
                "deployment": experiment.deployment, "parameters": experiment.parameters,
                "durability": self.durability(),
                "axes": [{"name": name, "values": values} for name, values in self.axes.items()],
                "measure": experiment.measure, "seed": experiment.seed, "plots": experiment.plots,
                "notes": self.notes, "points": len(self.points), "runs": len(self.runs)}


def resolve_axes(experiment: Experiment, machine: Machine) -> tuple[dict[str, list[Scalar]], list[str]]:
    """Axes with their values on this machine, and what is to be said about them."""
    axes: dict[str, list[Scalar]] = {}
    notes: list[str] = []
    for name, values in experiment.axes.items():
        if isinstance(values, str):
            known = machine.values(name, cores_of({}, experiment, machine))
            assert known is not None, "read_axes lets no other axis say 'machine'"
            values, note = known
            if note:
                notes.append(note)
        axes[name] = values
    if "cut" in axes and machine.sockets == 1 and "CG" in axes["cut"] and len(axes["cut"]) > 1:
        axes["cut"] = [cut for cut in axes["cut"] if cut != "CG"]
        notes.append("one socket: CG, an island per socket, is SE here")
    placements = axes.get("placement", [])
    by_hand = bool(experiment.deployment.get("islands"))
    if {"islands", "spread"} <= set(placements) and (by_hand or machine.domains == 1):
        axes["placement"] = [placement for placement in placements if placement != "spread"]
        notes.append("islands by hand lie where their cpus say: placement spread is islands" if by_hand else ONE_DOMAIN)
    if {"same-cache", "same-socket"} <= set(axes.get("where", [])) and machine.domains == machine.sockets:
        axes["where"] = [where for where in axes["where"] if where != "same-socket"]
        notes.append("one cache for all cores of a socket: same-socket is same-cache")
    too_many = [cores for cores in axes.get("cores", []) if isinstance(cores, int) and cores > machine.cores]
    if too_many:
        axes["cores"] = [cores for cores in axes["cores"] if cores not in too_many]
        notes.append(f"left out, more than this machine's {machine.cores} cores: {', '.join(map(str, too_many))}")
    fixed = experiment.deployment.get("cores")
    if isinstance(fixed, int) and fixed > machine.cores:
        notes.append(f"cores: {fixed} in the file, all {machine.cores} of this machine")
    unused = [".".join(path) for path in DIRECTORIES if given(experiment.deployment, path)]
    if unused:
        notes.append(f"not used, of the deployment: {', '.join(unused)}; data is loaded afresh, into a temporary "
                     "folder (where TMPDIR says)")
    if any(not values for values in axes.values()):
        raise BadFile(f"{experiment.file}: nothing is left of an axis on this machine ({'; '.join(notes)})")
    return axes, notes


def cores_of(point: Point, experiment: Experiment, machine: Machine) -> int:
    cores = point.get("cores", experiment.deployment.get("cores", "all"))
    return cores if isinstance(cores, int) and cores <= machine.cores else machine.cores


def settings_of(point: Point, experiment: Experiment, machine: Machine) -> Settings:
    """The deployment axes of a point: what differs between clusters. `cut` becomes a layout."""
    settings = {name: point[name] for name in DEPLOYMENT_AXES if name in point}
    if "cut" in settings:
        settings["layout"] = machine.layout_of_cut(str(settings.pop("cut")), cores_of(point, experiment, machine))
    return settings


def parameters_of(point: Point, experiment: Experiment) -> dict[str, Scalar]:
    """What the workload or program is told: fixed parameters, and those axes that are no settings."""
    return experiment.parameters | {name: value for name, value in point.items()
                                    if (experiment.program or name not in DEPLOYMENT_AXES) and name not in RUN_OPTIONS}


def options_of(point: Point, experiment: Experiment) -> dict[str, Scalar]:
    """Of `islands run` at a point, but what has no effect there."""
    told = parameters_of(point, experiment) | {
        name: point[name] for name in (*RUN_OPTIONS, ROWS_TOTAL) if name in point}
    if told.get("rate") != RATE_AUTO:
        told.pop("p99_ms", None)  # there is no rate to find
    if description := experiment.description:
        for name in [parameter["name"] for parameter in description["parameters"]
                     if idle(parameter, told, description)]:
            del told[name]
    return told


def check_parameters(experiment: Experiment, points: Sequence[Point]) -> None:
    """Whether every run is told what its workload needs and nothing that does not apply, and whether all that is told
    has an effect somewhere."""
    description = experiment.description
    if description is None:
        return
    told = [experiment.parameters | point for point in points]
    found = {what: None for values in told for parameter in description["parameters"]
             if (what := misplaced(parameter, values, description))}
    found |= dict.fromkeys(without_effect(told, description))
    if "p99_ms" in told[0] and all(values.get("rate") != RATE_AUTO for values in told):
        found[f"found {option('p99_ms')} {word(told[0]['p99_ms'])}, expected it only with --rate {RATE_AUTO}"] = None
    if found:
        place = f"{experiment.file}:{line_and_column(experiment.kind_mark)}"
        raise BadFile("\n".join(f"{place}: {what}" for what in found))


def make(experiment: Experiment, machine: Machine) -> Plan:
    axes, notes = resolve_axes(experiment, machine)
    points = [dict(zip(axes, values)) for values in itertools.product(*axes.values())]
    repeat = experiment.measure["repeat"]
    if len(points) * repeat > MAX_RUNS:
        raise BadFile(f"{experiment.file}: {len(points) * repeat:,} runs; at most {MAX_RUNS:,}")
    check_parameters(experiment, points)
    numbers = itertools.count()
    rounds = [[Run(f"{next(numbers):04}", point, repetition) for point in points] for repetition in range(repeat)]
    return Plan(experiment, axes, notes, points, *arranged(experiment, machine, rounds))


def arranged(experiment: Experiment, machine: Machine, rounds: Iterable[list[Run]]) -> tuple[list[Run], list[Block]]:
    """The runs of all rounds, and these in blocks, in the order in which they are carried out."""
    runs: list[Run] = []
    blocks: list[Block] = []
    shuffle = random.Random(experiment.seed)
    for of_round in rounds:
        runs += of_round
        groups: dict[tuple[tuple[str, Scalar], ...], list[Run]] = {}
        for run in of_round:
            settings = settings_of(run.point, experiment, machine) if experiment.workload else {}
            groups.setdefault(tuple(sorted(settings.items())), []).append(run)
        parts = [Block(experiment, dict(settings), group[0].repetition, group) for settings, group in groups.items()]
        shuffle.shuffle(parts)
        for block in parts:
            shuffle.shuffle(block.runs)
        blocks += parts
    return runs, blocks
