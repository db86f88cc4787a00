"""A collection that likeness and the other engines score alike: a random Mixture-of-Logits, items and queries, in files.

What likeness computes from vectors when it builds its table, the others are given: components, and both parts of the gates.
"""
import json
import pathlib

import engines
import numpy as np

DIM = 64


def make(directory, shape, hidden, items):
    """Writes model, items.npy and queries.npy; returns the gates' weights, the first query, and all items' components and gates."""
    pq, px, d = shape
    n, r, directory = pq * px, np.random.default_rng(4), pathlib.Path(directory)
    normal = lambda *s: r.standard_normal(s, dtype=np.float32)
    layer = lambda rows, cols: normal(rows, cols) / np.float32(cols**0.5)
    t = {
        "_query_embeddings_fn._query_emb_proj_module.1.weight": layer(pq * d, DIM), "_query_embeddings_fn._query_emb_proj_module.1.bias": normal(pq * d) * 0.1,
        "_item_embeddings_fn._item_emb_proj_module.1.weight": layer(px * d, DIM), "_item_embeddings_fn._item_emb_proj_module.1.bias": normal(px * d) * 0.1,
        "_gating_fn._query_only_partial_module.0.weight": layer(hidden, DIM), "_gating_fn._query_only_partial_module.0.bias": normal(hidden) * 0.1,
        "_gating_fn._query_only_partial_module.2.weight": layer(n, hidden),
        "_gating_fn._item_only_partial_module.1.weight": layer(hidden, DIM), "_gating_fn._item_only_partial_module.1.bias": normal(hidden) * 0.1,
        "_gating_fn._item_only_partial_module.3.weight": layer(n, hidden),
        "_gating_fn._qi_partial_module.1.weight": layer(hidden, n), "_gating_fn._qi_partial_module.1.bias": normal(hidden) * 0.1,
        "_gating_fn._qi_partial_module.3.weight": layer(n, hidden), "_gating_fn._qi_partial_module.3.bias": normal(n) * 0.1,
    }
    config = {
        "model_type": "mol", "query_embedding_dim": DIM, "item_embedding_dim": DIM, "normalise": True, "dot_product_dimension": d,
        "query_dot_product_groups": pq, "item_dot_product_groups": px, "temperature": engines.TAU, "dot_product_l2_norm": True,
        "gating_query_hidden_dim": hidden, "gating_item_hidden_dim": hidden, "gating_qi_hidden_dim": hidden, "gating_combination_type": "glu_silu",
    }
    vectors, queries = normal(items, DIM), normal(16, DIM)
    (directory / "model").mkdir()
    (directory / "model" / "config.json").write_text(json.dumps(config))
    (directory / "model" / "model.safetensors").write_bytes(safetensors(t))
    np.save(directory / "items.npy", vectors)
    np.save(directory / "queries.npy", queries)
    # The engines have pairs in the order (item component, query component).
    order = np.arange(n).reshape(pq, px).T.ravel()
    linear = lambda x, name: x @ t[name + ".weight"].T + t.get(name + ".bias", 0)
    silu = lambda x: x * engines.sigmoid(x)
    q, x = engines.unit(queries[:1]), engines.unit(vectors)
    query = engines.unit(linear(q, "_query_embeddings_fn._query_emb_proj_module.1").reshape(1, pq, d)) / np.float32(engines.TAU)
    components = engines.unit(linear(x, "_item_embeddings_fn._item_emb_proj_module.1").reshape(items, px, d))
    gate = linear(silu(linear(q, "_gating_fn._query_only_partial_module.0")), "_gating_fn._query_only_partial_module.2")[:, order]
    gates = linear(silu(linear(x, "_gating_fn._item_only_partial_module.1")), "_gating_fn._item_only_partial_module.3")[:, order]
    weights = tuple(np.ascontiguousarray(w, dtype=np.float32) for w in (
        t["_gating_fn._qi_partial_module.1.weight"].T[order], t["_gating_fn._qi_partial_module.1.bias"],
        t["_gating_fn._qi_partial_module.3.weight"].T[:, order], t["_gating_fn._qi_partial_module.3.bias"][order]))
    return weights, (query, np.ascontiguousarray(gate)), components, np.ascontiguousarray(gates)


def safetensors(tensors):
    """The bytes of a file: a header of JSON, and the numbers."""
    header, data = {}, b""
    for name, v in tensors.items():
        v = np.ascontiguousarray(v, dtype="<f4")
        header[name] = {"dtype": "F32", "shape": list(v.shape), "data_offsets": [len(data), len(data) + v.nbytes]}
        data += v.tobytes()
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + data
