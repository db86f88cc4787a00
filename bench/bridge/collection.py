"""The collections and the pairs of embedding models between which a bridge is judged.

BANKING77 and SciFact are texts. Their models are all-MiniLM-L6-v2, an early exit of it, another pooling of it, the mean
of its word vectors, and LSA. Amazon Beauty is what people bought: its models are item2vec before and after more of the
histories, and PureSVD.
"""

import csv
import dataclasses
import io
import json
import sys
import zipfile

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

import minilm

sys.path.insert(0, str(minilm.ROOT / "bench" / "sets"))
import data as sets  # noqa: E402

SEED = 1
LSA = 256
QUESTIONS, ASKED = 2500, 1000  # of BANKING77: items and queries
DOCUMENTS, CLAIMS = 1000, 600  # of SciFact: the titles of papers that a claim cites, and of random ones
EVENTS = 6000  # of Amazon Beauty that ask


@dataclasses.dataclass
class Collection:
    """Vectors of the same items and queries by several models."""

    name: str
    items: dict  # matrices by model
    queries: dict
    wanted: list  # item rows of each query
    hidden: list  # item rows that no answer to a query has
    pairs: list  # (old, new) models


TEXT_PAIRS = [("lsa", "minilm"), ("early", "minilm"), ("minilm", "cls"), ("words", "minilm"), ("late", "minilm"), ("cls", "minilm")]


def texts(name, documents, queries, wanted, cache):
    """A collection of texts. Its vectors are kept in a file."""
    if not cache.exists():
        model = minilm.MiniLM()
        found = model.encode(documents + queries, progress=name)
        np.savez(cache, **{k: v.astype(np.float16) for k, v in found.items()})
    made = {k: sets.unit(v.astype(np.float32)) for k, v in np.load(cache).items()}
    made["minilm"] = made.pop("mean")
    made["lsa"] = lsa(documents, documents + queries)
    n = len(documents)
    return Collection(name, {k: v[:n] for k, v in made.items()}, {k: v[n:] for k, v in made.items()}, wanted, [()] * len(queries), TEXT_PAIRS)


def lsa(corpus, rows):
    """Latent semantic analysis: the greatest singular directions of the words' tf-idf."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(sublinear_tf=True).fit(corpus)
    svd = TruncatedSVD(LSA, algorithm="arpack", random_state=SEED).fit(words.transform(corpus))
    return sets.unit(svd.transform(words.transform(rows)))


def banking77(folder):
    def read(name, most):
        with open(sets.BANKING / f"{name}.jsonl", encoding="utf-8") as rows:
            rows = [json.loads(row) for row in rows]
        chosen = np.sort(np.random.default_rng(SEED).permutation(len(rows))[:most])
        return [rows[i]["text"] for i in chosen], np.array([rows[i]["item"] for i in chosen])

    (documents, topic), (queries, asked) = read("train", QUESTIONS), read("test", ASKED)
    return texts("BANKING77", documents, queries, [np.flatnonzero(topic == t) for t in asked], folder / "bridge-banking77.npz")


def scifact(folder):
    with zipfile.ZipFile(folder / "scifact.zip") as archive:
        def rows(name):
            return list(csv.DictReader(io.TextIOWrapper(archive.open(name), encoding="utf-8")))

        documents, claims = rows("corpus_train.csv"), {}
        for name in ("claims_train.csv", "claims_validation.csv"):
            for row in rows(name):
                claims.setdefault(row["claim"], set()).update(int(d) for d in row["cited_doc_ids"].strip("[]").split())
    cited = set().union(*claims.values())
    order = np.random.default_rng(SEED).permutation(len(documents))
    documents = sorted((documents[i] for i in order), key=lambda d: int(d["doc_id"]) not in cited)[:DOCUMENTS]
    row_of = {int(d["doc_id"]): i for i, d in enumerate(documents)}
    queries = [c for c in claims if any(d in row_of for d in claims[c])]
    queries = [queries[i] for i in np.random.default_rng(SEED).permutation(len(queries))[:CLAIMS]]
    wanted = [np.array(sorted(row_of[d] for d in claims[c] if d in row_of)) for c in queries]
    return texts("SciFact", [d["title"] for d in documents], queries, wanted, folder / "bridge-scifact.npz")


def beauty(folder):
    histories = {}
    with open(folder / "Beauty.txt", encoding="ascii") as lines:
        for line in lines:
            user, *items = map(int, line.split())
            histories.setdefault(user, []).extend(items)
    known = {x: i for i, x in enumerate(sorted({x for h in histories.values() for x in h}))}
    histories = [[known[x] for x in h] for h in histories.values()]
    early, late = [h[:len(h) - 3] for h in histories], [h[:-1] for h in histories]
    models = {"item2vec": sets.item_vectors(early, len(known)), "retrained": sets.item_vectors(late, len(known)), "svd": pure_svd(late, len(known))}
    asking = [u for u, h in enumerate(histories) if h[-1] not in h[:-1] and all(models[m][h[:-1]].any() for m in models)]
    asking = np.random.default_rng(SEED).permutation(asking)[:EVENTS]
    queries = {m: sets.unit(np.stack([sets.history_query(v, late[u]) for u in asking])) for m, v in models.items()}
    return Collection("Amazon Beauty", models, queries, [np.array([histories[u][-1]]) for u in asking], [np.unique(late[u]) for u in asking],
                      [("item2vec", "retrained"), ("svd", "retrained")])


def pure_svd(histories, items):
    """Item factors of the matrix of users and items (Cremonesi, Koren and Turrin 2010)."""
    users = np.repeat(np.arange(len(histories)), [len(h) for h in histories])
    matrix = scipy.sparse.csr_matrix((np.ones(len(users), np.float32), (users, np.concatenate(histories))), shape=(len(histories), items))
    _, _, v = scipy.sparse.linalg.svds(matrix, k=sets.DIM, v0=np.random.default_rng(SEED).standard_normal(min(matrix.shape)))
    return sets.unit(v.T)


READERS = {"banking77": banking77, "scifact": scifact, "beauty": beauty}
