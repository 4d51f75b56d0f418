"""The client for asyncio: as islands.client, with await."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Optional, TypeVar, Union

import grpc
import grpc.aio

from islands import errors, procedures, tables, values
from islands._generated import client_pb2 as pb
from islands._generated import client_pb2_grpc
from islands.attempts import (ASK_AGAIN, TOKEN_AGAIN, Attempts, Pauses, check_token, new_token, not_committed,
                              still_unknown)
from islands.client import OPTIONS, TIMEOUT_S, check_address, outcome_of
from islands.fields import Fields, RowDict, Value
from islands.operations import Batch
from islands.procedures import Answer, Procedure, Scalar
from islands.tables import Table
from islands.values import Key, Result, Results, Row

T = TypeVar("T")


def connect(address: str, timeout: float = TIMEOUT_S,
            credentials: Optional[grpc.ChannelCredentials] = None) -> "Client":
    check_address(address, credentials)
    channel = (grpc.aio.insecure_channel(address, OPTIONS) if credentials is None
               else grpc.aio.secure_channel(address, credentials, OPTIONS))
    return Client(channel, timeout)


class Operations:
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


class Rows:
    """As islands.Rows."""

    def __init__(self, speaker: Operations, table: Table) -> None:
        self.table, self.fields = table, Fields(table)
        self._speaker = speaker

    def on(self, transaction: Operations) -> "Rows":
        return Rows(transaction, self.table)

    async def get(self, key: Key, for_update: bool = False) -> Optional[RowDict]:
        value = await self._speaker.get(self.table.name, key, for_update)
        return None if value is None else self.fields.of_row(Row(key, value))

    async def put(self, row: Mapping[str, Value]) -> None:
        await self._speaker.put(self.table.name, self.fields.key(row), self.fields.encode(row))

    async def insert(self, row: Mapping[str, Value]) -> bool:
        return await self._speaker.insert(self.table.name, self.fields.key(row), self.fields.encode(row))

    async def replace(self, row: Mapping[str, Value]) -> bool:
        return await self._speaker.replace(self.table.name, self.fields.key(row), self.fields.encode(row))

    async def delete(self, key: Key, may_miss: bool = False) -> bool:
        return await self._speaker.delete(self.table.name, key, may_miss)

    async def add(self, key: Key, field: str, delta: int) -> int:
        return await self._speaker.add(self.table.name, key, delta, self.fields.offset(field))

    async def scan(self, begin: Optional[Key] = None, end: Optional[Key] = None, limit: int = 0,
                   reverse: bool = False) -> list[RowDict]:
        rows = await self._speaker.scan(self.table.name, begin, end, limit, reverse)
        return [self.fields.of_row(row) for row in rows]

    async def index_scan(self, index: str, at: Key, begin: Optional[Key] = None, end: Optional[Key] = None,
                         limit: int = 0, reverse: bool = False) -> list[RowDict]:
        rows = await self._speaker.index_scan(self.table.name, index, at, begin, end, limit, reverse)
        return [self.fields.of_row(row) for row in rows]


class Client(Operations):
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

    def _within(self, timeout: Optional[float]) -> float:
        return self._timeout if timeout is None else timeout

    async def execute_operations(self, operations: Sequence[Any], timeout: Optional[float] = None,
                                 token: Optional[bytes] = None) -> Results:
        check_token(token)
        request = pb.ExecuteRequest(operations=operations, token=token)
        send, within = self._send(self._stub.Execute, request), self._within(timeout)
        if token and operations:
            response = await self._until_known(send, lambda left_s: self._ask(request.token, operations[0], left_s),
                                               within, pb.ExecuteResponse(earlier=True))
        else:
            response = await send(within)
        return Results(earlier=True) if response.earlier else values.from_results(operations, response.results)

    def _send(self, method: Any, request: Any) -> "Callable[[float], Awaitable[Any]]":
        """Of a call that may commit; it takes a timeout."""
        async def send(timeout: float) -> Any:
            try:
                return await method(request, timeout=timeout)
            except grpc.RpcError as error:
                changes = not isinstance(request, pb.ExecuteRequest) or bool(request.token) or values.change(
                    request.operations)
                raise errors.of_rpc(error, may_have_committed=changes) from None
        return send

    async def _until_known(self, send: "Callable[[float], Awaitable[Any]]",
                           ask: "Callable[[float], Awaitable[bool]]", timeout: float, earlier: Any) -> Any:
        """Of a request with a token. `ask`: what became of it; `earlier`: the response if it was committed."""
        attempts = Attempts(timeout, TOKEN_AGAIN)
        while True:
            try:
                return await send(attempts.left_s)
            except errors.Error as error:
                failed, pause_s = error, attempts.pause_s(error)
            if pause_s is None:
                break
            await asyncio.sleep(pause_s)
        if not attempts.unknown:
            raise failed
        try:
            committed = await ask(attempts.left_s)
        except errors.Error:
            raise still_unknown(failed) from None
        if not committed:
            raise not_committed(failed) from None
        return earlier

    async def execute(self, batch: Batch, timeout: Optional[float] = None, token: Optional[bytes] = None) -> Results:
        return await self.execute_operations(batch.operations, timeout, token)

    async def call(self, procedure: str, *arguments: Scalar, timeout: Optional[float] = None,
                   token: Optional[bytes] = None) -> Answer:
        request = procedures.to_request(procedure, arguments, token)
        send, within = self._send(self._stub.Call, request), self._within(timeout)

        async def ask(left_s: float) -> bool:
            place = procedures.place_of(request, await self.procedures(left_s))
            return await self._ask(request.token, place, left_s)

        if not token:
            return procedures.from_response(await send(within))
        response = await self._until_known(send, ask, within, pb.CallResponse(earlier=True))
        return procedures.from_response(response)

    async def procedures(self, timeout: Optional[float] = None) -> list[Procedure]:
        try:
            response = await self._stub.ListProcedures(pb.ListProceduresRequest(), timeout=self._within(timeout))
        except grpc.RpcError as error:
            raise errors.of_rpc(error, may_have_committed=False) from None
        return [procedures.from_message(procedure) for procedure in response.procedures]

    async def ask_outcome(self, token: bytes, table: str, key: Key, timeout: Optional[float] = None) -> bool:
        return await self._ask(token, values.get(table, key), self._within(timeout))

    async def _ask(self, token: bytes, first: Any, timeout: float) -> bool:
        request = pb.AskOutcomeRequest(token=token, table=first.table, key=values.place_of(first))
        attempts = Attempts(timeout, ASK_AGAIN)
        while True:
            try:
                return bool((await self._stub.AskOutcome(request, timeout=attempts.left_s)).committed)
            except grpc.RpcError as error:
                failed = errors.of_rpc(error, may_have_committed=False)
            pause_s = attempts.pause_s(failed)
            if pause_s is None:
                raise failed
            await asyncio.sleep(pause_s)

    async def execute_many(self, batches: Sequence[Batch],
                           timeout: Optional[float] = None) -> "list[Results | errors.Error]":
        request = pb.ExecuteManyRequest(
            transactions=[pb.ExecuteRequest(operations=batch.operations) for batch in batches])
        try:
            response = await self._stub.ExecuteMany(request, timeout=self._within(timeout))
        except grpc.RpcError as error:
            changes = any(values.change(batch.operations) for batch in batches)
            raise errors.of_rpc(error, may_have_committed=changes) from None
        return [outcome_of(batch, each) for batch, each in zip(batches, response.each)]

    def transaction(self, timeout: Optional[float] = None) -> "Transaction":
        return Transaction(self._stub, self._within(timeout))

    async def run(self, function: "Callable[[Transaction], Awaitable[T]]", attempts: int = 20,
                  timeout: Optional[float] = None, once: bool = False) -> T:
        pauses = Pauses()
        for attempt in range(attempts):
            try:
                async with self.transaction(timeout) as transaction:
                    result = await function(transaction)
                    if once and not transaction.ended:
                        await self._commit_once(transaction, timeout)
                    return result
            except (errors.Aborted, errors.Unavailable):
                if attempt == attempts - 1:
                    raise
            await asyncio.sleep(pauses.next_s())
        raise ValueError("no attempt was asked for")

    async def _commit_once(self, transaction: "Transaction", timeout: Optional[float]) -> None:
        if transaction.first is None:
            return
        token = new_token()
        try:
            await transaction.commit(token)
        except errors.UnknownOutcome as failed:
            try:
                committed = await self._ask(token, transaction.first, self._within(timeout))
            except errors.Error:
                raise failed from None
            if not committed:
                raise not_committed(failed) from None

    async def tables(self) -> list[Table]:
        try:
            response = await self._stub.ListTables(pb.ListTablesRequest(), timeout=self._timeout)
        except grpc.RpcError as error:
            raise errors.of_rpc(error, may_have_committed=False) from None
        return [tables.from_message(table) for table in response.tables]

    async def table(self, name: str) -> Rows:
        return Rows(self, tables.named(await self.tables(), name))

    async def create_table(self, table: Union[Table, str], timeout: Optional[float] = None,
                           **description: Any) -> Rows:
        made = tables.as_table(table, description)
        try:
            await self._stub.CreateTable(pb.CreateTableRequest(table=tables.to_message(made)),
                                         timeout=self._within(timeout))
        except grpc.RpcError as error:
            raise errors.of_table_rpc(error) from None
        return Rows(self, made)

    async def drop_table(self, name: str, timeout: Optional[float] = None) -> None:
        try:
            await self._stub.DropTable(pb.DropTableRequest(table=name), timeout=self._within(timeout))
        except grpc.RpcError as error:
            raise errors.of_table_rpc(error) from None


class Transaction(Operations):
    def __init__(self, stub: Any, timeout: float) -> None:
        self.id = ""
        self.first: Any = None
        self._call = stub.Transact(timeout=timeout)
        self._changes = self._ended = False

    @property
    def ended(self) -> bool:
        return self._ended

    async def _ask(self, operations: Sequence[Any], end: Any, token: Optional[bytes] = None) -> Any:
        check_token(token)
        if self._ended:
            raise errors.Error("the transaction has ended")
        may_commit = end == pb.TransactRequest.COMMIT and (self._changes or token is not None)
        try:
            await self._call.write(pb.TransactRequest(operations=operations, end=end, token=token))
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

    async def execute_operations(self, operations: Sequence[Any]) -> Results:
        self.first = self.first or next(iter(operations), None)
        self._changes = self._changes or values.change(operations)
        response = await self._ask(operations, pb.TransactRequest.END_UNSPECIFIED)
        return values.from_results(operations, response.results)

    async def execute(self, batch: Batch) -> Results:
        return await self.execute_operations(batch.operations)

    async def commit(self, token: Optional[bytes] = None) -> None:
        await self._ask([], pb.TransactRequest.COMMIT, token)

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
