"""Fits on frames of pandas and polars."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pandas
import polars
import pytest
from conftest import DATA
from test_fitting import FAST, log

import likeness


@pytest.mark.parametrize("library", [pandas, polars])
def test_frames(library: object, tmp_path: Path) -> None:
    items = np.load(DATA / "items_vectors.npy")
    queries = np.load(DATA / "train_vectors.npy")[::10]
    chosen = [item for _, item in log("train")[::10]]
    ids = [f"topic {i}" for i in range(77)]
    began = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    times = [began + datetime.timedelta(minutes=i) for i in range(len(chosen))]
    pairs = {
        "query": range(len(chosen)),
        "item": [ids[c] for c in chosen],
        "weight": [2.0] * len(chosen),
        "time": times,
    }
    fit = likeness.fit_bilinear(
        library.DataFrame({"id": ids, "vector": list(items)}),
        library.DataFrame({"vector": list(queries)}),
        library.DataFrame(pairs),
        tmp_path / "m.safetensors",
        progress=False,
        split="time",
        **FAST,
    )
    plain = likeness.fit_bilinear(
        items,
        queries,
        [{k: v[i] for k, v in pairs.items()} for i in range(len(chosen))],
        tmp_path / "plain.safetensors",
        item_ids=ids,
        progress=False,
        split="time",
        **FAST,
    )
    assert fit.data["version"] == plain.data["version"]
    with pytest.raises(ValueError, match="the frame of pairs has no column 'query'; it has q, item"):
        likeness.fit_bilinear(items, queries, library.DataFrame({"q": [0], "item": [0]}), tmp_path / "m.safetensors")
