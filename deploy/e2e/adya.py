"""The crate `adya`, a checker of histories that is not ours: what it says about answers of `islands history`.

deploy/install-packages.sh soak builds it into build/tools.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence

from conftest import ROOT
from list_append import Answer

PROGRAM = os.path.join(ROOT, "build", "tools", "bin", "adya")
MISSING = "adya is not there: deploy/install-packages.sh soak needs cargo and its registry"
VALID, INVALID = 0, 1  # exit codes; others: it does not know


def is_there() -> bool:
    return os.access(PROGRAM, os.X_OK)


def lines_of(history: Sequence[Answer]) -> Iterator[str]:
    """Two for each answer, in the order of time. A process whose last answer said that nobody knows is another one from
    then on: what it was about may still be under way."""
    lives: dict[int, int] = {}
    events = sorted([(answer["begin"], 0, number) for number, answer in enumerate(history)] +
                    [(answer["end"], 1, number) for number, answer in enumerate(history)])
    others = max((answer["process"] for answer in history), default=0) + 1
    for index, (time_ns, ends, number) in enumerate(events):
        answer = history[number]
        process = answer["process"]
        operations = [[kind, key, value if ends or kind == "append" else None] for kind, key, value in answer["value"]]
        yield json.dumps({"index": index, "type": answer["type"] if ends else "invoke", "f": "txn", "time": time_ns,
                          "process": process + others * lives.get(process, 0), "value": operations})
        if ends and answer["type"] == "info":
            lives[process] = lives.get(process, 0) + 1


def violations(history: Sequence[Answer], path: str) -> list[str]:
    """Writes it to the path, and has it checked. Empty: none."""
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines_of(history))
    done = subprocess.run([PROGRAM, "check", "--model", "list-append", "--consistency-models", "strict-serializable",
                           "--cycle-search-timeout", "60000", path], capture_output=True, text=True, timeout=600)
    if done.returncode not in (VALID, INVALID):
        return [f"adya could not tell: {done.stdout[-2000:]} {done.stderr[-2000:]}"]
    return [done.stdout] if done.returncode == INVALID else []
