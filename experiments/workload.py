#!/usr/bin/env python3
"""Begins a workload of one's own: a folder with a small one that builds outside the tree, runs, is tested and swept."""

import argparse
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import NoReturn

from islands_command import Islands, writing

EPILOG = """The folder has the workload's source, a test, a CMake project, a deployment, a sweep, and a README that says
how they are used. Nothing is overwritten.

examples:
  islands workload new bank                     the folder bank
  islands workload new bank --directory src     another one, which must be new or empty

exit codes: 0 ok, 1 failed, 2 usage"""
TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "template")
TEMPLATE_NAME = "newcomer"
NAME = re.compile(r"[a-z][a-z0-9_]*$")
MOST_LETTERS = 32  # of a deployment's name
# CMake has targets of these names in every project.
TAKEN = ("all", "clean", "edit_cache", "help", "install", "package", "package_source", "rebuild_cache", "test")


class Refused(Exception):
    """What cannot be, and what to do instead."""


def wants_json(words: Sequence[str]) -> bool:
    return bool(re.search(r"--format[ =]json\b", " ".join(words)))


def fail(code: int, message: str, as_json: bool) -> int:
    print(f"islands workload: {message}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": {"message": message, "exit_code": code}}, indent=1))
    return code


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        sys.exit(fail(2, f"{message}; see `{self.prog} --help`", wants_json(sys.argv)))


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    about = "Begins a workload of your own, outside of the source tree."
    parser = Parser(prog="islands workload", description=about, epilog=EPILOG,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", metavar="new", choices=("new",), help="write a small workload that runs as it is")
    parser.add_argument("name", metavar="NAME", help="of the workload, its table and its files: lower-case letters, "
                        "digits and '_'")
    parser.add_argument("--directory", metavar="DIR", help="where to, a new or empty folder; default: ./NAME")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of what is written to stdout")
    return parser.parse_args(words)


def check_name(name: str, islands: Islands) -> None:
    if not NAME.match(name) or len(name) > MOST_LETTERS:
        raise Refused(f"NAME: found '{name}', expected a lower-case letter, then such letters, digits and '_', "
                      f"at most {MOST_LETTERS}")
    if name in TAKEN:
        raise Refused(f"NAME: found '{name}', which is a target of every CMake project; expected another name")
    for folder in (islands.library, islands.own_library):
        there = os.path.join(folder, f"{name}.so")
        if os.path.lexists(there):
            raise Refused(f"NAME: found '{name}', a workload that is there ({there}); expected another name")


def renamed(text: str, name: str) -> str:
    """The template's text for a workload of this name. Deployments have '-' in their names, no '_'."""
    camel = "".join(word.capitalize() for word in name.split("_"))
    text = re.sub(rf"^name: {TEMPLATE_NAME}$", f"name: {name.replace('_', '-').strip('-')}", text, flags=re.MULTILINE)
    return text.replace(TEMPLATE_NAME.capitalize(), camel).replace(TEMPLATE_NAME, name)


def write(directory: str, name: str) -> list[str]:
    """The names of the files."""
    try:
        os.makedirs(directory, exist_ok=True)
        found = os.listdir(directory)
    except (FileExistsError, NotADirectoryError):
        raise Refused(f"{directory} is a file; choose another --directory") from None
    if found:
        raise Refused(f"{directory} is not empty; choose another --directory, or a new one")
    made = []
    for entry in sorted(os.listdir(TEMPLATE)):
        with open(os.path.join(TEMPLATE, entry), encoding="utf-8") as file:
            text = renamed(file.read(), name)
        made.append(entry.replace(TEMPLATE_NAME, name))
        with writing(os.path.join(directory, made[-1])) as out:
            out.write(text)
    return made


def next_commands(islands: Islands, directory: str, name: str) -> list[str]:
    """From here to the table of a sweep. CMake finds Islands as the shell does."""
    here = os.path.dirname(os.path.realpath(islands.binary))
    found = shutil.which("islands")
    known = found is not None and os.path.dirname(os.path.realpath(found)) == here
    return [*([] if known else [f"export PATH={shlex.quote(here)}:$PATH"]), f"cd {shlex.quote(directory)}",
            "cmake -B build && cmake --build build", "ctest --test-dir build --output-on-failure",
            f"islands up {name}.yaml", f"islands run {name}.yaml build/{name}.so --remote 20",
            f"islands down {name}.yaml", f"islands sweep {name}_sweep.yaml", "islands report"]


def main(words: Sequence[str]) -> int:
    arguments = parse_arguments(words)
    as_json = arguments.format == "json"
    islands = Islands(os.path.dirname(os.environ.get("ISLANDS_BIN", "") or shutil.which("islands") or "."))
    directory = arguments.directory or arguments.name
    try:
        check_name(arguments.name, islands)
        files = write(directory, arguments.name)
    except Refused as refused:
        return fail(2, str(refused), as_json)
    except OSError as fault:
        return fail(1, f"cannot write {fault.filename}: {fault.strerror}", as_json)
    commands = next_commands(islands, directory, arguments.name)
    if as_json:
        print(json.dumps({"workload": arguments.name, "directory": os.path.abspath(directory), "files": files,
                          "next": commands}, indent=1))
    else:
        print(f"wrote {directory}: {', '.join(files)}\nnext:\n" + "\n".join(f"  {line}" for line in commands))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
