"""Driving the `islands` command from programs that run series of measurements: demo.py and bench.py.

Whatever happens to such a program - an error, Ctrl-C, SIGTERM - guarded() stops every island that it started.
"""

import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import IO, Any, NotRequired, TypedDict

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMMAND_TIMEOUT_S = float(os.environ.get("ISLANDS_PATIENCE_S", 120))  # emulated machines need more
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Document = dict[str, Any]  # an object of JSON


@contextlib.contextmanager
def writing(path: str) -> Iterator[IO[str]]:
    """A text file. An error while it is written names it, as those of opening do."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            yield file
    except OSError as fault:
        if fault.filename is None:
            fault.filename = path
        raise


class Core(TypedDict):
    package: int
    cache_group: int
    nodes: list[int]
    pus: list[int]


class MachineReport(TypedDict):
    """Of what `islands machine` says, the part that is used here."""
    summary: str
    cores: list[Core]


class IslandReport(TypedDict):
    id: int
    workers: int
    lost: bool
    unresponsive: bool
    busy_fraction: float
    committed_per_s: float


class ScopeReport(TypedDict):
    committed: int


class RunReport(TypedDict):
    """Of what `islands run` says, the part that is used here; the last three are parameters of the workload."""
    run_directory: str
    layout: str
    durability: str
    votes: str
    islands: int
    measured_s: float
    committed: int
    committed_per_s: float
    aborted: int
    unknown: int
    messages_per_transaction: float
    log_bytes_per_transaction: float
    clients_moved_per_transaction: float
    aborts_by_reason: dict[str, int]
    profile: dict[str, Any]
    latency_us: dict[str, float]
    latency_from: str
    per_island: list[IslandReport]
    per_scope: dict[str, ScopeReport]
    cpu_fraction: float | None
    core_wait_fraction: float | None
    others_fraction: float | None
    stolen_fraction: float
    traffic: dict[str, Any]
    sum_check: str
    sum_check_detail: str
    rate_search: NotRequired[dict[str, Any]]
    op: NotRequired[str]
    multisite_percent: NotRequired[float]
    zipf: NotRequired[float]


class ParameterCase(TypedDict):
    """Another parameter has this value."""
    name: str
    value: str


class WorkloadParameter(TypedDict):
    """What a workload can be told, as its shared object describes it (instance/workload/parameters.h)."""
    name: str
    kind: str      # whole, number, percent, choice, path
    expected: str  # for people
    help: str
    min: NotRequired[float]
    max: NotRequired[float]
    choices: NotRequired[list[str]]
    preset: NotRequired[str]
    only_with: NotRequired[ParameterCase]
    idle_with: NotRequired[ParameterCase]


class WorkloadDescription(TypedDict):
    tables: list[str]
    rows_total_of: str  # the table that --rows-total is about, if any
    parameters: list[WorkloadParameter]


class Failed(Exception):
    """Something went wrong that the user should read about; no trace needed."""


class Interrupted(Exception):
    """SIGINT, SIGTERM or SIGHUP."""


def complain(text: object) -> None:
    print(f"{os.path.basename(sys.argv[0]).removesuffix('.py')}: {text}", file=sys.stderr)


class StatusLine:
    """On stderr: one line on a terminal, rewritten; elsewhere one line per step."""

    def __init__(self) -> None:
        self.width = 0

    def print(self, line: str) -> None:
        if sys.stderr.isatty():
            print("\r" + line.ljust(self.width), end="", file=sys.stderr, flush=True)
            self.width = len(line)
        else:
            print(line, file=sys.stderr, flush=True)

    def clear(self) -> None:
        if sys.stderr.isatty() and self.width:
            print("\r" + " " * self.width + "\r", end="", file=sys.stderr, flush=True)
            self.width = 0


@contextlib.contextmanager
def signals_held_back() -> Iterator[None]:
    """Those that come meanwhile are dealt with at its end. An exception out of the starting of a program would leave
    one behind that nobody knows of, and that goes on starting islands."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no signal is dealt with here
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda caught, _: came.append(caught)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def end(process: subprocess.Popen[str]) -> None:
    """Interrupts a program that still runs, so that it takes back what it has started, and kills it at last."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def run_program(command: Sequence[str], directory: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S,
                codes: Sequence[int] = (0,)) -> tuple[str, str]:
    """What a program prints, on stdout and on stderr, if it ends with one of `codes`. It runs in a session of its own,
    so that Ctrl-C reaches it only through us. With a `directory` it has its temporary files there, and its children
    end with it."""
    name = " ".join([os.path.basename(command[0]), *command[1:]])
    environment = dict(os.environ, TMPDIR=directory) if directory else None
    process = None
    try:
        with signals_held_back():
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       stdin=subprocess.DEVNULL, text=True, start_new_session=True, env=environment)
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise Failed(f"`{name}` did not end within {timeout_s:g} s") from None
    finally:
        if process:
            end(process)
        if process and directory:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    if process.returncode not in codes:
        raise Failed(f"`{name}` failed with exit code {process.returncode}:\n{err.strip()}")
    return out, err


def without_notes(error: str) -> str:
    """What went wrong: two that differ in what a command noted beside it, who else used the cores, are the same."""
    return "\n".join(line for line in error.splitlines() if not line.startswith("note: "))


def json_of(command: Sequence[str], directory: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S,
            codes: Sequence[int] = (0,)) -> Any:
    """The JSON document that a program prints."""
    out, _ = run_program(command, directory, timeout_s, codes)
    try:
        return json.loads(out)
    except ValueError:
        raise Failed(f"`{' '.join(command)}` printed no JSON:\n{out}") from None


def option(parameter: str) -> str:
    """Of a command line: update_percent -> --update-percent."""
    return "--" + parameter.replace("_", "-")


def word(value: str | int | float | None) -> str:
    """As a command line takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def wrong_value(parameter: WorkloadParameter, value: object) -> bool:
    """Whether `islands run` would refuse it; ReadValue in instance/workload/parameters.cc has the same rules."""
    if parameter["kind"] in ("whole", "number", "percent"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return True
        whole = parameter["kind"] != "whole" or isinstance(value, int)
        return not (whole and parameter.get("min", 0) <= value <= parameter.get("max", 100))
    if parameter["kind"] == "choice":
        return value not in parameter.get("choices", [])
    return not str(value).startswith("/")


def holds(case: ParameterCase, told: Mapping[str, Any], description: WorkloadDescription) -> bool:
    """Whether it is so in a run that is told this, and by presets what it is not told."""
    presets = {other["name"]: other.get("preset") for other in description["parameters"]}
    value = told.get(case["name"], presets[case["name"]])
    try:
        return float(value) == float(case["value"])
    except (TypeError, ValueError):
        return word(value) == case["value"]


def misplaced(parameter: WorkloadParameter, told: Mapping[str, Any], description: WorkloadDescription) -> str:
    """What is wrong with whether it is among what a run is told, "" if nothing; CheckGiven in
    instance/workload/parameters.cc has the same rules."""
    name, when, applies = parameter["name"], "", True
    if needed := parameter.get("only_with"):
        applies = holds(needed, told, description)
        when = f" with {option(needed['name'])} {needed['value']}"
    given = name in told or "preset" in parameter
    if given == applies:
        return ""
    if applies:
        return f"found no {option(name)}, expected {parameter['expected']}{when}"
    return f"found {option(name)} {word(told[name])}, expected it only{when}"


def idle(parameter: WorkloadParameter, told: Mapping[str, Any], description: WorkloadDescription) -> bool:
    """Whether a run is told a value of it that has no effect there. `islands run` refuses that (CheckHasEffect in
    instance/workload/parameters.cc); a series of runs leaves it out, as long as it has an effect in others."""
    if parameter["name"] not in told or "idle_with" not in parameter:
        return False
    itself: ParameterCase = {"name": parameter["name"], "value": parameter.get("preset", "")}
    return holds(parameter["idle_with"], told, description) and not holds(itself, told, description)


def without_effect(series: Sequence[Mapping[str, Any]], description: WorkloadDescription) -> list[str]:
    """What runs are told that has an effect in none of them."""
    found: list[str] = []
    for parameter in description["parameters"]:
        told = [run for run in series if idle(parameter, run, description)]
        effective = [run for run in series if "idle_with" in parameter
                     and not holds(parameter["idle_with"], run, description)]
        if told and not effective:
            name, other = parameter["name"], parameter["idle_with"]
            found.append(f"found {option(name)} {word(told[0][name])}, which has no effect with "
                         f"{option(other['name'])} {other['value']}; expected {parameter['preset']}, or another "
                         f"{option(other['name'])}")
    return found


def is_object(workload: str) -> bool:
    """Whether it is the path of a workload's object, no name; DescribeWorkload in deploy/run/describe.cc has the same
    rule."""
    return "/" in workload or workload.endswith(".so")


class Islands:
    """The `islands` command of a folder of binaries."""

    def __init__(self, folder: str) -> None:
        self.binary = os.path.join(folder, "islands")
        self.library = os.path.normpath(os.path.join(folder, "..", "lib", "islands"))  # workloads and programs
        self.own_library = os.path.expanduser("~/.local/lib/islands")  # workloads of the user's, which go after these
        self.descriptions: dict[str, WorkloadDescription] = {}

    def built(self) -> bool:
        if os.path.exists(self.binary):
            return True
        complain(f"{self.binary} is not there; run `make build` first")
        return False

    def describe(self, workload: str) -> WorkloadDescription | None:
        """What it can be told, by its name or its object's path; None if it is not built."""
        files = [workload] if is_object(workload) else [
            os.path.join(folder, f"{workload}.so") for folder in (self.library, self.own_library)]
        file = next(filter(os.path.isfile, files), None)
        if workload not in self.descriptions and file:
            islandd = os.path.join(os.path.dirname(self.binary), "islandd")
            try:
                self.descriptions[workload] = json_of([islandd, "--describe", file])
            except (Failed, OSError) as failure:
                raise Failed(f"{islandd} cannot say what workload '{workload}' can be told: {failure}") from None
        return self.descriptions.get(workload)

    def call(self, *arguments: str, timeout_s: float = COMMAND_TIMEOUT_S,
             environment: Mapping[str, str] | None = None, prefix: Sequence[str] = (),
             codes: Sequence[int] = (0,)) -> Any:
        """`environment` is in addition to ours, and only the command has it, and what that starts. `prefix`: a command
        that becomes the one behind it."""
        settings = [f"{name}={value}" for name, value in (environment or {}).items()]
        command = [*prefix, *(["env", *settings] if settings else []), self.binary, *arguments, "--format", "json"]
        return json_of(command, timeout_s=timeout_s, codes=codes)


def processes_of(directory: str) -> list[int]:
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


def deployments_in(directory: str) -> list[str]:
    """A folder with islands.yaml for each."""
    return sorted(glob.glob(os.path.join(glob.escape(directory), "*", "islands.yaml")))


def stop_everything(islands: Islands, directory: str) -> bool:
    """Stops the deployments in `directory`; returns whether it went without force."""
    gentle = True
    for file in deployments_in(directory):
        try:
            islands.call("down", file)
        except Failed as failure:
            complain(failure)
            gentle = False
    for pid in processes_of(directory):
        complain(f"killing process {pid}, which `islands down` left behind")
        gentle = False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return gentle


def remove_everything(islands: Islands, directory: str) -> None:
    """Deployments that were stopped, and the directory. A log may lie elsewhere, and its rings in shared memory."""
    for file in deployments_in(directory):
        try:
            islands.call("destroy", file, "--yes")
        except Failed as failure:
            complain(failure)
    shutil.rmtree(directory, ignore_errors=True)


def handle_signals(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in SIGNALS:
        signal.signal(number, handler)


def interrupt(number: int, frame: FrameType | None) -> None:
    handle_signals(signal.SIG_IGN)  # cleaning up is not to be interrupted
    raise Interrupted(signal.Signals(number).name)


def guarded(islands: Islands, directory: str, work: Callable[[], int]) -> int:
    """Runs `work` in an emptied `directory` and returns its exit code, or that of what ended it."""
    handle_signals(interrupt)
    code = 1
    try:
        stop_everything(islands, directory)  # what an earlier program left that was killed itself
        remove_everything(islands, directory)
        os.makedirs(directory)
        code = work()
    except Interrupted as signal_name:
        print(file=sys.stderr)
        complain(f"{signal_name}; stopping the islands")
        code = 130
    except (Failed, OSError) as failure:
        complain(failure)
    finally:
        handle_signals(signal.SIG_IGN)
        if not stop_everything(islands, directory):
            code = code or 1
    return code
