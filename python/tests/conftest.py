"""The sidecar and the questions that the tests ask it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from likeness import _binary

EXAMPLES = Path(__file__).parents[2] / "examples"
DATA = EXAMPLES / "data" / "banking77"
TOKEN = "of-this-test"

# The 77 topics that the questions of banking77 ask for.
CONFIGURATION = f"""
listen: {{grpc: "127.0.0.1:0", rest: "127.0.0.1:0", admin: "", auth: {{tokens_file: tokens.yaml}}}}
limits: {{max_message_bytes: 128KiB}}
stores:
  files:
    kind: embedded
    collections: {{intents: {{vectors: {DATA}/items_vectors.npy, payload: {DATA}/items.jsonl, metric: cosine}}}}
models: {{similar: {{path: {EXAMPLES}/models/banking77-questions-bilinear}}}}
routes: {{intents: {{store: files, collection: intents, model: similar, placement: stored, exact_search: true}}}}
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
