"""What the tests of virtual machines share: one guest at a time, and a deployment inside it."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import facts
import guest
import placement
import shelf

FILE = """version: 1
name: guest
{cut}
placement: {placement}
data:
  tables: [{{name: micro, key: [uint64], range: [0, {rows}], row_bytes: 250}}]
storage: {{buffer_pool: {pool}, memory_policy: {policy}, log: {{durability: none}}}}
timeouts: {{transaction_ms: 60000}}
metrics: {{base_port: 0}}
{more}"""
FOLDER = "/tmp/cluster"
# Short and few transactions: emulation makes a CPU slow, and this machine's cores are shared by all of the guest's.
RUN = "--op update --rows 4 --mpl 1 --multisite 20 --duration {duration} --warmup 0.1"


def need_machines() -> None:
    """For the top of a file of tests: skips all of it, with one line, where no machine can be booted."""
    reason = guest.why_not()
    if reason:
        pytest.skip(f"no virtual machines: {reason}", allow_module_level=True)


class Rack:
    """Boots guests on demand; a new one ends the one before, memory and CPUs are for one only."""

    def __init__(self) -> None:
        self.running: guest.Guest | None = None

    def guest(self, name: str) -> guest.Guest:
        if self.running is None or self.running.machine.name != name or not self.running.usable:
            self.end()
            booting = guest.Guest(shelf.MACHINES[name])
            booting.__enter__()
            self.running = booting
        return self.running

    def end(self) -> None:
        if self.running is not None:
            self.running.end()
            self.running = None


@pytest.fixture(scope="session")
def rack() -> Iterator[Rack]:
    made = Rack()
    yield made
    made.end()


class Cluster:
    """One deployment inside a guest; `prefix` stands before every `islands`, to change what it may do."""

    def __init__(self, machine: guest.Guest, prefix: str = "") -> None:
        self.guest = machine
        self.prefix = prefix
        self.file = f"{FOLDER}/deployment.yaml"

    def write(self, layout: int | None = None, how: str = "islands", policy: str = "preferred", pool: str = "192MiB",
              rows: int = 24000, cut: str | None = None, more: str = "") -> "Cluster":
        # What is bound has to stay in place while the kernel moves pages about; unbound pages would be elsewhere at
        # every look.
        self.guest.check(f"echo {int(how != 'os')} > /proc/sys/kernel/numa_balancing")
        self.guest.write(self.file, FILE.format(cut=cut or f"layout: {layout}ISL", placement=how, policy=policy,
                                                pool=pool, rows=rows, more=more))
        return self

    def command(self, arguments: str) -> str:
        return f"mkdir -p {FOLDER} && cd {FOLDER} && {self.prefix} islands {arguments}"

    def run(self, arguments: str) -> guest.Result:
        return self.guest.run(self.command(arguments))

    def json(self, arguments: str) -> Any:
        return json.loads(self.guest.check(self.command(f"{arguments} --format json")))

    def up(self, options: str = "") -> Any:
        return self.json(f"up {self.file} --timeout {guest.SECONDS - 20} {options}")

    def status(self) -> Any:
        return self.json(f"status {self.file}")

    def load(self, duration: float = 0.3) -> Any:
        """A short run of the microbenchmark; its result."""
        return self.json(f"run {self.file} micro {RUN.format(duration=duration)}")

    def disturb_load(self, disturbance: str, duration: float = 5, code: int = 0) -> Any:
        """The result of a run during which a shell command is executed, once there is a first line of progress; `code`:
        that it ends with."""
        self.guest.check(f"cd {FOLDER}; rm -rf code results; ({self.prefix} islands run {self.file} micro "
                         f"{RUN.format(duration=duration)} --results results > out 2> err; echo $? > code) &")
        during = self.guest.run(f"cd {FOLDER}; until [ -s err ] || [ -e code ]; do sleep 0.1; done; {disturbance}; "
                                "[ ! -e code ]")
        done = self.guest.run(f"cd {FOLDER}; until [ -e code ]; do sleep 0.1; done; cat results/*/summary.json; "
                              "cat out err >&2; exit $(cat code)")
        assert during.code == 0, f"the run was over too soon: {during} {done}"
        assert done.code == code, done
        return json.loads(done.out)

    def wait_until(self, condition: Callable[[list[dict[str, Any]]], bool], what: str) -> list[dict[str, Any]]:
        """Polls `islands status` until the condition holds; that status."""
        deadline = time.monotonic() + guest.SECONDS
        while True:
            status = self.status()
            if condition(status["islands"]):
                return status["islands"]
            assert time.monotonic() < deadline, f"waited in vain for {what}: {status}"

    def check(self, machine: facts.MachineFacts, expected: placement.Expected) -> dict[int, facts.Island]:
        """The kernel shows what is expected, and `islands status` shows what the kernel shows. The islands."""
        islands = self.islands()
        complaints = (placement.check_kernel(machine, expected, islands) or
                      placement.check_status(expected, islands, self.status()))
        assert not complaints, "\n".join(complaints)
        return islands

    def up_run_check(self, machine: facts.MachineFacts, expected: placement.Expected) -> dict[int, facts.Island]:
        self.up()
        assert self.load()["sum_check"] == "ok"
        return self.check(machine, expected)

    def machine_facts(self) -> facts.MachineFacts:
        return facts.MachineFacts(self.guest.check(facts.READ_MACHINE))

    def islands(self) -> dict[int, facts.Island]:
        return facts.read_islands(self.guest.check(facts.READ_ISLANDS))

    def end(self) -> None:
        """Nothing stays for the next test: no process, no file."""
        if not self.guest.usable:
            return  # it failed already, and the next test gets a new one
        down = self.run(f"down {self.file}") if self.guest.run(f"test -e {self.file}").code == 0 else None
        left = self.guest.run(f"pidof islandd islands && killall -9 islandd islands; rm -rf {FOLDER}").out
        assert (down is None or down.code == 0) and not left, f"{down}; processes left: {left}"


On = Callable[..., Cluster]  # see on()


@pytest.fixture
def on(rack: Rack) -> Iterator[On]:
    """on("quad") is a cluster on that machine, taken down after the test."""
    clusters: list[Cluster] = []

    def make(name: str, prefix: str = "") -> Cluster:
        clusters.append(Cluster(rack.guest(name), prefix))
        return clusters[-1]
    yield make
    for cluster in clusters:
        cluster.end()
