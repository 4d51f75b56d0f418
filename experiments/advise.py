#!/usr/bin/env python3
"""Predicts every layout's throughput under a load, from a few short runs of each, and recommends one."""

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Mapping

from advising import advice, trials
from advising.advice import Case, Verdict
from advising.model import MULTISITE_ANCHORS, ZIPF_ANCHORS, Load, Measured, Model, Predictor
from islands_command import ROOT, Failed, Interrupted, Islands, complain, handle_signals, interrupt, json_of
from sweeping import results as result_files
from sweeping.machine import LAYOUT, LAYOUTS, Machine
from sweeping.sweep_file import Measure
from sweeping.table import PointMedians
from sweeping.tree import BadFile, Reader

EPILOG = """The short runs are those of the microbenchmark at 0, 5, 20 and 100 % multisite and zipf 0, 0.5, 0.75 and 1,
on every layout, as far as what is asked needs them: once made (--results DIR) they answer for any percentage and skew.
Other workloads are measured as they are. experiments/README.md explains the model.

examples:
  islands advise my.yaml --op update --multisite 20
  islands advise my.yaml --op update --multisite 0 10 50 --zipf 0 0.8 --validate
  islands advise my.yaml --workload tatp --set mix=update

exit codes: 0 ok, 1 failed, 2 usage or invalid file, 130 interrupted"""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="islands advise", epilog=EPILOG,
                                     description="Predicts every layout's throughput under a load; recommends one.",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", help="a deployment file; its layout does not matter")
    parser.add_argument("--workload", default="micro", help="default micro")
    parser.add_argument("--op", choices=("read", "update", "add"), default="read",
                        help="micro: what a transaction does")
    parser.add_argument("--rows", type=int, default=10, help="micro: rows of a transaction; default 10")
    parser.add_argument("--multisite", type=float, nargs="+", default=[0.0], metavar="P",
                        help="micro: percentages of multisite transactions; default 0")
    parser.add_argument("--zipf", type=float, nargs="+", default=[0.0], metavar="S", help="micro: skews; default 0")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="a parameter of a workload other than micro")
    parser.add_argument("--mpl", type=int, default=16, help="transactions in flight per worker; default 16")
    parser.add_argument("--layouts", nargs="+", metavar="NISL", help="default: from 1ISL to one island per core")
    parser.add_argument("--seconds", type=float, default=0.6, help="measured per run; default 0.6")
    parser.add_argument("--warmup", type=float, default=0.2, help="before each; default 0.2")
    parser.add_argument("--repeat", type=int, default=2, help="times each; default 2")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the runs; default 1")
    parser.add_argument("--validate", action="store_true",
                        help="also run what is predicted, on every layout; print errors and the regret of the advice")
    parser.add_argument("--results", metavar="DIR", help="where the runs are kept, and found again; default: a new "
                        "directory under ./results")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of what is written to stdout")
    arguments = parser.parse_args()
    for name, values, low, high in (("multisite", arguments.multisite, 0, 100), ("zipf", arguments.zipf, 0, 10),
                                    ("rows", [arguments.rows], 1, 10_000), ("mpl", [arguments.mpl], 1, 1000),
                                    ("seconds", [arguments.seconds], 0.1, 3600),
                                    ("warmup", [arguments.warmup], 0, 3600),
                                    ("repeat", [arguments.repeat], 1, 100), ("seed", [arguments.seed], 0, 2**32)):
        for value in values:
            if not low <= value <= high:
                parser.error(f"--{name}: found {value:g}, expected {low} to {high}")
    for layout in arguments.layouts or []:
        if not LAYOUT.match(layout):
            parser.error(f"--layouts: found '{layout}', expected {LAYOUTS}")
    if arguments.workload == "micro":
        if arguments.set:
            parser.error("--set: found it with workload micro, expected --op, --rows, --multisite, --zipf")
        arguments.parameters = {"op": arguments.op, "rows": arguments.rows}
    else:
        if any("=" not in word for word in arguments.set):
            parser.error("--set: expected NAME=VALUE")
        if arguments.multisite != [0.0] or arguments.zipf != [0.0]:
            parser.error("--multisite and --zipf belong to workload micro; parameters of others are given with --set")
        arguments.parameters = dict(word.split("=", 1) for word in arguments.set)
    return arguments


def anchors(arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Axes of the calibration: no more of them than what is asked needs."""
    if arguments.workload != "micro":
        return {}
    wanted, skews = arguments.multisite, arguments.zipf
    return {"multisite": list(MULTISITE_ANCHORS if any(wanted) else MULTISITE_ANCHORS[:1]),
            "zipf": list(ZIPF_ANCHORS if any(skews) else ZIPF_ANCHORS[:1])}


def islands_of(layout: str) -> int:
    return int(layout.removesuffix("ISL"))


def load_of(islands: Islands, arguments: argparse.Namespace, machine: Machine) -> Load:
    """Rows and sites of the microbenchmark's table, as the deployment file says."""
    plan = islands.call("plan", arguments.file)
    tables = Reader(arguments.file).tree().plain_mapping().get("data", {}).get("tables", [])
    begin, end = next((table["range"] for table in tables if table.get("name") == "micro"), (0, 240_000))
    return Load(arguments.rows, end - begin, plan["sites"], arguments.op != "read")


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
    identity = result_files.identify(islands, machine)
    directory = arguments.results or result_files.new_directory("results", "advise")
    command = shlex.join(["islands", "advise", *sys.argv[1:]])
    measure: Measure = {"seconds": arguments.seconds, "warmup": arguments.warmup, "repeat": arguments.repeat}
    calibration = trials.experiment_of(arguments, "calibration", anchors(arguments), measure)
    points, made = trials.carry_out(islands, machine, calibration, os.path.join(directory, "calibration"), identity,
                                    command)
    load = load_of(islands, arguments, machine) if arguments.workload == "micro" else None
    models, noise = models_of(points, load), advice.noise_of(points)
    cases: list[Case] = []
    for multisite in arguments.multisite:
        for zipf in arguments.zipf:
            ranking = advice.rank(models, multisite, zipf, noise)
            cases.append({"multisite": multisite, "zipf": zipf, "recommended": ranking[0]["layout"],
                          "ranking": ranking})
    verdict = None
    if arguments.validate:
        axes = {"multisite": arguments.multisite, "zipf": arguments.zipf} if arguments.workload == "micro" else {}
        handle_signals(interrupt)
        checked, _ = trials.carry_out(islands, machine, trials.experiment_of(arguments, "validation", axes, measure),
                                      os.path.join(directory, "validation"), identity, command)
        verdict = advice.judge(cases, {place_of(point): point["metrics"]["committed_per_s"]["median"]
                                       for point in checked})
    show(arguments, machine, directory, cases, verdict, noise, len(made.runs), time.monotonic() - begin)
    return 0


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
        print(advice.case_text(case, arguments.workload == "micro") + "\n")
    if verdict:
        print(f"of {sum(len(case['ranking']) for case in cases)} predictions: median error "
              f"{verdict['median_error']:.1%}, largest {verdict['largest_error']:.1%}")
        print(f"of {len(cases)} recommendations: mean regret {verdict['mean_regret']:.1%}, median "
              f"{verdict['median_regret']:.1%}, largest {verdict['largest_regret']:.1%}")
    print(f"took {seconds:.0f} s; runs kept in {os.path.relpath(directory)} (--results uses them again)")


def main() -> int:
    arguments = parse_arguments()
    islands = Islands(os.path.dirname(os.environ.get("ISLANDS_BIN", os.path.join(ROOT, "build/release/bin/islands"))))
    if not islands.built():
        return 2
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
