"""What a budget of the ranker's calls finds, in NumPy: chooses λ, the number of supports
and the division of the calls among rounds on the queries of the tuning part.

    python budget.py --dir DIR --ranker boosted
"""

import argparse
import json
import pathlib

import numpy as np

import reference as ref


class Task:
    """A ranker's scores of the items for some queries (queries by items), the items'
    feature rows of a CUR fit, and the database's own scores."""

    def __init__(self, known, supports, scores, base, item_labels, labels, lam=0.0):
        self.items = ref.cur_items(known, supports, lam)
        self.supports = np.array(supports)
        self.scores, self.base, self.item_labels, self.labels = scores, base, item_labels, labels


def shares(calls, rounds, head):
    """Calls of every round: the first has head of an equal share more."""
    if rounds == 1:
        return [calls]
    first = int(round(calls * min(0.9, head / rounds)))
    rest = calls - first
    out = [first] + [rest // (rounds - 1)] * (rounds - 1)
    out[-1] += rest % (rounds - 1)
    return out


def refine(u, x, r, ridge):
    """argmin Σ(⟨x_i, u⟩ − r_i)² + λ‖u − u₀‖², λ = ridge·trace(XᵀX)/d; by queries."""
    gram = np.matmul(x.transpose(0, 2, 1), x)
    d = gram.shape[1]
    lam = ridge * np.trace(gram, axis1=1, axis2=2) / d
    gram += lam[:, None, None] * np.eye(d)
    right = np.einsum("qnd,qn->qd", x, r - np.einsum("qnd,qd->qn", x, u))
    return u + np.linalg.solve(gram, right[..., None])[..., 0]


def ask(task, calls, rounds, ridge, head=1.0, base_share=0.0):
    """The items that are asked of each query, supports first: rounds of the best of
    the approximation, of which the first takes a share from the database's order."""
    n = len(task.scores)
    asked = np.zeros(task.scores.shape, bool)
    lists = [np.tile(task.supports, (n, 1))]
    asked[:, task.supports] = True
    u = task.scores[:, task.supports].astype(np.float64)

    def take(order, k):
        s = np.where(asked, -np.inf, order)
        got = np.argsort(-s, axis=1, kind="stable")[:, :k]
        np.put_along_axis(asked, got, True, 1)
        lists.append(got)

    for i, k in enumerate(shares(calls - len(task.supports), rounds, head)):
        if i > 0:
            seen = np.concatenate(lists, 1)
            u = refine(u, task.items[seen], np.take_along_axis(task.scores, seen, 1), ridge)
        from_base = int(round(k * base_share)) if i == 0 else 0
        if from_base:
            take(task.base, from_base)
        if k > from_base:
            take(u @ task.items.T, k - from_base)
    return asked


def rerank(task, calls):
    asked = np.zeros(task.scores.shape, bool)
    np.put_along_axis(asked, ref.top(task.base, calls), True, 1)
    return asked


def judge(task, asked):
    """Recall of the ranker's own 10 and 100 best, and MRR@10 of the labels."""
    out = []
    for t in (10, 100):
        out.append(float(np.take_along_axis(asked, ref.top(task.scores, t), 1).mean()))
    best = ref.top(np.where(asked, task.scores, -np.inf), 10)
    hit = task.item_labels[best] == task.labels[:, None]
    out.append(float(np.where(hit.any(1), 1 / (1 + hit.argmax(1)), 0).mean()))
    return out


def load(folder, ranker, part):
    names = (f"{ranker}_{part}", f"base_{part}", "labels_items", f"labels_{part}")
    scores, base, items, labels = (np.load(folder / f"{n}.npy") for n in names)
    return scores, base.T, items, labels


def tune(folder, ranker):
    judged = load(folder, ranker, "judged")[0]
    known = judged[:, np.random.default_rng(1).permutation(judged.shape[1])[: int(0.7 * judged.shape[1])]]
    scores, base, items, labels = load(folder, ranker, "tune")
    chosen = ref.l2_greedy(known, 100)
    for calls in (50, 100, 200, 400):
        for m in (10, 20, 50, 100):
            if m >= calls:
                continue
            task = Task(known, chosen[:m], scores.T, base, items, labels)
            if m == 10:
                print(calls, "database's order", np.round(judge(task, rerank(task, calls)), 4), flush=True)
            for share in (0, 0.5):
                tell(task, calls, 1, 0, 1, share)
                tell(task, calls, 4, 0.1, 1, share)
                if calls == 100 and m == 20:  # what else there is to choose, once
                    for rounds, ridge, head in ((4, 0.001, 1), (4, 0.01, 1), (4, 1.0, 1), (4, 10.0, 1), (2, 0.1, 1), (3, 0.1, 1), (8, 0.1, 1), (4, 0.1, 2)):
                        tell(task, calls, rounds, ridge, head, share)


def tell(task, calls, rounds, ridge, head, share):
    found = np.round(judge(task, ask(task, calls, rounds, ridge, head, share)), 4)
    print(calls, f"m={len(task.supports)} rounds={rounds} ridge={ridge} head={head} base={share}", found, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=pathlib.Path, required=True)
    parser.add_argument("--ranker", required=True)
    args = parser.parse_args()
    tune(args.dir, args.ranker)


if __name__ == "__main__":
    main()
