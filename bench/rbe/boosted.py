"""Ranker (a): gradient-boosted trees over features of a pair of questions, trained
on pairs of the questions that are neither items nor queries (same intent or not).

    python boosted.py --out DIR    # DIR/boosted_judged.npy, boosted_tune.npy: scores, items by queries; boosted.json
"""

import argparse
import json
import os
import pathlib
import re
import time

import lightgbm
import numpy as np
import scipy.sparse as sp
from rapidfuzz import distance, fuzz, process
from sklearn.decomposition import TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.preprocessing import normalize

import data

INTENTS = 4003  # questions that the discriminant analysis learns from; pairs are of the others
NEAR, RANDOM = 16, 8  # of a question's list: the nearest by each of three measures, and random ones
PRODUCTS, METRICS = 32, 16  # leading dimensions whose products are features
WORD = re.compile(r"[a-z0-9']+")
TREES = {
    "objective": "lambdarank", "learning_rate": 0.08, "num_leaves": 31, "min_data_in_leaf": 60,
    "feature_fraction": 0.6, "bagging_fraction": 0.8, "bagging_freq": 1, "lambda_l2": 5.0, "lambdarank_truncation_level": 20,
    "seed": data.SEED, "deterministic": True, "force_row_wise": True, "num_threads": 1, "verbose": -1,
}
ROUNDS = 300


class Known:
    """What is learned from texts without their labels: vocabularies, weights of words,
    LSA vectors, and vectors of words (PPMI of words that share a text, SVD)."""

    def __init__(self, texts):
        self.tfidf, self.svd = {}, {}
        for name, make in VECTORS.items():
            self.tfidf[name] = make()
            self.svd[name] = TruncatedSVD(64, random_state=data.SEED).fit(self.tfidf[name].fit_transform(texts))
        self.counter = CountVectorizer(token_pattern=WORD.pattern, min_df=2)
        self.trigrams = CountVectorizer(analyzer="char_wb", ngram_range=(3, 3), binary=True, min_df=2).fit(texts)
        counts = self.counter.fit_transform(texts)
        n, found = counts.shape[0], np.asarray((counts > 0).sum(0)).ravel()
        self.idf = np.log(1 + (n - found + 0.5) / (found + 0.5)).astype(np.float32)
        self.mean_length = np.asarray(counts.sum(1)).mean()
        seen = (counts > 0).astype(np.float64)
        together = (seen.T @ seen).tocoo()
        margin = np.asarray(sp.csr_matrix(together).sum(1)).ravel()
        pmi = np.maximum(0, np.log(together.data * together.data.sum() / (margin[together.row] * margin[together.col])))
        self.word_vectors = normalize(TruncatedSVD(64, random_state=data.SEED).fit_transform(
            sp.csr_matrix((pmi, (together.row, together.col)), together.shape))).astype(np.float32)


class Texts:
    """What is known of single texts; row i of everything is text i."""

    def __init__(self, known, texts):
        self.words = [WORD.findall(t.lower()) for t in texts]
        self.texts = [" ".join(w) for w in self.words]
        self.word_count = np.array([len(w) for w in self.words], np.float32)
        self.char_count = np.array([len(t) for t in texts], np.float32)
        self.asks = np.array(["?" in t for t in texts], np.float32)
        self.denies = np.array([bool(re.search(r"n't|\bnot?\b|never|cannot", t.lower())) for t in texts], np.float32)
        self.number = np.array([bool(re.search(r"[0-9$£€]", t)) for t in texts], np.float32)
        self.first = np.array([" ".join(w[:1]) for w in self.words])
        self.second = np.array([" ".join(w[:2]) for w in self.words])
        self.last = np.array([" ".join(w[-1:]) for w in self.words])
        self.sparse = {name: v.transform(texts).tocsr().astype(np.float32) for name, v in known.tfidf.items()}
        self.dense = {name: normalize(svd.transform(self.sparse[name])).astype(np.float32) for name, svd in known.svd.items()}
        counts = known.counter.transform(texts).tocsr().astype(np.float32)
        self.present = (counts > 0).astype(np.float32).tocsr()
        self.heavy = self.present.multiply(known.idf).tocsr()
        self.idf_sum = np.asarray(self.heavy.sum(1)).ravel()
        norm = 1.2 * (0.25 + 0.75 * np.asarray(counts.sum(1)).ravel() / known.mean_length)
        rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        counts.data = counts.data * 2.2 / (counts.data + norm[rows])
        self.bm25 = counts.multiply(known.idf).tocsr().astype(np.float32)
        self.grams = known.trigrams.transform(texts).tocsr().astype(np.float32)
        self.gram_count = np.asarray(self.grams.sum(1)).ravel()
        self.meaning = np.zeros((len(texts), LONGEST, 64), np.float32), np.zeros((len(texts), LONGEST), np.float32)
        for i, words in enumerate(self.words):
            ids = [known.counter.vocabulary_[w] for w in words if w in known.counter.vocabulary_][:LONGEST]
            self.meaning[0][i, :len(ids)], self.meaning[1][i, :len(ids)] = known.word_vectors[ids], known.idf[ids]

    def vectors(self):
        return np.concatenate(list(self.dense.values()), 1)

    def use(self, intents):
        """The embedding that was learned from labels, and what it takes the intent for."""
        self.metric = intents.transform(self.vectors()).astype(np.float32)
        self.intent = intents.predict_proba(self.vectors()).astype(np.float32)


