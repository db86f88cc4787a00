#!/usr/bin/env python3
"""What a graph of the stored vectors finds when it is walked by φ.

Builds an hnswlib graph over the shipped questions by cosine, walks its lowest level best-first by φ of the shipped
Mixture-of-Logits (nothing else), and prints which share of the exact top 10 by φ it finds for how many evaluations of
φ. A walk begins at the question that is nearest by cosine, which is not counted.

    pip install numpy scipy safetensors hnswlib
    bench/graph/walk.py

A search of a learned companion evaluates φ for its candidates alone, so its recall at N candidates
(likeness eval --strategies companion:N) stands beside the walk's at N evaluations.
"""
import argparse
import heapq
import json
import pathlib
import struct
import sys
import tempfile

import hnswlib
import numpy as np
from safetensors.numpy import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "golden"))
from mol_oracle import MoL  # noqa: E402


def unit(m):
    m = m.astype(np.float32)
    return m / np.linalg.norm(m, axis=1, keepdims=True)


def links(graph, items):
    """The neighbours of every item on the lowest level, from a file of the graph."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "graph"
        graph.save_index(str(path))
        data = path.read_bytes()
    level, _, count, size, label_at, _ = struct.unpack_from("<6Q", data, 0)
    (most,) = struct.unpack_from("<Q", data, 6 * 8 + 8 + 8)  # max M of level 0, behind two ints and max M
    head = 6 * 8 + 8 + 3 * 8 + 8 + 8
    assert count == items
    out = [None] * items
    labels = [struct.unpack_from("<Q", data, head + i * size + label_at)[0] for i in range(items)]
    for i in range(items):
        at = head + i * size + level
        n = struct.unpack_from("<H", data, at)[0]
        assert n <= most
        out[labels[i]] = [labels[x] for x in struct.unpack_from(f"<{n}I", data, at + 4)]
    return out


def walk(scores, neighbours, start, width):
    """Best-first search that keeps width items. Returns the best ten and the number of scores that it looked at."""
    seen = {start}
    ahead = [(-scores[start], start)]
    kept = [(scores[start], start)]
    while ahead:
        score, x = heapq.heappop(ahead)
        if len(kept) == width and -score < kept[0][0]:
            break
        for y in neighbours[x]:
            if y in seen:
                continue
            seen.add(y)
            if len(kept) < width or scores[y] > kept[0][0]:
                heapq.heappush(ahead, (-scores[y], y))
                heapq.heappush(kept, (scores[y], y))
                if len(kept) > width:
                    heapq.heappop(kept)
    return [x for _, x in sorted(kept, reverse=True)[:10]], len(seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "examples/data/banking77")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "examples/models/banking77-questions-mol")
    parser.add_argument("--queries", type=int, default=256, help="test questions, spread over all")
    parser.add_argument("--m", type=int, default=16, help="neighbours of an item in the graph")
    args = parser.parse_args()
    items = unit(np.load(args.data / "train_vectors.npy"))
    queries = unit(np.load(args.data / "test_vectors.npy"))
    queries = queries[np.linspace(0, len(queries) - 1, args.queries).astype(int)]
    config = json.loads((args.model / "config.json").read_text())
    config.setdefault("query_nonlinearity", "geglu")
    config.setdefault("item_nonlinearity", "geglu")
    model = MoL(config, load_file(args.model / "model.safetensors"))
    graph = hnswlib.Index(space="cosine", dim=items.shape[1])
    graph.init_index(max_elements=len(items), M=args.m, ef_construction=200, random_seed=1)
    graph.add_items(items, np.arange(len(items)), num_threads=1)
    graph.set_ef(50)
    starts, _ = graph.knn_query(queries, k=1)
    neighbours = links(graph, len(items))
    widths = [10, 20, 40, 80, 160, 320]
    found, looked = np.zeros(len(widths)), np.zeros(len(widths))
    for q, start in zip(queries, starts[:, 0]):
        scores = np.concatenate([model.forward(q[None], items[at:at + 1000])["scores"][0] for at in range(0, len(items), 1000)])
        wanted = set(np.argsort(-scores, kind="stable")[:10].tolist())
        scores = scores.tolist()
        for i, width in enumerate(widths):
            best, n = walk(scores, neighbours, int(start), width)
            found[i] += len(wanted.intersection(best)) / 10
            looked[i] += n
    print(f"{len(items)} items, {args.queries} queries, hnswlib with M = {args.m}")
    print("width  evaluations  recall@10")
    for width, n, r in zip(widths, looked / len(queries), found / len(queries)):
        print(f"{width:5}  {n:11.0f}  {r:.4f}")


if __name__ == "__main__":
    main()
