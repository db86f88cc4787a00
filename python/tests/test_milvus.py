"""Retrieves from, and reranks, collections that the Milvus integrations of LangChain, LlamaIndex and Haystack wrote."""

from __future__ import annotations

import os
from collections.abc import Callable

import haystack
import pymilvus
import pytest
from conftest import Asked
from langchain_core.documents import Document
from langchain_milvus import Milvus
from llama_index.core.schema import NodeRelationship, QueryBundle, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import VectorStoreQuery
from llama_index.vector_stores.milvus import MilvusVectorStore
from milvus_haystack import MilvusDocumentStore
from test_langchain import Shipped

import likeness
from likeness import langchain, llama_index, payloads
from likeness.haystack import LikenessRanker, LikenessRetriever

MILVUS = os.environ.get("MILVUS", "")
STORE = f'{{kind: milvus, address: "{MILVUS}"}}'


@pytest.fixture(scope="module")
def langchain_store(asked: Asked) -> Milvus:
    return Milvus.from_texts(
        asked.texts,
        Shipped(asked),
        [{"row": row} for row in range(len(asked.texts))],
        collection_name="langchain",
        connection_args={"uri": f"http://{MILVUS}"},
        index_params={"index_type": "AUTOINDEX", "metric_type": "COSINE"},
        auto_id=True,
        drop_old=True,
    )


@pytest.fixture(scope="module")
def langchain_url(langchain_store: Milvus, serve_collection: Callable[..., str]) -> str:
    return serve_collection("langchain", STORE, "vector: vector")


def test_langchain(langchain_url: str, langchain_store: Milvus, asked: Asked) -> None:
    query = asked.queries[0]
    with likeness.Client(langchain_url) as client:
        retriever = langchain.LikenessRetriever(client=client, route="questions", embed=Shipped(asked), k=4)
        for each in asked.queries:
            documents = retriever.invoke(each)
            assert [d.page_content for d in documents] == asked.best(each, 4)
            assert [asked.texts[d.metadata["row"]] for d in documents] == [d.page_content for d in documents]
        filtered = retriever.invoke(query, filter="row == 7")
        assert [d.page_content for d in filtered] == [asked.texts[7]]
        found = langchain_store.similarity_search(query, k=50)
        reranker = langchain.LikenessReranker(client=client, route="questions", embed=Shipped(asked), top_n=5)
        best = reranker.compress_documents(found, query)
        assert [d.page_content for d in best] == asked.best(query, 5, [d.page_content for d in found])
        assert [d.page_content for d in reranker.compress_documents(documents[::-1], asked.queries[-1])] == [
            d.page_content for d in documents
        ]
        with pytest.raises(likeness.NotFound, match="give item_id"):
            reranker.compress_documents([Document(page_content="elsewhere", metadata={"pk": 2**40})], query)
        worded = langchain.LikenessRetriever(client=client, route="worded", k=3)
        assert [d.page_content for d in worded.invoke(query)] == asked.best(query, 3)
        other = langchain.LikenessRetriever(client=client, route="worded", text_field="body")
        with pytest.raises(payloads.TextMissing, match=r"has the fields .*row, text.*: name the one"):
            other.invoke(query)


def test_model_ranker(langchain_url: str, langchain_store: Milvus, asked: Asked) -> None:
    """Milvus's own model ranker asks the rerank API as it asks Cohere, with the texts of a field."""
    ranker = pymilvus.Function(
        name="likeness",
        input_field_names=["text"],
        function_type=pymilvus.FunctionType.RERANK,
        params={
            "reranker": "model",
            "provider": "cohere",
            "model_name": "worded",
            "queries": [asked.queries[0]],
            "api_key": "none",
            "base_url": langchain_url + "/v2",
        },
    )
    client = pymilvus.MilvusClient(f"http://{MILVUS}")
    [ranked] = client.search(
        "langchain",
        data=[asked.embed(asked.queries[0])],
        anns_field="vector",
        limit=len(asked.texts),
        output_fields=["text"],
        ranker=ranker,
    )
    assert [hit["entity"]["text"] for hit in ranked[:20]] == asked.best(asked.queries[0], 20)


