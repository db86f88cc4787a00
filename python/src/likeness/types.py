"""What a client asks, and what it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Id = int | str
"""The id of an item, as the store has it. Numbers of 64 bits are exact."""

Vector = Sequence[float] | np.ndarray[Any, Any]
"""A list of numbers, or anything that NumPy makes a one-dimensional array of, such as a PyTorch tensor."""


@dataclass(frozen=True, slots=True)
class Search:
    """One search on one route. Unset options are the route's.

    Attributes:
        route: The route's name, as configured.
        vector: The query vector.
        k: How many items are wanted.
        text: The query in words, for a route that makes the vector itself or whose ranker reads the words.
        user_id: The user, for a model with user-id embeddings.
        context: Named features, for a model that takes them.
        filter: A filter in the store's own language: a mapping for Qdrant, an expression for Milvus.
        strategy: Which first-stage searches are sent: per_embedding, average, combined, distilled or scan.
        depth: Rows asked of each first-stage search.
        max_gap: Search deeper until no missing item can exceed the K-th score by more than this.
        require_exact: Raise NotServable if the answer is not exact.
        payload: Whether payloads are wanted, or which of their fields.
        exclude_ids: Items that the answer must not have, such as those that a person has seen; at most 10,000.
        items: Items whose vectors' weighted mean is the query's vector, in its place: ids, or a weight for each id. The
            answer is without them.
        include_items: Let the answer have them.
        calls: How many items the route's ranker may score.
        rounds: In how many rounds it scores them; after each, likeness looks for better candidates.
        mix: Share of the first round that is taken from the database's own order, from 0 to 1.
        vectors: The query's vectors in place of ``vector``, for a model of kind late: rows of one length, at most 512.
        stored_vector: The query as the collection's own vectors were made, for ``mix``, where ``vector`` is another.
        user: Who asks, for the events of a route that keeps them; nothing else uses it.
    """

    route: str
    vector: Vector | None = None
    k: int = 10
    text: str = ""
    user_id: int | None = None
    context: Mapping[str, float] | None = None
    filter: str | Mapping[str, Any] = ""
    strategy: str = ""
    depth: int = 0
    max_gap: float | None = None
    require_exact: bool = False
    payload: bool | Sequence[str] = True
    exclude_ids: Sequence[Id] = ()
    items: Sequence[Id] | Mapping[Id, float] = ()
    include_items: bool = False
    calls: int | None = None
    rounds: int = 0
    mix: float | None = None
    stored_vector: Vector | None = None
    vectors: Sequence[Vector] | None = None
    user: str = ""


@dataclass(frozen=True, slots=True)
class Calibration:
    """An audited promise: recall at ``k`` is at least ``recall`` for a share of the queries.

    The promise is wrong with the probability ``alpha``.
    """

    recall: float
    share: float
    alpha: float
    queries: int
    k: int


@dataclass(frozen=True, slots=True)
class Certificate:
    """How far an answer can be from the exact one.

    Attributes:
        status: ``exact`` is proved. ``snapshot`` is proved of the data as of a time; later writes may be missing.
            ``calibrated`` is audited. ``unknown`` is neither.
        proof: How the answer was proved: inner_product, table_scan, bound_closed or exhausted.
        gap: The most by which a missing item can exceed the K-th score. None if no bound is known.
        bound: Upper bound of the score of every item that was not scored. None if no bound is known.
        kth_score: The K-th score. None if fewer items exist.
        epsilon: Rounding error of the scores.
        stop: What ended the search for more candidates.
        depth: Rows asked of each first-stage search in the last round.
        rounds: Rounds that were made.
        candidates: Items that were scored.
        calibration: The audited promise of a calibrated answer.
        uncalibrated: Why the answer does not carry its route's calibration.
        tied: An item outside the answer may score as much as the K-th.
        ordered: The order is the order of arithmetic without rounding.
        as_of: Of a snapshot: writes before this time (RFC 3339) are shown. None if the time is not known.
        rows_verified: Of a snapshot: the returned rows' scores were compared with what the database holds now.
    """

    status: str
    proof: str = ""
    gap: float | None = None
    bound: float | None = None
    kth_score: float | None = None
    epsilon: float = 0.0
    stop: str = ""
    depth: int = 0
    rounds: int = 0
    candidates: int = 0
    calibration: Calibration | None = None
    uncalibrated: str = ""
    tied: bool = False
    ordered: bool = False
    as_of: str | None = None
    rows_verified: bool = False


@dataclass(frozen=True, slots=True)
class Hit:
    """One item of an answer.

    Attributes:
        id: The item's id.
        score: The learned similarity, or the store's own score in a degraded answer.
        payload: The payload, if it was asked for.
        ranked: The score is a ranker's.
    """

    id: Id
    score: float
    payload: dict[str, Any] | None = None
    ranked: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a search.

    Attributes:
        hits: The items, best first.
        certificate: How far the answer can be from the exact one.
        degraded: Why the scores are the store's and not the similarity's. None if they are the similarity's.
        model: Name of the model.
        model_version: Version of the model.
        strategy: The strategy that was used.
        timings: Seconds that each step took, by name; ``total`` is the whole.
        request_id: The id of the call in the sidecar's log.
        answer_id: Names the answer in `Client.feedback`, on a route that keeps events.
    """

    hits: list[Hit]
    certificate: Certificate
    degraded: str | None = None
    model: str = ""
    model_version: str = ""
    strategy: str = ""
    timings: dict[str, float] = field(default_factory=dict)
    request_id: str = ""
    answer_id: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """What a person did with an item of an answer.

    Attributes:
        answer_id: The answer's, or ``answer`` of the proxy's ``likeness-status``.
        item: The item's id.
        kind: click, add, purchase or any other word.
        weight: How much it counts.
        time: When it happened, in seconds since 1970. None is now.
        event_id: Makes the event count once however often it is sent. Without it, answer, item and kind do.
    """

    answer_id: str
    item: Id
    kind: str = "click"
    weight: float = 1.0
    time: float | None = None
    event_id: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An event that was not kept: its place in the batch, a constant, and the reason for people."""

    index: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a batch of events. Accepted events are durable; ``known`` of them had been sent before."""

    accepted: int
    known: int
    refused: list[Refusal] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Route:
    """A route as the sidecar serves it. ``raw`` has every field of the message Route in proto/likeness/v1."""

    name: str
    collection: str
    model: str
    placement: str
    max_k: int
    raw: dict[str, Any] = field(repr=False, default_factory=dict)
