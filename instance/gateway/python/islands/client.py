"""The client for threads; islands.aio is the one for asyncio.

A Client may be used by several threads, a Transaction and a Batch by one.
"""

import os
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Optional, TypeVar, Union

import grpc

from islands import direct, errors, procedures, tables, values
from islands._generated import client_pb2 as pb
from islands._generated import client_pb2_grpc
from islands.attempts import (ASK_AGAIN, TOKEN_AGAIN, Attempts, Pauses, check_token, new_token, not_committed,
                              still_unknown)
from islands.direct import Direct
from islands.operations import Batch, Operations
from islands.procedures import Answer, Procedure, Scalar
from islands.rows import Rows
from islands.tables import Table
from islands.values import Key, Result, Results

T = TypeVar("T")
TIMEOUT_S = 10.0
MOST_SENT_BYTES, MOST_RECEIVED_BYTES = 8 << 20, 32 << 20  # what a gateway takes, and more than it gives


def tls(authority: bytes, certificate: bytes, key: bytes) -> grpc.ChannelCredentials:
    """For a gateway that listens on TCP: who vouches for it, and the client's own, all PEM."""
    return grpc.ssl_channel_credentials(authority, key, certificate)


def check_address(address: str, credentials: Optional[grpc.ChannelCredentials]) -> None:
    if credentials is None and not address.startswith("unix:"):
        raise errors.InvalidRequest(f"{address}: gateways speak to nobody over TCP who shows no certificate; give "
                                    "credentials=islands.tls(...), or the address of a Unix-domain socket: unix:PATH")


# A gateway that was killed is back in a fraction of a second; gRPC would look again after one, and after five where
# nobody waits for it longer than a call takes that fails at once. It reads this with the process's first channel.
os.environ.setdefault("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100")
OPTIONS = [("grpc.max_receive_message_length", MOST_RECEIVED_BYTES), ("grpc.max_send_message_length", MOST_SENT_BYTES),
           ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 1000)]


def connect(address: str, timeout: float = TIMEOUT_S,
            credentials: Optional[grpc.ChannelCredentials] = None) -> "Client":
    """`address`: as `islands status` prints it, unix:PATH or HOST:PORT. `timeout`: of every call, in seconds, unless it
    says another."""
    check_address(address, credentials)
    channel = (grpc.insecure_channel(address, OPTIONS) if credentials is None
               else grpc.secure_channel(address, credentials, OPTIONS))
    return Client(channel, timeout, Direct(address) if credentials is None else None)


# What a DirectCall has, and which method it is.
METHODS = {"execute": "Execute", "execute_many": "ExecuteMany", "call_procedure": "Call"}


def outcome_of(batch: Batch, each: Any) -> "Results | errors.Error":
    if each.code == 0:
        return values.from_results(batch.operations, each.response.results)
    return errors.of_failure(errors.CODES.get(each.code, grpc.StatusCode.UNKNOWN), each.message, each.failure,
                             values.change(batch.operations))


