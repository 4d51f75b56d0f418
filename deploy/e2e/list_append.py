"""Whether a history of list-append transactions, as `islands history` answers it, is strictly serializable.

Elements are appended once each, so that a read says whose appends came before it, in which order. From that follow
dependencies between transactions (Adya; Kingsbury and Alvaro, "Elle", VLDB 2020): who appends after whom, who reads
whose append, who appends what a reader has not seen. With the order of time (who had its answer before another began)
they must have no cycle. What nobody knows the outcome of counts if somebody has seen it. All of it takes time in
proportion to what was read.

adya.py asks another checker.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

Answer = dict[str, Any]
Edges = dict[int, set[int]]


def reads_of(answer: Answer) -> Iterator[tuple[int, list[int]]]:
    if answer["type"] == "ok":
        yield from ((key, elements) for kind, key, elements in answer["value"] if kind == "r")


def appends_of(answer: Answer) -> Iterator[tuple[int, int]]:
    yield from ((key, element) for kind, key, element in answer["value"] if kind == "append")


class Orders:
    """Of each list, as the longest read has it."""

    def __init__(self, history: Sequence[Answer]) -> None:
        self.of: dict[int, list[int]] = {}
        for answer in history:
            for key, elements in reads_of(answer):
                if len(elements) > len(self.of.get(key, ())):
                    self.of[key] = elements
        self.place = {(key, element): at for key, order in self.of.items() for at, element in enumerate(order)}

    def violations(self, history: Sequence[Answer]) -> Iterator[str]:
        """Every other read must be its beginning."""
        for key, order in self.of.items():
            if len(set(order)) < len(order):
                yield f"list {key} has an element twice: {order}"
        for answer in history:
            for key, elements in reads_of(answer):
                if elements and self.of[key][:len(elements)] != elements:
                    yield f"list {key} was read as {elements} and as {self.of[key]}"


def inner_violations(answer: Answer) -> Iterator[str]:
    """A transaction sees what it has appended itself, and nothing new of others between two of its reads."""
    known: dict[int, list[int]] = {}  # as it was last read, and with what was appended since
    appended: dict[int, list[int]] = defaultdict(list)  # before the first read
    for kind, key, value in answer["value"]:
        if kind == "append":
            (known if key in known else appended)[key].append(value)
            continue
        own = appended[key]
        expected = known.get(key, value[:len(value) - len(own)] + own)
        if value != expected:
            yield f"{answer} has read {value} of list {key}, and would see {expected} by what it has seen and appended"
        known[key] = list(value)


def outcome_violations(history: Sequence[Answer], orders: Orders, writer: dict[tuple[int, int], int]) -> Iterator[str]:
    """What was committed is there, and nothing else."""
    for number, answer in enumerate(history):
        appended = list(appends_of(answer))
        for each in appended:
            if writer[each] != number:
                yield f"{each} was appended twice"
        found = sum(each in orders.place for each in appended)
        if answer["type"] == "fail" and found:
            yield f"{answer} has not happened, and was seen"
        if answer["type"] == "ok" and found < len(appended):
            yield f"{answer} was committed, and is not there"
        if answer["type"] == "info" and 0 < found < len(appended):
            yield f"{answer} is there in part"
    for each in orders.place:
        if each not in writer:
            yield f"{each} was read, and nobody has appended it"


def dependencies(history: Sequence[Answer], orders: Orders, writer: dict[tuple[int, int], int]) -> Edges:
    edges: Edges = defaultdict(set)
    for key, order in orders.of.items():
        for first, second in zip(order, order[1:]):
            edges[writer[key, first]].add(writer[key, second])
    for number, answer in enumerate(history):
        for key, elements in reads_of(answer):
            if elements:
                edges[writer[key, elements[-1]]].add(number)
            order = orders.of.get(key, [])
            if len(elements) < len(order):
                edges[number].add(writer[key, order[len(elements)]])
    for node, targets in edges.items():
        targets.discard(node)  # its own appends
    return edges


def add_time(history: Sequence[Answer], counted: Sequence[int], edges: Edges) -> int:
    """Who had its answer comes before a moment, and the moment before who begins later: two edges for each instead of
    one for each pair. Returns how many nodes there are with the moments. Who ends when another begins is not before."""
    events = sorted([(history[number]["begin"], 0, number) for number in counted] +
                    [(history[number]["end"], 1, number) for number in counted if history[number]["type"] == "ok"])
    moment = nodes = len(history)
    for _, ends, number in events:
        if nodes > moment:
            edges[nodes - 1].add(nodes if ends else number)
        if ends:
            edges[number].add(nodes)
            nodes += 1
    return nodes


def cycle(edges: Edges, nodes: int) -> list[int]:
    """One of them, in its order; empty: there is none."""
    before = [0] * nodes
    for targets in edges.values():
        for target in targets:
            before[target] += 1
    ready = [node for node in range(nodes) if before[node] == 0]
    while ready:
        for target in edges.get(ready.pop(), ()):
            before[target] -= 1
            if before[target] == 0:
                ready.append(target)
    left = {node for node in range(nodes) if before[node] > 0}
    if not left:
        return []
    # Each of them has somebody before it among them: whoever goes back from one to the next meets one again.
    back = {target: node for node in left for target in edges.get(node, ()) if target in left}
    path: dict[int, int] = {}  # and which place each has
    at = next(iter(left))
    while at not in path:
        path[at] = len(path)
        at = back[at]
    return [node for node, place in path.items() if place >= path[at]][::-1]


def violations(history: Sequence[Answer]) -> list[str]:
    """The history should end with a read of every list. Empty: none."""
    orders = Orders(history)
    writer = {each: number for number, answer in enumerate(history) for each in appends_of(answer)}
    wrong = [*orders.violations(history), *outcome_violations(history, orders, writer)]
    for answer in history:
        if answer["type"] == "ok":
            wrong += inner_violations(answer)
    if wrong:
        return wrong
    counted = [number for number, answer in enumerate(history) if answer["type"] == "ok" or
               (answer["type"] == "info" and any(each in orders.place for each in appends_of(answer)))]
    edges = dependencies(history, orders, writer)
    nodes = add_time(history, counted, edges)
    return [f"in a cycle, each before the next: {history[node]}" for node in cycle(edges, nodes) if node < len(history)]
