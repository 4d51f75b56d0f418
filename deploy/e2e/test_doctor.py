"""`islands doctor`: every check on a machine that is made up, a folder with what /proc and /sys would say, on which
all is well until a fault is planted; then the command, and who begins with it."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from conftest import ROOT, Document, Islands, WriteFile

sys.path[:0] = [os.path.join(ROOT, "deploy", "doctor"), os.path.join(ROOT, "experiments")]
import checks  # noqa: E402
import doctor  # noqa: E402
from findings import ADVICE, FINE, PROBLEM, UNKNOWN, Finding, braces  # noqa: E402
from host import Host, Load, Moment, Room, cpu_list, cpus_of  # noqa: E402
from sweeping import results as result_files  # noqa: E402

CPU = "sys/devices/system/cpu"
CLOCK = "sys/devices/system/clocksource/clocksource0"
HUGE = "sys/kernel/mm/transparent_hugepage"
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 {files}              files
Max locked memory         {locked}              {locked}              bytes
Max address space         {space}            unlimited            bytes
"""
MOUNTS = "/dev/sda1 / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n"
STAT = "cpu  1 1 1 1 1 1 1 1 0 0\n"
ROOM = Room(32 << 30, 16 << 30)
OWNER = "65024 12 27 34 56 /data/log\n"


def limits(files: object = 65536, locked: object = 8388608, space: object = "unlimited") -> str:
    return LIMITS.format(files=files, locked=locked, space=space)


def cpus(busy: Mapping[int, int] = {}, stolen: Mapping[int, int] = {}, since: int = 1000, count: int = 4) -> str:
    """/proc/stat, 100 ticks after `since`: what of them CPUs were busy, or stolen."""
    lines = []
    for cpu in range(count):
        took, lost = busy.get(cpu, 0), stolen.get(cpu, 0)
        lines.append(f"cpu{cpu} {500 + took} 0 0 {since + 100 - took - lost} 0 0 0 {lost} 0 0")
    return STAT + "\n".join(lines) + "\n"


def task(name: str, ticks: int, cpu: int, state: str = "R") -> str:
    return f"7 ({name}) {state} {' '.join(['0'] * 10)} {ticks} 0 {' '.join(['0'] * 23)} {cpu} 0 0\n"


def good() -> dict[str, str]:
    """A machine with two sockets of two cores, without hyperthreads, set as it should be."""
    files = {f"{CPU}/online": "0-3", f"{CPU}/smt/active": "0", f"{CPU}/smt/control": "off",
             f"{CPU}/intel_pstate/no_turbo": "1", f"{HUGE}/enabled": "always [madvise] never",
             f"{HUGE}/defrag": "always defer defer+madvise [madvise] never",
             "sys/devices/system/node/has_memory": "0-1", "proc/sys/kernel/numa_balancing": "0",
             "proc/sys/vm/swappiness": "1", "proc/swaps": "Filename Type\n/dev/sda2 partition",
             "proc/self/cgroup": "0::/user.slice/session", "proc/self/limits": limits(),
             "proc/self/status": "Name:\tdoctor\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-3",
             "proc/self/mounts": MOUNTS, "proc/sys/kernel/osrelease": "5.10.0-1", "proc/cpuinfo": "flags\t: fpu tsc",
             f"{CLOCK}/current_clocksource": "tsc", f"{CLOCK}/available_clocksource": "tsc hpet acpi_pm",
             "dev/shm/here": "", "sys/fs/cgroup/cgroup.procs": "",
             "proc/stat": STAT + "\n".join(f"cpu{cpu} 500 0 0 1000 0 0 0 0 0 0" for cpu in range(4))}
    for cpu in range(4):
        files[f"{CPU}/cpu{cpu}/cpufreq/scaling_governor"] = "performance"
        files[f"{CPU}/cpu{cpu}/cpufreq/scaling_available_governors"] = "performance powersave"
        files[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = str(cpu)
    return files


class MadeUp(Host):
    """A machine in a folder; `later` is what its files say at the second moment of a look at its load."""

    def __init__(self, folder: str, files: Mapping[str, str | None], later: Mapping[str, str],
                 room: Room | None) -> None:
        super().__init__(os.path.join(folder, "root"), lambda: self.put(later))
        self.found_room = room
        self.first = {"proc/stat": files.get("proc/stat", good()["proc/stat"])}
        self.put(good())
        self.put(files)

    def put(self, files: Mapping[str, str | None]) -> None:
        for name, text in files.items():
            path = self.path(name)
            if text is None:
                os.remove(path)
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text + "\n")

    def load(self) -> Load:
        if self.first["proc/stat"] is not None:
            self.put(self.first)  # at a second look as at the first
        return super().load()

    def room(self, folder: str) -> Room | None:
        return self.found_room


