"""Retrieves from, and reranks, a collection that langchain-qdrant wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from conftest import Asked
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_qdrant import QdrantVectorStore
from qdrant_client import QdrantClient

import likeness
from likeness import payloads
from likeness.langchain import LikenessReranker, LikenessRetriever


class Shipped(Embeddings):
    """The vectors that a sentence model made of the questions."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.asked.embed(t) for t in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.asked.embed(text)


@pytest.fixture(scope="module")
def store(qdrant: str, asked: Asked) -> QdrantVectorStore:
    metadatas = [{"row": row} for row in range(len(asked.texts))]
    return QdrantVectorStore.from_texts(
        asked.texts, Shipped(asked), metadatas, url=qdrant, collection_name="langchain", check_compatibility=False
    )


@pytest.fixture(scope="module")
def url(store: QdrantVectorStore, serve_collection: Callable[[str], str]) -> str:
    return serve_collection("langchain")


def test_retriever(url: str, store: QdrantVectorStore, asked: Asked) -> None:
    with likeness.Client(url) as client:
        retriever = LikenessRetriever(client=client, route="questions", embed=Shipped(asked), k=4)
        for query in asked.queries:
            documents = retriever.invoke(query)
            assert [d.page_content for d in documents] == asked.best(query, 4)
            for d in documents:
                assert d.metadata["row"] == asked.texts.index(d.page_content)
                assert d.metadata["likeness"]["score"] == pytest.approx(asked.score(query, d.page_content), abs=1e-4)
                assert d.metadata["likeness"]["degraded"] is None
                assert store.get_by_ids([d.metadata["_id"]])[0].page_content == d.page_content
        query = asked.queries[0]
        assert len(retriever.invoke(query, k=2)) == 2
        by_function = LikenessRetriever(client=client, route="questions", embed=asked.embed, k=4)
        assert by_function.invoke(query) == retriever.invoke(query)
        row = {"must": [{"key": "metadata.row", "match": {"value": 7}}]}
        assert [d.page_content for d in retriever.invoke(query, filter=row)] == [asked.texts[7]]
        chain = retriever | (lambda documents: documents[0].page_content)
        assert chain.batch(asked.queries) == [asked.best(q, 1)[0] for q in asked.queries]


def test_async(url: str, asked: Asked) -> None:
    async def ask() -> None:
        async with likeness.AsyncClient(url) as asking:
            with likeness.Client(url) as client:
                alone = LikenessRetriever(client=client, route="questions", embed=Shipped(asked))
                native = alone.model_copy(update={"async_client": asking})
                expected = alone.invoke(asked.queries[0])
                assert await native.ainvoke(asked.queries[0]) == expected
                assert await alone.ainvoke(asked.queries[0]) == expected

    asyncio.run(ask())


def test_reranker(url: str, store: QdrantVectorStore, asked: Asked) -> None:
    query = asked.queries[1]
    found = store.similarity_search(query, k=50)
    with likeness.Client(url) as client:
        reranker = LikenessReranker(client=client, route="questions", embed=Shipped(asked), top_n=5)
        best = reranker.compress_documents(found, query)
        assert [d.page_content for d in best] == asked.best(query, 5, [d.page_content for d in found])
        for d in best:
            assert d.metadata["relevance_score"] == pytest.approx(asked.score(query, d.page_content), abs=1e-4)
        retrieved = LikenessRetriever(client=client, route="questions", embed=Shipped(asked), k=5).invoke(query)
        assert [d.page_content for d in reranker.compress_documents(retrieved[::-1], query)] == asked.best(query, 5)

        stranger = Document(page_content="elsewhere", id="1b4e28ba-2fa1-11d2-883f-0016d3cca427")
        kept = reranker.compress_documents([stranger, *found[:2]], query)
        assert kept[-1] == stranger
        assert reranker.compress_documents([], query) == []
        with pytest.raises(likeness.NotFound, match="give item_id"):
            reranker.compress_documents([stranger], query)
        with pytest.raises(ValueError, match=r"metadata have a, b: give item_id"):
            reranker.compress_documents([Document(page_content="x", metadata={"a": 1, "b": 2})], query)


def test_text(url: str, store: QdrantVectorStore, asked: Asked) -> None:
    """A route with an embedder takes the words."""
    query = asked.queries[2]
    with likeness.Client(url) as client:
        answer = client.search("worded", text=query, k=3)
        assert [payloads.read(h).text for h in answer.hits] == asked.best(query, 3)
        assert answer.timings["embed"] >= 0
        documents = LikenessRetriever(client=client, route="worded", k=3).invoke(query)
        assert [d.page_content for d in documents] == asked.best(query, 3)
        reranker = LikenessReranker(client=client, route="worded")
        assert [d.page_content for d in reranker.compress_documents(documents[::-1], query)] == asked.best(query, 3)
        with pytest.raises(likeness.Invalid, match="no embedder"):
            LikenessRetriever(client=client, route="questions").invoke(query)


def test_missing_text(url: str, store: QdrantVectorStore, qdrant: str, asked: Asked) -> None:
    """A collection of another layout is refused by the names of its fields, and not answered with empty documents."""
    with likeness.Client(url) as client:
        retriever = LikenessRetriever(client=client, route="questions", embed=asked.embed, k=1, text_field="body")
        with pytest.raises(payloads.TextMissing, match="has the fields metadata, page_content: name the one") as caught:
            retriever.invoke(asked.queries[0])
        assert caught.value.fields == ["metadata", "page_content"]
        retriever = LikenessRetriever(client=client, route="questions", embed=asked.embed, k=1)
        with pytest.raises(payloads.TextMissing, match="payload=True"):
            retriever.invoke(asked.queries[0], payload=False)
        best = asked.best(asked.queries[0], 1)[0]
        point = retriever.invoke(asked.queries[0])[0].metadata["_id"]
        admin = QdrantClient(qdrant, check_compatibility=False)
        admin.overwrite_payload("langchain", {"titel": best, "sku": 7}, points=[point], wait=True)
        with pytest.raises(payloads.TextMissing, match="sku, titel"):
            retriever.invoke(asked.queries[0])
        admin.overwrite_payload("langchain", {"page_content": best, "metadata": None}, points=[point], wait=True)
        assert retriever.invoke(asked.queries[0])[0].page_content == best
