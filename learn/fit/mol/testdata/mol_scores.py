#!/usr/bin/env python3
"""Scores of a Mixture-of-Logits in a native model file, written from
docs/reference/model-format.md and testdata/golden/README.md alone, in float64 and
with the standard library only, so that a test runs it everywhere.

    mol_scores.py MODEL < input.json

Input: {"queries": [[...]], "users": [...], "items": [[...]]}. Output: a list of
scores of all items for each query.
"""
import json
import math
import struct
import sys


def read(path):
    """The configuration and the tensors, nested lists, of a model file."""
    data = open(path, "rb").read()
    size = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8 : 8 + size])
    model = json.loads(header.pop("__metadata__")["likeness"])
    tensors = {}
    for name, t in header.items():
        assert t["dtype"] == "F32", t
        start, end = t["data_offsets"]
        numbers = struct.unpack_from(f"<{(end - start) // 4}f", data, 8 + size + start)
        width = t["shape"][-1]
        rows = [list(numbers[i : i + width]) for i in range(0, len(numbers), width)]
        tensors[name] = rows if len(t["shape"]) == 2 else rows[0]
    return model["config"], tensors


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def unit(v, eps):
    norm = max(math.sqrt(dot(v, v)), eps)
    return [x / norm for x in v]


def silu(x):
    return x / (1 + math.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


class MoL:
    def __init__(self, path):
        self.c, self.t = read(path)

    def linear(self, x, name):
        bias = self.t.get(name + ".bias")
        return [dot(row, x) + (bias[r] if bias else 0) for r, row in enumerate(self.t[name + ".weight"])]

    def components(self, x, side, groups, hidden, activation):
        name = f"_{side}_embeddings_fn._{side}_emb_proj_module"
        if hidden > 0:
            bias = self.t[name + ".1._b"][0]
            both = [dot(column, x) + bias[i] for i, column in enumerate(zip(*self.t[name + ".1._w"]))]
            act = gelu if activation == "geglu" else silu
            flat = self.linear([act(a) * b for a, b in zip(both[:hidden], both[hidden:])], name + ".2")
        else:
            flat = self.linear(x, name + ".1")
        d = self.c["dot_product_dimension"]
        return [flat[i * d : (i + 1) * d] for i in range(groups)]

    def perceptron(self, x, name, first, second):
        name = f"_gating_fn._{name}_partial_module"
        if f"{name}.{second}.weight" not in self.t:
            return self.linear(x, f"{name}.{first}")
        return self.linear([silu(v) for v in self.linear(x, f"{name}.{first}")], f"{name}.{second}")

    def score(self, q, user, x):
        c = self.c
        if c["normalise"]:
            q, x = unit(q, 0), unit(x, 0)
        tables = c["uid_embedding_hash_sizes"] or []
        f = self.components(q, "query", c["query_dot_product_groups"] - len(tables), c["query_hidden_dim"], c["query_nonlinearity"])
        f += [self.t[f"_query_embeddings_fn._uid_embeddings_{i}.weight"][user % size + 1] for i, size in enumerate(tables)]
        g = self.components(x, "item", c["item_dot_product_groups"], c["item_hidden_dim"], c["item_nonlinearity"])
        if c["dot_product_l2_norm"]:
            f, g = [unit(v, c["eps"]) for v in f], [unit(v, c["eps"]) for v in g]
        logits = [dot(a, b) / c["temperature"] for a in f for b in g]
        gates = self.perceptron(q, "query_only", 0, 2)
        if c["gating_combination_type"] == "glu_silu":
            item, pair = self.perceptron(x, "item_only", 1, 3), self.perceptron(logits, "qi", 1, 3)
            gates = [silu(a * b + p) for a, b, p in zip(gates, item, pair)]
        weights = [math.exp(v - max(gates)) for v in gates]
        return dot(weights, logits) / math.fsum(weights)


def main():
    model, data = MoL(sys.argv[1]), json.load(sys.stdin)
    print(json.dumps([[model.score(q, u, x) for x in data["items"]] for q, u in zip(data["queries"], data["users"])]))


main()
