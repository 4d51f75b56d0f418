"""Which deployments are up, `islands ps`, and that `down` ends the one that is meant: whatever has become of its file
and its control directory, and no other."""

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import Cluster, cluster, processes, wait_until  # noqa: F401
from conftest import Document, Islands, Result

NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as somebody else")


def unique(cluster: Cluster) -> str:
    """A name that no other deployment of this machine has."""
    return os.path.basename(cluster.folder).lower().replace("_", "-")


def another(cluster: Cluster, name: str, more: str = "", file: str = "other.yaml") -> Cluster:
    made = Cluster(cluster.islands, cluster.folder)
    made.file = os.path.join(cluster.folder, file)
    return made.write("1ISL", name=name, more=more)


def apart(cluster: Cluster) -> str:
    """What a file needs whose deployment is to be up beside the cluster's own, from the same folder."""
    return "data: {directory: data2}\ncontrol: {directory: run2}\n"


def listed(cluster: Cluster) -> list[Document]:
    """Of `ps`, what is in the cluster's folder."""
    everything = cluster.islands.json("ps")["deployments"]
    return [entry for entry in everything if entry["file"].startswith(cluster.folder + "/")]


def entries(directory: str, text: str) -> list[str]:
    """Files of a registry that speak of it."""
    found = []
    for name in os.listdir(directory) if os.path.isdir(directory) else []:
        path = os.path.join(directory, name)
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
            if text in file.read():
                found.append(path)
    return found


def registry() -> str:
    user = os.geteuid()
    return "/run/islands" if user == 0 else (
        f"/run/user/{user}/islands" if os.path.isdir(f"/run/user/{user}") else f"/tmp/islands-{user}")


def refused(done: Result, *words: str, code: int = 1) -> None:
    assert done.code == code and done.out == "", done
    for word in words:
        assert word in done.err, done


# ---- ps

def test_ps_lists_what_is_up_and_shows_once_what_is_gone(cluster: Cluster) -> None:
    name = unique(cluster)
    up = cluster.write(name=name).up()
    entry, = listed(cluster)
    assert entry["since"].endswith("Z") and entry.pop("since")
    assert entry == {"name": name, "state": "up", "file": cluster.file, "islands": 2, "pid": up["supervisor_pid"],
                     "control_directory": os.path.join(cluster.folder, "run"), "user": entry["user"],
                     "uid": os.geteuid()}
    text = cluster.islands.run("ps")
    assert text.code == 0 and any(name in line and " up " in line for line in text.out.splitlines()), text
    assert stat.S_IMODE(os.stat(registry()).st_mode) == 0o700
    cluster.down()
    assert listed(cluster) == [] and entries(registry(), cluster.folder) == []
    os.kill(cluster.up()["supervisor_pid"], signal.SIGKILL)
    wait_until(lambda: cluster.alive() == {}, what="islands to die with their supervisor")
    gone, = listed(cluster)
    assert gone["state"] == "gone" and gone["pid"] is None
    assert listed(cluster) == []


def test_ps_says_who_does_not_answer_and_who_has_lost_its_control_directory(cluster: Cluster) -> None:
    status = cluster.write(name=unique(cluster)).up()
    os.kill(status["supervisor_pid"], signal.SIGSTOP)
    assert [entry["state"] for entry in listed(cluster)] == ["silent"]
    os.kill(status["supervisor_pid"], signal.SIGCONT)
    os.kill(status["islands"][0]["pid"], signal.SIGSTOP)
    wait_until(lambda: listed(cluster)[0]["state"] == "degraded", what="the hung island to be noticed")
    os.kill(status["islands"][0]["pid"], signal.SIGCONT)
    shutil.rmtree(os.path.join(cluster.folder, "run"))
    assert [entry["state"] for entry in listed(cluster)] == ["cut_off"]


def test_an_entry_that_was_removed_comes_back(cluster: Cluster) -> None:
    """/tmp is swept, and /run/user/N goes with its user's last session."""
    cluster.write(name=unique(cluster)).up()
    entry, = entries(registry(), cluster.folder)
    os.remove(entry)
    wait_until(lambda: listed(cluster), what="the entry")


# ---- cores

def test_who_has_the_same_cores_is_said_before_up(cluster: Cluster) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    cluster.write("1ISL", name=unique(cluster), more=f"cores: '{cpus[0]}'\n").up()
    other = another(cluster, "other", more=apart(cluster))
    words = f"the deployment '{unique(cluster)}' of {cluster.file} is up and has workers on CPUs {cpus[0]}, of cores"

    def notes(*command: str) -> list[str]:
        return [note for note in cluster.islands.json(*command)["notes"] if cluster.file in note]
    for command in ("check", "plan"):
        note, = notes(command, other.file)
        assert note.startswith(words), note
        assert notes(command, cluster.file) == []
    done = cluster.islands.run("up", other.file)
    assert done.code == 0 and f"note: {words}" in done.err, done
    assert cluster.islands.run("down", other.file).code == 0
    assert notes("check", another(cluster, "other", more=apart(cluster) + "placement: os\n").file) == []
    cluster.down()
    assert notes("check", another(cluster, "other", more=apart(cluster)).file) == []


