"""A session: commands, shells, files and tools within one grant."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, Iterable, Mapping, Optional, Sequence, Union

from ..codec import EnvValue
from ..failure import Conflict, Interrupted, NotFound, Unavailable, of_receipt
from ..http import ONCE, segment
from ..model import (Change, CloseResult, ControlResult, Event, Exec, Grant, GrantNetwork, Limits, Notice, Receipt, Session as SessionRecord, SessionClose, SessionNarrow,
                     SessionTarget, Shell as ShellRecord, SignalResult, SpaceResult, Terminal, ToolAnswer, ToolCall, ToolCatalogue, Workspace)
from ..request import ask as asking
from ..request import document, get, named, operate, settled
from ..stream import Course, notice
from ..value import Content, Duration, Result, mapping, milliseconds, nanoseconds, several, signal_of, stdin_of
from .edge import settle
from .exchange import AsyncExchange, shaped
from .execution import AsyncExecution, run, start
from .files import AsyncFiles
from .shell import AsyncShell
from .stream import AsyncStream

#: a command that ends within so many milliseconds is answered at once; of one that goes on its id is known by then
_SOON = 500


class AsyncSession(AsyncFiles):
    """One session. Leaving a with-block closes it; its files have their own methods here."""

    def __init__(self, exchange: AsyncExchange, session_id: str, opened: Optional[Receipt] = None) -> None:
        super().__init__(exchange, session_id)
        #: the receipt of the open, where this client opened it
        self.receipt = opened

    def __repr__(self) -> str:
        return f"<session {self.id}>"

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await settle(self._end, hurry=asyncio.CancelledError in failure)

    @property
    def grant(self) -> Optional[Grant]:
        """What policy granted, where this client opened it."""
        payload = self.receipt.payload if self.receipt else None
        return payload.open.grant if payload and payload.open else None

    async def exec(self, argv: Sequence[str], *, cwd: Optional[str] = None, env: Optional[Mapping[str, EnvValue]] = None, stdin: Optional[Content] = None,
                   timeout: Optional[Duration] = None, limits: Optional[Limits] = None, outputs: Sequence[str] = (), labels: Optional[Mapping[str, str]] = None,
                   key: Optional[str] = None, repeatable: bool = False) -> Result:
        """Runs a command to its end, and says how it ended. Who is interrupted meanwhile has it canceled.

        It runs once. repeatable says that it may run again where a restart of the supervisor left unknown whether it
        did; otherwise that is Interrupted.
        """
        ask = await self._exec(argv, cwd, env, stdin, timeout, limits, outputs, labels, False, _SOON)
        return await run(self._exchange, ask, key, repeatable)

    async def start(self, argv: Sequence[str], *, cwd: Optional[str] = None, env: Optional[Mapping[str, EnvValue]] = None, stdin: Optional[Content] = None,
                    stdin_open: bool = False, timeout: Optional[Duration] = None, limits: Optional[Limits] = None, outputs: Sequence[str] = (),
                    labels: Optional[Mapping[str, str]] = None, key: Optional[str] = None) -> AsyncExecution:
        """Starts a command and does not wait for its end. Who is interrupted meanwhile has it canceled."""
        ask = await self._exec(argv, cwd, env, stdin, timeout, limits, outputs, labels, stdin_open, 0)
        return await start(self._exchange, "/v1/exec", ask, key, False)

    async def stream(self, argv: Sequence[str], *, cwd: Optional[str] = None, env: Optional[Mapping[str, EnvValue]] = None, stdin: Optional[Content] = None,
                     timeout: Optional[Duration] = None, limits: Optional[Limits] = None, labels: Optional[Mapping[str, str]] = None,
                     key: Optional[str] = None) -> AsyncIterator[Event]:
        """Runs a command and gives out what happens to it as it happens; its receipt is the last. One that was denied, or could
        not be started, is an exception then. Who leaves before the end has it canceled."""
        async with await self.start(argv, cwd=cwd, env=env, stdin=stdin, timeout=timeout, limits=limits, labels=labels, key=key) as execution:
            async with execution.events() as events:
                async for event in events:
                    if event.receipt is not None:
                        execution._receipt = event.receipt
                    yield event
                    failed = of_receipt(event.receipt) if event.receipt else None
                    if failed is not None:
                        raise failed

    def execution(self, exec_id: str) -> AsyncExecution:
        """One that was started before, by whomever."""
        return AsyncExecution(self._exchange, exec_id)

    async def shell(self, argv: Sequence[str] = (), *, cwd: Optional[str] = None, env: Optional[Mapping[str, EnvValue]] = None, cols: int = 80, rows: int = 24,
                    wait: Optional[Duration] = None, labels: Optional[Mapping[str, str]] = None, key: Optional[str] = None) -> AsyncShell:
        """Opens a shell, /bin/bash --login unless said otherwise, and returns when its prompt is there, or after the wait.
        Who is interrupted meanwhile has it closed."""
        ask = Exec(self.id, tuple(argv), cwd=cwd, env_patch=mapping(env), terminal=Terminal(cols, rows), labels=dict(labels) if labels else None,
                   wait_ms=milliseconds(wait) if wait is not None else None)
        answer, body = await self._exchange.send(operate("/v1/shells", ask, key), final=True, undo="host.shell.open")
        if answer.status == 202:
            opened = document(ShellRecord, answer, body)
            return AsyncShell(self._exchange, opened.exec_id, opened)
        return AsyncShell(self._exchange, settled(answer, body).exec_id or "")

    async def call_tool(self, profile: str, call: Mapping[str, Any]) -> ToolAnswer:
        """Has a call that a model made carried out, as its provider has it. One that was denied or has failed is an answer,
        which the model is to be given.

        A call can be several operations and has no key: when its answer gets lost it is asked again if its tool only
        reads, and is Interrupted otherwise.
        """
        request = asking("/v1/tools/call", ToolCall(profile, self.id, dict(call)), ONCE)
        while True:
            try:
                return await self._exchange.read(ToolAnswer, request)
            except Interrupted:
                inner = call.get("functionCall")
                name = inner.get("name") if isinstance(inner, dict) else call.get("name")
                catalogue = await self._exchange.read(ToolCatalogue, get("/v1/tools", (("profile", profile),)))
                if not any(t.name == name and t.read_only for t in catalogue.tools):
                    raise

    async def info(self) -> SessionRecord:
        """The session as the supervisor has it."""
        return await self._exchange.read(SessionRecord, get(self._path("")))

    def events(self, after: int = 0) -> AsyncStream[Notice]:
        """What happens to the session, from the event after that number on, until it has ended."""
        return AsyncStream(self._exchange, Course(self._path("/events"), str(after) if after else "", notice, open_end=True))

    async def signal(self, signal: Union[str, int]) -> SignalResult:
        """Delivers a signal to everything that runs in it; TERM and KILL end the session."""
        receipt = await self._exchange.receipt(operate("/v1/signal", {"session_id": self.id, "signal": signal_of(signal)}))
        return shaped(shaped(receipt.payload, "payload").signal, "result")

    async def pause(self) -> ControlResult:
        return await self._control("host.session.pause", SessionTarget(self.id))

    async def resume(self) -> ControlResult:
        return await self._control("host.session.resume", SessionTarget(self.id))

    async def narrow(self, network: GrantNetwork) -> ControlResult:
        """Takes a part of its network away. What is reached through it is cut off."""
        return await self._control("host.session.narrow", SessionNarrow(self.id, network))

    async def diff(self, guest_path: Optional[str] = None) -> AsyncIterator[Change]:
        """What an overlay has that its source has not, in order of paths."""
        after: Optional[str] = None
        raw: Optional[bytes] = None
        while True:
            ask = Workspace(self.id, guest_path=guest_path, after=after, after_bytes=raw)
            page = await self._exchange.read(SpaceResult, asking("/v1/ops/host.workspace.diff", ask))
            changes = page.changes or ()
            for change in changes:
                yield change
            if not page.more or not changes:
                return
            guest_path, after, raw = page.guest_path or guest_path, changes[-1].path, changes[-1].path_bytes

    async def commit(self, paths: Iterable[str] = (), guest_path: Optional[str] = None, key: Optional[str] = None) -> SpaceResult:
        """Makes the changes of an overlay to its source: those at and below the paths, or all."""
        return await self._space("host.workspace.commit", Workspace(self.id, guest_path=guest_path, paths=tuple(paths) or None), key)

    async def discard(self, guest_path: Optional[str] = None, key: Optional[str] = None) -> SpaceResult:
        """Empties an overlay, when nothing runs."""
        return await self._space("host.workspace.discard", Workspace(self.id, guest_path=guest_path), key)

    async def close(self, grace: Optional[Duration] = None, force: bool = False) -> CloseResult:
        """Ends it with all that runs in it: TERM, and KILL after the grace; with force at once."""
        ask = SessionClose(self.id, mode="force" if force else None, grace_timeout_ns=nanoseconds(grace))
        receipt = await self._exchange.receipt(operate("/v1/close", ask), "host.session.close")
        return shaped(shaped(receipt.payload, "payload").close, "result")

    async def _exec(self, argv: Sequence[str], cwd: Optional[str], env: Optional[Mapping[str, EnvValue]], stdin: Optional[Content], timeout: Optional[Duration],
                    limits: Optional[Limits], outputs: Sequence[str], labels: Optional[Mapping[str, str]], stdin_open: bool, soon: int) -> Exec:
        content = await self._portable(stdin) if stdin is not None else None
        return Exec(self.id, several(argv) or (), cwd=cwd, env_patch=mapping(env), stdin=stdin_of(content), timeout_ns=nanoseconds(timeout), limits=limits,
                    outputs=several(outputs), labels=dict(labels) if labels else None, stdin_open=stdin_open or None,
                    wait=None if soon else False, wait_ms=soon or None)

    async def _control(self, op: str, parameters: Any) -> ControlResult:
        receipt = await self._exchange.receipt(named(op, parameters), op)
        return shaped(shaped(receipt.payload, "payload").control, "result")

    async def _space(self, op: str, parameters: Workspace, key: Optional[str]) -> SpaceResult:
        receipt = await self._exchange.receipt(named(op, parameters, key), op, own_key=key is not None)
        return shaped(shaped(receipt.payload, "payload").workspace, "result")

    async def _end(self) -> None:
        try:
            await self.close(force=True)
        except (NotFound, Conflict, Unavailable, Interrupted):
            pass  # it has ended, or nobody is there who could end it

    def _path(self, rest: str) -> str:
        return f"/v1/sessions/{segment(self.id)}{rest}"