@pytest.fixture
def made_up(folder: str) -> Callable[..., MadeUp]:
    def make(files: Mapping[str, str | None] = {}, later: Mapping[str, str] = {}, room: Room | None = ROOM) -> MadeUp:
        return MadeUp(folder, files, {"proc/stat": cpus(), **later}, room)
    return make


def look(host: Host, plan: Document | None = None) -> list[Finding]:
    return checks.look(host, doctor.scope_of(host, plan))


def plan_of(*islands: str, workers: int = 1, **more: Any) -> Document:
    return {"islands": [{"cpus": each, "workers": workers} for each in islands], "sites": 24, "durability": "lazy",
            "ring_directory": None, "ring_bytes": 8 << 20, "log_directory": "/data/log", **more}


def test_machine_on_which_all_is_well(made_up: Callable[..., MadeUp]) -> None:
    findings = look(made_up())
    assert {each.severity for each in findings} == {FINE}, findings
    assert len(findings) == len(checks.CHECKS)


GOVERNOR = f"{CPU}/cpu2/cpufreq/scaling_governor"
EVERY_GOVERNOR = {f"{CPU}/cpu{cpu}/cpufreq/scaling_governor": "schedutil" for cpu in range(4)}
NO_GOVERNOR: dict[str, str | None] = {f"{CPU}/cpu{cpu}/cpufreq/scaling_governor": None for cpu in range(4)}
VIRTUAL = {"proc/cpuinfo": "flags\t: fpu hypervisor tsc"}
MANY = {"proc/self/limits": limits(files=64)}
FAULTS: list[tuple[Mapping[str, str | None], str, str, str, str]] = [
    ({GOVERNOR: "powersave"}, "governor", PROBLEM, "powersave on CPUs 2",
     f"echo performance | tee /{CPU}/cpu2/cpufreq/scaling_governor"),
    (EVERY_GOVERNOR, "governor", PROBLEM, "schedutil", f"tee /{CPU}/cpu{{0..3}}/cpufreq/scaling_governor"),
    ({GOVERNOR: "powersave", f"{CPU}/cpu2/cpufreq/scaling_available_governors": "powersave"}, "governor", PROBLEM,
     "powersave", "modprobe"),
    (NO_GOVERNOR, "governor", UNKNOWN, "the kernel does not say", "driver"),
    ({**NO_GOVERNOR, **VIRTUAL}, "governor", UNKNOWN, "the hypervisor decides", "ask whoever runs the host"),
    ({f"{CPU}/intel_pstate/no_turbo": "0"}, "turbo", ADVICE, "on", f"echo 1 | tee /{CPU}/intel_pstate/no_turbo"),
    ({f"{CPU}/intel_pstate/no_turbo": None, f"{CPU}/cpufreq/boost": "1"}, "turbo", ADVICE, "on", "echo 0 | tee"),
    ({f"{CPU}/intel_pstate/no_turbo": None}, "turbo", UNKNOWN, "does not say", ""),
    ({f"{CPU}/smt/active": "1"}, "smt", ADVICE, "on", f"echo off | tee /{CPU}/smt/control"),
    ({f"{CPU}/smt/active": "1", "proc/self/status": "Cpus_allowed_list:\t0-1",
      f"{CPU}/cpu0/topology/thread_siblings_list": "0,2"}, "smt", ADVICE, "CPUs 2 share cores", ""),
    ({f"{CPU}/smt/active": None}, "smt", UNKNOWN, "does not say", ""),
    (VIRTUAL, "smt", UNKNOWN, "the hypervisor may give", ""),
    ({f"{HUGE}/enabled": "always madvise [never]"}, "transparent huge pages", PROBLEM, "never",
     f"echo madvise | tee /{HUGE}/enabled"),
    ({f"{HUGE}/enabled": "[always] madvise never"}, "transparent huge pages", ADVICE, "always", "echo madvise"),
    ({f"{HUGE}/defrag": "always madvise [never]"}, "transparent huge pages", ADVICE, "defrag never", f"/{HUGE}/defrag"),
    ({f"{HUGE}/enabled": None}, "transparent huge pages", UNKNOWN, "does not say", ""),
    ({"proc/sys/kernel/numa_balancing": "1"}, "numa balancing", PROBLEM, "on",
     "echo 0 | tee /proc/sys/kernel/numa_balancing"),
    ({"proc/sys/kernel/numa_balancing": None}, "numa balancing", UNKNOWN, "does not say", ""),
    ({"proc/sys/vm/swappiness": "60"}, "swappiness", PROBLEM, "60", "echo 1 | tee /proc/sys/vm/swappiness"),
    ({"proc/sys/vm/swappiness": None}, "swappiness", UNKNOWN, "does not say", ""),
    (VIRTUAL, "steal", UNKNOWN, "may not count it", ""),
    ({"sys/fs/cgroup/user.slice/cpu.max": "150000 100000"}, "cpu quota", PROBLEM, "1.5 cores", "--cpuset-cpus"),
    ({"proc/self/cgroup": "4:cpu,cpuacct:/a", "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "200000",
      "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000"}, "cpu quota", PROBLEM, "2 cores", ""),
    ({"sys/fs/cgroup/cgroup.procs": None}, "cpu quota", UNKNOWN, "does not say", ""),
    ({"proc/self/cgroup": None}, "cpu quota", UNKNOWN, "does not say", ""),
    (MANY, "open files", PROBLEM, "at most 64", "LimitNOFILE"),
    ({"proc/self/limits": None}, "open files", UNKNOWN, "does not say", ""),
    ({"proc/self/limits": limits(locked=65536)}, "locked memory", PROBLEM, "64 KiB", "ulimit -l 384"),
    ({"proc/self/limits": None}, "locked memory", UNKNOWN, "does not say", ""),
    ({"proc/self/limits": limits(space=1 << 40)}, "address space", PROBLEM, "1024.0 GiB", "ulimit -v unlimited"),
    ({"proc/self/limits": None}, "address space", UNKNOWN, "does not say", ""),
    ({"proc/self/mounts": "/dev/sda1 / ext4 rw 0 0"}, "/dev/shm", PROBLEM, "on ext4", "mount -t tmpfs"),
    ({"proc/self/mounts": None}, "/dev/shm", UNKNOWN, "what is mounted", ""),
    ({f"{CLOCK}/current_clocksource": "hpet"}, "clock source", PROBLEM, "hpet", f"echo tsc | tee /{CLOCK}/current"),
    ({f"{CLOCK}/current_clocksource": "acpi_pm", f"{CLOCK}/available_clocksource": "hpet acpi_pm"}, "clock source",
     PROBLEM, "acpi_pm", "dmesg"),
    ({f"{CLOCK}/current_clocksource": "xen"}, "clock source", UNKNOWN, "xen, which may", "echo tsc"),
    ({f"{CLOCK}/current_clocksource": None}, "clock source", UNKNOWN, "does not say", ""),
]


