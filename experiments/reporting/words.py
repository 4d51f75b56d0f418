"""Axes, metrics and numbers as a reader wants them: with units, thousands as k and M."""

from reporting.results import as_number
from sweeping.sweep_file import CORE_PARTS
from collections.abc import Mapping

METRICS = {  # name -> (axis label, unit after a number, short name)
    "committed_per_s": ("Committed transactions per second", "/s", "throughput"),
    "aborted_per_s": ("Aborted transactions per second", "/s", "aborts"),
    "us_per_transaction": ("Cost per transaction (core-µs)", " µs", "cost"),
    "increments_per_s": ("Counter increments per second", "/s", "increments"),
    "messages_per_s": ("Messages per second", "/s", "messages"),
    "latency_p50_us": ("Latency, median (µs)", " µs", "median latency"),
    "latency_p95_us": ("Latency, 95th percentile (µs)", " µs", "p95 latency"),
    "latency_p99_us": ("Latency, 99th percentile (µs)", " µs", "p99 latency"),
    "latency_p999_us": ("Latency, 99.9th percentile (µs)", " µs", "p99.9 latency"),
    "messages_per_transaction": ("Messages per transaction", "", "messages per transaction"),
    "log_bytes_per_transaction": ("Bytes of log per transaction", " B", "bytes of log"),
    "distributed_share": ("Distributed transactions (share)", "", "distributed share"),
    "messages_per_distributed": ("Messages per distributed transaction", "", "messages per distributed transaction"),
    "slowest_island_per_s": ("Committed per second on the slowest island", "/s", "slowest island"),
    "imbalance": ("Load imbalance between islands (0 = none)", "", "imbalance"),
    "busy_us_per_transaction": ("Busy time of cores per transaction (µs)", " µs", "busy time"),
    "utilisation": ("Share of time that workers are busy", "", "utilisation"),
    "cpu_utilisation": ("CPU utilisation: share of time that workers have a core", "", "CPU utilisation"),
    "core_wait_share": ("Share of time that workers wait for a core", "", "waits for a core"),
    "others_share": ("Share of time that workers wait for other programs", "", "waits for others"),
    "stolen_share": ("Share of the machine's time that another one has", "", "stolen"),
    **{f"us_{part}": (f"{part.capitalize()} (core-µs per transaction)", " µs", part) for part in CORE_PARTS},
    "instructions_per_cycle": ("Instructions per cycle", "", "instructions per cycle"),
    "instructions_per_transaction": ("Instructions per transaction", "", "instructions per transaction"),
    "stalled_frontend_share": ("Share of cycles without anything to decode", "", "front-end stalls"),
    "stalled_backend_share": ("Share of cycles that wait for memory or units", "", "back-end stalls"),
    "cache_misses_per_transaction": ("Misses of the last-level cache per transaction", "", "cache misses"),
    "node_misses_per_transaction": ("Loads from another NUMA node per transaction", "", "loads from other nodes"),
    "memory_bytes_per_transaction": ("Bytes from and to memory per transaction", " B", "memory traffic"),
    "link_bytes_per_transaction": ("Bytes between sockets per transaction", " B", "traffic between sockets"),
    "links_of_memory": ("Traffic between sockets as a share of that of memory", "", "links by memory"),
    "clients_moved_per_transaction": ("Clients that went to another island, per transaction", "", "clients moved"),
}

