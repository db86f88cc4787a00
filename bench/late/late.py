"""Late interaction on the token states of all-MiniLM-L6-v2: what a learned companion finds, and what scoring costs.

    python bench/late/late.py --data DIR [--only cranfield] [--no-speed] [--work DIR]

For each collection the command fits a companion to queries of the log, and `likeness index` places the items by it. The
script then ranks the tests by exact MaxSim, in numpy, and measures which share of the best ten are among the first
candidates by the companion, by the mean of the vectors, and by MUVERA's fixed-dimensional encodings; and nDCG@10 of MaxSim
over the candidates of the companion. The speed is that of 500 items of 300 vectors for a query of 32, by processor time on one core.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
from safetensors.numpy import load_file

import states

ROOT = states.minilm.ROOT
OUT = ROOT / "docs" / "benchmarks" / "late.json"
DEPTHS = [50, 100, 200, 500]
K, SEED = 10, 1
ITEMS, VECTORS, ASKED, DIM = 500, 300, 32, 384  # of the speed
RUNS = 10


def maxsim(queries, items):
    """Σ_i max_j ⟨q_i, x_j⟩ of every query and item."""
    out = np.empty((len(queries), len(items)), np.float32)
    for at in range(0, len(queries), 16):
        part = range(at, min(at + 16, len(queries)))
        starts = queries.starts[part.start:part.stop] - queries.starts[at]
        rows = queries.rows[queries.starts[at]:queries.starts[part.stop]]
        for first in range(0, len(items), 256):
            last = min(first + 256, len(items))
            dots = rows @ items.rows[items.starts[first]:items.starts[last]].T
            best = np.maximum.reduceat(dots, items.starts[first:last] - items.starts[first], axis=1)
            out[part.start:part.stop, first:last] = np.add.reduceat(best, starts, axis=0)
    return out


def top(scores, n):
    n = min(n, scores.shape[1])
    best = np.argpartition(-scores, n - 1, axis=1)[:, :n]
    return np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, 1), axis=1, kind="stable"), 1)


def recall(found, exact):
    return {str(d): round(float(np.mean([np.isin(e, f[:d]).mean() for e, f in zip(exact, found)])), 4) for d in DEPTHS}


def ndcg(rows, wanted):
    gain = 1 / np.log2(np.arange(2, 2 + K))
    return round(float(np.mean([(gain[:len(r)] * np.isin(r, w)).sum() / gain[:min(K, len(w))].sum() for r, w in zip(rows, wanted)])), 4)


def means(texts):
    sums = np.add.reduceat(texts.rows, texts.starts[:-1], axis=0)
    return sums / np.linalg.norm(sums, axis=1, keepdims=True)


class Companion:
    """The learned companion of a collection: fitted and placed by the command, asked in numpy."""

    def __init__(self, c, args):
        self.work = args.work / c.name.lower()
        self.work.mkdir(parents=True, exist_ok=True)
        self.seconds = {}
        for name, texts in (("items", c.items), ("log", c.log)):
            np.save(self.work / f"{name}.npy", texts.rows)
            np.save(self.work / f"{name}-counts.npy", texts.counts.astype(np.int64))
        np.save(self.work / "mean.npy", means(c.items))
        self.run(args.likeness, "model", "late", "plain.safetensors", "--dim", DIM, "--normalise", "--force")
        report = self.run(args.likeness, "fit", "companion", "--model", "plain.safetensors", "--items", "items.npy", "--item-counts", "items-counts.npy",
                          "--queries", "log.npy", "--query-counts", "log-counts.npy", "--out", "found.safetensors", "--force", "--held-out", 0.05,
                          "--dim", args.dim, "--hidden", args.hidden, "--anchors", args.anchors, "--fit-items", args.fit_items, "--ridge", 1e-3, "--output", "json")
        self.report = json.loads(report)
        (self.work / "likeness.yaml").write_text("""
