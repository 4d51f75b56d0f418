"""Whether a history of list-append transactions, as `islands history` answers it, is strictly serializable.

Elements are appended once each, so that a read says whose appends came before it, in which order. From that follow
dependencies between transactions (Adya; Kingsbury and Alvaro, "Elle", VLDB 2020): who appends after whom, who reads
whose append, who appends what a reader has not seen. With the order of time (who had its answer before another began)
they must have no cycle. What nobody knows the outcome of counts if somebody has seen it.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

Answer = dict[str, Any]


def orders_of(history: Sequence[Answer], wrong: list[str]) -> dict[int, list[int]]:
    """Of each list, as the longest read has it; every other read must be its beginning."""
    orders: dict[int, list[int]] = defaultdict(list)
    reads = [(key, elements) for answer in history if answer["type"] == "ok"
             for kind, key, elements in answer["value"] if kind == "r"]
    for key, elements in reads:
        if len(elements) > len(orders[key]):
            orders[key] = elements
    for key, elements in reads:
        if orders[key][:len(elements)] != elements:
            wrong.append(f"list {key} was read as {elements} and as {orders[key]}")
    return orders


def cycle(edges: dict[int, set[int]], nodes: int) -> list[int]:
    """What is left when everybody has gone whom nobody left comes before; empty: there is no cycle."""
    before = [0] * nodes
    for targets in edges.values():
        for target in targets:
            before[target] += 1
    ready = [node for node in range(nodes) if before[node] == 0]
    left = nodes
    while ready:
        node = ready.pop()
        left -= 1
        for target in edges.get(node, ()):
            before[target] -= 1
            if before[target] == 0:
                ready.append(target)
    return [node for node in range(nodes) if before[node] > 0] if left else []


def violations(history: Sequence[Answer]) -> list[str]:
    """The history should end with a read of every list. Empty: none."""
    wrong: list[str] = []
    orders = orders_of(history, wrong)
    seen = {(key, element) for key, order in orders.items() for element in order}
    writer: dict[tuple[int, int], int] = {}
    counted = []
    for number, answer in enumerate(history):
        appended = [(key, element) for kind, key, element in answer["value"] if kind == "append"]
        for each in appended:
            if each in writer:
                wrong.append(f"{each} was appended twice")
            writer[each] = number
        found = sum(each in seen for each in appended)
        if answer["type"] == "fail" and found:
            wrong.append(f"{answer} has not happened, and was seen")
        if answer["type"] == "ok" and found < len(appended):
            wrong.append(f"{answer} was committed, and is not there")
        if answer["type"] == "info" and 0 < found < len(appended):
            wrong.append(f"{answer} is there in part")
        if answer["type"] == "ok" or (answer["type"] == "info" and found):
            counted.append(number)
    for each in seen:
        if each not in writer:
            wrong.append(f"{each} was read, and nobody has appended it")
    if wrong:
        return wrong

    edges: dict[int, set[int]] = defaultdict(set)
    place = {(key, element): at for key, order in orders.items() for at, element in enumerate(order)}
    for key, order in orders.items():
        for first, second in zip(order, order[1:]):
            edges[writer[key, first]].add(writer[key, second])
    for number in counted:
        if history[number]["type"] != "ok":
            continue
        for kind, key, elements in history[number]["value"]:
            if kind != "r":
                continue
            if elements:
                edges[writer[key, elements[-1]]].add(number)
            after = place[key, elements[-1]] + 1 if elements else 0
            if after < len(orders[key]):
                edges[number].add(writer[key, orders[key][after]])
    nodes = add_time(history, counted, edges)
    for node, targets in edges.items():
        targets.discard(node)  # its own appends
    return [f"in a cycle: {history[node]}" for node in cycle(edges, nodes) if node < len(history)]


def add_time(history: Sequence[Answer], counted: Sequence[int], edges: dict[int, set[int]]) -> int:
    """Who had its answer comes before a moment, and the moment before who begins later: two edges for each instead of
    one for each pair. Returns how many nodes there are with the moments."""
    events = sorted([(history[number]["begin"], 1, number) for number in counted] +
                    [(history[number]["end"], 0, number) for number in counted if history[number]["type"] == "ok"])
    moment = nodes = len(history)
    for _, begins, number in events:
        if begins:
            if nodes > moment:
                edges[nodes - 1].add(number)
            continue
        if nodes > moment:
            edges[nodes - 1].add(nodes)
        edges[number].add(nodes)
        nodes += 1
    return nodes
