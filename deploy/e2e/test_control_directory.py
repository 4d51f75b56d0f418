"""The control directory belongs to its user alone: made so, checked before anything in it is touched, and nothing that
somebody planted or changed there has an effect."""

import os
import shutil
import stat
import subprocess

import pytest

from cluster import Cluster, cluster, line_of  # noqa: F401
from conftest import Result
from test_metrics import free_ports

NOBODY = 65534
COMMANDS = ["up", "status", "down", "run", "top", "verify", "destroy"]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to somebody else")


def run(cluster: Cluster, command: str) -> Result:
    words = {"run": ["micro"], "top": ["--once"], "destroy": ["--yes"]}.get(command, [])
    return cluster.islands.run(command, cluster.file, *words, cwd=cluster.folder)


def write_with_metrics(cluster: Cluster) -> None:
    cluster.write()
    with open(cluster.file, encoding="utf-8") as file:
        text = file.read().replace("base_port: 0", f"base_port: {free_ports(2)}")
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(text)


def path(cluster: Cluster, name: str = "") -> str:
    return os.path.join(cluster.folder, "run", name)


def listing(folder: str) -> list[str]:
    return sorted(os.listdir(folder))


def refused(cluster: Cluster, command: str, *words: str) -> None:
    """Refused in these words, and nothing was touched."""
    before = listing(path(cluster))
    done = run(cluster, command)
    assert done.code == 1, done
    assert done.out == "" and path(cluster).rstrip("/") in done.err, done
    for word in words:
        assert word in done.err, done
    assert listing(path(cluster)) == before
    assert cluster.alive() == {}


# ---- the directory

def test_it_and_all_in_it_are_the_users_alone(cluster: Cluster) -> None:
    write_with_metrics(cluster)
    cluster.up("--targets", os.path.join(cluster.folder, "targets"))
    cluster.run()
    assert stat.S_IMODE(os.stat(path(cluster)).st_mode) == 0o700
    names = listing(path(cluster))
    assert {"supervisor.log", "supervisor.lock", "supervisor.sock", "run.lock", "targets", "island-0.log",
            "island-0.lock", "island-0.json", "island-0.ctl", "island-0.w0.sock"} <= set(names)
    for name in names:
        assert stat.S_IMODE(os.lstat(path(cluster, name)).st_mode) == 0o600, name


def test_who_removes_it_is_told_how_to_end_what_runs(cluster: Cluster) -> None:
    supervisor = cluster.write().up()["supervisor_pid"]
    shutil.rmtree(path(cluster))
    for command in ("up", "destroy"):
        done = run(cluster, command)
        assert done.code == 1 and f"process {supervisor} " in done.err, done
        assert f"`islands down {cluster.file}`" in done.err, done
    cluster.down()
    assert run(cluster, "down").out == "nothing is running\n"
    cluster.up()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_symbolic_link_is_refused(cluster: Cluster, command: str) -> None:
    elsewhere = os.path.join(cluster.write().folder, "elsewhere")
    os.mkdir(elsewhere, 0o700)
    os.symlink(elsewhere, path(cluster).rstrip("/"))
    refused(cluster, command, "symbolic link")
    assert listing(elsewhere) == []


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_one_that_others_may_enter_is_refused(cluster: Cluster, command: str, mode: int) -> None:
    cluster.write()
    os.mkdir(path(cluster))
    os.chmod(path(cluster), mode)
    refused(cluster, command, f"mode {mode:04o}", f"chmod 700 {path(cluster)}".rstrip("/"))


def test_it_works_after_the_recommended_command(cluster: Cluster) -> None:
    cluster.write()
    os.mkdir(path(cluster), 0o755)
    done = run(cluster, "up")
    command = done.err[done.err.index("chmod"):].split("`")[0].split()
    assert subprocess.run(command, check=False).returncode == 0, done
    cluster.up()


@as_root
@pytest.mark.parametrize("command", COMMANDS)
def test_somebody_elses_is_refused(cluster: Cluster, command: str) -> None:
    cluster.write()
    os.mkdir(path(cluster), 0o700)
    os.chown(path(cluster), NOBODY, NOBODY)
    refused(cluster, command, f"user {NOBODY}", "user 0")


@as_root
def test_roots_commands_leave_another_users_processes_alone(cluster: Cluster) -> None:
    """A pid in somebody else's lock file is no reason to signal that process."""
    cluster.write()
    os.mkdir(path(cluster), 0o700)
    os.chown(path(cluster), NOBODY, NOBODY)
    victim = subprocess.Popen(["sleep", "60"])
    holder = subprocess.Popen(["flock", "--no-fork", path(cluster, "supervisor.lock"), "sh", "-c",
                               f"echo {victim.pid} > {path(cluster, 'supervisor.lock')}; echo held; exec sleep 60"],
                              stdout=subprocess.PIPE, text=True)
    try:
        assert line_of(holder.stdout) == "held\n"
        done = cluster.islands.run("down", cluster.file, "--timeout", "1")
        assert done.code == 1 and f"user {NOBODY}" in done.err, done
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()
        holder.kill()
        holder.communicate()


