"""What the tests that start processes share."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARIES = os.environ.get("ISLANDS_BIN") or os.path.join(ROOT, "build", "release", "bin")

os.environ["ISLANDS_NO_DOCTOR"] = "1"  # `islands run` asks it otherwise, which takes a second each time

Document = dict[str, Any]       # an object of JSON
WriteFile = Callable[..., str]  # see deployment()


def pytest_configure(config: pytest.Config) -> None:
    """What `make test` leaves out (suite.py)."""
    config.addinivalue_line("markers", "soak: more of the same, or minutes of it: `make soak`")
    config.addinivalue_line("markers", "planted: needs the engine with planted bugs: `make planted`")


class Result(NamedTuple):
    code: int
    out: str
    err: str


class Islands(str):
    """The path of the `islands` binary, which is also able to run it."""

    def run(self, *arguments: object, timeout: float = 60, **more: Any) -> Result:
        """Runs `islands ARGUMENTS` to its end."""
        done = subprocess.run([self, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, **more)
        return Result(done.returncode, done.stdout, done.stderr)

    def json(self, *arguments: object, code: int | None = 0, timeout: float = 60, **more: Any) -> Any:
        """Runs it with --format json; stdout must be exactly one JSON document. `code` None: any."""
        done = self.run(*arguments, "--format", "json", timeout=timeout, **more)
        assert code is None or done.code == code, done
        return json.loads(done.out)


@pytest.fixture(scope="session")
def islands() -> Islands:
    """ISLANDS_BIN is the binary or its folder; without it, the release build's."""
    path = BINARIES if os.path.isfile(BINARIES) else os.path.join(BINARIES, "islands")
    if not os.access(path, os.X_OK):
        pytest.skip(f"{path} is not built")
    return Islands(path)


@pytest.fixture
def folder() -> Iterator[str]:
    """A new folder with a short name: Unix-domain socket paths have at most 107 bytes, and tmp_path's are long."""
    path = tempfile.mkdtemp(prefix="islands-")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def deployment(folder: str) -> WriteFile:
    """Writes a deployment file into the folder and returns its path."""
    def write(text: str, name: str = "deployment.yaml") -> str:
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path
    return write
