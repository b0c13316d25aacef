"""What can go wrong, one class for each thing that a caller would do about it.

The code is stable and in docs/api/errors.md; the class follows from its status there. What became an operation has a
receipt, and every exception of such carries it.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple, Type

from .codes import CODES
from .model import Deny, Receipt


class StockadeError(Exception):
    """Something that was asked for was not done, or it is not known whether it was."""

    def __init__(self, code: str, message: str, receipt: Optional[Receipt] = None) -> None:
        self.code = code
        self.message = message or meaning(code)
        #: of the operation, if it became one
        self.receipt = receipt
        super().__init__(code, self.message)

    @property
    def intent_id(self) -> Optional[str]:
        """The intent that the operation is in the journal as, and the id of its receipt."""
        return self.receipt.intent_id if self.receipt else None

    @property
    def receipt_id(self) -> Optional[str]:
        """The id of the receipt, which is that of the intent: `stockade receipts show ID` shows it."""
        return self.intent_id

    def __str__(self) -> str:
        of = f" (receipt {self.intent_id})" if self.receipt else ""
        return f"{self.code}: {self.message}{of}"


class Denied(StockadeError):
    """Policy, the operator's ceiling, the session's grant or a file system says no. The same again is denied again."""

    @property
    def reasons(self) -> Tuple[Deny, ...]:
        """All that speaks against it."""
        return (self.receipt.deny if self.receipt else None) or ()

    @property
    def object(self) -> str:
        """What the first reason is about; empty where it is about nothing in particular."""
        return (self.reasons[0].subject if self.reasons else None) or ""

    @property
    def rule(self) -> str:
        """The rule of the policy that spoke, as FILE:LINE NAME; empty where no rule did."""
        policy = self._denial.policy if self._denial else None
        rules = (policy.rules if policy else None) or ()
        return next((r for r in rules if r.rsplit(" ", 1)[-1].endswith(".deny")), rules[-1] if rules else "")

    @property
    def hint(self) -> str:
        """What the code means, and how to find out what would help."""
        why = f"`stockade policy why {self.intent_id}` says what would help." if self._denial else ""
        return f"{meaning(self.code)} {why}".strip()

    @property
    def _denial(self) -> Optional[Receipt]:
        """The receipt of an operation that was denied. A mount or a file system says no to one that policy has allowed."""
        return self.receipt if self.receipt and self.receipt.outcome == "denied" else None


class Invalid(StockadeError):
    """It was asked in a way, or for something, that cannot be."""


class NotFound(StockadeError):
    """There is no such thing, or it belongs to somebody else."""


class Conflict(StockadeError):
    """Something is not in the state for it."""


class Gone(StockadeError):
    """The position is not kept any more."""

    #: the first position that is; empty when nothing is
    first_available: str = ""


class Exhausted(StockadeError):
    """A limit is reached; later there may be room."""


class Unsupported(StockadeError):
    """The host lacks what it takes."""


class Interrupted(StockadeError):
    """A restart of the supervisor, or the loss of an answer, left unknown whether it took place, or how it ended.

    It is raised only where asking again could do it twice. Look, and then ask again with another key.
    """


class Unavailable(StockadeError):
    """No supervisor answers, or it takes no work."""


class Pending(StockadeError):
    """It goes on, and there is no receipt yet: it is a shell, or it was asked for without waiting for its end."""

    def __init__(self, intent_id: str, exec_id: str, session_id: str) -> None:
        super().__init__("pending", f"the operation goes on as {exec_id or intent_id}")
        self._intent_id = intent_id
        #: of the execution, for `client.execution` or `client.shell`; empty where it is none
        self.exec_id = exec_id
        self.session_id = session_id

    @property
    def intent_id(self) -> str:
        return self._intent_id

    @property
    def address(self) -> str:
        """Where it is told what has become of it; `client.intent` reads it."""
        return f"/v1/intents/{self._intent_id}"


class Failed(StockadeError):
    """The supervisor, the runner or a file system failed."""


class ProtocolError(StockadeError):
    """What answers does not keep the contract."""


class CommandFailed(StockadeError):
    """A command did not end with status 0. Raised by Result.check alone."""

    result: Any = None


#: which class follows from the status of a code; what is not here is Failed from 500 on, and Invalid below
_BY_STATUS: Dict[int, Type[StockadeError]] = {
    403: Denied, 404: NotFound, 409: Conflict, 410: Gone, 429: Exhausted, 501: Unsupported, 503: Unavailable, 507: Exhausted,
}

#: the codes that leave unknown what took place, whatever their status
UNKNOWN = frozenset({"supervisor_restarted", "lost", "wait_failed"})


def meaning(code: str) -> str:
    """What a code means; empty for one of a policy's own."""
    return CODES.get(code, (0, ""))[1]


def class_of(code: str, status: int = 0) -> Type[StockadeError]:
    """The class of a code. status is that of the answer, for codes that a newer supervisor may have."""
    if code in UNKNOWN:
        return Interrupted
    status = CODES.get(code, (status, ""))[0]
    return _BY_STATUS.get(status, Failed if status >= 500 or status < 400 else Invalid)


def of_receipt(receipt: Receipt) -> Optional[StockadeError]:
    """The exception that a receipt is, or None when its outcome is ok."""
    code, message = receipt.error_code or "", receipt.error_message or ""
    if receipt.outcome == "ok":
        return None
    if receipt.outcome == "denied":
        return Denied(code, message, receipt)
    return class_of(code, 500)(code, message, receipt)