stores: {main: {kind: embedded, collections: {items: {fields: {mean: {file: mean.npy}, tokens: {file: items.npy, counts: items-counts.npy}}}}}}
models: {m: {path: found.safetensors}}
routes: {r: {store: main, collection: items, vector: mean, vectors: tokens, model: m}}
""", encoding="ascii")
        self.run(args.likeness, "index", "--config", "likeness.yaml", "--route", "r", "--only", "companion", "--companion", "learned", "--files", "learned", "--force")
        self.items = np.load(next((self.work / "learned").rglob("learned*.npy")))
        self.tensors = load_file(self.work / "found.safetensors")

    def run(self, *command):
        before = children()
        out = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True, text=True, cwd=self.work).stdout
        self.seconds[command[1]] = round(children() - before, 1)
        return out

    def queries(self, texts):
        """ψ of each query."""
        hidden, bias, out = (self.tensors[f"companion.{n}"] for n in ("hidden.weight", "hidden.bias", "out.weight"))
        rows = np.concatenate([np.ones((len(texts.rows), 1), np.float32), texts.rows, np.maximum(texts.rows @ hidden.T + bias, 0)], axis=1)
        return np.add.reduceat(rows, texts.starts[:-1], axis=0) @ out.T


def muvera(c, planes=4, repeats=20, dim=32):
    """Fixed-dimensional encodings (MUVERA, NeurIPS 2024): per repeat, vectors fall into 2^planes buckets by random planes,
    and are projected to dim numbers; queries add up in a bucket, items take the mean, and the item's nearest vector fills an
    empty one."""
    rng, buckets = np.random.default_rng(SEED), 2 ** planes
    bits = np.array([[b >> p & 1 for p in range(planes)] for b in range(buckets)])
    sides = {"items": [], "tests": []}
    for _ in range(repeats):
        normals, project = rng.standard_normal((planes, DIM)), rng.choice([-1.0, 1.0], (DIM, dim)).astype(np.float32) / np.sqrt(dim)
        for side, texts in (("items", c.items), ("tests", c.tests)):
            signs = texts.rows @ normals.T.astype(np.float32) > 0
            bucket, small = signs @ (1 << np.arange(planes)), texts.rows @ project
            block = np.zeros((len(texts), buckets, dim), np.float32)
            count = np.zeros((len(texts), buckets, 1), np.float32)
            owner = np.repeat(np.arange(len(texts)), texts.counts)
            np.add.at(block, (owner, bucket), small)
            np.add.at(count, (owner, bucket, 0), 1)
            if side == "items":
                block /= np.maximum(count, 1)
                for x, b in zip(*np.nonzero(count[:, :, 0] == 0)):
                    own = slice(texts.starts[x], texts.starts[x + 1])
                    block[x, b] = small[own][np.argmin((signs[own] != bits[b]).sum(axis=1))]
            sides[side].append(block.reshape(len(texts), -1))
    return np.concatenate(sides["tests"], axis=1) @ np.concatenate(sides["items"], axis=1).T, repeats * buckets * dim


def judge(c, args):
    print(f"{c.name}: exact MaxSim", file=sys.stderr, flush=True)
    exact = maxsim(c.tests, c.items)
    best = top(exact, K)
    companion = Companion(c, args)
    products = {"companion": (companion.queries(c.tests) @ companion.items.T, companion.items.shape[1]),
                "mean of the vectors": (means(c.tests) @ means(c.items).T, DIM), "MUVERA": muvera(c)}
    found = {name: top(p, DEPTHS[-1]) for name, (p, _) in products.items()}
    short = found["companion"][:, :200]
    rescored = np.take_along_axis(short, top(np.take_along_axis(exact, short, 1), K), 1)
    return {
        "collection": c.name, "items": len(c.items), "vectors": len(c.items.rows), "tests": len(c.tests),
        "log": len(c.log), "anchors": companion.report["anchors"], "fit_items": companion.report["sampled_items"], "processor_seconds": companion.seconds,
        "stages": [{"name": n, "numbers": products[n][1], "recall": recall(f, best)} for n, f in found.items()],
        "ndcg": {"exact": ndcg(best, c.wanted), "companion, 200 candidates": ndcg(rescored, c.wanted), "mean alone": ndcg(found["mean of the vectors"][:, :K], c.wanted)},
    }


def clock(run):
    """Processor milliseconds of one run: the least of some, after one that warms up."""
    run()
    spent = []
    for _ in range(RUNS):
        began = time.process_time()
        run()
        spent.append(1e3 * (time.process_time() - began))
    return round(min(spent), 1)


def speed():
    rng = np.random.default_rng(SEED)
    items = rng.standard_normal((ITEMS * VECTORS, DIM)).astype(np.float32)
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    query = rng.standard_normal((ASKED, DIM)).astype(np.float32)
    query /= np.linalg.norm(query, axis=1, keepdims=True)
    want = (query @ items.T).reshape(ASKED, ITEMS, VECTORS).max(axis=2).sum(axis=0)
    found = likeness_speed()
    found["NumPy"] = clock(lambda: (query @ items.T).reshape(ASKED, ITEMS, VECTORS).max(axis=2).sum(axis=0))
    for name, run in (("ONNX Runtime", onnx_runner(query, items)), ("PyTorch", torch_runner(query, items)), ("qdrant-edge", edge_runner(query, items))):
        if not np.allclose(run(), np.sort(want)[::-1][:K] if name == "qdrant-edge" else want, rtol=1e-3):
            raise SystemExit(f"{name} computes something else")
        found[name] = clock(run)
    return found


def children():
    """Processor seconds of all processes that this one started and that ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def likeness_speed():
    """Of two runs of the Go benchmark, the difference of their processor times is the work without the preparation."""
    found = {}
    for form in ("float32", "bfloat16", "int8"):
        spent = []
        for times in (5, 5 + 10 * RUNS):
            before = children()
            subprocess.run([ROOT / ".cache" / "late.test", "-test.run", "none", "-test.bench", f"BenchmarkScore/^{form}$", "-test.benchtime", f"{times}x", "-test.cpu", "1"],
                           stdout=subprocess.DEVNULL, check=True)
            spent.append(children() - before)
        found[f"likeness, {form}"] = round(1e3 * (spent[1] - spent[0]) / (10 * RUNS), 1)
    return found


