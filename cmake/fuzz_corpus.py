#!/usr/bin/env python3
"""The corpora of fuzz targets: inputs that reach what random ones do not. In the tree each is a text beside the
target's source, TARGET.corpus, with an input in hexadecimal digits on every line; every build replays them as a unit
test (fuzz_replay.cc), and `make fuzz` begins with them.

    cmake/fuzz_corpus.py unpack TARGET FOLDER     each input as a file, which libFuzzer wants
    cmake/fuzz_corpus.py pack TARGET FOLDER       writes TARGET.corpus: of the files in FOLDER a few that reach what all
                                                  of them reach, as build/fuzz/fuzz/TARGET says
"""

import hashlib
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_BYTES = 6_000  # of all inputs of a target; a line in the tree takes twice as much


def source_of(target: str) -> str:
    """Where the target's source is, without its suffix."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in (".git", "build")]
        if target + ".cc" in names:
            return os.path.join(folder, target)
    raise SystemExit(f"there is no {target}.cc")


def unpack(target: str, folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    corpus = source_of(target) + ".corpus"
    if not os.path.exists(corpus):
        return
    with open(corpus, encoding="ascii") as file:
        for line in file:
            if line.startswith("#"):
                continue
            data = bytes.fromhex(line)
            with open(os.path.join(folder, hashlib.sha1(data).hexdigest()), "wb") as out:
                out.write(data)


def pack(target: str, folder: str) -> None:
    program = os.path.join(ROOT, "build", "fuzz", "fuzz", target)
    with tempfile.TemporaryDirectory() as merged:
        subprocess.run([program, "-set_cover_merge=1", merged, folder], check=True, capture_output=True)
        inputs = []
        for name in os.listdir(merged):
            with open(os.path.join(merged, name), "rb") as file:
                inputs.append(file.read())
    inputs.sort(key=lambda data: (len(data), data))
    taken, size = [], 0
    for data in inputs:
        size += len(data)
        if size > MOST_BYTES:
            break
        taken.append(data.hex() + "\n")
    with open(source_of(target) + ".corpus", "w", encoding="ascii") as out:
        out.write(f"# Inputs of {target}, made by cmake/fuzz_corpus.py.\n")
        out.writelines(taken)
    print(f"{target}: {len(taken)} of {len(inputs)} inputs")


def main(arguments: list[str]) -> int:
    commands = {"unpack": unpack, "pack": pack}
    if len(arguments) != 3 or arguments[0] not in commands:
        print(__doc__, file=sys.stderr)
        return 2
    commands[arguments[0]](arguments[1], arguments[2])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
