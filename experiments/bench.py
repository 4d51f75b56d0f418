#!/usr/bin/env python3
"""The benchmark: islands beside other engines, scaling, messages, sizes, gateway, logs; with the bars set for them.

    experiments/bench.py [--only SECTION]... [--quick] [--large] [--json FILE] [--log-directory DIR]

Prints a table per section; what is compared is measured in turns, and medians are compared. Progress goes to stderr.
Exit code 1 when a run's rows did not add up; a bar that is missed is said, but no error. Whatever happens, no process
and no data are left behind. Islands keep nothing of what they acknowledge (durability none), but in the sections about
logs: durability, disks, replay, cleaner, larger. experiments/README.md says what their figures are.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence

from benchmarks import disks, gateway, larger, logs, parts, restarts, throughput, workloads
from benchmarks.context import RUN_OVERHEAD_S, Context, CpuTimes, Progress
from benchmarks.memory_group import remove_groups
from islands_command import ROOT, Document, Islands, guarded, remove_everything, writing

NOISE_PERCENT = 3  # of the CPU time: less is everywhere
LOG_ROOM = 4 << 30  # bytes

# name -> (function, measurements in a round, other seconds): for the ETA.
SECTIONS = {
    "peers": (throughput.peers, 17, 10),
    "cores": (throughput.cores, 12, 2),
    "multisite": (throughput.multisite, 10, 1),
    "messages": (parts.messages, 0, 16),
    "allocations": (parts.allocations, 0, 22),
    "many": (throughput.many, 6, 2),
    "mpl": (throughput.multiprogramming, 12, 1),
    "sizes": (throughput.sizes, 6, 45),
    "instructions": (parts.instructions, 0, 60),
    "workloads": (workloads.workloads, 42, 160),
    "gateway": (gateway.gateway, len(gateway.LOADS), 8),
    "durability": (logs.durability, 11, 110),
    "disks": (disks.disks, 6, 60),
    "replay": (restarts.replay, 1, 40),
    "cleaner": (restarts.cleaner, 2, 190),
    "larger": (larger.larger, 4, 420),
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures islands, beside other engines where that says something.")
    parser.add_argument("--only", action="append", choices=SECTIONS, metavar="SECTION",
                        help=f"this section; may be repeated: {', '.join(SECTIONS)}")
    parser.add_argument("--seconds", type=float, help="of each measurement; default 1")
    parser.add_argument("--warmup", type=float, help="before each; default 0.2")
    parser.add_argument("--repeat", type=int, help="rounds; default 5")
    parser.add_argument("--quick", action="store_true", help="little of everything: to see that all works, no more")
    parser.add_argument("--large", action="store_true", help="section sizes also with as many rows as memory allows")
    parser.add_argument("--json", metavar="FILE", help="the results, with every single measurement")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"), help="where islands and islandd lie")
    parser.add_argument("--directory", default=os.path.join(ROOT, "build/bench"),
                        help="for deployment files, data, and logs on disk of section disks; emptied first and last")
    parser.add_argument("--log-directory", metavar="DIR", help="where the sections about logs (durability, disks, "
                        "replay, cleaner) make a new folder for theirs, and remove it; default: /dev/shm if there is "
                        "room, else --directory")
    arguments = parser.parse_args()
    for name, normal, quick in (("seconds", 1.0, 0.15), ("warmup", 0.2, 0.05), ("repeat", 5, 1)):
        if getattr(arguments, name) is None:
            setattr(arguments, name, quick if arguments.quick else normal)
    if arguments.seconds < 0.1 or arguments.warmup < 0 or arguments.repeat < 1:
        parser.error("--seconds: at least 0.1; --warmup: at least 0; --repeat: at least 1")
    return arguments


def estimates(arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds that each section will take, about."""
    each_s = (arguments.seconds + arguments.warmup + RUN_OVERHEAD_S) * arguments.repeat
    return {name: measurements * each_s + (other_s / 10 if arguments.quick else other_s)
            for name, (_, measurements, other_s) in SECTIONS.items() if name in (arguments.only or SECTIONS)}


