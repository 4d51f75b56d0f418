"""What `islands client` and `islands history` share: the Python client, and where a deployment's gateway is."""

import json
import os
import subprocess
import sys

BINARY = os.environ.get("ISLANDS_BIN") or "islands"
HERE = os.path.dirname(os.path.realpath(__file__))
# The client lies beside this file; its stubs are built, and lie beside the programs.
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "python"),
                os.path.join(os.path.dirname(BINARY), "..", "lib", "islands", "python")]

FAILED, USAGE, INTERRUPTED = 1, 2, 130  # exit codes, as of every command


class Stop(Exception):
    """Ends the program, with these words."""


def address_of(deployment: str) -> str:
    """The gateway's, as `islands status` says it."""
    done = subprocess.run([BINARY, "status", deployment, "--format", "json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise Stop(done.stderr.strip())
    gateway = json.loads(done.stdout).get("gateway")
    if gateway is None:
        raise Stop(f"{deployment}: the deployment has no gateway; add `gateway: {{enabled: true}}` to the file, then "
                   "`islands down` and `islands up`")
    return str(gateway["addresses"][0])
