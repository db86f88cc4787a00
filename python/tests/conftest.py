"""The sidecar and the questions that the tests ask it. python_test.go starts the sidecar and runs the tests."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

DATA = Path(__file__).parents[2] / "examples" / "data" / "banking77"


@pytest.fixture(scope="session")
def url() -> str:
    """The address of the sidecar, which serves the route ``intents``."""
    return os.environ["LIKENESS_URL"]


@pytest.fixture(scope="session")
def token() -> str:
    """The token of the sidecar."""
    return os.environ["LIKENESS_TOKEN"]


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
