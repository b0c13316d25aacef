"""HTTP/1.1 without a socket: requests to bytes, and bytes to answers.

It knows what the supervisor sends (lengths, chunks, connections that are closed) and no more: no redirects, no
compression, no trailers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import BinaryIO, Dict, Iterator, Optional, Tuple, Union
from urllib.parse import quote, urlencode

from .failure import ProtocolError

#: how a request may be repeated when its answer was lost
READ, KEYED, ONCE = "read", "keyed", "once"

_PIECE = 1 << 20
_MOST_HEAD = 1 << 16


@dataclass(frozen=True)
class Request:
    """One request. Its bytes are the same each time that it is sent."""

    method: str
    path: str
    query: Tuple[Tuple[str, str], ...] = ()
    body: Union[bytes, BinaryIO, None] = None
    size: int = 0  # of a body that is a file
    headers: Tuple[Tuple[str, str], ...] = ()
    repeat: str = READ

    def pieces(self) -> Iterator[bytes]:
        """What is sent."""
        target = self.path + ("?" + urlencode(self.query, quote_via=quote) if self.query else "")
        head = [f"{self.method} {target} HTTP/1.1", "Host: stockade"] + [f"{name}: {value}" for name, value in self.headers]
        if self.body is not None:
            head.append(f"Content-Length: {len(self.body) if isinstance(self.body, bytes) else self.size}")
        first = ("\r\n".join(head) + "\r\n\r\n").encode("ascii")
        if isinstance(self.body, bytes):
            yield first + self.body
            return
        yield first
        if self.body is not None:
            self.body.seek(0)
            left = self.size
            while left > 0:
                piece = self.body.read(min(left, _PIECE))
                if not piece:
                    raise ValueError("the content is shorter than it was")
                left -= len(piece)
                yield piece


def segment(text: str) -> str:
    """A part of a path."""
    return quote(text, safe="")


@dataclass
class Answer:
    """An answer as it arrives: feed it what the socket gives, b"" at its end."""

    status: int = 0
    headers: Dict[str, str] = field(default_factory=dict)
    done: bool = False
    #: another request can follow on the connection, once it is done
    reusable: bool = True

    _in: bytearray = field(default_factory=bytearray)
    _body: bytearray = field(default_factory=bytearray)
    _left: Optional[int] = None  # of the body, or of the chunk; None is until the end of the connection
    _chunked: bool = False
    _state: str = "head"

    @property
    def begun(self) -> bool:
        """Something has arrived."""
        return self.status != 0 or bool(self._in)

    def feed(self, data: bytes) -> None:
        """Takes what arrived. The end of the connection before that of the answer is an EOFError."""
        if not data:
            if self._state == "rest":
                self.done = True
            if not self.done:
                raise EOFError("the connection ended in an answer")
            return
        self._in += data
        while self._step():
            pass

    def take(self) -> bytes:
        """What there is of the body, once."""
        body = bytes(self._body)
        self._body.clear()
        return body

    def _step(self) -> bool:
        """One step, if there is enough for it."""
        if self.done:
            if self._in:
                self.reusable = False  # nobody asked for that
            return False
        return {"head": self._head, "sized": self._sized, "rest": self._rest, "chunk": self._chunk, "crlf": self._crlf, "last": self._last}[self._state]()

    def _line(self) -> Optional[bytes]:
        end = self._in.find(b"\r\n")
        if end < 0:
            if len(self._in) > _MOST_HEAD:
                raise ProtocolError("protocol_error", "a line of the answer does not end")
            return None
        line = bytes(self._in[:end])
        del self._in[: end + 2]
        return line

    def _head(self) -> bool:
        end = self._in.find(b"\r\n\r\n")
        if end < 0:
            if len(self._in) > _MOST_HEAD:
                raise ProtocolError("protocol_error", "the head of the answer does not end")
            return False
        lines = self._in[:end].decode("latin-1").split("\r\n")
        del self._in[: end + 4]
        version, _, rest = lines[0].partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise ProtocolError("protocol_error", f"this is no answer of HTTP: {lines[0][:80]!r}")
        status = int(rest[:3])
        if 100 <= status < 200:
            return True  # the answer comes behind it
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.status = status
        self.reusable = version == "HTTP/1.1" and self.headers.get("connection", "").lower() != "close"
        length = self.headers.get("content-length")
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            self._chunked, self._state = True, "chunk"
        elif status in (204, 304):
            self.done = True
        elif length is not None:
            if not length.isdigit():
                raise ProtocolError("protocol_error", "the answer has no length")
            self._left, self._state = int(length), "sized"
            self.done = self._left == 0
        else:
            self._state, self.reusable = "rest", False
        return True

    def _sized(self) -> bool:
        assert self._left is not None
        part = self._in[: self._left]
        if not part:
            return False
        self._body += part
        del self._in[: len(part)]
        self._left -= len(part)
        if self._left == 0:
            self.done, self._state = not self._chunked, "crlf"
        return True

    def _rest(self) -> bool:
        self._body += self._in
        self._in.clear()
        return False

    def _chunk(self) -> bool:
        line = self._line()
        if line is None:
            return False
        try:
            self._left = int(line.split(b";")[0], 16)
        except ValueError:
            raise ProtocolError("protocol_error", "a chunk has no length") from None
        self._state = "sized" if self._left else "last"
        return True

    def _crlf(self) -> bool:
        if len(self._in) < 2:
            return False
        if not self._in.startswith(b"\r\n"):
            raise ProtocolError("protocol_error", "a chunk does not end")
        del self._in[:2]
        self._state = "chunk"
        return True

    def _last(self) -> bool:
        line = self._line()
        if line is None:
            return False
        self.done = line == b""
        return True
