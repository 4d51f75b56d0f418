#!/usr/bin/env python3
"""Man pages and completion for bash, made of what `islands --help` and the help of every command say.

    documents.py ISLANDS FOLDER     writes FOLDER/man/islands*.1 and FOLDER/islands
"""

import os
import re
import subprocess
import sys
from typing import NamedTuple

HEADING = re.compile(r"^[A-Za-z][A-Za-z ]*:$", re.M)
OPTION = re.compile(r"^ +(?:-\w, ?)?(?:-\w(?: [A-Z]+)?, )?(--[a-z0-9-]+)", re.M)
COMMAND = re.compile(r"^  ([a-z]+) {2,}(\S.*)$", re.M)
COLUMNS = "100"  # of help texts that are wrapped to a terminal's width


class Command(NamedTuple):
    name: str
    about: str
    text: str  # its help

    def options(self) -> list[str]:
        return list(dict.fromkeys(OPTION.findall(self.text)))


def help_of(islands: str, *words: str) -> str:
    done = subprocess.run([islands, *words, "--help"], stdout=subprocess.PIPE, text=True, check=True,
                          env=dict(os.environ, COLUMNS=COLUMNS))
    return done.stdout.strip() + "\n"


def commands_of(islands: str, top: str) -> list[Command]:
    """All that the help of `islands` lists, behind its heading."""
    names = COMMAND.findall(top[top.index("\nSubcommands:"):] if "\nSubcommands:" in top else top)
    return [Command(name, about, help_of(islands, name)) for name, about in names]


def roff(text: str) -> str:
    return "\n".join(r"\&" + line if line.startswith((".", "'")) else line
                     for line in text.replace("\\", r"\e").replace("-", r"\-").split("\n"))


def man_page(name: str, about: str, text: str, version: str, others: list[str]) -> str:
    """Headings of the help are the page's; below them it stays as it is."""
    parts = [f'.TH "{name.upper()}" 1 "" "islands {version}" "Islands"',
             ".SH NAME", rf"{roff(name)} \- {roff(about)}"]
    places = [*HEADING.finditer(text)]
    ends = [*(place.start() for place in places), len(text)]
    for title, body in [("DESCRIPTION", text[:ends[0]]), *(
            (place[0].rstrip(":").upper(), text[place.end():end]) for place, end in zip(places, ends[1:]))]:
        if body.strip():
            parts += [f".SH {title}", ".nf", roff(body.strip("\n")), ".fi"]
    if others:
        parts += [".SH SEE ALSO", ", ".join(rf"\fB{roff(other)}\fR(1)" for other in others)]
    return "\n".join(parts) + "\n"


COMPLETION = """# Completion of `islands` for bash, made of its help. For zsh: after bashcompinit.
_islands() {
  local word=${COMP_WORDS[COMP_CWORD]} command= i place=0
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --format) i=$((i + 1)) ;;
      -*) ;;
      *) if [ -z "$command" ]; then command=${COMP_WORDS[i]}; else place=$((place + 1)); fi ;;
    esac
  done
  local options=--format
  case $command in
    '') COMPREPLY=($(compgen -W 'COMMANDS --help --version --format' -- "$word")); return ;;
    help) COMPREPLY=($(compgen -W 'COMMANDS' -- "$word")); return ;;
OPTIONS
  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  elif [[ ${COMP_WORDS[COMP_CWORD - 1]} == --format ]]; then
    COMPREPLY=($(compgen -W 'text json' -- "$word"))
  elif [[ $command == run && $place == 1 ]]; then
    COMPREPLY=($(compgen -W 'WORKLOADS' -- "$word") $(compgen -f -X '!*.so' -- "$word") $(compgen -d -- "$word"))
  elif [[ $command == report ]]; then
    COMPREPLY=($(compgen -d -- "$word"))
  else
    COMPREPLY=($(compgen -f -X '!*.yaml' -- "$word") $(compgen -d -- "$word"))
  fi
}
complete -o filenames -F _islands islands
"""


def completion(commands: list[Command]) -> str:
    options = "\n".join(f"    {command.name}) options='{' '.join(command.options())} --format' ;;"
                        for command in commands)
    built = re.search(r"One that is built: ([a-z, _]+)", next(each.text for each in commands if each.name == "run"))
    workloads = " ".join(built[1].replace(",", " ").split()) if built else ""
    return COMPLETION.replace("OPTIONS", options).replace("COMMANDS", " ".join(
        ["help", *(command.name for command in commands)])).replace("WORKLOADS", workloads)


def main() -> int:
    islands, folder = sys.argv[1:]
    top = help_of(islands)
    version = subprocess.run([islands, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-1]
    commands = commands_of(islands, top)
    if not commands:
        print("documents.py: the help of islands lists no commands", file=sys.stderr)
        return 1
    os.makedirs(os.path.join(folder, "man"), exist_ok=True)
    pages = {"islands": man_page("islands", "cut a machine into islands, and run transactions on them", top, version,
                                 [f"islands-{command.name}" for command in commands])}
    for command in commands:
        pages[f"islands-{command.name}"] = man_page(f"islands-{command.name}", command.about, command.text, version,
                                                    ["islands"])
    for name, page in pages.items():
        with open(os.path.join(folder, "man", f"{name}.1"), "w", encoding="utf-8") as out:
            out.write(page)
    with open(os.path.join(folder, "islands"), "w", encoding="utf-8") as out:
        out.write(completion(commands))
    return 0


if __name__ == "__main__":
    sys.exit(main())
