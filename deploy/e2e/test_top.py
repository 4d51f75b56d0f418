"""`islands top`: tables, JSON, and the live screen on a terminal of 24 lines and 80 columns."""

import contextlib
import os
import pathlib
import re
import signal
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from cluster import Cluster, cluster, loaded, wait_until  # noqa: F401
from conftest import ROOT
from terminal import Terminal
from test_gateway import TABLES
from test_metrics import free_ports
from test_observed import clients

HEADER = 5   # line of the table's header; the islands' lines follow


@contextlib.contextmanager
def watching(cluster: Cluster, *options: object, **more: Any) -> Iterator[Terminal]:
    terminal = Terminal([cluster.islands, "top", cluster.file, *options], **more)
    try:
        yield terminal
    finally:
        terminal.close()


def rows(lines: Sequence[str]) -> list[list[str]]:
    """Words of each island's line; histories are words, too."""
    return [line.split() for line in lines[HEADER + 1:] if re.match(r" *\d+ (?!more)", line)]


def islands_shown(lines: Sequence[str]) -> list[int]:
    return [int(row[0]) for row in rows(lines)]


def has_rates(lines: Sequence[str]) -> bool:
    return len(rows(lines)) > 0 and all(row[1] == "ready" and row[2] != "-" for row in rows(lines))


def number(text: str) -> float:
    """What a short number stands for."""
    return float(text.rstrip("kMG")) * {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 1)


# ---- one table

def test_once_fits_a_terminal(cluster: Cluster) -> None:
    cluster.write("3ISL").up()
    done = cluster.islands.run("top", cluster.file, "--once", "--interval", "0.2")
    lines = done.out.splitlines()
    assert done.code == 0 and lines[:2] == ["test 3ISL", "3 islands: 3 ready"]
    assert len(lines) == 6 + 3 and max(map(len, lines)) < 80
    made = cluster.islands.json("top", cluster.file, "--interval", "0.2", "--sort", "island")
    assert [row["state"] for row in made["islands"]] == ["ready"] * 3
    assert made["layout"] == "3ISL" and made["all"]["imbalance"] == 0 and made["all"]["committed_per_s"] == 0


def test_once_under_load(cluster: Cluster) -> None:
    cluster.write().up()
    with loaded(cluster):
        made = cluster.islands.json("top", cluster.file, "--interval", "0.5", "--sort", "transactions")
        text = cluster.islands.run("top", cluster.file, "--interval", "0.5", env={**os.environ, "LC_ALL": "C"}).out
    assert text.isascii()
    each = [row["committed_per_s"] for row in made["islands"]]
    assert min(each) > 0 and each == sorted(each, reverse=True)
    assert made["all"]["committed_per_s"] == pytest.approx(sum(each), rel=0.01)
    assert made["all"]["imbalance"] == pytest.approx((max(each) - min(each)) / (sum(each) / 2), abs=0.01)
    assert 0 < made["all"]["distributed_share"] < 1
    for row in made["islands"]:
        assert row["messages_per_s"] > 0 and row["messages_received_per_s"] > 0 and row["p95_us"] > 0
        assert row["busy_fraction"] > 0 and 0 < row["waiting_fraction"] <= 1 - row["busy_fraction"] + 0.01
        assert 0 < row["in_flight"] <= 8 and row["in_doubt"] >= 0 and row["restarts"] == 0


# ---- the gateway

def with_gateway(cluster: Cluster, base_port: int) -> str:
    """Address of a gateway before two islands."""
    cluster.write(more=f"{TABLES}gateway: {{enabled: true}}\n")
    with open(cluster.file, encoding="utf-8") as file:
        text = file.read().replace("base_port: 0", f"base_port: {base_port}")
    with open(cluster.file, "w", encoding="utf-8") as file:
        file.write(text)
    return str(cluster.up()["gateway"]["addresses"][0])


