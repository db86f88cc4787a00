"""A retriever and a document compressor for LangChain: ``pip install likeness[langchain]``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field

from . import payloads
from .client import AsyncClient, Client
from .payloads import Embed
from .types import Answer, Id, Vector


class LikenessRetriever(BaseRetriever):
    """Retrieves documents from a route.

    A document's metadata are the payload's, with ``_id``, the id of the item as langchain-qdrant has it, and
    ``likeness``: id, score, certificate, degraded and model_version.

    Attributes:
        client: The client that is asked.
        route: Name of the route.
        embed: Makes the query's vector: `Embeddings`, or a function. Without it the text is sent, for a route with an
            embedder.
        send_text: Send the text beside the vector, for a route whose ranker reads it.
        k: How many documents are wanted.
        text_field: The payload's field with the text; see `likeness.payloads.read`.
        async_client: Asked by ``ainvoke``. Without it ``ainvoke`` runs in a thread.
        search_kwargs: Further arguments of `Client.search`, such as ``filter``. Arguments of ``invoke`` come first.

    Example:
        >>> retriever = LikenessRetriever(client=client, route="products", embed=OpenAIEmbeddings())
        >>> retriever.invoke("a warm jacket for rain", k=5)
    """

    client: Client
    route: str
    embed: Embeddings | Embed | None = None
    send_text: bool = False
    k: int = 10
    text_field: str | None = None
    async_client: AsyncClient | None = None
    search_kwargs: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        vector = embed_query(self.embed, query)
        return self._documents(self.client.search(self.route, vector, **self._arguments(query, vector, kwargs)))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        if self.async_client is None:
            return await super()._aget_relevant_documents(query, run_manager=run_manager, **kwargs)
        vector = await aembed_query(self.embed, query)
        arguments = self._arguments(query, vector, kwargs)
        return self._documents(await self.async_client.search(self.route, vector, **arguments))

    def _arguments(self, query: str, vector: Vector | None, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {"k": self.k, "text": payloads.words(query, vector, self.send_text)} | self.search_kwargs | kwargs

    def _documents(self, answer: Answer) -> list[Document]:
        documents = []
        for hit in answer.hits:
            content = payloads.read(hit, self.text_field)
            metadata = content.metadata | {"_id": hit.id, "likeness": payloads.provenance(hit, answer)}
            documents.append(Document(page_content=content.text, metadata=metadata, id=str(hit.id)))
        return documents


class LikenessReranker(BaseDocumentCompressor):
    """Orders the documents of another retriever by a route's similarity, from the vectors that the collection has.

    A document's metadata get ``relevance_score``. Documents that the collection does not have come last, without one.

    Attributes:
        client: The client that is asked.
        route: Name of the route.
        embed: Makes the query's vector, as in `LikenessRetriever`.
        top_n: How many documents are kept; None keeps all.
        item_id: Returns the id of a document's item. Without it, that is ``metadata["_id"]``, which langchain-qdrant
            writes, the document's own id, or ``metadata["pk"]``, which langchain-milvus writes.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    client: Client
    route: str
    embed: Embeddings | Embed | None = None
    top_n: int | None = None
    item_id: Callable[[Document], Id] | None = None

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Returns the best of the documents, best first."""
        if not documents:
            return []
        ids = [(self.item_id or _item_id)(d) for d in documents]
        vector = embed_query(self.embed, query)
        scores = self.client.score(self.route, vector, ids, text=payloads.words(query, vector, send_text=False))
        best = payloads.best_first(self.route, documents, ids, scores)[: self.top_n]
        return [_scored(document, score) for document, score in best]


def embed_query(embed: Embeddings | Embed | None, query: str) -> Vector | None:
    """Returns the query's vector, or None if there is nothing to make it."""
    if embed is None:
        return None
    return embed.embed_query(query) if isinstance(embed, Embeddings) else embed(query)


async def aembed_query(embed: Embeddings | Embed | None, query: str) -> Vector | None:
    """Returns the query's vector as `embed_query` does, without blocking where ``embed`` can."""
    if isinstance(embed, Embeddings):
        return await embed.aembed_query(query)
    return embed_query(embed, query)


def _item_id(document: Document) -> Id:
    found: Id | None = document.metadata.get("_id", document.id)
    if found is None:
        found = document.metadata.get("pk")
    if found is None:
        fields = ", ".join(sorted(document.metadata)) or "nothing"
        raise ValueError(f"a document has neither metadata['_id'] nor an id; its metadata have {fields}: give item_id")
    return found


def _scored(document: Document, score: float | None) -> Document:
    if score is None:
        return document
    return document.model_copy(update={"metadata": document.metadata | {"relevance_score": score}})
