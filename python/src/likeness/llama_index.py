"""A retriever and a node postprocessor for LlamaIndex: ``pip install likeness[llama-index]``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field
from llama_index.core.callbacks import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node

from . import payloads
from .client import AsyncClient, Client
from .payloads import Embed
from .types import Answer, Hit, Id, Vector

PROVENANCE = "likeness"
"""The metadata of a node that say id, score, certificate, degraded and model_version. They are kept from prompts."""


class LikenessRetriever(BaseRetriever):
    """Retrieves nodes from a route. Nodes that LlamaIndex stored come back whole, with their relationships.

    Args:
        client: The client that is asked.
        route: Name of the route.
        embed: Makes the query's vector: a `BaseEmbedding`, or a function. Without it the text is sent, for a route with
            an embedder. A query bundle's own embedding comes first.
        send_text: Send the text beside the vector, for a route whose ranker reads it.
        similarity_top_k: How many nodes are wanted.
        text_field: The payload's field with the text; see `likeness.payloads.read`.
        async_client: Asked by ``aretrieve``. Without it ``aretrieve`` blocks, as `BaseRetriever`'s does.
        callback_manager: As of `BaseRetriever`.
        search: Further arguments of `Client.search`, such as ``filter``.
    """

    def __init__(
        self,
        client: Client,
        route: str,
        *,
        embed: BaseEmbedding | Embed | None = None,
        send_text: bool = False,
        similarity_top_k: int = 10,
        text_field: str | None = None,
        async_client: AsyncClient | None = None,
        callback_manager: CallbackManager | None = None,
        **search: Any,
    ) -> None:
        super().__init__(callback_manager=callback_manager)
        self._client = client
        self._route = route
        self._embed = embed
        self._send_text = send_text
        self._similarity_top_k = similarity_top_k
        self._text_field = text_field
        self._async_client = async_client
        self._search = search

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        vector = embed_query(self._embed, query_bundle)
        return self._nodes(self._client.search(self._route, vector, **self._arguments(query_bundle, vector)))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self._async_client is None:
            return self._retrieve(query_bundle)
        vector = await aembed_query(self._embed, query_bundle)
        arguments = self._arguments(query_bundle, vector)
        return self._nodes(await self._async_client.search(self._route, vector, **arguments))

    def _arguments(self, query: QueryBundle, vector: Vector | None) -> dict[str, Any]:
        text = payloads.words(query.query_str, vector, self._send_text)
        return {"k": self._similarity_top_k, "text": text} | self._search

    def _nodes(self, answer: Answer) -> list[NodeWithScore]:
        return [NodeWithScore(node=self._node(hit, answer), score=hit.score) for hit in answer.hits]

    def _node(self, hit: Hit, answer: Answer) -> BaseNode:
        payload = dict(hit.payload or {})
        if self._text_field is None and "_node_content" in payload:
            node = metadata_dict_to_node(payload, text=payloads.text_beside_node(payload))
        else:
            content = payloads.read(hit, self._text_field)
            node = TextNode(text=content.text, metadata=content.metadata, id_=str(hit.id))
        node.metadata[PROVENANCE] = payloads.provenance(hit, answer)
        node.excluded_llm_metadata_keys = [*node.excluded_llm_metadata_keys, PROVENANCE]
        node.excluded_embed_metadata_keys = [*node.excluded_embed_metadata_keys, PROVENANCE]
        return node


class LikenessPostprocessor(BaseNodePostprocessor):
    """Orders the nodes of another retriever by a route's similarity, from the vectors that the collection has.

    Nodes that the collection does not have come last, with the score that they had.

    Attributes:
        client: The client that is asked.
        route: Name of the route.
        embed: Makes the query's vector, as in `LikenessRetriever`.
        top_n: How many nodes are kept; None keeps all.
        item_id: Returns the id of a node's item. Without it that is the node's id, which LlamaIndex's stores of Qdrant
            and Milvus give the item.
    """

    client: Client
    route: str
    embed: BaseEmbedding | Embed | None = None
    top_n: int | None = None
    item_id: Callable[[BaseNode], Id] | None = Field(default=None)

    @classmethod
    def class_name(cls) -> str:
        """Returns the name by which LlamaIndex serialises the class."""
        return "LikenessPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise ValueError("the nodes are scored for a query: give query_bundle or query_str")
        if not nodes:
            return []
        ids = [(self.item_id or _item_id)(n.node) for n in nodes]
        vector = embed_query(self.embed, query_bundle)
        text = payloads.words(query_bundle.query_str, vector, send_text=False)
        scores = self.client.score(self.route, vector, ids, text=text)
        best = payloads.best_first(self.route, nodes, ids, scores)[: self.top_n]
        return [NodeWithScore(node=n.node, score=n.score if score is None else score) for n, score in best]


def embed_query(embed: BaseEmbedding | Embed | None, query: QueryBundle) -> Vector | None:
    """Returns the bundle's embedding or the query's vector, or None if there is nothing to make it."""
    if query.embedding is not None or embed is None:
        return query.embedding
    if isinstance(embed, BaseEmbedding):
        return embed.get_agg_embedding_from_queries(query.embedding_strs)
    return embed(query.query_str)


async def aembed_query(embed: BaseEmbedding | Embed | None, query: QueryBundle) -> Vector | None:
    """Returns the query's vector as `embed_query` does, without blocking where ``embed`` can."""
    if query.embedding is None and isinstance(embed, BaseEmbedding):
        return await embed.aget_agg_embedding_from_queries(query.embedding_strs)
    return embed_query(embed, query)


def _item_id(node: BaseNode) -> Id:
    found: Id = node.metadata.get(PROVENANCE, {}).get("id", node.node_id)
    return found
