# Made by generate.py from aio/stream.py, which is the one to read and to change.
"""What is followed, as an iterator."""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, Generic, Optional, Tuple, TypeVar

from ..failure import Gone, ProtocolError
from ..http import Answer
from ..model import Receipt
from ..request import NDJSON, refusal, scoped
from ..retry import Attempts, Lost
from ..stream import Course
from .edge import Connection, now, pause
from .exchange import Exchange

T = TypeVar("T")


class Stream(Generic[T]):
    """Items as they come. A connection that is lost is taken up again behind the last item, also over a restart of the
    supervisor: nothing is left out and nothing comes twice. It ends when nothing follows, ever.

    Leaving it ends the following, not what is followed.
    """

    def __init__(self, exchange: Exchange, course: Course[T], over: Optional[Callable[[Receipt], Optional[T]]] = None) -> None:
        self._exchange, self._course, self._over = exchange, course, over
        self._attempts: Optional[Attempts] = None
        self._items: Deque[Tuple[T, str]] = deque()
        self._conn: Optional[Connection] = None
        self._answer = Answer()
        self._done = False
        #: behind the last item that was taken: where another stream goes on
        self.cursor = course.cursor

    def __iter__(self) -> Stream[T]:
        return self

    def __next__(self) -> T:
        while not self._items:
            if self._done or self._course.ended:
                self.close()
                raise StopIteration
            try:
                self._more()
            except BaseException:
                self.close()
                raise
        item, self.cursor = self._items.popleft()
        return item

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends the following."""
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()

    def _more(self) -> None:
        """Waits for something to have arrived, or tries to."""
        if self._attempts is None:
            self._attempts = Attempts(self._exchange.patience, self._exchange.met)
        request = self._course.request() if self._conn is None else None
        try:
            if request is not None:
                self._conn, self._answer = self._exchange.begin(scoped(request, self._exchange.scope), self._attempts)
                if not self._answer.headers.get("content-type", "").startswith(NDJSON):
                    self._instead()
                    return
            elif self._conn is not None:
                self._exchange.feed(self._conn, self._answer)
            data = self._answer.take()
            self._items.extend(self._course.feed(data))
            if b"\n" in data:  # a keepalive is a sign of life, and no item
                self._attempts.progress()
            if self._answer.done and not self._course.ended:
                if not self._course.open_end:
                    raise Lost("the stream ended without its end", sent=True)
                self._done = True
        except Lost as lost:
            self.close()
            pause(self._attempts.after_loss(self._course.request(), lost, now()))

    def _instead(self) -> None:
        """Takes an answer that is no stream: it ended before it began, or was refused."""
        assert self._conn is not None and self._attempts is not None
        body = bytearray(self._answer.take())
        while not self._answer.done:
            self._exchange.feed(self._conn, self._answer)
            body += self._answer.take()
        status = self._answer.status
        self.close()
        failed = refusal(status, bytes(body))
        if failed is None:
            raise ProtocolError("protocol_error", f"the answer is {status}, and no stream")
        item = self._over(failed.receipt) if self._over and failed.receipt else None
        if item is not None:
            self._items.append((item, self.cursor))
            self._done = True
            return
        if isinstance(failed, Gone):
            raise failed
        pause(self._attempts.after_refusal(failed, now()))
