"""A bilinear similarity as a module of sentence-transformers: ``pip install likeness[st]``."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module, Router
from torch import nn

from .models import Bilinear


class QueryTransform(Module):
    """Turns the embedding q of a query into Wᵀq, whose inner product with an item's embedding x is φ(q, x) = qᵀWx.

    Documents are embedded as before: what the database stores stays. Compare by inner product with documents of norm 1.

    Args:
        query_dim: Dimension of the query's embedding.
        item_dim: Dimension of the items' embeddings.
        normalise: Divide the query's embedding by its norm first.

    Example:
        >>> transform = QueryTransform.from_model("products.safetensors")
        >>> model = transform.behind(SentenceTransformer("all-MiniLM-L6-v2"))
        >>> model.encode_query("a warm jacket for rain")
        >>> transform.to_model("trained-further.safetensors")
    """

    config_keys: ClassVar[list[str]] = ["query_dim", "item_dim", "normalise"]

    def __init__(self, query_dim: int, item_dim: int, normalise: bool = True) -> None:
        super().__init__()
        self.query_dim = query_dim
        self.item_dim = item_dim
        self.normalise = normalise
        self.linear = nn.Linear(query_dim, item_dim, bias=False)
        nn.init.eye_(self.linear.weight)

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Replaces ``sentence_embedding``."""
        embedding = features["sentence_embedding"]
        if self.normalise:
            embedding = nn.functional.normalize(embedding, dim=-1)
        features["sentence_embedding"] = self.linear(embedding)
        return features

    def get_embedding_dimension(self) -> int:
        """Returns the dimension of what the module makes."""
        return self.item_dim

    def behind(self, model: SentenceTransformer) -> SentenceTransformer:
        """Returns a sentence transformer whose ``encode_query`` has this module behind the model's own modules.

        Its ``encode_document`` is the model's. The modules are shared, not copied.
        """
        own = list(model)
        return SentenceTransformer(
            modules=[Router.for_query_document(query_modules=[*own, self], document_modules=own)]
        )

    @classmethod
    def from_model(cls, path: str | os.PathLike[str]) -> QueryTransform:
        """Reads a bilinear model of likeness.

        Raises:
            ValueError: The file holds no bilinear model.
        """
        model = Bilinear.load(path)
        transform = cls(*model.weight.shape, normalise=model.normalise)
        with torch.no_grad():
            transform.linear.weight.copy_(torch.from_numpy(model.weight.T.copy()))
        return transform

    def to_model(self, path: str | os.PathLike[str], name: str = "") -> None:
        """Writes a model file that likeness serves, evaluates and compares.

        Args:
            path: The file, ``.safetensors``.
            name: Name of the model. If empty, the file's name counts.
        """
        weight = self.linear.weight.detach().to("cpu", torch.float32).numpy().T
        Bilinear(weight, self.normalise, name, {"tool": "likeness.st"}).save(path)

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Writes the module as a part of a sentence transformer."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, **kwargs: Any) -> QueryTransform:
        """Reads the module as a part of a sentence transformer."""
        places = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
        hub = {key: kwargs[key] for key in places if key in kwargs}
        transform = cls(**cls.load_config(model_name_or_path, **hub))
        loaded: QueryTransform = cls.load_torch_weights(model_name_or_path, model=transform, **hub)
        return loaded
