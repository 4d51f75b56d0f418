#!/usr/bin/env python3
"""Engines side by side: the microbenchmark on islands, in a program and through the front door, and whole workloads -
Payment, New-Order, TATP, YCSB A -, and on what people run today: LMDB, RocksDB, Berkeley DB, WiredTiger, SQLite,
PostgreSQL, MariaDB.

    experiments/bench_engines.py [--only DURABILITY]... [--engines NAME,...] [--seconds S] [--results DIR]

For each class of durability (none, lazy, sync) all are loaded with the same rows, each finds the number of clients with
which it does most, and then they take turns. Prints a table per class, and writes engines.json and engines.html.
Exit code 1 when a run's rows did not add up. Whatever happens, no process and no data are left behind.
experiments/peers/README.md says how each engine is set up and why that is fair.
"""

import argparse
import contextlib
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence

from bench import disturbances, others_busy_percent
from benchmarks.context import RUN_OVERHEAD_S, Context, CpuTimes, Progress
from benchmarks.engines import ENGINES, Contender, Contest
from benchmarks.engines_page import page, sections_of, workloads_section
from benchmarks.engines_workloads import LOADS, TITLES, measured
from benchmarks.peers import Peers
from benchmarks.workloads import Engines
from durability import NONE, file_system
from islands_command import ROOT, Document, Failed, Islands, guarded, remove_everything, writing

CLASSES = (NONE, "lazy", "sync")
MEASUREMENTS, OTHER_S = 26, 110  # of a round, and beside the rounds: loading, and finding the best numbers of clients
LOAD_MEASUREMENTS, LOAD_OTHER_S = 8, 60  # the same, of each load


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures islands beside other engines, each at its best.")
    parser.add_argument("--only", action="append", choices=CLASSES, help="this class of durability; may be repeated")
    parser.add_argument("--engines", type=lambda names: names.split(","), metavar="NAME,...",
                        help=f"beside islands; default: those that are there of {', '.join(ENGINES)}")
    parser.add_argument("--load", action="append", choices=(*TITLES, "none"), dest="loads",
                        help="this workload; may be repeated; default: all")
    parser.add_argument("--seconds", type=float, help="of each measurement; default 1")
    parser.add_argument("--warmup", type=float, help="before each; default 0.3")
    parser.add_argument("--repeat", type=int, help="rounds; default 3")
    parser.add_argument("--quick", action="store_true", help="little of everything: to see that all works, no more")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"), help="where islands and peers lie")
    parser.add_argument("--directory", default=os.path.join(ROOT, "build/bench-engines"),
                        help="for deployment files, and for data and logs of lazy and sync: on the disk that is "
                             "measured; emptied first and last")
    parser.add_argument("--results", default=os.path.join(ROOT, "build/engines"), metavar="DIR",
                        help="where engines.json and engines.html go")
    arguments = parser.parse_args()
    for name, normal, quick in (("seconds", 1.0, 0.15), ("warmup", 0.3, 0.05), ("repeat", 3, 1)):
        if getattr(arguments, name) is None:
            setattr(arguments, name, quick if arguments.quick else normal)
    if arguments.seconds < 0.1 or arguments.warmup < 0 or arguments.repeat < 1:
        parser.error("--seconds: at least 0.1; --warmup: at least 0; --repeat: at least 1")
    if unknown := [name for name in arguments.engines or () if name not in ENGINES]:
        parser.error(f"--engines: found {', '.join(unknown)}, expected some of {', '.join(ENGINES)}")
    arguments.loads = [load for load in LOADS if arguments.loads is None or load.title in arguments.loads]
    arguments.large, arguments.log_directory = False, arguments.directory  # of what a Context wants
    return arguments


