"""Binding as the kernel sees it, and what happens where a container forbids it."""

import ctypes
import os
import platform
import struct

import pytest

from cluster import Cluster, cluster  # noqa: F401

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
FORBIDDEN = {"sched_setaffinity": 203, "mbind": 237, "set_mempolicy": 238}  # x86_64
LOAD_NUMBER, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, EPERM = 0x7FFF0000, 0x00050001


def forbid_binding() -> None:
    """In the child: the kernel refuses every call that binds threads or memory, as containers do."""
    numbers = list(FORBIDDEN.values())
    program = [struct.pack("HBBI", LOAD_NUMBER, 0, 0, 0)]
    for index, number in enumerate(numbers):
        program.append(struct.pack("HBBI", JUMP_EQUAL, len(numbers) - index, 0, number))
    program += [struct.pack("HBBI", RETURN, 0, 0, ALLOW), struct.pack("HBBI", RETURN, 0, 0, EPERM)]
    code = ctypes.create_string_buffer(b"".join(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(header), 0, 0) == 0


def allowed_cpus(pid: int, tid: int | str) -> str:
    with open(f"/proc/{pid}/task/{tid}/status", encoding="utf-8") as file:
        return next(line.split()[1] for line in file if line.startswith("Cpus_allowed_list"))


def threads_allowed(pid: int) -> set[str]:
    return {allowed_cpus(pid, tid) for tid in os.listdir(f"/proc/{pid}/task")}


def test_every_worker_is_where_the_plan_says(cluster: Cluster) -> None:
    cluster.write("2ISL").up()
    planned = cluster.islands.json("plan", cluster.file)["islands"]
    for island, plan in zip(cluster.status()["islands"], planned):
        assert island["state"] == "ready"
        if len(planned) <= (os.cpu_count() or 1):  # otherwise they share cores, by plan
            assert plan["cpus"] in threads_allowed(island["pid"])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is no other CPU to move a worker to")
def test_a_worker_that_was_moved_is_reported(cluster: Cluster) -> None:
    cluster.write("2ISL").up()
    first, second = cluster.status()["islands"]
    assert "warning" not in first and "warning" not in second
    worker = next(int(tid) for tid in os.listdir(f"/proc/{second['pid']}/task")
                  if allowed_cpus(second["pid"], tid) == second["cpus"])
    os.sched_setaffinity(worker, {int(first["cpus"])})
    moved = cluster.island(1)
    assert f"worker 0 may run on CPUs {first['cpus']}, planned is {second['cpus']}" in moved["warning"]
    assert "warning" not in cluster.island(0)
    text = cluster.islands.run("status", cluster.file).out
    assert "warning: not everything could be bound on island 1: worker 0" in text


@pytest.mark.parametrize("policy, expected", [("preferred", "prefer"), ("bind", "bind"), ("default", "default")])
def test_memory_policy_is_read_back(cluster: Cluster, policy: str, expected: str) -> None:
    cluster.write("1ISL")
    with open(cluster.file, encoding="utf-8") as file:
        text = file.read().replace("buffer_pool: 512MiB", f"buffer_pool: 512MiB, memory_policy: {policy}")
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(text)
    cluster.up()
    island = cluster.island(0)
    assert island["memory_policy"].startswith(expected), island
    assert cluster.run("--op", "update")["sum_check"] == "ok"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of the forbidden system calls are x86-64's")
def test_where_binding_is_forbidden_it_runs_unbound_with_one_warning(cluster: Cluster) -> None:
    cluster.write("3ISL")
    done = cluster.islands.run("up", cluster.file, preexec_fn=forbid_binding)
    assert done.code == 0, done
    assert (done.out + done.err).count("warning:") == 1, done
    assert "islands 0-2" in done.out + done.err
    everywhere = allowed_cpus(os.getpid(), os.getpid())
    for island in cluster.status()["islands"]:
        assert threads_allowed(island["pid"]) == {everywhere}
    result = cluster.run("--op", "update", "--multisite", 50)
    assert result["sum_check"] == "ok"
