"""Result directories as `islands sweep` leaves them, made up: for the tests of the report, and to look at it.

    deploy/e2e/report_results.py FOLDER [--machine two-cores|quad-socket]

The numbers follow a simple cost model in which the paper's claims hold; `change` bends single points, so that a test
can make a claim fail, be within the spread, or lack what it needs.
"""

import argparse
import itertools
import json
import math
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

MACHINES = {  # name -> (sockets, cores of each)
    "two-cores": (1, 2), "one-socket": (1, 8), "quad-socket": (4, 6)}
LAYOUTS = {"two-cores": [1, 2], "one-socket": [1, 2, 4, 8], "quad-socket": [1, 2, 4, 8, 12, 24]}
MECHANISMS = {"pipe": 310e3, "fifo": 305e3, "posix-mq": 240e3, "tcp": 180e3, "uds-stream": 420e3,
              "uds-seqpacket": 400e3, "uds-datagram": 390e3, "zmq-ipc": 95e3, "shared-memory": 900e3}

Document = dict[str, Any]
Point = dict[str, Any]  # axis -> value
Change = Callable[[str, Document], Document | None]


class Model:
    """A machine, and what a transaction costs on it, in core-microseconds."""

    def __init__(self, machine: str) -> None:
        self.name = machine
        self.sockets, self.per_socket = MACHINES[machine]
        self.cores = self.sockets * self.per_socket
        self.layouts = [f"{count}ISL" for count in LAYOUTS[machine]]

    def islands(self, axes: Point) -> int:
        layout = str(axes.get("layout", ""))
        if "cut" in axes:
            cores = axes.get("cores", self.cores)
            return {"SE": 1, "CG": max(1, cores // self.per_socket), "FG": cores}[axes["cut"]]
        return int(layout[:-3]) if layout[:-3].isdigit() else 1

    def cost_us(self, axes: Point) -> float:
        """More workers of an island: contention. More islands: messages. Skew: one hot island, or hot rows."""
        islands, cores = self.islands(axes), axes.get("cores", self.cores)
        workers, rows, op = cores / islands, axes.get("rows", 10), axes.get("op", "read")
        share, zipf = axes.get("multisite", 0) / 100, axes.get("zipf", 0)
        sockets = max(1, workers / self.per_socket)
        local = 0.4 + rows * (0.12 if op == "read" else 0.22)
        local *= 1 + (0.5 if workers > 1 else 0) + 0.02 * workers + 0.35 * (sockets - 1)
        far = min(islands - 1, rows - 1 if rows > 1 else 1)
        distributed = local + (2.2 if op == "read" else 4.5) * far ** 0.8 if islands > 1 else local
        cost = (1 - share) * local + share * distributed
        hot_rows = (0.3 if op == "read" else 1.5) * zipf ** 3 * workers / 4
        hot_island = zipf ** 2 * 0.25 * (islands - 1)
        return cost * (1 + hot_rows + hot_island)


    def messages(self, axes: Point) -> float:
        """Of a distributed transaction: twice as many for updates, as the paper says."""
        islands, rows = self.islands(axes), axes.get("rows", 10)
        return min(islands - 1, rows - 1) * (4 if axes.get("op", "read") == "read" else 8)


Rate = Callable[[Model, Point], float]
Figure = tuple[str, str, list[Document], list[Document], Rate, float]  # see figures()


def noisy(chance: random.Random, value: float, share: float) -> float:
    return value * (1 + share * (2 * chance.random() - 1))


def axis(name: str, *values: object) -> Document:
    return {"name": name, "values": list(values)}


def rate_of(model: Model, axes: Point) -> float:
    return axes.get("cores", model.cores) * 1e6 / model.cost_us(axes)


def payment_rate(model: Model, axes: Point) -> float:
    workers = model.cores / model.islands(axes)
    return model.cores * 1e6 / (8 * (1 + 0.16 * (workers - 1)))


def counter_rate(model: Model, axes: Point) -> float:
    counters = axes.get("counters", "per-socket")
    sharing = {"single": model.cores, "per-socket": model.per_socket, "per-core": 1}[counters]
    slow = {"spread": 4.2, "os": 2.6}.get(axes.get("workers", ""), 1) if model.sockets > 1 else 1
    far = 1 + 3 * (sharing > model.per_socket)
    return model.cores * 120e6 / (1 if sharing == 1 else 2.4 * sharing * far) / slow


def message_rate(model: Model, axes: Point) -> float:
    distance = {"same-core": 0.45, "same-cache": 1, "same-socket": 1, "cross-socket": 0.55}[axes["where"]]
    batch = 1 if axes["batch"] == 1 else 5.5
    return MECHANISMS[axes["mechanism"]] * distance * batch * (1.25 if axes["wait"] == "spin" else 1)


def worker_rate(model: Model, axes: Point) -> float:
    return 410e3 * {"grouped": 1.25, "spread": 0.97, "mix": 1.02, "os": 1.0}[axes["workers"]]


def placed_rate(model: Model, axes: Point) -> float:
    spread = {"islands": 1, "spread": 0.5, "os": 0.6}[axes["placement"]]
    return rate_of(model, axes) * (spread if 1 < model.islands(axes) < model.cores else 1)


def logged_rate(model: Model, axes: Point) -> float:
    point = {**axes, "op": "update", "rows": 4}
    log_us = 0 if axes["durability"] == "none" else 0.3 + 1.2 * axes["multisite"] / 100
    return model.cores * 1e6 / (model.cost_us(point) + log_us)


def own_payment_rate(model: Model, axes: Point) -> float:
    return axes["cores"] * 1e6 / (8 * (1 + 0.002 * axes["cores"]))


def new_order_rate(model: Model, axes: Point) -> float:
    if axes["mix"] == "payment":
        return own_payment_rate(model, axes)
    return own_payment_rate(model, axes) / 3 * (0.7 if axes["cores"] > 12 else 1)


def mpl_rate(model: Model, axes: Point) -> float:
    return tatp_rate(model, axes) * min(1, 0.6 + 0.1 * axes["mpl"]) * (0.95 if axes["mpl"] > 250 else 1)


def executors_rate(model: Model, axes: Point) -> float:
    return axes["cores"] * 250e3 * (1 if axes["latching"] == "auto" else 0.58)


def crowded_rate(model: Model, axes: Point) -> float:
    return min(axes["cores"], 8) * 250e3 / (1 + 0.02 * axes["cores"])


def sites_rate(model: Model, axes: Point) -> float:
    return 2e6 if axes["sites"] == 1 else 3.2e6


def cores_capacity(cores: int) -> float:
    """Of one island, per second, where all its cores contend for one thing."""
    return cores * 100e3 / (1 + 0.02 * cores ** 2)


def stored_rate(model: Model, axes: Point) -> float:
    """Data that grow out of the caches, and out of a pool of 1.5 million rows."""
    cost_us = model.cost_us({**axes, "rows": 2}) * (1 + 0.15 * math.log10(axes["rows_total"] / 24000))
    missed = max(0.0, 1 - 1.5e6 / axes["rows_total"])
    return model.cores * 1e6 / (cost_us + 8 * missed)


def due_rate(model: Model, axes: Point) -> float:
    return min(axes["rate"], cores_capacity(axes["cores"]))


def utilisation(axes: Point) -> float:
    """Executors' falls with their number; of a load that grows it jumps at saturation."""
    if "rate" not in axes:
        return 1 - 0.01 * axes["cores"]
    return 0.3 * axes["rate"] / capacity if axes["rate"] < (capacity := cores_capacity(axes["cores"])) else 1.0


def tatp_rate(model: Model, axes: Point) -> float:
    cut = {name: axes[name] for name in ("layout", "cut") if name in axes} | {"cores": model.cores}
    return rate_of(model, {**cut, "op": "update" if axes["mix"] == "update" else "read",
                           "rows": {"standard": 3, "read": 2, "update": 2}[axes["mix"]]})


def two_plots(x: str, series: str, y: str = "committed_per_s", rows: str = "10 rows") -> list[Document]:
    return [{"title": f"{op.title()} {rows}", "where": {"op": op}, "x": x, "series": series, "y": y}
            for op in ("read", "update")]


def figures(model: Model) -> dict[str, Figure]:
    """name -> (title, workload or program, axes, plots, metric, rate, noise)."""
    one_socket = model.sockets == 1
    layouts, ops = axis("layout", *model.layouts), axis("op", "read", "update")
    workers = ["grouped", "os"] if one_socket else ["spread", "grouped", "mix", "os"]
    where = ["same-core", "same-cache"] + ([] if one_socket else ["same-socket", "cross-socket"])
    cores = sorted({1, 2, *range(model.per_socket, model.cores + 1, model.per_socket)})
    ipc = [{"title": title, "where": {"batch": batch, "wait": wait}, "x": "mechanism", "series": "where",
            "y": "messages_per_s"} for title, batch, wait in (("One at a time", 1, "sleep"), ("32 on their way", 32,
                                                                                             "sleep"))]
    cost = [{"title": f"{op.title()}, {name}", "where": {"op": op, "multisite": share}, "x": "rows",
             "series": "layout", "y": "us_per_transaction"} for op in ("read", "update")
            for name, share in (("local", 0), ("multisite", 100))]
    skew = [{"title": f"{op.title()}, {share} % multisite", "where": {"op": op, "multisite": share}, "x": "zipf",
             "series": "layout", "y": "committed_per_s"} for op in ("read", "update") for share in (0, 20, 50)]
    return {
        "fig02": ("Counters with a lock, one per socket, by where the threads run", "counters",
                  [axis("workers", "spread", "grouped", "os")],
                  [{"title": "One counter per socket", "x": "workers", "y": "increments_per_s"}], counter_rate, 0.03),
        "tab01": ("Counters with a lock, by how many there are", "counters",
                  [axis("counters", "single", "per-socket", "per-core")],
                  [{"title": "All threads together", "x": "counters", "y": "increments_per_s"}], counter_rate, 0.03),
        "fig03": ("TPC-C Payment on four workers, by where they run", "payment", [axis("workers", *workers)],
                  [{"title": "Payment with four workers", "x": "workers", "y": "committed_per_s"}], worker_rate, 0.02),
        "fig06": ("Messages between two processes", "ipc",
                  [axis("mechanism", *MECHANISMS), axis("where", *where), axis("batch", 1, 32),
                   axis("wait", "sleep", "spin")], ipc, message_rate, 0.04),
        "fig07": ("TPC-C Payment, all local, one warehouse per core", "payment", [layouts],
                  [{"title": "Payment", "x": "layout", "y": "committed_per_s"}], payment_rate, 0.02),
        "fig09": ("Throughput as the percentage of multisite transactions increases", "micro",
                  [layouts, ops, axis("multisite", 0, 20, 40, 60, 80, 100)], two_plots("multisite", "layout"), rate_of,
                  0.02),
        "fig10": ("Cost of local and multisite transactions by number of rows", "micro",
                  [layouts, ops, axis("multisite", 0, 100), axis("rows", 2, 4, 10, 12, 16, 20, 40, 60, 80, 100)], cost,
                  rate_of, 0.02),
        "fig12": ("Throughput as hardware parallelism increases, 20 % multisite", "micro",
                  [axis("cores", *cores), axis("cut", "SE", *([] if one_socket else ["CG"]), "FG"), ops],
                  two_plots("cores", "cut"), lambda model, axes: rate_of(model, {**axes, "multisite": 20}), 0.02),
        "fig13": ("Throughput under skew, 2 rows", "micro",
                  [layouts, ops, axis("multisite", 0, 20, 50), axis("zipf", 0, 0.25, 0.5, 0.75, 1)], skew,
                  lambda model, axes: rate_of(model, {**axes, "rows": 2}), 0.03),
        "fig14": ("Throughput as the data grow beyond the buffer pool, 2 rows", "micro",
                  [layouts, axis("durability", "lazy"), axis("rows_total", 24000, 240000, 1200000, 2400000, 4800000),
                   axis("multisite", 0, 20), ops],
                  [{"title": "Read, local", "where": {"op": "read", "multisite": 0}, "x": "rows_total",
                    "series": "layout", "y": "committed_per_s"}], stored_rate, 0.01),
        "fig05": ("Throughput between all local and all multisite", "micro",
                  [axis("cut", "SE", "FG"), axis("multisite", 0, 50, 100)],
                  [{"title": "Update 10 rows", "x": "multisite", "series": "cut", "y": "committed_per_s",
                    "estimate": "two-point"}], lambda model, axes: rate_of(model, {**axes, "op": "update"}), 0.02),
        "fig08": ("Instructions per cycle by layout", "micro", [layouts],
                  [{"title": "Instructions per cycle", "x": "layout", "y": "instructions_per_cycle"}], rate_of, 0.02),
        "fig11": ("Time breakdown of transactions of 4 rows", "micro",
                  [layouts, ops, axis("multisite", 0, 100), axis("durability", "lazy")],
                  [{"title": "Update, multisite", "where": {"op": "update", "multisite": 100}, "x": "layout",
                    "y": "us_by_part"}], lambda model, axes: rate_of(model, {**axes, "rows": 4}), 0.02),
        "fig04": ("The same islands, placed in three ways", "micro",
                  [layouts, axis("placement", "islands", *([] if one_socket else ["spread"]), "os"), ops,
                   axis("multisite", 0, 20, 100)],
                  [{"title": "Update", "where": {"op": "update", "multisite": 20}, "x": "layout", "series": "placement",
                    "y": "committed_per_s"}], placed_rate, 0.02),
        "logging": ("Cost of updates with and without a log", "micro",
                    [layouts, axis("multisite", 0, 100), axis("durability", "none", "lazy")],
                    [{"title": "Update, multisite", "where": {"multisite": 100}, "x": "layout", "series": "durability",
                      "y": "us_per_transaction"}], logged_rate, 0.01),
        "shoremt": ("Payment on one island", "payment", [axis("cores", *cores)],
                    [{"title": "Payment", "x": "cores", "y": "committed_per_s"}], own_payment_rate, 0.02),
        "shoremt_fig4": ("Record insertion on one island", "insert", [axis("cores", *cores)],
                         [{"title": "Insert", "x": "cores", "y": "committed_per_s"}], own_payment_rate, 0.02),
        "hstore_fig2": ("Voter on an island per core", "voter", [axis("cut", "FG"), axis("cores", *cores)],
                        [{"title": "Voter", "x": "cores", "y": "committed_per_s"}], crowded_rate, 0.02),
        "shoremt_fig5": ("New-Order and Payment on one island", "tpcc",
                         [axis("cores", *cores), axis("mix", "new_order", "payment")],
                         [{"title": "New-Order and Payment", "x": "cores", "series": "mix", "y": "committed_per_s"}],
                         new_order_rate, 0.02),
        "lockmgr_mpl": ("TATP as transactions in flight increase", "tatp",
                        [axis("cut", "SE", "FG"), axis("mix", "read", "standard"), axis("mpl", 1, 4, 64, 500)],
                        [{"title": "TATP", "x": "mpl", "series": "cut", "y": "committed_per_s"}], mpl_rate, 0.02),
        "hstore": ("TATP on an island per core", "tatp",
                   [axis("cut", "FG"), axis("cores", *cores), axis("latching", "auto", "always")],
                   [{"title": "TATP", "x": "cores", "series": "latching", "y": "committed_per_s"}], executors_rate,
                   0.02),
        "hstore_fig3": ("Utilisation of executors", "tatp", [axis("cut", "FG"), axis("cores", *cores)],
                        [{"title": "On average", "x": "cores", "y": "cpu_utilisation", "kind": "line"},
                         {"title": "Over time", "x": "second", "y": "cpu_utilisation"}],
                        lambda model, axes: axes["cores"] * 250e3, 0.01),
        "horikawa_fig4": ("Throughput against CPU utilisation", "micro",
                          [axis("cores", *cores), axis("rate", 25e3, 50e3, 100e3, 300e3, 800e3)],
                          [{"title": "Update", "x": "utilisation", "along": "rate", "series": "cores",
                            "y": "committed_per_s"}], due_rate, 0.01),
        "horikawa": ("Shared-everything, by its sites", "micro", [axis("sites", 1, 4, 24)],
                     [{"title": "Update", "x": "sites", "y": "committed_per_s", "kind": "bar"}], sites_rate, 0.02),
        "tatp": ("TATP by layout", "tatp", [layouts, axis("mix", "standard", "read", "update")],
                 [{"title": "TATP", "x": "mix", "series": "layout", "y": "committed_per_s"}], tatp_rate, 0.02)}


def metrics_of(model: Model, workload: str, point: Point, rate: float, workers: float) -> dict[str, float]:
    if workload in ("counters", "ipc"):
        return {"increments_per_s" if workload == "counters" else "messages_per_s": rate}
    islands, share = model.islands(point), point.get("multisite", 0) / 100
    parts = {"us_executing": 0.5, "us_building": 0.3 * share, "us_waiting": 0.5 - 0.3 * share, "us_idle": 0.0}
    with_parts = {"op", "durability"} <= set(point)
    hardware = {"instructions_per_cycle": 0.8 + islands / model.cores,
                "stalled_backend_share": 0.5 - 0.3 * min(islands, model.sockets) / model.sockets}
    profile = {part: of * workers * 1e6 / rate for part, of in parts.items()} if with_parts else {}
    counted = hardware if set(point) == {"layout"} else {}
    loaded = set(point) in ({"cut", "cores"}, {"cores", "rate"})
    busy = dict.fromkeys(("utilisation", "cpu_utilisation"), utilisation(point)) if loaded else {}
    return {**profile, **counted, **busy, "committed_per_s": rate, "us_per_transaction": workers * 1e6 / rate,
            "latency_p50_us": 16e6 / rate, "aborted_per_s": 0.0,
            "messages_per_transaction": share * model.messages(point),
            "distributed_share": share if islands > 1 else 0.0, "slowest_island_per_s": 0.9 * rate / islands}


def machine_of(model: Model) -> tuple[Document, str]:
    cores = [{"package": core // model.per_socket, "cache_group": core // model.per_socket, "pus": [core]}
             for core in range(model.cores)]
    text = [f"this machine: {model.sockets} packages, {model.cores} cores, 64 GiB"]
    for package in range(model.sockets):
        first = package * model.per_socket
        text += [f"package {package}: Example CPU", f"  NUMA node {package} (16 GiB)",
                 f"    L3 12 MiB: {model.per_socket} cores, CPUs {first}-{first + model.per_socket - 1}"]
    return {"summary": text[0].split(": ")[1], "packages": [{"os_index": index} for index in range(model.sockets)],
            "cores": cores}, "\n".join(text)


def write_json(path: str, document: object) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)


def write_figure(folder: str, name: str, title: str, workload: str, axes: Sequence[Document],
                 plots: Sequence[Document], lines: Iterable[Document], repeat: int, notes: Iterable[str] = ()) -> None:
    """One figure's plan and results, from `lines` as results.jsonl has them."""
    os.makedirs(os.path.join(folder, name), exist_ok=True)
    points = 1
    for one in axes:
        points *= len(one["values"])
    kind = "Table 1" if name == "tab01" else f"Figure {int(name[3:])}" if name[3:].isdigit() else ""
    program = workload in ("counters", "ipc")
    write_json(os.path.join(folder, name, "plan.json"), {
        "format": 1, "name": name, "title": title, "reference": kind and f"OLTP on Hardware Islands, {kind}",
        "workload": None if program else workload, "program": workload if program else None, "axes": axes,
        "measure": {"seconds": 2, "warmup": 0.5, "repeat": repeat}, "seed": 1, "plots": plots, "notes": list(notes),
        "points": points, "runs": points * repeat})
    with open(os.path.join(folder, name, "results.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def lines_of(model: Model, spec: Figure, repeat: int, chance: random.Random,
             change: Callable[[Document], Document | None] | None) -> Iterator[Document | None]:
    title, workload, axes, _, rate, noise = spec
    names = [one["name"] for one in axes]
    for number, (repetition, values) in enumerate(itertools.product(
            range(repeat), itertools.product(*(one["values"] for one in axes)))):
        point = dict(zip(names, values))
        islands, workers = model.islands(point), point.get("cores", model.cores)
        found = noisy(chance, rate(model, point), noise)
        line = {"id": f"{number:04}", "repetition": repetition, "axes": point, "ok": True, "error": None,
                "metrics": metrics_of(model, workload, point, found, workers), "islands": islands, "workers": workers,
                "sum_check": "ok", "run_directory": f"runs/{number:04}",
                "command": f"islands run deployment.yaml {workload} --seed {1 + repetition}",
                "started": "2026-11-21T12:00:00Z",
                "build": "0123456789ab"}
        if workload in ("counters", "ipc"):
            line.update(islands=0, workers=0, run_directory=None)
        yield change(line) if change else line


def write_results(folder: str, machine: str = "two-cores", names: Sequence[str] | None = None, repeat: int = 3,
                  seed: int = 1, change: Change | None = None, **about: object) -> str:
    """A whole result directory. `change` gets the figure's name and a line, and returns the line to write, or None."""
    model, chance = Model(machine), random.Random(seed)
    chosen = {name: spec for name, spec in figures(model).items() if names is None or name in names}
    for name, spec in chosen.items():
        bend = (lambda line, name=name: change(name, line)) if change else None
        lines = [line for line in lines_of(model, spec, repeat, chance, bend) if line]
        write_figure(folder, name, *spec[:4], lines, repeat)
    write_sweep(folder, list(chosen), model, **about)
    return folder


def write_sweep(folder: str, names: Sequence[str], model: Model, **about: object) -> None:
    machine, text = machine_of(model)
    os.makedirs(folder, exist_ok=True)
    write_json(os.path.join(folder, "sweep.json"), {
        "format": 1, "name": "made-up", "title": "OLTP on Hardware Islands, on this machine", "figures": names,
        "machine": machine, "machine_text": text,
        "system": {"cpu": "Example CPU 3 GHz", "kernel": "6.1.0", "os": "Debian 12"},
        "doctor": {"brief": "1 problem: swappiness 60; unknown: turbo", "findings": []},
        "version": "0.1.0", "commit": "", "build": "0123456789ab", "command": "islands sweep experiments/quick.yaml",
        "started": "2026-11-21T12:00:00Z", "finished": "2026-11-21T12:04:47Z", "seconds": 287.0, "complete": True,
        "notes": [], **about})


def read(*parts: str) -> str:
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read()


def measuring(line: Document, **metrics: float) -> Document:
    return line | {"metrics": metrics}


def bend(name: str, factor: float | None, **where: object) -> Change:
    """Multiplies what a figure's runs measured at these axis values; factor None: these runs were not made."""
    def change(figure: str, line: Document) -> Document | None:
        if figure != name or any(line["axes"].get(axis) != value for axis, value in where.items()):
            return line
        if factor is None:
            return None
        return measuring(line, **{metric: value * factor for metric, value in line["metrics"].items()})
    return change


def kept(folder: str, name: str, durability: str | None, **slower: float) -> None:
    """Makes a figure one of a sweep with this durability, or, by `slower`, with an axis of several, whose runs of 1ISL
    differ by these factors."""
    path = os.path.join(folder, name, "results.jsonl")
    lines = [json.loads(line) for line in read(path).splitlines()]
    plan = json.loads(read(os.path.join(folder, name, "plan.json")))
    plan["axes"] += [axis("durability", *slower)] if slower else []
    write_json(os.path.join(folder, name, "plan.json"), plan | {"durability": durability})
    with open(path, "w", encoding="utf-8") as file:
        for word, factor in slower.items() or {durability: 1.0}.items():
            for line in lines:
                factor_here = factor if line["axes"].get("layout") == "1ISL" else 1
                made = measuring(line, **{metric: value * factor_here for metric, value in line["metrics"].items()})
                axes = line["axes"] | ({"durability": word} if slower else {})
                file.write(json.dumps(made | {"axes": axes, "log_on": None if word == "none" else "tmpfs"}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes up a result directory, to look at reports.")
    parser.add_argument("folder")
    parser.add_argument("--machine", choices=MACHINES, default="two-cores")
    arguments = parser.parse_args()
    write_results(arguments.folder, arguments.machine)


if __name__ == "__main__":
    main()
