"""Fits and evaluates on real data, from arrays, frames and files."""

from __future__ import annotations

import io
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import DATA, Asked

import likeness
from likeness import _binary, models

FAST = {"rounds": 1, "cold": "ignore"}


def log(name: str) -> list[tuple[int, int]]:
    """The choices of a file of the data, by row."""
    return [
        (row, json.loads(line)["item"]) for row, line in enumerate((DATA / f"{name}.jsonl").read_text().splitlines())
    ]


@pytest.fixture(scope="module")
def items() -> np.ndarray:
    return np.load(DATA / "items_vectors.npy")


@pytest.fixture(scope="module")
def fitted(items: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> tuple[likeness.FitReport, str]:
    """A fit of arrays, and its progress."""
    progress = io.StringIO()
    out = tmp_path_factory.mktemp("fit") / "topics.safetensors"
    return likeness.fit_bilinear(
        items, np.load(DATA / "train_vectors.npy"), log("train"), out, progress=progress, **FAST
    ), progress.getvalue()


def test_fit(fitted: tuple[likeness.FitReport, str]) -> None:
    report, progress = fitted
    assert report.path.exists()
    assert report.gain > 0.1 > report.standard_error > 0
    assert "held-out MRR@10" in progress
    assert report.recommendation in str(report)
    shown = report._repr_html_()
    verdict, *reasons = report.recommendation.splitlines()
    assert f"<strong>{verdict}</strong></p>" in shown
    assert all(f"<p>{reason}</p>" in shown for reason in reasons)
    assert "<svg" in shown
    assert report.data["log"]["pairs"] == 10003


def test_evaluate(fitted: tuple[likeness.FitReport, str], items: np.ndarray) -> None:
    report = likeness.evaluate(
        fitted[0], items, DATA / "test_vectors.npy", log("test"), trained_pairs=log("train"), progress=False
    )
    assert (report.answer, report.choose) == ("yes", "topics")
    assert str(report).startswith("Worth it: take topics (bilinear).")
    assert report.data["metrics"]["mrr@10"] > report.data["baseline"]["mrr@10"] + 0.1
    shown = report._repr_html_()
    assert re.match(r'<iframe srcdoc="[^"]*&lt;html[^"]*" sandbox style="[^"]*"></iframe>$', shown)


def test_files_and_ids(fitted: tuple[likeness.FitReport, str], tmp_path: Path) -> None:
    """Ids in place of row numbers, and files in place of arrays, give the same model."""
    ids = [f"topic {i}" for i in range(77)]
    pairs = tmp_path / "log.jsonl"
    pairs.write_text("".join(json.dumps({"query": q, "item": ids[i]}) + "\n" for q, i in log("train")))
    report = likeness.fit_bilinear(
        str(DATA / "items_vectors.npy"),
        DATA / "train_vectors.npy",
        pairs,
        tmp_path / "named.safetensors",
        item_ids=ids,
        progress=False,
        **FAST,
    )
    assert report.data["version"] == fitted[0].data["version"]


def test_texts(items: np.ndarray, tmp_path: Path, asked: Asked, embedder: str) -> None:
    """Texts in place of vectors, by the service that embeds them."""
    topics = dict(log("train"))
    pairs = [(text, topics[row]) for row, text in enumerate(asked.texts)]
    out = tmp_path / "texts.safetensors"
    report = likeness.fit_bilinear(
        items, asked.texts, pairs, out, progress=False, embedder=f"{embedder}#shipped", **FAST
    )
    rows = likeness.fit_bilinear(
        items,
        np.float32([asked.embed(t) for t in asked.texts]),
        list(enumerate(topics[row] for row in range(300))),
        tmp_path / "rows.safetensors",
        progress=False,
        **FAST,
    )
    assert report.data["log"]["pairs"] == rows.data["log"]["pairs"] > 250
    assert report.gain == pytest.approx(rows.gain, abs=0.2)


def test_mol(items: np.ndarray, tmp_path: Path) -> None:
    queries, pairs = np.load(DATA / "train_vectors.npy")[::4], log("train")[::4]
    pairs = [(row, item) for row, (_, item) in enumerate(pairs)]
    report = likeness.fit_mol(
        items, queries, pairs, tmp_path / "mol.safetensors", progress=False, rounds=1, pulls="0.003", cold="ignore"
    )
    assert report.data["pairs_query"] == 8
    assert report.recommendation
    assert "<svg" not in report._repr_html_()


def test_wrong_input(items: np.ndarray, fitted: tuple[likeness.FitReport, str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"queries have the shape \(384,\)"):
        likeness.fit_bilinear(items, items[0], [(0, 0)], tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="77 rows, and 1 ids"):
        likeness.fit_bilinear(items, items, [(0, 0)], tmp_path / "m.safetensors", item_ids=[1])
    with pytest.raises(ValueError, match="one line of text"):
        likeness.fit_bilinear(items[:1], items, [(0, 0)], tmp_path / "m.safetensors", item_ids=["a\nb"])
    with pytest.raises(likeness.CommandFailed, match="not valid") as caught:
        likeness.fit_bilinear(items, items[:, :7], [(0, 0)], tmp_path / "m.safetensors", progress=False)
    assert caught.value.code == 2
    with pytest.raises(likeness.CommandFailed, match="--force|replace"):
        likeness.fit_bilinear(items, items, [(0, 0)], fitted[0].path, progress=False)
    with pytest.raises(likeness.CommandFailed, match="unknown flag"):
        likeness.fit_bilinear(items, items, [(0, 0)], tmp_path / "m.safetensors", progress=False, frm="full")


def test_model_file(fitted: tuple[likeness.FitReport, str], tmp_path: Path, items: np.ndarray) -> None:
    """A model file is read, and written again as the same version."""
    model = models.Bilinear.load(fitted[0].path)
    assert (model.name, model.normalise, model.weight.shape) == ("topics", True, (384, 384))
    assert model.provenance["tool"]
    again = tmp_path / "again.safetensors"
    model.save(again)
    copy = models.Bilinear.load(again)
    np.testing.assert_array_equal(copy.weight, model.weight)
    subprocess.run([_binary.path(), "model", "verify", again], check=True)
    subprocess.run([_binary.path(), "model", "diff", fitted[0].path, again], check=True)
    low_rank = likeness.fit_bilinear(
        items,
        items,
        [(i, i) for i in range(77)],
        tmp_path / "low.safetensors",
        progress=False,
        form="identity_low_rank",
        rank=2,
        **FAST,
    )
    assert np.linalg.matrix_rank(models.Bilinear.load(low_rank.path).weight - np.eye(384), tol=1e-4) <= 2
    with pytest.raises(ValueError, match="no safetensors file"):
        models.Bilinear.load(DATA / "items.jsonl")
    with pytest.raises(ValueError, match="matrix of finite numbers"):
        models.Bilinear(np.full((2, 2), np.nan)).save(again)
