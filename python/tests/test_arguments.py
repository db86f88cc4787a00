"""Every argument of the clients and of the fits reaches the request or the command line."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import io
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import likeness

Request = dict[str, Any]

ANSWERS = {
    "search": {"hits": []},
    "batch": {"results": []},
    "score": {"scores": []},
    "feedback": {"accepted": 0, "known": 0, "refused": []},
    "routes": {"routes": []},
    "healthz": {},
}

# What each argument of a search changes in the JSON of its request, beside the request without it.
SEARCH: dict[str, tuple[Any, Request]] = {
    "vector": ([1.0, 2.0], {"query.vector": [1.0, 2.0]}),
    "k": (7, {"k": 7}),
    "text": ("words", {"query.text": "words"}),
    "user_id": (2**63, {"query.user_id": str(2**63)}),
    "context": ({"hour": 5.0}, {"query.context.hour": 5.0}),
    "filter": ({"must": 1}, {"filter": '{"must": 1}'}),
    "strategy": ("scan", {"strategy": "STRATEGY_SCAN"}),
    "depth": (7, {"depth": 7}),
    "max_gap": (0.0, {"max_gap": 0.0}),
    "require_exact": (True, {"require_exact": True}),
    "payload": (["a"], {"payload.fields": ["a"]}),
    "exclude_ids": ([3, -3, "x"], {"exclude_ids": [{"number": "3"}, {"negative": "-3"}, {"text": "x"}]}),
    "items": ({4: 0.5}, {"query.item_ids": [{"id": {"number": "4"}, "weight": 0.5}], "include_item_ids": False}),
    "calls": (0, {"calls": 0}),
    "rounds": (7, {"rounds": 7}),
    "mix": (0.0, {"mix": 0.0}),
    "stored_vector": ([3.0], {"stored_vector": [3.0]}),
    "vectors": ([[1.0], [2.0]], {"query.vectors": [{"values": [1.0]}, {"values": [2.0]}]}),
    "user": ("ann", {"user": "ann"}),
}
INCLUDED = {"include_items": (True, {"include_item_ids": True})}  # with items
TIMEOUT = {"timeout": (300, {"timeout": 300})}

# The arguments of each call without which it is refused, and what each argument changes.
CALLS: dict[str, tuple[Request, dict[str, tuple[Any, Request]]]] = {
    "search": ({"route": "r"}, SEARCH | TIMEOUT | {"route": ("a/b", {"path": "/v1/routes/a%2Fb:search"})}),
    "search_batch": (
        {"searches": []},
        TIMEOUT
        | {"searches": ([likeness.Search("r", text="t")], {"searches.0.route": "r", "searches.0.query.text": "t"})},
    ),
    "score": (
        {"route": "r", "ids": [1]},
        TIMEOUT
        | {
            "route": ("s", {"path": "/v1/routes/s:score"}),
            "vector": ([1.0], {"query.vector": [1.0]}),
            "ids": (["x"], {"ids.ids": [{"text": "x"}]}),
            "text": ("words", {"query.text": "words"}),
        },
    ),
    "feedback": (
        {"route": "r", "events": []},
        TIMEOUT | {"route": ("s", {"route": "s"}), "events": ([likeness.Event("A", 1)], {"events.0.answer_id": "A"})},
    ),
    "routes": ({}, TIMEOUT),
    "health": ({}, TIMEOUT | {"route": ("a/b", {"path": "/healthz?service=route/a%2Fb"})}),
}

# What each field of an event changes.
EVENT: dict[str, tuple[Any, Request]] = {
    "answer_id": ("B", {"events.0.answer_id": "B"}),
    "item": ("x", {"events.0.item": {"text": "x"}}),
    "kind": ("purchase", {"events.0.kind": "purchase"}),
    "weight": (5, {"events.0.weight": 5}),
    "time": (0.5, {"events.0.time": "1970-01-01T00:00:00.500000Z"}),
    "event_id": ("e", {"events.0.event_id": "e"}),
}


class Recorder:
    """A server that keeps the last request and answers with an empty result."""

    def __init__(self) -> None:
        recorder = self
        self.last: Request = {}

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                timeout = round(int(self.headers["Grpc-Timeout"].removesuffix("m")) / 100_000) * 100
                recorder.last = {"path": self.path, "timeout": timeout} | flat(json.loads(body or b"{}"))
                method = self.path.partition("?")[0].replace("/", ":").rpartition(":")[2]
                data = json.dumps(ANSWERS[method]).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = answer

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def sync(self, method: str, arguments: Request) -> Request:
        """Returns the request that Client makes."""
        with likeness.Client(self.url, timeout=100, verify=False) as client:
            getattr(client, method)(**arguments)
        return self.last

    def asynchronous(self, method: str, arguments: Request) -> Request:
        """Returns the request that AsyncClient makes."""

        async def call() -> None:
            async with likeness.AsyncClient(self.url, timeout=100, verify=False) as client:
                await getattr(client, method)(**arguments)

        asyncio.run(call())
        return self.last


def flat(value: Any, path: str = "") -> Request:
    """Returns the leaves of a JSON object by their paths. An id, and a list of anything but searches and events, is a leaf."""
    if isinstance(value, dict) and not path.endswith(".item"):
        named: Any = value.items()
    elif isinstance(value, list) and value and path in ("searches", "events"):
        named = enumerate(value)
    else:
        return {path: value}
    out: Request = {}
    for name, part in named:
        out |= flat(part, f"{path}.{name}".strip("."))
    return out


def change(before: Request, after: Request) -> Request:
    """Returns what differs. None stands for what is missing after."""
    return {p: after.get(p) for p in sorted({*before, *after}) if before.get(p, ...) != after.get(p, ...)}


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.server.shutdown()
    recorder.server.server_close()


def parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self"}


def test_methods() -> None:
    """Each method that makes a call has rows."""
    for cls, close in ((likeness.Client, "close"), (likeness.AsyncClient, "aclose")):
        methods = {name for name, _ in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")}
        assert methods == {*CALLS, "each", close}, "a method has no rows in CALLS"


@pytest.mark.parametrize("of", ["sync", "asynchronous"])
@pytest.mark.parametrize("method", CALLS)
def test_arguments(recorder: Recorder, method: str, of: str) -> None:
    """Each argument changes its own part of the request, and nothing else."""
    needed, arguments = CALLS[method]
    cls = likeness.Client if of == "sync" else likeness.AsyncClient
    special = {"include_items"} if method == "search" else {"vectors"} if method == "score" else set()
    assert parameters(getattr(cls, method)) == {*arguments} | special, "an argument has no row here"
    request = getattr(recorder, of)
    before = request(method, needed)
    for name, (value, expected) in arguments.items():
        got = change(before, request(method, needed | {name: value}))
        if name in ("searches", "events"):
            got = {p: got.get(p) for p in expected}
        assert got == expected, name
    if method == "search":
        with_items = needed | {"items": [1]}
        for name, (value, expected) in INCLUDED.items():
            assert change(request(method, with_items), request(method, with_items | {name: value})) == expected
        assert "payload.fields" not in request(method, needed | {"payload": False})
    if method == "score":
        by_vectors = request(method, {"route": "r", "vectors": [[1.0], [2.0]]})
        assert by_vectors["vectors.vectors"] == [{"values": [1.0]}, {"values": [2.0]}]


def test_fields_of_searches(recorder: Recorder) -> None:
    """Each field of a Search reaches its search of a batch."""
    rows = SEARCH | INCLUDED | {"route": ("s", {"route": "s"})}
    assert {f.name for f in dataclasses.fields(likeness.Search)} == {*rows}, "a field has no row here"
    for name, (value, expected) in rows.items():
        plain = {"route": "r"} | ({"items": [1]} if name == "include_items" else {})
        before = recorder.sync("search_batch", {"searches": [likeness.Search(**plain)]})
        after = recorder.sync("search_batch", {"searches": [likeness.Search(**plain | {name: value})]})
        assert change(before, after) == {f"searches.0.{p}": v for p, v in expected.items()}, name


def test_fields_of_events(recorder: Recorder) -> None:
    """Each field of an Event reaches the request."""
    assert {f.name for f in dataclasses.fields(likeness.Event)} == {*EVENT}, "a field has no row here"
    plain = {"answer_id": "A", "item": 1}
    before = recorder.sync("feedback", {"route": "r", "events": [likeness.Event(**plain)]})
    for name, (value, expected) in EVENT.items():
        after = recorder.sync("feedback", {"route": "r", "events": [likeness.Event(**plain | {name: value})]})
        assert change(before, after) == expected, name


# What each argument of a fit and of an evaluation changes in the command line. A file of text stands for its content.
INPUTS: dict[str, tuple[Any, Request]] = {
    "items": ("other.npy", {"items": "other.npy"}),
    "queries": (["some words"], {"queries": '{"query": "some words"}'}),
    "pairs": ([(1, 2, 0.5)], {"pairs": '{"query": 1, "item": 2, "weight": 0.5}'}),
    "item_ids": (["a", "b"], {"item-ids": "a b"}),
    "query_ids": ([7], {"query-ids": "7"}),
    "options": (0.25, {"held-out": "0.25"}),
}
FIT = INPUTS | {"out": ("other.safetensors", {"out": "other.safetensors"}), "overwrite": (True, {"force": "true"})}
COMMANDS: dict[str, tuple[Request, dict[str, tuple[Any, Request]]]] = {
    "fit_bilinear": ({"out": "m.safetensors"}, FIT),
    "fit_mol": ({"out": "m.safetensors"}, FIT),
    "evaluate": (
        {"models": "m.safetensors"},
        INPUTS
        | {
            "models": ([Path("a"), likeness.FitReport(Path("b"), "", [], 0, 0, {})], {"model": "a b"}),
            "trained_pairs": ([(3, 4)], {"trained-pairs": '{"query": 3, "item": 4}'}),
            "k": (7, {"k": "7"}),
        },
    ),
}

# Prints its arguments, with the content of a text file in place of its name.
RECORDER = """#!/bin/sh
for a; do
  case "$a" in
    --html=*) echo page > "${a#*=}";;
    --*=/*.txt | --*=/*.jsonl)
      content=
      while read -r line; do content="$content $line"; done < "${a#*=}"
      a="${a%%=*}=${content# }";;
  esac
  echo "$a" >> "$0.arguments"
done
echo progress >&2
echo '{}'
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_command_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """Each argument changes its own flag of the command, and nothing else."""
    binary, lines = tmp_path / "recorder", tmp_path / "recorder.arguments"
    binary.write_text(RECORDER)
    binary.chmod(0o755)
    monkeypatch.setenv("LIKENESS_BINARY", str(binary))
    function = getattr(likeness, name)

    def line(**arguments: Any) -> Request:
        lines.unlink(missing_ok=True)
        function(**arguments)
        words, *rest = lines.read_text().split("--output\njson\n")
        flags: Request = {"command": words.replace("\n", " ").strip()}
        for argument in "".join(rest).splitlines():
            flag, _, value = argument.removeprefix("--").partition("=")
            flags[flag] = f"{flags.get(flag, '')} {value}".strip()
        return {f: v for f, v in flags.items() if f not in ("html", "plot")}  # in a folder of their own

    own, arguments = COMMANDS[name]
    assert parameters(function) == {*arguments, "progress"}, "an argument has no row here"
    needed = own | {"items": "i.npy", "queries": "q.npy", "pairs": "p.csv", "progress": False}
    before = line(**needed)
    assert before["command"] == ("eval" if name == "evaluate" else name.replace("_", " "))
    for argument, (value, expected) in arguments.items():
        given = {"held_out": value} if argument == "options" else {argument: value}
        assert change(before, line(**needed | given)) == expected, argument
    progress = io.StringIO()
    line(**needed | {"progress": progress})
    assert progress.getvalue() == "progress\n"
