"""`islands logs`: what all processes of a deployment say, in order of time, up or not."""

import json
import os
import re
import signal
import subprocess
import threading

from cluster import Cluster, cluster, line_of  # noqa: F401
from conftest import Document
from terminal import Terminal

LINE = re.compile(r"(supervisor|logger|gateway|island \d+) +\| (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (\w+) (.*)")


def objects(cluster: Cluster, *options: object) -> list[Document]:
    done = cluster.islands.run("--format", "json", "logs", cluster.file, *options)
    assert done.code == 0, done
    return [json.loads(line) for line in done.out.splitlines()]


def log(cluster: Cluster, name: str) -> str:
    return os.path.join(cluster.folder, "run", name)


def append(path: str, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def read_to(process: subprocess.Popen[str], *words: str) -> str:
    """The next line with these words."""
    while True:
        line = line_of(process.stdout)
        assert line, process.communicate()
        if all(word in line for word in words):
            return line


def test_all_logs_in_order_of_time_while_up_and_afterwards(cluster: Cluster) -> None:
    cluster.write(durability="lazy", more="gateway: {enabled: true}\n").up()
    lines = objects(cluster)
    assert {"supervisor", "logger", "gateway", "island 0", "island 1"} >= {line["source"] for line in lines} >= {
        "supervisor", "island 0", "island 1"}
    times = [line["time"] for line in lines if line["time"]]
    assert len(times) > 5 and times == sorted(times)
    assert {line["level"] for line in lines} <= {None, "info", "warning"}
    shown = cluster.islands.run("logs", os.path.join(cluster.folder, "run"), "supervisor")  # by its directory
    assert shown.code == 0 and shown.err == "", shown
    found = [LINE.fullmatch(line) for line in shown.out.splitlines()]
    assert found and all(match and match[1] == "supervisor" for match in found), shown
    cluster.down()
    append(log(cluster, "island-1.log"), "terminate called\x1b[2J\n")
    after = cluster.islands.run("logs", cluster.file, "--lines", "2")
    assert after.code == 0 and "'test' is not up" in after.err, after
    assert len(after.out.splitlines()) == 2 and "every island is gone" in after.out.splitlines()[-1], after
    assert cluster.islands.run("logs", cluster.file, "1", "--lines", "1", "-f").out == (
        "island 1   | terminate called?[2J\n")
    assert objects(cluster, "1", "--lines", 1) == [
        {"source": "island 1", "time": None, "level": None, "text": "terminate called\x1b[2J"}]


def test_it_follows_over_restarts_rotation_and_truncation_until_the_end(cluster: Cluster) -> None:
    cluster.write().up()
    follower = cluster.start("logs", cluster.file, "--follow")
    too_late = threading.Timer(30, follower.kill)
    too_late.start()
    try:
        read_to(follower, "supervisor", "island 1: ready")
        os.kill(cluster.island_pids()[1], signal.SIGKILL)
        read_to(follower, "supervisor", "error island 1", "lost")
        read_to(follower, "supervisor", "island 1: ready")
        os.rename(log(cluster, "island-0.log"), log(cluster, "island-0.log.1"))
        append(log(cluster, "island-0.log.1"), "the last of the old\n")
        append(log(cluster, "island-0.log"), "a new one\n")
        assert read_to(follower, "the last of the old") and read_to(follower, "island 0", "a new one")
        os.truncate(log(cluster, "island-1.log"), 0)
        append(log(cluster, "island-1.log"), "after\n")
        assert read_to(follower, "island 1", "after")
        assert cluster.islands.run("down", cluster.file).code == 0
        read_to(follower, "supervisor", "every island is gone")
        _, err = follower.communicate(timeout=10)
        assert follower.returncode == 0 and "'test' has ended" in err, err
    finally:
        too_late.cancel()
        follower.kill()
        follower.communicate()


def test_ctrl_c_ends_following(cluster: Cluster) -> None:
    cluster.write("1ISL").up()
    follower = cluster.start("logs", cluster.file, "supervisor", "-f", "--lines", "1")
    assert "supervisor" in line_of(follower.stdout)
    follower.send_signal(signal.SIGINT)
    out, err = follower.communicate(timeout=10)
    assert (follower.returncode, out, err) == (130, "", "")


def test_colours_are_for_terminals(cluster: Cluster) -> None:
    cluster.write("1ISL").up()
    assert "\x1b" not in cluster.islands.run("logs", cluster.file).out
    for no_color, coloured in ("", True), ("1", False):
        terminal = Terminal([cluster.islands, "logs", cluster.file, "supervisor"], columns=200, NO_COLOR=no_color)
        try:
            assert terminal.ended() == 0
            assert any("island 0: ready" in line for line in terminal.screen.texts())
            assert any(cell[1] for row in terminal.screen.cells for cell in row) == coloured
        finally:
            terminal.close()


def test_what_cannot_be_shown_is_said(cluster: Cluster) -> None:
    never = cluster.write("1ISL").islands.run("logs", cluster.file)
    assert never.code == 1 and "has not been up yet" in never.err, never
    cluster.up()
    absent = cluster.islands.run("logs", cluster.file, "7")
    assert absent.code == 1 and "'7'" in absent.err and "supervisor, island 0" in absent.err, absent
    wrong = cluster.islands.run("logs", cluster.file, "sevn")
    assert wrong.code == 2 and "expected an island's number, supervisor, logger or gateway" in wrong.err, wrong