AXES = {  # name -> (axis label, unit after a value)
    "layout": ("Layout (number of islands)", ""),
    "cut": ("Cut", ""),
    "multisite": ("Multisite transactions (%)", " %"),
    "zipf": ("Skew (Zipf s; 0 = uniform)", ""),
    "rows": ("Rows per transaction", ""),
    "rows_total": ("Rows of data", ""),
    "op": ("Operation", ""),
    "workers": ("Where the workers are placed", ""),
    "placement": ("Placement of islands", ""),
    "cores": ("Cores in use", ""),
    "mpl": ("Transactions in flight per worker (MPL)", ""),
    "clients": ("Clients of", ""),
    "sites_touched": ("Sites that a multisite transaction touches", ""),
    "drift": ("Drift of the hot rows (rows per second)", " rows/s"),
    "p99_ms": ("Limit of the 99th percentile (ms)", " ms"),
    "rate": ("Transactions due per second", "/s"),
    "skew": ("Skew of", ""),
    "local": ("Rows of a local transaction are of one", ""),
    "transport": ("Transport between islands", ""),
    "counters": ("Counters", ""),
    "mechanism": ("Mechanism", ""),
    "where": ("Where the two processes run", ""),
    "batch": ("Messages per batch", ""),
    "wait": ("Waiting", ""),
    "mix": ("Transaction mix", ""),
    "durability": ("Durability", ""),
    "latching": ("Locks and latches of islands with one worker", ""),
    "without": ("Without", ""),
    "sites": ("Sites of the data", ""),
    "second": ("Second of the run", ""),
    "island": ("Island", ""),
}

CUTS = {"SE": "SE: shared-everything", "CG": "CG: island per socket", "FG": "FG: island per core"}
SCALES = [(1e6, "M"), (1e3, "k")]


def metric_label(name: str) -> str:
    return METRICS[name][0] if name in METRICS else name.replace("_", " ")


def metric_name(name: str) -> str:
    return METRICS[name][2] if name in METRICS else name.replace("_", " ")


def axis_label(name: str) -> str:
    return AXES[name][0] if name in AXES else name.replace("_", " ")


def number(value: float, digits: int = 3) -> str:
    """1234567 -> "1.23M", 0.5 -> "0.5"; as many significant digits as asked for."""
    magnitude = abs(value)
    for scale, letter in SCALES:
        if magnitude >= scale * (1 - 0.5 * 10 ** -digits):
            return significant(value / scale, digits) + letter
    return significant(value, digits)


def significant(value: float, digits: int) -> str:
    if abs(value) >= 10 ** digits:
        return f"{value:.0f}"
    return f"{value:.{digits}g}" if abs(value) >= 1e-3 or value == 0 else f"{value:.1e}"


def quantity(metric: str, value: float) -> str:
    """A number with its unit: "810k/s", "1.62 µs"."""
    return number(value) + (METRICS[metric][1] if metric in METRICS else "")


def times(ratio: float) -> str:
    """1.04 -> "1.04x", 4.53 -> "4.5x", 516.8 -> "517x"."""
    return f"{ratio:.0f}x" if ratio >= 20 else f"{ratio:.1f}x" if ratio >= 2 else f"{ratio:.2f}x"


def percent(share: float) -> str:
    return f"{100 * share:.2g} %" if 0 < abs(share) < 0.1 else f"{100 * share:.0f} %"


def value_text(value: object) -> str:
    """An axis value: numbers short, texts as they are."""
    found = as_number(value)
    return str(value) if found is None else f"{found:,.0f}" if found == int(found) else f"{found:g}"


def setting(name: str, value: object) -> str:
    """ "multisite 20 %", "op read", "4ISL"."""
    if name in ("layout", "cut"):
        return str(value)
    unit = AXES[name][1] if name in AXES and as_number(value) is not None else ""
    return f"{name.replace('_', ' ')} {value_text(value)}{unit}"


def settings(axes: Mapping[str, object]) -> str:
    return ", ".join(setting(name, value) for name, value in axes.items())


def series_label(axis: str, value: object) -> str:
    if axis == "cut" or axis == "layout" and str(value) in CUTS:
        return CUTS.get(str(value), str(value))
    if axis == "layout":
        return str(value) + (" (shared-everything)" if str(value) == "1ISL" else "")
    return str(value) if as_number(value) is None else setting(axis, value)


def duration(seconds: float) -> str:
    """287 -> "4 min 47 s"."""
    whole = int(round(seconds))
    parts = [(whole // 3600, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    shown = [f"{count} {unit}" for count, unit in parts if count]
    return " ".join(shown[:2]) or "0 s"
