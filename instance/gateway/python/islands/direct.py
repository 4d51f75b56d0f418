"""Calls to a gateway as frames, on the socket beside gRPC's (proto/client.proto, DirectCall): far cheaper than gRPC.

A Direct is for any thread; a Line belongs to one at a time.
"""

import contextlib
import os
import socket
import struct
import threading
import time
from typing import Any, Optional

import grpc

from islands import errors
from islands._generated import client_pb2 as pb

SUFFIX = ".direct"
HEADER = struct.Struct("<IBBH")  # bytes of what follows, version, type, zero: instance/messaging/frame.h
VERSION, CALL, ANSWER_PART, ANSWER = 4, 48, 49, 50
MOST_SENT_BYTES = 8 << 20   # a gateway takes no more
MOST_FRAME_BYTES = 16 << 20
MOST_ANSWER_BYTES = 32 << 20  # all its parts together; a gateway gives no more
MOST_IDLE = 256
LONGEST_S = 365 * 24 * 3600.0  # as good as none


def error_of(answer: Any, may_have_committed: bool) -> errors.Error:
    """What the gateway says, other than that all is well."""
    code = errors.CODES.get(answer.code, grpc.StatusCode.UNKNOWN)
    if answer.HasField("failure"):
        return errors.of_failure(code, answer.message, answer.failure, may_have_committed)
    return errors.of_status(code, answer.message, may_have_committed)


class Line:
    """A connection. Whoever has asked and got no answer must not ask again."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def close(self) -> None:
        self._connection.close()

    def is_there(self) -> bool:
        try:
            self._connection.settimeout(0)
            self._connection.recv(1, socket.MSG_PEEK)
            return False  # it is at its end, or says what nobody has asked
        except BlockingIOError:
            return True
        except OSError:
            return False

    def ask(self, call: Any, timeout: float, may_have_committed: bool) -> Any:
        """The gateway's answer, whatever it says; an Error if there is none."""
        until = time.monotonic() + min(timeout, LONGEST_S)
        call.timeout_us = max(1, int(min(timeout, LONGEST_S) * 1e6))
        self._send(call.SerializeToString(), until)
        lost = errors.UnknownOutcome if may_have_committed else errors.Unavailable
        answer = pb.DirectAnswer()
        try:
            answer.ParseFromString(self._frames(until))
        except socket.timeout:  # TimeoutError, from Python 3.10 on
            late = errors.UnknownOutcome if may_have_committed else errors.DeadlineExceeded
            raise late("the gateway has not answered in time", grpc.StatusCode.DEADLINE_EXCEEDED) from None
        except OSError as error:
            raise lost(f"the gateway has ended the connection ({error})", grpc.StatusCode.UNAVAILABLE) from None
        except Exception as error:  # protobuf's, which has no public name, and ValueError: no answer of ours
            strange = errors.UnknownOutcome if may_have_committed else errors.Error
            raise strange(f"the gateway has given no answer that this library can read: {error}",
                          grpc.StatusCode.UNKNOWN) from None
        return answer

    def _send(self, payload: bytes, until: float) -> None:
        if len(payload) > MOST_SENT_BYTES:
            raise errors.InvalidRequest(f"gateways take no request of that size, and nothing was sent; send less at a "
                                        f"time ({len(payload)} bytes, at most {MOST_SENT_BYTES})")
        try:
            self._connection.settimeout(max(0.001, until - time.monotonic()))
            self._connection.sendall(HEADER.pack(len(payload), VERSION, CALL, 0) + payload)
        except socket.timeout:
            raise errors.DeadlineExceeded("the gateway has not read the call in time, and has not carried it out",
                                          grpc.StatusCode.DEADLINE_EXCEEDED) from None
        except OSError as error:
            raise errors.Unavailable(f"the gateway has ended the connection, and nothing was carried out; try again "
                                     f"({error})", grpc.StatusCode.UNAVAILABLE) from None

    def _frames(self, until: float) -> bytes:
        whole = b""
        while True:
            size, version, kind, zero = HEADER.unpack(self._bytes(HEADER.size, until))
            if version != VERSION or zero != 0 or kind not in (ANSWER_PART, ANSWER) or size > MOST_FRAME_BYTES:
                raise ValueError("this is no frame of an answer")
            if len(whole) + size > MOST_ANSWER_BYTES:
                raise ValueError("it is too large")
            whole += self._bytes(size, until)
            if kind == ANSWER:
                return whole

    def _bytes(self, count: int, until: float) -> bytes:
        parts = []
        while count > 0:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise socket.timeout
            self._connection.settimeout(left_s)
            part = self._connection.recv(min(count, 1 << 20))
            if not part:
                raise ConnectionError("it is closed")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class Direct:
    def __init__(self, address: str) -> None:
        """`address`: unix:PATH, of the socket for gRPC."""
        path = address.removeprefix("unix:")
        self._path = (path[2:] if path.startswith("///") else path) + SUFFIX
        self._mutex = threading.Lock()
        self._idle: list[Line] = []
        self._process = os.getpid()
        self._closed = False

    def take(self) -> Optional[Line]:
        """For one call, or for all of a transaction; None: nobody listens there."""
        while True:
            with self._mutex:
                if self._process != os.getpid():  # a child must not say anything on its parent's connections
                    self._idle, self._process = [], os.getpid()
                line = self._idle.pop() if self._idle else None
            if line is None:
                return self._dial()
            if line.is_there():
                return line
            line.close()

    def give(self, line: Line) -> None:
        """For others; what it was asked has been answered."""
        with self._mutex:
            if not self._closed and len(self._idle) < MOST_IDLE:
                self._idle.append(line)
                return
        line.close()

    def close(self) -> None:
        with self._mutex:
            self._closed, idle, self._idle = True, self._idle, []
        for line in idle:
            line.close()

    def _dial(self) -> Optional[Line]:
        if self._closed:
            return None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(OSError):
            connection.connect(self._path)
            return Line(connection)
        connection.close()
        return None
