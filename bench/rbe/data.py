"""The collection of the experiments: BANKING77's questions, a base vector that was
made from their texts, and the split that keeps evaluated things unseen.

Items are 2,000 of the 10,003 train questions, queries 900 of the 3,080 test
questions; relevant is an item of the query's intent. The other 8,003 train
questions are what rankers learn from: no ranker sees the text or the label of an
item or of a query before it scores them.
"""

import json
import multiprocessing
import pathlib

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "examples" / "data" / "banking77"
SEED = 1
ITEMS = 2000
QUERIES = 900
BASE_DIM = 64
TUNE = 200  # of the queries


def read(name):
    rows = [json.loads(line) for line in open(DATA / name, encoding="utf-8")]
    return [r["text"] for r in rows], np.array([r["item"] for r in rows])


class Split:
    """texts and labels of what is learned from, the items and the queries."""

    def __init__(self):
        rng = np.random.default_rng(SEED)
        texts, labels = read("train.jsonl")
        order = rng.permutation(len(texts))
        items, learn = np.sort(order[:ITEMS]), np.sort(order[ITEMS:])
        self.learn_texts, self.learn_labels = [texts[i] for i in learn], labels[learn]
        self.item_texts, self.item_labels = [texts[i] for i in items], labels[items]
        texts, labels = read("test.jsonl")
        queries = np.sort(rng.permutation(len(texts))[:QUERIES])
        self.query_texts, self.query_labels = [texts[i] for i in queries], labels[queries]


def base_vectors(split, dim=BASE_DIM):
    """LSA of character n-grams, unit length: fitted to the texts that are learned
    from and the items, which a database knows; no label is used."""
    tfidf = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), min_df=3)
    known = tfidf.fit_transform(split.learn_texts + split.item_texts)
    svd = TruncatedSVD(dim, random_state=SEED).fit(known)
    return [normalize(svd.transform(tfidf.transform(t))).astype(np.float32)
            for t in (split.learn_texts, split.item_texts, split.query_texts)]


def top(scores, k):
    """Columns of the k highest of every row, best first, of equal ones the first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def mrr(best, item_labels, query_labels):
    """MRR@10 of lists of items, and the mean of every query's."""
    hit = item_labels[best[:, :10]] == query_labels[:, None]
    return np.where(hit.any(1), 1 / (1 + hit.argmax(1)), 0.0)


def quality(scores, base, split):
    """What a ranker is worth beside the base dot product; both queries by items."""
    ranked, based = top(scores, 100), top(base, 100)
    found = np.mean([len(np.intersect1d(a, b)) for a, b in zip(ranked, based)]) / 100
    return {
        "mrr_at_10": round(float(mrr(ranked, split.item_labels, split.query_labels).mean()), 4),
        "base_mrr_at_10": round(float(mrr(based, split.item_labels, split.query_labels).mean()), 4),
        "base_finds_of_top_100": round(float(found), 4),
    }


def each_query(score, split, workers):
    """The scores that score(query) returns first, a row a query, and what it returned
    second at last; workers processes share the queries."""
    global _score
    _score = score
    order, rows, other, done = np.random.default_rng(SEED).permutation(len(split.query_texts)), None, None, []
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        for query, (row, other) in pool.imap(_scored, order, 4):
            rows = np.zeros((len(order), len(row)), np.float32) if rows is None else rows
            rows[query] = row
            done.append(query)
            if len(done) % 100 == 0:
                found = mrr(top(rows[done], 10), split.item_labels, split.query_labels[done]).mean()
                print(f"{len(done)} queries of {len(order)}, MRR so far {found:.4f}", flush=True)
    return rows, other


def _scored(query):
    return query, _score(query)


def save(out, name, scores, base_items, base_queries, split):
    """Leaves a ranker's scores, items by queries, in two parts: queries whose scores
    choose λ and the like, and those that tables judge; and the database's scores,
    with its vectors of the items and of the queries that are judged."""
    base = base_items @ base_queries.T
    order = np.random.default_rng(SEED).permutation(scores.shape[1])
    for part, columns in (("tune", np.sort(order[:TUNE])), ("judged", np.sort(order[TUNE:]))):
        np.save(out / f"{name}_{part}.npy", np.ascontiguousarray(scores[:, columns]))
        np.save(out / f"base_{part}.npy", np.ascontiguousarray(base[:, columns]))
        np.save(out / f"labels_{part}.npy", split.query_labels[columns].astype(np.int64))
    np.save(out / "base_items.npy", base_items)
    np.save(out / "base_queries.npy", base_queries[np.sort(order[TUNE:])])
    np.save(out / "labels_items.npy", split.item_labels.astype(np.int64))
