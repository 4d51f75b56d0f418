#!/usr/bin/env python3
"""The tidy test: rules of the code base that no compiler checks.

    deploy/tidy.py [ROOT]

Prints one line per finding, `file:line: what, and what to do instead`, and exits with 3 if there is any. The rules are
the tables below; `deploy/e2e/test_tidy.py` runs them with the other tests and shows for each that it can fail.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

# Arrows go downwards only: a folder may include itself and those after it.
FOLDERS = ["deploy", "experiments", "dashboards", "instance", "coordinator", "topology", "partitioner", "runtime",
           "proto"]
# The same within a folder; files directly in it lie above its rooms. Some rooms of the design are yet to be built.
ROOMS = {
    "deploy": ["e2e", "machines", "doctor", "top", "run", "cluster", "observe", "processes", "plan", "file", "cli"],
    "instance": ["gateway", "server", "simulation", "testing", "island", "worker", "verify", "recovery", "execution",
                 "workload", "locks", "log", "storage", "messaging"],
    "instance/storage": ["files", "btree", "pages"],
}

Findings = Iterator[tuple[int, str]]  # line, and what is wrong there

MAX_COLUMNS = {".cc": 110, ".h": 110, ".py": 120, ".proto": 120, ".ts": 120, ".tsx": 120, ".mjs": 120}
MAX_LINES = 1000
SOURCES = tuple(MAX_COLUMNS)
# Where text is searched for leftovers and machine paths, besides the sources.
TEXTS = SOURCES + (".md", ".txt", ".cmake", ".json", ".yaml", ".yml", ".sh", ".mk")
TEXT_NAMES = ("Makefile", ".ci/run", "CMakeLists.txt")
NOT_OURS = ("package-lock.json",)  # written by npm

LEFTOVER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
# Folders of the machines that this was written on mean nothing elsewhere.
MACHINE_PATH = re.compile(r"(?<![\w.}>)])/(?:work|root|farm|home/\w+)/")


def anywhere(path: str) -> bool:
    return False


def starts(*prefixes: str) -> Callable[[str], bool]:
    return lambda path: path.startswith(prefixes)


def is_test(path: str) -> bool:
    return bool(re.search(r"_(test|fuzz|bench)\.cc$|_(test_util|testing)\.(h|cc)$|_conformance\.(h|cc)$", path))


# Code of ours that waits in real time on threads that are no workers, each with the reason.
REAL_TIME = {
    "runtime/clock.h": "the seam itself",
    "instance/messaging/control_channel.cc": "blocking calls of commands and control threads",
    "instance/messaging/memory_transport.cc": "Wait is for the threads of tests; simulation never calls it",
    "instance/server/exposer.cc": "waits for the library's threads when the process ends",
    "instance/testing/in_process_cluster.cc": "a test waits for the threads of its islands",
    "topology/machine_sources.cc": "asks hwloc in a child process with a deadline, before any island exists",
}


CLIENT = "instance/gateway/cpp/"  # runs in programs of others, never in an island


def outside_islands(path: str) -> bool:
    """Programs and tests may use the real clock and wait; what runs inside an island may not."""
    return path.startswith(("deploy/", "experiments/", "cmake/", CLIENT)) or is_test(path) or path in REAL_TIME


# Pages are read without a latch by the first, on behalf of a guard of the second.
TORN, GUARDS = "instance/storage/pages/torn.h", "instance/storage/pages/page_guard.h"

# (pattern, what to use instead, where it is allowed)
BANNED = [(re.compile(pattern), instead, allowed) for pattern, instead, allowed in (
    (r"\babsl::Mutex", "runtime::Mutex: ThreadSanitizer cannot see into Debian's Abseil", anywhere),
    (r"\bstd::mutex", "runtime::Mutex: Clang's analysis knows what it guards",
     lambda path: is_test(path) or path.startswith(("experiments/", CLIENT)) or path == "runtime/mutex.h"),
    (r"\batomic_(thread|signal)_fence\b", "a memory order on the atomic: sanitizers cannot see fences",
     lambda path: path == TORN),  # the one fence, of optimistic page reads
    (r"\b__(?:atomic|sync)_\w+", "std::atomic, or for the bytes of a page a TornPage", lambda path: path == TORN),
    (r"\bno_sanitize\w*", "a latch or an atomic: only optimistic page reads are races that are meant",
     lambda path: path == TORN),
    (r"\b(?:LoadOnce|CopyTorn)\b", "GuardO::page(): a TornPage alone knows where the bytes are",
     lambda path: path == TORN or is_test(path)),
    (r"\bTornPage\s*[({]", "GuardO::page(): who holds a latch needs no torn reads",
     lambda path: path in (TORN, GUARDS) or is_test(path)),
    (r"\bstd::rand\b|(?<![\w:.>])s?rand\s*\(|\bstd::mt19937(_64)?\b", "runtime::Random, whose seed is known",
     lambda path: is_test(path) or path.startswith(("cmake/", CLIENT + "examples/"))),
    (r"\bstd::random_device\b", "runtime::Random, whose seed is known",  # where seeds and ids come from
     lambda path: is_test(path) or path.startswith(("deploy/", CLIENT)) or path == "instance/server/main.cc"),
    (r"\bgettimeofday\b|\bclock_gettime\b|\bchrono::\w+_clock\b", "runtime::Clock, which simulation can set",
     outside_islands),
    (r"\bu?sleep\s*\(|\bnanosleep\b|\bsleep_for\b|\bsleep_until\b", "a timer of the run loop: a worker never blocks",
     outside_islands),
    (r"(?<!operator )\bnew\b(?=\s+[\w:]+\s*[({\[<;])", "std::make_unique or a container", anywhere),
    (r"\bstd::cout\b|(?<![\w:])(?:std::)?(?:printf|puts|putchar)\s*\(|\bfprintf\s*\(\s*stdout\b",
     "spdlog, or return the text: stdout belongs to commands",
     lambda path: path.startswith(("deploy/", CLIENT + "examples/")) or is_test(path)),
    (r"\busing\s+namespace\s+std\b", "std::", anywhere),
    (r"(?<![\w:.>])assert\s*\(\s*false\b", "an error that says what happened, or ISLANDS_CHECK", anywhere),
)]

# A command line of ours: quoted, also over the end of a line, or an example with a line of its own.
COMMAND_LINE = re.compile(r"""[`']islands(?:[\s"#]|//)+([a-z][a-z-]*)"""
                          r"""|^(?:\$ | {2,})?islands ([a-z]+)(?=  | --| [A-Z]{4}| \S+\.yaml| \S+/)"""
                          r"""|^(?:\$ | {2,})islands ([a-z]+)$""", re.M)
REGISTERED = re.compile(r'add_subcommand\("([a-z]+)"|^    \{"([a-z]+)", "', re.M)

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"|^\s*import\s+"([^"]+)"')
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((?:.*?)\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)


def blank_comments_and_strings(text: str) -> str:
    """The code alone, every line still where it was."""
    return COMMENT_OR_STRING.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def suffix(path: str) -> str:
    return os.path.splitext(path)[1]


def check_lines(path: str, text: str) -> Findings:
    lines = text.split("\n")
    if len(lines) - 1 > MAX_LINES:
        yield len(lines) - 1, f"{len(lines) - 1} lines; cut the file into parts of at most {MAX_LINES}"
    limit = MAX_COLUMNS.get(suffix(path))
    for number, line in enumerate(lines, 1):
        if limit and len(line) > limit:
            yield number, f"{len(line)} columns; at most {limit}"
        if limit and "\t" in line:
            yield number, "tab; indent with spaces"
        if limit and line != line.rstrip():
            yield number, "blanks at the end of the line"
        if LEFTOVER.search(line):
            yield number, "leftover note; do it now, or open an issue"
        if MACHINE_PATH.search(line):
            yield number, "path of one machine; make it relative or configurable"


def check_banned(path: str, text: str) -> Findings:
    if suffix(path) not in (".h", ".cc"):
        return
    code = blank_comments_and_strings(text)
    for number, line in enumerate(code.split("\n"), 1):
        for pattern, instead, allowed in BANNED:
            match = pattern.search(line)
            if not match or allowed(path):
                continue
            # A private constructor is out of make_unique's reach: the smart pointer takes over on the same line.
            if match.group() == "new" and re.search(r"(_ptr<[^;]*>(\s+\w+)?|WrapUnique)\(\s*new\b", line):
                continue
            yield number, f"'{match.group().strip()}'; use {instead}"


def direction_fault(path: str, included: str) -> str | None:
    """Why `path` may not include `included`; None if it may."""
    own, other = path.split("/"), included.split("/")
    if own[0] not in FOLDERS or other[0] not in FOLDERS or not has_place(included):
        return None
    if FOLDERS.index(other[0]) < FOLDERS.index(own[0]):
        return f"{own[0]}/ is below {other[0]}/"
    folder, depth = own[0], 1
    while folder in ROOMS and other[:depth] == own[:depth]:
        rooms = ["", *ROOMS[folder]]  # first whatever is directly in the folder
        here, there = (rooms.index(parts[depth] if len(parts) > depth + 1 else "") for parts in (own, other))
        if there < here:
            return f"{folder}/{rooms[here]}/ is below {folder}/{rooms[there] + '/' if there else '*.h'}"
        folder, depth = f"{folder}/{own[depth]}", depth + 1
    return None


def has_place(path: str) -> bool:
    """Whether the folder of a source has its place in the order of its neighbours."""
    parts = path.split("/")
    return all(parts[depth] in ROOMS["/".join(parts[:depth])]
               for depth in range(1, len(parts) - 1) if "/".join(parts[:depth]) in ROOMS)


def check_includes(path: str, text: str) -> Findings:
    if suffix(path) not in (".h", ".cc", ".proto"):
        return
    if not has_place(path):
        yield 1, "in a folder that is not in the order of the include arrows (ROOMS)"
        return
    for number, line in enumerate(text.split("\n"), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        included = match.group(1) or match.group(2)
        fault = direction_fault(path, included)
        if fault:
            yield number, f'includes "{included}", but {fault}; arrows go downwards only'
        if included.startswith("../"):
            yield number, f'includes "{included}"; start at the top folder'


def check_header(path: str, text: str) -> Findings:
    if suffix(path) != ".h":
        return
    if "#pragma once" not in text:
        yield 1, "header without #pragma once"
    if not text.startswith(("//", "/*")):
        yield 1, "header without an opening comment: what it is for, thread safety, invariants"


# What torn.h may do with where a page is: load once, copy out, fetch ahead, and hand it on to its own classes.
TORN_USE = re.compile(r"\b(LoadOnce|CopyTorn(<T>)?|Torn\w+(<T>)?|__builtin_prefetch)\([^;]*\bbegin_\b"
                      r"|\bbegin_\(begin\)|\(begin_ - begin\.begin_\);|^  const [\w:]+\* begin_;$")
TORN_MISUSE = re.compile(r"\*begin_\b|\bbegin_\s*(\[|->)")


def check_torn(path: str, text: str) -> Findings:
    """The bytes of a page that may be changing are loaded once or copied out, and nothing else."""
    lines = enumerate(blank_comments_and_strings(text).split("\n"), 1)
    if path == TORN:
        for number, line in lines:
            if re.search(r"\bbegin_\b", line) and (not TORN_USE.search(line) or TORN_MISUSE.search(line)):
                yield number, "page bytes outside LoadOnce and CopyTorn"
    if path == GUARDS:
        optimistic = False
        for number, line in lines:
            optimistic = line.startswith("class GuardO ") or (optimistic and line != "};")
            if optimistic and re.search(r"\bbytes_\b", line) and "TornPage(page_.bytes_)" not in line:
                yield number, "page bytes of a GuardO; it gives out a TornPage only"


@functools.cache
def commands() -> set[str]:
    """Those that `islands` has, from the code that registers them; `help` is the way to say --help first."""
    found = {"help"}
    for folder, _, names in os.walk(os.path.dirname(os.path.abspath(__file__))):
        for name in names:
            if name.endswith(".cc"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    found |= {word for match in REGISTERED.findall(file.read()) for word in match if word}
    return found


def check_commands(path: str, text: str) -> Findings:
    for match in COMMAND_LINE.finditer(text):
        group = match.lastindex or 0
        word = match.group(group)
        if word not in commands():
            number = text.count("\n", 0, match.start(group)) + 1
            yield number, f"names the command 'islands {word}', which does not exist; say what exists"


CHECKS = [check_lines, check_banned, check_includes, check_header, check_torn, check_commands]


def check_file(path: str, text: str) -> list[str]:
    """Findings in one file, `path` relative to the top folder."""
    return [f"{path}:{number}: {what}" for check in CHECKS for number, what in check(path, text)]


def list_files(root: str) -> list[str]:
    """Every text of ours: what git tracks or would track, and all files where there is no git."""
    try:
        out = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=root, check=True,
                             capture_output=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        out = []
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in (".git", "build", "results", "__pycache__")]
            out += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(path for path in set(out)
                  if (path.endswith(TEXTS) or path in TEXT_NAMES) and os.path.basename(path) not in NOT_OURS
                  and os.path.isfile(os.path.join(root, path)))


def check_format(root: str, paths: Sequence[str]) -> list[str]:
    """What clang-format-16 would change; nothing where it is not installed."""
    tool = shutil.which("clang-format-16")
    sources = [path for path in paths if suffix(path) in (".h", ".cc")]
    if not tool or not sources:
        return []
    run = subprocess.run([tool, "--dry-run", "--ferror-limit=1", *sources], cwd=root, capture_output=True, text=True)
    files = sorted({line.split(":")[0] for line in run.stderr.splitlines() if "[-Wclang-format-violations]" in line})
    return [f"{path}:1: not formatted; run make format" for path in files]


def check_folders(root: str, paths: Sequence[str]) -> list[str]:
    folders = sorted({path.split("/")[0] for path in paths if "/" in path})
    return [f"{folder}/README.md:1: missing; every top-level folder says what it is"
            for folder in folders
            if not folder.startswith(".") and f"{folder}/README.md" not in paths]


def check_tree(root: str) -> list[str]:
    paths = list_files(root)
    findings = check_folders(root, paths) + check_format(root, paths)
    for path in paths:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            findings += check_file(path, file.read())
    return findings


def main(arguments: Sequence[str]) -> int:
    default = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    findings = check_tree(arguments[0] if arguments else default)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(findings)} findings" if findings else "tidy: nothing to complain about", file=sys.stderr)
    return 3 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
