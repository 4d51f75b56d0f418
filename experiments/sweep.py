#!/usr/bin/env python3
"""Runs a sweep file: series of experiments on clusters of this machine. README.md here describes the format."""

import argparse
import contextlib
import json
import os
import secrets
import re
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import NoReturn

from durability import DURABILITIES, EXPECTED
from islands_command import (ROOT, Document, Failed, Interrupted, Islands, complain, handle_signals, interrupt,
                             remove_everything, stop_everything, without_notes)
from sweeping import measured
from sweeping import plan as plans_of
from sweeping import results as result_files
from sweeping import sweep_file, table
from sweeping.cluster import check_all
from sweeping.machine import Machine
from sweeping.observing import Observer, observing
from sweeping.plan import Plan
from sweeping.results import Results
from sweeping.runner import Runner, estimate
from sweeping.sweep_file import Experiment, SweepFile
from sweeping.tree import BadFile

EPILOG = """A sweep that was interrupted goes on where it was: give the same command again. Runs that failed are tried
again the same way. Each run has its run directory below the results; `islands report` makes a page of them.

Data and logs of every cluster are its own, in a temporary folder (where TMPDIR says), and destroyed after its runs:
directories that a deployment names are never touched. Clusters keep nothing of what they acknowledge (durability none)
unless --durability, the axis of that name or the deployment says so.

A file's workload is a name, as `islands run` takes it, or the path of an object, relative to the file: build/bank.so.

examples:
  islands sweep experiments/quick.yaml          the paper's experiments, five minutes of them
  islands sweep experiments/all.yaml            at full length: an hour on two cores, hours on many
  islands sweep experiments/fig09.yaml --dry-run --repeat 5
  islands sweep experiments/quick.yaml --durability none lazy

exit codes: 0 every run's checks held, 1 failed, 2 usage or invalid file, 130 interrupted"""


def print_error(message: object, code: int) -> None:
    """With --format json, stdout is one document whatever happens."""
    print(json.dumps({"error": {"message": str(message), "exit_code": code}}, indent=1))

WORK_PREFIX = "islands-sweep-"  # of the folder with the clusters, below TMPDIR


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        if re.search(r"--format[ =]json\b", " ".join(sys.argv)):
            print_error(message, 2)
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def parse_arguments() -> argparse.Namespace:
    parser = Parser(prog="islands sweep", description="Runs a series of experiments from a sweep file.", epilog=EPILOG,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="SWEEPFILE", help="the sweep file")
    parser.add_argument("--results", metavar="DIR", help="the result directory itself; default: one under ./results, "
                        "named after the sweep and the time, or the newest incomplete one of the same sweep")
    parser.add_argument("--fresh", action="store_true", help="begin anew, whatever is incomplete")
    parser.add_argument("--mixed", action="store_true",
                        help="go on although binaries or machine changed meanwhile; the report will say so")
    parser.add_argument("--seconds", type=float, help="measured per run, whatever the file says")
    parser.add_argument("--warmup", type=float, help="before each, whatever the file says")
    parser.add_argument("--repeat", type=int, help="repetitions, whatever the file says")
    parser.add_argument("--durability", nargs="+", choices=DURABILITIES, metavar="DURABILITY",
                        help=f"of all clusters, whatever the file says: {EXPECTED} (+forced: with votes forced)")
    parser.add_argument("--observe", action="store_true", help="run Prometheus meanwhile, and tell a Grafana of this "
                        "machine; its data goes to the results; it takes some of the cores' time")
    parser.add_argument("--prometheus-port", type=int, default=9090, help="where it listens, on 127.0.0.1 "
                        "(default: %(default)s)")
    parser.add_argument(measured.OPTION, metavar="FILE", help="what `islands machine --measure --output FILE` has "
                        "written of this machine: kept with the results, and drawn by `islands report`; default: what "
                        "a deployment of the sweep names as its machine")
    parser.add_argument("--dry-run", action="store_true", help="say what would be run, and how long it takes")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of what is written to stdout")
    arguments = parser.parse_args()
    for name, low in (("seconds", 0.1), ("warmup", 0), ("repeat", 1)):
        value = getattr(arguments, name)
        if value is not None and not low <= value <= 86400:
            parser.error(f"--{name}: found {value}, expected at least {low}")
    if not 1024 <= arguments.prometheus_port <= 65535:
        parser.error(f"--prometheus-port: found {arguments.prometheus_port}, expected 1024 to 65535")
    return arguments