def test_the_gateway_has_its_lines(cluster: Cluster) -> None:
    address = with_gateway(cluster, free_ports(3))
    with clients(address):
        made = cluster.islands.json("top", cluster.file, "--interval", "1")["gateway"]
        with watching(cluster, "--interval", "0.3") as terminal:
            lines = terminal.until(lambda lines: re.search(r"calls/s \d", lines[4]), what="calls")
            assert re.fullmatch(r"gateway ready: calls/s \S+, p99 \S+s, islands had \d+%, open \d+", lines[4].rstrip())
            assert re.fullmatch(r"  committed/s \S+, aborted/s \S+, unknown/s 0, rolled back/s 0",
                                lines[5].rstrip())
            terminal.until(lambda lines: "island" in lines[HEADER + 2], what="the table's header below")
            supervisor = cluster.status()["supervisor_pid"]
            victim = cluster.status()["gateway"]["pid"]
            os.kill(supervisor, signal.SIGSTOP)
            os.kill(victim, signal.SIGKILL)
            terminal.until(lambda lines: "its metrics do not answer" in lines[4], what="the loss")
            os.kill(supervisor, signal.SIGCONT)
            terminal.until(lambda lines: re.search(r"ready: calls/s \d.*; 1 restart", lines[4]), what="the restart")
            terminal.type("q")
            assert terminal.ended() == 0
    assert made["state"] == "ready" and made["answers"] and made["seconds"] == pytest.approx(1, abs=0.5)
    assert made["calls_per_s"] > 5 and made["committed_per_s"] > 5 and made["aborted_per_s"] > 1
    assert made["unknown_per_s"] == 0 and made["p99_us"] > 0 and 0 < made["islands_share"] < 1


def test_a_gateway_without_metrics_has_its_state(cluster: Cluster) -> None:
    with_gateway(cluster, 0)
    done = cluster.islands.run("top", cluster.file, "--once", "--interval", "0.2")
    assert done.out.splitlines()[4] == "gateway ready; its port for metrics is off (metrics.base_port)"
    made = cluster.islands.json("top", cluster.file, "--interval", "0.2")["gateway"]
    assert made["state"] == "ready" and not made["answers"]


def test_refusals(cluster: Cluster) -> None:
    cluster.write()
    for options in (["--sort", "size"], ["--interval", "0"], ["--interval", "soon"]):
        assert cluster.islands.run("top", cluster.file, *options).code == 2, options
    done = cluster.islands.run("top", cluster.file)
    assert done.code == 1 and "not up" in done.err


# ---- live

def test_live_screen_sorts_and_quits(cluster: Cluster) -> None:
    cluster.write().up()
    with loaded(cluster), watching(cluster, "--interval", "0.3") as terminal:
        lines = terminal.until(lambda lines: has_rates(lines) and re.search("[▁-█]{2}", lines[HEADER + 1]),
                               what="rates and histories")
        assert terminal.screen.own and terminal.screen.hidden_cursor
        assert re.fullmatch(r"test 2ISL  \d\d:\d\d:\d\d  every 0.3 s  by island +\? keys  q quits", lines[0])
        assert lines[1] == "2 islands: 2 ready" and "imbalance" in lines[3]
        assert terminal.screen.cells[HEADER][0][1] == {7}, "a header in reverse"
        assert islands_shown(lines) == [0, 1]
        assert all(number(row[2]) > 0 for row in rows(lines))
        terminal.type("i")
        terminal.until(lambda lines: islands_shown(lines) == [1, 0] and "▲" not in lines[HEADER])
        for key, mark in zip("tabwml", ("▼trans/s", "▼abort/s", "▼busy", "▼wait", "▼sent/s", "▼p95")):
            terminal.type(key)
            terminal.until(lambda lines: mark in lines[HEADER], what=mark)
        terminal.type("t")
        lines = terminal.until(lambda lines: "▼trans/s" in lines[HEADER])
        first, second = (number(row[2]) for row in rows(lines))
        assert first >= second
        terminal.type("t")
        lines = terminal.until(lambda lines: "▲trans/s" in lines[HEADER])
        first, second = (number(row[2]) for row in rows(lines))
        assert first <= second
        terminal.type("?")
        terminal.until(lambda lines: any("sort by latency" in line for line in lines))
        terminal.type("?p")
        held = terminal.until(lambda lines: "PAUSED" in lines[0])
        time.sleep(0.7)
        while terminal.read(0):
            pass
        assert terminal.screen.texts() == held
        terminal.type(" ")
        terminal.until(lambda lines: lines[2:] != held[2:], what="the screen to go on")
        assert terminal.screen.wrapped == 0
        terminal.type("q")
        assert terminal.ended() == 0
        assert terminal.restored()


