"""Nothing that somebody changes in the control directory has an effect."""

import os
import shutil

import pytest

from cluster import Cluster, cluster  # noqa: F401


def path(cluster, name=""):
    return os.path.join(cluster.folder, "run", name)


# ---- the islands' configuration

@pytest.fixture
def swapped(cluster):
    """The same command, whose islandd finds the configurations in the control directory changed before it begins, and its
    own written to."""
    folder = os.path.join(cluster.folder, "bin")
    os.mkdir(folder)
    shutil.copy(cluster.islands, folder)
    real = os.path.join(os.path.dirname(cluster.islands), "islandd")
    evil = 's|"clusterId"|"loads": [{"workload": "micro", "object": "/evil.so"}], "clusterId"|'
    with open(os.path.join(folder, "islandd"), "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\nsed -i '{evil}' {path(cluster)}island-*.json\n"
                   f"(echo {{}} >&3) 2>/dev/null && touch {path(cluster)}written\nexec {real} \"$@\"\n")
    os.chmod(file.name, 0o755)
    return Cluster(type(cluster.islands)(os.path.join(folder, "islands")), cluster.folder).write()


def test_a_configuration_changed_on_disk_has_no_effect(swapped):
    done = swapped.islands.run("up", swapped.file)
    assert done.code == 0, done
    with open(path(swapped, "island-0.json"), encoding="utf-8") as file:
        assert "/evil.so" in file.read()
    assert not os.path.exists(path(swapped, "written")), "the memory file was not sealed"
    assert [island["state"] for island in swapped.status()["islands"]] == ["ready", "ready"]
