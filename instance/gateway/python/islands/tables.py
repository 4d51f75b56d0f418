"""What tables are: their keys, where they lie, what their rows hold."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

from islands import errors
from islands._generated import client_pb2 as pb
from islands.values import number_in

INTEGER = re.compile(r"(u?)int(8|16|32|64)")


@dataclasses.dataclass(frozen=True)
class Index:
    name: str
    key: tuple[str, ...]  # components: key:COMPONENT, row:OFFSET:TYPE, row:OFFSET:string:BYTES


@dataclasses.dataclass(frozen=True)
class Field:
    name: str
    type: str             # int8..int64, uint8..uint64, double, string:BYTES, bytes:BYTES; the last: string, bytes

    @property
    def kind(self) -> str:
        return self.type.partition(":")[0]

    @property
    def bytes(self) -> int:
        """How many it takes in a row; 0: any, of the last one."""
        integer = INTEGER.fullmatch(self.type)
        if integer:
            return int(integer[2]) // 8
        if self.type == "double":
            return 8
        text = re.fullmatch(r"(?:string|bytes)(?::([1-9][0-9]*))?", self.type)
        if text:
            return int(text[1] or 0)
        raise errors.InvalidRequest(f"field '{self.name}': found the type '{self.type}', expected int8..int64, "
                                    "uint8..uint64, double, string:BYTES, bytes:BYTES; the last one may be string or "
                                    "bytes")


@dataclasses.dataclass(frozen=True)
class Table:
    name: str
    key: tuple[str, ...]                 # types of its components
    range: tuple[int, int] = (0, 0)      # of the first one: [begin, end)
    row_bytes: int = 0                   # 0: any
    replicated: bool = False
    indexes: tuple[Index, ...] = ()
    key_names: tuple[str, ...] = ()      # none, or one for each component
    fields: tuple[Field, ...] = ()       # none, or the whole row

    @property
    def index_names(self) -> list[str]:
        return [index.name for index in self.indexes]


def offsets(fields: Sequence[Field]) -> list[int]:
    """Where in a row each begins: there are no gaps."""
    places, place = [], 0
    for number, field in enumerate(fields):
        if field.bytes == 0 and number + 1 < len(fields):
            raise errors.InvalidRequest(f"field '{field.name}': {field.type} of any length, expected "
                                        f"{field.type}:BYTES: others follow")
        places.append(place)
        place += field.bytes
    return places


def bytes_of(fields: Sequence[Field]) -> int:
    """Of a row; 0: any."""
    fixed = all(field.bytes for field in fields)
    return sum(field.bytes for field in fields) if fixed else 0


def _component(table: Table, index: str, word: str) -> str:
    """`word`: a name of the key or of a field, or a component as the gateway says it."""
    if word.startswith(("key:", "row:")):
        return word
    if word in table.key_names:
        return f"key:{table.key_names.index(word)}"
    names = [field.name for field in table.fields]
    if word not in names:
        known = ", ".join([*table.key_names, *names, "key:COMPONENT", "row:OFFSET:TYPE"])
        raise errors.InvalidRequest(f"index '{index}': found '{word}', expected one of {known}")
    field = table.fields[names.index(word)]
    if not (INTEGER.fullmatch(field.type) or (field.kind == "string" and field.bytes)):
        raise errors.InvalidRequest(f"index '{index}': field '{word}' is {field.type}, expected an integer or "
                                    "string:BYTES")
    return f"row:{offsets(table.fields)[names.index(word)]}:{field.type}"


def describe(name: str, key: "Mapping[str, str] | Sequence[str]", range: Optional[tuple[int, int]] = None,
             fields: Optional[Mapping[str, str]] = None, indexes: Optional[Mapping[str, Sequence[str]]] = None,
             row_bytes: int = 0, replicated: bool = False) -> Table:
    """`key`: {"id": "uint64"}, name and type of each component, or types alone, or the only one's. `range`: may be left
    out of a replicated table only. `fields`: {"balance": "int64"}. `indexes`: {"by_owner": ["owner", "id"]}, names of
    fields or of the key's components, or `key:0`, `row:8:uint32`."""
    named = isinstance(key, Mapping)
    types = tuple(key.values()) if isinstance(key, Mapping) else (key,) if isinstance(key, str) else tuple(key)
    parts = tuple(Field(each, kind) for each, kind in (fields or {}).items())
    offsets(parts)
    table = Table(name, types, range or (0, 0), row_bytes or bytes_of(parts), replicated,
                  key_names=tuple(key) if named else (), fields=parts)
    described = dataclasses.replace(table, indexes=tuple(
        Index(index, tuple(_component(table, index, word) for word in words))
        for index, words in (indexes or {}).items()))
    if range is None and not replicated:
        raise errors.InvalidRequest(f"table '{name}': found no range, expected FIRST and END of the key's first "
                                    "component: keys from FIRST to below END")
    _check_numbers(described)
    return described


def _check_numbers(table: Table) -> None:
    """That a message can hold them; whether they make sense islands say."""
    for bound in table.range:
        number_in(f"table '{table.name}', range", bound, -(1 << 63), (1 << 63) - 1)
    number_in(f"table '{table.name}', row_bytes", table.row_bytes, 0, (1 << 32) - 1)


def as_table(table: Union[Table, str], description: Mapping[str, Any]) -> Table:
    if isinstance(table, str):
        return describe(table, **description)
    if description:
        raise TypeError(f"a Table says all there is to say; found {', '.join(description)} beside it")
    return table


def from_message(message: Any) -> Table:
    return Table(message.name, tuple(message.key), (message.range_begin, message.range_end), message.row_bytes,
                 message.replicated, tuple(Index(index.name, tuple(index.key)) for index in message.indexes),
                 tuple(message.key_names), tuple(Field(field.name, field.type) for field in message.fields))


def to_message(table: Table) -> Any:
    _check_numbers(table)
    return pb.Table(name=table.name, key=table.key, range_begin=table.range[0], range_end=table.range[1],
                    row_bytes=table.row_bytes, replicated=table.replicated,
                    indexes=[pb.Index(name=index.name, key=index.key) for index in table.indexes],
                    key_names=table.key_names,
                    fields=[pb.Field(name=field.name, type=field.type) for field in table.fields])


def named(tables: Sequence[Table], name: str) -> Table:
    found = next((table for table in tables if table.name == name), None)
    if found is None:
        raise errors.InvalidRequest(f"there is no table '{name}', but "
                                    f"{', '.join(table.name for table in tables) or 'none at all'}")
    return found
