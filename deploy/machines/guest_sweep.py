#!/usr/bin/env python3
"""Runs a sweep file in one of the machines: everything but the clusters happens here, and these in the guest.

    deploy/machines/guest_sweep.py quad deploy/machines/quad.yaml --results DIR

For what does not depend on time: emulation makes a CPU slow, and its cores share this machine's. What follows the name
of the machine goes to `islands sweep`, whose `islands` is one that asks us, and we the guest's.
"""

import base64
import io
import json
import os
import socketserver
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Sequence
from typing import Any

import guest
import shelf

SWEEP = os.path.join(guest.ROOT, "experiments", "sweep.py")
PATIENCE_S = "900"  # for a command of `islands`
# Sends its words, and the files among them, and does as it is told.
ISLANDS = """#!/usr/bin/env python3
import json, os, socket, sys
files = {word: open(word).read() for word in sys.argv[1:] if os.path.isfile(word)}
with socket.socket(socket.AF_UNIX) as channel:
    channel.connect(os.path.join(os.path.dirname(os.path.realpath(__file__)), "guest"))
    channel.sendall(json.dumps({"words": sys.argv[1:], "files": files, "folder": os.getcwd()}).encode() + b"\\n")
    answer = json.loads(channel.makefile().readline())
sys.stdout.write(answer["out"])
sys.stderr.write(answer["err"])
sys.exit(answer["code"])
"""


def quoted(words: Sequence[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)


class Guests:
    """Does one command after the other in the guest, for whoever asks."""

    def __init__(self, machine: guest.Guest) -> None:
        self.machine, self.lock = machine, threading.Lock()

    def do(self, words: list[str], files: dict[str, str], folder: str) -> dict[str, Any]:
        with self.lock:
            if words[0] == "up":
                words = [*words, "--timeout", "600"]
            for path, text in files.items():
                self.machine.write(os.path.abspath(os.path.join(folder, path)), text)
            done = self.machine.run(f"mkdir -p '{folder}' && cd '{folder}' && islands {quoted(words)}", 1200)
            if words[0] == "run" and done.code == 0:
                self.fetch(json.loads(done.out)["run_directory"], folder)
            return {"code": done.code, "out": done.out, "err": done.err}

    def fetch(self, directory: str, folder: str) -> None:
        """A run directory, to the same place here."""
        path = os.path.join(folder, directory)
        parent, name = os.path.split(path)
        packed = self.machine.check(f"tar -C '{parent}' -cf - '{name}' | base64; rm -rf '{path}'")
        os.makedirs(parent, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed))) as archive:
            archive.extractall(parent)


def serve(guests: Guests, path: str) -> socketserver.BaseServer:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked = json.loads(self.rfile.readline())
            try:
                answer = guests.do(asked["words"], asked["files"], asked["folder"])
            except guest.GuestFailed as failed:
                answer = {"code": 1, "out": "", "err": f"{failed}\n"}
            self.wfile.write(json.dumps(answer).encode() + b"\n")

    server = socketserver.ThreadingUnixStreamServer(path, Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or arguments[0] not in shelf.MACHINES:
        print(__doc__, file=sys.stderr)
        return 2
    if reason := guest.why_not():
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="islands-guest-") as folder:
        binaries = os.path.join(folder, "bin")
        os.makedirs(binaries)
        os.symlink(os.path.join(guest.BINARIES, "..", "lib"), os.path.join(folder, "lib"))
        for name in ("islandd", "islands-logger"):
            os.symlink(os.path.join(guest.BINARIES, name), os.path.join(binaries, name))
        with open(os.path.join(binaries, "islands"), "w", encoding="utf-8") as out:
            out.write(ISLANDS)
        os.chmod(os.path.join(binaries, "islands"), 0o755)
        with guest.Guest(shelf.MACHINES[arguments[0]]) as machine:
            server = serve(Guests(machine), os.path.join(binaries, "guest"))
            try:
                return subprocess.call([sys.executable, SWEEP, *arguments[1:]],
                                       env=dict(os.environ, ISLANDS_BIN=os.path.join(binaries, "islands"),
                                                ISLANDS_PATIENCE_S=PATIENCE_S))
            finally:
                server.shutdown()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
