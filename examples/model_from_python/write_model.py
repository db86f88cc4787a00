"""Writes a native model file of likeness, with nothing but Python's own library.

    python3 write_model.py model.safetensors
    likeness model verify model.safetensors

The file carries scores that this script computes, so that verify holds likeness
against Python. docs/reference/model-format.md describes the format.
"""
import hashlib
import json
import math
import random
import struct
import sys


def write_model(path, kind, config, tensors, name="", provenance=None):
    """tensors: name -> (shape, flat row-major list of floats)."""
    likeness = {"format": 1, "kind": kind, "name": name, "normalise": config["normalise"], "config": config,
                "provenance": provenance or {}}
    header, data = {"__metadata__": {"likeness": json.dumps(likeness), "sha256": "0" * 64}}, b""
    for key, (shape, values) in sorted(tensors.items()):
        numbers = struct.pack(f"<{len(values)}f", *values)
        header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers

    def encode():
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text + data

    header["__metadata__"]["sha256"] = hashlib.sha256(encode()).hexdigest()
    with open(path, "wb") as file:
        file.write(encode())


def self_check(score, query_dim, item_dim):
    """The scores of two fixed queries and three fixed items, as text."""
    queries = [[math.sin(r * query_dim + j + 1) for j in range(query_dim)] for r in range(2)]
    items = [[math.cos(r * item_dim + j + 1) for j in range(item_dim)] for r in range(3)]
    return json.dumps([[score(q, x) for x in items] for q in queries])


def main(path):
    n, m = 6, 4
    random.seed(7)
    w = [random.gauss(0, 1) for _ in range(n * m)]

    def unit(v):
        norm = math.sqrt(sum(a * a for a in v))
        return [a / norm for a in v]

    def score(q, x):  # qᵀWx on unit vectors
        q, x = unit(q), unit(x)
        return sum(q[i] * w[i * m + j] * x[j] for i in range(n) for j in range(m))

    config = {"query_embedding_dim": n, "item_embedding_dim": m, "form": "full", "normalise": True}
    write_model(path, "bilinear", config, {"W": ([n, m], w)}, name="from-python",
                provenance={"tool": "write_model.py", "self_check": self_check(score, n, m)})


if __name__ == "__main__":
    main(sys.argv[1])
