"""Puts a fitted model behind a sentence transformer, and takes it back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import DATA, MODEL
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from likeness import _binary, models
from likeness.st import QueryTransform

WORDS = ["my", "card", "has", "not", "arrived", "where", "is", "it", "lost"]


@pytest.fixture
def encoder() -> SentenceTransformer:
    """A sentence transformer of words, whose embeddings have the dimension of the shipped model."""
    tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate([*WORDS, "[UNK]"])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    weights = np.random.default_rng(1).normal(size=(len(WORDS) + 1, 384)).astype(np.float32)
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu")


def test_scores(encoder: SentenceTransformer, tmp_path: Path) -> None:
    """Inner products of the transformed queries are the similarity; saved and loaded, the same."""
    model = models.Bilinear.load(MODEL)
    transformed = QueryTransform.from_model(MODEL).behind(encoder)
    queries, documents = ["where is my card", "lost card"], ["my card has not arrived", "it is lost", "card"]
    q, x = encoder.encode(queries), encoder.encode(documents, normalize_embeddings=True)
    expected = q / np.linalg.norm(q, axis=1, keepdims=True) @ model.weight @ x.T
    found = transformed.encode_query(queries) @ transformed.encode_document(documents, normalize_embeddings=True).T
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(transformed.encode_document(documents), encoder.encode(documents))

    transformed.save(str(tmp_path / "saved"))
    # A module of another package than sentence-transformers counts as remote code.
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(again.encode_query(queries), transformed.encode_query(queries), rtol=1e-6, atol=1e-6)


def test_back(tmp_path: Path) -> None:
    """A module that was trained further is a model of likeness, and one that was not is the same version."""
    first, same, trained_file = (tmp_path / f"{name}.safetensors" for name in ("first", "same", "trained"))
    models.Bilinear.load(MODEL).save(first)
    transform = QueryTransform.from_model(first)
    transform.to_model(same)
    subprocess.run([_binary.path(), "model", "verify", same], check=True)
    subprocess.run([_binary.path(), "model", "diff", first, same], check=True)

    optimiser = torch.optim.SGD(transform.parameters(), lr=0.1)
    embedding = torch.from_numpy(np.load(DATA / "test_vectors.npy")[:8].astype(np.float32))
    loss = transform({"sentence_embedding": embedding})["sentence_embedding"].square().sum()
    loss.backward()
    optimiser.step()
    transform.to_model(trained_file, name="trained")
    trained = models.Bilinear.load(trained_file)
    assert trained.name == "trained"
    np.testing.assert_array_equal(trained.weight, transform.linear.weight.detach().numpy().T)
    assert subprocess.run([_binary.path(), "model", "diff", first, trained_file], check=False).returncode == 1


def test_identity() -> None:
    """A new module changes nothing but the norm."""
    embedding = torch.tensor([[3.0, 4.0]])
    out = QueryTransform(2, 2)({"sentence_embedding": embedding})["sentence_embedding"]
    np.testing.assert_allclose(out.detach().numpy(), [[0.6, 0.8]])
    out = QueryTransform(2, 2, normalise=False)({"sentence_embedding": embedding})["sentence_embedding"]
    np.testing.assert_array_equal(out.detach().numpy(), [[3.0, 4.0]])
