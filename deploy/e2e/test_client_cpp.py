"""The C++ client library: its example on a real deployment, while islands and the gateway are killed, and over TCP."""

import os
import signal
import socket
import subprocess

import certificates
import pytest

from cluster import Cluster, cluster, line_of, wait_until  # noqa: F401
from conftest import BINARIES

EXAMPLE = os.path.join(BINARIES, "transfer_client")
TABLES = """data:
  tables:
    - {name: accounts, key: [uint64], range: [0, 1000]}
"""


@pytest.fixture(autouse=True)
def is_built() -> None:
    if not os.access(EXAMPLE, os.X_OK):
        pytest.skip(f"{EXAMPLE} is not built")


def started(cluster: Cluster, gateway: str = "{enabled: true}") -> list[str]:
    """Its addresses."""
    status = cluster.write(durability="lazy", more=f"{TABLES}gateway: {gateway}\n").up()
    assert status["gateway"]["state"] == "ready", status
    return [str(address) for address in status["gateway"]["addresses"]]


def kill_and_await(cluster: Cluster, pid: int) -> None:
    """Until it is back, and all are ready."""
    def is_back() -> bool:
        status = cluster.status()
        return all(each["state"] == "ready" and each["pid"] != pid for each in [*status["islands"], status["gateway"]])
    os.kill(pid, signal.SIGKILL)
    wait_until(is_back, what="islands and gateway")


def test_the_example_loses_no_money_whoever_is_killed(cluster: Cluster) -> None:
    address = started(cluster)[0]
    with subprocess.Popen([EXAMPLE, address, "4"], stdout=subprocess.PIPE, text=True) as process:
        assert line_of(process.stdout) == "100 accounts, 100000 in all\n"
        kill_and_await(cluster, cluster.island(1)["pid"])
        kill_and_await(cluster, cluster.status()["gateway"]["pid"])
        os.kill(cluster.island(0)["pid"], signal.SIGKILL)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "total 100000, was 100000" in out, out
    assert int(out.split()[0]) > 0, out  # on a busy machine they are few


def test_over_tcp_it_shows_its_certificate(cluster: Cluster, folder: str) -> None:
    certificates.make(folder, ("authority", "stranger"), {"server": "authority", "friend": "authority",
                                                          "enemy": "stranger"})
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = started(cluster, f"{{listen: 'localhost:{port}', certificate: server.pem, key: server.key, "
                               "clients: authority.pem}")[1]

    def transfer(*names: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([EXAMPLE, address, "0.2", *names], capture_output=True, text=True, timeout=60,
                              cwd=folder)

    done = transfer("authority.pem", "friend.pem", "friend.key")
    assert done.returncode == 0 and "total 100000, was 100000" in done.stdout, done
    refused = transfer("authority.pem", "enemy.pem", "enemy.key")
    assert refused.returncode == 1 and "no connection to a gateway, and nothing was sent" in refused.stderr, refused
    assert "gateways speak to nobody over TCP who shows no certificate" in transfer().stderr
