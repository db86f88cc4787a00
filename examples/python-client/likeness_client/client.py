"""The client and what it returns."""

import json
import math
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from .connections import Backoff, Budget, Connections

Id = int | str

class LikenessError(Exception):
    """The error of a call. reason is one of docs/reference/errors.md; retry_after is in seconds, None where the sidecar
    names none; request_id is in its log too; fields are the fields that are wrong and why."""

    def __init__(self, message: str, reason: str = "", fields: Mapping[str, str] | None = None, retry_after: float | None = None, request_id: str = "") -> None:
        super().__init__(message + (f" ({reason})" if reason else ""))
        self.reason, self.fields, self.retry_after, self.request_id = reason, dict(fields or {}), retry_after, request_id

class Invalid(LikenessError):
    """The request is wrong, and will not become right by itself."""

class NotFound(LikenessError):
    """There is no such route or model."""

class Unauthenticated(LikenessError):
    """The token is missing or not known."""

class Forbidden(LikenessError):
    """The token does not allow it."""

class Overloaded(LikenessError):
    """More is asked than is answered in time: try again after retry_after, not at once."""

class TooLarge(LikenessError):
    """A message is larger than a limit."""

class NotServable(LikenessError):
    """The route contradicts its collection or model."""

class Unavailable(LikenessError):
    """The sidecar, or its store, cannot answer at present."""

class DeadlineExceeded(LikenessError):
    """No answer came in time."""

class Internal(LikenessError):
    """A fault of the sidecar."""

# By the codes of google.rpc.Code.
_ERRORS: dict[int, type[LikenessError]] = {
    3: Invalid, 4: DeadlineExceeded, 5: NotFound, 7: Forbidden, 8: Overloaded, 9: NotServable, 11: Invalid, 12: NotServable, 14: Unavailable, 16: Unauthenticated,
}  # fmt: skip

@dataclass(frozen=True, slots=True)
class Certificate:
    """How far an answer can be from the exact one: status is exact (proved), snapshot (proved of the data
    as of as_of, an RFC 3339 time; later writes may be missing), calibrated (audited) or unknown; gap is the most by which
    a missing item can exceed the K-th score, None where no bound is known. rows_verified: the scores of a snapshot's
    rows were compared with what the database holds now."""

    status: str
    proof: str
    gap: float | None
    bound: float | None
    kth_score: float | None
    epsilon: float
    stop: str
    depth: int
    rounds: int
    candidates: int
    calibration: dict[str, Any] | None
    as_of: str | None = None
    rows_verified: bool = False

@dataclass(frozen=True, slots=True)
class Hit:
    """One item: its id as the store has it, its learned similarity, and its payload if it was asked for."""

    id: Id
    score: float
    payload: dict[str, Any] | None = None
    ranked: bool = False

@dataclass(frozen=True, slots=True)
class Answer:
    """Hits, best first. degraded is None, or why the scores are the store's and not the similarity's."""

    hits: list[Hit]
    certificate: Certificate
    degraded: str | None
    model: str
    model_version: str
    strategy: str
    request_id: str

@dataclass(frozen=True, slots=True)
class Route:
    """A route as the sidecar serves it; raw has every field of the message Route in proto/likeness/v1."""

    name: str
    collection: str
    model: str
    placement: str
    max_k: int
    raw: dict[str, Any] = field(repr=False)