# ---- its files

PLANTED = ["supervisor.lock", "supervisor.log", "island-0.lock", "island-0.log", "island-0.json", "supervisor.sock",
           "island-0.ctl", "island-0.w0.sock"]


@pytest.mark.parametrize("name", PLANTED)
def test_a_symbolic_link_in_a_files_place_is_not_followed(cluster: Cluster, name: str) -> None:
    cluster.write()
    os.mkdir(path(cluster), 0o700)
    victim = os.path.join(cluster.folder, "victim")
    with open(victim, "w", encoding="utf-8") as file:
        file.write("precious\n")
    os.symlink(victim, path(cluster, name))
    done = run(cluster, "up")
    assert done.code == 1 and name in done.err, done
    with open(victim, encoding="utf-8") as file:
        assert file.read() == "precious\n"
    assert cluster.alive() == {}


@pytest.mark.parametrize("name", ["run/targets", "run/targets.tmp", "elsewhere/test.json.tmp"])
def test_a_symbolic_link_in_the_targets_place_is_not_followed(cluster: Cluster, name: str) -> None:
    write_with_metrics(cluster)
    os.mkdir(path(cluster), 0o700)
    os.mkdir(os.path.join(cluster.folder, "elsewhere"))
    victim = os.path.join(cluster.folder, "victim")
    with open(victim, "w", encoding="utf-8") as file:
        file.write("precious\n")
    os.symlink(victim, os.path.join(cluster.folder, name))
    cluster.up("--targets", os.path.join(cluster.folder, "elsewhere"))
    with open(victim, encoding="utf-8") as file:
        assert file.read() == "precious\n"


def test_a_symbolic_link_in_the_run_locks_place_is_not_followed(cluster: Cluster) -> None:
    cluster.write().up()
    victim = os.path.join(cluster.folder, "victim")
    os.symlink(victim, path(cluster, "run.lock"))
    done = run(cluster, "run")
    assert done.code == 1 and "run.lock" in done.err, done
    assert not os.path.exists(victim)


@as_root
def test_somebody_elses_file_in_a_locks_place_is_refused(cluster: Cluster) -> None:
    """Left from when the directory was open to others: its owner can read and lock it for ever."""
    cluster.write()
    os.mkdir(path(cluster), 0o700)
    with open(path(cluster, "supervisor.log"), "w", encoding="utf-8") as file:
        os.fchown(file.fileno(), NOBODY, NOBODY)
    done = run(cluster, "up")
    assert done.code == 1 and "supervisor.log" in done.err and f"user {NOBODY}" in done.err, done
    assert os.path.getsize(path(cluster, "supervisor.log")) == 0


# ---- what happens between the supervisor's start of an island and the island's own

def with_meddler(cluster: Cluster, script: str) -> Cluster:
    """The same command, in whose place islandd finds things changed by a shell script. Its configuration is on
    descriptor 3."""
    folder = os.path.join(cluster.folder, "bin")
    os.mkdir(folder)
    shutil.copy(cluster.islands, folder)
    real = os.path.join(os.path.dirname(cluster.islands), "islandd")
    with open(os.path.join(folder, "islandd"), "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\n{script}\nexec {real} \"$@\"\n")
    os.chmod(file.name, 0o755)
    return Cluster(type(cluster.islands)(os.path.join(folder, "islands")), cluster.folder).write()


def test_a_configuration_changed_on_disk_has_no_effect(cluster: Cluster) -> None:
    evil = 's|"clusterId"|"loads": [{"workload": "micro", "object": "/evil.so"}], "clusterId"|'
    meddled = with_meddler(cluster, f"sed -i '{evil}' {path(cluster)}island-*.json")
    done = run(meddled, "up")
    assert done.code == 0, done
    with open(path(cluster, "island-0.json"), encoding="utf-8") as file:
        assert "/evil.so" in file.read()
    assert [island["state"] for island in meddled.status()["islands"]] == ["ready", "ready"]


def test_a_configuration_cannot_be_written_to(cluster: Cluster) -> None:
    meddled = with_meddler(cluster, f"(echo {{}} >&3) 2>/dev/null && touch {path(cluster)}written")
    done = run(meddled, "up")
    assert done.code == 0 and not os.path.exists(path(cluster, "written")), done


def test_an_island_checks_the_directory_itself(cluster: Cluster) -> None:
    done = run(with_meddler(cluster, f"chmod 755 {path(cluster)}"), "up")
    assert done.code == 1 and f"chmod 700 {path(cluster)}".rstrip("/") in done.err, done
    assert cluster.alive() == {}