LONGEST = 24
VECTORS = {
    "char": lambda: TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), min_df=3),
    "char5": lambda: TfidfVectorizer(analyzer="char_wb", ngram_range=(5, 5), min_df=2, sublinear_tf=True),
    "word": lambda: TfidfVectorizer(token_pattern=WORD.pattern, sublinear_tf=True, min_df=2),
    "content": lambda: TfidfVectorizer(stop_words="english", sublinear_tf=True, min_df=2),
    "pair": lambda: TfidfVectorizer(token_pattern=WORD.pattern, ngram_range=(2, 3), sublinear_tf=True, min_df=2),
}


def dots(a, i, b, j):
    """Inner products of rows i of a with rows j of b."""
    if sp.issparse(a):
        return np.asarray(a[i].multiply(b[j]).sum(1)).ravel().astype(np.float32)
    return np.einsum("ij,ij->i", a[i], b[j])


def share(x, of):
    return x / np.maximum(of, 1e-6)


def features(q, i, x, j):
    """The features of the pairs (text i of q, text j of x), and their names."""
    out = {}
    for name in VECTORS:
        out[f"cosine_{name}"] = dots(q.sparse[name], i, x.sparse[name], j)
    for name in q.dense:
        a, b = q.dense[name][i], x.dense[name][j]
        product, gap = a * b, np.abs(a - b)
        out[f"lsa_{name}_dot"] = product.sum(1)
        out[f"lsa_{name}_gap_sum"], out[f"lsa_{name}_gap_max"] = gap.sum(1), gap.max(1)
        out[f"lsa_{name}_product_min"] = product.min(1)
        for d in range({"char": PRODUCTS, "content": PRODUCTS // 2}.get(name, 0)):
            out[f"lsa_{name}_product_{d}"] = product[:, d]
    a, b = q.metric[i], x.metric[j]
    out["metric_dot"], out["metric_gap"] = (a * b).sum(1), ((a - b) ** 2).sum(1)
    out["metric_cosine"] = out["metric_dot"] / np.sqrt((a * a).sum(1) * (b * b).sum(1))
    for d in range(METRICS):
        out[f"metric_product_{d}"] = a[:, d] * b[:, d]
    a, b = q.intent[i], x.intent[j]
    out["intent_dot"], out["intent_same"] = (a * b).sum(1), (a.argmax(1) == b.argmax(1)).astype(np.float32)
    out["intent_sure_query"], out["intent_sure_item"] = a.max(1), b.max(1)
    common = dots(q.present, i, x.present, j)
    nq, nx = q.word_count[i], x.word_count[j]
    out["common_words"], out["jaccard_words"] = common, share(common, nq + nx - common)
    out["query_words_found"], out["item_words_found"] = share(common, nq), share(common, nx)
    both = q.heavy[i].multiply(x.present[j]).tocsr()
    weight = np.asarray(both.sum(1)).ravel()
    wq, wx = q.idf_sum[i], x.idf_sum[j]
    out["common_idf"], out["jaccard_idf"] = weight, share(weight, wq + wx - weight)
    out["query_idf_found"], out["item_idf_found"] = share(weight, wq), share(weight, wx)
    out["rarest_common"] = np.asarray(both.max(1).todense()).ravel()
    out["rarest_missing_in_item"] = np.asarray((q.heavy[i] - both).max(1).todense()).ravel()
    out["rarest_missing_in_query"] = np.asarray((x.heavy[j] - x.heavy[j].multiply(q.present[i])).max(1).todense()).ravel()
    out["bm25_item_by_query"] = dots(q.present, i, x.bm25, j)
    out["bm25_query_by_item"] = dots(q.bm25, i, x.present, j)
    grams = dots(q.grams, i, x.grams, j)
    gq, gx = q.gram_count[i], x.gram_count[j]
    out["jaccard_grams"], out["grams_found"] = share(grams, gq + gx - grams), share(grams, np.minimum(gq, gx))
    tq, tx = [q.texts[k] for k in i], [x.texts[k] for k in j]
    for name, scorer in EDITS.items():
        out[name] = process.cpdist(tq, tx, scorer=scorer, dtype=np.float32, workers=1)
    out.update(aligned(q, i, x, j))
    out["words_query"], out["words_item"] = nq, nx
    out["words_gap"], out["words_ratio"] = np.abs(nq - nx), share(np.minimum(nq, nx), np.maximum(nq, nx))
    out["chars_ratio"] = share(np.minimum(q.char_count[i], x.char_count[j]), np.maximum(q.char_count[i], x.char_count[j]))
    for name in ("asks", "denies", "number"):
        out[f"both_{name}"] = getattr(q, name)[i] + 2 * getattr(x, name)[j]
    for name in ("first", "second", "last"):
        out[f"same_{name}"] = (getattr(q, name)[i] == getattr(x, name)[j]).astype(np.float32)
    return np.stack([v.astype(np.float32) for v in out.values()], 1), list(out)


EDITS = {
    "edit_ratio": fuzz.ratio, "edit_partial": fuzz.partial_ratio, "edit_sorted": fuzz.token_sort_ratio,
    "edit_set": fuzz.token_set_ratio, "levenshtein": distance.Levenshtein.normalized_similarity,
    "jaro_winkler": distance.JaroWinkler.similarity, "subsequence": distance.LCSseq.normalized_similarity,
}


def aligned(q, i, x, j):
    """The idf-weighted mean and the least of every word's best counterpart, both ways."""
    (vq, wq), (vx, wx) = q.meaning, x.meaning
    s = np.matmul(vq[i], vx[j].transpose(0, 2, 1))
    a, b = wq[i], wx[j]
    s = np.where((a[:, :, None] > 0) & (b[:, None, :] > 0), s, 0)
    best_q, best_x = s.max(2), s.max(1)
    least = lambda best, w: np.where(w > 0, best, 2).min(1)
    return {
        "aligned_query": share((best_q * a).sum(1), a.sum(1)), "aligned_item": share((best_x * b).sum(1), b.sum(1)),
        "worst_query": least(best_q, a), "worst_item": least(best_x, b),
        "loss_query": ((1 - best_q) * a).max(1), "loss_item": ((1 - best_x) * b).max(1),
    }


def training_pairs(y, texts, base, some, rng):
    """For every question of some those of the others that the base vector, the learned
    embedding or the n-grams take for near, and random ones, one list behind the other;
    and the lists' lengths. What is near by one measure and of another intent is what a
    ranker has to tell apart, and lists of one measure's alone have too little of it."""
    unit = normalize(texts.metric)
    measures = base[some] @ base[some].T, unit[some] @ unit[some].T, (texts.sparse["char"][some] @ texts.sparse["char"][some].T).toarray()
    left, right, lengths = [], [], []
    for k, i in enumerate(some):
        row = set(rng.choice(len(some), RANDOM))
        for scores in measures:
            row.update(np.argpartition(-scores[k], NEAR)[:NEAR])
        row = some[sorted(row - {k})]
        right.append(row)
        left.append(np.full(len(row), i))
        lengths.append(len(row))
    left, right = np.concatenate(left), np.concatenate(right)
    return left, right, (y[left] == y[right]).astype(np.float32), lengths


def in_blocks(n, size):
    return [(a, min(a + size, n)) for a in range(0, n, size)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--workers", type=int, default=1, help="processes that score")
    args = parser.parse_args()
    out = args.out
    started, split = time.process_time(), data.Split()
    base_learn, base_items, base_queries = data.base_vectors(split)
    order, known = np.random.default_rng(data.SEED).permutation(len(split.learn_texts)), Known(split.learn_texts)
    learn, items, queries = (Texts(known, t) for t in (split.learn_texts, split.item_texts, split.query_texts))
    some = order[:INTENTS]
    intents = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto", n_components=76)
    intents.fit(learn.vectors()[some], split.learn_labels[some])
    for t in (learn, items, queries):
        t.use(intents)
    kept = out / "boosted.txt"
    if kept.exists():  # a run that was stopped goes on from here
        trees = lightgbm.Booster(model_file=kept)
    else:
        i, j, same, lengths = training_pairs(split.learn_labels, learn, base_learn, order[INTENTS:], np.random.default_rng(data.SEED))
        rows = [features(learn, i[a:b], learn, j[a:b]) for a, b in in_blocks(len(i), 20000)]
        names = rows[0][1]
        print(f"{len(i)} pairs of {len(names)} features, {time.process_time() - started:.0f} s", flush=True)
        trees = lightgbm.train(TREES, lightgbm.Dataset(np.concatenate([r[0] for r in rows]), same, group=lengths, feature_name=names), ROUNDS)
        trees.save_model(kept)
    trained = time.process_time() - started
    print(f"trained, {trained:.0f} s", flush=True)

    def score(query):
        n = len(split.item_texts)
        rows, names = features(queries, np.full(n, query), items, np.arange(n))
        return trees.predict(rows, raw_score=True, num_threads=1), len(names)

    scores, counts = data.each_query(score, split, args.workers)
    data.save(out, "boosted", scores.T, base_items, base_queries, split)
    report = {"ranker": "boosted", "seed": data.SEED, "features": counts, "trees": ROUNDS,
              "cpu_seconds": {"training": round(trained), "scoring": round(sum(os.times()[:4]) - trained)},
              **data.quality(scores, base_queries @ base_items.T, split)}
    (out / "boosted.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
