"""The collections of bench/late: texts, and the state of every token of them in the last layer of all-MiniLM-L6-v2."""

import csv
import dataclasses
import io
import pathlib
import re
import sys
import zipfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bridge"))
import minilm  # noqa: E402

BATCH = 16
TOKENS = 256  # of a text that the model reads
TITLES = 1400  # of documents that are queries of the log


@dataclasses.dataclass
class Texts:
    """Texts of several unit vectors each: row by row, and the number of rows of each."""

    rows: np.ndarray
    counts: np.ndarray

    def __post_init__(self):
        self.starts = np.concatenate([[0], np.cumsum(self.counts)])

    def __len__(self):
        return len(self.counts)


@dataclasses.dataclass
class Collection:
    name: str
    items: Texts
    log: Texts  # queries that the companion learns from; no label is read
    tests: Texts
    wanted: list  # item rows of each test


class Tokens(minilm.MiniLM):
    """The state of each token in the last layer, in place of their mean."""

    def layer(self, x, mask, name):
        self.last = super().layer(x, mask, name)
        return self.last

    def states(self, texts, progress):
        self.tokenizer.enable_truncation(TOKENS)
        tokens = [e.ids for e in self.tokenizer.encode_batch(list(texts))]
        order, found = np.argsort([len(t) for t in tokens], kind="stable"), [None] * len(tokens)
        for at in range(0, len(order), BATCH):
            rows = order[at:at + BATCH]
            self.batch([tokens[r] for r in rows])
            for r, states in zip(rows, self.last):
                found[r] = states[:len(tokens[r])].astype(np.float16)
            print(f"{progress}: {at + len(rows)} of {len(order)} texts", file=sys.stderr, flush=True)
        return found


def states(texts, cache):
    """Unit token states of the texts, kept in a file."""
    if not cache.exists():
        found = Tokens().states(texts, cache.stem)
        np.savez(cache, rows=np.concatenate(found), counts=np.array([len(f) for f in found], np.int32))
    made = np.load(cache)
    rows = made["rows"].astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Texts(rows, made["counts"])


def collection(folder, name, documents, titles, log, tests, wanted):
    """Titles of documents are queries of the log, beside those that the data has."""
    made = {part: states(texts, folder / f"late-{name.lower()}-{part}.npz")
            for part, texts in (("items", documents), ("log", log + titles[:TITLES]), ("tests", tests))}
    return Collection(name, made["items"], made["log"], made["tests"], wanted)


def scifact(folder):
    with zipfile.ZipFile(folder / "scifact.zip") as archive:
        def rows(name):
            return list(csv.DictReader(io.TextIOWrapper(archive.open(name), encoding="utf-8")))

        documents, log, tests = rows("corpus_train.csv"), rows("claims_train.csv"), rows("claims_validation.csv")
    row_of = {int(d["doc_id"]): i for i, d in enumerate(documents)}
    asked = {}
    for row in tests:
        asked.setdefault(row["claim"], set()).update(row_of[int(d)] for d in row["cited_doc_ids"].strip("[]").split())
    return collection(folder, "SciFact", [f"{d['title']} {d['abstract']}" for d in documents], [d["title"] for d in documents],
                      sorted({row["claim"] for row in log} - set(asked)), list(asked), [np.array(sorted(w)) for w in asked.values()])


def cranfield(folder):
    def sections(name):
        for record in re.split(r"^\.I +\d+\s*$", (folder / name).read_text(encoding="utf-8"), flags=re.M)[1:]:
            parts = re.split(r"^\.([A-Z])\s*$", record, flags=re.M)
            yield {k: " ".join(v.split()) for k, v in zip(parts[1::2], parts[2::2])}

    documents, tests = list(sections("cran.all.1400")), [q["W"] for q in sections("cran.qry")]
    wanted = [[] for _ in tests]
    for line in (folder / "cranqrel").read_text(encoding="ascii").splitlines():
        query, document, grade = map(int, line.split()[:3])
        if 1 <= grade <= 4:  # 5 is of no interest
            wanted[query - 1].append(document - 1)
    asked = [q for q, w in enumerate(wanted) if w]
    return collection(folder, "Cranfield", [d["W"] or d["T"] for d in documents], [d["T"] for d in documents if d["T"]], [],
                      [tests[q] for q in asked], [np.array(sorted(wanted[q])) for q in asked])


READERS = {"scifact": scifact, "cranfield": cranfield}
