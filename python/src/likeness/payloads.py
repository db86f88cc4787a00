"""Finds the text of a payload, in the layouts that the frameworks' own integrations of Qdrant and Milvus write."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from .errors import NotFound
from .types import Answer, Hit, Id, Vector

Embed = Callable[[str], Vector]
"""Makes the query vector of a text, with the model that made the items' vectors."""

T = TypeVar("T")


def words(query: str, vector: Vector | None, send_text: bool) -> str:
    """Returns the text to send: the query if it is needed in place of a vector or beside it, otherwise none."""
    return query if vector is None or send_text else ""


class TextMissing(ValueError):
    """A payload has no text where it was looked for. ``fields`` are the fields that it has."""

    def __init__(self, hit: Hit, looked_for: str) -> None:
        self.fields = sorted(hit.payload or {})
        if hit.payload is None:
            has = "came without its payload: leave payload=True"
        elif not self.fields:
            has = "has an empty payload"
        else:
            has = f"has the fields {', '.join(self.fields)}: name the one with the text, as text_field"
        super().__init__(f"the payload of item {hit.id!r} has no {looked_for}; it {has}")


@dataclass(frozen=True)
class Content:
    """What a payload holds.

    Attributes:
        text: The text.
        metadata: The other fields, as the framework that wrote them had them.
        document_id: The framework's own id of the document, where the payload has one.
    """

    text: str
    metadata: dict[str, Any]
    document_id: str | None = None


def read(hit: Hit, text_field: str | None = None) -> Content:
    """Reads the payload of a hit.

    Args:
        hit: A hit with its payload.
        text_field: The field with the text; all others are metadata. Without it the payload is looked at:
            ``page_content`` and ``metadata`` are of langchain-qdrant, ``_node_content`` is of LlamaIndex, where Milvus
            has the text itself in ``text``, ``content`` and ``meta`` are of qdrant-haystack, and ``text`` is
            langchain-milvus's, milvus-haystack's or anybody's.

    Raises:
        TextMissing: The payload has no text there.
    """
    payload = hit.payload or {}
    if text_field is not None:
        return _flat(hit, payload, text_field)
    if "_node_content" in payload:
        return _llama_index(hit, payload)
    if "page_content" in payload:
        text = _text(hit, payload, "page_content")
        return Content(text, _mapping(payload.get("metadata")))
    if "content" in payload and "meta" in payload:
        return Content(_text(hit, payload, "content"), _mapping(payload["meta"]), payload.get("id"))
    if "text" in payload:
        return _flat(hit, payload, "text")
    raise TextMissing(hit, "text: it has neither page_content, _node_content, content with meta, nor text")


def _flat(hit: Hit, payload: Mapping[str, Any], text_field: str) -> Content:
    return Content(_text(hit, payload, text_field), {k: v for k, v in payload.items() if k != text_field})


def _llama_index(hit: Hit, payload: Mapping[str, Any]) -> Content:
    node = json.loads(payload["_node_content"])
    text = text_beside_node(payload) or _node_text(node)
    if not isinstance(text, str):
        raise TextMissing(hit, "text in _node_content")
    return Content(text, _mapping(node.get("metadata")), node.get("id_"))


def text_beside_node(payload: Mapping[str, Any]) -> str | None:
    """Returns the text of a LlamaIndex node that is stored beside the node, as in Milvus, or None."""
    text = payload.get("text")
    return text if isinstance(text, str) and not _node_text(json.loads(payload["_node_content"])) else None


def _node_text(node: Mapping[str, Any]) -> Any:
    return node.get("text", (node.get("text_resource") or {}).get("text"))


def _text(hit: Hit, payload: Mapping[str, Any], text_field: str) -> str:
    text = payload.get(text_field)
    if not isinstance(text, str):
        raise TextMissing(hit, f"text in {text_field!r}")
    return text


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def provenance(hit: Hit, answer: Answer) -> dict[str, Any]:
    """Returns what a document says of its rank: id, score, and how far to trust the order."""
    return {
        "id": hit.id,
        "score": hit.score,
        "certificate": answer.certificate.status,
        "degraded": answer.degraded,
        "model_version": answer.model_version,
    }


def best_first(
    route: str, documents: Sequence[T], ids: Sequence[Id], scores: Sequence[float]
) -> list[tuple[T, float | None]]:
    """Orders documents by score. Those that the collection does not have, whose score is NaN, come last, with None.

    Raises:
        NotFound: The collection has none of them.
    """
    unknown = np.isnan(scores)
    if unknown.all():
        shown = ", ".join(repr(i) for i in ids[:3])
        raise NotFound(
            f"the collection of route {route!r} has none of the {len(ids)} documents, whose ids are {shown}…: "
            "give item_id, a function that returns the id of a document's item"
        )
    order = np.lexsort((-np.asarray(scores), unknown))
    return [(documents[i], None if unknown[i] else scores[i]) for i in order]