def test_killed_island_is_shown_lost_then_ready(cluster: Cluster) -> None:
    """The supervisor restarts it at once; so it is held back until the screen has shown the loss."""
    status = cluster.write().up()
    with loaded(cluster), watching(cluster, "--interval", "0.2") as terminal:
        terminal.until(has_rates)
        supervisor, victim = status["supervisor_pid"], status["islands"][1]["pid"]
        os.kill(supervisor, signal.SIGSTOP)
        try:
            os.kill(victim, signal.SIGKILL)
            lines = terminal.until(lambda lines: lines[1] == "2 islands: 1 ready, 1 no reply (1)", what="the loss")
            assert rows(lines)[1][1:4] == ["no", "reply", "-"]
            row = terminal.screen.cells[HEADER + 2]
            assert row[6][1] == {1, 31}, "bold and red"
            terminal.until(lambda lines: lines[4].startswith("no answer from the supervisor for"))
            assert rows(terminal.screen.texts())[0][1] == "ready"
        finally:
            os.kill(supervisor, signal.SIGCONT)
        lines = terminal.until(lambda lines: lines[1] == "2 islands: 2 ready; 1 restart" and has_rates(lines), 20,
                               "the restart")
        assert lines[4] == "" and "x" in lines[HEADER + 2] and not re.search(r"-\d", lines[HEADER + 2])
        terminal.type("q")
        assert terminal.ended() == 0 and terminal.restored()


