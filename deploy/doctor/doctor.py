#!/usr/bin/env python3
"""Says what in this machine makes islands slow or their figures doubtful, and changes what may be changed."""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

import checks
from findings import ADVICE, FINE, PROBLEM, UNKNOWN, Finding, Scope, Write, chosen
from host import Host, cpu_list, cpus_of

EPILOG = """A problem makes islands slower than they could be, or figures worse than they are. Advice depends on what
you want. Unknown is what this machine does not say, as virtual machines often do not; it is not fine. Commands are
for root's shell.

--fix changes settings of the running kernel, of problems only: it writes to files in /sys and /proc/sys, names each,
and says how to take it back; a restart of the machine takes all of it back. The rest is done by hand.

Limits are those of the shell that asks; a service has its own.

examples:
  islands doctor                     all cores that may be used
  islands doctor my.yaml             the cores of its islands, its log's rings, the limits that it needs
  islands doctor --fix --dry-run     what --fix would do

exit codes: 0 no problems, 1 problems, or failed, 2 usage or invalid file"""
BRIEF_S, WHOLE_S = 0.3, 1.0  # how long other load is looked at


class Unusable(Exception):
    """The file, with complaints."""


def wants_json(words: Sequence[str]) -> bool:
    return bool(re.search(r"--format[ =]json\b", " ".join(words)))


def fail(code: int, message: str, as_json: bool) -> int:
    print(message, file=sys.stderr)
    if as_json:
        print(json.dumps({"error": {"message": message, "exit_code": code}}, indent=1))
    return code


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        sys.exit(fail(2, f"{self.prog}: {message}; see --help", wants_json(sys.argv)))


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="islands doctor", epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
                    description="Says what in this machine makes islands slow or their figures doubtful: what was "
                    "found, why it\nmatters, and the command that changes it.")
    parser.add_argument("file", metavar="FILE", nargs="?", help="a deployment: only what its islands need")
    parser.add_argument("--fix", action="store_true", help="carry out what is printed as `fix`; for root; asks nothing")
    parser.add_argument("--dry-run", action="store_true", help="with --fix: print the commands only")
    parser.add_argument("--brief", action="store_true", help="one line, after a shorter look at other load; `islands "
                        "sweep` and `islands advise` begin with it")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of what is written to stdout")
    arguments = parser.parse_args(words)
    if arguments.dry_run and not arguments.fix:
        parser.error("--dry-run: found no --fix, expected it only with --fix")
    if arguments.brief and arguments.fix:
        parser.error("--brief: found --fix too, expected one of them")
    return arguments