def measure(context: Context) -> dict[str, Document]:
    """Runs the sections and prints each as soon as it is there."""
    sections = {}
    try:
        for name in context.progress.estimates:
            context.progress.enter(name)
            begin = time.monotonic()
            section = SECTIONS[name][0](context)
            context.progress.leave()
            context.progress.clear()
            print(section.text() + "\n", flush=True)
            sections[name] = section.json() | {"seconds": round(time.monotonic() - begin, 1),
                                               "samples": context.samples.get(name, {})}
    finally:
        context.progress.clear()
        context.close()
    return sections


def others_busy_percent(arguments: argparse.Namespace) -> float:
    """What other programs leave busy of this machine before anything is measured."""
    begin = CpuTimes()
    time.sleep(0.1 if arguments.quick else 2)
    return CpuTimes().percent_since(begin, "busy")


def disturbances(others_percent: float, begin: CpuTimes) -> Iterator[str]:
    """Notes on what makes the numbers doubtful."""
    stolen_percent = CpuTimes().percent_since(begin, "stolen")
    if others_percent > NOISE_PERCENT:
        yield f"other programs used {others_percent:.0f} % of the CPU time before the measurements: do not trust ratios"
    if stolen_percent > NOISE_PERCENT:
        yield f"the hypervisor took {stolen_percent:.0f} % of the CPU time during the measurements"


def summarize(arguments: argparse.Namespace, context: Context, sections: Mapping[str, Document], seconds: float,
              notes: Sequence[str]) -> int:
    bars = [bar for section in sections.values() for bar in section["bars"]]
    met, missed = (sum(bar["met"] is verdict for bar in bars) for verdict in (True, False))
    for note in notes:
        print(f"NOTE: {note}")
    for what in context.wrong:
        print(f"WRONG: {what}")
    sums = f"{len(context.wrong)} runs were wrong" if context.wrong else "in every run the rows added up"
    print(f"{met} bars met, {missed} missed, {len(bars) - met - missed} not measured; {sums}")
    print(f"on {context.machine['summary']}; medians of {arguments.repeat} rounds, {arguments.seconds:g} s each; "
          f"took {seconds:.0f} s")
    if arguments.json:
        with writing(arguments.json) as file:
            json.dump({"machine": context.machine["summary"], "seconds_per_measurement": arguments.seconds,
                       "repeat": arguments.repeat, "took_s": round(seconds, 1), "wrong": context.wrong, "notes": notes,
                       "sections": sections}, file, indent=1)
    return 1 if context.wrong else 0


def new_log_folder(arguments: argparse.Namespace) -> str:
    """In memory if there is room: what a disk takes its time for is not what is compared."""
    memory = "/dev/shm"
    if arguments.log_directory:
        os.makedirs(arguments.log_directory, exist_ok=True)
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= LOG_ROOM
    parent = arguments.log_directory or (memory if roomy else arguments.directory)
    return tempfile.mkdtemp(prefix="islands-bench-", dir=os.path.abspath(parent))


def main() -> int:
    arguments = parse_arguments()
    arguments.directory = os.path.abspath(arguments.directory)
    islands = Islands(arguments.bin)
    if not islands.built():
        return 2
    log_folders = []

    def work() -> int:
        log_folders.append(new_log_folder(arguments))
        arguments.log_directory = log_folders[0]
        begin, cpu_begin, others_percent = time.monotonic(), CpuTimes(), others_busy_percent(arguments)
        context = Context(islands, arguments, Progress(estimates(arguments)))
        sections = measure(context)
        return summarize(arguments, context, sections, time.monotonic() - begin,
                         list(disturbances(others_percent, cpu_begin)))

    try:
        return guarded(islands, arguments.directory, work)
    finally:
        remove_everything(islands, arguments.directory)
        remove_groups()
        for folder in log_folders:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
