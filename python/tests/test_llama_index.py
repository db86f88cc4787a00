"""Retrieves from, and reranks, a collection that llama-index-vector-stores-qdrant wrote."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import pytest
from conftest import Asked
from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer
from llama_index.core.schema import (
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage import StorageContext
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient

import likeness
from likeness import payloads
from likeness.llama_index import LikenessPostprocessor, LikenessRetriever


class Shipped(BaseEmbedding):
    """The vectors that a sentence model made of the questions."""

    asked: object

    def _get_query_embedding(self, query: str) -> list[float]:
        return self.asked.embed(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self.asked.embed(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self.asked.embed(text)


@pytest.fixture(scope="module")
def nodes(asked: Asked) -> list[TextNode]:
    nodes = []
    for row, text in enumerate(asked.texts):
        node = TextNode(text=text, metadata={"row": row}, id_=str(uuid.uuid5(uuid.NAMESPACE_OID, str(row))))
        node.excluded_embed_metadata_keys = ["row"]
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="banking77")
        nodes.append(node)
    return nodes


@pytest.fixture(scope="module")
def index(qdrant: str, asked: Asked, nodes: list[TextNode]) -> VectorStoreIndex:
    client = QdrantClient(qdrant, check_compatibility=False)
    store = QdrantVectorStore("llama_index", client=client)
    context = StorageContext.from_defaults(vector_store=store)
    return VectorStoreIndex(nodes, storage_context=context, embed_model=Shipped(asked=asked))


@pytest.fixture(scope="module")
def url(index: VectorStoreIndex, serve_collection: Callable[[str], str]) -> str:
    return serve_collection("llama_index")


def test_retriever(url: str, asked: Asked, nodes: list[TextNode]) -> None:
    with likeness.Client(url) as client:
        retriever = LikenessRetriever(client, "questions", embed=Shipped(asked=asked), similarity_top_k=4)
        for query in asked.queries:
            found = retriever.retrieve(query)
            assert [n.node.get_content() for n in found] == asked.best(query, 4)
            assert [n.score for n in found] == pytest.approx([asked.score(query, n.text) for n in found], abs=1e-4)
            for n in found:
                stored = nodes[n.metadata["row"]]
                assert (n.node.node_id, n.node.ref_doc_id) == (stored.node_id, "banking77")
                assert n.metadata["likeness"]["degraded"] is None
                assert "likeness" not in n.node.get_content(MetadataMode.LLM)
                assert "row" in n.node.get_content(MetadataMode.LLM)
                assert n.node.get_content(MetadataMode.EMBED) == n.text
        query = asked.queries[0]
        expected = retriever.retrieve(query)
        by_function = LikenessRetriever(client, "questions", embed=asked.embed, similarity_top_k=4)
        assert by_function.retrieve(query) == expected
        embedded = QueryBundle("never embedded", embedding=asked.embed(query))
        assert retriever.retrieve(embedded) == expected

        row = {"must": [{"key": "row", "match": {"value": 7}}]}
        filtered = LikenessRetriever(client, "questions", embed=asked.embed, filter=row)
        assert [n.text for n in filtered.retrieve(query)] == [asked.texts[7]]

        engine = RetrieverQueryEngine(
            retriever, get_response_synthesizer(response_mode=ResponseMode.COMPACT, llm=MockLLM())
        )
        assert [n.text for n in engine.query(query).source_nodes] == asked.best(query, 4)


def test_async(url: str, asked: Asked) -> None:
    async def ask() -> None:
        async with likeness.AsyncClient(url) as asking:
            with likeness.Client(url) as client:
                embed = Shipped(asked=asked)
                expected = LikenessRetriever(client, "questions", embed=embed).retrieve(asked.queries[0])
                native = LikenessRetriever(client, "questions", embed=embed, async_client=asking)
                assert await native.aretrieve(asked.queries[0]) == expected

    asyncio.run(ask())


def test_postprocessor(url: str, index: VectorStoreIndex, asked: Asked) -> None:
    query = asked.queries[1]
    found = index.as_retriever(similarity_top_k=50).retrieve(query)
    with likeness.Client(url) as client:
        postprocessor = LikenessPostprocessor(client=client, route="questions", embed=Shipped(asked=asked), top_n=5)
        best = postprocessor.postprocess_nodes(found, query_str=query)
        assert [n.text for n in best] == asked.best(query, 5, [n.text for n in found])
        assert [n.score for n in best] == pytest.approx([asked.score(query, n.text) for n in best], abs=1e-4)

        stranger = NodeWithScore(node=TextNode(text="x", id_="1b4e28ba-2fa1-11d2-883f-0016d3cca427"), score=9.0)
        kept = postprocessor.postprocess_nodes([stranger, *found[:2]], query_str=query)
        assert (kept[-1].node.node_id, kept[-1].score) == (stranger.node.node_id, 9.0)
        assert postprocessor.postprocess_nodes([], query_str=query) == []
        with pytest.raises(likeness.NotFound, match="give item_id"):
            postprocessor.postprocess_nodes([stranger], query_str=query)
        with pytest.raises(ValueError, match="query_bundle or query_str"):
            postprocessor.postprocess_nodes(found)


def test_text(url: str, asked: Asked) -> None:
    """A route with an embedder takes the words."""
    query = asked.queries[2]
    with likeness.Client(url) as client:
        found = LikenessRetriever(client, "worded", similarity_top_k=3).retrieve(query)
        assert [n.text for n in found] == asked.best(query, 3)
        postprocessor = LikenessPostprocessor(client=client, route="worded")
        best = postprocessor.postprocess_nodes(found[::-1], query_str=query)
        assert [n.text for n in best] == asked.best(query, 3)


def test_missing_text(url: str, asked: Asked) -> None:
    with likeness.Client(url) as client:
        retriever = LikenessRetriever(client, "questions", embed=asked.embed, text_field="body")
        with pytest.raises(payloads.TextMissing, match="has the fields _node_content, _node_type, doc_id"):
            retriever.retrieve(asked.queries[0])
