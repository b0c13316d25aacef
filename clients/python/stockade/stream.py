"""Streams of lines without a socket: how far one has come, and what is asked to go on from there."""

from __future__ import annotations

from typing import Callable, Generic, List, Optional, Tuple, TypeVar

from .codec import DecodeError, decode
from .failure import ProtocolError
from .http import Request
from .model import Event, Notice, Receipt, ShellOutput
from .request import NDJSON, get

T = TypeVar("T")


class Course(Generic[T]):
    """The course of a stream that is followed, over as many connections as it takes."""

    def __init__(self, path: str, after: str, read: Callable[[bytes], Tuple[Optional[T], str, bool]], open_end: bool = False) -> None:
        self._path = path
        #: behind the last item that has arrived
        self.cursor = after
        #: the supervisor says that nothing follows by ending the answer
        self.open_end = open_end
        #: nothing follows, ever
        self.ended = False
        self._read = read
        self._rest = bytearray()

    def request(self) -> Request:
        """What is asked to go on. What an earlier connection had begun to say is said again."""
        self._rest.clear()
        return get(self._path, (("after", self.cursor or None),), accept=NDJSON)

    def feed(self, data: bytes) -> List[Tuple[T, str]]:
        """The items that have arrived whole, each with the cursor behind it."""
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        items = []
        for line in lines:
            try:
                item, cursor, ended = self._read(bytes(line))
            except DecodeError as e:
                raise ProtocolError("protocol_error", str(e)) from None
            self.cursor = cursor or self.cursor
            self.ended = self.ended or ended
            if item is not None:
                items.append((item, self.cursor))
        return items


def last(receipt: Receipt) -> Event:
    """The end of an execution that had ended before it was followed, as the event that it would have been."""
    return Event("receipt", exec_id=receipt.exec_id, intent_id=receipt.intent_id, receipt=receipt)


def event(line: bytes) -> Tuple[Optional[Event], str, bool]:
    e = decode(Event, line)
    return (None if e.kind == "keepalive" else e), e.cursor or "", e.kind == "receipt"


def notice(line: bytes) -> Tuple[Optional[Notice], str, bool]:
    if b'"keepalive"' in line[:24]:
        return None, "", False
    n = decode(Notice, line)
    return n, str(n.seq), False


def screen(line: bytes) -> Tuple[Optional[ShellOutput], str, bool]:
    if b'"keepalive"' in line[:24]:
        return None, "", False
    o = decode(ShellOutput, line)
    return o, o.token, bool(o.end)
