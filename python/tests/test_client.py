"""Asks a real sidecar everything that the clients can."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pytest

import likeness
from likeness import Search, errors


@pytest.fixture
def client(url: str, token: str) -> Iterator[likeness.Client]:
    with likeness.Client(url, token=lambda: token) as client:
        yield client


def test_search(client: likeness.Client, vector: np.ndarray) -> None:
    answer = client.search("intents", vector, 3)
    assert 0 in [h.id for h in answer.hits], "the first question asks for intent 0"
    assert [h.score for h in answer.hits] == sorted((h.score for h in answer.hits), reverse=True)
    assert "text" in (answer.hits[0].payload or {})
    assert (answer.certificate.status, answer.degraded, len(answer.hits)) == ("exact", None, 3)
    assert answer.certificate.kth_score == pytest.approx(answer.hits[2].score, abs=1e-6)
    assert answer.request_id
    assert answer.timings["total"] > 0
    assert client.search("intents", vector, 1, payload=False).hits[0].payload is None
    assert list(client.search("intents", vector, 1, payload=["text"]).hits[0].payload or {}) == ["text"]
    assert client.search("intents", list(map(float, vector)), 3).hits == answer.hits


def test_feedback(url: str, token: str, client: likeness.Client, vector: np.ndarray) -> None:
    """What a person did with an answer is taken once, and of a stranger's answer not at all."""
    answer = client.search("intents", vector, 3, user="ann")
    assert answer.answer_id
    click = likeness.Event(answer.answer_id, answer.hits[1].id)
    bought = likeness.Event(answer.answer_id, answer.hits[1].id, "purchase", 5, time.time() - 60, "e1")
    assert client.feedback("intents", [click, bought]) == likeness.Receipt(2, 0)

    async def send() -> likeness.Receipt:
        async with likeness.AsyncClient(url, token=token) as asynchronous:
            return await asynchronous.feedback("intents", [click, likeness.Event("A" * 32, 1)])

    receipt = asyncio.run(send())
    assert (receipt.accepted, receipt.known) == (1, 1)
    assert [(r.index, r.reason) for r in receipt.refused] == [(1, "ANSWER_UNKNOWN")]


def test_filter(client: likeness.Client, vector: np.ndarray) -> None:
    answer = client.search("intents", vector, 3, filter={"must": [{"key": "id", "match": {"value": 5}}]})
    assert [h.id for h in answer.hits] == [5]


def test_exclude_ids(url: str, token: str, client: likeness.Client, vector: np.ndarray) -> None:
    """Items that a person has seen are missing, and the others follow in their order."""
    every = client.search("intents", vector, 12)
    seen = [every.hits[0].id, every.hits[3].id, 10**9]
    answer = client.search("intents", vector, 10, exclude_ids=seen)
    assert answer.hits == [h for h in every.hits if h.id not in seen]
    assert answer.certificate.status == every.certificate.status == "exact"

    async def ask() -> list[likeness.Hit]:
        async with likeness.AsyncClient(url, token=token) as asynchronous:
            return (await asynchronous.search("intents", vector, 10, exclude_ids=seen)).hits

    assert asyncio.run(ask()) == answer.hits


@pytest.mark.parametrize("options", [{"calls": 5}, {"rounds": 2}, {"mix": 0.5}])
def test_ranker_options(client: likeness.Client, vector: np.ndarray, options: dict[str, Any]) -> None:
    """What a ranker is asked for is passed on: this route, which has none, refuses it by name."""
    with pytest.raises(likeness.Invalid, match=f"{next(iter(options))}.*no ranker"):
        client.search("intents", vector, 3, **options)


def test_items(client: likeness.Client) -> None:
    """A query is the mean of items, which the answer leaves out, or has if that is asked for."""
    answer = client.search("intents", k=5, items=[3, 8])
    assert len(answer.hits) == 5
    assert not {3, 8} & {h.id for h in answer.hits}
    without = client.search("intents", k=5, items=[3, 8], exclude_ids=[4])
    assert client.search("intents", k=5, items={3: 0.5, 8: 0.5, 4: 0}).hits == without.hits
    assert {3, 8} <= {h.id for h in client.search("intents", k=77, items=[3, 8], include_items=True).hits}
    with pytest.raises(likeness.Invalid, match="item_ids"):
        client.search("intents", k=5, items=[10**9])


def test_batch(client: likeness.Client, questions: dict[str, np.ndarray]) -> None:
    searches = [Search("intents", v, 1) for v in questions.values()] + [Search("intents", [1.0], 1)]
    results = list(client.each(searches, batch=3))
    assert len(results) == len(searches)
    assert all(isinstance(r, likeness.Answer) for r in results[:-1]), results
    assert isinstance(results[-1], likeness.Invalid)


def test_score(client: likeness.Client, vector: np.ndarray) -> None:
    best = client.search("intents", vector, 1).hits[0]
    known, unknown = client.score("intents", vector, [best.id, 999])
    assert known == pytest.approx(best.score, abs=1e-5)
    assert math.isnan(unknown)
    of_vectors = client.score("intents", vector, vectors=[vector, -vector])
    assert of_vectors[0] == pytest.approx(-of_vectors[1], abs=1e-5)
    with pytest.raises(ValueError, match="ids or vectors"):
        client.score("intents", vector)


def test_catalog_and_health(client: likeness.Client) -> None:
    assert [r.name for r in client.routes()] == ["intents"]
    assert client.health()
    assert client.health("intents")
    with pytest.raises(likeness.NotFound):
        client.health("none/such")
    with pytest.raises(likeness.Unavailable):
        likeness.Client("http://127.0.0.1:1").health()


