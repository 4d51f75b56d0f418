#!/usr/bin/env python3
"""The demonstration: the microbenchmark on two cuts of this machine, as in section 7.1 of "OLTP on Hardware Islands".

    experiments/demo.py [--quick] [--bin DIR] [--directory DIR]

For 1ISL and for one island per core it starts the cluster, reads and updates 10 rows a transaction at 0, 20, 50 and
100 % multisite, stops it, and prints the table. Progress goes to stderr. Whatever happens, no process is left behind.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OPERATIONS = ["read", "update"]
MULTISITE = [0, 20, 50, 100]
ROWS = 10
COMMAND_TIMEOUT_S = 120
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Failed(Exception):
    """Something went wrong that the user should read about; no trace needed."""


class Interrupted(Exception):
    """SIGINT, SIGTERM or SIGHUP."""


def parse_arguments():
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


class Progress:
    """One line on a terminal, rewritten; elsewhere one line per step."""

    def __init__(self, steps):
        self.steps, self.done, self.width = steps, 0, 0

    def show(self, text):
        line = f"[{self.done:2}/{self.steps}] {text}"
        if sys.stderr.isatty():
            print("\r" + line.ljust(self.width), end="", file=sys.stderr, flush=True)
            self.width = len(line)
        else:
            print(line, file=sys.stderr, flush=True)

    def clear(self):
        if sys.stderr.isatty() and self.width:
            print("\r" + " " * self.width + "\r", end="", file=sys.stderr, flush=True)
            self.width = 0


class Islands:
    """The `islands` command. Commands run in sessions of their own, so that Ctrl-C reaches them only through us."""

    def __init__(self, binary):
        self.binary = binary

    @staticmethod
    def end(process):
        """Interrupts a command that still runs, so that `up` takes back what it has started, and kills it at last."""
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    def call(self, *arguments):
        """The JSON document that the command prints."""
        process = subprocess.Popen([self.binary, *arguments, "--format", "json"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, start_new_session=True)
        try:
            out, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"`islands {' '.join(arguments)}` did not end within {COMMAND_TIMEOUT_S} s") from None
        finally:
            self.end(process)
        if process.returncode != 0:
            raise Failed(f"`islands {' '.join(arguments)}` failed with exit code {process.returncode}:\n{err.strip()}")
        try:
            return json.loads(out)
        except ValueError:
            raise Failed(f"`islands {' '.join(arguments)}` printed no JSON:\n{out}") from None


def processes_of(directory):
    """Processes whose command line names a file in `directory`, ourselves excepted."""
    needle = os.path.join(os.path.abspath(directory), "").encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if int(pid) != os.getpid() and needle in file.read():
                    found.append(int(pid))
        except OSError:
            continue
    return found


def stop_everything(islands, directory):
    """Stops what runs in `directory`; returns whether it went without force."""
    gentle = True
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
        file = os.path.join(directory, name, "islands.yaml")
        if not os.path.exists(file):
            continue
        try:
            islands.call("down", file)
        except Failed as failure:
            print(f"demo: {failure}", file=sys.stderr)
            gentle = False
    for pid in processes_of(directory):
        print(f"demo: killing process {pid}, which `islands down` left behind", file=sys.stderr)
        gentle = False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return gentle


def prepare(islands, directory, layout):
    folder = os.path.join(directory, layout.lower())
    os.makedirs(folder)
    file = os.path.join(folder, "islands.yaml")
    islands.call("template", layout, "--output", file)
    return file


def run_layout(islands, arguments, layout, progress):
    file = prepare(islands, arguments.directory, layout)
    progress.show(f"{layout}: starting")
    islands.call("up", file)
    results = []
    for operation in OPERATIONS:
        for multisite in MULTISITE:
            progress.show(f"{layout}: {operation} {ROWS} rows, {multisite} % multisite")
            result = islands.call("run", file, "micro", "--op", operation, "--rows", str(ROWS), "--multisite",
                                  str(multisite), "--duration", str(arguments.seconds), "--warmup",
                                  str(arguments.warmup), "--results", os.path.join(arguments.directory, "results"))
            results.append(result)
            progress.done += 1
    progress.show(f"{layout}: stopping")
    islands.call("down", file)
    return results


def run_all(islands, arguments, layouts):
    progress = Progress(len(layouts) * len(OPERATIONS) * len(MULTISITE))
    try:
        return [result for layout in layouts for result in run_layout(islands, arguments, layout, progress)]
    finally:
        progress.clear()


def choose_layouts(machine):
    """1ISL and one island per core; on a single core two islands share it, so that there is something distributed."""
    return ["1ISL", f"{max(2, len(machine['cores']))}ISL"]


def table(results, layouts):
    found = {(result["layout"], result["op"], int(result["multisite_percent"])): result for result in results}
    lines = ["Throughput in thousand transactions per second"]
    for operation in OPERATIONS:
        lines.append("")
        lines.append(f"{operation + f' {ROWS} rows':<16}" + "".join(f"{f'{percent} %':>9}" for percent in MULTISITE)
                     + "   multisite")
        for layout in layouts:
            cells = [found[layout, operation, percent]["committed_per_s"] / 1000 for percent in MULTISITE]
            lines.append(f"  {layout:<14}" + "".join(f"{cell:>9.1f}" for cell in cells))
    return "\n".join(lines)


def summarize(arguments, machine, layouts, results, seconds):
    wrong = [result for result in results if result["sum_check"] != "ok"]
    file = os.path.join(arguments.directory, "demo.json")
    with open(file, "w", encoding="utf-8") as out:
        json.dump({"machine": machine["summary"], "seconds_per_run": arguments.seconds, "runs": results}, out, indent=1)
    print(f"Microbenchmark on {machine['summary']}, {arguments.seconds:g} s per run")
    print(table(results, layouts))
    print()
    checked = len(results) - len(wrong)
    print(f"{checked} of {len(results)} runs: the sum over all rows equals the committed row updates")
    for result in wrong:
        print(f"  sum_check {result['sum_check']}: {result['run_directory']}")
    print(f"took {seconds:.0f} s; results: {os.path.relpath(file)}, and a folder per run under "
          f"{os.path.relpath(os.path.dirname(results[0]['run_directory']))}")
    return 1 if wrong else 0


def handle_signals(handler):
    for number in SIGNALS:
        signal.signal(number, handler)


def interrupt(number, frame):
    handle_signals(signal.SIG_IGN)  # cleaning up is not to be interrupted
    raise Interrupted(signal.Signals(number).name)


def main():
    arguments = parse_arguments()
    arguments.directory = os.path.abspath(arguments.directory)
    islands = Islands(os.path.join(arguments.bin, "islands"))
    if not os.path.exists(islands.binary):
        print(f"demo: {islands.binary} is not there; run `make build` first", file=sys.stderr)
        return 2
    begin = time.monotonic()
    handle_signals(interrupt)
    code = 1
    try:
        stop_everything(islands, arguments.directory)  # what an earlier demo left that was killed itself
        shutil.rmtree(arguments.directory, ignore_errors=True)
        machine = islands.call("machine")
        layouts = choose_layouts(machine)
        results = run_all(islands, arguments, layouts)
        code = summarize(arguments, machine, layouts, results, time.monotonic() - begin)
    except Interrupted as signal_name:
        print(f"\ndemo: {signal_name}; stopping the islands", file=sys.stderr)
        code = 130
    except Failed as failure:
        print(f"demo: {failure}", file=sys.stderr)
    finally:
        handle_signals(signal.SIG_IGN)
        if not stop_everything(islands, arguments.directory):
            code = code or 1
    return code


if __name__ == "__main__":
    sys.exit(main())
