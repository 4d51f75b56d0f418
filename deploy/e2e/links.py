"""Cutting the connections of a real island from outside, as a broken network would: nothing in the product helps."""

import ctypes
import errno
import os
import socket

import pytest

PIDFD_GETFD = 438  # of every architecture that has it (Linux 5.6)


def _descriptor_of(pid: int, number: int) -> int:
    """A duplicate of a descriptor of another process."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        duplicate = libc.syscall(PIDFD_GETFD, process, number, 0)
    finally:
        os.close(process)
    if duplicate < 0:
        if ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
            pytest.skip("the kernel does not let this user reach into other processes")
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return duplicate


def _accepted(path_ends: str) -> set[str]:
    """Inodes of connected sockets that were accepted on a socket whose path ends so."""
    inodes = set()
    with open("/proc/net/unix", encoding="utf-8") as table:
        for line in table:
            words = line.split()
            if len(words) == 8 and words[7].endswith(path_ends) and words[5] == "03":
                inodes.add(words[6])
    return inodes


def cut_links_to(pid: int, island: int, worker: int = 0) -> int:
    """Ends all connections that others have dialled to a worker of this process's island. Returns how many. Works on
    one that is stopped, too: who has dialled is told at once, and the island itself when it goes on."""
    inodes = _accepted(f"/island-{island}.w{worker}.sock")
    cut = 0
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
        except OSError:
            continue
        if target.startswith("socket:[") and target[8:-1] in inodes:
            with socket.socket(fileno=_descriptor_of(pid, int(number))) as connection:
                connection.shutdown(socket.SHUT_RDWR)
            cut += 1
    return cut
