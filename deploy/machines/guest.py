"""A guest: a QEMU machine without KVM that runs Debian's cloud kernel and executes what it is told.

Commands and their outputs go over a virtio console port that is one end of a socket pair, so there are no ports or
paths to collide; the kernel's console is kept for the message of a failure.
"""

import base64
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from typing import NamedTuple

import initramfs
import shelf

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOLS = os.path.join(ROOT, "build", "tools", "machines")
BINARIES = os.environ.get("ISLANDS_BIN") or os.path.join(ROOT, "build", "release", "bin")
if os.path.isfile(BINARIES):
    BINARIES = os.path.dirname(BINARIES)
QEMU = "qemu-system-x86_64"

# A model that this QEMU emulates without AVX-512 and five-level page tables; `max` takes three times as long to boot.
CPU = "Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid"  # without what QEMU would warn of
# No waiting for what emulation makes slow: calibrations, watchdogs, mitigations.
KERNEL_ARGUMENTS = ("console=ttyS0 panic=-1 mitigations=off tsc=reliable no_timer_check nowatchdog "
                    "rcupdate.rcu_cpu_stall_suppress=1 random.trust_cpu=on")
SECONDS = 240  # for anything: what takes 2 on an idle machine takes 30 on a busy one
# Rarely a boot hangs before the kernel's first line: so many attempts.
BOOTS = 2

# Programs of ours for the guests alone, name -> source.
PROGRAMS = {"forbid_binding": os.path.join(os.path.dirname(os.path.abspath(__file__)), "forbid_binding.cc")}


class Result(NamedTuple):
    code: int
    out: str
    err: str


class GuestFailed(AssertionError):
    """The guest did not do as told in time; the message ends with its console."""


def why_not() -> str:
    """Why no machine can be booted here; empty if they can."""
    if shutil.which(QEMU) is None:
        return f"no {QEMU}: run deploy/install-packages.sh machines"
    if not os.access(os.path.join(TOOLS, "vmlinuz"), os.R_OK):
        return "no kernel in build/tools/machines: run deploy/install-packages.sh machines"
    if not os.access(os.path.join(BINARIES, "islandd"), os.X_OK):
        return f"{BINARIES}/islandd is not built"
    return ""


def build_programs() -> list[str]:
    """Compiles what is older than its source; statically, as it needs nothing of the guest then."""
    paths = []
    for name, source in PROGRAMS.items():
        path = os.path.join(TOOLS, name)
        if not os.path.exists(path) or os.path.getmtime(path) < os.path.getmtime(source):
            subprocess.run(["g++", "-std=c++20", "-O1", "-static", "-o", path, source], check=True)
        paths.append(path)
    return paths


def die_with_parent() -> None:
    """In the child: a QEMU must not outlive the tests, however they end."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def qemu_command(machine: shelf.Machine, files: str, arguments: str = "") -> list[str]:
    return [QEMU, "-accel", "tcg,thread=multi,tb-size=512", "-cpu", CPU, "-machine", "q35,usb=off", "-nodefaults",
            "-no-reboot", "-display", "none", "-kernel", os.path.join(TOOLS, "vmlinuz"), "-initrd", files,
            "-append", f"{KERNEL_ARGUMENTS} {arguments}", *shelf.qemu_arguments(machine)]


class Guest:
    def __init__(self, machine: shelf.Machine) -> None:
        self.machine = machine
        self.folder = tempfile.mkdtemp(prefix="islands-guest-")
        self.console = os.path.join(self.folder, "console")
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: socket.socket | None = None
        self.usable = False  # after a request that was not answered in time no answer can be told from another

    def __enter__(self) -> "Guest":
        try:
            self.boot()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def boot(self) -> None:
        initramfs.build(os.path.join(self.folder, "initramfs"), TOOLS, BINARIES, build_programs())
        for attempts_left in reversed(range(BOOTS)):
            try:
                self.start()
                self.answer(time.monotonic() + 60 + shelf.cpus_of(self.machine), "the guest to boot")
                self.usable = True
                return
            except GuestFailed as failed:
                if attempts_left == 0:
                    raise
                warnings.warn(f"{self.machine.name} did not boot, once more: {failed}")
                self.stop()

    def start(self) -> None:
        files = os.path.join(self.folder, "initramfs")
        self.channel, theirs = socket.socketpair()
        with theirs, open(os.path.join(self.folder, "qemu"), "wb") as log:
            self.process = subprocess.Popen(
                [*qemu_command(self.machine, files), "-serial", f"file:{self.console}",
                 "-chardev", f"socket,id=host,fd={theirs.fileno()}", "-device", "virtio-serial-pci",
                 "-device", "virtserialport,chardev=host"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[theirs.fileno()],
                preexec_fn=die_with_parent)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        if self.channel is not None:
            self.channel.close()

    def end(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def receive(self, deadline: float, what: str) -> bytes:
        assert self.channel
        self.channel.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            data = self.channel.recv(1 << 16)
        except TimeoutError:
            self.usable = False
            raise GuestFailed(f"waited in vain for {what}; {self.last_words()}") from None
        if not data:
            self.usable = False
            raise GuestFailed(f"the guest ended while it was waited for {what}; {self.last_words()}")
        return data

    def answer(self, deadline: float, what: str) -> Result:
        """One answer of init: the line `CODE OUT_BYTES ERR_BYTES` and so many bytes."""
        data = b""
        while b"\n" not in data:
            data += self.receive(deadline, what)
        line, _, data = data.partition(b"\n")
        code, out_bytes, err_bytes = map(int, line.split())
        while len(data) < out_bytes + err_bytes:
            data += self.receive(deadline, what)
        return Result(code, data[:out_bytes].decode(errors="replace"), data[out_bytes:].decode(errors="replace"))

    def run(self, script: str, seconds: float = SECONDS) -> Result:
        """Runs a shell script to its end."""
        assert self.channel
        self.channel.settimeout(seconds)
        self.channel.sendall(base64.b64encode(script.encode()) + b"\n")
        return self.answer(time.monotonic() + seconds, f"`{script[:200]}`")

    def check(self, script: str, seconds: float = SECONDS) -> str:
        """Runs a shell script that has to succeed; what it printed."""
        done = self.run(script, seconds)
        if done.code != 0:
            raise GuestFailed(f"`{script[:200]}` ended with {done.code}:\n{done.out[-2000:]}\n{done.err[-4000:]}\n"
                              f"{self.last_words()}")
        return done.out

    def write(self, path: str, text: str) -> None:
        self.check(f"mkdir -p {os.path.dirname(path)}; cat > {path} <<'end of file'\n{text}end of file\n")

    def last_words(self) -> str:
        """The end of the console, and what QEMU had to say."""
        words = []
        for name in ("qemu", "console"):
            try:
                with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
                    words.append(f"{name}:\n{file.read()[-3000:]}")
            except OSError:
                pass
        return "\n".join(words)
