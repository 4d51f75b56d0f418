"""Rows in files: CSV with a header, or JSON Lines, an object a line.

Columns are the names of the key's parts and of the fields. Numbers are numbers. Text is UTF-8 as it is; bytes are text,
too, with \\xff for those that are none, and zeros follow where all have the same length. Whatever is written is read
again as the same row.
"""

import csv
import dataclasses
import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, Optional, TextIO, Union

from gateway_tool import Usage

import islands
from islands.fields import RowDict, Value

WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}


def to_bytes(text: str) -> bytes:
    return text.encode().decode("unicode_escape").encode("latin-1") if "\\" in text else text.encode()


def escaped(value: bytes) -> str:
    """What to_bytes makes the same bytes of."""
    def shown(character: str) -> str:
        if character.isprintable() and character != "\\":
            return character
        return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))

    return "".join(map(shown, value.decode(errors="surrogateescape")))


@dataclasses.dataclass
class Line:
    number: int               # of the first one, if a row takes several
    text: str                 # as it stands in the file
    key: Optional[islands.Key] = None
    value: bytes = b""
    wrong: str = ""           # why it is no row of the table
    unsure: bool = False      # it may have been written already


class Cells:
    """How one table's values are written in files."""

    def __init__(self, fields: islands.Fields) -> None:
        self.fields = fields
        self.types = dict(zip(fields.key_names, fields.table.key))
        self.of_field = {field.name: field for field in fields.fields}

    def value(self, name: str, cell: Any) -> Any:
        """What makes no sense stays what it is: Fields complains of it."""
        field = self.of_field.get(name)
        kind = field.kind if field else self.types.get(name, "")
        if not isinstance(cell, str):
            return cell
        try:
            if "int" in kind:
                return int(cell) if WHOLE.fullmatch(cell.strip()) else cell
            if kind == "double":
                return float(cell)
            if kind == "bytes" and field:
                return to_bytes(cell).ljust(field.bytes, b"\0")
            return cell if field else self.key_text(cell)
        except ValueError:
            return cell

    def key_text(self, cell: str) -> Value:
        try:
            cell.encode()
        except UnicodeEncodeError:  # keys may be any bytes
            return cell.encode(errors="surrogateescape")
        return cell

    def cell(self, name: str, value: Value) -> Union[int, float, str]:
        if isinstance(value, bytes):
            field = self.of_field.get(name)
            if field is None:
                return value.decode(errors="surrogateescape")
            return escaped(value.rstrip(b"\0") if field.bytes else value)
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    def fill(self, line: Line, row: RowDict) -> Line:
        try:
            line.key, line.value = self.fields.key(row), self.fields.encode(row)
        except islands.InvalidRequest as error:
            line.wrong = str(error)
        return line


class Tape:
    """Lines of a file; remembers those that were taken since the last cut."""

    def __init__(self, file: Iterable[str]) -> None:
        self.lines, self.number, self.taken = iter(file), 0, [""]

    def __iter__(self) -> "Tape":
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        self.number += 1
        self.taken.append(line)
        return line

    def cut(self) -> Line:
        line = Line(self.number - len(self.taken) + 2, "".join(self.taken))
        self.taken = [""]
        return line


def read_csv(file: TextIO, cells: Cells) -> Iterator[Line]:
    """The first one is the header, which has no key and is not wrong."""
    tape = Tape(file)
    reader = csv.reader(tape, strict=True)
    expected = cells.fields.names
    try:
        names = next(reader, list[str]())
    except csv.Error as error:
        raise Usage(f"line 1: not CSV: {error}") from None
    if sorted(names) != sorted(expected):
        raise Usage(f"line 1: found the columns {', '.join(names) or 'none'}, expected {', '.join(expected)}")
    yield tape.cut()
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            line = tape.cut()
            line.wrong = f"not CSV: {error}"
            yield line
            continue
        line = tape.cut()
        if len(row) == len(names):
            yield cells.fill(line, {name: cells.value(name, cell) for name, cell in zip(names, row)})
        elif row:  # an empty line is none
            line.wrong = f"found {len(row)} columns, expected {len(names)}"
            yield line


def read_jsonl(file: TextIO, cells: Cells) -> Iterator[Line]:
    for number, text in enumerate(file, 1):
        if not text.strip():
            continue
        line = Line(number, text)
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            line.wrong = f"not JSON: {error}"
        else:
            if isinstance(row, dict):
                cells.fill(line, {name: cells.value(name, cell) for name, cell in row.items()})
            else:
                line.wrong = "found no object, expected one with " + ", ".join(cells.fields.names)
        yield line


READERS = {"csv": read_csv, "jsonl": read_jsonl}


class Writer:
    def __init__(self, file: TextIO, form: str, cells: Cells) -> None:
        self.file, self.cells = file, cells
        self.csv = csv.writer(file, lineterminator="\n") if form == "csv" else None
        if self.csv:
            self.csv.writerow(cells.fields.names)

    def write(self, row: RowDict) -> None:
        shown = {name: self.cells.cell(name, row[name]) for name in self.cells.fields.names}
        if self.csv:
            self.csv.writerow(shown.values())
        else:
            self.file.write(json.dumps(shown, ensure_ascii=False) + "\n")
