"""Bridges between embedding models on three collections: does the verdict of `likeness fit bridge` hold?

    python bench/bridge/bridge.py --data DIR [--likeness bin/likeness] [--work DIR]

For each pair of models the command gets a sample of the items and half of the queries, and gives its verdict. The truth is
then measured on as many other items with the other half: nDCG@10 of the old model, of the bridge, of the bridge with a fifth of the
items embedded again (those that answers to the first half touched most), and of a new index. isotrieve learns from the same
sample; embedflow ranks 50 candidates of the old model by the new vectors that a fifth, or all, of the items
have. The script writes docs/benchmarks/bridge.json and prints the table of docs/benchmarks/bridge.md.

DIR has scifact.zip and Beauty.txt (docs/benchmarks/sets.md says where they are) and keeps the vectors of texts.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import types
import warnings

import numpy as np
from safetensors.numpy import load_file

import collection
from minilm import ROOT

SEED = 2
SAMPLE = {"BANKING77": 1250, "SciFact": 500, "Amazon Beauty": 4000}  # items embedded by both models for the verdict, and as many others for the truth
LAZY, TOLERANCE = 0.2, 0.03
LEAST_GAIN = 0.01
DEPTH = 100  # candidates of an answer that count as touched
EMBEDFLOW_DEPTH = 50  # its default
WAYS = ["the old model", "the bridge", "the bridge with lazy re-embedding", "a new index"]  # of the command, the cheapest first


def top(scores, hidden, k):
    for row, seen in zip(scores, hidden):
        row[list(seen)] = -np.inf
    best = np.argpartition(-scores, k, axis=1)[:, :k]
    return np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, 1), axis=1, kind="stable"), 1)


def ranked(queries, items, hidden, k=10):
    return np.concatenate([top(queries[at:at + 256] @ items.T, hidden[at:at + 256], k) for at in range(0, len(queries), 256)])


def ndcg(rows, wanted):
    gain = 1 / np.log2(np.arange(2, 12))
    return float(np.mean([(gain[:len(r)] * np.isin(r, w)).sum() / gain[:min(10, len(w))].sum() for r, w in zip(rows, wanted)]))


def take(values, rows):
    return [values[i] for i in rows]


class Pair:
    """One collection, an old model and a new one."""

    def __init__(self, c, old, new, work):
        self.c, self.work = c, work
        self.old, self.new = c.items[old], c.items[new]
        order = np.random.default_rng(SEED).permutation(len(c.wanted))
        self.log, self.test = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2:])
        self.old_queries, self.new_queries = c.queries[old], c.queries[new]
        order = np.random.default_rng(SEED).permutation(len(c.items[old]))
        self.sample, rest = (np.sort(rows) for rows in np.split(order[: 2 * SAMPLE[c.name]], 2))
        self.sampled = {x: i for i, x in enumerate(self.sample)}
        self.sample_old, self.sample_new = c.items[old][self.sample], c.items[new][self.sample]
        # The truth is about other items, as many as those of the sample: among more items every way finds less.
        row_of = {x: i for i, x in enumerate(rest)}
        self.old, self.new = c.items[old][rest], c.items[new][rest]
        self.wanted, self.hidden = ([np.array([row_of[x] for x in rows if x in row_of], int) for rows in lists] for lists in (c.wanted, c.hidden))
        self.test = np.array([q for q in self.test if len(self.wanted[q])])

    def fit(self, likeness):
        files = {"old": self.sample_old, "new": self.sample_new, "queries-old": self.old_queries[self.log], "queries-new": self.new_queries[self.log]}
        args = []
        for name, matrix in files.items():
            np.save(self.work / f"{name}.npy", matrix)
            args += [f"--{name}", self.work / f"{name}.npy"]
        for name, lists in (("pairs", self.c.wanted), ("seen", self.c.hidden)):
            rows = [(q, self.sampled[x]) for q, i in enumerate(self.log) for x in lists[i] if x in self.sampled]
            if rows:
                (self.work / f"{name}.csv").write_text("query,item\n" + "".join(f"{q},{x}\n" for q, x in rows), encoding="ascii")
                args += [f"--{name}", self.work / f"{name}.csv"]
        out = self.work / "bridge.safetensors"
        command = [likeness, "fit", "bridge", *args, "--lazy", LAZY, "--tolerance", TOLERANCE, "--out", out, "--force", "--output", "json"]
        report = json.loads(subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True, text=True).stdout)
        weights = load_file(out)
        side = "_item_embeddings_fn._item_emb_proj_module.1"
        self.mapped = collection.sets.unit(self.old @ weights[side + ".weight"].T + weights[side + ".bias"])
        return report

    def truth(self):
        """nDCG@10 of the four ways, by queries and on items beyond those of the verdict."""
        q, hidden, wanted = self.new_queries[self.test], take(self.hidden, self.test), take(self.wanted, self.test)
        touched = np.zeros(len(self.old))
        for place, column in enumerate(ranked(self.new_queries[self.log], self.mapped, take(self.hidden, self.log), DEPTH).T):
            np.add.at(touched, column, 1 + DEPTH * (place < 10))
        order = np.random.default_rng(SEED).permutation(len(self.old))
        self.again = order[np.argsort(-touched[order], kind="stable")][: int(LAZY * len(self.old))]
        mixed = self.mapped.copy()
        mixed[self.again] = self.new[self.again]
        values = [ndcg(ranked(self.old_queries[self.test], self.old, hidden), wanted), ndcg(ranked(q, self.mapped, hidden), wanted),
                  ndcg(ranked(q, mixed, hidden), wanted), ndcg(ranked(q, self.new, hidden), wanted)]
        self.mixed = {"as they are": values[2], **self.scaled(q, hidden, wanted)}
        return dict(zip(WAYS, values))

    def scaled(self, q, hidden, wanted):
        """nDCG@10 with a fifth embedded again, where the bridge's cosines are mapped before they are compared with those of new vectors:
        times a factor, or by lines that the first half of the queries gives, of their best DEPTH items."""
        log = self.new_queries[self.log]
        bridged, new = log @ self.mapped.T, log @ self.new.T
        best = np.argpartition(-bridged, DEPTH, axis=1)[:, :DEPTH]
        x, y = np.take_along_axis(bridged, best, 1).ravel(), np.take_along_axis(new, best, 1).ravel()
        lines = {f"times {s}": (s, 0) for s in (0.8, 0.9, 0.95, 1.05, 1.1)}
        for name, slope in {"shifted": 1, "regressed": np.cov(x, y)[0, 1] / x.var(), "same spread": y.std() / x.std()}.items():
            lines[name] = (slope, y.mean() - slope * x.mean())
        again, found = np.isin(np.arange(len(self.old)), self.again), {}
        bridged, new = q @ self.mapped.T, q @ self.new.T
        for name, (slope, offset) in lines.items():
            found[name] = ndcg(top(np.where(again, new, slope * bridged + offset), hidden, 10), wanted)
        return found

    def isotrieve(self):
        """nDCG@10 of its ridge map, which replaces every stored vector, and the word of its gate."""
        from isotrieve import RidgeMapping
        from isotrieve.quality.gate import QualityGate

        order = np.random.default_rng(SEED).permutation(len(self.sample))
        fit, fresh = order[len(order) // 5:], order[: len(order) // 5]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mapping = RidgeMapping(seed=SEED).fit(self.sample_old[fit], self.sample_new[fit])
            gate = QualityGate().evaluate(mapping, self.sample_old[fresh], self.sample_new[fresh])
        items = mapping.transform(self.old).astype(np.float32)
        rows = ranked(self.new_queries[self.test], items, take(self.hidden, self.test))
        return {"ndcg": ndcg(rows, take(self.wanted, self.test)), "gate": str(gate.verdict.value), "predicted": round(float(gate.predicted_retention), 4)}

    def embedflow(self):
        """nDCG@10 of its ranking step behind its own index, with a fifth and with all of the new vectors."""
        from embedflow.indexes import NumpyIndex
        from embedflow.serving.engine import MigrationEngine

        index = NumpyIndex(self.old, list(map(str, range(len(self.old)))))
        engine = types.SimpleNamespace(target_model=types.SimpleNamespace(dimension=self.new.shape[1]))
        fifth, answers = set(self.again.tolist()), {"fifth": [], "all": []}
        for q in self.test:
            seen = set(self.hidden[q].tolist())
            hits = [h.document_id for h in index.search(self.old_queries[q], EMBEDFLOW_DEPTH + len(seen)) if int(h.document_id) not in seen][:EMBEDFLOW_DEPTH]
            for name, have in (("fifth", fifth), ("all", None)):
                cached = {d: self.new[int(d)] for d in hits if have is None or int(d) in have}
                order, _, _ = MigrationEngine._rank_cached_candidates(engine, hits, cached, self.new_queries[q])
                answers[name].append(np.array((order or hits)[:10], int))
        wanted = take(self.wanted, self.test)
        return {name: ndcg(rows, wanted) for name, rows in answers.items()}


def cheapest(values):
    """The rule of the verdict, on values that are known."""
    best = max(values[w] for w in WAYS[1:])
    if best < values[WAYS[0]] + min(LEAST_GAIN, values[WAYS[0]] / 10):
        return WAYS[0]
    return next(w for w in WAYS[1:] if values[w] >= (1 - TOLERANCE) * best and values[w] > values[WAYS[0]])


def judge(c, old, new, work, likeness):
    pair = Pair(c, old, new, work)
    report = pair.fit(likeness)
    values = pair.truth()
    chosen, right = report["verdict"]["choose"], cheapest(values)
    return {
        "collection": c.name, "old": old, "new": new, "items": len(pair.old), "sample": len(pair.sample),
        "judged_by": report["queries"], "queries": len(pair.test), "explained": report["explained"],
        "from_queries": report["from_queries"], "answer_share": report["answer_share"],
        "answer": report["verdict"]["answer"], "choose": chosen, "predicted": {w["name"]: w["ndcg"] for w in report["ways"]},
        "predicted_kept": {w["name"]: [w["kept_low"], w["kept"], w["kept_high"]] for w in report["ways"]},
        "truth": values, "kept": {w: values[w] / values[WAYS[3]] for w in WAYS}, "cheapest": right, "same": chosen == right,
        "within_tolerance": values[chosen] >= (1 - TOLERANCE) * max(values.values()),
        "mixed": pair.mixed, "isotrieve": pair.isotrieve(), "embedflow": pair.embedflow(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--likeness", default=str(ROOT / "bin" / "likeness"))
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / ".cache" / "bridge")
    parser.add_argument("--only", default=",".join(collection.READERS))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    out = ROOT / "docs" / "benchmarks" / "bridge.json"
    pairs = []
    for name in args.only.split(","):
        c = collection.READERS[name](args.data)
        for old, new in c.pairs:
            pairs.append(judge(c, old, new, args.work, args.likeness))
            print(json.dumps(pairs[-1]), file=sys.stderr, flush=True)
    if out.exists():  # --only leaves the other collections as they are
        done = {p["collection"] for p in pairs}
        pairs += [p for p in json.loads(out.read_text(encoding="utf-8"))["pairs"] if p["collection"] not in done]
    pairs.sort(key=lambda p: list(SAMPLE).index(p["collection"]))
    bridged = [p for p in pairs if p["choose"] in WAYS[1:3]]
    result = {
        "sample": SAMPLE, "lazy": LAZY, "tolerance": TOLERANCE, "pairs": pairs, "same": sum(p["same"] for p in pairs),
        "within_tolerance": sum(p["within_tolerance"] for p in pairs), "bridged": len(bridged),
        "least_kept_where_bridged": min((p["kept"][WAYS[2]] for p in bridged), default=None),
    }
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="ascii")
    print_tables(pairs)


def print_tables(pairs):
    print("| collection, models | old | bridge | a fifth again | new | verdict | cheapest in truth |\n|---|--:|--:|--:|--:|---|---|")
    for p in pairs:
        verdict = p["choose"] + (", cannot tell" if p["answer"] == "unclear" else "")
        print(f"| {p['collection']}, {p['old']} → {p['new']} | " + " | ".join(f"{p['truth'][w]:.3f}" for w in WAYS) + f" | {verdict} | {p['cheapest']} |")
    print("\n| collection, models | likeness | isotrieve | its gate | likeness, a fifth again | embedflow, a fifth | embedflow, all 50 |\n|---|--:|--:|---|--:|--:|--:|")
    for p in pairs:
        print(f"| {p['collection']}, {p['old']} → {p['new']} | {p['truth'][WAYS[1]]:.3f} | {p['isotrieve']['ndcg']:.3f} | {p['isotrieve']['gate']} | "
              f"{p['truth'][WAYS[2]]:.3f} | {p['embedflow']['fifth']:.3f} | {p['embedflow']['all']:.3f} |")
    print("\n| collection, models | the verdict says | interval | in truth |\n|---|--:|---|--:|")
    for p in pairs:
        low, kept, high = p["predicted_kept"][WAYS[1]]
        print(f"| {p['collection']}, {p['old']} → {p['new']} | {kept:.3f} | {low:.3f} to {high:.3f} | {p['kept'][WAYS[1]]:.3f} |")
    names = list(pairs[0]["mixed"])
    print("\n| collection, models | " + " | ".join(names) + " |\n|---|" + "--:|" * len(names))
    for p in pairs:
        print(f"| {p['collection']}, {p['old']} → {p['new']} | " + " | ".join(f"{p['mixed'][n]:.3f}" for n in names) + " |")


if __name__ == "__main__":
    main()
