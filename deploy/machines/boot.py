#!/usr/bin/env python3
"""Boots one of the machines with a console in this terminal, `islands` inside.

    deploy/machines/boot.py quad
"""

import os
import subprocess
import sys
import tempfile

import guest
import initramfs
import shelf


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in shelf.MACHINES:
        for machine in shelf.MACHINES.values():
            print(f"{machine.name:12}{machine.says}", file=sys.stderr)
        return 2
    reason = guest.why_not()
    if reason:
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="islands-guest-") as folder:
        files = os.path.join(folder, "initramfs")
        initramfs.build(files, guest.TOOLS, guest.BINARIES, guest.build_programs())
        command = guest.qemu_command(shelf.MACHINES[arguments[0]], files, "quiet interactive")
        return subprocess.call([*command, "-serial", "mon:stdio"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
