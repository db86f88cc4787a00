"""Retrieves from, and reranks, a collection that qdrant-haystack wrote."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conftest import Asked
from haystack import Pipeline, component
from haystack.dataclasses import Document
from haystack.utils import Secret
from haystack_integrations.components.retrievers.qdrant import QdrantEmbeddingRetriever
from haystack_integrations.document_stores.qdrant import QdrantDocumentStore

import likeness
from likeness import payloads
from likeness.haystack import LikenessRanker, LikenessRetriever

ASKED = Asked()


def embed(text: str) -> list[float]:
    """A function that a pipeline can name."""
    return ASKED.embed(text)


@component
class Embedder:
    """A text embedder as Haystack has them."""

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        return {"embedding": ASKED.embed(text)}


@pytest.fixture(scope="module")
def store(qdrant: str) -> QdrantDocumentStore:
    store = QdrantDocumentStore(url=qdrant, index="haystack", embedding_dim=384)
    documents = [
        Document(content=text, meta={"row": row}, embedding=ASKED.embed(text)) for row, text in enumerate(ASKED.texts)
    ]
    store.write_documents(documents)
    return store


@pytest.fixture(scope="module")
def url(store: QdrantDocumentStore, serve_collection: Callable[[str], str]) -> str:
    return serve_collection("haystack")


def test_retriever(url: str) -> None:
    retriever = LikenessRetriever(url, "questions", top_k=4, embed=embed)
    for query in ASKED.queries:
        documents = retriever.run(query=query)["documents"]
        assert [d.content for d in documents] == ASKED.best(query, 4)
        assert [d.score for d in documents] == pytest.approx(
            [ASKED.score(query, d.content) for d in documents], abs=1e-4
        )
        for d in documents:
            row = ASKED.texts.index(d.content)
            assert d.meta["row"] == row
            stored = Document(content=d.content, meta={"row": row}, embedding=ASKED.embed(d.content))
            assert d.id == stored.id
            assert d.meta["likeness"]["degraded"] is None
    assert len(retriever.run(query=ASKED.queries[0], top_k=2)["documents"]) == 2


def test_pipeline(url: str, store: QdrantDocumentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline of Haystack's retriever and the ranker, and of an embedder and the retriever, as YAML and back."""
    monkeypatch.setenv("OF_THIS_TEST", "secret")
    token = Secret.from_env_var("OF_THIS_TEST")
    pipeline = Pipeline()
    pipeline.add_component("embedder", Embedder())
    pipeline.add_component("first", QdrantEmbeddingRetriever(store, top_k=50))
    pipeline.add_component("ranker", LikenessRanker(url, "questions", top_k=5, token=token))
    pipeline.add_component("retriever", LikenessRetriever(url, "questions", top_k=5, embed=embed, token=token))
    pipeline.connect("embedder.embedding", "first.query_embedding")
    pipeline.connect("embedder.embedding", "ranker.query_embedding")
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    pipeline.connect("first.documents", "ranker.documents")
    text = pipeline.dumps()
    assert "secret" not in text
    again = Pipeline.loads(text, allowed_modules=["test_haystack", "likeness.haystack"])
    for p in (pipeline, again):
        for query in ASKED.queries:
            found = p.run({"embedder": {"text": query}}, include_outputs_from={"first"})
            first = [d.content for d in found["first"]["documents"]]
            assert [d.content for d in found["ranker"]["documents"]] == ASKED.best(query, 5, first)
            assert [d.content for d in found["retriever"]["documents"]] == ASKED.best(query, 5)


def test_ranker(url: str) -> None:
    query = ASKED.queries[1]
    found = LikenessRetriever(url, "questions", top_k=5, embed=embed).run(query=query)["documents"]
    ranker = LikenessRanker(url, "questions", embed=embed)
    assert [d.content for d in ranker.run(documents=found[::-1], query=query)["documents"]] == ASKED.best(query, 5)
    stranger = Document(content="elsewhere", score=9.0)
    kept = ranker.run(documents=[stranger, *found[:2]], query=query)["documents"]
    assert kept[-1] == stranger
    assert ranker.run(documents=[], query=query) == {"documents": []}
    with pytest.raises(likeness.NotFound, match="give item_id"):
        ranker.run(documents=[stranger], query=query)


def test_text(url: str) -> None:
    """A route with an embedder takes the words."""
    query = ASKED.queries[2]
    found = LikenessRetriever(url, "worded", top_k=3).run(query=query)["documents"]
    assert [d.content for d in found] == ASKED.best(query, 3)
    ranked = LikenessRanker(url, "worded").run(documents=found[::-1], query=query)["documents"]
    assert [d.content for d in ranked] == ASKED.best(query, 3)


def test_missing_text(url: str) -> None:
    retriever = LikenessRetriever(url, "questions", embed=embed, text_field="body")
    with pytest.raises(payloads.TextMissing, match="has the fields blob, content, id, meta"):
        retriever.run(query=ASKED.queries[0])
