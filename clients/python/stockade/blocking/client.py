# Made by generate.py from aio/client.py, which is the one to read and to change.
"""The way in: one client of one supervisor."""

from __future__ import annotations

import os
from typing import Any, BinaryIO, Mapping, Optional, Sequence, Tuple, Union

from ..codec import EnvValue
from ..http import segment
from ..model import (Approval, ApprovalList, Ask, BlobResult, Capabilities, Checkpoint, Decision, Destination, HostInfo, Intent, IntentList, Limits, Local,
                     Notice, Process, ProcessList, Quiescence, Receipt, ReceiptList, Root, Scope, Session as SessionRecord, SessionList, SessionOpen, Target, ToolCatalogue,
                     Verdict, VerdictResult, Version)
from ..request import ask as asking
from ..request import get, labels_of, named, operate, upload
from ..stream import Course, notice
from ..value import Duration, MountLike, mapping, mount_of, nanoseconds, several
from .exchange import Exchange, shaped
from .execution import Execution, fetch
from .session import Session
from .shell import Shell
from .stream import Stream

_SOCKET = "/run/stockade/stockade.sock"


class Stockade:
    """A client of the supervisor that listens on the socket: $STOCKADE_SOCKET unless said otherwise. It connects with the
    first call, and any number of calls may be under way at the same time.

    What is lost with a connection is asked again, as what it was: an operation with effect has a key, and takes place
    once. For that a supervisor may be away for so many seconds of patience, which begin with the loss. One that was never
    there is Unavailable at once.
    """

    def __init__(self, socket: Union[str, "os.PathLike[str]", None] = None, *, scope: Optional[Scope] = None, patience: float = 30.0) -> None:
        path = os.fspath(socket) if socket is not None else os.environ.get("STOCKADE_SOCKET") or _SOCKET
        self._exchange = Exchange(path, scope, patience)

    def __enter__(self) -> Stockade:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. Sessions go on."""
        self._exchange.close()

    def open(self, profile: Optional[str] = None, *, mounts: Sequence[MountLike] = (), workdir: Optional[str] = None,
                   env: Optional[Mapping[str, EnvValue]] = None, root: Optional[Root] = None, network: Optional[str] = None,
                   egress: Sequence[Destination] = (), hostname: Optional[str] = None, limits: Optional[Limits] = None,
                   labels: Optional[Mapping[str, str]] = None, ttl: Optional[Duration] = None, idle: Optional[Duration] = None,
                   background: Optional[bool] = None, on_restart: Optional[str] = None, accept_degraded: Sequence[str] = (),
                   verify: Optional[str] = None, key: Optional[str] = None) -> Session:
        """Asks for a session. Of one that is denied the reasons are in Denied; of one that is granted what it got is in grant.
        Who is interrupted meanwhile has it closed."""
        if isinstance(mounts, str):
            raise TypeError("mounts are a list")
        local = Local(mounts=tuple(mount_of(m) for m in mounts) or None, workdir=workdir, env=mapping(env), root=root, network_mode=network,
                      egress=tuple(egress) or None, hostname=hostname)
        ask = SessionOpen(Target(local), profile=profile, session_ttl_ns=nanoseconds(ttl), idle_timeout_ns=nanoseconds(idle), limits=limits,
                          labels=dict(labels) if labels else None, allow_background_processes=background, on_restart=on_restart,
                          accept_degraded=several(accept_degraded), verify=verify)
        receipt = self._exchange.receipt(operate("/v1/sessions", ask, key), "host.session.open", own_key=key is not None, undo=True)
        return Session(self._exchange, shaped(receipt.session_id, "session_id"), receipt)

    def session(self, session_id: str) -> Session:
        """One that was opened before, by whomever. A with-block around it closes it, too."""
        return Session(self._exchange, session_id)

    def execution(self, exec_id: str) -> Execution:
        """A command that was started before."""
        return Execution(self._exchange, exec_id)

    def shell(self, exec_id: str) -> Shell:
        """A shell that was opened before."""
        return Shell(self._exchange, exec_id)

    def sessions(self, *, state: Optional[str] = None, labels: Optional[Mapping[str, str]] = None, limit: Optional[int] = None) -> Tuple[SessionRecord, ...]:
        """The caller's sessions, newest first."""
        query = (("state", state), ("limit", limit)) + labels_of(labels)
        return (self._exchange.read(SessionList, get("/v1/sessions", query))).sessions

    def executions(self, *, session_id: Optional[str] = None, state: Optional[str] = None, active: Optional[bool] = None,
                         labels: Optional[Mapping[str, str]] = None, limit: Optional[int] = None) -> Tuple[Process, ...]:
        """The caller's executions, newest first."""
        query = (("session_id", session_id), ("state", state), ("active", active), ("limit", limit)) + labels_of(labels)
        return (self._exchange.read(ProcessList, get("/v1/executions", query))).processes

    def do(self, op: str, parameters: Any, *, key: Optional[str] = None) -> Receipt:
        """Carries out an operation with effect by its name, with parameters of the model or a mapping, and returns its receipt
        when it took place. What goes on behind the answer, a shell or a command that was asked for with wait=False, is
        Pending. What has no method of its own is asked for so."""
        return self._exchange.receipt(named(op, parameters, key), op, own_key=key is not None)

    def receipt(self, intent_id: str) -> Receipt:
        """The receipt of an operation, whatever its outcome."""
        return self._exchange.read(Receipt, get(f"/v1/receipts/{segment(intent_id)}"))

    def receipts(self, *, session_id: Optional[str] = None, exec_id: Optional[str] = None, op: Optional[str] = None, outcome: Optional[str] = None,
                       limit: Optional[int] = None) -> Tuple[Receipt, ...]:
        """The caller's receipts, newest first."""
        query = (("session_id", session_id), ("exec_id", exec_id), ("op", op), ("outcome", outcome), ("limit", limit))
        return (self._exchange.read(ReceiptList, get("/v1/receipts", query))).receipts

    def intent(self, intent_id: str) -> Intent:
        """An operation with effect, in flight or settled."""
        return self._exchange.read(Intent, get(f"/v1/intents/{segment(intent_id)}"))

    def intents(self, *, session_id: Optional[str] = None, limit: Optional[int] = None) -> Tuple[Intent, ...]:
        return (self._exchange.read(IntentList, get("/v1/intents", (("session_id", session_id), ("limit", limit))))).intents

    def events(self, after: int = 0) -> Stream[Notice]:
        """What happens to all sessions of the caller, from the event after that number on."""
        return Stream(self._exchange, Course("/v1/events", str(after) if after else "", notice))

    def put_blob(self, content: Union[bytes, BinaryIO], *, ref: Optional[str] = None, key: Optional[str] = None) -> BlobResult:
        """Stores content: bytes, or a file that can be read again from its beginning."""
        if isinstance(content, (bytes, bytearray, memoryview)):
            content = bytes(content)
            request = upload(content, len(content), ref, key)
        else:
            request = upload(content, content.seek(0, os.SEEK_END), ref, key)
        receipt = self._exchange.receipt(request, "blob.put", own_key=key is not None)
        return shaped(shaped(receipt.payload, "payload").blob, "result")

    def blob(self, ref: str) -> bytes:
        """The content of a blob."""
        return fetch(self._exchange, ref)

    def tools(self, profile: str) -> ToolCatalogue:
        """The tools of a profile as its models know them: openai, anthropic, gemini or codex."""
        return self._exchange.read(ToolCatalogue, get("/v1/tools", (("profile", profile),)))

    def decide(self, ask: Ask) -> Decision:
        """What policy would say to an operation. Nothing is started."""
        return self._exchange.read(Decision, asking("/v1/decide", ask))

    def approvals(self, *, state: Optional[str] = None, limit: Optional[int] = None) -> Tuple[Approval, ...]:
        """What the caller waits for leave for, or may decide."""
        return (self._exchange.read(ApprovalList, get("/v1/approvals", (("state", state), ("limit", limit))))).approvals

    def approval(self, approval_id: str) -> Approval:
        """What leave is asked for, with the review token."""
        return self._exchange.read(Approval, get(f"/v1/approvals/{segment(approval_id)}"))

    def approve(self, approval_id: str, review: str, comment: Optional[str] = None) -> VerdictResult:
        """Gives leave to what was reviewed."""
        return self._verdict("host.approval.approve", Verdict(approval_id, review=review, comment=comment))

    def deny(self, approval_id: str, comment: Optional[str] = None) -> VerdictResult:
        """Denies leave, or takes one's own request back."""
        return self._verdict("host.approval.deny", Verdict(approval_id, comment=comment))

    def checkpoint(self) -> Checkpoint:
        """Has the journal signed as far as it goes."""
        return self._exchange.read(Checkpoint, get("/v1/checkpoint"))

    def host(self) -> HostInfo:
        """What the machine offers and the operator allows."""
        return self._exchange.read(HostInfo, get("/v1/host"))

    def capabilities(self) -> Capabilities:
        """What a session can be held by there."""
        return self._exchange.read(Capabilities, get("/v1/capabilities"))

    def quiescence(self) -> Quiescence:
        """What keeps the supervisor from being quiet."""
        return self._exchange.read(Quiescence, get("/v1/quiescence"))

    def version(self) -> Version:
        """Who answers, and what it serves."""
        return self._exchange.read(Version, get("/v1/version"))

    def _verdict(self, op: str, verdict: Verdict) -> VerdictResult:
        receipt = self._exchange.receipt(named(op, verdict), op)
        return shaped(shaped(receipt.payload, "payload").verdict, "result")