# ---- down

def test_two_files_of_one_name_and_control_directory_are_two_deployments(cluster: Cluster) -> None:
    cluster.write().up()
    other = another(cluster, "test")
    for words in (["status", other.file], ["run", other.file, "micro"], ["top", other.file, "--once"],
                  ["up", other.file], ["txn", other.file, "list"], ["down", other.file]):
        refused(cluster.islands.run(*words), cluster.file, other.file, f"`islands down {cluster.file}`")
    assert len(cluster.alive()) == 3
    os.link(cluster.file, os.path.join(cluster.folder, "again.yaml"))
    os.remove(cluster.file)
    cluster.file = os.path.join(cluster.folder, "again.yaml")  # that it was moved makes no other of it
    assert len(cluster.status()["islands"]) == 2
    cluster.down()


def test_a_supervisor_that_does_not_answer_is_no_others_to_end(cluster: Cluster) -> None:
    supervisor = cluster.write(name="a").up()["supervisor_pid"]
    os.kill(supervisor, signal.SIGSTOP)
    other = another(cluster, "b")
    refused(cluster.islands.run("down", other.file, "--timeout", "1"), "'a'", "'b'", cluster.file, other.file)
    assert len(cluster.alive()) == 3
    os.kill(supervisor, signal.SIGCONT)
    cluster.down()


def test_who_has_another_name_now_is_told_the_old_one(cluster: Cluster) -> None:
    name = unique(cluster)
    cluster.write(name=name).up()
    cluster.write(name="edited")
    refused(cluster.islands.run("down", cluster.file), f"'{name}'", "'edited'", f"`islands down {name}`")
    assert cluster.islands.run("down", name).code == 0 and cluster.alive() == {}


@pytest.mark.parametrize("witness", ["registry", "data/LOCK"])
def test_down_without_the_control_directory(cluster: Cluster, witness: str) -> None:
    supervisor = cluster.write().up()["supervisor_pid"]
    shutil.rmtree(os.path.join(cluster.folder, "run"))
    if witness == "registry":
        shutil.rmtree(os.path.join(cluster.folder, "data"))
    with without_entry(cluster) if witness == "data/LOCK" else contextlib.nullcontext():
        dry = cluster.islands.run("down", cluster.file, "--dry-run")
        assert f"would stop supervisor {supervisor}" in dry.out and len(cluster.alive()) == 3, dry
        cluster.down()
    assert cluster.islands.run("down", cluster.file).out == "nothing is running\n"


@contextlib.contextmanager
def without_entry(cluster: Cluster) -> Iterator[None]:
    """The cluster's entry is gone, and does not come back: its place is taken."""
    entry, = entries(registry(), cluster.folder)
    os.remove(entry)
    os.mkdir(entry)
    try:
        yield
    finally:
        os.rmdir(entry)


def test_down_when_another_has_taken_the_place_of_the_control_directory(cluster: Cluster) -> None:
    first = cluster.write(name="first").up()["supervisor_pid"]
    shutil.rmtree(os.path.join(cluster.folder, "run"))
    second = another(cluster, "second", "data: {directory: data2}\n")
    second.up()
    done = cluster.islands.run("down", cluster.file)
    assert done.code == 0 and done.out == "first: every process is gone\n", done
    assert first not in cluster.alive() and [entry["name"] for entry in listed(cluster)] == ["second"]
    assert second.island(0)["state"] == "ready"
    second.down()


@pytest.mark.parametrize("how, spoilt", [
    ("file", None), ("file given as ./", None), ("name", None), ("control directory", None),
    ("file", "version: 1\nname: [broken\n"), ("file", "version: 1\nname: other\nfoo: 1\n")])
def test_down_without_a_readable_file(cluster: Cluster, how: str, spoilt: str | None) -> None:
    name = unique(cluster)
    cluster.write("1ISL", name=name).up()
    os.remove(cluster.file)
    if spoilt:
        with open(cluster.file, "w", encoding="utf-8") as file:
            file.write(spoilt)
    argument = {"file": cluster.file, "file given as ./": "./deployment.yaml", "name": name,
                "control directory": os.path.join(cluster.folder, "run")}[how]
    done = cluster.islands.run("down", argument, cwd=cluster.folder)
    assert done.code == 0 and done.out == f"{name}: every process is gone\n", done
    assert cluster.alive() == {}


def test_down_of_what_nobody_knows_is_a_usage_error(cluster: Cluster) -> None:
    refused(cluster.islands.run("down", "no-such-name"), "no-such-name", "`islands ps`", code=2)