def test_given_up_island_stays_on_the_screen(cluster: Cluster) -> None:
    status = cluster.write().up("--restarts", "0")
    with watching(cluster, "--interval", "0.2", NO_COLOR="1") as terminal:
        terminal.until(has_rates)
        os.kill(status["islands"][0]["pid"], signal.SIGKILL)
        lines = terminal.until(lambda lines: lines[1] == "2 islands: 1 ready, 1 given_up (0)")
        assert rows(lines)[0][1:3] == ["given_up", "-"]
        assert terminal.screen.cells[HEADER + 1][6][1] == {1}, "no colour"
        terminal.type("i")
        terminal.until(lambda lines: islands_shown(lines) == [1, 0])
        terminal.type("s")
        terminal.until(lambda lines: islands_shown(lines) == [0, 1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_restore_the_terminal(cluster: Cluster, number: signal.Signals) -> None:
    cluster.write().up()
    with watching(cluster) as terminal:
        terminal.until(has_rates)
        if number == signal.SIGINT:
            terminal.type("\x03")
        else:
            os.kill(terminal.pid, number)
        assert terminal.ended() == 130
        assert terminal.restored()


def test_terminal_that_takes_nothing_holds_nobody_up(cluster: Cluster) -> None:
    cluster.write().up()
    with watching(cluster, "--interval", "0.2") as terminal:
        terminal.until(has_rates)
        termios.tcflow(terminal.other, termios.TCOOFF)  # Ctrl-S
        time.sleep(0.6)
        termios.tcflow(terminal.other, termios.TCOON)
        clock = terminal.screen.texts()[0].split()[2]
        terminal.until(lambda lines: lines[0].split()[2:] and lines[0].split()[2] > clock and has_rates(lines),
                       what="the screen to go on")
        termios.tcflow(terminal.other, termios.TCOOFF)
        time.sleep(0.6)
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.ended(5) == 130
        assert termios.tcgetattr(terminal.other) == terminal.before


def test_lost_cluster_is_waited_for(cluster: Cluster) -> None:
    cluster.write().up()
    with watching(cluster, "--interval", "0.2") as terminal:
        terminal.until(has_rates)
        assert cluster.islands.run("down", cluster.file).code == 0
        lines = terminal.until(lambda lines: lines[4].startswith("no answer from the supervisor"))
        assert lines[1] == "2 islands: 0 ready, 2 no reply (0, 1)"
        cluster.up()
        terminal.until(lambda lines: lines[4] == "" and has_rates(lines), what="the new cluster")
        assert cluster.islands.run("down", cluster.file).code == 0
        terminal.until(lambda lines: lines[4].startswith("no answer from the supervisor"))
        terminal.type("q")
        assert terminal.ended() == 1
        assert terminal.restored()
        said = " ".join(terminal.screen.texts())
        assert "islands: the supervisor does not answer any more: not up" in said


def test_many_islands_scroll_and_terminals_change(cluster: Cluster) -> None:
    cluster.write("24ISL").up()
    with watching(cluster, "--interval", "0.2", LC_ALL="C") as terminal:
        lines = terminal.until(has_rates)
        assert islands_shown(lines) == list(range(17))
        assert lines[23] == "  and 7 more islands; j and k scroll"
        assert "".join(lines).isascii()
        terminal.type("j\x1b[B")
        terminal.until(lambda lines: islands_shown(lines) == list(range(2, 19)))
        terminal.type("k")
        terminal.until(lambda lines: islands_shown(lines) == list(range(1, 18)))
        terminal.resize(40, 132)
        lines = terminal.until(lambda lines: islands_shown(lines) == list(range(24)))
        assert "recv/s" in lines[HEADER]
        terminal.resize(8, 40)
        lines = terminal.until(lambda lines: len(islands_shown(lines)) == 1)
        assert terminal.screen.wrapped == 0
        # A quiet cluster costs few bytes: what did not change is not sent again.
        terminal.resize(24, 80)
        terminal.until(lambda lines: len(islands_shown(lines)) == 17 and lines[HEADER + 1].count("_" * 10) == 2)
        before = terminal.screen.texts()[0]
        terminal.bytes_shown = 0
        terminal.until(lambda lines: lines[0] != before, what="the next second")
        assert terminal.bytes_shown < 4000, "five whole screens are more than twice that"
        terminal.type("q")
        assert terminal.ended() == 0


def test_dumb_terminal_gets_a_table(cluster: Cluster) -> None:
    cluster.write().up()
    with watching(cluster, "--interval", "0.1", TERM="dumb") as terminal:
        assert terminal.ended() == 0
        assert terminal.screen.texts()[1] == "2 islands: 2 ready"
        assert not terminal.screen.own


# ---- the picture

def test_picture_can_be_drawn(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """dashboards/top_picture.py; ISLANDS_PICTURES names a folder where it shall stay."""
    folder = os.environ.get("ISLANDS_PICTURES") or str(tmp_path)
    seconds = 4 if "ISLANDS_PICTURES" in os.environ else 0.3
    cluster.write("4ISL", name="quad").up()
    with watching(cluster, "--sort", "busy", lines=10) as terminal:
        for victim in (2, None):
            with loaded(cluster):
                deadline = time.monotonic() + seconds
                while time.monotonic() < deadline:
                    terminal.read(0.1)
                lines = terminal.until(has_rates)
                if victim is not None:
                    os.kill(cluster.island(victim)["pid"], signal.SIGKILL)
                    terminal.until(lambda lines: "1 restart" in lines[1] and "4 ready" in lines[1])
        cells = terminal.screen.cells
    sys.path.insert(0, os.path.join(ROOT, "dashboards"))
    from top_picture import draw
    path = os.path.join(folder, "top.svg")
    draw(cells, path)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert "imbalance" in text and text.count("ready") == 5 and len(text) < 40_000, lines
