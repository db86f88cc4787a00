"""Clients of a sidecar's JSON API (``listen.rest``)."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from . import _wire, errors
from ._calls import Budget, Tries
from .types import Answer, Event, Id, Receipt, Route, Search, Vector

Token = str | Callable[[], str]


class _Endpoint:
    """Where the sidecar is and how a request to it is written. Both clients have one."""

    def __init__(self, url: str, token: Token | None, timeout: float, allow_plain_token: bool) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"{url!r} is not a sidecar's URL: write http://host:port or https://host:port")
        local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if token is not None and not (parts.scheme == "https" or local or allow_plain_token):
            raise ValueError("a token would cross the network in plain text: use https, or allow_plain_token=True")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self._token = token
        self._budget = Budget()

    def tries(self, timeout: float | None) -> Tries:
        """Begins a call."""
        return Tries(self.timeout if timeout is None else timeout, self._budget)

    def request(self, method: str, path: str, body: Any, remaining: float) -> dict[str, Any]:
        """Returns the arguments of httpx for a request that may take the remaining seconds."""
        headers = {"Content-Type": "application/json", "Grpc-Timeout": f"{max(1, int(remaining * 1000))}m"}
        if self._token is not None:
            headers["Authorization"] = "Bearer " + (self._token() if callable(self._token) else self._token)
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        return {"method": method, "url": self.url + path, "content": content, "headers": headers, "timeout": remaining}

    def unreachable(self, error: httpx.TransportError) -> errors.Unavailable:
        """Converts an error of the connection."""
        return errors.Unavailable(f"{self.url}: {error or type(error).__name__}")


def _decode(response: httpx.Response, data: bytes) -> tuple[Any, str]:
    """Returns the JSON of an answer and the call's id, and raises the error of a call that failed."""
    request_id = response.headers.get("x-request-id", "")
    if response.status_code != 200:
        raise errors.from_response(response.status_code, data, request_id)
    return json.loads(data), request_id


def _search_path(route: str, method: str) -> str:
    return f"/v1/routes/{quote(route, safe='')}:{method}"


def _batch(searches: Iterable[Search]) -> dict[str, Any]:
    return {"searches": [{"route": s.route} | _wire.from_search(s) for s in searches]}


def _score(
    vector: Vector | None, ids: Sequence[Id] | None, vectors: Iterable[Vector] | None, text: str
) -> dict[str, Any]:
    if (ids is None) == (vectors is None):
        raise ValueError("score takes ids or vectors: give one of the two")
    query: dict[str, Any] = {"text": text}
    if vector is not None:
        query["vector"] = _wire.numbers(vector)
    request: dict[str, Any] = {"query": query}
    if ids is not None:
        request["ids"] = {"ids": [_wire.from_id(i) for i in ids]}
    if vectors is not None:
        request["vectors"] = {"vectors": [{"values": _wire.numbers(v)} for v in vectors]}
    return request


def _feedback(route: str, events: Iterable[Event]) -> dict[str, Any]:
    return {"route": route, "events": [_wire.from_event(e) for e in events]}


def _health_path(route: str) -> str:
    return "/healthz" + (f"?service=route/{quote(route, safe='')}" if route else "")


