#!/usr/bin/python3
"""Runs tests that start processes, for `make test`, and those that failed once more when all others are over.

Two files of tests run side by side, since most of a test is waiting; what failed is tried again alone. On a shared
machine another tenant may hold both cores for seconds, and a test that waits for a process then waits in
vain. A test that fails twice has failed; so have more than MOST tests that failed once. One that passes the second time
is named at the end: whoever sees a name there twice has found a race, in the test or in what it tests.

    deploy/e2e/suite.py [PYTEST ARGUMENT...]
"""

import os
import sys

import pytest

MOST = 8
SIDE_BY_SIDE = 2
LEFT_OUT = "not soak and not planted"  # markers; each has a command of its own
SLOWEST = 25  # are named at the end, for who has to make room


class Failures:
    """What failed, as pytest names it; its fixtures' failures, too."""

    def __init__(self) -> None:
        self.tests: list[str] = []
        self.root = ""  # where the names begin

    def pytest_configure(self, config: pytest.Config) -> None:
        self.root = str(config.rootpath)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.tests:
            self.tests.append(report.nodeid)


def run(arguments: list[str], side_by_side: int = 0) -> tuple[int, Failures]:
    failures = Failures()
    at_once = ["-n", str(side_by_side), "--dist", "loadfile"] if side_by_side else []
    code = pytest.main([*arguments, *at_once, "-m", LEFT_OUT, f"--durations={SLOWEST}", "-p", "no:cacheprovider",
                        "-rs"], plugins=[failures])
    return int(code), failures


def main(arguments: list[str]) -> int:
    os.chdir(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    code, failed = run(arguments, SIDE_BY_SIDE)
    if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed.tests) <= MOST:
        return code
    print(f"suite: {len(failed.tests)} failed, each is tried once more", flush=True)
    os.chdir(failed.root)
    code, _ = run(failed.tests)
    if code != 0:
        return code
    for test in failed.tests:
        print(f"suite: UNSTEADY: {test} failed, and passed when it was tried again", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
