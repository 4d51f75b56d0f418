"""A gateway in this process, for tests of clients: a dictionary of rows for each table, and faults at will.

It says what proto/client.proto says, without isolation. Types, ranges and the like it takes as they come: what islands
refuse is told by tests with islands.
"""

import contextlib
import json
import os
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

import pytest

from conftest import BINARIES, ROOT

PYTHON = [os.path.join(ROOT, "instance", "gateway", "python"),
          os.path.join(os.path.dirname(BINARIES), "lib", "islands", "python")]  # the client, and its stubs
sys.path[:0] = PYTHON
grpc = pytest.importorskip("grpc")
from islands._generated import client_pb2 as pb  # noqa: E402
from islands._generated import client_pb2_grpc  # noqa: E402
from islands import direct  # noqa: E402

Key = tuple[Any, ...]


class Refused(Exception):
    """Ends a transaction: nothing of it is left."""

    def __init__(self, code: Any, message: str, reason: str, operation: int = -1) -> None:
        super().__init__(message)
        self.code, self.failure = code, pb.Failure(outcome=pb.Failure.ABORTED, reason=reason, operation=operation)

    def end(self, context: Any) -> None:
        status = pb.Status(code=self.code.value[0], message=str(self))
        status.details.add().Pack(self.failure)
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(self.code, str(self))


def key_of(message: Any) -> Key:
    return tuple(getattr(part, part.WhichOneof("part")) for part in message.parts)


def row_of(key: Key, value: bytes) -> Any:
    row = pb.Row(value=value)
    for part in key:
        row.key.parts.add(**{"text" if isinstance(part, bytes) else "signed" if part < 0 else "unsigned": part})
    return row


class Work:
    """A transaction: carries out operations, and knows how to undo them."""

    def __init__(self, rows: dict[str, dict[Key, bytes]], conditions: bool) -> None:
        self.rows, self.conditions = rows, conditions
        self.before: list[tuple[dict[Key, bytes], Key, bytes | None]] = []

    def undo(self) -> None:
        for rows, key, value in reversed(self.before):
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        self.before.clear()

    def do(self, operations: Sequence[Any]) -> list[Any]:
        return [self.one(number, operation) for number, operation in enumerate(operations)]

    def one(self, number: int, operation: Any) -> Any:
        rows = self.rows.get(operation.table)
        if rows is None:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"operation {number}: there is no such table", "invalid")
        kind = operation.WhichOneof("kind")
        body = getattr(operation, kind)
        if kind in ("scan", "index_scan"):
            begin, end = key_of(body.begin), key_of(body.end)
            keys = sorted((key for key in rows if key >= begin and (not end or key < end)), reverse=body.reverse)
            found = keys[:body.limit] if body.limit else keys
            return pb.Result(code=pb.Result.DONE, rows=[row_of(key, rows[key]) for key in found])
        key = key_of(body.key)
        value = rows.get(key)
        if kind == "get":
            return pb.Result(code=pb.Result.NOT_FOUND if value is None else pb.Result.DONE, value=value)
        minds = kind != "put" and not getattr(body, "may_miss", False)
        misses = minds and (kind == "insert") == (value is not None)
        if misses and self.conditions:
            raise Refused(grpc.StatusCode.FAILED_PRECONDITION, f"operation {number}: not the row that it needs",
                          "condition", number)
        if misses:
            return pb.Result(code=pb.Result.NOT_FOUND if value is None else pb.Result.ALREADY_EXISTS)
        self.before.append((rows, key, value))
        if kind == "delete":
            rows.pop(key, None)
        elif kind == "add" and value is not None:
            at = body.offset
            total = int.from_bytes(value[at:at + 8], "little", signed=True) + body.delta
            rows[key] = value[:at] + total.to_bytes(8, "little", signed=True) + value[at + 8:]
            return pb.Result(code=pb.Result.DONE, number=total)
        else:
            rows[key] = body.value
        return pb.Result(code=pb.Result.DONE)