def override(experiments: Iterable[Experiment], arguments: argparse.Namespace) -> None:
    for experiment in experiments:
        measure = experiment.measure
        if arguments.durability and experiment.workload:
            experiment.axes["durability"] = list(dict.fromkeys(arguments.durability))
        if arguments.seconds is not None:
            measure["seconds"] = arguments.seconds
        if arguments.warmup is not None:
            measure["warmup"] = arguments.warmup
        if arguments.repeat is not None:
            measure["repeat"] = arguments.repeat


def duration(seconds: float) -> str:
    seconds = round(seconds)
    if seconds >= 3600:
        return f"{seconds // 3600} h {seconds // 60 % 60} min"
    return f"{seconds // 60}:{seconds % 60:02} min"


def dry_run(arguments: argparse.Namespace, plans: list[Plan]) -> int:
    seconds = sum(estimate([(plan, block, block.runs) for plan in plans for block in plan.blocks]))
    if arguments.format == "json":
        print(json.dumps({"runs": sum(len(plan.runs) for plan in plans), "seconds": round(seconds),
                          "experiments": [plan.document() for plan in plans]}, indent=1))
        return 0
    for plan in plans:
        axes = ", ".join(f"{name} {'/'.join(map(str, values))}" for name, values in plan.axes.items())
        clusters = f"on {len(plan.blocks):>3} clusters" if plan.experiment.workload else "without islands"
        durability = plan.durability()
        always = f"; durability {durability}" if durability else ""
        print(f"{plan.experiment.name:<8} {len(plan.runs):>5} runs {clusters}: {axes}{always}")
        for note in plan.notes:
            print(f"         note: {note}")
    print(f"{sum(len(plan.runs) for plan in plans)} runs, about {duration(seconds)}")
    return 0


def open_results(arguments: argparse.Namespace, sweep: SweepFile, plans: list[Plan], identity: Document) -> Results:
    """The result directory: a new one, or one to go on with."""
    directory = arguments.results or (None if arguments.fresh else newest_of(sweep, plans))
    if directory and os.path.exists(os.path.join(directory, "sweep.json")):
        found = result_files.Results(directory, plans)
        if found.matches() and not arguments.fresh:
            return go_on(arguments, sweep, found, identity)
        if not arguments.fresh:
            raise Failed(f"{directory} holds results of another sweep, or of this one before it was changed; give "
                         "another --results, or --fresh to begin anew there")
    elif directory and os.path.isdir(directory) and set(os.listdir(directory)) - {".lock"}:
        raise Failed(f"{directory} holds other things than a sweep's results; give another --results")
    else:
        found = result_files.Results(directory or result_files.new_directory("results", sweep.name), plans)
    found.begin(sweep, identity, shlex.join(["islands", "sweep", *sys.argv[1:]]))
    return found


def newest_of(sweep: SweepFile, plans: list[Plan]) -> str | None:
    """The newest directory of these plans, if it is not complete."""
    for directory, document in result_files.of_sweep("results", sweep.name):
        if result_files.same_plans(directory, document, plans):
            return None if document.get("complete") else directory
        if not document.get("complete"):
            complain(f"{directory} is incomplete, but of another plan; it is left alone")
    return None


def go_on(arguments: argparse.Namespace, sweep: SweepFile, found: Results, identity: Document) -> Results:
    differences = found.differences(identity)
    left = sum(len(runs) for plan in found.plans for _, runs in found.left(plan))
    found.document["complete"] = found.document["complete"] and left == 0
    if left == 0:
        return found
    if differences and not arguments.mixed:
        raise Failed(f"{found.directory} was begun differently: {'; '.join(differences)}. Begin anew with --fresh, or "
                     "mix with --mixed")
    for difference in differences:
        found.note(f"went on with changes, {difference}")
        complain(f"note: {difference}")
    if changed := result_files.settings_changed(found.document.get("doctor"), identity["doctor"]):
        found.note(f"went on with other settings of the machine: {changed}")
    found.document.update({name: identity[name] for name in (*result_files.IDENTITY, "doctor")})
    found.describe(sweep)
    complain(f"going on in {found.directory}: {left} of {sum(len(plan.runs) for plan in found.plans)} runs are left")
    return found