class Client:
    """Asks a sidecar. Threads may share a client; it keeps its connections until ``close``.

    A call that the sidecar could not take is made up to three times, within a budget that an outage uses up.

    Args:
        url: ``http://host:port`` or ``https://host:port``, the sidecar's ``listen.rest``.
        token: A bearer token, or a function that returns one. A token is refused over plain text unless the host is
            this machine.
        timeout: Seconds for a call, all its tries included.
        verify: The TLS context, for an authority of your own.
        allow_plain_token: Send the token over plain text, where the network itself is trusted.

    Example:
        >>> with likeness.Client("http://127.0.0.1:7602") as client:
        ...     answer = client.search("products", vector, k=10)
    """

    def __init__(
        self,
        url: str,
        *,
        token: Token | None = None,
        timeout: float = 10.0,
        verify: ssl.SSLContext | bool = True,
        allow_plain_token: bool = False,
    ) -> None:
        self._endpoint = _Endpoint(url, token, timeout, allow_plain_token)
        self._http = httpx.Client(verify=verify, trust_env=False)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def search(
        self,
        route: str,
        vector: Vector | None = None,
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
        exclude_ids: Sequence[Id] = (),
        items: Sequence[Id] | Mapping[Id, float] = (),
        include_items: bool = False,
        calls: int | None = None,
        rounds: int = 0,
        mix: float | None = None,
        stored_vector: Vector | None = None,
        vectors: Sequence[Vector] | None = None,
        user: str = "",
        timeout: float | None = None,
    ) -> Answer:
        """Returns the top k items of a route for one query. `Search` describes the arguments.

        Args:
            timeout: Seconds for this call, in place of the client's.

        Raises:
            LikenessError: One of its kinds, see `likeness.errors`.
        """
        search = Search(
            route,
            vector,
            k,
            text,
            user_id,
            context,
            filter,
            strategy,
            depth,
            max_gap,
            require_exact,
            payload,
            exclude_ids,
            items,
            include_items,
            calls,
            rounds,
            mix,
            stored_vector,
            vectors,
            user,
        )
        return _wire.to_answer(*self._call("POST", _search_path(route, "search"), _wire.from_search(search), timeout))

    def search_batch(
        self, searches: Iterable[Search], *, timeout: float | None = None
    ) -> list[Answer | errors.LikenessError]:
        """Makes several searches in one call. Each has its own answer or error, in the same order."""
        data, request_id = self._call("POST", "/v1/search:batch", _batch(searches), timeout)
        return [_wire.to_result(r, request_id) for r in data["results"]]

    def each(self, searches: Iterable[Search], batch: int = 64) -> Iterator[Answer | errors.LikenessError]:
        """Makes any number of searches, ``batch`` of them in a call, and yields the results as they come."""
        for part in _parts(searches, batch):
            yield from self.search_batch(part)

    def score(
        self,
        route: str,
        vector: Vector | None = None,
        ids: Sequence[Id] | None = None,
        *,
        vectors: Iterable[Vector] | None = None,
        text: str = "",
        timeout: float | None = None,
    ) -> list[float]:
        """Returns the similarity of items, given by id or by vector, in order. NaN stands for an unknown id."""
        data, _ = self._call("POST", _search_path(route, "score"), _score(vector, ids, vectors, text), timeout)
        return [float(s) for s in data["scores"]]

    def feedback(self, route: str, events: Iterable[Event], *, timeout: float | None = None) -> Receipt:
        """Tells a route what people did with its answers, at most 10,000 events. They are durable when it returns.

        An event that is sent again counts once, so a call that failed can be repeated.
        """
        return _wire.to_receipt(self._call("POST", "/v1/feedback", _feedback(route, events), timeout)[0])

    def routes(self, *, timeout: float | None = None) -> list[Route]:
        """Returns the routes that the sidecar serves, by name."""
        data, _ = self._call("GET", "/v1/routes", None, timeout)
        return [_wire.to_route(r) for r in data["routes"]]

    def health(self, route: str = "", *, timeout: float | None = None) -> bool:
        """Returns whether the sidecar answers searches, or whether a route is open. One try is made.

        Raises:
            NotFound: There is no such route.
            Unavailable: The sidecar cannot be reached.
        """
        tries = self._endpoint.tries(timeout)
        return _healthy(*self._try("GET", _health_path(route), None, tries))

    def _call(self, method: str, path: str, body: Any, timeout: float | None) -> tuple[Any, str]:
        tries = self._endpoint.tries(timeout)
        while True:
            try:
                answer = _decode(*self._try(method, path, body, tries))
            except errors.LikenessError as error:
                time.sleep(tries.pause(error))
            else:
                tries.succeeded()
                return answer

    def _try(self, method: str, path: str, body: Any, tries: Tries) -> tuple[httpx.Response, bytes]:
        try:
            # Read in pieces: a timeout of httpx bounds each read, and not their sum.
            with self._http.stream(**self._endpoint.request(method, path, body, tries.remaining())) as response:
                pieces = []
                for piece in response.iter_bytes():
                    pieces.append(piece)
                    tries.remaining()
                return response, b"".join(pieces)
        except httpx.TimeoutException:
            raise tries.expired() from None
        except httpx.TransportError as error:
            raise self._endpoint.unreachable(error) from error


