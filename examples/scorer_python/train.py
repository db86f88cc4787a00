"""Trains the ranker on pairs of bank customers' questions: relevant is a question with the same intent.

    python train.py --data ../data/banking77 --out ../../.cache/scorer_python/ranker.json

It takes some seconds and prints how well the test questions' candidates are ordered, beside BM25.
"""

import argparse
import json
import os
import time

import lightgbm
import numpy

from features import NAMES, Features, parse

SEED = 8
PARAMETERS = {
    "objective": "lambdarank",
    "learning_rate": 0.1,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
    "lambdarank_truncation_level": 20,
    "seed": SEED,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbosity": -1,
}


def read(path):
    with open(path, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    return [r["text"] for r in rows], numpy.array([r["item"] for r in rows])


class Index:
    """BM25 over all texts at once: what finds the candidates that the ranker orders."""

    def __init__(self, features, texts):
        self.size, self.lists = len(texts), {}
        for row, text in enumerate(map(parse, texts)):
            norm = 1.2 * (0.25 + 0.75 * len(text.words) / features.mean_length)
            for word, c in text.counts.items():
                self.lists.setdefault(word, []).append((row, features.weight(word) * c * 2.2 / (c + norm)))
        self.lists = {w: (numpy.array([r for r, _ in p]), numpy.array([s for _, s in p])) for w, p in self.lists.items()}

    def top(self, query, k, leave_out=None):
        scores = numpy.zeros(self.size)
        for word in parse(query).counts:
            if word in self.lists:
                rows, add = self.lists[word]
                scores[rows] += add
        if leave_out is not None:
            scores[leave_out] = -1
        rows = numpy.argpartition(-scores, k)[:k]
        return rows[numpy.argsort(-scores[rows], kind="stable")]


def groups(features, index, texts, intents, queries, candidates):
    """Training rows: for each query its candidates without itself, relevant where the intent is the same."""
    matrices, labels = [], []
    for q in queries:
        rows = index.top(texts[q], candidates, leave_out=q)
        matrices.append(features.matrix(texts[q], [texts[r] for r in rows]))
        labels.append(intents[rows] == intents[q])
    return numpy.concatenate(matrices), numpy.concatenate(labels).astype(int)


def quality(features, booster, index, texts, intents, queries, answers, candidates):
    """MRR@10 and precision@10 of BM25's order and of the ranker's, on the same candidates."""
    figures = numpy.zeros((2, 2))
    for query, intent in zip(queries, answers):
        rows = index.top(query, candidates)
        scores = booster.predict(features.matrix(query, [texts[r] for r in rows]), num_threads=1)
        for which, order in enumerate((rows, rows[numpy.argsort(-scores, kind="stable")])):
            right = intents[order[:10]] == intent
            figures[which] += (1 / (1 + right.argmax()) if right.any() else 0, right.mean())
    return figures / len(queries)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", default=os.path.join(here, "..", "data", "banking77"))
    p.add_argument("--out", default=os.path.join(here, "..", "..", ".cache", "scorer_python", "ranker.json"))
    p.add_argument("--queries", type=int, default=1500, help="training questions (1500)")
    p.add_argument("--candidates", type=int, default=50, help="candidates of a question (50)")
    p.add_argument("--rounds", type=int, default=100, help="trees (100)")
    p.add_argument("--test", type=int, default=300, help="test questions for the figures, 0 for none (300)")
    a = p.parse_args()
    begun = time.monotonic()
    texts, intents = read(os.path.join(a.data, "train.jsonl"))
    features = Features.of(texts)
    index = Index(features, texts)
    chosen = numpy.random.default_rng(SEED).choice(len(texts), min(a.queries, len(texts)), replace=False)
    matrix, labels = groups(features, index, texts, intents, chosen, a.candidates)
    data = lightgbm.Dataset(matrix, labels, group=[a.candidates] * len(chosen), feature_name=[n.replace(" ", "_") for n in NAMES])
    booster = lightgbm.train(PARAMETERS, data, num_boost_round=a.rounds)
    os.makedirs(os.path.dirname(os.path.abspath(a.out)), exist_ok=True)
    with open(a.out + ".part", "w", encoding="utf-8") as f:
        json.dump({"weights": features.weights, "mean_length": features.mean_length, "trees": booster.model_to_string()}, f)
    os.replace(a.out + ".part", a.out)
    print(f"{len(labels)} pairs, {a.rounds} trees, {time.monotonic() - begun:.1f} s: {a.out}")
    if a.test:
        queries, answers = read(os.path.join(a.data, "test.jsonl"))
        some = numpy.random.default_rng(SEED).choice(len(queries), min(a.test, len(queries)), replace=False)
        got = quality(features, booster, index, texts, intents, [queries[i] for i in some], answers[some], a.candidates)
        for name, (mrr, precision) in zip(("BM25", "ranker"), got):
            print(f"{name:7} MRR@10 {mrr:.3f}  precision@10 {precision:.3f}  ({len(some)} test questions)")


if __name__ == "__main__":
    main()
