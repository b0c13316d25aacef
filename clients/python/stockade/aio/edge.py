"""Where the client that awaits touches the world: a unix socket and the clock of asyncio."""

from __future__ import annotations

import asyncio
from typing import Awaitable, Set

from ..retry import Lost

_PIECE = 1 << 18


class Connection:
    """A connection to the supervisor. The caller closes it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, path: str) -> "Connection":
        try:
            return cls(*await asyncio.open_unix_connection(path, limit=_PIECE))
        except OSError as e:
            raise Lost(f"connect to {path}: {e.strerror or e}", sent=False, absent=isinstance(e, (FileNotFoundError, ConnectionRefusedError))) from e

    async def send(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as e:
            raise Lost(f"send: {e.strerror or e}", sent=True) from e

    async def receive(self) -> bytes:
        """What arrived; b"" at the end."""
        try:
            return await self._reader.read(_PIECE)
        except OSError as e:
            raise Lost(f"receive: {e.strerror or e}", sent=True) from e

    def close(self) -> None:
        self._writer.close()


def now() -> float:
    return asyncio.get_running_loop().time()


async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


_settling: "Set[asyncio.Future[None]]" = set()


async def settle(last: Awaitable[None]) -> None:
    """Does what is to be done in any case, also when the task is canceled once more meanwhile."""
    task = asyncio.ensure_future(last)
    _settling.add(task)
    task.add_done_callback(_settling.discard)
    await asyncio.shield(task)
