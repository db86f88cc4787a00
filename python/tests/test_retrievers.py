"""Asks a real sidecar through the retrievers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest

import likeness
from likeness import retrievers


@pytest.fixture
def client(url: str, token: str) -> Iterator[likeness.Client]:
    with likeness.Client(url, token=token) as client:
        yield client


def test_retrievers(client: likeness.Client, questions: dict[str, np.ndarray]) -> None:
    text, vector = next(iter(questions.items()))
    best = str(client.search("intents", vector, 1).hits[0].id)

    langchain = retrievers.LangChainRetriever(client, "intents", questions.__getitem__, k=3)
    documents = langchain.invoke(text)
    assert len(documents) == 3
    assert documents[0].page_content
    assert documents[0].id == best
    assert documents[0].metadata["likeness"]["certificate"] == "exact"
    assert asyncio.run(langchain.ainvoke(text)) == documents

    nodes = retrievers.LlamaIndexRetriever(client, "intents", questions.__getitem__, k=2).retrieve(text)
    assert nodes[0].node.node_id == best
    assert nodes[0].node.get_content()

    haystack = retrievers.HaystackRetriever(client, "intents", questions.__getitem__)
    found = haystack.run(query=text, top_k=2)["documents"]
    assert found[0].id == best
    assert found[0].content