@pytest.mark.parametrize("files, name, severity, found, command", FAULTS)
def test_fault_is_found(made_up: Callable[..., MadeUp], files: Mapping[str, str | None], name: str, severity: str,
                        found: str, command: str) -> None:
    findings = look(made_up(files))
    of_name = [each for each in findings if each.name == name]
    assert [each.severity for each in of_name] == [severity], findings
    assert found in of_name[0].found and command in of_name[0].command, of_name
    assert of_name[0].why and of_name[0].wanted
    others = {each.name for each in findings if each.severity == PROBLEM} - {name}
    assert not others, findings


@pytest.mark.parametrize("files, name", [
    ({"proc/swaps": "Filename Type", "proc/sys/vm/swappiness": "60"}, "swappiness"),
    ({"sys/devices/system/node/has_memory": "0", "proc/sys/kernel/numa_balancing": "1"}, "numa balancing"),
    ({"sys/fs/cgroup/user.slice/cpu.max": "400000 100000"}, "cpu quota"),
    ({"proc/self/limits": limits(locked=65536), "proc/sys/kernel/osrelease": "5.12.1"}, "locked memory"),
    ({"proc/self/limits": limits(locked=65536), "proc/self/status": "CapEff:\t0000000000004000"}, "locked memory"),
    ({f"{CLOCK}/current_clocksource": "kvm-clock"}, "clock source"),
])
def test_what_is_no_fault(made_up: Callable[..., MadeUp], files: Mapping[str, str], name: str) -> None:
    assert [each.severity for each in look(made_up(files)) if each.name == name] == [FINE]