class Client(Operations):
    def __init__(self, channel: grpc.Channel, timeout: float, direct: Optional[Direct]) -> None:
        self._channel, self._timeout, self._direct = channel, timeout, direct
        self._stub = client_pb2_grpc.IslandsStub(channel)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()
        if self._direct is not None:
            self._direct.close()

    def _ask_once(self, kind: str, request: Any, timeout: float, may_have_committed: bool) -> Any:
        """By the shortest way that is there."""
        line = self._direct.take() if self._direct is not None else None
        if self._direct is not None and line is not None:
            answer = line.ask(pb.DirectCall(**{kind: request}), timeout, may_have_committed)
            self._direct.give(line)
            if answer.code != 0:
                raise direct.error_of(answer, may_have_committed)
            return getattr(answer, kind)
        try:
            return getattr(self._stub, METHODS[kind])(request, timeout=timeout)
        except grpc.RpcError as error:
            raise errors.of_rpc(error, may_have_committed) from None

    def _one(self, operation: Any) -> Result:
        return self.execute_operations([operation])[0]

    def _within(self, timeout: Optional[float]) -> float:
        return self._timeout if timeout is None else timeout

    def execute_operations(self, operations: Sequence[Any], timeout: Optional[float] = None,
                           token: Optional[bytes] = None) -> Results:
        check_token(token)
        request = pb.ExecuteRequest(operations=operations, token=token)
        changes = bool(token) or values.change(operations)
        send, within = self._send("execute", request, changes), self._within(timeout)
        if token and operations:
            response = self._until_known(send, lambda left_s: self._ask(request.token, operations[0], left_s),
                                         within, pb.ExecuteResponse(earlier=True))
        else:
            response = send(within)
        return Results(earlier=True) if response.earlier else values.from_results(operations, response.results)

    def _send(self, kind: str, request: Any, may_have_committed: bool) -> "Callable[[float], Any]":
        """Of a call; it takes a timeout."""
        return lambda timeout: self._ask_once(kind, request, timeout, may_have_committed)

    def _until_known(self, send: "Callable[[float], Any]", ask: "Callable[[float], bool]", timeout: float,
                     earlier: Any) -> Any:
        """Of a request with a token. `ask`: what became of it; `earlier`: the response if it was committed."""
        attempts = Attempts(timeout, TOKEN_AGAIN)
        while True:
            try:
                return send(attempts.left_s)
            except errors.Error as error:
                failed, pause_s = error, attempts.pause_s(error)
            if pause_s is None:
                break
            time.sleep(pause_s)
        if not attempts.unknown:
            raise failed
        try:
            committed = ask(attempts.left_s)
        except errors.Error:
            raise still_unknown(failed) from None
        if not committed:
            raise not_committed(failed) from None
        return earlier

    def execute(self, batch: Batch, timeout: Optional[float] = None, token: Optional[bytes] = None) -> Results:
        """All of it as one transaction; ConditionFailed if a write does not find what it needs. With a token it is
        committed once at most, and sent again, until the timeout, while it is not known what became of it."""
        return self.execute_operations(batch.operations, timeout, token)

    def call(self, procedure: str, *arguments: Scalar, timeout: Optional[float] = None,
             token: Optional[bytes] = None) -> Answer:
        """A procedure of a loaded workload, as one transaction: `paid, balance = db.call("transfer.pay", 1, 2, 30)`.
        InvalidRequest says what is wrong with the arguments. With a token: as execute."""
        request = procedures.to_request(procedure, arguments, token)
        send, within = self._send("call_procedure", request, True), self._within(timeout)

        def ask(left_s: float) -> bool:
            place = procedures.place_of(request, self.procedures(left_s))
            return self._ask(request.token, place, left_s)

        if not token:
            return procedures.from_response(send(within))
        response = self._until_known(send, ask, within, pb.CallResponse(earlier=True))
        return procedures.from_response(response)

    def procedures(self, timeout: Optional[float] = None) -> list[Procedure]:
        """What can be called."""
        try:
            response = self._stub.ListProcedures(pb.ListProceduresRequest(), timeout=self._within(timeout))
        except grpc.RpcError as error:
            raise errors.of_rpc(error, may_have_committed=False) from None
        return [procedures.from_message(procedure) for procedure in response.procedures]

    def ask_outcome(self, token: bytes, table: str, key: Key, timeout: Optional[float] = None) -> bool:
        """Whether the transaction with this token was committed; if not, it never will be. `table`, `key`: of its first
        operation."""
        return self._ask(token, values.get(table, key), self._within(timeout))

    def _ask(self, token: bytes, first: Any, timeout: float) -> bool:
        request = pb.AskOutcomeRequest(token=token, table=first.table, key=values.place_of(first))
        attempts = Attempts(timeout, ASK_AGAIN)
        while True:
            try:
                return bool(self._stub.AskOutcome(request, timeout=attempts.left_s).committed)
            except grpc.RpcError as error:
                failed = errors.of_rpc(error, may_have_committed=False)
            pause_s = attempts.pause_s(failed)
            if pause_s is None:
                raise failed
            time.sleep(pause_s)

    def execute_many(self, batches: Sequence[Batch],
                     timeout: Optional[float] = None) -> "list[Results | errors.Error]":
        """Each as a transaction of its own, in no order: the cheap way to send many. One that fails is an error in its
        place, not raised."""
        request = pb.ExecuteManyRequest(
            transactions=[pb.ExecuteRequest(operations=batch.operations) for batch in batches])
        changes = any(values.change(batch.operations) for batch in batches)
        response = self._ask_once("execute_many", request, self._within(timeout), changes)
        return [outcome_of(batch, each) for batch, each in zip(batches, response.each)]

    def transaction(self, timeout: Optional[float] = None) -> "Transaction":
        """Step by step. `timeout`: of all of it."""
        line = self._direct.take() if self._direct is not None else None
        if self._direct is not None and line is not None:
            return Transaction(OnLine(self._direct, line, self._within(timeout)))
        return Transaction(OnStream(self._stub, self._within(timeout)))

    def run(self, function: "Callable[[Transaction], T]", attempts: int = 20, timeout: Optional[float] = None,
            once: bool = False) -> T:
        """Calls function(transaction), commits and returns what it returned; again if that was not to be, for certain,
        and may be next time. `once`: with a token, so that a commit that was lost on its way is asked for, and run
        again only if it is not there; costs one more row written."""
        pauses = Pauses()
        for attempt in range(attempts):
            try:
                with self.transaction(timeout) as transaction:
                    result = function(transaction)
                    if once and not transaction.ended:
                        self._commit_once(transaction, timeout)
                    return result
            except (errors.Aborted, errors.Unavailable):
                if attempt == attempts - 1:
                    raise
            time.sleep(pauses.next_s())
        raise ValueError("no attempt was asked for")

    def _commit_once(self, transaction: "Transaction", timeout: Optional[float]) -> None:
        if transaction.first is None:
            return  # it has done nothing
        token = new_token()
        try:
            transaction.commit(token)
        except errors.UnknownOutcome as failed:
            try:
                committed = self._ask(token, transaction.first, self._within(timeout))
            except errors.Error:
                raise failed from None
            if not committed:
                raise not_committed(failed) from None

    def tables(self) -> list[Table]:
        try:
            response = self._stub.ListTables(pb.ListTablesRequest(), timeout=self._timeout)
        except grpc.RpcError as error:
            raise errors.of_rpc(error, may_have_committed=False) from None
        return [tables.from_message(table) for table in response.tables]

    def table(self, name: str) -> Rows:
        """Its rows, as dictionaries."""
        return Rows(self, tables.named(self.tables(), name))

    def create_table(self, table: Union[Table, str], timeout: Optional[float] = None, **description: Any) -> Rows:
        """A Table, or its name and what islands.describe takes: `key={"id": "uint64"}, range=(0, 1000),
        fields={"balance": "int64"}`. Fine if there is the same one already."""
        made = tables.as_table(table, description)
        try:
            self._stub.CreateTable(pb.CreateTableRequest(table=tables.to_message(made)), timeout=self._within(timeout))
        except grpc.RpcError as error:
            raise errors.of_table_rpc(error) from None
        return Rows(self, made)

    def drop_table(self, name: str, timeout: Optional[float] = None) -> None:
        """One without rows."""
        try:
            self._stub.DropTable(pb.DropTableRequest(table=name), timeout=self._within(timeout))
        except grpc.RpcError as error:
            raise errors.of_table_rpc(error) from None