def estimates(arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds that each class will take, about."""
    share = len(arguments.engines or ENGINES) / len(ENGINES)
    each_s = MEASUREMENTS * (arguments.seconds + arguments.warmup + RUN_OVERHEAD_S) * arguments.repeat
    other_s = OTHER_S * (0.3 if arguments.quick else 1)
    load_s = (LOAD_MEASUREMENTS * (arguments.seconds + arguments.warmup + RUN_OVERHEAD_S) * arguments.repeat
              + LOAD_OTHER_S * (0.5 if arguments.quick else 1))
    return {durability: share * (each_s + other_s + load_s * len(arguments.loads))
            for durability in arguments.only or CLASSES}


Classes = dict[str, list[Contender]]


def measure(context: Context, arguments: argparse.Namespace, notes: list[str]) -> tuple[Classes, Classes]:
    """What was done of the microbenchmark, and of workloads."""
    found: Classes = {}
    workloads: Classes = {}
    for durability in context.progress.estimates:
        context.progress.enter(durability)
        with contextlib.closing(Contest(context, durability, arguments.directory)) as contest:
            contest.start(arguments.engines or ENGINES)
            if arguments.engines and contest.missing:
                raise Failed("; ".join(contest.missing))
            contest.find_best()
            contest.measure()
        contest.stop()
        found[durability] = contest.contenders
        missing = contest.missing
        engines = [contender.name for contender in contest.contenders if contender.name in ENGINES]
        sections = sections_of(durability, contest.contenders, len(context.machine["cores"]))
        if arguments.loads:
            workloads[durability] = measured(context, durability, arguments.directory, engines, arguments.loads,
                                             missing)
            sections.append(workloads_section(durability, workloads[durability],
                                              [load.title for load in arguments.loads]))
        context.progress.leave()
        context.progress.clear()
        notes += [note for note in missing if note not in notes]
        for section in sections:
            if section.rows:
                print(section.text() + "\n", flush=True)
    return found, workloads


def json_of_classes(classes: Classes) -> Document:
    return {durability: {contender.name: contender.json() for contender in contenders}
            for durability, contenders in classes.items()}


def write(arguments: argparse.Namespace, context: Context, found: Classes, workloads: Classes, notes: Sequence[str],
          summary: str) -> None:
    os.makedirs(arguments.results, exist_ok=True)
    command = shlex.join(["experiments/bench_engines.py", *sys.argv[1:]])
    with writing(os.path.join(arguments.results, "engines.json")) as file:
        json.dump({"machine": context.machine["summary"], "seconds_per_measurement": arguments.seconds,
                   "repeat": arguments.repeat, "rows_total": context.rows_total, "notes": notes,
                   "wrong": context.wrong, "classes": json_of_classes(found),
                   "workloads": json_of_classes(workloads)}, file, indent=1)
    with writing(os.path.join(arguments.results, "engines.html")) as file:
        file.write(page(found, workloads, notes, summary, command, len(context.machine["cores"])))


def work(islands: Islands, arguments: argparse.Namespace) -> int:
    begin, cpu_begin, others_percent = time.monotonic(), CpuTimes(), others_busy_percent(arguments)
    context = Context(islands, arguments, Progress(estimates(arguments)))
    if not Peers.built(context) or arguments.loads and not Engines.built(context):
        raise Failed("peers and workload_peers are not built: make bench-engines does, and installs what they need")
    notes: list[str] = []
    try:
        found, workloads = measure(context, arguments, notes)
    finally:
        context.progress.clear()
    if set(found) != {NONE}:
        where = file_system(arguments.directory)
        notes.append(f"data and logs of lazy and sync on {where} ({arguments.directory})"
                     + (": in memory, where no sync waits for anything; use --directory" if where == "tmpfs" else ""))
    notes += disturbances(others_percent, cpu_begin)
    summary = (f"{context.machine['summary']}; {context.rows_total:,} rows; medians of {arguments.repeat} rounds, "
               f"{arguments.seconds:g} s each")
    write(arguments, context, found, workloads, notes, summary)
    for note in notes:
        print(f"NOTE: {note}")
    for what in context.wrong:
        print(f"WRONG: {what}")
    print(f"on {summary}; took {time.monotonic() - begin:.0f} s; "
          + (f"{len(context.wrong)} runs were wrong" if context.wrong else "in every run the rows added up"))
    print(f"page: {os.path.join(arguments.results, 'engines.html')}")
    return 1 if context.wrong else 0


def main() -> int:
    arguments = parse_arguments()
    arguments.directory = arguments.log_directory = os.path.abspath(arguments.directory)
    islands = Islands(arguments.bin)
    if not islands.built():
        return 2
    try:
        return guarded(islands, arguments.directory, lambda: work(islands, arguments))
    finally:
        remove_everything(islands, arguments.directory)


if __name__ == "__main__":
    sys.exit(main())
