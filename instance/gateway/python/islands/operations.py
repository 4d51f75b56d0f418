"""What can be done with rows: by a client, in a transaction, in a batch."""

from typing import Any, Optional

from islands import values
from islands.values import Key, Result, Row


class Operations:
    """One method for each operation; what they do with it is the subclass's business."""

    def _one(self, operation: Any) -> Result:
        raise NotImplementedError

    def get(self, table: str, key: Key, for_update: bool = False) -> Optional[bytes]:
        """None: there is no such row. `for_update`: takes the lock that a later change of the row needs."""
        return self._one(values.get(table, key, for_update)).value

    def put(self, table: str, key: Key, value: bytes) -> None:
        """Whether the row is there or not."""
        self._one(values.put(table, key, value))

    def insert(self, table: str, key: Key, value: bytes) -> bool:
        """A row that must not be there yet."""
        return self._one(values.insert(table, key, value)).found

    def replace(self, table: str, key: Key, value: bytes) -> bool:
        """A row that must be there."""
        return self._one(values.replace(table, key, value)).found

    def delete(self, table: str, key: Key, may_miss: bool = False) -> bool:
        return self._one(values.delete(table, key, may_miss)).found

    def add(self, table: str, key: Key, delta: int, offset: int = 0) -> int:
        """To the signed 64-bit little-endian integer at `offset` of a row that must be there; returns the sum."""
        return self._one(values.add(table, key, delta, offset)).number

    def scan(self, table: str, begin: Optional[Key] = None, end: Optional[Key] = None, limit: int = 0,
             reverse: bool = False) -> tuple[Row, ...]:
        """Rows with begin <= key < end, in key order."""
        return self._one(values.scan(table, begin, end, limit, reverse)).rows

    def index_scan(self, table: str, index: str, at: Key, begin: Optional[Key] = None, end: Optional[Key] = None,
                   limit: int = 0, reverse: bool = False) -> tuple[Row, ...]:
        """Indexes are local to a partition: that of `at`, a key or its first part."""
        return self._one(values.index_scan(table, index, at, begin, end, limit, reverse)).rows


class Batch:
    """Operations that are one transaction; each method returns the number of its result."""

    def __init__(self) -> None:
        self.operations: list[Any] = []

    def _add(self, operation: Any) -> int:
        self.operations.append(operation)
        return len(self.operations) - 1

    def get(self, table: str, key: Key, for_update: bool = False) -> int:
        return self._add(values.get(table, key, for_update))

    def put(self, table: str, key: Key, value: bytes) -> int:
        return self._add(values.put(table, key, value))

    def insert(self, table: str, key: Key, value: bytes) -> int:
        return self._add(values.insert(table, key, value))

    def replace(self, table: str, key: Key, value: bytes) -> int:
        return self._add(values.replace(table, key, value))

    def delete(self, table: str, key: Key, may_miss: bool = False) -> int:
        return self._add(values.delete(table, key, may_miss))

    def add(self, table: str, key: Key, delta: int, offset: int = 0) -> int:
        return self._add(values.add(table, key, delta, offset))

    def scan(self, table: str, begin: Optional[Key] = None, end: Optional[Key] = None, limit: int = 0,
             reverse: bool = False) -> int:
        return self._add(values.scan(table, begin, end, limit, reverse))

    def index_scan(self, table: str, index: str, at: Key, begin: Optional[Key] = None, end: Optional[Key] = None,
                   limit: int = 0, reverse: bool = False) -> int:
        return self._add(values.index_scan(table, index, at, begin, end, limit, reverse))
