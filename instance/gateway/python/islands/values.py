"""Keys, rows and operations as Python has them, and as the gateway does."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

from islands import errors
from islands._generated import client_pb2 as pb

KeyPart = Union[int, str, bytes]
Key = Union[KeyPart, tuple[KeyPart, ...]]  # one part for each component of the table's key


@dataclasses.dataclass(frozen=True)
class Row:
    key: Key
    value: bytes


@dataclasses.dataclass(frozen=True)
class Result:
    """What became of an operation."""
    found: bool                     # get: the row is there; writes: they found what they need
    value: Optional[bytes] = None   # of a get that found its row
    number: int = 0                 # of an add: the sum
    rows: tuple[Row, ...] = ()      # of a scan


class Results(list[Result]):
    """One for each operation. `earlier`: a request with this token had been committed before, and this one has changed
    nothing; what the operations found nobody knows any more, so there are no results."""

    def __init__(self, results: Iterable[Result] = (), earlier: bool = False) -> None:
        super().__init__(results)
        self.earlier = earlier

    def __getitem__(self, number: Any) -> Any:
        if self.earlier:
            raise LookupError("it was committed by an earlier request with this token: its results are not known")
        return super().__getitem__(number)


def number_in(what: str, value: int, least: int, greatest: int) -> int:
    """Whoever is told what a call takes need not ask what a ValueError of protobuf's means."""
    if not least <= value <= greatest:
        raise errors.InvalidRequest(f"{what}: found {value}, expected a whole number from {least} to {greatest}")
    return value


def to_key(key: Key) -> Any:
    message = pb.Key()
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, bool) or not isinstance(part, (int, str, bytes)):
            raise TypeError(f"a key has parts of int, str or bytes, not {type(part).__name__}")
        if isinstance(part, int):
            number_in("key", part, -(1 << 63), (1 << 64) - 1)
            message.parts.add(**({"unsigned": part} if part >= 0 else {"signed": part}))
        else:
            message.parts.add(text=part.encode() if isinstance(part, str) else part)
    return message


def bound(key: Optional[Key]) -> Any:
    return pb.Key() if key is None else to_key(key)


def from_key(message: Any) -> Key:
    """Text comes back as str where it is UTF-8."""
    parts: list[KeyPart] = []
    for part in message.parts:
        value = getattr(part, part.WhichOneof("part"))
        if isinstance(value, bytes):
            try:
                value = value.decode()
            except UnicodeDecodeError:
                pass
        parts.append(value)
    return parts[0] if len(parts) == 1 else tuple(parts)


def from_result(operation: Any, message: Any) -> Result:
    found = message.code == pb.Result.DONE
    kind = operation.WhichOneof("kind")
    return Result(found, value=message.value if kind == "get" and found else None, number=message.number,
                  rows=tuple(Row(from_key(row.key), row.value) for row in message.rows))


def from_results(operations: Sequence[Any], messages: Iterable[Any]) -> Results:
    return Results(from_result(operation, message) for operation, message in zip(operations, messages))


def place_of(operation: Any) -> Any:
    """The key where a token is kept, of a transaction that begins with this operation."""
    kind = operation.WhichOneof("kind")
    body = getattr(operation, kind)
    return body.begin if kind == "scan" else body.at if kind == "index_scan" else body.key


def change(operations: Iterable[Any]) -> bool:
    """Whether something may be left of a transaction with these."""
    return any(operation.WhichOneof("kind") not in ("get", "scan", "index_scan") for operation in operations)


# ---- operations

def get(table: str, key: Key, for_update: bool = False) -> Any:
    return pb.Operation(table=table, get=pb.Get(key=to_key(key), for_update=for_update))


def put(table: str, key: Key, value: bytes) -> Any:
    return pb.Operation(table=table, put=pb.Put(key=to_key(key), value=value))


def insert(table: str, key: Key, value: bytes) -> Any:
    return pb.Operation(table=table, insert=pb.Insert(key=to_key(key), value=value))


def replace(table: str, key: Key, value: bytes) -> Any:
    return pb.Operation(table=table, replace=pb.Replace(key=to_key(key), value=value))


def delete(table: str, key: Key, may_miss: bool = False) -> Any:
    operation = pb.Operation(table=table)
    operation.delete.key.CopyFrom(to_key(key))
    operation.delete.may_miss = may_miss
    return operation


def add(table: str, key: Key, delta: int, offset: int = 0) -> Any:
    number_in("delta", delta, -(1 << 63), (1 << 63) - 1)
    number_in("offset", offset, 0, (1 << 32) - 1)
    return pb.Operation(table=table, add=pb.Add(key=to_key(key), delta=delta, offset=offset))


def scan(table: str, begin: Optional[Key] = None, end: Optional[Key] = None, limit: int = 0,
         reverse: bool = False) -> Any:
    number_in("limit", limit, 0, (1 << 32) - 1)
    return pb.Operation(table=table, scan=pb.Scan(begin=bound(begin), end=bound(end), limit=limit, reverse=reverse))


def index_scan(table: str, index: str, at: Key, begin: Optional[Key] = None, end: Optional[Key] = None,
               limit: int = 0, reverse: bool = False) -> Any:
    number_in("limit", limit, 0, (1 << 32) - 1)
    return pb.Operation(table=table, index_scan=pb.IndexScan(index=index, at=to_key(at), begin=bound(begin),
                                                             end=bound(end), limit=limit, reverse=reverse))
