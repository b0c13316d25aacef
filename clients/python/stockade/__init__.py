"""A client of Stockade: sessions, commands, shells, files and tools over the supervisor's unix socket.

    with Stockade() as client, client.open(profile="workspace", mounts=["/srv/repo:/work:rw"], workdir="/work") as s:
        print(s.exec(["make", "test"]).check().text)

It promises what docs/api promises, and no more: an operation with effect takes place once, however often its answer
gets lost; what is followed is taken up again where it was; an exception says what is known, with its receipt.
Stockade blocks and may be used by several threads at a time; AsyncStockade is the same for asyncio. There is nothing
but the standard library in it.

It does not attach a person's terminal to a shell (`stockade shell` does), and verifies no receipts offline
(`stockade receipts verify` does).
"""

from .aio.client import AsyncStockade
from .aio.execution import AsyncExecution
from .aio.session import AsyncSession
from .aio.shell import AsyncShell
from .aio.stream import AsyncStream
from .blocking.client import Stockade
from .blocking.execution import Execution
from .blocking.session import Session
from .blocking.shell import Shell
from .blocking.stream import Stream
from .codec import Secret
from .failure import (CommandFailed, Conflict, Denied, Exhausted, Failed, Gone, Interrupted, Invalid, NotFound, Pending, ProtocolError, StockadeError, Unavailable,
                      Unsupported)
from .value import Found, Ran, Result

__all__ = [
    "Stockade", "Session", "Execution", "Shell", "Stream",
    "AsyncStockade", "AsyncSession", "AsyncExecution", "AsyncShell", "AsyncStream",
    "Result", "Ran", "Found", "Secret",
    "StockadeError", "Denied", "Invalid", "NotFound", "Conflict", "Gone", "Exhausted", "Unsupported", "Interrupted", "Unavailable", "Pending", "Failed",
    "ProtocolError", "CommandFailed",
]
