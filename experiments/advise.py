#!/usr/bin/env python3
"""Predicts every layout's throughput under a load, from a few short runs of each, and recommends one."""

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from advising import advice, trials
from advising.advice import Case, Verdict
from advising.model import MULTISITE_ANCHORS, ZIPF_ANCHORS, Load, Measured, Model, Predictor
from durability import DURABILITIES, EXPECTED, settings_of, word_of
from islands_command import (ROOT, Failed, Interrupted, Islands, WorkloadDescription, complain, handle_signals,
                             interrupt, json_of, misplaced, option, without_effect, wrong_value)
from sweeping import results as result_files
from sweeping.machine import LAYOUT, LAYOUTS, Machine
from sweeping.plan import Plan
from sweeping.sweep_file import Measure
from sweeping.table import PointMedians
from sweeping.tree import BadFile, Reader, Scalar

EPILOG = """The short runs of a workload that draws its rows as the microbenchmark does are at 0, 5, 20 and 100 %
multisite and zipf 0, 0.5, 0.75 and 1, on every layout, as far as what is asked needs them: once made (--results DIR)
they answer for any percentage and skew. Other workloads are measured as they are. experiments/README.md explains the
model.

Data and logs of the runs are their own, in a temporary folder (where TMPDIR says), and destroyed after them: the
directories that FILE names are never touched.

examples:
  islands advise my.yaml --op update --multisite 20
  islands advise my.yaml --op update --multisite 0 10 50 --zipf 0 0.8 --validate
  islands advise my.yaml --workload tatp --mix update
  islands advise my.yaml --op update --multisite 20 --durability none lazy sync
  islands advise --workload tatp --help           parameters of another workload

exit codes: 0 ok, 1 failed, 2 usage or invalid file, 130 interrupted"""


MODELLED = ("multisite", "zipf", "rows")  # a workload that has these is predicted, for several values of the first two


def add_parameters(parser: argparse.ArgumentParser, workload: str, description: WorkloadDescription) -> None:
    group = parser.add_argument_group(f"parameters of {workload}")
    for parameter in description["parameters"]:
        default = f"; default {parameter['preset']}" if "preset" in parameter else ""
        group.add_argument(option(parameter["name"]), dest=f"of_{parameter['name']}",
                           nargs="+" if is_modelled(description) and parameter["name"] in MODELLED[:2] else 1,
                           metavar=parameter["kind"].upper(),
                           help=f"{parameter['help']}; {parameter['expected']}{default}".replace("%", "%%"))


def is_modelled(description: WorkloadDescription) -> bool:
    return set(MODELLED) <= {parameter["name"] for parameter in description["parameters"]}


