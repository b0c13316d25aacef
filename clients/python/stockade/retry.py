"""Whether to ask again, and when: decisions without a clock of their own."""

from __future__ import annotations

from typing import Optional

from .failure import Interrupted, StockadeError, Unavailable
from .http import ONCE, Request
from .request import PASSING

_FIRST, _LONGEST = 0.01, 1.0


class Lost(Exception):
    """A connection that was lost, or that there was none."""

    def __init__(self, reason: str, sent: bool, absent: bool = False) -> None:
        super().__init__(reason)
        #: a part of the request may have arrived
        self.sent = sent
        #: nobody listens
        self.absent = absent


class Attempts:
    """The attempts at one request. Time is what the caller says it is, in seconds."""

    def __init__(self, patience: float, now: float, met: bool) -> None:
        self._patience = patience
        self._until = now + patience
        self._pause = _FIRST
        self._met = met  # a supervisor has answered there before

    def progress(self, now: float) -> None:
        """Something arrived: patience begins anew."""
        self._until, self._pause, self._met = now + self._patience, _FIRST, True

    def after_loss(self, request: Request, lost: Lost, now: float) -> float:
        """How long to wait before the next attempt; an exception when there is none."""
        if lost.sent and request.repeat == ONCE:
            raise Interrupted("unanswered", f"{request.method} {request.path}: {lost}; whether it took place is not known") from lost
        if lost.absent and not self._met:
            raise Unavailable("unreachable", f"no supervisor answers: {lost}") from lost
        pause = self._next(now)
        if pause is not None:
            return pause
        if lost.sent and request.method != "GET":
            raise Interrupted("unanswered", f"{request.method} {request.path}: {lost}; whether it took place is not known") from lost
        raise Unavailable("unreachable", f"no supervisor answers: {lost}") from lost

    def after_refusal(self, refusal: StockadeError, now: float) -> float:
        """Likewise, after an answer that says no."""
        pause = self._next(now) if refusal.code in PASSING else None
        if pause is None:
            raise refusal
        return pause

    def _next(self, now: float) -> Optional[float]:
        if now >= self._until:
            return None
        pause = min(self._pause, self._until - now)
        self._pause = min(2 * self._pause, _LONGEST)
        return pause
