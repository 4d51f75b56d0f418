#!/usr/bin/python3
"""Switches every planted bug on in turn and sees that a test finds it; without one, the same tests must pass.

    catch.py DIRECTORY [BUG]...      DIRECTORY holds the planted_* binaries; BUG: only these
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

SEEDS = ("planted_seeds", "--gtest_filter=*Simulate*")
SCRIPTS = ("planted_isolation", "--gtest_filter=Scripts/*", "--gtest_fail_fast")
PROBES = ("planted_probes",)
TREE = ("planted_btree", "--gtest_fail_fast")
COMMIT = ("planted_commit",)
UPDATES = ("planted_executor", "--gtest_filter=*Updates*")
MICRO = ("planted_micro",)
APPEND = ("planted_append",)

# Which tests have to find which bug, each of them.
BUGS = {
    "release_read_locks_early": [SEEDS],
    "release_at_yes": [SEEDS],
    "skip_next_key_lock": [SEEDS, SCRIPTS],
    "skip_insert_intention": [SEEDS, SCRIPTS],
    "forget_victim_branch": [PROBES],
    "vote_yes_without_branch": [COMMIT],
    "ignore_boot_epoch": [SEEDS],
    "forget_before_acks": [COMMIT],
    "presume_one_phase_commit": [COMMIT],
    "lose_wakeup": [PROBES],
    "convert_over_holders": [SEEDS, SCRIPTS],
    "skip_validation": [TREE],
    "suspend_without_locks": [SEEDS, SCRIPTS],
    "drop_probes": [PROBES],
    "grant_every_lock": [UPDATES, MICRO, APPEND],
}
SEED_RANGE = "1:40"
# Lines worth showing, best first.
TELLING = [re.compile(tell)
           for tell in ("invariant broken", "VIOLATION", "ANOMALY", "invariant", "Expected", "Value of")]


def run(directory, bug, test):
    """(exit status, seconds, the line of output that tells most)"""
    environment = dict(os.environ, ISLANDS_PLANTED_BUG=bug, ISLANDS_SEEDS=SEED_RANGE)
    environment.pop("ISLANDS_SEED", None)
    begun = time.monotonic()
    done = subprocess.run([directory / test[0], *test[1:]], env=environment, capture_output=True, text=True,
                          errors="replace", timeout=600, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    telling = [line.strip() for tell in TELLING for line in lines if tell.search(line)]
    return done.returncode, time.monotonic() - begun, telling[0][:90] if telling else ""


def main():
    if len(sys.argv) < 2 or not pathlib.Path(sys.argv[1]).is_dir():
        print(__doc__, file=sys.stderr)
        return 2
    directory = pathlib.Path(sys.argv[1])
    wanted = sys.argv[2:] or list(BUGS)
    if unknown := [bug for bug in wanted if bug not in BUGS]:
        print(f"no such bug: {', '.join(unknown)}; there are {', '.join(BUGS)}", file=sys.stderr)
        return 2
    controls = sorted({test for bug in wanted for test in BUGS[bug]})
    jobs = [("none", test) for test in controls] + [(bug, test) for bug in wanted for test in BUGS[bug]]
    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for (bug, test), (status, seconds, line) in zip(jobs, pool.map(lambda job: run(directory, *job), jobs)):
            found = status != 0
            right = found == (bug != "none")
            wrong += not right
            verdict = ("found" if found else "clean") if right else ("FALSE ALARM" if found else "NOT FOUND")
            print(f"{verdict:11} {bug:25} {test[0]:18} {seconds:5.1f} s  {line if found else ''}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
