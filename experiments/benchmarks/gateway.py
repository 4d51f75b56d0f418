"""What the front door costs: programs that speak gRPC or frames to a gateway, beside a gRPC server that does nothing.

On a small machine clients, gateway and islands share the cores, so that throughput says little. What is compared is
what a server's own process does with a second of processor time.
"""

import contextlib
import os
import selectors
import subprocess
from collections.abc import Iterator
from typing import NamedTuple, TypedDict

from benchmarks.context import Context, Measure
from benchmarks.section import Section, median, ratio
from durability import NONE
from islands_command import Failed, end, json_of

CLIENTS = 16
MANY = 64              # transactions of a call
READY_TIMEOUT_S = 30
ECHO, LAZY = "echo", "lazy"
GRPC, FRAMES = "gRPC", "frames"
AT_LEAST = 0.7         # of the echo's calls, per CPU-second
MANY_AT_LEAST = 10     # times the transactions per CPU-second of calls with one
FRAMES_AT_LEAST = 4    # times the calls per CPU-second of those over gRPC


class Load(NamedTuple):
    """What is asked, and of whom: the echo, or the gateway of a deployment that keeps so much."""
    server: str
    op: str
    per_call: int
    over: str = GRPC

    def words(self) -> str:
        server = self.server if self.server == ECHO else f"gateway, {self.server}"
        server += f", {FRAMES}" if self.over == FRAMES else ""
        return f"{server}: {self.op}" + (f", {self.per_call} a call" if self.per_call > 1 else "")


class Found(TypedDict):
    """Of what `gateway_load load` prints, the part that is used here."""
    transactions: int
    seconds: float
    p50_us: float  # of calls
    p99_us: float
    cpu_s: float  # that the server's process spent


class Server(NamedTuple):
    pid: int
    address: str


LOADS = (Load(ECHO, "get", 1), Load(NONE, "get", 1), Load(ECHO, "put", 1), Load(NONE, "put", 1), Load(LAZY, "put", 1),
         Load(ECHO, "get", MANY), Load(NONE, "get", MANY), Load(NONE, "put", MANY), Load(LAZY, "put", MANY),
         Load(NONE, "get", 1, FRAMES), Load(NONE, "put", 1, FRAMES), Load(LAZY, "put", 1, FRAMES),
         Load(NONE, "get", MANY, FRAMES))


def program_of(context: Context) -> str:
    return os.path.join(context.binaries, "gateway_load")


@contextlib.contextmanager
def echo_of(context: Context) -> Iterator[Server]:
    """The bare gRPC server, while it is wanted."""
    socket = os.path.join(context.directory, "echo.sock")
    process = subprocess.Popen([program_of(context), "echo", socket], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            line = process.stdout.readline() if selector.select(READY_TIMEOUT_S) else ""
        if line != "ready\n":
            end(process)
            raise Failed(f"gateway_load echo did not begin: {line.strip() or 'it said nothing'}")
        yield Server(process.pid, f"unix:{socket}")
    finally:
        end(process)
        with contextlib.suppress(FileNotFoundError):  # it removes it itself, unless it was killed
            os.unlink(socket)


def found_of(context: Context, server: Server, load: Load) -> Found:
    found: Found = json_of([program_of(context), "load", server.address, "--process", str(server.pid), "--op", load.op,
                            *(["--frames"] if load.over == FRAMES else []), "--clients", str(CLIENTS), "--per-call",
                            str(load.per_call), "--range",
                            str(context.rows_total), "--seconds", str(context.seconds), "--warmup",
                            str(context.warmup)], context.directory)
    if found["cpu_s"] <= 0:
        raise Failed(f"{load.words()}: the server has spent no processor time")
    return found


def gateway(context: Context) -> Section:
    layout = f"{context.cores}ISL"
    section = Section(f"Gateway: {CLIENTS} clients over gRPC or in frames, a row of 250 bytes a transaction; "
                      f"{layout} behind it; CPU time is the server's own", "server: transactions",
                      [("thousand/s", "{:.1f}"), ("CPU-us each", "{:.1f}"), ("per CPU-s, x echo", "{:.2f}"),
                       ("p50 us", "{:,.0f}"), ("p99 us", "{:,.0f}")])
    if not os.access(program_of(context), os.X_OK):
        section.note(f"{program_of(context)} is not built")
        return section
    deployments = {kept: context.deployment(f"gateway-{kept}", layout, cores=context.cores, sites=context.cores,
                                            durability=kept, gateway=True) for kept in (NONE, LAZY)}
    runs: dict[Load, list[Found]] = {load: [] for load in LOADS}
    with echo_of(context) as echo:
        servers = {ECHO: echo} | {kept: Server(*deployment.gateway()) for kept, deployment in deployments.items()}

        def measure(load: Load) -> Measure:
            def per_cpu_s() -> float:
                found = found_of(context, servers[load.server], load)
                runs[load].append(found)
                return found["transactions"] / found["cpu_s"]
            return per_cpu_s

        by_words = context.alternate({load.words(): measure(load) for load in LOADS})
    per_cpu_s = {load: by_words[load.words()] for load in LOADS}
    for deployment in deployments.values():
        deployment.run("read", seconds=0.1)  # its rows add up
        deployment.down()
    for load in LOADS:
        base = per_cpu_s.get(load._replace(server=ECHO, over=GRPC))
        section.row(load.words(), median([run["transactions"] / run["seconds"] for run in runs[load]]) / 1000,
                    1e6 / per_cpu_s[load], None if load.server == ECHO else ratio(per_cpu_s[load], base),
                    median([run["p50_us"] for run in runs[load]]), median([run["p99_us"] for run in runs[load]]))
    for op in ("get", "put"):
        section.bar(f"{op}, one a call, per CPU-second: gateway / echo",
                    ratio(per_cpu_s[Load(NONE, op, 1)], per_cpu_s[Load(ECHO, op, 1)]), at_least=AT_LEAST)
    for op in ("get", "put"):
        section.bar(f"{op}, per CPU-second: {MANY} a call / one a call",
                    ratio(per_cpu_s[Load(NONE, op, MANY)], per_cpu_s[Load(NONE, op, 1)]), at_least=MANY_AT_LEAST)
    for op in ("get", "put"):
        section.bar(f"{op}, one a call, per CPU-second: frames / gRPC",
                    ratio(per_cpu_s[Load(NONE, op, 1, FRAMES)], per_cpu_s[Load(NONE, op, 1)]), at_least=FRAMES_AT_LEAST)
    section.note(f"p50 and p99 are of calls; clients, server and islands share the {len(context.machine['cores'])} "
                 "cores of this machine: what each second of the server's processor time does is what counts")
    return section
