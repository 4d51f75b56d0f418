"""suite.py: a second try for what fails once, no more than that, and nothing of it is kept silent."""

import os
import subprocess
import sys

SUITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "suite.py")
TESTS = """
import os
import pytest

def test_well():
    pass

@pytest.mark.parametrize("number", range({tests}))
def test_unsteady(number):
    path = os.path.join({folder!r}, str(number))
    tried = os.path.exists(path)
    open(path, "w").close()
    assert tried and not {for_good}

@pytest.fixture
def broken():
    path = os.path.join({folder!r}, "fixture")
    yield
    assert os.path.exists(path) or (open(path, "w").close() or False)

def test_with_a_fixture(broken):
    pass
"""


def suite(folder: str, tests: int, for_good: bool = False) -> subprocess.CompletedProcess[str]:
    path = os.path.join(folder, "test_some.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(TESTS.format(folder=folder, tests=tests, for_good=for_good))
    return subprocess.run([sys.executable, SUITE, path], capture_output=True, text=True, timeout=60, check=False)


def test_what_fails_once_is_tried_again_and_named(folder: str) -> None:
    done = suite(folder, tests=2)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("UNSTEADY") == 3 and "test_unsteady[1] failed, and passed" in done.stdout


def test_what_fails_twice_has_failed(folder: str) -> None:
    done = suite(folder, tests=1, for_good=True)
    assert done.returncode == 1 and "UNSTEADY" not in done.stdout


def test_many_that_fail_are_no_accident(folder: str) -> None:
    done = suite(folder, tests=9)
    assert done.returncode == 1 and "once more" not in done.stdout
