"""Do the judges of histories see what is wrong? Ours, and adya where it is installed: a history that is good has no
violation; the same with one mistake in it has one."""

import copy
import os
import random
from collections import defaultdict
from collections.abc import Callable

import pytest

import adya
import list_append
from conftest import Document
from list_append import Answer

TRANSACTIONS, PROCESSES, LISTS = 400, 5, 8
History = list[Answer]


def good_history(seed: int) -> History:
    """Each transaction happens at a moment between its begin and its end. In the end all lists are read."""
    rng = random.Random(seed)
    lists: dict[int, list[int]] = defaultdict(list)
    free_at = [0] * PROCESSES
    history: History = []
    now = 0
    for number in range(TRANSACTIONS):
        now += 10
        process = min(range(PROCESSES), key=lambda each: free_at[each])
        begin = max(free_at[process] + 1, now - rng.randrange(1, 30))
        now = max(now, begin)
        kind = rng.choices(("ok", "info", "fail"), (90, 6, 4))[0]
        happens = kind == "ok" or (kind == "info" and rng.random() < 0.5)
        value: list[list[object]] = []
        own: dict[int, list[int]] = defaultdict(list)
        for place in range(rng.randint(1, 4)):
            key = rng.randrange(LISTS)
            if rng.random() < 0.5:
                own[key].append(10 * number + place)
                value.append(["append", key, 10 * number + place])
            else:
                value.append(["r", key, lists[key] + own[key] if kind == "ok" else None])
        for key, elements in own.items() if happens else ():
            lists[key] = lists[key] + elements
        free_at[process] = now + rng.randrange(1, 30)
        history.append({"type": kind, "value": value, "process": process, "begin": begin, "end": free_at[process]})
    last = max(free_at) + 1
    history.append({"type": "ok", "value": [["r", key, lists[key]] for key in range(LISTS)], "process": 0,
                    "begin": last, "end": last + 1})
    return history


def reads(history: History, least: int) -> list[list[object]]:
    """That have so many elements, the last of them not: they are what the others are compared with."""
    return [operation for answer in history[:-1] if answer["type"] == "ok" and len(answer["value"]) == 1
            for operation in answer["value"] if operation[0] == "r" and len(operation[2]) >= least]


def stale_read(history: History) -> None:
    operation = reads(history, 20)[-1]
    operation[2] = operation[2][:5]  # type: ignore[index]


def reordered_pair(history: History) -> None:
    elements = copy.copy(reads(history, 20)[-1][2])
    elements[3], elements[4] = elements[4], elements[3]  # type: ignore[index]
    reads(history, 20)[-1][2] = elements


def lost_append(history: History) -> None:
    lost = reads(history, 20)[-1][2][3]  # type: ignore[index]
    for answer in history:
        for operation in answer["value"]:
            if operation[0] == "r" and operation[2]:
                operation[2] = [element for element in operation[2] if element != lost]


def double_append(history: History) -> None:
    operation = reads(history, 20)[-1]
    operation[2] = operation[2][:4] + operation[2][3:]  # type: ignore[index]


def aborted_read(history: History) -> None:
    seen = {element for operation in history[-1]["value"] for element in operation[2]}
    next(answer for answer in history if answer["type"] == "ok" and answer["value"][0][0] == "append" and
         answer["value"][0][2] in seen)["type"] = "fail"


def read_of_nothing(history: History) -> None:
    history[-1]["value"][0][2] = history[-1]["value"][0][2] + [99_999]


def own_append_unseen(history: History) -> None:
    history.insert(-1, {"type": "ok", "value": [["append", 77, 1], ["r", 77, []]], "process": 1,
                        "begin": history[-1]["begin"] - 2, "end": history[-1]["begin"] - 1})
    history[-1]["value"].append(["r", 77, [1]])


def write_skew(history: History) -> None:
    """Both at the same time: each reads what the other appends to, and does not see it."""
    at = history[-1]["begin"]
    for process, (read, appended) in enumerate(((70, 71), (71, 70))):
        history.insert(-1, {"type": "ok", "value": [["r", read, []], ["append", appended, 1]], "process": process + 1,
                            "begin": at - 2, "end": at - 1})
    history[-1]["value"] += [["r", 70, [1]], ["r", 71, [1]]]


MISTAKES: list[Callable[[History], None]] = [stale_read, reordered_pair, lost_append, double_append, aborted_read,
                                             own_append_unseen, write_skew]


def judged(judge: str, history: History, folder: str) -> list[str]:
    if judge == "ours":
        return list_append.violations(history)
    if not adya.is_there():
        pytest.skip(adya.MISSING)
    return adya.violations(history, os.path.join(folder, "history.jsonl"))


@pytest.fixture(params=("ours", "adya"))
def judge(request: pytest.FixtureRequest, folder: str) -> Callable[[History], list[str]]:
    return lambda history: judged(request.param, history, folder)


@pytest.mark.parametrize("seed", range(1, 6))
def test_what_is_good_passes(judge: Callable[[History], list[str]], seed: int) -> None:
    assert judge(good_history(seed)) == []


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_mistake_is_seen(judge: Callable[[History], list[str]], mistake: Callable[[History], None],
                            seed: int) -> None:
    history: list[Document] = good_history(seed)
    mistake(history)
    assert judge(history) != []


def test_what_nobody_has_appended_is_seen() -> None:
    """By ours alone."""
    history = good_history(1)
    read_of_nothing(history)
    assert list_append.violations(history) != []


def test_a_cycle_is_shown_in_its_order() -> None:
    """Not with all that depends on it."""
    history = good_history(1)
    write_skew(history)
    found = list_append.violations(history)
    assert len(found) == 2 and all("in a cycle" in each for each in found), found


def test_who_ends_when_another_begins_is_not_before_it() -> None:
    history: History = [
        {"type": "ok", "value": [["append", 1, 1]], "process": 0, "begin": 0, "end": 5},
        {"type": "ok", "value": [["r", 1, []]], "process": 1, "begin": 5, "end": 6},
        {"type": "ok", "value": [["r", 1, [1]]], "process": 1, "begin": 7, "end": 8}]
    assert list_append.violations(history) == []
    history[1]["begin"] = 6
    history[1]["end"] = 7
    assert list_append.violations(history) != []