@pytest.fixture(scope="module")
def llama_index_store(asked: Asked) -> MilvusVectorStore:
    store = MilvusVectorStore(
        uri=f"http://{MILVUS}", dim=384, collection_name="llama_index", overwrite=True, similarity_metric="COSINE"
    )
    nodes = []
    for row, text in enumerate(asked.texts):
        node = TextNode(text=text, id_=f"node-{row}", metadata={"row": row}, embedding=asked.embed(text))
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="banking77")
        nodes.append(node)
    store.add(nodes)
    return store


@pytest.fixture(scope="module")
def llama_index_url(llama_index_store: MilvusVectorStore, serve_collection: Callable[..., str]) -> str:
    return serve_collection("llama_index", STORE, "vector: embedding")


def test_llama_index(llama_index_url: str, llama_index_store: MilvusVectorStore, asked: Asked) -> None:
    query = asked.queries[1]
    with likeness.Client(llama_index_url) as client:
        retriever = llama_index.LikenessRetriever(client, "questions", embed=asked.embed, similarity_top_k=4)
        for each in asked.queries:
            nodes = retriever.retrieve(each)
            assert [n.node.get_content() for n in nodes] == asked.best(each, 4)
            for n in nodes:
                assert n.node.node_id == f"node-{n.node.metadata['row']}"
                assert asked.texts[n.node.metadata["row"]] == n.node.get_content()
                assert n.node.ref_doc_id == "banking77"
        hit = client.search("questions", asked.embed(query), 1).hits[0]
        assert payloads.read(hit).text == asked.best(query, 1)[0]
        found = llama_index_store.query(VectorStoreQuery(query_embedding=asked.embed(query), similarity_top_k=50)).nodes
        postprocessor = llama_index.LikenessPostprocessor(client=client, route="questions", embed=asked.embed, top_n=5)
        scored = [llama_index.NodeWithScore(node=n) for n in found]
        best = postprocessor.postprocess_nodes(scored, QueryBundle(query))
        assert [n.node.get_content() for n in best] == asked.best(query, 5, [n.get_content() for n in found])


@pytest.fixture(scope="module")
def haystack_store(asked: Asked) -> MilvusDocumentStore:
    store = MilvusDocumentStore(
        connection_args={"uri": f"http://{MILVUS}"},
        collection_name="haystack",
        index_params={"index_type": "AUTOINDEX", "metric_type": "COSINE"},
        drop_old=True,
    )
    store.write_documents(
        haystack.Document(content=text, meta={"row": row}, embedding=asked.embed(text))
        for row, text in enumerate(asked.texts)
    )
    return store


@pytest.fixture(scope="module")
def haystack_url(haystack_store: MilvusDocumentStore, serve_collection: Callable[..., str]) -> str:
    return serve_collection("haystack", STORE, "vector: vector")


def own_id(document: haystack.Document) -> str:
    return document.id


def test_haystack(haystack_url: str, haystack_store: MilvusDocumentStore, asked: Asked) -> None:
    query = asked.queries[2]
    retriever = LikenessRetriever(haystack_url, "questions", top_k=4, embed=asked.embed)
    for each in asked.queries:
        documents = retriever.run(query=each)["documents"]
        assert [d.content for d in documents] == asked.best(each, 4)
        assert [asked.texts[d.meta["row"]] for d in documents] == [d.content for d in documents]
    ranker = LikenessRanker(haystack_url, "questions", embed=asked.embed)
    assert ranker.run(query=query, documents=documents[::-1])["documents"][0].content == documents[0].content
    stored = haystack_store.filter_documents({"field": "meta.row", "operator": "<", "value": 50})
    assert len(stored) == 50
    with pytest.raises(likeness.NotFound, match="give item_id"):
        ranker.run(query=query, documents=stored)
    ranker = LikenessRanker(haystack_url, "questions", top_k=5, embed=asked.embed, item_id=own_id)
    best = ranker.run(query=query, documents=stored)["documents"]
    assert [d.content for d in best] == asked.best(query, 5, asked.texts[:50])
