"""A disk that is full under the Python tools: what they say names the file, and they end with exit code 1."""

import os
import subprocess
import sys

import pytest

import report_results
from conftest import ROOT, Result

sys.path.insert(0, os.path.join(ROOT, "experiments"))
from islands_command import writing  # noqa: E402


def test_an_error_names_the_file() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"), writing("/dev/full") as file:
        file.write("some text")
    with pytest.raises(FileNotFoundError, match="'/nowhere/file'"), writing("/nowhere/file"):
        pass


def run(*words: str) -> Result:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


def test_report(folder: str) -> None:
    report_results.write_results(os.path.join(folder, "r"), "quad-socket", ["fig11"])
    output = os.path.join(folder, "out")
    os.mkdir(output)
    os.symlink("/dev/full", os.path.join(output, "index.html"))
    done = run(os.path.join(ROOT, "experiments", "report.py"), os.path.join(folder, "r"), "--output", output)
    assert done.code == 1 and done.err.count("\n") == 1, done
    assert "cannot write the report: " in done.err and f"No space left on device: '{output}/index.html'" in done.err


def test_sweep(folder: str) -> None:
    """A disk of one page: what is to be run does not fit."""
    disk = os.path.join(folder, "disk")
    os.mkdir(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", disk], check=False).returncode:
        pytest.skip("cannot mount a file system here")
    try:
        binary = os.path.join(os.environ.get("ISLANDS_BIN") or os.path.join(ROOT, "build", "release", "bin"), "islands")
        done = subprocess.run([binary, "sweep", os.path.join(ROOT, "experiments", "quick.yaml"), "--results",
                               os.path.join(disk, "results")], capture_output=True, text=True, timeout=120, check=False)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done
    assert "No space left on device: " in done.stderr and f"'{disk}/results/" in done.stderr, done
