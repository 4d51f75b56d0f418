"""The client for threads; islands.aio is the one for asyncio.

A Client may be used by several threads, a Transaction and a Batch by one.
"""

import queue
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Optional, TypeVar

import grpc

from islands import errors, values
from islands._generated import client_pb2 as pb
from islands._generated import client_pb2_grpc
from islands.values import Key, Result, Row, Table

T = TypeVar("T")
TIMEOUT_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.5
MESSAGE_BYTES = 32 << 20


def tls(authority: bytes, certificate: bytes, key: bytes) -> grpc.ChannelCredentials:
    """For a gateway that listens on TCP: who vouches for it, and the client's own, all PEM."""
    return grpc.ssl_channel_credentials(authority, key, certificate)


def check_address(address: str, credentials: Optional[grpc.ChannelCredentials]) -> None:
    if credentials is None and not address.startswith("unix:"):
        raise errors.InvalidRequest(f"{address}: gateways speak to nobody over TCP who shows no certificate; give "
                                    "credentials=islands.tls(...), or the address of a Unix-domain socket: unix:PATH")


# A gateway that was killed is back in a fraction of a second; gRPC would look again after one.
OPTIONS = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.max_send_message_length", MESSAGE_BYTES),
           ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 1000)]


def connect(address: str, timeout: float = TIMEOUT_S,
            credentials: Optional[grpc.ChannelCredentials] = None) -> "Client":
    """`address`: as `islands status` prints it, unix:PATH or HOST:PORT. `timeout`: of every call, in seconds, unless it
    says another."""
    check_address(address, credentials)
    channel = (grpc.insecure_channel(address, OPTIONS) if credentials is None
               else grpc.secure_channel(address, credentials, OPTIONS))
    return Client(channel, timeout)


class _Operations:
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


def outcome_of(batch: Batch, each: Any) -> "list[Result] | errors.Error":
    if each.code == 0:
        return values.from_results(batch.operations, each.response.results)
    return errors.of_failure(errors.CODES.get(each.code, grpc.StatusCode.UNKNOWN), each.message, each.failure)


class Pauses:
    """Between attempts: at random, and longer each time."""

    def __init__(self) -> None:
        self.longest_s = FIRST_PAUSE_S

    def next_s(self) -> float:
        pause_s = random.uniform(0, self.longest_s)
        self.longest_s = min(2 * self.longest_s, LONGEST_PAUSE_S)
        return pause_s


class Client(_Operations):
    def __init__(self, channel: grpc.Channel, timeout: float) -> None:
        self._channel, self._timeout = channel, timeout
        self._stub = client_pb2_grpc.IslandsStub(channel)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def _one(self, operation: Any) -> Result:
        return self.execute_operations([operation])[0]

    def execute_operations(self, operations: Sequence[Any], timeout: Optional[float] = None) -> list[Result]:
        request = pb.ExecuteRequest(operations=operations)
        try:
            response = self._stub.Execute(request, timeout=timeout or self._timeout)
        except grpc.RpcError as error:
            raise errors.of_rpc(error, may_have_committed=True) from None
        return values.from_results(operations, response.results)

    def execute(self, batch: Batch, timeout: Optional[float] = None) -> list[Result]:
        """All of it as one transaction; ConditionFailed if a write does not find what it needs."""
        return self.execute_operations(batch.operations, timeout)

    def execute_many(self, batches: Sequence[Batch],
                     timeout: Optional[float] = None) -> "list[list[Result] | errors.Error]":
        """Each as a transaction of its own, in no order: the cheap way to send many. One that fails is an error in its
        place, not raised."""
        request = pb.ExecuteManyRequest(
            transactions=[pb.ExecuteRequest(operations=batch.operations) for batch in batches])
        try:
            response = self._stub.ExecuteMany(request, timeout=timeout or self._timeout)
        except grpc.RpcError as error:
            raise errors.of_rpc(error, may_have_committed=True) from None
        return [outcome_of(batch, each) for batch, each in zip(batches, response.each)]

    def transaction(self, timeout: Optional[float] = None) -> "Transaction":
        """Step by step. `timeout`: of all of it."""
        return Transaction(self._stub, timeout or self._timeout)

    def run(self, function: "Callable[[Transaction], T]", attempts: int = 20, timeout: Optional[float] = None) -> T:
        """Calls function(transaction), commits and returns what it returned; again if that was not to be, for certain,
        and may be next time."""
        pauses = Pauses()
        for attempt in range(attempts):
            try:
                with self.transaction(timeout) as transaction:
                    return function(transaction)
            except (errors.Aborted, errors.Unavailable):
                if attempt == attempts - 1:
                    raise
            time.sleep(pauses.next_s())
        raise ValueError("no attempt was asked for")

    def tables(self) -> list[Table]:
        try:
            response = self._stub.ListTables(pb.ListTablesRequest(), timeout=self._timeout)
        except grpc.RpcError as error:
            raise errors.of_rpc(error, may_have_committed=False) from None
        return [values.from_table(table) for table in response.tables]


class Transaction(_Operations):
    """On a stream of its own, which ends with it: what is not committed by then is rolled back."""

    def __init__(self, stub: Any, timeout: float) -> None:
        self.id = ""
        self._ended = False  # before anything can fail: __del__ looks
        self._requests: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._responses = stub.Transact(self._said(), timeout=timeout)

    @property
    def ended(self) -> bool:
        return self._ended

    def _said(self) -> Iterator[Any]:
        while True:
            request = self._requests.get()
            if request is None:
                return
            yield request

    def _ask(self, operations: Iterable[Any], end: Any) -> Any:
        if self._ended:
            raise errors.Error("the transaction has ended")
        self._requests.put(pb.TransactRequest(operations=operations, end=end))
        try:
            response = next(self._responses)
        except (grpc.RpcError, StopIteration) as error:
            self._close()
            committing = end == pb.TransactRequest.COMMIT
            if isinstance(error, StopIteration):
                kind = errors.UnknownOutcome if committing else errors.Aborted
                raise kind("the gateway has ended the transaction") from None
            raise errors.of_rpc(error, may_have_committed=committing) from None
        except BaseException:  # KeyboardInterrupt, say: nobody reads the answer any more
            self._close(cancel=True)
            raise
        self.id = response.transaction
        if end != pb.TransactRequest.END_UNSPECIFIED:
            self._close()
        return response

    def _close(self, cancel: bool = False) -> None:
        self._ended = True
        self._requests.put(None)
        if cancel:
            self._responses.cancel()

    def __del__(self) -> None:
        if not self._ended:
            self._close(cancel=True)

    def _one(self, operation: Any) -> Result:
        return self.execute_operations([operation])[0]

    def execute_operations(self, operations: Sequence[Any]) -> list[Result]:
        response = self._ask(operations, pb.TransactRequest.END_UNSPECIFIED)
        return values.from_results(operations, response.results)

    def execute(self, batch: Batch) -> list[Result]:
        """All of its operations in one step. A write that does not find what it needs has `found` False, and the
        transaction goes on."""
        return self.execute_operations(batch.operations)

    def commit(self) -> None:
        self._ask([], pb.TransactRequest.COMMIT)

    def rollback(self) -> None:
        if not self._ended:
            self._ask([], pb.TransactRequest.ROLLBACK)

    def __enter__(self) -> "Transaction":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if self._ended:
            return
        if kind is None:
            self.commit()
            return
        try:
            self.rollback()
        except errors.Error:
            pass  # what went wrong first is raised
