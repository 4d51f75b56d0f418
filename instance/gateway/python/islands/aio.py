"""The client for asyncio: as islands.client, with await."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Optional, TypeVar

import grpc
import grpc.aio

from islands import errors, values
from islands._generated import client_pb2 as pb
from islands._generated import client_pb2_grpc
from islands.client import OPTIONS, TIMEOUT_S, Batch, Pauses, check_address, outcome_of
from islands.values import Key, Result, Row, Table

T = TypeVar("T")


def connect(address: str, timeout: float = TIMEOUT_S,
            credentials: Optional[grpc.ChannelCredentials] = None) -> "Client":
    check_address(address, credentials)
    channel = (grpc.aio.insecure_channel(address, OPTIONS) if credentials is None
               else grpc.aio.secure_channel(address, credentials, OPTIONS))
    return Client(channel, timeout)


class _Operations:
    async def _one(self, operation: Any) -> Result:
        raise NotImplementedError

    async def get(self, table: str, key: Key, for_update: bool = False) -> Optional[bytes]:
        return (await self._one(values.get(table, key, for_update))).value

    async def put(self, table: str, key: Key, value: bytes) -> None:
        await self._one(values.put(table, key, value))

    async def insert(self, table: str, key: Key, value: bytes) -> bool:
        return (await self._one(values.insert(table, key, value))).found

    async def replace(self, table: str, key: Key, value: bytes) -> bool:
        return (await self._one(values.replace(table, key, value))).found

    async def delete(self, table: str, key: Key, may_miss: bool = False) -> bool:
        return (await self._one(values.delete(table, key, may_miss))).found

    async def add(self, table: str, key: Key, delta: int, offset: int = 0) -> int:
        return (await self._one(values.add(table, key, delta, offset))).number

    async def scan(self, table: str, begin: Optional[Key] = None, end: Optional[Key] = None, limit: int = 0,
                   reverse: bool = False) -> tuple[Row, ...]:
        return (await self._one(values.scan(table, begin, end, limit, reverse))).rows

    async def index_scan(self, table: str, index: str, at: Key, begin: Optional[Key] = None,
                         end: Optional[Key] = None, limit: int = 0, reverse: bool = False) -> tuple[Row, ...]:
        return (await self._one(values.index_scan(table, index, at, begin, end, limit, reverse))).rows


class Client(_Operations):
    def __init__(self, channel: Any, timeout: float) -> None:
        self._channel, self._timeout = channel, timeout
        self._stub = client_pb2_grpc.IslandsStub(channel)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close()

    async def _one(self, operation: Any) -> Result:
        return (await self.execute_operations([operation]))[0]

    async def execute_operations(self, operations: Sequence[Any], timeout: Optional[float] = None) -> list[Result]:
        request = pb.ExecuteRequest(operations=operations)
        try:
            response = await self._stub.Execute(request, timeout=timeout or self._timeout)
        except grpc.RpcError as error:
            raise errors.of_rpc(error, may_have_committed=True) from None
        return values.from_results(operations, response.results)

    async def execute(self, batch: Batch, timeout: Optional[float] = None) -> list[Result]:
        return await self.execute_operations(batch.operations, timeout)

    async def execute_many(self, batches: Sequence[Batch],
                           timeout: Optional[float] = None) -> "list[list[Result] | errors.Error]":
        request = pb.ExecuteManyRequest(
            transactions=[pb.ExecuteRequest(operations=batch.operations) for batch in batches])
        try:
            response = await self._stub.ExecuteMany(request, timeout=timeout or self._timeout)
        except grpc.RpcError as error:
            raise errors.of_rpc(error, may_have_committed=True) from None
        return [outcome_of(batch, each) for batch, each in zip(batches, response.each)]

    def transaction(self, timeout: Optional[float] = None) -> "Transaction":
        return Transaction(self._stub, timeout or self._timeout)

    async def run(self, function: "Callable[[Transaction], Awaitable[T]]", attempts: int = 20,
                  timeout: Optional[float] = None) -> T:
        pauses = Pauses()
        for attempt in range(attempts):
            try:
                async with self.transaction(timeout) as transaction:
                    return await function(transaction)
            except (errors.Aborted, errors.Unavailable):
                if attempt == attempts - 1:
                    raise
            await asyncio.sleep(pauses.next_s())
        raise ValueError("no attempt was asked for")

    async def tables(self) -> list[Table]:
        try:
            response = await self._stub.ListTables(pb.ListTablesRequest(), timeout=self._timeout)
        except grpc.RpcError as error:
            raise errors.of_rpc(error, may_have_committed=False) from None
        return [values.from_table(table) for table in response.tables]


class Transaction(_Operations):
    def __init__(self, stub: Any, timeout: float) -> None:
        self.id = ""
        self._call = stub.Transact(timeout=timeout)
        self._ended = False

    async def _ask(self, operations: Sequence[Any], end: Any) -> Any:
        if self._ended:
            raise errors.Error("the transaction has ended")
        may_commit = end == pb.TransactRequest.COMMIT
        try:
            await self._call.write(pb.TransactRequest(operations=operations, end=end))
            response = await self._call.read()
            if response is grpc.aio.EOF:
                code = await self._call.code()
                raise grpc.aio.AioRpcError(code, await self._call.initial_metadata(),
                                           await self._call.trailing_metadata(), await self._call.details())
        except asyncio.InvalidStateError:  # the stream had ended before we wrote
            self._ended = True
            code = await self._call.code()
            raise errors.of_rpc(grpc.aio.AioRpcError(code, await self._call.initial_metadata(),
                                                     await self._call.trailing_metadata(),
                                                     await self._call.details()), may_commit) from None
        except grpc.RpcError as error:
            self._ended = True
            raise errors.of_rpc(error, may_commit) from None
        except BaseException:  # the task is cancelled, say: nobody reads the answer any more
            self._ended = True
            self._call.cancel()
            raise
        self.id = response.transaction
        if end != pb.TransactRequest.END_UNSPECIFIED:
            self._ended = True
            await self._call.done_writing()
        return response

    async def _one(self, operation: Any) -> Result:
        return (await self.execute_operations([operation]))[0]

    async def execute_operations(self, operations: Sequence[Any]) -> list[Result]:
        response = await self._ask(operations, pb.TransactRequest.END_UNSPECIFIED)
        return values.from_results(operations, response.results)

    async def execute(self, batch: Batch) -> list[Result]:
        return await self.execute_operations(batch.operations)

    async def commit(self) -> None:
        await self._ask([], pb.TransactRequest.COMMIT)

    async def rollback(self) -> None:
        if not self._ended:
            await self._ask([], pb.TransactRequest.ROLLBACK)

    async def __aenter__(self) -> "Transaction":
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if self._ended:
            return
        if kind is None:
            await self.commit()
            return
        try:
            await self.rollback()
        except errors.Error:
            pass  # what went wrong first is raised
