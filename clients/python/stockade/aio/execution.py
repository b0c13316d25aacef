"""A command while it runs, and after."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, Optional, Union

from ..failure import Exhausted, Interrupted, NotFound, Pending, StockadeError, Unavailable, of_receipt
from ..http import segment
from ..model import ControlResult, Event, Exec, Process, ProcessCancel, ProcessInput, ProcessModify, ProcessTarget, Receipt, Stdin
from ..request import get, named, operate, renewed, settled
from ..codec import Secret
from ..stream import Course, event, last
from ..value import Duration, Result, executed, inline, milliseconds, nanoseconds, portion, raw, signal_of, stdin_of
from .edge import now, settle
from .exchange import AsyncExchange, shaped
from .stream import AsyncStream

_FINAL = frozenset({"completed", "failed", "canceled", "timed_out"})
_TURN = 30  # seconds of one look


class AsyncExecution:
    """One command. It goes on, whoever looks, until it ends or is canceled; leaving a with-block cancels it."""

    def __init__(self, exchange: AsyncExchange, exec_id: str, receipt: Optional[Receipt] = None) -> None:
        self._exchange = exchange
        #: of the execution
        self.id = exec_id
        self._receipt = receipt
        self._inputs = 0
        self._writer = uuid.uuid4().hex[:12]

    def __repr__(self) -> str:
        return f"<execution {self.id}>"

    async def __aenter__(self) -> AsyncExecution:
        return self

    async def __aexit__(self, *failure: Any) -> None:
        if self._receipt is None:
            await settle(self._end, hurry=asyncio.CancelledError in failure)

    def __aiter__(self) -> AsyncStream[Event]:
        return self.events()

    def events(self, after: str = "") -> AsyncStream[Event]:
        """What happens to it, from a cursor on: output, frames, and its receipt at the end."""
        over = self.id

        def ended(receipt: Receipt) -> Optional[Event]:
            return last(receipt) if receipt.exec_id == over and receipt.op in ("host.exec", "host.shell.open") else None

        return AsyncStream(self._exchange, Course(f"/v1/executions/{segment(self.id)}/output", after, event), ended)

    async def info(self) -> Process:
        """What the registry has of it."""
        return await self._exchange.read(Process, get(f"/v1/executions/{segment(self.id)}"))

    async def wait(self, timeout: Optional[Duration] = None) -> Optional[Result]:
        """How it ended, or None when it has not within the timeout. A task that is canceled here leaves it running."""
        until = None if timeout is None else now() + milliseconds(timeout) / 1000
        while self._receipt is None:
            turn = _TURN * 1000 if until is None else max(1, min(_TURN * 1000, round((until - now()) * 1000)))
            process = await self._exchange.read(Process, get(f"/v1/executions/{segment(self.id)}/wait", (("wait_ms", turn),)))
            if process.state in _FINAL:
                self._receipt = await self._exchange.read(Receipt, get(f"/v1/receipts/{segment(process.intent_id)}"))
            elif until is not None and now() >= until:
                return None
        return await self._result(self._receipt)

    async def result(self) -> Result:
        """How it ended, once it has."""
        while True:
            result = await self.wait()
            if result is not None:
                return result

    async def write(self, data: Union[str, bytes, Secret], close: bool = False) -> int:
        """Writes all of it to its stdin, which it was started with open, however long it takes to read that, and says how
        many bytes that were. Each is written once, also where an answer gets lost. What is large travels in parts; a
        secret does not, and is Exhausted when it is not read in time."""
        if isinstance(data, Secret):
            await self._input(stdin_of(data), close)
            return len(raw(data.secret))
        content, at = raw(data), 0
        while True:
            stdin, end = portion(content, at, isinstance(data, str))
            try:
                await self._input(stdin, close and end == len(content))
            except Exhausted as full:
                written = full.receipt.payload.control if full.receipt and full.receipt.payload else None
                if full.code != "stdin_full" or written is None:
                    raise
                at += written.bytes or 0
                continue
            at = end
            if at == len(content):
                return at

    async def close_stdin(self) -> None:
        """The end of its input."""
        await self._input(None, True)

    async def signal(self, signal: Union[str, int]) -> ControlResult:
        return await self._control("host.process.signal", {"exec_id": self.id, "signal": signal_of(signal)})

    async def cancel(self, grace: Optional[Duration] = None, wait: bool = True) -> ControlResult:
        """Ends it with its whole tree: TERM, and KILL after the grace."""
        return await self._control("host.process.cancel", ProcessCancel(exec_id=self.id, grace_timeout_ns=nanoseconds(grace), wait=None if wait else False))

    async def pause(self) -> ControlResult:
        return await self._control("host.process.pause", ProcessTarget(exec_id=self.id))

    async def resume(self) -> ControlResult:
        return await self._control("host.process.resume", ProcessTarget(exec_id=self.id))

    async def modify(self, timeout: Duration) -> ControlResult:
        """Gives it another time limit, from its start on."""
        return await self._control("host.process.modify", ProcessModify(nanoseconds(timeout) or 0, exec_id=self.id))

    async def delete(self) -> ControlResult:
        """Takes it out of the registry, once it has ended. Its receipt stays."""
        return await self._control("host.process.delete", ProcessTarget(exec_id=self.id))

    async def _input(self, data: Optional[Stdin], close: bool) -> None:
        """One input. That it was written before is said of one whose answer got lost."""
        self._inputs += 1
        ask = ProcessInput(exec_id=self.id, data=data, close=close or None, input_id=f"{self._writer}-{self._inputs}")
        await self._control("host.process.input", ask, repeatable=True)

    async def _control(self, op: str, parameters: Any, repeatable: bool = False) -> ControlResult:
        receipt = await self._exchange.receipt(named(op, parameters), op, repeatable=repeatable)
        return shaped(shaped(receipt.payload, "payload").control, "result")

    async def _end(self) -> None:
        try:
            await self.cancel()
        except (NotFound, Unavailable, Interrupted):
            pass  # it is gone, or nobody is there who could end it

    async def _result(self, receipt: Receipt) -> Result:
        failed = of_receipt(receipt)
        if failed is not None:
            raise failed
        x = executed(receipt)
        stdout, stderr = await self._kept(x.stdout), await self._kept(x.stderr)
        return Result(receipt.exec_id or self.id, x.exit_code, x.status, stdout, stderr, receipt)

    async def _kept(self, output: Any) -> bytes:
        content, ref = inline(output)
        return await fetch(self._exchange, ref) if ref else content


async def fetch(exchange: AsyncExchange, ref: str) -> bytes:
    """The content of a blob."""
    _, body = await exchange.send(get(f"/v1/blobs/{segment(ref)}"))
    return body


async def start(exchange: AsyncExchange, path: str, ask: Exec, key: Optional[str], repeatable: bool) -> AsyncExecution:
    """Starts a command, and returns when its intent is durable, or when it has ended already."""
    request = operate(path, ask, key)
    while True:
        answer, body = await exchange.send(request, final=True, undo="host.exec")
        try:
            receipt = settled(answer, body)
        except Pending as e:
            return AsyncExecution(exchange, e.exec_id)
        except StockadeError as e:
            if e.code != "supervisor_restarted" or key or not repeatable:
                raise
            request = renewed(request)
            continue
        return AsyncExecution(exchange, receipt.exec_id or "", receipt)


async def run(exchange: AsyncExchange, ask: Exec, key: Optional[str], repeatable: bool) -> Result:
    """Runs a command to its end. Who is interrupted meanwhile has it canceled."""
    while True:
        execution = await start(exchange, "/v1/exec", ask, key, repeatable)
        try:
            return await execution.result()
        except asyncio.CancelledError:
            await settle(execution._end, hurry=True)
            raise
        except StockadeError as e:
            if e.code != "supervisor_restarted" or key or not repeatable:
                raise