def plan_of(file: str) -> dict[str, Any]:
    """What `islands plan` says of it; it must be for this machine."""
    binary = os.environ.get("ISLANDS_BIN", "islands")
    done = subprocess.run([binary, "plan", file, "--format", "json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise Unusable(done.stderr.strip() or done.stdout.strip())
    plan: dict[str, Any] = json.loads(done.stdout)
    if not plan["machine"]["is_this_machine"]:
        raise Unusable(f"{file}: found `machine: {plan['machine']['source']}`, expected a deployment of this machine: "
                       "only that can be looked at")
    return plan


def scope_of(host: Host, plan: dict[str, Any] | None) -> Scope:
    cpus = host.cpus()
    if plan:
        of_islands = {cpu for island in plan["islands"] for cpu in cpus_of(island["cpus"])}
        cpus = sorted(of_islands) or cpus  # unbound ones may run anywhere
    return Scope(cpus, host.load(), plan)


def carry_out(host: Host, findings: Sequence[Finding], dry_run: bool) -> list[dict[str, Any]]:
    """What the findings' `fix` says, each with how it went."""
    done = []
    for write in dict.fromkeys(each.write for each in findings if each.severity == PROBLEM and each.write):
        entry: dict[str, Any] = {"command": write.command(), "done": False, "back": [], "error": None}
        before: dict[str, list[str]] = {}
        try:
            for file in write.files:
                value = chosen(host.read(file) or "")
                if not dry_run:
                    host.write(file, write.value)
                before.setdefault(value, []).append(file)
            entry["done"] = not dry_run
        except OSError as error:
            entry["error"] = f"{error.filename or file}: {error.strerror}"
        entry["back"] = [Write(tuple(files), value).command() for value, files in before.items()]
        done.append(entry)
    return done


def document(file: str | None, scope: Scope, findings: Sequence[Finding]) -> dict[str, Any]:
    def count(severity: str) -> int:
        return sum(each.severity == severity for each in findings)
    return {"file": file and os.path.abspath(file), "cpus": cpu_list(scope.cpus), "brief": checks.brief(findings),
            "problems": count(PROBLEM), "advice": count(ADVICE), "unknown": count(UNKNOWN), "fine": count(FINE),
            "findings": [{"name": each.name, "severity": each.severity, "found": each.found, "wanted": each.wanted,
                          "why": each.why, "command": each.command,
                          "fixable": each.severity == PROBLEM and each.write is not None} for each in findings]}


def indented(label: str, text: str) -> str:
    """Cut into lines below the findings' names, the label before the first."""
    words, lines, line = text.split(" "), [], ""
    for word in words:
        if line and len(line) + len(word) > 100:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    first, *others = [*lines, line]
    return "\n".join([f"           {label}{first}", *(f"           {' ' * len(label)}{other}" for other in others)])


def show(scope: Scope, findings: Sequence[Finding], file: str | None) -> None:
    print(f"CPUs {cpu_list(scope.cpus)}{f', those of {file}' if file else ', all that may be used'}\n")
    for severity in (PROBLEM, ADVICE, UNKNOWN):
        for each in findings:
            if each.severity != severity:
                continue
            print(f"{severity:<9}  {each.name}: {each.found}{f'; wanted: {each.wanted}' if each.wanted else ''}")
            if each.why:
                print(indented("why: ", each.why))
            if each.command:  # never cut into lines: it is to be copied
                label = "fix: " if severity == PROBLEM and each.write else "by hand: "
                print(f"           {label}{each.command}" if "| tee" in each.command else indented(label, each.command))
    fine = ", ".join(f"{each.name} ({each.found})" for each in findings if each.severity == FINE)
    if fine:
        print(f"{FINE:<9}{indented('', fine)[9:]}")


def show_fixes(fixes: Sequence[dict[str, Any]], dry_run: bool) -> None:
    if not fixes:
        print("nothing that --fix changes")
    for each in fixes:
        if dry_run:
            print(each["command"])
            continue
        print(f"{each['command']}: {'done' if each['done'] else 'failed: ' + each['error']}")
        for back in each["back"]:
            print(f"    back: {back}")


def main(words: Sequence[str], host: Host | None = None) -> int:
    arguments = parse_arguments(words)
    as_json = arguments.format == "json"
    if arguments.fix and not arguments.dry_run and host is None and os.geteuid() != 0:
        return fail(1, "islands doctor: --fix needs root: run it with sudo, or see --fix --dry-run", as_json)
    seconds = BRIEF_S if arguments.brief else WHOLE_S
    host = host or Host(pause=lambda: time.sleep(seconds))
    try:
        plan = plan_of(arguments.file) if arguments.file else None
    except Unusable as complaint:
        return fail(2, str(complaint), as_json)
    except OSError as error:
        return fail(1, f"islands doctor: cannot run `islands plan`: {error}", as_json)
    scope = scope_of(host, plan)
    if not scope.cpus:
        return fail(1, "islands doctor: neither /sys nor /proc says which CPUs there are", as_json)
    findings = checks.look(host, scope)
    fixes: list[dict[str, Any]] = []
    if arguments.fix:
        fixes = carry_out(host, findings, arguments.dry_run)
        findings = findings if arguments.dry_run else checks.look(host, scope)
    if as_json:
        more = {"fixes": fixes} if arguments.fix else {}
        print(json.dumps({**document(arguments.file, scope, findings), **more}, indent=1))
    elif arguments.brief:
        print(f"doctor: {checks.brief(findings)}; see `islands doctor`")
    elif arguments.fix:
        show_fixes(fixes, arguments.dry_run)
        if not arguments.dry_run:
            print(f"left: {checks.brief(findings)}")
    else:
        show(scope, findings, arguments.file)
    return 1 if any(each.severity == PROBLEM for each in findings) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