class Steps:
    """Where the steps of a transaction go."""

    def ask(self, request: Any, may_have_committed: bool) -> Any:
        """The response; an error ends the transaction."""
        raise NotImplementedError

    def end(self) -> None:
        """It has ended, and all is answered."""

    def leave(self) -> None:
        """The gateway rolls back what is open."""


class OnStream(Steps):
    def __init__(self, stub: Any, timeout: float) -> None:
        self._requests: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._responses = stub.Transact(self._said(), timeout=timeout)

    def _said(self) -> Iterator[Any]:
        while True:
            request = self._requests.get()
            if request is None:
                return
            yield request

    def ask(self, request: Any, may_have_committed: bool) -> Any:
        self._requests.put(request)
        try:
            return next(self._responses)
        except StopIteration:
            kind = errors.UnknownOutcome if may_have_committed else errors.Aborted
            raise kind("the gateway has ended the transaction") from None
        except grpc.RpcError as error:
            raise errors.of_rpc(error, may_have_committed) from None

    def end(self) -> None:
        self._requests.put(None)

    def leave(self) -> None:
        self.end()
        self._responses.cancel()


class OnLine(Steps):
    def __init__(self, direct_: Direct, line: direct.Line, timeout: float) -> None:
        self._direct, self._line = direct_, line  # given back once it has ended
        self._open, self._asked = True, False
        self._until = time.monotonic() + timeout

    def ask(self, request: Any, may_have_committed: bool) -> Any:
        left_s = max(0.0, self._until - time.monotonic())
        call = pb.DirectCall(transact=request, continues=self._asked)
        self._asked = True
        answer = self._line.ask(call, left_s, may_have_committed)
        if answer.code == 0:
            return answer.transact
        if answer.HasField("failure"):  # otherwise it may be open still
            self.end()
        raise direct.error_of(answer, may_have_committed)

    def end(self) -> None:
        self._open = False
        self._direct.give(self._line)

    def leave(self) -> None:
        if self._open:
            self._line.close()