def test_steal(made_up: Callable[..., MadeUp]) -> None:
    found = {each.name: each for each in look(made_up(VIRTUAL, {"proc/stat": cpus(stolen={0: 20, 1: 20})}))}
    assert found["steal"].severity == PROBLEM and found["steal"].found == "10% now"
    past = STAT + "\n".join(f"cpu{cpu} 500 0 0 1000 0 0 0 500 0 0" for cpu in range(4))
    later = STAT + "\n".join(f"cpu{cpu} 500 0 0 1100 0 0 0 500 0 0" for cpu in range(4))
    found = {each.name: each for each in look(made_up({"proc/stat": past}, {"proc/stat": later}))}
    assert found["steal"].severity == ADVICE and "24% since" in found["steal"].found
    found = {each.name: each for each in look(made_up({"proc/stat": None}, {"proc/stat": ""}))}
    assert found["steal"].severity == found["other load"].severity == UNKNOWN


def test_other_load_names_who_it_is(made_up: Callable[..., MadeUp]) -> None:
    before = {"proc/7/task/7/stat": task("make) (x", 100, 3), "proc/7/task/8/stat": task("thread", 5, 1)}
    after = {"proc/stat": cpus(busy={1: 80, 3: 5}), "proc/7/task/8/stat": task("thread", 85, 1)}
    found = [each for each in look(made_up(before, after)) if each.name == "other load"]
    assert [each.found for each in found] == ["80% of CPU 1: make) (x (7) 80%"] and found[0].severity == PROBLEM
    assert "taskset" in found[0].command
    # Only on cores that matter.
    quiet = [each for each in look(made_up(before, after), plan_of("2", "3")) if each.name == "other load"]
    assert [(each.severity, each.found) for each in quiet] == [(FINE, "5% at most")]


def test_what_hangs_on_the_cores(made_up: Callable[..., MadeUp]) -> None:
    host = made_up({"proc/9/task/9/stat": task("dd", 3, 2, "D"), "proc/8/task/8/stat": task("cp", 3, 2, "D")},
                   {"proc/8/task/8/stat": task("cp", 4, 2, "D")})  # one that goes on
    assert [each.found for each in look(host) if each.severity == ADVICE] == ["stuck in the kernel: dd (9)"]
    assert not [each for each in look(host, plan_of("0")) if each.severity == ADVICE]


def test_room_for_rings(made_up: Callable[..., MadeUp]) -> None:
    def found(host: Host, plan: Document | None = None) -> Finding:
        return next(each for each in look(host, plan) if each.name.startswith("/"))
    little = Room(64 << 20, 10 << 20)
    short = found(made_up(room=little))
    assert (short.severity, short.found, short.wanted) == (PROBLEM, "10 MiB free", "64 MiB free, in memory")
    assert "mount -o remount,size=119m /dev/shm" in short.command  # 54 more than there are, and headers
    assert found(made_up(room=None)).found == "not there"
    assert found(made_up(room=little), plan_of("0", ring_bytes=4 << 20)).severity == FINE
    assert found(made_up(room=little), plan_of("0-3", workers=4)).severity == PROBLEM
    assert found(made_up(room=little), plan_of("0-3", workers=4, durability="none")).severity == FINE
    own = found(made_up({"rings/here": "", "proc/self/mounts": MOUNTS + "/dev/sdb /rings xfs rw 0 0"}),
                plan_of("0", ring_directory="/rings/mine"))
    assert (own.name, own.severity, own.found) == ("/rings/mine", PROBLEM, "on xfs")
    # Its own rings, of a life before, are no lack of room; another's are.
    for owner, severity in ((OWNER, FINE), (OWNER.replace("/data", "/other"), PROBLEM)):
        files = {"dev/shm/islands-1/owner": owner, "dev/shm/islands-1/island-0.ring": "x" * (8 << 20)}
        assert found(made_up(files, room=little), plan_of("0")).severity == severity


