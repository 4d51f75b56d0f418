"""Checks of the cores themselves: how fast they are, and whether they are ours alone."""

import math
import os

from findings import ADVICE, CPU, FINE, PROBLEM, SILENT, UNKNOWN, Finding, Findings, Scope, Write
from host import Host, cpu_list, cpus_of

CLOCK = "/sys/devices/system/clocksource/clocksource0"
MOST_LOAD, MOST_STOLEN = 0.10, 0.02  # of a core's time, by others; the second as a sweep judges its runs
NAMED_LOAD = 0.05  # of a process, to be named
# Read without a system call; and those that are known to need one, or a slow device.
FAST_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "riscv_clocksource", "timebase",
               "tod")
SLOW_CLOCKS = ("hpet", "acpi_pm", "hyperv_clocksource_msr", "jiffies", "refined-jiffies", "pit")


def hidden(host: Host) -> str:
    return "the hypervisor decides, and does not say" if host.is_virtual() else SILENT


def governor(host: Host, scope: Scope) -> Findings:
    why = "with another one cores slow down when they wait for messages and are slow again when these come: " \
          "latencies and throughput depend on the load before"
    by_value: dict[str, list[int]] = {}
    for cpu in scope.cpus:
        value = host.read(f"{CPU}/cpu{cpu}/cpufreq/scaling_governor")
        by_value.setdefault(value or "", []).append(cpu)
    if silent := by_value.pop("", []):
        yield Finding("governor", UNKNOWN, f"CPUs {cpu_list(silent)}: no cpufreq, {hidden(host)}", "performance", why,
                      "ask whoever runs the host for fixed frequencies" if host.is_virtual() else
                      "load the processor's cpufreq driver, or look into the firmware's settings")
    slow = {value: cpus for value, cpus in by_value.items() if value != "performance"}
    if slow:
        found = ", ".join(value if cpus == scope.cpus else f"{value} on CPUs {cpu_list(cpus)}"
                          for value, cpus in slow.items())
        files = tuple(f"{CPU}/cpu{cpu}/cpufreq/scaling_governor" for cpu in sorted(sum(slow.values(), [])))
        available = (host.read(os.path.dirname(files[0]) + "/scaling_available_governors") or "performance").split()
        if "performance" in available:
            write = Write(files, "performance")
            yield Finding("governor", PROBLEM, found, "performance", why, write.command(), write)
        else:
            yield Finding("governor", PROBLEM, found, "performance", why, "modprobe cpufreq_performance")
    elif by_value:
        yield Finding("governor", FINE, "performance")


def turbo(host: Host, scope: Scope) -> Findings:
    why = "cores are faster the fewer of them work and the cooler they are: few islands look better beside many than " \
          "they are. For comparisons it is better off; for a load that is simply to run it may stay"
    for file, on, off in ((f"{CPU}/intel_pstate/no_turbo", "0", "1"), (f"{CPU}/cpufreq/boost", "1", "0")):
        value = host.read(file)
        if value == on:
            yield Finding("turbo", ADVICE, "on", "off, for comparisons", why, Write((file,), off).command())
        elif value == off:
            yield Finding("turbo", FINE, "off")
        if value in (on, off):
            return
    yield Finding("turbo", UNKNOWN, hidden(host), "off, for comparisons", why)


def smt(host: Host, scope: Scope) -> Findings:
    why = "whatever runs on the sibling of a worker's hardware thread takes up to half of its core, and no counter " \
          "of time shows it. Layouts count cores, so unless a deployment says `hardware_threads: all` siblings " \
          "are to stay idle"
    active, wanted = host.read(f"{CPU}/smt/active"), "off, or idle siblings"
    if active is None:
        yield Finding("smt", UNKNOWN, SILENT, wanted, why)
    elif active == "0" and host.is_virtual():
        yield Finding("smt", UNKNOWN, "none here, but the hypervisor may give each hardware thread as a core", wanted,
                      why, "ask whoever runs the host for whole cores")
    elif active == "0":
        yield Finding("smt", FINE, host.read(f"{CPU}/smt/control") or "off")
    else:
        siblings: set[int] = set()
        for cpu in scope.cpus:
            siblings.update(cpus_of(host.read(f"{CPU}/cpu{cpu}/topology/thread_siblings_list") or ""))
        others = siblings - set(scope.cpus)
        found = f"on; CPUs {cpu_list(others)} share cores with those in use" if others else "on"
        yield Finding("smt", ADVICE, found, wanted, why, Write((f"{CPU}/smt/control",), "off").command())