class AsyncClient:
    """Asks a sidecar as `Client` does, from asyncio. The arguments are those of `Client`."""

    def __init__(
        self,
        url: str,
        *,
        token: Token | None = None,
        timeout: float = 10.0,
        verify: ssl.SSLContext | bool = True,
        allow_plain_token: bool = False,
    ) -> None:
        self._endpoint = _Endpoint(url, token, timeout, allow_plain_token)
        self._http = httpx.AsyncClient(verify=verify, trust_env=False)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def search(
        self,
        route: str,
        vector: Vector | None = None,
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
        exclude_ids: Sequence[Id] = (),
        items: Sequence[Id] | Mapping[Id, float] = (),
        include_items: bool = False,
        calls: int | None = None,
        rounds: int = 0,
        mix: float | None = None,
        stored_vector: Vector | None = None,
        vectors: Sequence[Vector] | None = None,
        user: str = "",
        timeout: float | None = None,
    ) -> Answer:
        """Returns the top k items of a route for one query, as `Client.search` does."""
        search = Search(
            route,
            vector,
            k,
            text,
            user_id,
            context,
            filter,
            strategy,
            depth,
            max_gap,
            require_exact,
            payload,
            exclude_ids,
            items,
            include_items,
            calls,
            rounds,
            mix,
            stored_vector,
            vectors,
            user,
        )
        path = _search_path(route, "search")
        return _wire.to_answer(*await self._call("POST", path, _wire.from_search(search), timeout))

    async def search_batch(
        self, searches: Iterable[Search], *, timeout: float | None = None
    ) -> list[Answer | errors.LikenessError]:
        """Makes several searches in one call. Each has its own answer or error, in the same order."""
        data, request_id = await self._call("POST", "/v1/search:batch", _batch(searches), timeout)
        return [_wire.to_result(r, request_id) for r in data["results"]]

    async def each(self, searches: Iterable[Search], batch: int = 64) -> AsyncIterator[Answer | errors.LikenessError]:
        """Makes any number of searches, ``batch`` of them in a call, and yields the results as they come."""
        for part in _parts(searches, batch):
            for result in await self.search_batch(part):
                yield result

    async def score(
        self,
        route: str,
        vector: Vector | None = None,
        ids: Sequence[Id] | None = None,
        *,
        vectors: Iterable[Vector] | None = None,
        text: str = "",
        timeout: float | None = None,
    ) -> list[float]:
        """Returns the similarity of items, given by id or by vector, in order. NaN stands for an unknown id."""
        data, _ = await self._call("POST", _search_path(route, "score"), _score(vector, ids, vectors, text), timeout)
        return [float(s) for s in data["scores"]]

    async def feedback(self, route: str, events: Iterable[Event], *, timeout: float | None = None) -> Receipt:
        """Tells a route what people did with its answers, as `Client.feedback` does."""
        data, _ = await self._call("POST", "/v1/feedback", _feedback(route, events), timeout)
        return _wire.to_receipt(data)

    async def routes(self, *, timeout: float | None = None) -> list[Route]:
        """Returns the routes that the sidecar serves, by name."""
        data, _ = await self._call("GET", "/v1/routes", None, timeout)
        return [_wire.to_route(r) for r in data["routes"]]

    async def health(self, route: str = "", *, timeout: float | None = None) -> bool:
        """Returns whether the sidecar answers searches, or whether a route is open, as `Client.health` does."""
        tries = self._endpoint.tries(timeout)
        return _healthy(*await self._try("GET", _health_path(route), None, tries))

    async def _call(self, method: str, path: str, body: Any, timeout: float | None) -> tuple[Any, str]:
        tries = self._endpoint.tries(timeout)
        while True:
            try:
                answer = _decode(*await self._try(method, path, body, tries))
            except errors.LikenessError as error:
                await asyncio.sleep(tries.pause(error))
            else:
                tries.succeeded()
                return answer

    async def _try(self, method: str, path: str, body: Any, tries: Tries) -> tuple[httpx.Response, bytes]:
        remaining = tries.remaining()
        request = self._http.request(**self._endpoint.request(method, path, body, remaining))
        try:
            # A timeout of httpx bounds each read, and not their sum.
            response = await asyncio.wait_for(request, remaining)
        except (httpx.TimeoutException, asyncio.TimeoutError):
            raise tries.expired() from None
        except httpx.TransportError as error:
            raise self._endpoint.unreachable(error) from error
        return response, response.content


def _healthy(response: httpx.Response, data: bytes) -> bool:
    try:
        _decode(response, data)
    except errors.Unavailable:
        return False
    return True


def _parts(searches: Iterable[Search], size: int) -> Iterator[list[Search]]:
    """Yields the searches in lists of at most size."""
    part: list[Search] = []
    for search in searches:
        part.append(search)
        if len(part) >= size:
            yield part
            part = []
    if part:
        yield part
