"""The gRPC services of a plugin: the scorer, health, and go-plugin's own."""

import logging
import math
import os
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Sequence

from google.protobuf.message import DecodeError

from . import schema
from .http2 import Stream
from .scorer import Items, Query, QueryError, TooLarge, Unavailable, checked
from .server import INTERNAL, INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED, UNAVAILABLE, Failed, Methods

SCORER = "likeness.plugin.v1.ScorerService"
SERVING, NOT_SERVING = 1, 2  # of grpc.health.v1

# The greatest message; a host that starts this process says otherwise in the variable.
MAX_MESSAGE_ENV, MAX_MESSAGE_BYTES = "LIKENESS_PLUGIN_MAX_MESSAGE_BYTES", 64 << 20

log = logging.getLogger("likeness_plugin")


@dataclass(frozen=True)
class Description:
    """What likeness must know of a scorer; see likeness_plugin.serve."""

    name: str
    version: str
    max_items: int = 0
    max_bytes: int = 0
    parallel: int = 1
    cost: float = 0.0
    text: bool = False
    payload: bool = False
    payload_fields: Sequence[str] = field(default_factory=tuple)
    vectors: bool = False

    def check(self) -> None:
        for what in ("name", "version"):
            if not isinstance(getattr(self, what), str) or not getattr(self, what):
                raise ValueError(f"{what} is {getattr(self, what)!r}; give a text")
        if isinstance(self.payload_fields, str):
            raise ValueError(f"payload_fields is {self.payload_fields!r}; give a list of names")
        for what, least in (("max_items", 0), ("max_bytes", 0), ("parallel", 1)):
            if getattr(self, what) < least:
                raise ValueError(f"{what} is {getattr(self, what)}, at least {least} is needed")

    def message(self) -> schema.DescribeScorerResponse:
        m = schema.DescribeScorerResponse(**asdict(self))
        m.payload = self.payload or bool(self.payload_fields)
        return m


class Services:
    """All that a plugin serves. draining says whether it ends."""

    def __init__(
        self, score: Callable[[Query, Items], Any], description: Description, stop: Callable[[], None], draining: Callable[[], bool]
    ):
        self._score, self._description, self._stop, self._draining = score, description, stop, draining
        self._described = description.message().SerializeToString()

    def methods(self, m: Methods) -> None:
        limit = int(os.environ.get(MAX_MESSAGE_ENV) or MAX_MESSAGE_BYTES)
        if self._description.max_bytes:
            limit = min(limit, self._description.max_bytes)
        score, stdio, broker = f"/{SCORER}/Score".encode(), b"/plugin.GRPCStdio/StreamStdio", b"/plugin.GRPCBroker/StartStream"
        m.limits[score], m.scored[score] = limit, self.score
        m.quick[f"/{SCORER}/DescribeScorer".encode()] = lambda _: self._described
        m.quick[b"/grpc.health.v1.Health/Check"] = self.health
        m.quick[b"/plugin.GRPCController/Shutdown"] = self.shutdown
        m.lasting[b"/grpc.health.v1.Health/Watch"] = self.health
        # go-plugin's copy of stdout and stderr (stderr carries both: it stays empty), and its
        # broker of further connections (there are none).
        m.lasting[stdio] = m.lasting[broker] = lambda _: None
        m.endless.add(broker)

    def score(self, stream: Stream, data: bytes) -> bytes:
        """A call from bytes to bytes, with every error as a status that says what the caller can do."""
        try:
            return self._answer(stream, data)
        except (DecodeError, QueryError) as e:
            raise Failed(INVALID_ARGUMENT, str(e)) from None
        except TooLarge as e:
            raise Failed(RESOURCE_EXHAUSTED, str(e)) from None
        except MemoryError as e:
            raise Failed(RESOURCE_EXHAUSTED, f"out of memory: {e}") from None
        except Unavailable as e:
            raise Failed(UNAVAILABLE, str(e)) from None
        except BaseException as e:  # sys.exit in a scorer ends its call, not the thread
            log.exception("score failed")
            raise Failed(INTERNAL, f"{type(e).__name__}: {e}") from None

    def _answer(self, stream: Stream, data: bytes) -> bytes:
        request = schema.ScoreRequest.FromString(data)
        self._check(request)
        items = Items(request)
        if not items:
            return schema.ScoreResponse(version=self._description.version).SerializeToString()
        scores = checked(self._score(Query(request.query, stream), items), len(items))
        return schema.ScoreResponse(scores=scores, version=self._description.version).SerializeToString()

    def _check(self, request: Any) -> None:
        d, count = self._description, len(request.ids)
        if d.max_items and count > d.max_items:
            raise TooLarge(f"{count} items, the limit is {d.max_items} (max_items); send fewer")
        if d.text and not request.query.text:
            raise QueryError("query.text is empty and the scorer reads it; send the query in words")
        if not all(map(math.isfinite, request.query.vector)):
            raise QueryError("query.vector has an element that is not finite; send finite numbers")

    def health(self, data: bytes) -> bytes:
        try:
            request = schema.HealthCheckRequest.FromString(data)
        except DecodeError as e:
            raise Failed(INVALID_ARGUMENT, str(e)) from None
        # "plugin" is what go-plugin's own client asks after.
        if request.service not in ("", "plugin", SCORER):
            raise Failed(NOT_FOUND, f"no service {request.service!r} here")
        return schema.HealthCheckResponse(status=NOT_SERVING if self._draining() else SERVING).SerializeToString()

    def shutdown(self, _: bytes) -> bytes:
        self._stop()
        return b""
