"""The gRPC services of a plugin: the scorer, health, and go-plugin's own."""

import asyncio
import logging
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Sequence

from google.protobuf.message import DecodeError
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError

from . import schema
from .scorer import Asked, Items, Query, QueryError, TooLarge, Unavailable, checked

SCORER = "likeness.plugin.v1.ScorerService"
SERVING, NOT_SERVING = 1, 2  # of grpc.health.v1

# The greatest message; a host that starts this process says otherwise in the variable.
MAX_MESSAGE_ENV, MAX_MESSAGE_BYTES = "LIKENESS_PLUGIN_MAX_MESSAGE_BYTES", 64 << 20
SMALL = 1 << 16  # more than any request but Score's

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


class Bytes:
    """The codec of messages that are bytes already."""

    __content_subtype__ = "proto"

    def encode(self, message: bytes, _: Any) -> bytes:
        return message

    def decode(self, data: bytes, _: Any) -> bytes:
        return data


async def receive(stream: Any, limit: int) -> bytes:
    """The one message of a call. Its size is checked before its bytes are waited for, which grpclib does not do."""
    head = await stream._stream.recv_data(5)
    if len(head) != 5 or head[0]:
        raise GRPCError(Status.UNIMPLEMENTED, "one message, not compressed, is expected")
    size = int.from_bytes(head[1:], "big")
    if size > limit:
        raise GRPCError(Status.RESOURCE_EXHAUSTED, f"the request has {size} bytes, the limit is {limit} (max_bytes); send fewer items")
    return await stream._stream.recv_data(size)


class Services:
    """All that a plugin serves. Scoring runs in threads, so that health is told meanwhile."""

    def __init__(self, score: Callable[[Query, Items], Any], description: Description, stop: Callable[[], None]):
        self._score, self._description, self._stop = score, description, stop
        self._described = description.message().SerializeToString()
        self._limit = int(os.environ.get(MAX_MESSAGE_ENV) or MAX_MESSAGE_BYTES)
        if description.max_bytes:
            self._limit = min(self._limit, description.max_bytes)
        self._threads = ThreadPoolExecutor(description.parallel, thread_name_prefix="score")
        self._lock = threading.Lock()
        self._calls = 0  # that wait or run
        self._scoring = 0  # of threads; one whose caller has gone still counts
        self._draining = False

    async def drain(self, seconds: float) -> bool:
        """Refuses new calls and waits for those that run; whether all are done."""
        self._draining = True
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (self._calls or self._scoring) and loop.time() < until:
            await asyncio.sleep(0.01)
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._scoring:
            log.warning("%d calls still ran after %g s", self._scoring, seconds)
        return not self._scoring

    async def describe(self, stream: Any) -> None:
        await receive(stream, SMALL)
        await stream.send_message(self._described)

    async def score(self, stream: Any) -> None:
        if self._draining:
            raise GRPCError(Status.UNAVAILABLE, "the plugin is shutting down")
        self._calls += 1
        asked = Asked()
        try:
            data = await receive(stream, self._limit)
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._scored, asked, data)
            await stream.send_message(answer)
        finally:
            asked.cancelled = True
            self._calls -= 1

    def _scored(self, asked: Asked, data: bytes) -> bytes:
        """_answer, counted, with every error as a status that says what the caller can do."""
        with self._lock:
            self._scoring += 1
        try:
            return self._answer(asked, data)
        except (DecodeError, QueryError) as e:
            raise GRPCError(Status.INVALID_ARGUMENT, str(e)) from None
        except TooLarge as e:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, str(e)) from None
        except MemoryError as e:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, f"out of memory: {e}") from None
        except Unavailable as e:
            raise GRPCError(Status.UNAVAILABLE, str(e)) from None
        except BaseException as e:  # sys.exit in a scorer ends its call, not the thread
            log.exception("score failed")
            raise GRPCError(Status.INTERNAL, f"{type(e).__name__}: {e}") from None
        finally:
            with self._lock:
                self._scoring -= 1

    def _answer(self, asked: Asked, data: bytes) -> bytes:
        """A call from bytes to bytes, in a thread."""
        request = schema.ScoreRequest.FromString(data)
        self._check(request)
        items = Items(request)
        if not items:
            return schema.ScoreResponse(version=self._description.version).SerializeToString()
        scores = checked(self._score(Query(request.query, asked), items), len(items))
        return schema.ScoreResponse(scores=scores, version=self._description.version).SerializeToString()

    def _check(self, request: Any) -> None:
        d, count = self._description, len(request.ids)
        if d.max_items and count > d.max_items:
            raise TooLarge(f"{count} items, the limit is {d.max_items} (max_items); send fewer")
        if d.text and not request.query.text:
            raise QueryError("query.text is empty and the scorer reads it; send the query in words")
        if not all(map(math.isfinite, request.query.vector)):
            raise QueryError("query.vector has an element that is not finite; send finite numbers")

    async def check(self, stream: Any) -> None:
        await stream.send_message(await self._health(stream))

    async def watch(self, stream: Any) -> None:
        await stream.send_message(await self._health(stream))
        await asyncio.Event().wait()  # until the caller goes

    async def _health(self, stream: Any) -> bytes:
        try:
            request = schema.HealthCheckRequest.FromString(await receive(stream, SMALL))
        except DecodeError as e:
            raise GRPCError(Status.INVALID_ARGUMENT, str(e)) from None
        # "plugin" is what go-plugin's own client asks after.
        if request.service not in ("", "plugin", SCORER):
            raise GRPCError(Status.NOT_FOUND, f"no service {request.service!r} here")
        status = NOT_SERVING if self._draining else SERVING
        return schema.HealthCheckResponse(status=status).SerializeToString()

    async def shutdown(self, stream: Any) -> None:
        await receive(stream, SMALL)
        await stream.send_message(b"")
        await stream.send_trailing_metadata()
        self._stop()

    async def stdio(self, stream: Any) -> None:
        """go-plugin's copy of stdout and stderr. Stderr carries both: the stream stays empty while the host listens."""
        await receive(stream, SMALL)
        await stream.send_initial_metadata()
        await asyncio.Event().wait()

    async def broker(self, stream: Any) -> None:
        """go-plugin's broker of further connections: there are none."""
        await stream.send_initial_metadata()
        await asyncio.Event().wait()

    def __mapping__(self) -> dict[str, Handler]:
        one, many, both = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM, Cardinality.STREAM_STREAM
        return {
            path: Handler(call, cardinality, bytes, bytes)
            for path, call, cardinality in (
                (f"/{SCORER}/DescribeScorer", self.describe, one),
                (f"/{SCORER}/Score", self.score, one),
                ("/grpc.health.v1.Health/Check", self.check, one),
                ("/grpc.health.v1.Health/Watch", self.watch, many),
                ("/plugin.GRPCController/Shutdown", self.shutdown, one),
                ("/plugin.GRPCStdio/StreamStdio", self.stdio, many),
                ("/plugin.GRPCBroker/StartStream", self.broker, both),
            )
        }
