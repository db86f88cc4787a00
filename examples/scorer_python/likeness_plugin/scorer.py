"""What a scorer is given, and what becomes of its scores."""

import json
import math
import struct
from collections.abc import Sequence
from typing import Any, Optional, Union

try:  # vectors are arrays where NumPy is installed, and tuples elsewhere
    import numpy
except ImportError:
    numpy = None


class QueryError(ValueError):
    """The scorer cannot read this query (INVALID_ARGUMENT)."""


class TooLarge(ValueError):
    """More items or bytes than the scorer takes at once; half of them may do (RESOURCE_EXHAUSTED)."""


class Unavailable(RuntimeError):
    """The scorer cannot answer now; the same call may succeed later (UNAVAILABLE)."""


class Query:
    """What was asked.

    text is "" and vector None where the caller sent none; user_id is None or a number;
    context has named numbers.
    """

    __slots__ = ("text", "vector", "user_id", "context", "_asked")

    def __init__(self, query: Any, asked: Any):
        self._asked = asked
        self.text: str = query.text
        self.vector = None
        if query.vector:
            self.vector = tuple(query.vector) if numpy is None else numpy.array(query.vector, "<f4")
        self.user_id: Optional[int] = query.user_id if query.HasField("user_id") else None
        self.context: dict[str, float] = {c.key: c.value for c in query.context}

    @property
    def cancelled(self) -> bool:
        """The caller has gone or its deadline has passed: a slow scorer looks now and then, and stops."""
        return self._asked.gone()


class Item:
    """One item to score."""

    __slots__ = ("_items", "_row")

    def __init__(self, items: "Items", row: int):
        self._items, self._row = items, row

    @property
    def id(self) -> Union[int, str]:
        return self._items.ids[self._row]

    @property
    def payload(self) -> dict[str, Any]:
        """The fields that were asked for; empty for an item without."""
        return self._items.payloads[self._row]

    @property
    def vector(self):
        """float32, read-only; None unless vectors were asked for."""
        vectors = self._items.vectors
        return None if vectors is None else vectors[self._row]


class Items(Sequence):
    """The items of a call, in order. Payloads and vectors are decoded when they are asked for.

    ids are numbers and texts, as the database has them.
    """

    def __init__(self, request: Any):
        self._request, self._count = request, len(request.ids)
        self.ids: list[Union[int, str]] = [i.number for i in request.ids]
        if 0 in self.ids:  # or another kind of id
            self.ids = [i.number or _other_id(i, r) for r, i in enumerate(request.ids)]
        self._payloads: Optional[list[dict[str, Any]]] = None
        self._vectors: Any = None
        payloads, size = len(request.payloads), len(request.vectors)
        if payloads and payloads != self._count:
            raise QueryError(f"{payloads} payloads for {self._count} ids; send one an item, or none")
        if size and (not self._count or size % (4 * self._count)):
            raise QueryError(f"{size} bytes are no {self._count} vectors of float32")

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row):
        if isinstance(row, slice):
            return [Item(self, r) for r in range(*row.indices(self._count))]
        if row < 0:
            row += self._count
        if not 0 <= row < self._count:
            raise IndexError(f"item {row} of {self._count}")
        return Item(self, row)

    def __iter__(self):
        return (Item(self, r) for r in range(self._count))

    @property
    def payloads(self) -> list[dict[str, Any]]:
        """The fields of every item that were asked for; empty for an item without."""
        if self._payloads is None:
            self._payloads = _payloads(self._request.payloads) or [{}] * self._count
        return self._payloads

    @property
    def vectors(self):
        """A float32 array with a row an item (a list of tuples without NumPy), read-only; None without vectors."""
        data = self._request.vectors if self._vectors is None else b""
        if data and numpy is not None:
            self._vectors = numpy.frombuffer(data, "<f4").reshape(self._count, -1)
        elif data:
            self._vectors = list(struct.iter_unpack(f"<{len(data) // 4 // self._count}f", data))
        return self._vectors


def _other_id(item: Any, row: int) -> Union[int, str]:
    if item.HasField("number"):
        return item.number
    if item.HasField("negative"):
        return item.negative
    if item.HasField("text"):
        return item.text
    raise QueryError(f"ids[{row}] is empty; send a number or a text")


def _payloads(texts: Sequence[str]) -> list[dict[str, Any]]:
    """All in one call of the parser, which is four times as fast; one by one to name what is wrong."""
    try:
        found = json.loads("[" + ",".join([t or "{}" for t in texts]) + "]")
        if len(found) == len(texts) and all(type(f) is dict for f in found):
            return found
    except ValueError:
        pass
    found = []
    for row, t in enumerate(texts):
        try:
            found.append(json.loads(t or "{}"))
        except ValueError as e:
            raise QueryError(f"the payload of item {row} is no JSON: {e}") from None
        if type(found[-1]) is not dict:
            raise QueryError(f"the payload of item {row} is no JSON object")
    return found


def checked(scores: Any, count: int) -> list[float]:
    """The scores of count items, which float32 can hold; NaN (or None) is no score."""
    scores = scores.reshape(-1).tolist() if hasattr(scores, "tolist") else list(scores)
    if len(scores) != count:
        raise ValueError(f"{len(scores)} scores for {count} items; return one an item, NaN for one that has none")
    try:
        struct.pack(f"{count}f", *scores)  # quicker than a look at each
        if math.inf not in scores and -math.inf not in scores:
            return scores
    except (OverflowError, struct.error):
        pass
    scores = [math.nan if s is None else float(s) for s in scores]
    for row, score in enumerate(scores):
        if abs(score) > 3.4028235e38:
            raise ValueError(f"the score of item {row} is {score}; return what float32 holds, or NaN for none")
    return scores
