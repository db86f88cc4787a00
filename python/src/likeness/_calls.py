"""The tries of a call: its deadline, its pauses, and the budget that all calls of a client share."""

from __future__ import annotations

import random
import threading
import time

from .errors import DeadlineExceeded, LikenessError, Unavailable


class Budget:
    """How many retries are left, as gRPC's retry throttling (proposal A6) counts them.

    A failure takes one token of ten, a success gives back a tenth of one. With half of the tokens gone no call is
    retried, so that an outage costs about a tenth more calls at most.
    """

    def __init__(self) -> None:
        self._tokens = 10.0
        self._lock = threading.Lock()

    def succeeded(self) -> None:
        """Gives back a tenth of a token."""
        with self._lock:
            self._tokens = min(10.0, self._tokens + 0.1)

    def failed(self) -> bool:
        """Takes a token, and returns whether another try is allowed."""
        with self._lock:
            self._tokens = max(0.0, self._tokens - 1)
            return self._tokens > 5


class Tries:
    """The tries of one call within its deadline.

    Args:
        timeout: Seconds for all tries together.
        budget: The client's budget of retries.
        most: How many tries may be made.
    """

    def __init__(self, timeout: float, budget: Budget, most: int = 3) -> None:
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._budget = budget
        self._most = most
        self._made = 1

    def remaining(self) -> float:
        """Returns the seconds that are left, and raises DeadlineExceeded if none are."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self.expired()
        return left

    def expired(self) -> DeadlineExceeded:
        """Returns the error of a call that got no answer in time."""
        return DeadlineExceeded(f"no answer in {self._timeout} s")

    def succeeded(self) -> None:
        """Tells the budget that the call was answered."""
        self._budget.succeeded()

    def pause(self, error: LikenessError) -> float:
        """Returns how long to wait before another try, and raises the error if there must be none.

        Only calls that the sidecar could not take are made again. The pause is random, up to 50 ms and then up to
        100 ms, so that clients do not return together. It is at least as long as the sidecar asked for.
        """
        if not isinstance(error, Unavailable):
            raise error
        allowed = self._budget.failed()
        if not allowed or self._made >= self._most:
            raise error
        self._made += 1
        pause = (error.retry_after or 0.0) + random.uniform(0, 0.025 * 2**self._made)
        if time.monotonic() + pause >= self._deadline:
            raise error
        return pause
