"""Where the client that blocks touches the world: a unix socket and the clock."""

from __future__ import annotations

import select
import socket
import threading
import time
from typing import Callable, Optional

from ..retry import SETTLING, Lost

_PIECE = 1 << 18


class Connection:
    """A connection to the supervisor. The caller closes it."""

    def __init__(self, conn: socket.socket) -> None:
        self._conn = conn

    @classmethod
    def open(cls, path: str) -> "Connection":
        conn = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            conn.settimeout(_left())
            conn.connect(path)
        except OSError as e:
            conn.close()
            raise Lost(f"connect to {path}: {e.strerror or e}", sent=False, absent=isinstance(e, (FileNotFoundError, ConnectionRefusedError))) from e
        except BaseException:
            conn.close()
            raise
        return cls(conn)

    def send(self, data: bytes) -> None:
        try:
            self._conn.settimeout(_left())
            self._conn.sendall(data)
        except OSError as e:
            raise Lost(f"send: {e.strerror or e}", sent=True) from e

    def receive(self) -> bytes:
        """What arrived; b"" at the end."""
        try:
            self._conn.settimeout(_left())
            return self._conn.recv(_PIECE)
        except OSError as e:
            raise Lost(f"receive: {e.strerror or e}", sent=True) from e

    def ended(self) -> bool:
        """Nothing can be asked on it: the other side is closed, or says what nobody has asked for."""
        poll = select.poll()
        poll.register(self._conn, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        self._conn.close()


now = time.monotonic


def pause(seconds: float) -> None:
    left = _left()
    time.sleep(seconds if left is None else min(seconds, left))


class _Late(Exception):
    """The time for settling is over."""


_settling = threading.local()


def _left() -> Optional[float]:
    """For how long this thread may wait; None is for ever."""
    until = getattr(_settling, "until", None)
    if until is None:
        return None
    if until <= now():
        raise _Late
    return float(until - now())


def settle(last: Callable[[], None], hurry: bool = False) -> None:
    """Does what is to be done in any case. In a hurry, which is after an interrupt, there are SETTLING seconds for it, and
    nobody to be told what goes wrong."""
    if not hurry:
        last()
        return
    _settling.until = now() + SETTLING
    try:
        last()
    except Exception:
        pass
    finally:
        _settling.until = None
