"""Retrievers in the forms of LangChain, LlamaIndex and Haystack, which need none of them.

Each takes a client, a route and a function that makes the query vector of a text, and returns documents of its
framework: give the framework's own classes as document (and node), or use the plain ones of this module, which have
the same attributes.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .client import Client
from .types import Answer, Hit

Embed = Callable[[str], Sequence[float]]


@dataclass
class Document:
    """A document as LangChain (page_content, metadata) and Haystack (content, meta, score) name its parts."""

    page_content: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str | None = None
    score: float | None = None

    @property
    def content(self) -> str:
        return self.page_content

    @property
    def meta(self) -> dict[str, Any]:
        return self.metadata


@dataclass
class TextNode:
    """A node of LlamaIndex."""

    text: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    id_: str = ""

    @property
    def node_id(self) -> str:
        return self.id_

    def get_content(self, metadata_mode: Any = None) -> str:
        return self.text


@dataclass
class NodeWithScore:
    """A node and its score."""

    node: Any
    score: float | None = None


class _Retriever:
    """What the three have in common. text_field is the payload's field with the text; arguments are search's."""

    def __init__(
        self, client: Client, route: str, embed: Embed, *, text_field: str = "text", k: int = 10, **arguments: Any
    ) -> None:
        self._client, self._route, self._embed = client, route, embed
        self.text_field, self.k, self._arguments = text_field, k, arguments

    def search(self, query: str, k: int | None = None, **arguments: Any) -> Answer:
        """The answer as it is, with its certificate."""
        return self._client.search(self._route, self._embed(query), k or self.k, **(self._arguments | arguments))

    def _text(self, hit: Hit) -> str:
        return str((hit.payload or {}).get(self.text_field, ""))

    def _metadata(self, hit: Hit, answer: Answer) -> dict[str, Any]:
        """The payload without the text, and what says how far to trust the order."""
        rest = {k: v for k, v in (hit.payload or {}).items() if k != self.text_field}
        told = {
            "score": hit.score,
            "certificate": answer.certificate.status,
            "degraded": answer.degraded,
            "model_version": answer.model_version,
        }
        return rest | {"likeness": told}


class LangChainRetriever(_Retriever):
    """In the form of LangChain's BaseRetriever. It is a function too, so that RunnableLambda and | take it."""

    def __init__(self, *args: Any, document: Callable[..., Any] = Document, **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        self._document = document

    def invoke(self, input: str, config: Any = None, **arguments: Any) -> list[Any]:
        answer = self.search(input, **arguments)
        return [
            self._document(page_content=self._text(h), metadata=self._metadata(h, answer), id=str(h.id))
            for h in answer.hits
        ]

    async def ainvoke(self, input: str, config: Any = None, **arguments: Any) -> list[Any]:
        return await asyncio.to_thread(self.invoke, input, config, **arguments)

    def batch(self, inputs: list[str], config: Any = None, **arguments: Any) -> list[list[Any]]:
        return [self.invoke(i, config, **arguments) for i in inputs]

    def __call__(self, input: str) -> list[Any]:
        return self.invoke(input)


class LlamaIndexRetriever(_Retriever):
    """In the form of LlamaIndex's BaseRetriever: a text or a QueryBundle, with its embedding if it has one."""

    def __init__(
        self,
        *args: Any,
        node: Callable[..., Any] = TextNode,
        document: Callable[..., Any] = NodeWithScore,
        **arguments: Any,
    ) -> None:
        super().__init__(*args, **arguments)
        self._node, self._document = node, document

    def retrieve(self, str_or_query_bundle: Any) -> list[Any]:
        bundle = str_or_query_bundle
        if isinstance(bundle, str):
            answer = self.search(bundle)
        elif getattr(bundle, "embedding", None) is not None:
            answer = self._client.search(self._route, bundle.embedding, self.k, **self._arguments)
        else:
            answer = self.search(bundle.query_str)
        return [
            self._document(
                node=self._node(text=self._text(h), metadata=self._metadata(h, answer), id_=str(h.id)), score=h.score
            )
            for h in answer.hits
        ]

    async def aretrieve(self, str_or_query_bundle: Any) -> list[Any]:
        return await asyncio.to_thread(self.retrieve, str_or_query_bundle)


class HaystackRetriever(_Retriever):
    """In the form of a component of Haystack 2: haystack.component makes one of it."""

    def __init__(self, *args: Any, document: Callable[..., Any] | None = None, **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        self._document = document

    def run(self, query: str, top_k: int | None = None) -> dict[str, list[Any]]:
        answer = self.search(query, top_k)
        return {"documents": [self._make(h, answer) for h in answer.hits]}

    def _make(self, hit: Hit, answer: Answer) -> Any:
        if self._document is None:
            return Document(self._text(hit), self._metadata(hit, answer), str(hit.id), hit.score)
        return self._document(
            content=self._text(hit), meta=self._metadata(hit, answer), id=str(hit.id), score=hit.score
        )