class Client:
    """Asks a sidecar at listen.rest. It may be shared by threads.

    url is http://host:port or https://host:port; token is sent as a bearer token, or is a function that returns one; a
    token is refused over plain text unless the host is this machine or allow_plain_token is set. timeout is the time
    for a call in seconds, tries included. A call that the sidecar could not take is made up to three times within a budget.
    """

    def __init__(
        self, url: str, *, token: str | Callable[[], str] | None = None, timeout: float = 10.0, context: ssl.SSLContext | None = None, allow_plain_token: bool = False
    ) -> None:
        self._connections, self._budget, self._token, self._timeout = Connections(url, context), Budget(), token, timeout
        here = self._connections.host in ("localhost", "127.0.0.1", "::1")
        if token is not None and not (self._connections.secure or here or allow_plain_token):
            raise ValueError("a token would cross the network in plain text: use https, or allow_plain_token")

    def close(self) -> None:
        self._connections.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def search(
        self,
        route: str,
        vector: Sequence[float] | None = None,
        k: int = 10,
        *,
        text: str = "",
        user_id: int | None = None,
        context: Mapping[str, float] | None = None,
        filter: str | Mapping[str, Any] = "",
        strategy: str = "",
        depth: int = 0,
        max_gap: float | None = None,
        require_exact: bool = False,
        payload: bool | Sequence[str] = True,
        timeout: float | None = None,
    ) -> Answer:
        """The top k items of a route. filter is in the store's own language: a dict is Qdrant's, a text is Milvus's.
        payload is whether payloads are wanted, or which fields of them. With require_exact an answer that is not exact
        raises NotServable."""
        request = _search(vector, k, text, user_id, context, filter, strategy, depth, max_gap, payload, require_exact)
        data, request_id = self._call("POST", f"/v1/routes/{quote(route, safe='')}:search", request, timeout)
        return _answer(data, request_id)

    def search_batch(
        self, searches: Iterable[Mapping[str, Any]], timeout: float | None = None
    ) -> list[Answer | LikenessError]:
        """Several searches in one call: each has route and the other arguments of search, and its own answer or error."""
        requests = []
        for s in searches:
            s = dict(s)
            route = s.pop("route")
            requests.append({"route": route} | _search(**({"vector": None, "k": 10, "payload": True} | s)))
        data, request_id = self._call("POST", "/v1/search:batch", {"searches": requests}, timeout)
        return [_result(r, request_id) for r in data["results"]]

    def each(self, searches: Iterable[Mapping[str, Any]], batch: int = 64) -> Iterator[Answer | LikenessError]:
        """Answers searches as they come, in calls of so many at a time."""
        some: list[Mapping[str, Any]] = []
        for s in searches:
            some.append(s)
            if len(some) >= batch:
                yield from self.search_batch(some)
                some = []
        if some:
            yield from self.search_batch(some)

    def score(self, route: str, vector: Sequence[float], ids: Sequence[Id], timeout: float | None = None) -> list[float]:
        """The similarity of items by id, in order; NaN for an id that the store does not have."""
        request = {"query": {"vector": _numbers(vector)}, "ids": {"ids": [_id(i) for i in ids]}}
        data, _ = self._call("POST", f"/v1/routes/{quote(route, safe='')}:score", request, timeout)
        return [float(s) for s in data["scores"]]

    def routes(self, timeout: float | None = None) -> list[Route]:
        data, _ = self._call("GET", "/v1/routes", None, timeout)
        return [
            Route(r["name"], r["collection"], (r.get("model") or {}).get("name", ""), r["placement"], r["max_k"], r) for r in data["routes"]
        ]

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = "Bearer " + (self._token() if callable(self._token) else self._token)
        return headers

    def _call(self, method: str, path: str, request: Any, timeout: float | None) -> tuple[Any, str]:
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        body = None if request is None else json.dumps(request, allow_nan=False).encode()
        headers, backoff = self._headers(), Backoff(tries=3)
        while True:
            wait = None
            try:
                status, head, data = self._connections.call(method, path, body, headers, deadline)
            except TimeoutError:
                raise DeadlineExceeded(f"no answer in {self._timeout if timeout is None else timeout} s") from None
            except OSError as e:
                error: LikenessError = Unavailable(f"{self._connections.host}: {e}")
            else:
                if status == 200:
                    self._budget.succeeded()
                    return json.loads(data), head.get("x-request-id", "")
                error = _error(status, head, data)
                wait = error.retry_after
            if not isinstance(error, Unavailable):
                raise error
            pause = backoff.next(wait)
            if not self._budget.failed() or pause is None or time.monotonic() + pause >= deadline:
                raise error
            time.sleep(pause)

def _numbers(vector: Sequence[float] | None) -> list[float]:
    """The numbers of a list, a tuple, or an array of NumPy or PyTorch."""
    out = [] if vector is None else vector.tolist() if hasattr(vector, "tolist") else list(vector)
    for i, x in enumerate(out):
        if not math.isfinite(x):
            raise Invalid(f"vector[{i}] is {x}: every element must be finite", "QUERY_INVALID", {"vector": "not finite"})
    return out

