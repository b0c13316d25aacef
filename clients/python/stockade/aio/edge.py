"""Where the client that awaits touches the world: a unix socket and the clock of asyncio."""

from __future__ import annotations

import asyncio
import select
from typing import Awaitable, Callable, Set

from ..retry import SETTLING, Lost

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

    def ended(self) -> bool:
        """Nothing can be asked on it: the other side is closed, or says what nobody has asked for."""
        if self._writer.is_closing():
            return True
        poll = select.poll()
        poll.register(self._writer.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        self._writer.close()


def now() -> float:
    return asyncio.get_running_loop().time()


async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


_settling: "Set[asyncio.Future[None]]" = set()


async def settle(last: Callable[[], Awaitable[None]], hurry: bool = False) -> None:
    """Does what is to be done in any case, also when the task is canceled once more meanwhile. In a hurry, which is where it
    was canceled before, there are SETTLING seconds for it, and nobody to be told what goes wrong."""

    async def done() -> None:
        try:
            await asyncio.wait_for(last(), SETTLING if hurry else None)
        except Exception:
            if not hurry:
                raise

    task = asyncio.ensure_future(done())
    _settling.add(task)
    task.add_done_callback(_settling.discard)
    await asyncio.shield(task)