def number(text: str) -> Scalar:
    """What a word of the command line is: a number, if it looks like one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def read_parameters(parser: argparse.ArgumentParser, arguments: argparse.Namespace,
                    description: WorkloadDescription) -> None:
    """Sets `parameters`, and `multisite` and `zipf`, of which there may be several."""
    arguments.modelled = is_modelled(description)
    arguments.multisite, arguments.zipf, arguments.parameters = [0.0], [0.0], {}
    for parameter in description["parameters"]:
        name = parameter["name"]
        given = getattr(arguments, f"of_{name}")
        if given is None and "preset" not in parameter:
            continue
        values = [number(text) for text in given or [parameter["preset"]]]
        for value in values:
            if wrong_value(parameter, value):
                parser.error(f"{option(name)}: found {value}, expected {parameter['expected']}")
        if arguments.modelled and name in MODELLED[:2]:
            setattr(arguments, name, values)
        elif given or arguments.modelled:
            arguments.parameters[name] = values[0]
    for parameter in description["parameters"]:
        if what := misplaced(parameter, arguments.parameters, description):
            parser.error(what)
    asked = [arguments.parameters | ({"multisite": multisite, "zipf": zipf} if arguments.modelled else {})
             for multisite in arguments.multisite for zipf in arguments.zipf]
    for what in without_effect(asked, description):
        parser.error(what)


def describe(parser: argparse.ArgumentParser, islands: Islands, workload: str) -> WorkloadDescription:
    try:
        found = islands.describe(workload)
    except (Failed, OSError) as failure:
        parser.error(str(failure))
    if found is None:
        parser.error(f"--workload: found '{workload}', expected one that is built in {islands.library}")
    return found


def parse_arguments(islands: Islands) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="islands advise", epilog=EPILOG, allow_abbrev=False,
                                     description="Predicts every layout's throughput under a load; recommends one.",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", help="a deployment file; its layout does not matter")
    parser.add_argument("--workload", default="micro", help="default micro")
    parser.add_argument("--mpl", type=int, default=16, help="transactions in flight per worker; default 16")
    parser.add_argument("--layouts", nargs="+", metavar="NISL", help="default: from 1ISL to one island per core")
    parser.add_argument("--durability", nargs="+", choices=DURABILITIES, metavar="DURABILITY",
                        help=f"what is asked about: {EXPECTED} (+forced: with votes forced); default: as FILE says")
    parser.add_argument("--seconds", type=float, default=0.6, help="measured per run; default 0.6")
    parser.add_argument("--warmup", type=float, default=0.2, help="before each; default 0.2")
    parser.add_argument("--repeat", type=int, default=2, help="times each; default 2")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the runs; default 1")
    parser.add_argument("--validate", action="store_true",
                        help="also run what is predicted, on every layout; print errors and the regret of the advice")
    parser.add_argument("--results", metavar="DIR", help="where the runs are kept, and found again; default: a new "
                        "directory under ./results")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of what is written to stdout")
    first = argparse.ArgumentParser(prog=parser.prog, usage=argparse.SUPPRESS, add_help=False, allow_abbrev=False)
    first.add_argument("--workload", default="micro")
    workload = first.parse_known_args()[0].workload
    description = describe(parser, islands, workload)
    add_parameters(parser, workload, description)
    arguments = parser.parse_args()
    for name, value, low, high in (("mpl", arguments.mpl, 1, 1000), ("seconds", arguments.seconds, 0.1, 3600),
                                   ("warmup", arguments.warmup, 0, 3600), ("repeat", arguments.repeat, 1, 100),
                                   ("seed", arguments.seed, 0, 2**32)):
        if not low <= value <= high:
            parser.error(f"--{name}: found {value:g}, expected {low} to {high}")
    for layout in arguments.layouts or []:
        if not LAYOUT.match(layout):
            parser.error(f"--layouts: found '{layout}', expected {LAYOUTS}")
    read_parameters(parser, arguments, description)
    arguments.description, arguments.table = description, description["rows_total_of"]
    return arguments


def anchors(arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Axes of the calibration: no more of them than what is asked needs."""
    if not arguments.modelled:
        return {}
    wanted, skews = arguments.multisite, arguments.zipf
    return {"multisite": list(MULTISITE_ANCHORS if any(wanted) else MULTISITE_ANCHORS[:1]),
            "zipf": list(ZIPF_ANCHORS if any(skews) else ZIPF_ANCHORS[:1])}


def islands_of(layout: str) -> int:
    return int(layout.removesuffix("ISL"))


def load_of(islands: Islands, arguments: argparse.Namespace, machine: Machine) -> Load:
    """Rows and sites of the workload's table, as the deployment file says."""
    plan = islands.call("plan", arguments.file)
    tables = Reader(arguments.file).tree().plain_mapping().get("data", {}).get("tables", [])
    begin, end = next((table["range"] for table in tables if table.get("name") == arguments.table),
                      (0, 240_000))
    return Load(arguments.parameters["rows"], end - begin, plan["sites"], arguments.parameters.get("op") != "read")


def place_of(point: PointMedians) -> tuple[str, float, float]:
    """Layout, multisite percentage and skew."""
    axes = point["axes"]
    return str(axes["layout"]), float(axes.get("multisite") or 0), float(axes.get("zipf") or 0)


def models_of(points: list[PointMedians], load: Load | None) -> Mapping[str, Predictor]:
    rates: dict[str, dict[tuple[float, float], float]] = {}
    for point in points:
        layout, multisite, zipf = place_of(point)
        rates.setdefault(layout, {})[multisite, zipf] = point["metrics"]["committed_per_s"]["median"]
    stuck = [layout for layout, anchor in rates.items() if not all(anchor.values())]
    if stuck:
        raise Failed(f"nothing was committed in a run on {', '.join(stuck)}; give --seconds more")
    if load is None:
        return {layout: Measured(islands_of(layout), anchor[0, 0]) for layout, anchor in rates.items()}
    return {layout: Model(islands_of(layout), load, anchor) for layout, anchor in rates.items()}


