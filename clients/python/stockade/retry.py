"""Whether to ask again, and when: decisions without a clock of their own."""

from __future__ import annotations

from typing import Optional

from .failure import Interrupted, StockadeError, Unavailable
from .http import ONCE, READ, Request
from .request import NOT_BEGUN, PASSING

_FIRST, _LONGEST = 0.01, 1.0

#: seconds that what was begun may take to be ended, once its caller was interrupted
SETTLING = 5.0


class Lost(Exception):
    """A connection that was lost, or that there was none."""

    def __init__(self, reason: str, sent: bool, absent: bool = False) -> None:
        super().__init__(reason)
        #: a part of the request may have arrived
        self.sent = sent
        #: nobody listens
        self.absent = absent


class Attempts:
    """The attempts at one request. Time is what the caller says it is, in seconds.

    Patience is for the time in which nobody is there. It begins with the first loss in a row, and stands still while there
    is a connection; what arrives ends the row, and so does a connection that held as long as patience. So it does not
    matter for how long an answer was waited for before it was lost; and who takes connections only to drop them is given up.
    """

    def __init__(self, patience: float, met: bool) -> None:
        self._patience = patience
        self._pause = _FIRST
        self._met = met  # there was a supervisor before
        self._until: Optional[float] = None  # when patience ends; None while nothing was lost
        self._since: Optional[float] = None  # when the connection was made; None without one
        self._before = False  # what arrived was when it was made
        #: the request may have arrived, and no answer says that it was not begun
        self.arrived = False

    def connected(self, now: float) -> None:
        """There is a connection, and the request is about to be sent on it."""
        self._since, self._met = now, True
        self._before, self.arrived = self.arrived, True

    def progress(self) -> None:
        """Something arrived."""
        self._until, self._pause = None, _FIRST

    def after_loss(self, request: Request, lost: Lost, now: float) -> float:
        """How long to wait before the next attempt; an exception when there is none."""
        if lost.absent and not self._met:
            raise Unavailable("unreachable", f"no supervisor answers: {lost}") from lost
        pause = None if lost.sent and request.repeat == ONCE else self._next(now)
        if pause is not None:
            return pause
        if self.arrived and request.repeat != READ:
            raise Interrupted("unanswered", f"{request.method} {request.path}: {lost}; whether it took place is not known") from lost
        raise Unavailable("unreachable", f"no supervisor answers: {lost}") from lost

    def after_refusal(self, refusal: StockadeError, now: float) -> float:
        """Likewise, after an answer that says no."""
        pause = self._next(now) if refusal.code in PASSING else None
        if pause is None:
            raise refusal
        if refusal.code in NOT_BEGUN:
            self.arrived = self._before
        return pause

    def _next(self, now: float) -> Optional[float]:
        held = 0.0 if self._since is None else now - self._since
        self._since = None
        if self._until is None or held >= self._patience:
            self._until = now + self._patience
        else:
            self._until += held
        if now >= self._until:
            return None
        pause = min(self._pause, self._until - now)
        self._pause = min(2 * self._pause, _LONGEST)
        return pause
