"""What is wanted of a machine that runs islands: a function for each setting, which reads a Host and says what it
found. What cannot be read is `unknown`, with the reason, and never `fine`.

To add one: a function, its place in CHECKS, its line in deploy/README.md, and cases in deploy/e2e/test_doctor.py.
"""

from collections.abc import Sequence

import cores
import limits
import memory
from findings import PROBLEM, UNKNOWN, Check, Finding, Scope
from host import Host

CHECKS: Sequence[Check] = (cores.governor, cores.turbo, cores.smt, memory.huge_pages, memory.numa_balancing,
                           memory.swappiness, cores.steal, cores.quota, limits.open_files, limits.locked_memory,
                           limits.address_space, memory.rings, cores.clock_source, cores.other_load)


def look(host: Host, scope: Scope) -> list[Finding]:
    """All of them, in the order above."""
    return [finding for check in CHECKS for finding in check(host, scope)]


def number(count: int, one: str) -> str:
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def brief(findings: Sequence[Finding]) -> str:
    """In one line: problems with what was found, and names of what is not known."""
    problems = [f"{each.name} {each.found.partition(': ')[0]}" for each in findings if each.severity == PROBLEM]
    silent = list(dict.fromkeys(each.name for each in findings if each.severity == UNKNOWN))
    text = f"{number(len(problems), 'problem')}: {', '.join(problems)}" if problems else "no problems"
    return f"{text}{'; unknown: ' + ', '.join(silent) if silent else ''}"