class FakeGateway(client_pb2_grpc.IslandsServicer):  # type: ignore[misc]
    """`faults`: one for each call that may commit, from the first on: "lost" = before it was carried out, "silent" =
    when it was, "aborted", "" = none. Calls with a token that is `over` come late, and take none. `committed`: how many
    transactions were."""

    def __init__(self, *described: Any) -> None:
        self.lock = threading.RLock()
        self.tables = {table.name: table for table in described}
        self.rows: dict[str, dict[Key, bytes]] = {table.name: {} for table in described}
        self.tokens: dict[bytes, bool] = {}  # whether it was committed; False: it never will be
        self.faults: list[str] = []
        self.over: set[bytes] = set()
        self.committed = 0
        self.counters: dict[int, int] = {}

    @contextlib.contextmanager
    def faulty(self, context: Any, token: bytes = b"") -> Iterator[None]:
        with self.lock:
            if token in self.over:
                context.abort(grpc.StatusCode.CANCELLED, "nobody waits for this any more")
            fault = self.faults.pop(0) if self.faults else ""
        if fault == "lost":
            context.abort(grpc.StatusCode.UNAVAILABLE, "the connection is gone")
        if fault == "aborted":
            Refused(grpc.StatusCode.ABORTED, "a deadlock's victim", "deadlock").end(context)
        yield
        if fault == "silent":
            context.abort(grpc.StatusCode.UNAVAILABLE, "the connection is gone, too late")

    def earlier(self, place: bytes) -> bool:
        """Of a transaction that is about to be committed: whether it was before. `place`: of its token, if any."""
        if place and place in self.tokens:
            if self.tokens[place]:
                return True
            raise Refused(grpc.StatusCode.ABORTED, "somebody was told that it will not be", "token")
        if place:
            self.tokens[place] = True
        self.committed += 1
        return False

    @staticmethod
    def place(token: bytes, operation: Any) -> bytes:
        kind = operation.WhichOneof("kind")
        key = pb.Key() if kind in ("scan", "index_scan") else getattr(operation, kind).key
        return f"{operation.table}/{key_of(key)}/".encode() + token if token else b""

    def whole(self, request: Any) -> Any:
        with self.lock:
            work = Work(self.rows, conditions=True)
            place = self.place(request.token, request.operations[0]) if request.token else b""
            try:
                if self.tokens.get(place):
                    return pb.ExecuteResponse(earlier=True)
                results = work.do(request.operations)
                self.earlier(place)
            except Refused:
                work.undo()
                raise
            return pb.ExecuteResponse(results=results, transaction=f"T{self.committed}")

    def call(self, request: Any) -> Any:
        """counter.add(id, by, word) -> (sum, half, word): adds to a row of table `counters`, which may be missing."""
        def check(holds: bool, code: Any, message: str, reason: str) -> None:
            if not holds:
                raise Refused(code, message, reason)
        check(request.procedure == "counter.add", grpc.StatusCode.NOT_FOUND, "there is no such procedure", "invalid")
        kinds = [argument.WhichOneof("kind") for argument in request.arguments]
        check(kinds == ["number", "number", "text"], grpc.StatusCode.INVALID_ARGUMENT, "argument 2 'by'", "invalid")
        row, by, word = request.arguments
        with self.lock:
            first = pb.Operation(table="counters")
            first.get.key.parts.add(signed=row.number)
            place = self.place(request.token, first)
            if self.tokens.get(place):
                return pb.CallResponse(earlier=True)
            check(by.number >= 0, grpc.StatusCode.OUT_OF_RANGE, "it counts upwards only", "procedure")
            self.earlier(place)
            self.counters[row.number] = self.counters.get(row.number, 0) + by.number
            total = self.counters[row.number]
            return pb.CallResponse(transaction=f"T{self.committed}", results=[
                pb.Value(number=total), pb.Value(real=total / 2), pb.Value(text=word.text)])

    # ---- calls

    def Call(self, request: Any, context: Any) -> Any:
        with self.faulty(context):
            try:
                return self.call(request)
            except Refused as refused:
                refused.end(context)

    def ListProcedures(self, request: Any, context: Any) -> Any:
        def named(**types: str) -> Any:
            return [pb.NamedType(name=name, type=kind) for name, kind in types.items()]
        return pb.ListProceduresResponse(procedures=[
            pb.Procedure(name="counter.add", about="adds", home_table="counters",
                         arguments=named(id="int64", by="int64", word="text"),
                         results=named(sum="int64", half="double", word="text"))])

    def Execute(self, request: Any, context: Any) -> Any:
        with self.faulty(context, request.token):
            try:
                return self.whole(request)
            except Refused as refused:
                refused.end(context)

    def ExecuteMany(self, request: Any, context: Any) -> Any:
        response = pb.ExecuteManyResponse()
        with self.faulty(context):
            for each in request.transactions:
                try:
                    response.each.add(response=self.whole(each))
                except Refused as refused:
                    response.each.add(code=refused.code.value[0], message=str(refused), failure=refused.failure)
        return response

    def Transact(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        work, first = Work(self.rows, conditions=False), None
        try:
            for request in requests:
                if request.operations and first is None:
                    first = request.operations[0]
                with self.lock:
                    results = work.do(request.operations)
                response = pb.TransactResponse(results=results, transaction="T")
                if request.end == pb.TransactRequest.COMMIT:
                    with self.faulty(context), self.lock:
                        response.earlier = self.earlier(self.place(request.token, first) if first else b"")
                        response.committed = not response.earlier
                        if not response.earlier:
                            work.before.clear()
                yield response
                if request.end:
                    return
        except Refused as refused:
            refused.end(context)
        finally:
            with self.lock:
                work.undo()

    def AskOutcome(self, request: Any, context: Any) -> Any:
        with self.faulty(context, request.token), self.lock:
            place = f"{request.table}/{key_of(request.key)}/".encode() + request.token
            return pb.AskOutcomeResponse(committed=self.tokens.setdefault(place, False))

    def ListTables(self, request: Any, context: Any) -> Any:
        return pb.ListTablesResponse(tables=self.tables.values())

    def CreateTable(self, request: Any, context: Any) -> Any:
        table = request.table
        if self.tables.get(table.name, table) != table:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"there is another table '{table.name}'")
        self.tables[table.name] = table
        self.rows.setdefault(table.name, {})
        return pb.CreateTableResponse()

    def DropTable(self, request: Any, context: Any) -> Any:
        if request.table not in self.tables:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no table '{request.table}'")
        if self.rows[request.table]:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"table '{request.table}' has rows")
        del self.tables[request.table], self.rows[request.table]
        return pb.DropTableResponse()


