"""A deployment file with other settings, the rest as its author wrote it: comments, order and style."""

from collections.abc import Sequence

import yaml

from sweeping.tree import Node, Scalar


def in_yaml(value: Scalar) -> str:
    text: str = yaml.safe_dump([value], default_flow_style=True)  # quoted as a mapping in braces needs it, too
    return text.strip()[1:-1]


def with_setting(text: str, top: Node, path: Sequence[str], value: Scalar) -> str:
    """`text`, of which `top` is the tree, with `value` at `path`, a path of keys, which may lack."""
    node, keys = top, list(path)
    while keys and isinstance(node.value, dict) and keys[0] in node.value:
        node = node.value[keys.pop(0)]
    assert node.mark is not None and node.end is not None, "only an empty file's top has none, which is no mapping"
    if not keys or not isinstance(node.value, dict):  # there, or a key without a value: `storage:`
        begin, end = node.mark.index, node.end.index
        if not keys:
            return text[:begin] + in_yaml(value) + text[end:]
        return f"{text[:begin]} {{{flow(keys, value)}}}{text[end:]}"
    begin = node.mark.index
    if text[begin] == "{":
        return f"{text[:begin + 1]}{flow(keys, value)}{', ' if node.value else ''}{text[begin + 1:]}"
    second = [*node.value.values()][1:2]  # after the first key, which is `version` in most files
    if second and second[0].key_mark:
        begin = second[0].key_mark.index
    return f"{text[:begin]}{flow(keys, value)}\n{' ' * node.mark.column}{text[begin:]}"


def flow(keys: Sequence[str], value: Scalar) -> str:
    """`a: {b: value}` on one line."""
    first, *rest = keys
    return f"{first}: {{{flow(rest, value)}}}" if rest else f"{first}: {in_yaml(value)}"
