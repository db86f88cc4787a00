"""A retriever and a ranker for Haystack: ``pip install likeness[haystack]``."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from haystack import component, default_from_dict, default_to_dict
from haystack.dataclasses import Document
from haystack.utils import Secret, deserialize_callable, deserialize_secrets_inplace, serialize_callable

from . import payloads
from .client import Client
from .payloads import Embed
from .types import Answer, Hit, Id, Vector

# qdrant-haystack makes the id of a point from the id of a document, in this namespace.
_NAMESPACE = uuid.UUID("3896d314-1e95-4a3a-b45a-945f9f0b541d")


@component
class LikenessRetriever:
    """Retrieves documents from a route. Documents that Haystack stored come back with their ids and metadata.

    A document's ``meta["likeness"]`` has id, score, certificate, degraded and model_version.

    Args:
        url: The sidecar's ``listen.rest``.
        route: Name of the route.
        top_k: How many documents are wanted.
        embed: Makes the query's vector. Without it, and without ``query_embedding`` of an embedder before, the text is
            sent, for a route with an embedder.
        send_text: Send the text beside the vector, for a route whose ranker reads it.
        text_field: The payload's field with the text; see `likeness.payloads.read`.
        token: The bearer token.
        timeout: Seconds for a call.
        search: Further arguments of `Client.search`, such as ``filter``.
    """

    def __init__(
        self,
        url: str,
        route: str,
        top_k: int = 10,
        embed: Embed | None = None,
        send_text: bool = False,
        text_field: str | None = None,
        token: Secret | None = None,
        timeout: float = 10.0,
        search: dict[str, Any] | None = None,
    ) -> None:
        self.url = url
        self.route = route
        self.top_k = top_k
        self.embed = embed
        self.send_text = send_text
        self.text_field = text_field
        self.token = token
        self.timeout = timeout
        self.search = search
        self._client = Client(url, token=token.resolve_value() if token else None, timeout=timeout)

    def to_dict(self) -> dict[str, Any]:
        """Serialises the component, with the names of its function and of the variable that holds the token."""
        return default_to_dict(
            self,
            url=self.url,
            route=self.route,
            top_k=self.top_k,
            embed=_name(self.embed),
            send_text=self.send_text,
            text_field=self.text_field,
            token=self.token.to_dict() if self.token else None,
            timeout=self.timeout,
            search=self.search,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LikenessRetriever:
        """Makes a component of what `to_dict` returned."""
        retriever: LikenessRetriever = default_from_dict(cls, _named(data, "embed"))
        return retriever

    @component.output_types(documents=list[Document])
    def run(
        self, query: str = "", query_embedding: list[float] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Returns the documents that are best for a query, in words, as a vector, or both."""
        vector = _vector(self.embed, query, query_embedding)
        text = payloads.words(query, vector, self.send_text)
        arguments: dict[str, Any] = {"k": top_k or self.top_k, "text": text} | (self.search or {})
        answer = self._client.search(self.route, vector, **arguments)
        return {"documents": [self._document(hit, answer) for hit in answer.hits]}

    def _document(self, hit: Hit, answer: Answer) -> Document:
        content = payloads.read(hit, self.text_field)
        meta = content.metadata | {"likeness": payloads.provenance(hit, answer)}
        return Document(id=content.document_id or str(hit.id), content=content.text, meta=meta, score=hit.score)


@component
class LikenessRanker:
    """Orders the documents of another retriever by a route's similarity, from the vectors that the collection has.

    Documents that the collection does not have come last, with the score that they had.

    Args:
        url: The sidecar's ``listen.rest``.
        route: Name of the route.
        top_k: How many documents are kept; None keeps all.
        embed: Makes the query's vector, as in `LikenessRetriever`.
        item_id: Returns the id of a document's item. Without it that is the id that qdrant-haystack gives the point;
            milvus-haystack takes the document's own, ``document.id``.
        token: The bearer token.
        timeout: Seconds for a call.
    """

    def __init__(
        self,
        url: str,
        route: str,
        top_k: int | None = None,
        embed: Embed | None = None,
        item_id: Callable[[Document], Id] | None = None,
        token: Secret | None = None,
        timeout: float = 10.0,
    ) -> None:
        self.url = url
        self.route = route
        self.top_k = top_k
        self.embed = embed
        self.item_id = item_id
        self.token = token
        self.timeout = timeout
        self._client = Client(url, token=token.resolve_value() if token else None, timeout=timeout)

    def to_dict(self) -> dict[str, Any]:
        """Serialises the component, with the names of its functions and of the variable that holds the token."""
        return default_to_dict(
            self,
            url=self.url,
            route=self.route,
            top_k=self.top_k,
            embed=_name(self.embed),
            item_id=_name(self.item_id),
            token=self.token.to_dict() if self.token else None,
            timeout=self.timeout,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LikenessRanker:
        """Makes a component of what `to_dict` returned."""
        ranker: LikenessRanker = default_from_dict(cls, _named(data, "embed", "item_id"))
        return ranker

    @component.output_types(documents=list[Document])
    def run(
        self,
        documents: list[Document],
        query: str = "",
        query_embedding: list[float] | None = None,
        top_k: int | None = None,
    ) -> dict[str, list[Document]]:
        """Returns the best of the documents for a query, best first."""
        if not documents:
            return {"documents": []}
        ids = [(self.item_id or _item_id)(d) for d in documents]
        vector = _vector(self.embed, query, query_embedding)
        scores = self._client.score(self.route, vector, ids, text=payloads.words(query, vector, send_text=False))
        best = payloads.best_first(self.route, documents, ids, scores)[: top_k or self.top_k]
        return {"documents": [_scored(document, score) for document, score in best]}


def _vector(embed: Embed | None, query: str, query_embedding: list[float] | None) -> Vector | None:
    if query_embedding is not None or embed is None:
        return query_embedding
    return embed(query)


def _item_id(document: Document) -> Id:
    found: Id | None = document.meta.get("likeness", {}).get("id")
    return str(uuid.uuid5(_NAMESPACE, document.id)) if found is None else found


def _scored(document: Document, score: float | None) -> Document:
    if score is None:
        return document
    return Document.from_dict(document.to_dict(flatten=False) | {"score": score})


def _name(function: Callable[..., Any] | None) -> str | None:
    return serialize_callable(function) if function else None


def _named(data: dict[str, Any], *functions: str) -> dict[str, Any]:
    """Replaces the names in a serialised component by the functions and the secret that they name."""
    parameters = data["init_parameters"]
    deserialize_secrets_inplace(parameters, keys=["token"])
    for function in functions:
        if parameters.get(function):
            parameters[function] = deserialize_callable(parameters[function])
    return data