class Ended(Exception):
    """A call, by its status."""


class Frame:
    """What gRPC calls a context, of a call that came in a frame."""

    def __init__(self) -> None:
        self.answer = pb.DirectAnswer()

    def set_trailing_metadata(self, metadata: Any) -> None:
        status = pb.Status.FromString(metadata[0][1])
        status.details[0].Unpack(self.answer.failure)

    def abort(self, code: Any, message: str) -> None:
        self.answer.code, self.answer.message = code.value[0], message
        raise Ended


class OneClient(socketserver.BaseRequestHandler):
    """A connection to the gateway's direct socket. `server.gateway`: whose answers it gives."""

    def calls(self) -> Iterator[Any]:
        while True:
            header = self.request.recv(direct.HEADER.size, socket.MSG_WAITALL)
            if len(header) < direct.HEADER.size:
                return
            size, version, kind, _ = direct.HEADER.unpack(header)
            assert (version, kind) == (direct.VERSION, direct.CALL)
            call = pb.DirectCall.FromString(self.request.recv(size, socket.MSG_WAITALL) if size else b"")
            assert call.timeout_us > 0
            yield call

    def steps(self, first: Any, calls: Iterator[Any]) -> Iterator[Any]:
        assert not first.continues
        yield first.transact
        for call in calls:
            assert call.WhichOneof("call") == "transact" and call.continues
            yield call.transact

    def say(self, answer: Any) -> None:
        payload = answer.SerializeToString()
        self.request.sendall(direct.HEADER.pack(len(payload), direct.VERSION, direct.ANSWER, 0) + payload)

    def handle(self) -> None:
        gateway = self.server.gateway  # type: ignore[attr-defined]
        calls, methods = self.calls(), {"execute": gateway.Execute, "execute_many": gateway.ExecuteMany,
                                        "call_procedure": gateway.Call}
        for call in calls:
            frame, kind = Frame(), call.WhichOneof("call")
            try:
                if kind == "transact":
                    for response in gateway.Transact(self.steps(call, calls), frame):
                        self.say(pb.DirectAnswer(transact=response))
                    continue
                getattr(frame.answer, kind).CopyFrom(methods[kind](getattr(call, kind), frame))
            except Ended:
                pass
            self.say(frame.answer)


class FrameServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads, block_on_close = True, False


@contextlib.contextmanager
def taking_frames(gateway: FakeGateway, folder: str) -> Iterator[None]:
    with FrameServer(f"{folder}/gateway.sock{direct.SUFFIX}", OneClient) as server:
        server.gateway = gateway  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def serving(gateway: FakeGateway, folder: str) -> Iterator[str]:
    """Its address."""
    address = f"unix:{folder}/gateway.sock"
    server = grpc.server(futures.ThreadPoolExecutor(8))
    client_pb2_grpc.add_IslandsServicer_to_server(gateway, server)
    server.add_insecure_port(address)
    server.start()
    try:
        yield address
    finally:
        server.stop(None).wait()


def knows_where(address: str, folder: str) -> str:
    """An `islands` for programs of instance/gateway/tools, which says where this gateway is."""
    path = os.path.join(folder, "islands")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\necho '{json.dumps({'gateway': {'addresses': [address]}})}'\n")
    os.chmod(path, 0o755)
    return path
