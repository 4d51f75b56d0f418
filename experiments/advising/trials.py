"""The short runs behind an advice, as a sweep of their own: shuffled, checked, and kept in a result directory."""

import argparse
import signal
import tempfile
from collections.abc import Mapping, Sequence

from islands_command import (Document, Failed, Islands, complain, handle_signals, interrupt, remove_everything,
                             stop_everything)
from sweeping import plan as plans_of
from sweeping import results as result_files
from sweeping import table
from sweeping.cluster import check_all
from sweeping.machine import Machine
from sweeping.plan import Plan
from sweeping.runner import Runner
from sweeping.sweep_file import Experiment, Measure, SweepFile
from sweeping.table import PointMedians
from sweeping.tree import Reader


def experiment_of(arguments: argparse.Namespace, name: str, durability: str, axes: Mapping[str, Sequence[float]],
                  measure: Measure) -> Experiment:
    """`axes`: beside the layouts."""
    reader = Reader(arguments.file)
    tree = reader.tree()
    experiment = Experiment(name, arguments.file)
    experiment.title = f"advise: {name}"
    experiment.workload, experiment.description = arguments.workload, arguments.description
    experiment.deployment = tree.plain_mapping()
    experiment.positions = (arguments.file, tree)
    experiment.parameters = dict(arguments.parameters, mpl=arguments.mpl)
    experiment.axes = {"layout": arguments.layouts, "durability": [durability],
                       **{axis: [*values] for axis, values in axes.items()}}
    experiment.measure = measure
    experiment.seed = arguments.seed
    return experiment


def carry_out(islands: Islands, machine: Machine, experiment: Experiment, directory: str, identity: Document,
              command: str) -> tuple[list[PointMedians], Plan]:
    """Runs what `directory` does not hold yet; medians by point. Failed if anything went wrong: an advice from half of
    its runs is none."""
    plan = plans_of.make(experiment, machine)
    with tempfile.TemporaryDirectory(prefix="islands-advise-") as folder:
        check_all(islands, [plan], machine, folder)
    found = result_files.Results(directory, [plan])
    fits = found.matches() and not found.differences(identity)
    if found.document and not fits:
        complain(f"{directory} holds other runs, or those of another build or machine: measured again")
    if not fits:
        found.begin(SweepFile(experiment.name, experiment.title, [experiment]), identity, command)
    elif not found.left(plan):
        complain(f"using the runs in {directory}")
    work = tempfile.mkdtemp(prefix="islands-advise-")
    runner = Runner(islands, machine, found, work)
    try:
        runner.run_all()
    finally:
        handle_signals(signal.SIG_IGN)
        stop_everything(islands, work)
        remove_everything(islands, work)
        found.finish(0)
    handle_signals(interrupt)
    if found.failures():
        raise Failed(f"{len(found.failures())} runs failed; {found.failures()[0]['error']}")
    return table.medians(plan, found.entries[experiment.name]), plan
