"""The hints of all Python here, checked by mypy as mypy.ini says; `mypy` at the top of the tree does the same."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from conftest import ROOT

sys.path.insert(0, os.path.join(ROOT, "deploy"))
import tidy  # noqa: E402

SDK = os.path.join(ROOT, "build", "tools", "venv", "bin", "python")
FILES = [path for path in tidy.list_files(ROOT) if path.endswith(".py")]
DASHBOARDS = [path for path in FILES if path.startswith("dashboards/")]
WRONG = """import json

def plain(text):
    return text

def number() -> int:
    return "one"

def first(words: list[str] = None) -> str:
    return words[0]

def load(text: str) -> dict:
    return json.loads(text)  # type: ignore
"""
COMPLAINTS = ["3: error: Function is missing a type annotation", "7: error: Incompatible return value type",
              "9: error: Incompatible default for argument", "12: error: Missing type parameters for generic type",
              '13: error: Unused "type: ignore" comment']

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")


def mypy(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "mypy", *arguments], cwd=ROOT, capture_output=True, text=True,
                          timeout=300)


def test_hints_hold() -> None:
    done = mypy()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"Success: no issues found in {len(FILES) - len(DASHBOARDS)} source files\n"


def test_hints_of_the_dashboards_hold() -> None:
    """Apart, with the Python that has Grafana's package: its types are looked up."""
    if not os.access(SDK, os.X_OK):
        pytest.skip("grafana-foundation-sdk is not installed (deploy/install-packages.sh test needs PyPI for it)")
    done = mypy("--python-executable", SDK, *DASHBOARDS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_faults_are_found(folder: str) -> None:
    with open(os.path.join(folder, "wrong.py"), "w", encoding="utf-8") as file:
        file.write(WRONG)
    done = mypy("--no-error-summary", file.name)
    lines = re.findall(r"^\S+:(\d+: error: .*)$", done.stdout, re.M)
    assert len(lines) == len(COMPLAINTS), done
    assert all(line.startswith(complaint) for line, complaint in zip(lines, COMPLAINTS)), done
