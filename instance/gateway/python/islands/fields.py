"""Rows as dictionaries: names of the key's components and of fields, and what they are.

A row is its fields one after the other, without gaps: numbers little-endian, text as UTF-8, zeros after what is shorter
than its field. A table that does not say what its rows hold has one field, `value`, of bytes; the components of a key
without names are called `key`, or `key0`, `key1`.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Union

from islands import errors, tables
from islands.tables import INTEGER, Field, Table
from islands.values import Key, KeyPart, Row

Value = Union[int, float, str, bytes]
RowDict = dict[str, Value]


def limits(type_name: str) -> tuple[int, int]:
    """Of an integer type: the least and the greatest."""
    match = INTEGER.fullmatch(type_name)
    if match is None:
        raise errors.InvalidRequest(f"found the type '{type_name}', expected that of an integer")
    bits = int(match[2])
    return (0, (1 << bits) - 1) if match[1] else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


class Fields:
    """Of one table. `key_names` and `fields`: what there is in a row's dictionary."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.fields = table.fields or (Field("value", f"bytes:{table.row_bytes}" if table.row_bytes else "bytes"),)
        self.key_names = table.key_names or (
            ("key",) if len(table.key) == 1 else tuple(f"key{number}" for number in range(len(table.key))))
        self.names = (*self.key_names, *(field.name for field in self.fields))
        if len(set(self.names)) < len(self.names):
            raise errors.InvalidRequest(f"table '{table.name}': found a name twice in {', '.join(self.names)}")
        self._offsets = dict(zip((field.name for field in self.fields), tables.offsets(self.fields)))

    def encode(self, row: Mapping[str, Value]) -> bytes:
        """Its fields: all of them. Beside them it may have parts of the key."""
        self._check_names(row, self._offsets)
        return b"".join(self._encoded(field, row[field.name]) for field in self.fields)

    def decode(self, row: bytes) -> RowDict:
        fixed = tables.bytes_of(self.fields)
        least = sum(field.bytes for field in self.fields)
        if len(row) < least or (fixed and len(row) != fixed):
            raise errors.InvalidRequest(f"table '{self.table.name}': a row of {len(row)} bytes, expected "
                                        f"{fixed or f'at least {least}'} by its fields")
        return {field.name: self._decoded(field, row) for field in self.fields}

    def key(self, row: Mapping[str, Value]) -> Key:
        """Of a row, by the names of its components."""
        self._check_names(row, self.key_names)
        parts = tuple(self._key_part(name, kind, row[name]) for name, kind in zip(self.key_names, self.table.key))
        return parts[0] if len(parts) == 1 else parts

    def of_row(self, row: Row) -> RowDict:
        """Key and fields."""
        parts = row.key if isinstance(row.key, tuple) else (row.key,)
        return {**dict(zip(self.key_names, parts)), **self.decode(row.value)}

    def offset(self, name: str) -> int:
        """For `add`: of a field of type int64."""
        field = next((field for field in self.fields if field.name == name), None)
        if field is None or field.type != "int64":
            raise errors.InvalidRequest(f"table '{self.table.name}': found '{name}', expected a field of type int64")
        return self._offsets[name]

    def _check_names(self, row: Mapping[str, Value], needed: Iterable[str]) -> None:
        missing = [name for name in needed if name not in row]
        unknown = [str(name) for name in row if name not in self.names]
        if missing or unknown:
            what = f"found no {', '.join(missing)}" if missing else f"found {', '.join(unknown)}"
            raise errors.InvalidRequest(f"table '{self.table.name}': {what}, expected {', '.join(self.names)}")

    def _wrong(self, name: str, value: object, expected: str) -> errors.InvalidRequest:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        return errors.InvalidRequest(f"table '{self.table.name}', {name}: found {shown}, expected {expected}")

    def _integer(self, name: str, kind: str, value: Value) -> int:
        least, greatest = limits(kind)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= greatest:
            raise self._wrong(name, value, f"{kind}: a whole number from {least} to {greatest}")
        return value

    def _utf8(self, name: str, value: str) -> bytes:
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise self._wrong(name, value, "text that UTF-8 has") from None

    def _key_part(self, name: str, kind: str, value: Value) -> KeyPart:
        if kind != "string":
            return self._integer(name, kind, value)
        if not isinstance(value, (str, bytes)):
            raise self._wrong(name, value, "text")
        if isinstance(value, str):
            self._utf8(name, value)
        return value

    def _encoded(self, field: Field, value: Value) -> bytes:
        if INTEGER.fullmatch(field.type):
            number = self._integer(field.name, field.kind, value)
            return number.to_bytes(field.bytes, "little", signed=not field.kind.startswith("u"))
        if field.kind == "double":
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise self._wrong(field.name, value, "a number")
            try:
                return struct.pack("<d", value)
            except (OverflowError, struct.error):
                raise self._wrong(field.name, value, "a number that a double can hold") from None
        if field.kind == "string":
            return self._text(field, value)
        if not isinstance(value, bytes) or (field.bytes and len(value) != field.bytes):
            raise self._wrong(field.name, value, f"bytes, {field.bytes} of them" if field.bytes else "bytes")
        return value

    def _text(self, field: Field, value: Value) -> bytes:
        if not isinstance(value, str):
            raise self._wrong(field.name, value, "text")
        text = self._utf8(field.name, value)
        if not field.bytes:
            return text
        if len(text) > field.bytes:
            raise self._wrong(field.name, value, f"at most {field.bytes} bytes as UTF-8, not {len(text)}")
        if text.endswith(b"\0"):
            raise self._wrong(field.name, value, "text that does not end with a zero: zeros fill the field")
        return text.ljust(field.bytes, b"\0")

    def _decoded(self, field: Field, row: bytes) -> Value:
        begin = self._offsets[field.name]
        part = row[begin:begin + field.bytes] if field.bytes else row[begin:]
        if INTEGER.fullmatch(field.type):
            return int.from_bytes(part, "little", signed=not field.kind.startswith("u"))
        if field.kind == "double":
            return float(struct.unpack("<d", part)[0])
        if field.kind == "bytes":
            return part
        # Whoever wrote it otherwise may have written no UTF-8: nothing of it is lost, but it is refused as a new value.
        return (part.rstrip(b"\0") if field.bytes else part).decode(errors="surrogateescape")