def steal(host: Host, scope: Scope) -> Findings:
    why = "another virtual machine has the cores for that time: a worker stands still, and all who wait for it"
    wanted = f"at most {MOST_STOLEN:.0%}"
    advice = "ask for dedicated cores, or measure when the neighbours are quiet"
    shares = [shares for cpu in scope.cpus if (shares := scope.load.shares(cpu)) is not None]
    if len(shares) < len(scope.cpus) or not shares:
        yield Finding("steal", UNKNOWN, SILENT, wanted, why)
        return
    now = sum(stolen for _, stolen in shares) / len(shares)
    ever = scope.load.stolen_since_boot(scope.cpus)
    if now > MOST_STOLEN:
        yield Finding("steal", PROBLEM, f"{now:.0%} now", wanted, why, advice)
    elif ever > MOST_STOLEN:
        yield Finding("steal", ADVICE, f"{now:.0%} now, {ever:.0%} since the machine began", wanted, why, advice)
    elif ever == 0 and host.is_virtual():
        yield Finding("steal", UNKNOWN, "none since the machine began: the hypervisor may not count it", wanted, why)
    else:
        yield Finding("steal", FINE, f"{now:.0%} now")


def quota(host: Host, scope: Scope) -> Findings:
    """Of a container or a service: of the smallest of the groups that this process is in."""
    why = "once the time is used up all threads of the container stand still until the next period"
    name, cores = "cpu quota", len(scope.cpus)
    groups = host.read("/proc/self/cgroup")
    if groups is None or not host.names("/sys/fs/cgroup"):
        yield Finding(name, UNKNOWN, SILENT, f"none, or {cores} cores", why)
        return
    allowed = math.inf
    for line in groups.splitlines():
        number, controllers, path = line.split(":", 2)
        while True:
            if number == "0":
                words = (host.read(f"/sys/fs/cgroup{path.rstrip('/')}/cpu.max") or "max 1").split()
            elif "cpu" in controllers.split(","):
                folder = f"/sys/fs/cgroup/{controllers}{path.rstrip('/')}"
                words = [host.read(f"{folder}/cpu.cfs_{part}_us") or "-1" for part in ("quota", "period")]
            else:
                break
            if words[0] not in ("max", "-1") and len(words) == 2:
                allowed = min(allowed, int(words[0]) / int(words[1]))
            if path in ("/", ""):
                break
            path = os.path.dirname(path)
    if allowed < cores:
        yield Finding(name, PROBLEM, f"{allowed:g} cores", f"none, or {cores} cores", why, "start the container "
                      "without --cpus and with --cpuset-cpus, the service without CPUQuota= and with AllowedCPUs=")
    else:
        yield Finding(name, FINE, "none" if allowed == math.inf else f"{allowed:g} cores")


def clock_source(host: Host, scope: Scope) -> Findings:
    name, file = "clock source", f"{CLOCK}/current_clocksource"
    why = "workers read the clock for every transaction; this one costs a system call each time, or a slow device"
    value = host.read(file)
    available = (host.read(f"{CLOCK}/available_clocksource") or "").split()
    better = next((clock for clock in FAST_CLOCKS if clock in available), None)
    if value in FAST_CLOCKS:
        yield Finding(name, FINE, value)
    elif value in SLOW_CLOCKS:
        write = Write((file,), better) if better else None
        command = write.command() if write else \
            "the kernel has none that is better: `dmesg | grep -i clocksource` says why"
        yield Finding(name, PROBLEM, value, better or FAST_CLOCKS[0], why, command, write)
    else:
        yield Finding(name, UNKNOWN, f"{value}, which may need a system call" if value else SILENT,
                      better or FAST_CLOCKS[0], why, Write((file,), better).command() if value and better else "")


def other_load(host: Host, scope: Scope) -> Findings:
    why = "what runs there takes turns with workers, which stand still meanwhile, and all who wait for them"
    wanted = f"at most {MOST_LOAD:.0%} of each core"
    shares = {cpu: shares[0] for cpu in scope.cpus if (shares := scope.load.shares(cpu)) is not None}
    if silent := [cpu for cpu in scope.cpus if cpu not in shares]:
        yield Finding("other load", UNKNOWN, f"CPUs {cpu_list(silent)}: the kernel does not say", wanted, why)
    busy = [cpu for cpu, share in shares.items() if share > MOST_LOAD]
    if busy:
        most = [f"{each.name} ({each.pid}) {each.share:.0%}" for each in scope.load.busiest(busy)[:3]
                if each.share >= NAMED_LOAD]
        found = f"CPU {busy[0]}" if len(busy) == 1 else f"CPUs {cpu_list(busy)}"
        yield Finding("other load", PROBLEM, f"{max(shares[cpu] for cpu in busy):.0%} of {found}"
                      f"{': ' + ', '.join(most) if most else ''}", wanted, why,
                      "end it, or keep it away: taskset -acp CPUS PID; `islands ps` shows other deployments, which "
                      "`islands down NAME` ends")
    elif shares and not silent:
        yield Finding("other load", FINE, f"{max(shares.values()):.0%} at most")
    if stuck := scope.load.stuck(scope.cpus):
        yield Finding("other load", ADVICE, "stuck in the kernel: " +
                      ", ".join(f"{task.name} ({task.pid})" for task in stuck[:3]), "none", "a disk or a driver does "
                      "not answer; the log may wait for it, too", "`dmesg | tail` may say what")