def _search(
    vector: Sequence[float] | None,
    k: int,
    text: str = "",
    user_id: int | None = None,
    context: Mapping[str, float] | None = None,
    filter: str | Mapping[str, Any] = "",
    strategy: str = "",
    depth: int = 0,
    max_gap: float | None = None,
    payload: bool | Sequence[str] = True,
    require_exact: bool = False,
) -> dict[str, Any]:
    query: dict[str, Any] = {"vector": _numbers(vector), "text": text, "context": dict(context or {})}
    if user_id is not None:
        query["user_id"] = str(user_id)
    request: dict[str, Any] = {"query": query, "k": k, "depth": depth}
    request["filter"] = filter if isinstance(filter, str) else json.dumps(filter)
    if strategy:
        request["strategy"] = "STRATEGY_" + strategy.upper()
    if max_gap is not None:
        request["max_gap"] = max_gap
    if require_exact:
        request["require_exact"] = True
    if payload is not False:
        request["payload"] = {"fields": [] if payload is True else list(payload)}
    return request

def _id(value: Id) -> dict[str, Any]:
    if isinstance(value, str):
        return {"text": value}
    return {"number": str(value)} if value >= 0 else {"negative": str(value)}

def _from_id(data: Mapping[str, Any]) -> Id:
    return data["text"] if "text" in data else int(data.get("number", data.get("negative", 0)))

def _word(value: str, prefix: str) -> str:
    return value.removeprefix(prefix).lower().replace("unspecified", "")

def _optional(data: Mapping[str, Any], name: str) -> float | None:
    return None if data.get(name) is None else float(data[name])

def _answer(data: Mapping[str, Any], request_id: str) -> Answer:
    c, model, degraded = data.get("certificate") or {}, data.get("model") or {}, data.get("degraded")
    return Answer(
        hits=[
            Hit(_from_id(h["id"]), float(h["score"]), json.loads(h["payload_json"]) if h.get("payload_json") else None, h["ranked"])
            for h in data["hits"]
        ],
        certificate=Certificate(
            status=_word(c.get("status", ""), "CERTIFICATE_STATUS_"), proof=_word(c.get("proof", ""), "PROOF_"),
            gap=_optional(c, "gap"), bound=_optional(c, "bound"), kth_score=_optional(c, "kth_score"), epsilon=float(c.get("epsilon", 0)),
            stop=_word(c.get("stop", ""), "STOP_"), depth=c.get("depth", 0), rounds=c.get("rounds", 0), candidates=int(c.get("candidates", 0)),
            calibration=c.get("calibration"), as_of=c.get("as_of"), rows_verified=c.get("rows_verified", False),
        ),
        degraded=None if degraded is None else f"{degraded['reason']}: {degraded['detail']}",
        model=model.get("name", ""), model_version=model.get("version", ""),
        strategy=_word(data.get("strategy", ""), "STRATEGY_"), request_id=request_id,
    )  # fmt: skip

def _result(data: Mapping[str, Any], request_id: str) -> Answer | LikenessError:
    if "error" in data:
        return _ERRORS.get(data["error"]["code"], Internal)(data["error"]["message"], request_id=request_id)
    return _answer(data["response"], request_id)

def _error(status: int, head: Mapping[str, str], data: bytes) -> LikenessError:
    try:
        body = json.loads(data)
        code, message, details = body["code"], body["message"], body.get("details", [])
    except (ValueError, KeyError, TypeError):  # not a sidecar's: of a balancer before it
        kind = Unavailable if status in (502, 503, 504) else Internal
        return kind(f"HTTP {status}: {data[:200].decode(errors='replace')}")
    reason, retry, fields = "", None, {}
    for d in details:
        reason = d.get("reason", reason)
        if "retry_delay" in d:
            retry = float(d["retry_delay"].removesuffix("s"))
        for f in d.get("field_violations", []):
            fields[f["field"]] = f["description"]
    kind = TooLarge if reason == "MESSAGE_TOO_LARGE" else _ERRORS.get(code, Internal)
    return kind(message, reason, fields, retry, head.get("x-request-id", ""))
