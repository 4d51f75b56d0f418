"""Procedures of loaded workloads: what there are, their arguments and results."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Union

from islands import errors
from islands._generated import client_pb2 as pb

Scalar = Union[int, float, str, bytes]  # int64, double, text


@dataclasses.dataclass(frozen=True)
class NamedType:
    name: str
    type: str  # int64, double, text


@dataclasses.dataclass(frozen=True)
class Procedure:
    name: str                         # WORKLOAD.PROCEDURE
    about: str
    arguments: tuple[NamedType, ...]
    results: tuple[NamedType, ...]
    home_table: str                   # the first argument is the first part of a key of it: there it begins

    def __str__(self) -> str:
        def listed(of: Sequence[NamedType]) -> str:
            return ", ".join(f"{each.name} {each.type}" for each in of)
        return f"{self.name}({listed(self.arguments)}) -> ({listed(self.results)})"


class Answer(tuple[Scalar, ...]):
    """The results of a call. `earlier`: a call with this token had been committed before, and this one has changed
    nothing; what that one answered nobody knows any more, so there are no results."""
    earlier: bool

    def __new__(cls, values: Iterable[Scalar] = (), earlier: bool = False) -> "Answer":
        made = super().__new__(cls, values)  # type: ignore[arg-type]
        made.earlier = earlier
        return made

    def _check(self) -> None:
        if self.earlier:
            raise LookupError("it was committed by an earlier call with this token: its results are not known")

    def __getitem__(self, number: Any) -> Any:
        self._check()
        return super().__getitem__(number)

    def __iter__(self) -> Iterator[Scalar]:
        self._check()
        return super().__iter__()


def to_value(value: Scalar) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, bytes)):
        raise TypeError(f"an argument is an int, float, str or bytes, not {type(value).__name__}")
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise errors.InvalidRequest(f"argument {value}: expected a number that an int64 can hold")
        return pb.Value(number=value)
    if isinstance(value, float):
        return pb.Value(real=value)
    return pb.Value(text=value.encode() if isinstance(value, str) else value)


def from_value(message: Any) -> Scalar:
    """Text comes back as str where it is UTF-8."""
    value: Scalar = getattr(message, message.WhichOneof("kind"))
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def to_request(procedure: str, arguments: Sequence[Scalar], token: Union[bytes, None]) -> Any:
    return pb.CallRequest(procedure=procedure, arguments=map(to_value, arguments), token=token)


def from_response(response: Any) -> Answer:
    return Answer(map(from_value, response.results), response.earlier)


def from_message(message: Any) -> Procedure:
    def named(of: Iterable[Any]) -> tuple[NamedType, ...]:
        return tuple(NamedType(each.name, each.type) for each in of)
    return Procedure(message.name, message.about, named(message.arguments), named(message.results), message.home_table)


def place_of(request: Any, procedures: Iterable[Procedure]) -> Any:
    """An operation where the token of a call is kept."""
    for procedure in procedures:
        if procedure.name == request.procedure and request.arguments:
            key = pb.Key()
            key.parts.add(signed=request.arguments[0].number)
            return pb.Operation(table=procedure.home_table, get=pb.Get(key=key))
    raise errors.InvalidRequest(f"there is no procedure '{request.procedure}'")
