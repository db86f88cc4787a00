"""Writes and reads the files of bilinear models, described in docs/reference/model-format.md."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

DTYPES = {"F32": "<f4", "F64": "<f8", "F16": "<f2"}


@dataclass(frozen=True)
class Bilinear:
    """The similarity φ(q, x) = qᵀWx.

    Attributes:
        weight: W, of the shape (query dimension, item dimension).
        normalise: Queries and items are divided by their norms first.
        name: Name of the model. If empty, the file's name counts.
        provenance: Where the model comes from: training data, tool, date, quality.
    """

    weight: np.ndarray[Any, Any]
    normalise: bool = True
    name: str = ""
    provenance: dict[str, str] = field(default_factory=dict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a native model file. It appears in one step.

        Raises:
            ValueError: W is not a matrix of finite numbers.
        """
        weight = np.ascontiguousarray(self.weight, dtype="<f4")
        if weight.ndim != 2 or not np.isfinite(weight).all():
            raise ValueError(f"W has the shape {weight.shape}: a matrix of finite numbers is needed")
        config = {
            "query_embedding_dim": weight.shape[0],
            "item_embedding_dim": weight.shape[1],
            "form": "full",
            "normalise": self.normalise,
        }
        likeness = {
            "format": 1,
            "kind": "bilinear",
            "name": self.name,
            "normalise": self.normalise,
            "config": config,
            "provenance": {"self_check": _self_check(weight, self.normalise), **self.provenance},
        }
        metadata = {"likeness": json.dumps(likeness), "sha256": "0" * 64}
        tensor = {"dtype": "F32", "shape": list(weight.shape), "data_offsets": [0, weight.nbytes]}
        header: dict[str, Any] = {"__metadata__": metadata, "W": tensor}
        data = weight.tobytes()
        # The digest is of the file with zeros in the digest's place.
        metadata["sha256"] = hashlib.sha256(_encode(header, data)).hexdigest()
        path = Path(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_bytes(_encode(header, data))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Bilinear:
        """Reads a native file, or a directory with RAILS names, of any bilinear form.

        Raises:
            ValueError: The file holds no bilinear model.
        """
        path = Path(path)
        provenance: dict[str, str] = {}
        if path.is_dir():
            config = json.loads((path / "config.json").read_text())
            _, tensors = _read(path / "model.safetensors")
            kind, name = config.get("model_type"), path.name
        else:
            metadata, tensors = _read(path)
            likeness = json.loads(metadata.get("likeness", "{}"))
            kind, config = likeness.get("kind"), likeness.get("config", {})
            name = likeness.get("name") or path.name.removesuffix(".safetensors")
            provenance = likeness.get("provenance") or {}
            # Scores of the model as it was, which a changed weight contradicts.
            provenance.pop("self_check", None)
        if kind != "bilinear":
            raise ValueError(f"{path} is a model of the kind {kind!r}: only bilinear ones are matrices")
        normalise = config.get("normalise") in (True, "both sides to unit length")
        return cls(_weight(path, config, tensors), normalise, name, provenance)


def _weight(path: Path, config: dict[str, Any], tensors: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    form = config.get("form", "full")
    try:
        if form == "full":
            weight = tensors["W"]
        elif form == "diagonal":
            weight = np.diag(tensors["w"])
        elif form in ("low_rank", "identity_low_rank"):
            weight = tensors["P"] @ tensors["Q"].T
            if form == "identity_low_rank":
                weight = weight + np.eye(*weight.shape, dtype=weight.dtype)
        else:
            raise ValueError(f"{path} has the form {form!r}, which this version does not know")
    except KeyError as missing:
        raise ValueError(f"{path} lacks the tensor {missing} of the form {form}") from None
    shape = (config["query_embedding_dim"], config["item_embedding_dim"])
    if weight.shape != shape:
        raise ValueError(f"{path} says that W has the shape {shape}, and holds {weight.shape}")
    return weight


def _encode(header: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def _read(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray[Any, Any]]]:
    """Returns the metadata and the tensors of a safetensors file."""
    data = path.read_bytes()
    if len(data) < 8 or struct.unpack_from("<Q", data)[0] > len(data) - 8:
        raise ValueError(f"{path} is no safetensors file")
    end = 8 + struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:end])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, tensor in header.items():
        if tensor["dtype"] not in DTYPES:
            raise ValueError(f"{path}: the tensor {name} is of the type {tensor['dtype']}, want one of {list(DTYPES)}")
        first, last = tensor["data_offsets"]
        numbers = np.frombuffer(data[end + first : end + last], DTYPES[tensor["dtype"]])
        tensors[name] = numbers.reshape(tensor["shape"]).astype(np.float32)
    return metadata, tensors


def _self_check(weight: np.ndarray[Any, Any], normalise: bool) -> str:
    """Returns the scores of two queries by three items, which ``likeness model verify`` compares with its own."""
    n, m = weight.shape
    queries = np.sin(np.arange(2 * n) + 1.0).reshape(2, n)
    items = np.cos(np.arange(3 * m) + 1.0).reshape(3, m)
    if normalise:
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
        items /= np.linalg.norm(items, axis=1, keepdims=True)
    return json.dumps((queries @ weight.astype(np.float64) @ items.T).tolist())
