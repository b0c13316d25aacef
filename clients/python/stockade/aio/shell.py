"""A shell: a program on a terminal, which keeps its directory, variables and jobs between commands."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, Optional, Union

from ..codec import Secret
from ..failure import Interrupted, NotFound, Unavailable
from ..http import segment
from ..model import Receipt, Shell as ShellRecord, ShellAction, ShellClose, ShellInput, ShellOutput, ShellResize, ShellResult, ShellRun
from ..request import get, named
from ..stream import Course, screen
from ..value import Duration, Ran, inline, milliseconds, nanoseconds, stdin_of, typed_at
from .edge import settle
from .exchange import AsyncExchange
from .execution import fetch
from .stream import AsyncStream


class AsyncShell:
    """One shell. Leaving a with-block closes it; a restart of the supervisor does not."""

    def __init__(self, exchange: AsyncExchange, exec_id: str, opened: Optional[ShellRecord] = None) -> None:
        self._exchange = exchange
        #: of the execution that it is
        self.id = exec_id
        #: how it was when it was opened
        self.opened = opened
        self._typist = uuid.uuid4().hex[:12]
        self._typed = 0

    def __repr__(self) -> str:
        return f"<shell {self.id}>"

    async def __aenter__(self) -> AsyncShell:
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await settle(self._end, hurry=asyncio.CancelledError in failure)

    async def run(self, command: str, timeout: Optional[Duration] = None) -> Ran:
        """Has it run one command, of any number of lines, and waits for its end. After the timeout it is interrupted."""
        ask = ShellRun(command, exec_id=self.id, timeout_ns=nanoseconds(timeout), input_id=self._input())
        receipt = await self._exchange.receipt(named("host.shell.run", ask), "host.shell.run")
        ran = typed_at(receipt)
        output, ref = inline(ran.stdout)
        return Ran(ran.exit_code, await fetch(self._exchange, ref) if ref else output, bool(ran.timed_out), receipt)

    async def type(self, data: Union[str, bytes, Secret, None] = None, *actions: str, takeover: bool = False) -> ShellResult:
        """Types, then does the actions: CTRL_C, CTRL_D, SIGINT, SIGTERM, SIGKILL. Once, also where the answer gets lost."""
        ask = ShellInput(exec_id=self.id, data=stdin_of(data), actions=tuple(ShellAction(a) for a in actions) or None,
                         takeover=takeover or None, input_id=self._input())
        return typed_at(await self._exchange.receipt(named("host.shell.input", ask), "host.shell.input", repeatable=True))

    def follow(self, after: str = "") -> AsyncStream[ShellOutput]:
        """What comes out of it, from a token on, until it has ended."""
        return AsyncStream(self._exchange, Course(self._path("/output"), after, screen))

    async def output(self, after: str = "", wait: Duration = 0, max_bytes: Optional[int] = None) -> ShellOutput:
        """A page of what came out of it after a token; when there is nothing, it waits for so long."""
        query = (("after", after or None), ("wait_ms", milliseconds(wait) or None), ("max_bytes", max_bytes))
        return await self._exchange.read(ShellOutput, get(self._path("/output"), query))

    async def info(self) -> ShellRecord:
        """Its state, its prompt, the last commands with their exit codes, who is attached."""
        return await self._exchange.read(ShellRecord, get(self._path("")))

    async def resize(self, cols: int, rows: int) -> ShellResult:
        return typed_at(await self._exchange.receipt(named("host.shell.resize", ShellResize(cols, rows, exec_id=self.id)), "host.shell.resize"))

    async def close(self, grace: Optional[Duration] = None, force: bool = False) -> Receipt:
        """Hangs up, and kills what is left after the grace; with force at once."""
        ask = ShellClose(exec_id=self.id, mode="force" if force else None, grace_timeout_ns=nanoseconds(grace))
        return await self._exchange.receipt(named("host.shell.close", ask), "host.shell.close")

    def _path(self, rest: str) -> str:
        return f"/v1/shells/{segment(self.id)}{rest}"

    def _input(self) -> str:
        self._typed += 1
        return f"{self._typist}-{self._typed}"

    async def _end(self) -> None:
        try:
            await self.close(force=True)
        except (NotFound, Unavailable, Interrupted):
            pass  # it is gone, or nobody is there who could end it
