#!/usr/bin/env python3
"""The demonstration: the microbenchmark on two cuts of this machine, as in section 7.1 of "OLTP on Hardware Islands".

    experiments/demo.py [--quick] [--bin DIR] [--directory DIR]

For 1ISL and for one island per core it starts the cluster, reads and updates 10 rows a transaction at 0, 20, 50 and
100 % multisite, stops it, and prints the table. After every run it is checked that the rows add up; since transactions
on so many rows hardly ever meet, a last run of each cluster, which is in no table, goes to a few of them. Progress goes
to stderr. Whatever happens, no process is left behind.
"""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Sequence

from islands_command import ROOT, Failed, Islands, MachineReport, RunReport, StatusLine, guarded, writing

OPERATIONS = ["read", "update"]
MULTISITE = [0, 20, 50, 100]
ROWS = 10
DURABILITY = "none"
MEETING = {"multisite": 50, "zipf": 1}  # every second transaction wants the hottest row


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs the microbenchmark on 1ISL and on one island per core.")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"), help="where islands and islandd lie")
    parser.add_argument("--directory", default=os.path.join(ROOT, "build/demo"),
                        help="for deployment files, data and results; emptied first")
    parser.add_argument("--seconds", type=float, help="measured per run; default 2.5")
    parser.add_argument("--warmup", type=float, help="before each; default 0.5")
    parser.add_argument("--quick", action="store_true", help="0.5 s per run: to see that all works, not how fast")
    arguments = parser.parse_args()
    if arguments.seconds is None:
        arguments.seconds = 0.5 if arguments.quick else 2.5
    if arguments.warmup is None:
        arguments.warmup = 0.1 if arguments.quick else 0.5
    return arguments


class Progress(StatusLine):
    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.done = steps, 0

    def show(self, text: str) -> None:
        self.print(f"[{self.done:2}/{self.steps}] {text}")


def prepare(islands: Islands, directory: str, layout: str) -> str:
    folder = os.path.join(directory, layout.lower())
    os.makedirs(folder)
    file = os.path.join(folder, "islands.yaml")
    islands.call("template", layout, "--output", file)
    name_durability(file)
    return file


def name_durability(file: str) -> None:
    """Whatever templates say: the table compares layouts, as the paper's figures do, and no two demos differ by it."""
    with open(file, encoding="utf-8") as source:
        text, count = re.subn(r"(?m)^( +durability: )\w+", rf"\g<1>{DURABILITY}", source.read())
    if count != 1:
        raise Failed(f"{file}: found {count} lines with `durability: ...`, expected one, of a template")
    with writing(file) as out:
        out.write(text)


def run_layout(islands: Islands, arguments: argparse.Namespace, layout: str, progress: Progress) -> list[RunReport]:
    file = prepare(islands, arguments.directory, layout)
    progress.show(f"{layout}: starting")
    islands.call("up", file)
    runs = [(operation, {"multisite": multisite}) for operation in OPERATIONS for multisite in MULTISITE]
    results = []
    for operation, parameters in [*runs, ("update", MEETING)]:
        progress.show(f"{layout}: {operation} {ROWS} rows, " + " and ".join(
            f"{name} {value}" for name, value in parameters.items()))
        options = [word for name, value in parameters.items() for word in (f"--{name}", str(value))]
        seconds = min(arguments.seconds, 1) if parameters is MEETING else arguments.seconds
        result = islands.call("run", file, "micro", "--op", operation, "--rows", str(ROWS), *options, "--duration",
                              str(seconds), "--warmup", str(arguments.warmup), "--no-doctor",
                              "--results", os.path.join(arguments.directory, "results"))
        results.append(result)
        progress.done += 1
    progress.show(f"{layout}: stopping")
    islands.call("down", file)
    return results


def run_all(islands: Islands, arguments: argparse.Namespace, layouts: Sequence[str]) -> list[RunReport]:
    progress = Progress(len(layouts) * (len(OPERATIONS) * len(MULTISITE) + 1))
    try:
        return [result for layout in layouts for result in run_layout(islands, arguments, layout, progress)]
    finally:
        progress.clear()


def choose_layouts(machine: MachineReport) -> list[str]:
    """1ISL and one island per core; on a single core two islands share it, so that there is something distributed."""
    return ["1ISL", f"{max(2, len(machine['cores']))}ISL"]


def table(results: Sequence[RunReport], layouts: Sequence[str]) -> str:
    found = {(result["layout"], result["op"], int(result["multisite_percent"])): result for result in results
             if not result["zipf"]}
    lines = ["Throughput in thousand transactions per second"]
    for operation in OPERATIONS:
        lines.append("")
        lines.append(f"{operation + f' {ROWS} rows':<16}" + "".join(f"{f'{percent} %':>9}" for percent in MULTISITE)
                     + "   multisite")
        for layout in layouts:
            cells = [found[layout, operation, percent]["committed_per_s"] / 1000 for percent in MULTISITE]
            lines.append(f"  {layout:<14}" + "".join(f"{cell:>9.1f}" for cell in cells))
    return "\n".join(lines)


def summarize(arguments: argparse.Namespace, machine: MachineReport, layouts: Sequence[str],
              results: Sequence[RunReport], seconds: float) -> int:
    wrong = [result for result in results if result["sum_check"] != "ok"]
    file = os.path.join(arguments.directory, "demo.json")
    with writing(file) as out:
        json.dump({"machine": machine["summary"], "seconds_per_run": arguments.seconds, "durability": DURABILITY,
                   "runs": results}, out, indent=1)
    print(f"Microbenchmark on {machine['summary']}, {arguments.seconds:g} s per run, durability {DURABILITY}")
    print(table(results, layouts))
    print()
    checked = len(results) - len(wrong)
    print(f"{checked} of {len(results)} runs: the sum over all rows equals the committed row updates")
    for result in wrong:
        print(f"  sum_check {result['sum_check']}: {result['run_directory']}")
    print(f"took {seconds:.0f} s; results: {os.path.relpath(file)}, and a folder per run under "
          f"{os.path.relpath(os.path.dirname(results[0]['run_directory']))}")
    return 1 if wrong else 0


def main() -> int:
    arguments = parse_arguments()
    arguments.directory = os.path.abspath(arguments.directory)
    islands = Islands(arguments.bin)
    if not islands.built():
        return 2
    begin = time.monotonic()

    def work() -> int:
        machine = islands.call("machine")
        layouts = choose_layouts(machine)
        results = run_all(islands, arguments, layouts)
        return summarize(arguments, machine, layouts, results, time.monotonic() - begin)

    return guarded(islands, arguments.directory, work)


if __name__ == "__main__":
    sys.exit(main())
