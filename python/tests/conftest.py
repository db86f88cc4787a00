"""The sidecar and the questions that the tests ask it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from likeness import _binary, models

EXAMPLES = Path(__file__).parents[2] / "examples"
DATA = EXAMPLES / "data" / "banking77"
MODEL = EXAMPLES / "models" / "banking77-questions-bilinear"
TOKEN = "of-this-test"

# The 77 topics that the questions of banking77 ask for.
CONFIGURATION = f"""
listen: {{grpc: "127.0.0.1:0", rest: "127.0.0.1:0", admin: "", auth: {{tokens_file: tokens.yaml}}}}
state_dir: state
limits: {{max_message_bytes: 128KiB}}
stores:
  files:
    kind: embedded
    collections: {{intents: {{vectors: {DATA}/items_vectors.npy, payload: {DATA}/items.jsonl, metric: cosine}}}}
models: {{similar: {{path: {MODEL}}}}}
routes: {{intents: {{store: files, collection: intents, model: similar, placement: stored, exact_search: true, events: {{share: 1}}}}}}
"""


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a sidecar that serves the route ``intents``."""
    folder = tmp_path_factory.mktemp("sidecar")
    (folder / "likeness.yaml").write_text(CONFIGURATION)
    (folder / "tokens.yaml").write_text(f"- {{name: python, token: {TOKEN}}}\n")
    (folder / "tokens.yaml").chmod(0o600)
    yield from serve(folder)


def serve(folder: Path) -> Iterator[str]:
    """Runs ``likeness serve`` on a folder's likeness.yaml, and yields its address of ``listen.rest``."""
    ready = folder / "ready.json"
    command = [_binary.path(), "serve", "--config", "likeness.yaml", "--ready-file", ready]
    with (folder / "log").open("w") as log:
        sidecar = subprocess.Popen(command, cwd=folder, stderr=log, stdout=log)
    try:
        deadline = time.monotonic() + 60
        while not ready.exists():
            assert sidecar.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.02)
        yield "http://" + json.loads(ready.read_text())["rest"]
    finally:
        sidecar.terminate()
        assert sidecar.wait(timeout=30) == 0, (folder / "log").read_text()


@pytest.fixture(scope="session")
def token() -> str:
    """The token of the sidecar."""
    return TOKEN


@pytest.fixture(scope="session")
def questions() -> dict[str, np.ndarray]:
    """Five questions with their vectors. The first asks for the intent 0."""
    lines = (DATA / "test.jsonl").read_text().splitlines()[:5]
    vectors = np.load(DATA / "test_vectors.npy", mmap_mode="r")
    return {json.loads(line)["text"]: vectors[row] for row, line in enumerate(lines)}


@pytest.fixture(scope="session")
def vector(questions: dict[str, np.ndarray]) -> np.ndarray:
    """The vector of the first question."""
    return next(iter(questions.values()))


class Asked:
    """Questions in a collection, and others to ask, with the model that searches them."""

    def __init__(self) -> None:
        self.texts = [json.loads(line)["text"] for line in (DATA / "train.jsonl").read_text().splitlines()[:300]]
        self.vectors = dict(zip(self.texts, np.load(DATA / "train_vectors.npy", mmap_mode="r")[:300], strict=True))
        lines = (DATA / "test.jsonl").read_text().splitlines()[:3]
        self.queries = [json.loads(line)["text"] for line in lines]
        self.vectors |= dict(zip(self.queries, np.load(DATA / "test_vectors.npy", mmap_mode="r")[:3], strict=True))
        self.model = models.Bilinear.load(MODEL)

    def embed(self, text: str) -> list[float]:
        """Returns the vector that a sentence model made of a text."""
        return [float(x) for x in self.vectors.get(text, self.vectors[self.texts[0]])]

    def score(self, query: str, text: str) -> float:
        """Returns the similarity of a query and a text by the definition."""
        q, x = np.float64(self.vectors[query]), np.float64(self.vectors[text])
        return float(q @ self.model.weight @ x / np.linalg.norm(q) / np.linalg.norm(x))

    def best(self, query: str, k: int, texts: list[str] | None = None) -> list[str]:
        """Returns the texts that are best for a query."""
        return sorted(texts or self.texts, key=lambda text: -self.score(query, text))[:k]


@pytest.fixture(scope="session")
def asked() -> Asked:
    """The questions."""
    return Asked()


@pytest.fixture(scope="session")
def qdrant() -> str:
    """The address of the REST API of a Qdrant."""
    return os.environ["QDRANT_URL"]


@pytest.fixture(scope="session")
def embedder(asked: Asked) -> Iterator[str]:
    """A service of the vectors that a sentence model made of the questions, in OpenAI's form."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
            data = [{"index": i, "embedding": asked.embed(text)} for i, text in enumerate(texts)]
            body = json.dumps({"data": data}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1/embeddings"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def serve_collection(tmp_path_factory: pytest.TempPathFactory, embedder: str) -> Iterator[Callable[..., str]]:
    """Serves a collection of that Qdrant, or of another store, as two routes, and returns the sidecar's address.

    The routes are ``questions``, and ``worded``, which has an embedder.
    """
    qdrant_store = f'{{kind: qdrant, address: "{os.environ.get("QDRANT_GRPC")}"}}'
    with ExitStack() as running:

        def start(collection: str, store: str = qdrant_store, exact: str = "exact_search: true") -> str:
            folder = tmp_path_factory.mktemp("sidecar")
            (folder / "likeness.yaml").write_text(f"""
listen: {{grpc: "127.0.0.1:0", rest: "127.0.0.1:0", admin: ""}}
stores: {{db: {store}}}
models: {{similar: {{path: {MODEL}}}}}
embedders: {{service: {{url: "{embedder}", model: shipped, dimension: 384}}}}
routes:
  questions: {{store: db, collection: {collection}, model: similar, {exact}}}
  worded: {{store: db, collection: {collection}, model: similar, {exact}, embedder: service}}
""")
            return running.enter_context(contextmanager(serve)(folder))

        yield start