class Transaction(Operations):
    """On a stream or a connection of its own: what is not committed when that ends is rolled back."""

    def __init__(self, steps: Steps) -> None:
        self.id = ""
        self.first: Any = None  # operation: where its token is
        self._changes = False
        self._ended = False
        self._steps = steps

    @property
    def ended(self) -> bool:
        return self._ended

    def _ask(self, operations: Iterable[Any], end: Any, token: Optional[bytes] = None) -> Any:
        check_token(token)
        if self._ended:
            raise errors.Error("the transaction has ended")
        committing = end == pb.TransactRequest.COMMIT and (self._changes or token is not None)
        try:
            response = self._steps.ask(pb.TransactRequest(operations=operations, end=end, token=token), committing)
        except BaseException:  # KeyboardInterrupt, say: nobody reads the answer any more
            self._leave()
            raise
        self.id = response.transaction
        if end != pb.TransactRequest.END_UNSPECIFIED:
            self._ended = True
            self._steps.end()
        return response

    def _leave(self) -> None:
        self._ended = True
        self._steps.leave()

    def __del__(self) -> None:
        if not getattr(self, "_ended", True):
            self._leave()

    def _one(self, operation: Any) -> Result:
        return self.execute_operations([operation])[0]

    def execute_operations(self, operations: Sequence[Any]) -> Results:
        self.first = self.first or next(iter(operations), None)
        self._changes = self._changes or values.change(operations)
        response = self._ask(operations, pb.TransactRequest.END_UNSPECIFIED)
        return values.from_results(operations, response.results)

    def execute(self, batch: Batch) -> Results:
        """All of its operations in one step. A write that does not find what it needs has `found` False, and the
        transaction goes on."""
        return self.execute_operations(batch.operations)

    def commit(self, token: Optional[bytes] = None) -> None:
        """`token`: for Client.ask_outcome, with the first operation's table and key."""
        self._ask([], pb.TransactRequest.COMMIT, token)

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