def test_invalid(client: likeness.Client, vector: np.ndarray) -> None:
    with pytest.raises(likeness.Invalid) as caught:
        client.search("intents", vector, -1)
    assert list(caught.value.fields) == ["k"]
    assert caught.value.reason == "FIELD_INVALID"
    assert caught.value.request_id


@pytest.mark.parametrize(
    ("kind", "search"),
    [
        (likeness.NotFound, {"route": "none/such"}),
        (likeness.Invalid, {"vector": [math.nan]}),
        (likeness.Invalid, {"vector": [[1.0, 2.0]]}),
        (likeness.DeadlineExceeded, {"timeout": 0.0}),
        (likeness.TooLarge, {"text": "x" * 200_000}),
    ],
)
def test_errors(client: likeness.Client, vector: np.ndarray, kind: type[Exception], search: dict) -> None:
    with pytest.raises(kind):
        client.search(**({"route": "intents", "vector": vector} | search))


def test_refused(url: str, vector: np.ndarray) -> None:
    with pytest.raises(likeness.Unauthenticated):
        likeness.Client(url, token="guess").search("intents", vector)
    with pytest.raises(likeness.Unavailable):
        likeness.Client("http://127.0.0.1:1").search("intents", vector)
    for address in ("likeness.example:7602", "http://likeness.example/v1"):
        with pytest.raises(ValueError, match="is not a sidecar's URL"):
            likeness.Client(address)
    with pytest.raises(ValueError, match="plain text"):
        likeness.Client("http://likeness.example", token="open")


def test_another_server() -> None:
    """What answers 404 in words of its own, as an admin port or a database does, is told from a route that is missing."""
    error = errors.from_response(404, b"404 page not found\n", "")
    assert isinstance(error, likeness.Internal)
    assert "404 page not found; no sidecar's API is there" in str(error)
    assert "listen.rest" not in str(errors.from_response(500, b"oops", ""))


def test_threads(client: likeness.Client, vector: np.ndarray) -> None:
    found: list[int | str] = []

    def ask() -> None:
        found.extend(client.search("intents", vector, 1).hits[0].id for _ in range(10))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [client.search("intents", vector, 1).hits[0].id] * 40


def test_async(url: str, token: str, client: likeness.Client, questions: dict[str, np.ndarray]) -> None:
    vectors = list(questions.values())

    async def ask() -> None:
        async with likeness.AsyncClient(url, token=token) as asking:
            answers = await asyncio.gather(*(asking.search("intents", v, 2) for v in vectors))
            assert [a.hits for a in answers] == [client.search("intents", v, 2).hits for v in vectors]
            results = [r async for r in asking.each((Search("intents", v, 2) for v in vectors), batch=2)]
            assert [r.hits for r in results] == [a.hits for a in answers]
            best = answers[0].hits[0]
            assert await asking.score("intents", vectors[0], [best.id]) == pytest.approx([best.score], abs=1e-5)
            assert [r.name for r in await asking.routes()] == ["intents"]
            assert await asking.health("intents")
            with pytest.raises(likeness.Invalid):
                await asking.search("intents", vectors[0], -1)
            with pytest.raises(likeness.DeadlineExceeded):
                await asking.search("intents", vectors[0], timeout=0.0)
        async with likeness.AsyncClient("http://127.0.0.1:1") as asking:
            with pytest.raises(likeness.Unavailable):
                await asking.search("intents", vectors[0])

    asyncio.run(ask())


UNAVAILABLE = b'{"code":14,"message":"restarting","details":[]}'


@pytest.fixture
def balancer() -> Iterator[Callable[[list[int]], tuple[str, list[int]]]]:
    """A balancer before no sidecar, which answers with the statuses it is given and then with an empty list of routes.

    The second result lists the statuses that it sent.
    """
    servers: list[HTTPServer] = []

    def start(statuses: list[int]) -> tuple[str, list[int]]:
        sent: list[int] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status = statuses.pop(0) if statuses else 200
                sent.append(status)
                body = b'{"routes":[]}' if status == 200 else UNAVAILABLE
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", sent

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_retries(balancer: Callable[[list[int]], tuple[str, list[int]]]) -> None:
    address, sent = balancer([503, 503])
    with likeness.Client(address) as client:
        assert client.routes() == []
    assert sent == [503, 503, 200]

    address, sent = balancer([503] * 3)
    with likeness.Client(address) as client, pytest.raises(likeness.Unavailable):
        client.routes()
    assert sent == [503] * 3


def test_retries_end_in_an_outage(balancer: Callable[[list[int]], tuple[str, list[int]]]) -> None:
    address, sent = balancer([503] * 1000)
    with likeness.Client(address) as client:
        for _ in range(20):
            with pytest.raises(likeness.Unavailable):
                client.routes()
    # The fifth failure leaves five tokens of ten, too few for a retry: 3 tries, 2 tries, and then 18 calls of one.
    assert len(sent) == 3 + 2 + 18


def test_deadline_of_a_trickle() -> None:
    """An answer that comes a byte at a time ends with the call's deadline."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def trickle() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not stop.wait(0.05):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return

        thread = threading.Thread(target=trickle)
        thread.start()
        started = time.monotonic()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        with likeness.Client(address, timeout=0.3) as client, pytest.raises(likeness.DeadlineExceeded):
            client.routes()
        assert time.monotonic() - started < 5
        stop.set()
        thread.join()
