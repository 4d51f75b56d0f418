"""How a transaction can end other than well.

The rule (proto/client.proto): it was not committed for certain only if the gateway says so, in a Failure, or if it had
never been told to commit, or if the call was never sent. Whatever else goes wrong with a call that may have committed
is an UnknownOutcome. Of what only reads nothing can be left: it may simply be asked again.
"""

from typing import Any, Optional

import grpc

from islands._generated import client_pb2 as pb

DETAILS = "grpc-status-details-bin"
# So begins what gRPC says of a call for which it had no connection. One that breaks under a call has other words.
NOT_SENT = "failed to connect to all addresses"
TOO_LARGE = ("Sent message larger than max", "CLIENT: Sent message larger than max")


class Error(Exception):
    """`code`: gRPC's; `reason`: a word of a fixed list, empty if the gateway has said none; `operation`: which one did
    not find what it needs; `transaction`: its id, if it had begun."""

    def __init__(self, message: str, code: Optional[grpc.StatusCode] = None, reason: str = "",
                 operation: Optional[int] = None, transaction: str = "") -> None:
        super().__init__(message)
        self.code, self.reason, self.operation, self.transaction = code, reason, operation, transaction

    @property
    def committed(self) -> Optional[bool]:
        """False: for certain not. None: nobody knows."""
        return False


class Aborted(Error):
    """Run it again, perhaps with other luck."""


class Unavailable(Error):
    """An island, or the gateway, is not there; again a little later."""


class ConditionFailed(Error):
    """A write did not find what it needs: `operation` says which."""


class DeadlineExceeded(Error):
    """There was not enough time."""


class InvalidRequest(Error):
    """It makes no sense, and would make none later."""


class LimitExceeded(Error):
    """Too many transactions at a time, or no room."""


class UnknownOutcome(Error):
    """It may have been committed, or not."""

    @property
    def committed(self) -> Optional[bool]:
        return None


def _class_of(code: grpc.StatusCode, reason: str) -> type[Error]:
    if code == grpc.StatusCode.FAILED_PRECONDITION and reason == "condition":
        return ConditionFailed
    classes: dict[grpc.StatusCode, type[Error]] = {
        grpc.StatusCode.ABORTED: Aborted,
        grpc.StatusCode.CANCELLED: Aborted,
        grpc.StatusCode.UNAVAILABLE: Unavailable,
        grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
        grpc.StatusCode.RESOURCE_EXHAUSTED: LimitExceeded,
        grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
        grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
        grpc.StatusCode.FAILED_PRECONDITION: InvalidRequest,
        grpc.StatusCode.UNIMPLEMENTED: InvalidRequest,
        grpc.StatusCode.NOT_FOUND: InvalidRequest,
        grpc.StatusCode.ALREADY_EXISTS: InvalidRequest,
    }
    return classes.get(code, Error)


def of_failure(code: grpc.StatusCode, message: str, failure: Any, may_have_committed: bool) -> Error:
    """`failure`: what the gateway says."""
    kind = _class_of(code, failure.reason)
    if failure.outcome != pb.Failure.ABORTED:
        kind = UnknownOutcome if may_have_committed else Unavailable
    operation = failure.operation if failure.reason == "condition" else None
    return kind(message, code, failure.reason, operation, failure.transaction)


def _failure_in(error: Any) -> Any:
    for key, value in error.trailing_metadata() or ():
        if key != DETAILS:
            continue
        status, failure = pb.Status(), pb.Failure()
        status.ParseFromString(value)
        if any(detail.Unpack(failure) for detail in status.details):
            return failure
    return None


def of_rpc(error: Any, may_have_committed: bool) -> Error:
    """Of a call that ended with a status other than OK."""
    code, message = error.code(), error.details() or str(error.code())
    failure = _failure_in(error)
    if failure is not None:
        return of_failure(code, message, failure, may_have_committed)
    return of_status(code, message, may_have_committed)


def of_status(code: grpc.StatusCode, message: str, may_have_committed: bool) -> Error:
    """Without a word of the gateway's."""
    if code == grpc.StatusCode.UNAVAILABLE and message.startswith(NOT_SENT):
        return Unavailable(f"there is no connection to a gateway, and nothing was sent; try again ({message})", code)
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED and message.startswith(TOO_LARGE):
        return InvalidRequest(f"gateways take no request of that size, and nothing was sent; send less at a time "
                              f"({message})", code)
    return UnknownOutcome(message, code) if may_have_committed else _class_of(code, "")(message, code)


def of_table_rpc(error: Any) -> Error:
    """Of one that makes or drops a table: only if the answer was lost, nobody knows."""
    lost = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED,
            grpc.StatusCode.UNKNOWN)
    return of_rpc(error, may_have_committed=error.code() in lost or _failure_in(error) is not None)


CODES = {code.value[0]: code for code in grpc.StatusCode}