def summarize(arguments: argparse.Namespace, sweep: SweepFile, found: Results) -> int:
    failures = found.failures()
    if arguments.format == "json":
        print(json.dumps({"name": sweep.name, "results": os.path.abspath(found.directory),
                          "complete": found.document["complete"], "seconds": found.document["seconds"],
                          "notes": found.document["notes"], "failures": failures,
                          "experiments": [{"name": plan.experiment.name, "title": plan.experiment.title,
                                           "durability": plan.durability(),
                                           "points": table.medians(plan, found.entries[plan.experiment.name])}
                                          for plan in found.plans]}, indent=1))
    else:
        for plan in found.plans:
            print(table.text(plan, found.entries[plan.experiment.name]) + "\n")
        runs = sum(len(plan.runs) for plan in found.plans)
        print(f"{runs - len(failures)} of {runs} runs ended well, their checks held; medians, ± half of the spread "
              "over the repetitions")
        print(f"took {duration(found.document['seconds'])}; results: {os.path.relpath(found.directory)}; "
              f"a page of plots: `islands report {os.path.relpath(found.directory)}`")
    for what in dict.fromkeys(without_notes(failure["error"]) for failure in failures):
        alike = [failure for failure in failures if without_notes(failure["error"]) == what]
        of = [f"{failure['experiment']}/{failure['id']}" for failure in alike]
        names = ", ".join(of[:4]) + (", ..." if len(of) > 4 else "")
        complain(f"{len(of)} {'run' if len(of) == 1 else 'runs'} failed ({names}): {alike[0]['error']}")
    return 1 if failures else 0


def clean_up_after_killed(islands: Islands, found: Results) -> None:
    """Stops clusters of sweeps that were killed themselves, in this directory or beside it: they would run on while we
    measure."""
    beside = result_files.abandoned(os.path.dirname(os.path.abspath(found.directory)))
    for work in [found.document.pop("work", None), *beside]:
        if work and os.path.isdir(work) and os.path.basename(work).startswith(WORK_PREFIX):
            complain(f"stopping what a sweep that was killed has left in {work}")
            stop_everything(islands, work)
            remove_everything(islands, work)


def carry_out(islands: Islands, machine: Machine, found: Results, begin: float, observer: Observer | None) -> bool:
    """Whether all went; Interrupted if not to its end. Nothing is left running."""
    clean_up_after_killed(islands, found)
    # Named before it is there: an interrupt may come at any moment.
    work = os.path.join(tempfile.gettempdir(), f"{WORK_PREFIX}{secrets.token_hex(4)}")
    try:
        os.mkdir(work, mode=0o700)
        found.document["work"] = work
        found.save()
        Runner(islands, machine, found, work, observer).run_all()
    finally:
        handle_signals(signal.SIG_IGN)
        clean = not os.path.isdir(work) or stop_everything(islands, work)
        remove_everything(islands, work)
        found.document.pop("work", None)
        found.finish(time.monotonic() - begin)
    return clean


def listen() -> None:
    """To signals that ask us to stop; not to a hang-up that `nohup` has switched off."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    handle_signals(interrupt)
    if ignored:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def fail(arguments: argparse.Namespace, code: int, message: object) -> int:
    complain(message) if code != 2 else print(message, file=sys.stderr)
    if arguments.format == "json":
        print_error(message, code)
    return code


def main() -> int:
    arguments = parse_arguments()
    islands = Islands(os.path.dirname(os.environ.get("ISLANDS_BIN", os.path.join(ROOT, "build/release/bin/islands"))))
    if not islands.built():
        return 2
    begin = time.monotonic()
    listen()
    try:
        sweep = sweep_file.read(arguments.file, islands.describe)
        override(sweep.experiments, arguments)
        machine = Machine(islands.call("machine"))
        plans = [plans_of.make(experiment, machine) for experiment in sweep.experiments]
        with tempfile.TemporaryDirectory(prefix=WORK_PREFIX) as folder:
            check_all(islands, plans, machine, folder)
        round_trips = measured.to_keep(islands, machine, sweep.experiments, arguments.measured)
        if arguments.dry_run:
            return dry_run(arguments, plans)
        found = open_results(arguments, sweep, plans, result_files.identify(islands, machine))
        if round_trips:
            found.keep_measured(round_trips)
        if found.document["complete"]:
            complain(f"{found.directory} is complete; nothing to do (--fresh begins anew)")
            return summarize(arguments, sweep, found)
        with contextlib.ExitStack() as beside:
            observer = None
            if arguments.observe:
                folder = os.path.abspath(os.path.join(found.directory, "observe"))
                observer = beside.enter_context(observing(islands, folder, arguments.prometheus_port))
            clean = carry_out(islands, machine, found, begin, observer)
        return summarize(arguments, sweep, found) or (0 if clean else 1)
    except BadFile as bad:
        return fail(arguments, 2, bad)
    except Interrupted as name:
        return fail(arguments, 130, f"{name}; stopped. The same command goes on from here")
    except (Failed, OSError) as failure:
        return fail(arguments, 1, failure)


if __name__ == "__main__":
    sys.exit(main())