def run(arguments: argparse.Namespace, islands: Islands) -> int:
    begin = time.monotonic()
    Reader(arguments.file)  # says what is wrong with its name
    checked = json_of([islands.binary, "check", arguments.file, "--format", "json"], codes=(0, 2))
    if checked.get("complaints"):
        raise BadFile("\n".join(checked["complaints"]))
    machine = Machine(islands.call("machine"))
    plan = islands.call("plan", arguments.file)
    cores = sum(island["workers"] for island in plan["islands"])
    arguments.layouts = arguments.layouts or machine.layouts(min(cores, machine.cores))
    # By name, whether the file has it or leaves it to deployments: they are what is advised on.
    arguments.durability = list(dict.fromkeys(arguments.durability or [word_of(plan["durability"], plan["votes"])]))
    identity = result_files.identify(islands, machine)
    directory = arguments.results or result_files.new_directory("results", "advise")
    command = shlex.join(["islands", "advise", *sys.argv[1:]])
    measure: Measure = {"seconds": arguments.seconds, "warmup": arguments.warmup, "repeat": arguments.repeat}

    def measured(name: str, durability: str, axes: Mapping[str, Sequence[float]]) -> tuple[list[PointMedians], Plan]:
        experiment = trials.experiment_of(arguments, name, durability, axes, measure)
        return trials.carry_out(islands, machine, experiment, os.path.join(directory, f"{name}-{durability}"),
                                identity, command)

    load = load_of(islands, arguments, machine) if arguments.modelled else None
    cases: list[Case] = []
    noises, runs = [], 0
    for durability in arguments.durability:
        points, made = measured("calibration", durability, anchors(arguments))
        noises.append(advice.noise_of(points))
        cases += advised(arguments, durability, models_of(points, load), noises[-1])
        runs += len(made.runs)
    verdict = None
    if arguments.validate:
        axes = {"multisite": arguments.multisite, "zipf": arguments.zipf} if arguments.modelled else {}
        verdict = advice.judge(cases, {
            (durability, *place_of(point)): point["metrics"]["committed_per_s"]["median"]
            for durability in arguments.durability for point in measured("validation", durability, axes)[0]})
    show(arguments, machine, directory, cases, verdict, max(noises), runs, time.monotonic() - begin)
    return 0


def advised(arguments: argparse.Namespace, durability: str, models: Mapping[str, Predictor],
            noise: float) -> Iterator[Case]:
    """A case for every load that is asked about."""
    for multisite in arguments.multisite:
        for zipf in arguments.zipf:
            ranking = advice.rank(models, multisite, zipf, noise)
            yield {"durability": settings_of(durability)["durability"], "votes": settings_of(durability)["votes"],
                   "multisite": multisite, "zipf": zipf, "recommended": ranking[0]["layout"], "ranking": ranking}


def show(arguments: argparse.Namespace, machine: Machine, directory: str, cases: list[Case], verdict: Verdict | None,
         noise: float, runs: int, seconds: float) -> None:
    load = " ".join(f"{name} {value}" for name, value in arguments.parameters.items())
    if arguments.format == "json":
        print(json.dumps({"workload": arguments.workload, "parameters": arguments.parameters, "mpl": arguments.mpl,
                          "machine": machine.report["summary"], "noise": round(noise, 4), "calibration_runs": runs,
                          "seconds": round(seconds, 1), "results": os.path.abspath(directory), "cases": cases,
                          "validation": verdict}, indent=1))
        return
    print(f"{arguments.workload} {load}, MPL {arguments.mpl}, on {machine.report['summary']}")
    print(f"from {runs} runs of {arguments.seconds:g} s; a prediction may be off by {noise:.0%} for noise alone" +
          (" (assumed: --repeat 2 or more measures it)" if arguments.repeat == 1 else "") + "\n")
    for case in cases:
        print(advice.case_text(case, arguments.modelled) + "\n")
    if verdict:
        print(f"of {sum(len(case['ranking']) for case in cases)} predictions: median error "
              f"{verdict['median_error']:.1%}, largest {verdict['largest_error']:.1%}")
        print(f"of {len(cases)} recommendations: mean regret {verdict['mean_regret']:.1%}, median "
              f"{verdict['median_regret']:.1%}, largest {verdict['largest_regret']:.1%}")
    print(f"took {seconds:.0f} s; runs kept in {os.path.relpath(directory)} (--results uses them again)")


def main() -> int:
    islands = Islands(os.path.dirname(os.environ.get("ISLANDS_BIN", os.path.join(ROOT, "build/release/bin/islands"))))
    if not islands.built():
        return 2
    arguments = parse_arguments(islands)
    handle_signals(interrupt)
    try:
        return run(arguments, islands)
    except BadFile as bad:
        message, code = str(bad), 2
    except Interrupted as name:
        message, code = f"{name}; stopped", 130
    except (Failed, OSError) as failure:
        message, code = str(failure), 1
    complain(message) if code != 2 else print(message, file=sys.stderr)
    if arguments.format == "json":
        print(json.dumps({"error": {"message": message, "exit_code": code}}, indent=1))
    return code


if __name__ == "__main__":
    sys.exit(main())