def test_files_that_a_deployment_needs(made_up: Callable[..., MadeUp]) -> None:
    host = made_up({"proc/self/limits": limits(files=400)})
    assert not [each for each in look(host, plan_of("0", "1")) if each.severity == PROBLEM]
    found = [each for each in look(host, plan_of("0-3", workers=4, sites=300)) if each.severity == PROBLEM]
    assert not found, found
    found = [each for each in look(host, plan_of("0-3", workers=4, sites=400)) if each.severity == PROBLEM]
    assert [each.name for each in found] == ["open files"]


def test_only_cores_of_the_deployment(made_up: Callable[..., MadeUp]) -> None:
    host = made_up({GOVERNOR: "powersave"})
    assert not [each for each in look(host, plan_of("0-1", "3")) if each.severity != FINE]
    assert [each.name for each in look(host, plan_of("0-1", "2")) if each.severity == PROBLEM] == ["governor"]


def run(capsys: pytest.CaptureFixture[str], host: Host, *words: str) -> tuple[int, str]:
    code = doctor.main(words, host)
    return code, capsys.readouterr().out


def test_fix(made_up: Callable[..., MadeUp], capsys: pytest.CaptureFixture[str]) -> None:
    """Only what it has named, only problems; each with its way back."""
    planted = {GOVERNOR: "powersave", "proc/sys/vm/swappiness": "60", f"{HUGE}/enabled": "always madvise [never]",
               f"{CPU}/intel_pstate/no_turbo": "0"}
    host = made_up(planted)
    code, out = run(capsys, host, "--fix", "--dry-run")
    commands = out.splitlines()
    assert code == 1 and len(commands) == 3 and f"echo madvise | tee /{HUGE}/enabled" in commands
    assert all(host.read(name) == value for name, value in planted.items())
    code, out = run(capsys, host, "--fix")
    assert code == 0 and out.count(": done") == 3 and "left: no problems" in out
    assert all(f"{command}: done" in out for command in commands)
    assert f"    back: echo powersave | tee /{GOVERNOR}" in out and f"back: echo never | tee /{HUGE}/enabled" in out
    assert host.read(GOVERNOR) == "performance" and host.read("proc/sys/vm/swappiness") == "1"
    assert host.read(f"{CPU}/intel_pstate/no_turbo") == "0"
    assert run(capsys, host, "--fix") == (0, "nothing that --fix changes\nleft: no problems\n")


def test_fix_that_the_kernel_refuses(made_up: Callable[..., MadeUp], capsys: pytest.CaptureFixture[str],
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, value: str) -> None:
        raise PermissionError(1, "Operation not permitted", name)
    host = made_up({"proc/sys/vm/swappiness": "60"})
    monkeypatch.setattr(host, "write", refuse)
    code, out = run(capsys, host, "--fix", "--format", "json")
    found = json.loads(out)
    assert code == 1 and found["problems"] == 1
    assert found["fixes"] == [{"command": "echo 1 | tee /proc/sys/vm/swappiness", "done": False, "back": [],
                               "error": "/proc/sys/vm/swappiness: Operation not permitted"}]


def test_texts(made_up: Callable[..., MadeUp], capsys: pytest.CaptureFixture[str]) -> None:
    host = made_up({**EVERY_GOVERNOR, f"{CPU}/smt/active": None, "proc/sys/kernel/numa_balancing": "1"})
    assert run(capsys, host, "--brief") == (
        1, "doctor: 2 problems: governor schedutil, numa balancing on; unknown: smt; see `islands doctor`\n")
    code, out = run(capsys, host)
    assert code == 1 and "problem    governor: schedutil; wanted: performance\n           why: " in out
    assert "           fix: echo 0 | tee /proc/sys/kernel/numa_balancing\n" in out and "\nunknown    smt: " in out
    assert "\nfine       turbo (off), " in out
    code, out = run(capsys, host, "--format", "json")
    found = json.loads(out)
    assert code == 1 and (found["problems"], found["unknown"], found["advice"], found["cpus"]) == (2, 1, 0, "0-3")
    assert [each["name"] for each in found["findings"] if each["fixable"]] == ["governor", "numa balancing"]


