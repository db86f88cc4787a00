"""How well a ranking of all items finds what test queries want."""

import dataclasses

import numpy as np

K = 10
BLOCK = 256


@dataclasses.dataclass
class Judged:
    reciprocal: np.ndarray  # 1 / rank of the first wanted item of each query, 0 beyond K
    recall: np.ndarray  # share of the wanted items in the first K


def judge(score, events, block=BLOCK):
    """Ranks all items, without those that were seen, by score(events), which returns a row of
    scores for each query. Items of equal scores rank by row."""
    reciprocal, recall = np.zeros(len(events)), np.zeros(len(events))
    for at in range(0, len(events), block):
        part = events.take(np.arange(at, min(at + block, len(events))))
        scores = np.array(score(part), np.float32)
        scores[np.repeat(np.arange(len(part)), [len(s) for s in part.seen]), np.concatenate(part.seen).astype(int)] = -np.inf
        for i, wanted in enumerate(part.wanted):
            ranks = np.array([1 + np.count_nonzero(scores[i] > scores[i, x]) + np.count_nonzero(scores[i, :x] == scores[i, x]) for x in wanted])
            reciprocal[at + i] = 1 / ranks.min() if ranks.min() <= K else 0
            recall[at + i] = np.mean(ranks <= K)
    return Judged(reciprocal, recall)


def difference(a, b, clusters):
    """Mean of a - b and its 95 % interval; the queries of a cluster win and lose together."""
    d = a - b
    mean = d.mean()
    _, of = np.unique(clusters, return_inverse=True)
    sums = np.bincount(of, d - mean)
    n = len(sums)
    error = np.sqrt((sums**2).sum() * n / max(1, n - 1)) / len(d)
    return {"mean": round(float(mean), 5), "low": round(float(mean - 1.96 * error), 5), "high": round(float(mean + 1.96 * error), 5)}
