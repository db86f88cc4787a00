"""What the ranker sees of a query and an item's text: eighteen numbers, from the words alone."""

import math
import re
from collections import Counter
from functools import lru_cache

import numpy

NAMES = (
    "bm25",
    "bm25 / query",
    "bm25 of the item as query",
    "words in common",
    "jaccard",
    "weight in common",
    "weighted jaccard",
    "query covered",
    "item covered",
    "greatest weight in common",
    "greatest weight missing",
    "trigrams dice",
    "pairs in common",
    "edit similarity",
    "first words in common",
    "query words",
    "item words",
    "words ratio",
)
_WORD = re.compile(r"[a-z0-9']+")


LONGEST = 1000  # characters that count


class Text:
    """A text taken apart, once."""

    __slots__ = ("words", "counts", "trigrams", "pairs")

    def __init__(self, text):
        text = text.lower()
        self.words = _WORD.findall(text)
        self.counts = Counter(self.words)
        self.trigrams = {text[i : i + 3] for i in range(max(1, len(text) - 2))}
        self.pairs = set(zip(self.words, self.words[1:]))


@lru_cache(maxsize=20000)
def _parse(text):
    return Text(text)


def parse(text):
    return _parse(text[:LONGEST])


class Features:
    """The numbers of pairs, with word weights learned from a collection of texts."""

    def __init__(self, weights, mean_length):
        self.weights, self.mean_length = weights, mean_length
        self._unseen = max(weights.values(), default=1.0)

    @classmethod
    def of(cls, texts):
        """Weights are inverse document frequencies as BM25 has them (Robertson and Zaragoza, 2009)."""
        seen, total = Counter(), 0
        for text in map(parse, texts):
            seen.update(text.counts.keys())
            total += len(text.words)
        n = len(texts)
        return cls({w: math.log(1 + (n - c + 0.5) / (c + 0.5)) for w, c in seen.items()}, total / n)

    def weight(self, word):
        return self.weights.get(word, self._unseen)

    def bm25(self, query, item):
        norm = 1.2 * (0.25 + 0.75 * len(item.words) / self.mean_length)
        return sum(self.weight(w) * c * 2.2 / (c + norm) for w, c in item.counts.items() if w in query.counts)

    def matrix(self, query, items):
        """A row for each of the items, the columns are NAMES."""
        q = parse(query)
        best = self.bm25(q, q) or 1.0
        return numpy.array([self._row(q, best, parse(text)) for text in items], dtype=numpy.float64).reshape(-1, len(NAMES))

    def _row(self, q, best, x):
        common = q.counts.keys() & x.counts.keys()
        union = len(q.counts) + len(x.counts) - len(common)
        shared = [self.weight(w) for w in common]
        missing = [self.weight(w) for w in q.counts if w not in common]
        # Sets have another order in every process, so sums are exact.
        shared_sum, query_sum = math.fsum(shared), math.fsum(shared + missing)
        item_sum = math.fsum(map(self.weight, x.counts))
        bm25 = self.bm25(q, x)
        return (
            bm25,
            bm25 / best,
            self.bm25(x, q),
            len(common),
            len(common) / (union or 1),
            shared_sum,
            shared_sum / ((query_sum + item_sum - shared_sum) or 1),
            shared_sum / (query_sum or 1),
            shared_sum / (item_sum or 1),
            max(shared, default=0.0),
            max(missing, default=0.0),
            2 * len(q.trigrams & x.trigrams) / (len(q.trigrams) + len(x.trigrams)),
            len(q.pairs & x.pairs),
            1 - edits(q.words, x.words) / max(len(q.words), len(x.words), 1),
            sum(a == b for a, b in zip(q.words[:3], x.words[:3])),
            len(q.words),
            len(x.words),
            len(x.words) / (len(q.words) or 1),
        )


def edits(a, b):
    """Words to insert, delete or replace to make b of a (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, wa in enumerate(a, 1):
        left, corner = i, i - 1
        for j, wb in enumerate(b, 1):
            up = row[j]
            here = corner if wa == wb else 1 + min(corner, up, left)
            row[j - 1], left, corner = left, here, up
        row[-1] = left
    return row[-1]
