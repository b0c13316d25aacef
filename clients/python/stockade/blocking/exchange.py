# Made by generate.py from aio/exchange.py, which is the one to read and to change.
"""Requests and their answers, over connections that are kept, and asked again where that is the same."""

from __future__ import annotations

import threading
from typing import List, Optional, Tuple, Type, TypeVar

from ..failure import Interrupted, ProtocolError
from ..http import Answer, ONCE, Request
from ..model import Receipt, Scope
from ..request import RENEWABLE, document, ending, impatient, refusal, renewed, scoped, settled
from ..retry import Attempts, Lost
from .edge import Connection, now, pause, settle

T = TypeVar("T")


class Exchange:
    """What all sessions of a client share. Any number of calls at the same time; each has a connection to itself."""

    _IDLE = 16

    def __init__(self, path: str, scope: Optional[Scope], patience: float) -> None:
        self.path, self.scope, self.patience = path, scope, patience
        self.met = False  # a supervisor has answered
        self._idle: List[Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    def read(self, kind: Type[T], request: Request) -> T:
        """A document."""
        answer, body = self.send(request)
        return document(kind, answer, body)

    def receipt(self, request: Request, op: str = "", own_key: bool = False, repeatable: bool = False, undo: bool = False) -> Receipt:
        """The receipt of an operation that took place. What a restart cut off is asked again as another operation
        where that is the same, unless the key is the caller's. With undo as in send."""
        while True:
            answer, body = self.send(request, final=True, undo=op if undo else "")
            try:
                return settled(answer, body)
            except Interrupted as e:
                if e.code != "supervisor_restarted" or own_key or not (repeatable or op in RENEWABLE):
                    raise
                request = renewed(request)

    def send(self, request: Request, final: bool = False, undo: str = "") -> Tuple[Answer, bytes]:
        """The answer to a request, and its body. What says no is an exception, but for a final answer.

        undo is the name of the operation where what it begins is to be ended when its caller is interrupted here.
        """
        attempts = Attempts(self.patience, self.met)
        try:
            return self._attempt(scoped(request, self.scope), attempts, final)
        except KeyboardInterrupt:
            if undo and attempts.arrived:  # otherwise to ask again would begin it
                settle(lambda: self._undo(undo, request), hurry=True)
            raise

    def begin(self, request: Request, attempts: Attempts) -> Tuple[Connection, Answer]:
        """Sends a request, and returns when the head of its answer is there. The caller closes the connection, or
        gives it back."""
        conn, used = self._take(request), True
        if conn is None:
            conn, used = Connection.open(self.path), False
        attempts.connected(now())
        answer = Answer()
        try:
            try:
                for piece in request.pieces():
                    conn.send(piece)
            except Lost:
                pass  # it may have been answered all the same: with no, before it was heard out
            while not answer.status:
                self.feed(conn, answer)
        except BaseException as e:
            conn.close()
            if isinstance(e, Lost) and used and not answer.begun and request.repeat != ONCE:
                return self.begin(request, attempts)  # it had ended while nobody used it
            raise
        self.met = True
        return conn, answer

    def feed(self, conn: Connection, answer: Answer) -> None:
        """Waits for more of an answer."""
        try:
            answer.feed(conn.receive())
        except EOFError as e:
            raise Lost(str(e), sent=True) from e

    def give(self, conn: Connection, answer: Answer) -> None:
        """Takes a connection back."""
        with self._lock:
            if answer.done and answer.reusable and not self._closed and len(self._idle) < self._IDLE:
                self._idle.append(conn)
                return
        conn.close()

    def close(self) -> None:
        """Closes the connections that nobody uses; no other is kept from here on."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for conn in idle:
            conn.close()

    def _attempt(self, request: Request, attempts: Attempts, final: bool) -> Tuple[Answer, bytes]:
        while True:
            try:
                answer, body = self._once(request, attempts)
            except Lost as lost:
                pause(attempts.after_loss(request, lost, now()))
                continue
            failed = refusal(answer.status, body)
            if failed is None or (final and failed.receipt is not None):
                return answer, body
            pause(attempts.after_refusal(failed, now()))

    def _undo(self, op: str, request: Request) -> None:
        """Ends what an operation has begun: asked again, with its key, it says what that is."""
        answer, body = self.send(impatient(request), final=True)
        end = ending(op, answer, body)
        if end is not None:
            self.receipt(end, repeatable=True)

    def _once(self, request: Request, attempts: Attempts) -> Tuple[Answer, bytes]:
        conn, answer = self.begin(request, attempts)
        body = bytearray(answer.take())
        try:
            while not answer.done:
                self.feed(conn, answer)
                body += answer.take()
        except BaseException:
            conn.close()
            raise
        self.give(conn, answer)
        return answer, bytes(body)

    def _take(self, request: Request) -> Optional[Connection]:
        """A connection that nobody uses; none for what must not be asked again, since it may end at any time."""
        with self._lock:
            while self._idle and request.repeat != ONCE:
                conn = self._idle.pop()
                if not conn.ended():
                    return conn
                conn.close()
            return None


def shaped(value: Optional[T], what: str) -> T:
    """What the contract says is there."""
    if value is None:
        raise ProtocolError("protocol_error", f"the answer has no {what}")
    return value
