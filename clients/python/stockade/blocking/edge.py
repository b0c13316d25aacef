"""Where the client that blocks touches the world: a unix socket and the clock."""

from __future__ import annotations

import socket
import time

from ..retry import Lost

_PIECE = 1 << 18


class Connection:
    """A connection to the supervisor. The caller closes it."""

    def __init__(self, conn: socket.socket) -> None:
        self._conn = conn

    @classmethod
    def open(cls, path: str) -> "Connection":
        conn = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
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
            self._conn.sendall(data)
        except OSError as e:
            raise Lost(f"send: {e.strerror or e}", sent=True) from e

    def receive(self) -> bytes:
        """What arrived; b"" at the end."""
        try:
            return self._conn.recv(_PIECE)
        except OSError as e:
            raise Lost(f"receive: {e.strerror or e}", sent=True) from e

    def close(self) -> None:
        self._conn.close()


now = time.monotonic


pause = time.sleep