@pytest.mark.parametrize("text, found", [("0-2,5", [0, 1, 2, 5]), ("", []), ("7", [7])])
def test_cpu_lists(text: str, found: Sequence[int]) -> None:
    assert cpus_of(text) == found and cpu_list(found) == text


@pytest.mark.parametrize("wanted, text", [([3], "3"), ([0, 1, 2], "{0..2}"), ([0, 1, 4], "{{0..1},4}")])
def test_braces(wanted: Sequence[int], text: str) -> None:
    assert braces(wanted) == text


def test_machine_that_says_nothing(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--format", "json"], Host(folder, lambda: None)) == 1
    assert "which CPUs" in json.loads(capsys.readouterr().out)["error"]["message"]
    os.makedirs(os.path.join(folder, "proc", "self"))
    with open(os.path.join(folder, "proc", "self", "status"), "w", encoding="utf-8") as file:
        file.write("Cpus_allowed_list:\t2-3\n")
    assert doctor.main(["--format", "json"], Host(folder, lambda: None)) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["cpus"] == "2-3" and found["fine"] == 0
    assert {each["name"] for each in found["findings"] if each["severity"] == PROBLEM} == {"/dev/shm"}  # not there


def test_moment_without_time() -> None:
    same = Moment({0: [1] * 8}, {})
    assert Load(same, same).shares(0) is None


# The command, on the machine at hand


def test_command(islands: Islands, deployment: WriteFile) -> None:
    whole = islands.run("doctor", "--format", "json")
    found = json.loads(whole.out)
    assert whole.code == (1 if found["problems"] else 0) and not whole.err
    assert len(found["findings"]) >= len(checks.CHECKS)
    file = deployment("version: 1\nlayout: 1ISL\ncores: 1\n")
    of_file = json.loads(islands.run("doctor", file, "--brief", "--format", "json").out)
    plan = islands.json("plan", file)
    assert of_file["cpus"] == plan["islands"][0]["cpus"] and of_file["file"] == file
    rings = next(each for each in of_file["findings"] if each["name"] == "/dev/shm")
    assert rings["severity"] == FINE or "16 MiB" in rings["wanted"]


@pytest.mark.parametrize("text, complaint", [
    ("version: 1\nlayuot: 1ISL\n", "bad.yaml:2:1: found unknown key 'layuot'"),
    ("version: 1\nmachine: 'pack:4 core:6 pu:1'\nlayout: 4ISL\n", "expected a deployment of this machine"),
])
def test_files_that_cannot_be_looked_at(islands: Islands, deployment: WriteFile, text: str, complaint: str) -> None:
    file = deployment(text, "bad.yaml")
    done = islands.run("doctor", file)
    assert done.code == 2 and complaint in done.err and not done.out
    assert complaint in islands.json("doctor", file, code=2)["error"]["message"]


@pytest.mark.parametrize("words, complaint", [
    (["--dry-run"], "--dry-run: found no --fix"), (["--brief", "--fix"], "expected one of them"), (["a", "b"], "b")])
def test_usage(islands: Islands, words: Sequence[str], complaint: str) -> None:
    done = islands.run("doctor", *words)
    assert done.code == 2 and complaint in done.err
    assert complaint in islands.json("doctor", *words, code=2)["error"]["message"]


def test_what_a_sweep_writes_down(islands: Islands, capsys: pytest.CaptureFixture[str]) -> None:
    from islands_command import Islands as Command
    found = result_files.ask_doctor(Command(os.path.dirname(islands)))
    assert found and found["findings"]
    assert capsys.readouterr().err == f"doctor: {found['brief']}; see `islands doctor`\n"
    assert result_files.ask_doctor(Command("/nowhere")) is None
    assert "cannot be asked" in capsys.readouterr().err


def test_settings_that_changed_between_parts_of_a_sweep() -> None:
    def having(*names: str) -> Document:
        return {"findings": [{"name": name, "severity": PROBLEM} for name in names]}
    changed = result_files.settings_changed
    assert changed(having("governor"), having("swappiness", "other load")) == \
        "swappiness is a problem now; governor is no problem any more"
    assert changed(having("governor"), having("governor")) == changed(None, having("governor")) == ""