def test_two_of_one_name_are_told_apart_by_file_or_control_directory(cluster: Cluster) -> None:
    name = unique(cluster)
    cluster.write("1ISL", name=name).up()
    other = another(cluster, name, apart(cluster))
    other.up()
    refused(cluster.islands.run("down", name), cluster.file, other.file, os.path.join(cluster.folder, "run2"))
    assert len(cluster.alive()) == 4
    assert cluster.islands.run("down", os.path.join(cluster.folder, "run2")).code == 0
    assert [entry["file"] for entry in listed(cluster)] == [cluster.file]
    assert cluster.islands.run("down", name).code == 0
    assert cluster.alive() == {}


# ---- users

def as_nobody(islands: Islands, *arguments: object, **more: Any) -> Result:
    done = subprocess.run([*AS_NOBODY, islands, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          **more)
    return Result(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def nobodys(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster's folder is another user's, whose registry goes afterwards."""
    with open(cluster.file, encoding="utf-8") as file:
        os.fchown(file.fileno(), NOBODY, NOBODY)
    os.chown(cluster.folder, NOBODY, NOBODY)
    os.chmod(cluster.folder, 0o755)
    try:
        yield cluster
    finally:
        for pid in processes(cluster.folder):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not processes(cluster.folder), what="nobody's processes to end")
        shutil.rmtree(f"/tmp/islands-{NOBODY}", ignore_errors=True)


@as_root
@pytest.mark.parametrize("directory", ["there", "removed"])
def test_another_users_down_is_not_permitted(cluster: Cluster, directory: str) -> None:
    cluster.write(name=unique(cluster)).up()
    os.chmod(cluster.folder, 0o755)
    if directory == "removed":
        shutil.rmtree(os.path.join(cluster.folder, "run"))
    refused(as_nobody(cluster.islands, "down", cluster.file), "not permitted: owned by root")
    refused(as_nobody(cluster.islands, "down", unique(cluster)), "`islands ps`", code=2)  # whose names are his business
    assert as_nobody(cluster.islands, "ps").out == "no deployments of nobody are up\n"
    assert len(cluster.alive()) == 3
    cluster.down()


@as_root
def test_root_sees_everybodys_and_ends_its_own_only(cluster: Cluster) -> None:
    name = unique(cluster)
    with nobodys(cluster.write("1ISL", name=name)):
        done = as_nobody(cluster.islands, "up", cluster.file)
        assert done.code == 0, done
        for words in (["down", name], ["down", cluster.file]):
            refused(cluster.islands.run(*words), "not permitted: owned by nobody")
        entry, = listed(cluster)
        assert (entry["name"], entry["user"], entry["uid"], entry["state"]) == (name, "nobody", NOBODY, "alive")
        assert os.stat(f"/tmp/islands-{NOBODY}").st_uid == NOBODY
        done = as_nobody(cluster.islands, "down", name)
        assert done.code == 0 and done.out == f"{name}: every process is gone\n", done


@as_root
def test_a_registry_that_somebody_planted_is_refused_and_keeps_nobody_from_working(cluster: Cluster) -> None:
    with nobodys(cluster.write("1ISL")):
        os.mkdir(f"/tmp/islands-{NOBODY}", 0o777)  # root's, for anybody
        refused(as_nobody(cluster.islands, "ps"), f"/tmp/islands-{NOBODY}", "not permitted: owned by root")
        done = as_nobody(cluster.islands, "up", cluster.file)
        assert done.code == 0, done
        assert listed(cluster) == [] and os.listdir(f"/tmp/islands-{NOBODY}") == []
        assert as_nobody(cluster.islands, "down", cluster.file).code == 0


@as_root
def test_what_others_write_into_their_registry_is_only_shown(cluster: Cluster) -> None:
    """And not even that if it makes no sense, or would not stay on its line of a terminal."""
    folder = f"/tmp/islands-{NOBODY}"
    victim = subprocess.Popen(["sleep", "60"])
    os.mkdir(folder, 0o700)
    try:
        for name, text in {"nonsense": "1\n{}\n", "endless": "1\n" + "x" * 1_000_000, "void": "",
                           "claim": f'{victim.pid}\n{{"name": "planted", "file": "/x\\u001b[2J", "control_directory": '
                                    f'"/y", "data_directory": "/z", "islands": 1, "since": 1}}\n'}.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
            os.chown(file.name, NOBODY, NOBODY)
        os.mkfifo(os.path.join(folder, "pipe"))
        os.symlink("/etc/passwd", os.path.join(folder, "link"))
        os.chown(folder, NOBODY, NOBODY)
        with open(os.path.join(folder, "claim"), encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            shown = cluster.islands.run("ps")
            assert shown.code == 0 and "planted" in shown.out and "\x1b" not in shown.out, shown
            refused(cluster.islands.run("down", "planted"), "not permitted: owned by nobody")
        assert victim.poll() is None and len(os.listdir(folder)) == 6
    finally:
        victim.kill()
        victim.wait()
        shutil.rmtree(folder)
