"""`islands load`: a workload's rows, apart from a run of it."""

import os
import pty
import subprocess

from cluster import Cluster, cluster  # noqa: F401
from conftest import Document
from test_durable import edit


def load(cluster: Cluster, *options: object) -> Document:
    document: Document = cluster.islands.json("load", cluster.file, "micro", *options)
    return document


def test_rows_are_loaded_once_and_a_run_finds_them(cluster: Cluster) -> None:
    cluster.write(durability="lazy").up()
    first = load(cluster)
    assert first["loaded"] and first["rows"] == 240_000 and first["seconds"] > 0
    generation = cluster.status()["log"]["data_generation"]
    assert not load(cluster)["loaded"]
    assert cluster.run("--op", "add", "--rows", 2)["sum_check"] == "ok"
    assert cluster.status()["log"]["data_generation"] == generation
    assert load(cluster, "--reload")["loaded"]
    assert cluster.status()["log"]["data_generation"] == generation + 1
    text = cluster.islands.run("load", cluster.file, "micro")
    assert text.code == 0 and "the 240,000 rows of micro are there already" in text.out, text
    shown = cluster.islands.run("load", cluster.file, "micro", "--help")
    assert shown.code == 0 and "--rows-total" in shown.out and "--duration" not in shown.out


def test_what_is_wrong_is_said_before_anything_happens(cluster: Cluster) -> None:
    cluster.write().up()
    done = cluster.islands.run("load", cluster.file, "micra")
    assert done.code == 2 and "micra" in done.err, done
    done = cluster.islands.run("load", cluster.file, "micro", "--mpl", 4)
    assert done.code == 2 and "--mpl" in done.err, done
    cluster.run(duration=0.1)
    cluster.down()
    done = cluster.islands.run("load", cluster.file, "micro")
    assert done.code == 1 and "not up" in done.err, done


def test_a_long_load_says_how_far_it_is(cluster: Cluster) -> None:
    rows = 2_000_000
    edit(cluster.write(durability="lazy"), "512MiB", "2GiB")
    cluster.up()
    inner, outer = pty.openpty()
    words = [cluster.islands, "load", cluster.file, "micro", "--rows-total", str(rows)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=outer, text=True) as process:
        os.close(outer)
        shown = b""
        while process.poll() is None or b"%" not in shown:
            try:
                shown += os.read(inner, 4096)
            except OSError:  # the other side is gone
                break
        out = process.communicate(timeout=60)[0]
    os.close(inner)
    assert process.returncode == 0 and f"{rows:,} rows of micro" in out, out
    text = shown.decode()
    assert "loading: " in text and " rows" in text and "%" in text, text
