"""Rows of a table as dictionaries."""

from collections.abc import Mapping
from typing import Optional

from islands.fields import Fields, RowDict, Value
from islands.operations import Operations
from islands.tables import Table
from islands.values import Key, Row


class Rows:
    """One table's, each a dictionary of its key's parts and its fields; by a client, or `on` a transaction.

    Keys alone are as everywhere: one part, or a tuple of them. It goes by what the table was when it was asked for.
    """

    def __init__(self, speaker: Operations, table: Table) -> None:
        self.table, self.fields = table, Fields(table)
        self._speaker = speaker

    def on(self, transaction: Operations) -> "Rows":
        """The same in a transaction that is open."""
        return Rows(transaction, self.table)

    def get(self, key: Key, for_update: bool = False) -> Optional[RowDict]:
        value = self._speaker.get(self.table.name, key, for_update)
        return None if value is None else self.fields.of_row(Row(key, value))

    def put(self, row: Mapping[str, Value]) -> None:
        self._speaker.put(self.table.name, self.fields.key(row), self.fields.encode(row))

    def insert(self, row: Mapping[str, Value]) -> bool:
        return self._speaker.insert(self.table.name, self.fields.key(row), self.fields.encode(row))

    def replace(self, row: Mapping[str, Value]) -> bool:
        return self._speaker.replace(self.table.name, self.fields.key(row), self.fields.encode(row))

    def delete(self, key: Key, may_miss: bool = False) -> bool:
        return self._speaker.delete(self.table.name, key, may_miss)

    def add(self, key: Key, field: str, delta: int) -> int:
        """To a field of type int64; returns the sum."""
        return self._speaker.add(self.table.name, key, delta, self.fields.offset(field))

    def scan(self, begin: Optional[Key] = None, end: Optional[Key] = None, limit: int = 0,
             reverse: bool = False) -> list[RowDict]:
        return [self.fields.of_row(row)
                for row in self._speaker.scan(self.table.name, begin, end, limit, reverse)]

    def index_scan(self, index: str, at: Key, begin: Optional[Key] = None, end: Optional[Key] = None, limit: int = 0,
                   reverse: bool = False) -> list[RowDict]:
        return [self.fields.of_row(row)
                for row in self._speaker.index_scan(self.table.name, index, at, begin, end, limit, reverse)]
