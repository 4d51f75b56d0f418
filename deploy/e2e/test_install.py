"""What `make install` and `make deb` give: it works where it is put, needs nothing of the tree it came from, and
programs and workloads outside can be built with it."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from conftest import BINARIES, ROOT, Islands, WriteFile

BUILD = os.path.dirname(BINARIES)
PACKAGE = os.path.join(BUILD, "package")
FILE = """version: 1
name: bank
layout: 1ISL
metrics: {base_port: 0}
storage: {buffer_pool: 128MiB}
data:
  tables:
    - {name: account, key: [uint64], range: [0, 10000], row_bytes: 8}
"""
BANK = """cmake_minimum_required(VERSION 3.25)
project(bank LANGUAGES CXX)
find_package(islands REQUIRED COMPONENTS workload)
islands_workload(bank bank.cc)
"""

pytestmark = pytest.mark.skipif(not os.path.isfile(os.path.join(BUILD, "cmake_install.cmake")),
                                reason=f"{BUILD} is no build folder of ours")


def call(*command: str, **more: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=dict(os.environ, **more))
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """As `make install DESTDIR=... PREFIX=/opt/islands` leaves it."""
    folder = str(tmp_path_factory.mktemp("installed"))
    call("ninja", "-C", BUILD, "documents", "islands_client", "islands_trial")
    call("cmake", "--install", BUILD, "--prefix", "/opt/islands", "--strip", DESTDIR=folder)
    yield os.path.join(folder, "opt", "islands")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def installed(prefix: str) -> Islands:
    return Islands(os.path.join(prefix, "bin", "islands"))


def test_nothing_names_the_tree_it_came_from(prefix: str) -> None:
    for where, _, names in os.walk(prefix):
        for name in names:
            path = os.path.join(where, name)
            assert not os.path.islink(path), path
            with open(path, "rb") as file:
                assert ROOT.encode() + b"/" not in file.read(), path


def test_every_command_is_there(installed: Islands, prefix: str, folder: str) -> None:
    pages = os.listdir(os.path.join(prefix, "share", "man", "man1"))
    for page in pages:
        command = page.removeprefix("islands").removeprefix("-").removesuffix(".1")
        done = installed.run(*(["help", command] if command else ["help"]))
        assert done.code == 0 and "sage: " in done.out and done.err == "", (page, done)
    assert {"islands.1", "islands-up.1", "islands-sweep.1", "islands-client.1"} <= set(pages)
    sweeps = os.path.join(prefix, "lib", "islands", "experiments", "quick.yaml")
    done = installed.run("sweep", sweeps, "--dry-run", cwd=folder)
    assert done.code == 0 and "fig09" in done.out, done


def test_man_pages_say_what_help_says(installed: Islands, prefix: str) -> None:
    text = call("man", "-l", os.path.join(prefix, "share", "man", "man1", "islands-up.1"), MANWIDTH="200",
                MAN_KEEP_FORMATTING="") if shutil.which("man") else ""
    if not text:
        pytest.skip("no `man` here")
    plain = re.sub(".\b", "", text)
    for line in installed.run("up", "--help").out.splitlines():
        line = line.rstrip(":").upper() if re.match(r"[A-Z][a-z]+:$", line) else line  # a heading
        assert " ".join(line.split()) in " ".join(plain.split()), line


@pytest.mark.parametrize("words, expected", [
    (["islands", "s"], ["status", "sweep"]),
    (["islands", "help", "adv"], ["advise"]),
    (["islands", "up", "--obs"], ["--observe"]),
    (["islands", "--format", "json", "down", "--ti"], ["--timeout"]),
    (["islands", "run", "my.yaml", "ta"], ["tatp"]),
    (["islands", "up", "m"], ["more", "my.yaml"]),
])
def test_completion(prefix: str, folder: str, words: list[str], expected: list[str]) -> None:
    open(os.path.join(folder, "my.yaml"), "w").close()
    open(os.path.join(folder, "my.csv"), "w").close()
    os.mkdir(os.path.join(folder, "more"))
    script = os.path.join(prefix, "share", "bash-completion", "completions", "islands")
    line = " ".join(f"'{word}'" for word in words)
    told = call("bash", "-c", f"cd {folder}; source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
                "_islands; printf '%s\\n' \"${COMPREPLY[@]}\"")
    assert sorted(told.split()) == expected


def test_a_workload_is_built_with_it_and_found(installed: Islands, prefix: str, folder: str,
                                               deployment: WriteFile) -> None:
    """In a user's own folder, as README says; and by its path."""
    home, source = os.path.join(folder, "home"), os.path.join(folder, "bank")
    os.makedirs(source)
    shutil.copy(os.path.join(ROOT, "experiments", "transfer", "transfer.cc"), os.path.join(source, "bank.cc"))
    with open(os.path.join(source, "CMakeLists.txt"), "w", encoding="utf-8") as out:
        out.write(BANK)
    build = os.path.join(source, "build")
    call("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    call("cmake", "--build", build)
    call("cmake", "--install", build, "--prefix", os.path.join(home, ".local"))
    os.chmod(folder, 0o755)
    file, environment = deployment(FILE), dict(os.environ, HOME=home)
    try:
        assert installed.run("up", file).code == 0
        for workload in ("bank", os.path.join(build, "bank.so")):
            result = installed.json("run", file, workload, "--duration", 0.2, "--warmup", 0, "--results",
                                    os.path.join(folder, "results"), "--reload", env=environment)
            assert (result["workload"], result["sum_check"]) == ("bank", "ok") and result["committed"] > 0, result
    finally:
        installed.run("down", file)
    for where, there in ((environment, True), (dict(os.environ, HOME="/nowhere"), False)):
        assert (" bank," in installed.run("run", "--help", env=where).out) == there


def test_a_client_is_built_with_it(prefix: str, folder: str) -> None:
    example = os.path.join(ROOT, "instance", "gateway", "cpp", "examples")
    source = shutil.copytree(example, os.path.join(folder, "client"))
    build = os.path.join(folder, "build")
    call("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", "-DISLANDS=/nowhere")
    call("cmake", "--build", build)
    assert os.access(os.path.join(build, "transfer_client"), os.X_OK)


def test_the_service_is_hardened(prefix: str) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    unit = os.path.join(prefix, "lib", "systemd", "system", "islands@.service")
    with open(unit, encoding="utf-8") as file:
        assert "ExecStart=/opt/islands/bin/islands up /var/lib/islands/%i/islands.yaml" in file.read()
    call("systemd-analyze", "security", "--offline=true", "--threshold=30", unit)  # exposure at most 3.0 of 10


def test_a_container_keeps_it_up_until_it_is_stopped(prefix: str, folder: str, deployment: WriteFile) -> None:
    file = deployment(FILE)
    process = subprocess.Popen(["sh", os.path.join(ROOT, "deploy", "package", "serve.sh"), "serve", file], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               env=dict(os.environ, PATH=f"{prefix}/bin:{os.environ['PATH']}"))
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=5)
        with open(os.path.join(folder, "run", "supervisor.lock"), encoding="utf-8") as lock:
            assert lock.readline().strip().isdigit(), "what systemd reads as PIDFile"
        process.terminate()
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 0 and "every process is gone" in out, out
    finally:
        process.kill()
        Islands(os.path.join(prefix, "bin", "islands")).run("down", file)


@pytest.mark.soak
def test_the_debian_package(folder: str) -> None:
    if not shutil.which("dpkg-deb"):
        pytest.skip("no dpkg here")
    call("ninja", "-C", BUILD, "documents", "islands_client", "islands_trial")
    call("cpack", "-G", "DEB", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", folder,
         "-D", f"CPACK_OUTPUT_FILE_PREFIX={folder}", "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip")
    package, = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".deb")]
    depends = call("dpkg-deb", "-f", package, "Depends")
    assert all(word in depends for word in ("libhwloc15", "libnuma1", "libgrpc++", "python3-yaml"))
    root = os.path.join(folder, "root")
    call("dpkg-deb", "-x", package, root)
    found = Islands(os.path.join(root, "usr", "bin", "islands"))
    assert found.run("machine").code == 0 and found.run("advise", "--help").code == 0
    assert "useradd --system" in call("dpkg-deb", "-I", package, "postinst")
    with open(os.path.join(root, "usr", "lib", "systemd", "system", "islands@.service"), encoding="utf-8") as file:
        assert "ExecStart=/usr/bin/islands up" in file.read()
