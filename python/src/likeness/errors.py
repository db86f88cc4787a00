"""The errors that a call can raise."""

from __future__ import annotations

import json
from collections.abc import Mapping


class LikenessError(Exception):
    """A call failed.

    Attributes:
        reason: One of the reasons in docs/reference/errors.md. Empty if the sidecar was not reached, and in a batch.
        fields: The fields of the request that are wrong, each with what is wrong about it.
        retry_after: Seconds to wait before another try. None if the sidecar gave no time.
        request_id: The id of the call in the sidecar's log.
    """

    def __init__(
        self,
        message: str,
        reason: str = "",
        fields: Mapping[str, str] | None = None,
        retry_after: float | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message + (f" ({reason})" if reason else ""))
        self.reason = reason
        self.fields = dict(fields or {})
        self.retry_after = retry_after
        self.request_id = request_id


class Invalid(LikenessError):
    """The request is wrong. Repeating it does not help."""


class NotFound(LikenessError):
    """The route or model does not exist."""


class Unauthenticated(LikenessError):
    """The token is missing or unknown."""


class Forbidden(LikenessError):
    """The token does not permit the call."""


class Overloaded(LikenessError):
    """The sidecar gets more calls than it can answer in time. Try again after ``retry_after``, not at once."""


class TooLarge(LikenessError):
    """A message exceeds a size limit."""


class NotServable(LikenessError):
    """The route contradicts its collection or model, or it cannot give the exact answer that was required."""


class Unavailable(LikenessError):
    """The sidecar or its store cannot answer at present."""


class DeadlineExceeded(LikenessError):
    """No answer came in time."""


class Internal(LikenessError):
    """A fault of the sidecar. Its log describes the fault under ``request_id``."""


# By the codes of google.rpc.Code.
_BY_CODE: dict[int, type[LikenessError]] = {
    3: Invalid,
    4: DeadlineExceeded,
    5: NotFound,
    7: Forbidden,
    8: Overloaded,
    9: NotServable,
    11: Invalid,
    12: NotServable,
    14: Unavailable,
    16: Unauthenticated,
}


def from_code(code: int, message: str) -> LikenessError:
    """Converts the error of one search in a batch."""
    return _BY_CODE.get(code, Internal)(message)


def from_response(status: int, body: bytes, request_id: str) -> LikenessError:
    """Converts the body of a failed call, a ``google.rpc.Status`` as JSON.

    A body of another form comes from a balancer or proxy in between: 502, 503 and 504 become Unavailable.
    """
    try:
        error = json.loads(body)
        code, message, details = error["code"], error["message"], error.get("details", [])
    except (ValueError, KeyError, TypeError):
        unknown = Unavailable if status in (502, 503, 504) else Internal
        message = f"HTTP {status}: {body[:200].decode(errors='replace').strip()}"
        if status == 404:
            message += "; no sidecar's API is there: give the client the address of listen.rest"
        return unknown(message, request_id=request_id)
    reason, retry_after, fields = "", None, {}
    for detail in details:
        reason = detail.get("reason", reason)
        if "retry_delay" in detail:
            retry_after = float(detail["retry_delay"].removesuffix("s"))
        for violation in detail.get("field_violations", []):
            fields[violation["field"]] = violation["description"]
    kind = TooLarge if reason == "MESSAGE_TOO_LARGE" else _BY_CODE.get(code, Internal)
    return kind(message, reason, fields, retry_after, request_id)
