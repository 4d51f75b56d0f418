"""Sections that ask programs of build/release/bench: messages, allocations, instructions."""

import re
import shutil

from benchmarks.context import Context
from benchmarks.section import Section, ratio
from islands_command import Failed, run_program

RATIO = "{:.2f}"


def messages(context: Context) -> Section:
    section = Section("Messages: an empty one to a spinning island and back, nanoseconds", "transport",
                      [("bare ping-pong", "{:.0f}"), ("islands", "{:.0f}"), ("x bare", RATIO),
                       ("64 in flight, each", "{:.0f}"), ("x bare", RATIO)])
    if context.program("messaging_bench") is None:
        section.note("build/release/bench/messaging_bench is not built")
        return section
    if context.cores < 2:
        section.note("needs two cores")
        return section
    rounds, milliseconds = (1, 60) if context.quick else (max(context.repeat, 5), 300)
    context.progress.show("uds, shm and zmq")
    results = context.json_of("messaging_bench", "--json", "--rounds", str(rounds), "--milliseconds",
                              str(milliseconds))
    for result in results:
        bare = result["bare_round_trip_ns"]
        one, of_64 = result["round_trip_ns"], result["in_flight_64_each_ns"]
        section.row(result["transport"], bare, one, ratio(one, bare), of_64, ratio(of_64, bare))
        section.bar(f"{result['transport']}: round trip / bare", ratio(one, bare), at_most=1.3)
        section.bar(f"{result['transport']}: 64 in flight, each / bare", ratio(of_64, bare), at_most=0.2)
    return section


def local_path(context: Context, section: Section) -> str | None:
    """The path of local_path_bench, or None and a note."""
    program = context.program("local_path_bench")
    if program is None:
        section.note("build/release/bench/local_path_bench is not built")
    return program


def allocations(context: Context) -> Section:
    section = Section("Allocations: from the heap, per local transaction after warm-up", "transaction",
                      [("allocations", "{:.4f}")])
    if local_path(context, section) is None:
        return section
    transactions = 20_000 if context.quick else 500_000
    for op in ("read", "add", "update"):
        context.progress.show(f"{op}-10")
        result = context.json_of("local_path_bench", "--op", op, "--transactions", str(transactions), "--json")
        section.row(f"{op}-10", result["allocations"])
        section.bar(f"{op}-10: allocations", result["allocations"], at_most=0, form="{:.4f}")
    return section


def instructions_of(context: Context, program: str, op: str, transactions: int, rows_total: int) -> int:
    """Instructions that callgrind counts in the run loop, loading and warm-up included."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*Worker::RunOnce*",
               program, "--op", op, "--transactions", str(transactions), "--repeat", "1", "--range", str(rows_total),
               "--warmup", str(rows_total // 4)]
    _, err = run_program(command, context.directory, timeout_s=600)
    collected = re.search(r"Collected\s*:\s*(\d+)", err)
    if collected is None:
        raise Failed(f"callgrind said nothing of instructions:\n{err.strip()}")
    return int(collected.group(1))


def instructions(context: Context) -> Section:
    section = Section("Instructions: per local transaction, in the run loop, counted by callgrind", "transaction",
                      [("instructions", "{:,.0f}"), ("per row", "{:,.0f}")])
    if shutil.which("valgrind") is None:
        section.note("valgrind is not installed")
        return section
    program = local_path(context, section)
    if program is None:
        return section
    rows_total = 2_400 if context.quick else 240_000
    few, more = (100, 200) if context.quick else (1_000, 4_000)
    for op in ("add",) if context.quick else ("read", "add", "update"):
        context.progress.show(f"{op}-10")
        # The difference of two runs: what happens once cancels out. Warm: of nearly all rows there are key hints.
        counts = [instructions_of(context, program, op, transactions, rows_total) for transactions in (few, more)]
        each = (counts[1] - counts[0]) / (more - few)
        section.row(f"{op}-10", each, each / 10)
    return section
