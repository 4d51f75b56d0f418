"""YAML files as values that know where they stand, so that every complaint can say file:line:column.

Refuses what a sweep file never needs: anchors, aliases, tags, duplicate keys, second documents.
"""

import difflib
import math
from collections.abc import Sequence
from typing import Any

import yaml
from yaml.error import Mark as Mark

from islands_command import Document

Scalar = str | int | float | None


def line_and_column(mark: Mark | None) -> str:
    return f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"


class BadFile(Exception):
    """Everything that is wrong with a file, a line each: file:line:column: found ..., expected ..."""


class Node:
    """A value of the file: `value` is a str, int, float, bool, None, a list of Nodes, or a dict str -> Node."""

    def __init__(self, value: Scalar | list["Node"] | dict[str, "Node"], mark: Mark | None, end: Mark | None,
                 key_mark: Mark | None = None) -> None:
        self.value, self.mark, self.end, self.key_mark = value, mark, end, key_mark or mark

    def plain(self) -> Any:
        if isinstance(self.value, dict):
            return self.plain_mapping()
        return [node.plain() for node in self.value] if isinstance(self.value, list) else self.value

    def mapping(self) -> dict[str, "Node"]:
        assert isinstance(self.value, dict), "Reader.get or Reader.tree has seen to it"
        return self.value

    def sequence(self) -> list["Node"]:
        assert isinstance(self.value, list), "Reader.get has seen to it"
        return self.value

    def plain_mapping(self) -> Document:
        return {name: node.plain() for name, node in self.mapping().items()}

    def kind(self) -> str:
        kinds: dict[type, str] = {dict: "a mapping", list: "a list", type(None): "nothing"}
        return kinds.get(type(self.value), f"'{self.value}'")


class Reader:
    """Reads a file; collects complaints, and raises all of them at once."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.complaints: list[str] = []
        try:
            with open(file, encoding="utf-8") as source:
                self.text = source.read()
        except (OSError, UnicodeDecodeError) as error:
            raise BadFile(f"{file}: cannot be read: {error}") from None

    def complain(self, mark: Mark | None, found: str, expected: str) -> None:
        where = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        self.complaints.append(f"{self.file}:{where}: found {found}, expected {expected}")

    def finish(self) -> None:
        if self.complaints:
            raise BadFile("\n".join(self.complaints))

    def tree(self) -> Node:
        """The top mapping."""
        try:
            for event in yaml.parse(self.text, Loader=yaml.SafeLoader):
                if getattr(event, "anchor", None) is not None:
                    self.complain(event.start_mark, "an anchor or alias", "the value itself")
                    self.finish()
            node = yaml.compose(self.text, Loader=yaml.SafeLoader)
            top = self.convert(node) if node is not None else Node(None, None, None)
        except yaml.MarkedYAMLError as error:
            self.complain(error.problem_mark or error.context_mark, error.problem or "no YAML", "YAML")
            self.finish()
        except (yaml.YAMLError, RecursionError) as error:
            raise BadFile(f"{self.file}:1:1: found no YAML ({error}), expected YAML") from None
        if not isinstance(top.value, dict):
            self.complain(top.mark, top.kind(), "a mapping")
        self.finish()
        return top

    def convert(self, node: yaml.Node) -> Node:
        if isinstance(node, yaml.MappingNode):
            found: dict[str, Node] = {}
            for key, value in node.value:
                name = key.value
                if not isinstance(key, yaml.ScalarNode) or not isinstance(name, str):
                    self.complain(key.start_mark, "a key that is no word", "a word")
                elif name in found:
                    self.complain(key.start_mark, f"key '{name}' again", "every key once")
                else:
                    found[name] = self.convert(value)
                    found[name].key_mark = key.start_mark
            return Node(found, node.start_mark, node.end_mark)
        if isinstance(node, yaml.SequenceNode):
            return Node([self.convert(item) for item in node.value], node.start_mark, node.end_mark)
        loader = yaml.SafeLoader("")
        try:
            value = loader.construct_object(node)
        except yaml.YAMLError:
            value = node.value
            self.complain(node.start_mark, f"tag {node.tag}", "none")
        if not isinstance(value, (str, int, float, type(None))):
            value = node.value  # a date, say
        if isinstance(value, float) and not math.isfinite(value):
            self.complain(node.start_mark, f"'{node.value}'", "a finite number")
            value = 0.0
        return Node(value, node.start_mark, node.end_mark)

    def only(self, node: Node, names: Sequence[str]) -> None:
        """Complains of keys that are not among `names`."""
        for name, value in node.mapping().items():
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                self.complain(value.key_mark, f"unknown key '{name}'",
                              f"'{near[0]}'?" if near else f"one of {', '.join(names)}")

    def get(self, node: Node, name: str, kinds: tuple[type, ...], expected: str,
            default: Node | None = None) -> Node | None:
        """The Node `name` of a mapping if it is of one of `kinds`; None, and a complaint, if it is something else."""
        child = node.mapping().get(name)
        if child is None:
            return default
        if isinstance(child.value, kinds) and not (isinstance(child.value, bool) and bool not in kinds):
            return child
        self.complain(child.mark, child.kind(), expected)
        return default

    def number(self, node: Node, name: str, low: float, high: float, default: float) -> float:
        return self.within(node, name, (int, float), "a number", low, high, default)

    def whole(self, node: Node, name: str, low: int, high: int, default: int) -> int:
        return int(self.within(node, name, (int,), "a whole number", low, high, default))

    def within(self, node: Node, name: str, kinds: tuple[type, ...], what: str, low: float, high: float,
               default: float) -> float:
        expected = f"{what} from {low:,} to {high:,}"
        child = self.get(node, name, kinds, expected)
        if child is None:
            return default
        if isinstance(child.value, (int, float)) and low <= child.value <= high:
            return child.value
        self.complain(child.mark, child.kind(), expected)
        return default