def onnx_runner(query, items):
    import onnx
    import onnxruntime

    h, t = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [h.make_node("MatMul", ["q", "x"], ["d"]), h.make_node("Reshape", ["d", "s"], ["r"]),
             h.make_node("ReduceMax", ["r", "last"], ["m"], keepdims=0), h.make_node("ReduceSum", ["m", "first"], ["y"], keepdims=0)]
    whole = [onnx.numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (("s", [ASKED, ITEMS, VECTORS]), ("last", [2]), ("first", [0]))]
    graph = h.make_graph(nodes, "late", [h.make_tensor_value_info("q", t, [ASKED, DIM]), h.make_tensor_value_info("x", t, [DIM, ITEMS * VECTORS])],
                         [h.make_tensor_value_info("y", t, [ITEMS])], whole)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10)
    session, turned = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]), np.ascontiguousarray(items.T)
    return lambda: session.run(None, {"q": query, "x": turned})[0]


def torch_runner(query, items):
    import torch

    torch.set_num_threads(1)
    q, x = torch.from_numpy(query), torch.from_numpy(items)
    return lambda: (q @ x.T).view(ASKED, ITEMS, VECTORS).amax(2).sum(0).numpy()


def edge_runner(query, items):
    import qdrant_edge as edge

    folder = tempfile.mkdtemp()
    vectors = edge.EdgeVectorParams(size=DIM, distance=edge.Distance.Dot, multivector_config=edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim))
    shard = edge.EdgeShard.create(folder, edge.EdgeConfig(vectors={"tokens": vectors}, max_search_threads=1))
    for i in range(ITEMS):
        shard.update(edge.UpdateOperation.upsert_points([edge.Point(i, {"tokens": items[i * VECTORS:(i + 1) * VECTORS].tolist()})]))
    asked = edge.QueryRequest(limit=K, query=edge.Query.Nearest(query.tolist(), using="tokens"), params=edge.SearchParams(exact=True))
    return lambda: np.array([p.score for p in shard.query(asked)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--likeness", type=pathlib.Path, default=ROOT / "bin" / "likeness")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / ".cache" / "late")
    parser.add_argument("--only", default=",".join(states.READERS))
    parser.add_argument("--no-speed", action="store_true")
    parser.add_argument("--dim", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=1600)
    parser.add_argument("--anchors", type=int, default=3000)
    parser.add_argument("--fit-items", type=int, default=1000)
    args = parser.parse_args()
    for name in filter(None, args.only.split(",")):
        one = judge(states.READERS[name](args.data), args)
        print(json.dumps(one), file=sys.stderr, flush=True)
        keep("collections", one["collection"], one)
    if not args.no_speed:
        for name, milliseconds in speed().items():
            keep("speed", name, milliseconds)
    print_tables(json.loads(OUT.read_text(encoding="utf-8")))


def keep(part, name, value):
    """Replaces one figure of the results: a run of one collection leaves the others."""
    result = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {"collections": {}, "speed": {}}
    result[part][name] = value
    OUT.write_text(json.dumps(result, indent=1) + "\n", encoding="ascii")


def print_tables(result):
    print("| collection | first stage | numbers | " + " | ".join(f"@{d}" for d in DEPTHS) + " |\n|---|---|--:|" + "--:|" * len(DEPTHS))
    for c in result["collections"].values():
        for s in c["stages"]:
            print(f"| {c['collection']} | {s['name']} | {s['numbers']} | " + " | ".join(f"{s['recall'][str(d)]:.3f}" for d in DEPTHS) + " |")
    print("\n| collection | MaxSim of all | of 200 candidates | mean alone |\n|---|--:|--:|--:|")
    for c in result["collections"].values():
        print(f"| {c['collection']} | " + " | ".join(f"{v:.4f}" for v in c["ndcg"].values()) + " |")
    print("\n| 500 items of 300 vectors, a query of 32 | processor time |\n|---|--:|")
    for name, ms in result["speed"].items():
        print(f"| {name} | {ms:.0f} ms |")


if __name__ == "__main__":
    main()
