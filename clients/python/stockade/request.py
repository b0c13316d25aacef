"""Requests of the contract, and what their answers are. Nothing here has a socket or a clock."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Dict, Iterable, Mapping, Optional, Tuple, Type, TypeVar, Union

from .codec import DecodeError, decode, encode
from .failure import Gone, Pending, ProtocolError, StockadeError, class_of, of_receipt
from .http import KEYED, READ, Answer, Request
from .model import ErrorBody, Receipt, Scope

T = TypeVar("T")

NDJSON = "application/x-ndjson"

#: operations that may be asked again, as others, when a restart has cut them off: those that change nothing, those
#: whose effect is there at most once by what they are, and the open, of which a restart leaves nothing
RENEWABLE = frozenset({
    "host.fs.read_file", "host.fs.grep", "host.fs.glob", "host.fs.stat", "host.fs.exists", "host.fs.list_dir",
    "host.session.open", "host.session.close", "host.session.narrow", "host.process.cancel", "host.shell.close", "blob.put",
})

#: codes of a moment, in which the operation was not begun
NOT_BEGUN = frozenset({"shutting_down", "too_many_connections", "too_many_requests"})

#: all codes of a moment: soon there will be room for the operation, or its receipt
PASSING = NOT_BEGUN | {"idempotency_in_flight"}

#: how that is ended which an operation has begun, by the status of its answer: the member that names it, and the operation
#: that ends it. What waits for leave is taken back
_ENDINGS: Dict[Tuple[str, int], Tuple[str, str, Mapping[str, str]]] = {
    ("host.session.open", 200): ("session_id", "host.session.close", {"mode": "force"}),
    ("host.session.open", 202): ("approval_id", "host.approval.deny", {}),
    ("host.exec", 202): ("exec_id", "host.process.cancel", {}),
    ("host.shell.open", 202): ("exec_id", "host.shell.close", {"mode": "force"}),
}


def new_key() -> str:
    """An idempotency key that nobody else has."""
    return "py-" + uuid.uuid4().hex


def get(path: str, query: Iterable[Tuple[str, Any]] = (), accept: str = "") -> Request:
    """A read. Parameters that are None are left out."""
    words = tuple((name, _word(value)) for name, value in query if value is not None)
    return Request("GET", path, words, headers=(("Accept", accept),) if accept else ())


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def operate(path: str, body: Any, key: Optional[str] = None, headers: Tuple[Tuple[str, str], ...] = ()) -> Request:
    """An operation with effect. With its key it takes place once, however often it is asked."""
    return Request("POST", path, body=encode(body), repeat=KEYED,
                   headers=(("Content-Type", "application/json"), ("Idempotency-Key", checked(key or new_key()))) + headers)


def named(op: str, parameters: Any, key: Optional[str] = None, headers: Tuple[Tuple[str, str], ...] = ()) -> Request:
    """An operation by its name."""
    return operate("/v1/ops/" + op, parameters, key, headers)


def ask(path: str, body: Any, repeat: str = READ) -> Request:
    """A question that has a body, or with ONCE what must not be asked again."""
    return Request("POST", path, body=encode(body), headers=(("Content-Type", "application/json"),), repeat=repeat)


def upload(content: Union[bytes, BinaryIO], size: int, ref: Optional[str], key: Optional[str]) -> Request:
    """Content that is to be stored."""
    return Request("PUT", "/v1/blobs", (("blob_ref", ref),) if ref else (), content, size, repeat=KEYED,
                   headers=(("Content-Type", "application/octet-stream"), ("Idempotency-Key", checked(key or new_key()))))


def checked(key: str) -> str:
    """A key that can be one."""
    if not 0 < len(key) <= 128 or any(not " " <= c <= "~" for c in key):
        raise ValueError("a key is 1 to 128 printable characters of ASCII")
    return key


def renewed(request: Request) -> Request:
    """The same as another operation: with another key."""
    return replace(request, headers=tuple((n, new_key() if n == "Idempotency-Key" else v) for n, v in request.headers))


def impatient(request: Request) -> Request:
    """The same, answered at once where it waits for somebody's leave."""
    return replace(request, headers=request.headers + (("Prefer", "respond-async"),))


def ending(op: str, answer: Answer, body: bytes) -> Optional[Request]:
    """What ends that which an operation has begun, by its answer; None where nothing goes on."""
    row = _ENDINGS.get((op, answer.status))
    if row is None:
        return None
    name, by, how = row
    return named(by, {name: json.loads(body)[name], **how})


def scoped(request: Request, scope: Optional[Scope]) -> Request:
    """The request of one of the agents that a process serves."""
    if scope is None:
        return request
    text = json.dumps(json.loads(encode(scope)))  # a header is ASCII
    return replace(request, headers=request.headers + (("Stockade-Scope", text),))


def refusal(status: int, body: bytes) -> Optional[StockadeError]:
    """The exception that an answer is, or None when it is what was asked for. A receipt that says no is one."""
    if status < 400:
        return None
    try:
        members = json.loads(body)
        if "error" in members:
            error = decode(ErrorBody, body).error
            return class_of(error.code, status)(error.code, error.message)
        if "intent_id" in members and "outcome" in members:
            return of_receipt(decode(Receipt, body))
        if status == 410 and "gone" in members:
            gone = Gone("gone", "")
            gone.first_available = members["gone"].get("first_available", "")
            return gone
    except (ValueError, TypeError, AttributeError):
        pass
    return ProtocolError("protocol_error", f"the answer is {status}, without a code")


def document(kind: Type[T], answer: Answer, body: bytes) -> T:
    """What was asked for, or the exception that came in its place."""
    failed = refusal(answer.status, body)
    if failed is not None:
        raise failed
    try:
        return decode(kind, body)
    except DecodeError as e:
        raise ProtocolError("protocol_error", str(e)) from None


@dataclass(frozen=True)
class _Begun:
    """What all answers have in common that come before there is a receipt."""

    intent_id: str
    exec_id: str
    session_id: str


def settled(answer: Answer, body: bytes) -> Receipt:
    """The receipt of what took place, or the exception that it is."""
    if answer.status == 202:
        begun = document(_Begun, answer, body)
        raise Pending(begun.intent_id, begun.exec_id, begun.session_id)
    receipt = document(Receipt, answer, body)
    failed = of_receipt(receipt)
    if failed is not None:
        raise failed
    return receipt


def labels_of(labels: Optional[Mapping[str, str]]) -> Tuple[Tuple[str, str], ...]:
    """Labels as a filter in a URL."""
    return tuple(("label", f"{name}={value}") for name, value in (labels or {}).items())
