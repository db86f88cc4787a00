"""Converts between the types of this package and the JSON of the API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import numpy as np

from . import errors
from .types import Answer, Calibration, Certificate, Event, Hit, Id, Receipt, Refusal, Route, Search, Vector


def numbers(vector: Vector) -> list[float]:
    """Converts a vector to JSON's numbers.

    Raises:
        Invalid: The vector has not exactly one dimension, or an element is not finite.
    """
    array = np.asarray(vector, dtype=np.float64)
    if array.ndim != 1:
        message = f"vector has the shape {array.shape}: a search takes one vector; use search_batch for several"
        raise errors.Invalid(message, "QUERY_INVALID", {"vector": "not one vector"})
    wrong = np.flatnonzero(~np.isfinite(array))
    if wrong.size:
        message = f"vector[{wrong[0]}] is {array[wrong[0]]}: every element must be finite"
        raise errors.Invalid(message, "QUERY_INVALID", {"vector": "not finite"})
    elements: list[float] = array.tolist()
    return elements


def from_search(s: Search) -> dict[str, Any]:
    """Converts a search, without its route."""
    query: dict[str, Any] = {"text": s.text, "context": dict(s.context or {})}
    if s.vector is not None:
        query["vector"] = numbers(s.vector)
    if s.vectors is not None:
        query["vectors"] = [{"values": numbers(v)} for v in s.vectors]
    if s.user_id is not None:
        query["user_id"] = str(s.user_id)
    request: dict[str, Any] = {"query": query, "k": s.k, "depth": s.depth, "require_exact": s.require_exact}
    request["filter"] = s.filter if isinstance(s.filter, str) else json.dumps(s.filter)
    if s.strategy:
        request["strategy"] = "STRATEGY_" + s.strategy.upper()
    if s.max_gap is not None:
        request["max_gap"] = s.max_gap
    if len(s.items):
        weighted = s.items.items() if isinstance(s.items, Mapping) else [(i, 1.0) for i in s.items]
        query["item_ids"] = [{"id": from_id(i), "weight": float(w)} for i, w in weighted]
        request["include_item_ids"] = s.include_items
    if len(s.exclude_ids):
        request["exclude_ids"] = [from_id(i) for i in s.exclude_ids]
    if s.calls is not None:
        request["calls"] = s.calls
    if s.rounds:
        request["rounds"] = s.rounds
    if s.mix is not None:
        request["mix"] = s.mix
    if s.stored_vector is not None:
        request["stored_vector"] = numbers(s.stored_vector)
    if s.user:
        request["user"] = s.user
    if s.payload is not False:
        request["payload"] = {"fields": [] if s.payload is True else list(s.payload)}
    return request


def from_id(value: Id) -> dict[str, Any]:
    """Converts an id."""
    if isinstance(value, str):
        return {"text": value}
    return {"number": str(value)} if value >= 0 else {"negative": str(value)}


def to_answer(data: Mapping[str, Any], request_id: str) -> Answer:
    """Converts a SearchResponse."""
    model, degraded = data.get("model") or {}, data.get("degraded")
    return Answer(
        hits=[_hit(h) for h in data["hits"]],
        certificate=_certificate(data.get("certificate") or {}),
        degraded=degraded["reason"] if degraded else None,
        model=model.get("name", ""),
        model_version=model.get("version", ""),
        strategy=_word(data.get("strategy", ""), "STRATEGY_"),
        timings={name: float(t.removesuffix("s")) for name, t in (data.get("timings") or {}).items() if t},
        request_id=request_id,
        answer_id=data.get("answer_id", ""),
    )


def from_event(e: Event) -> dict[str, Any]:
    """Converts an event of feedback."""
    event: dict[str, Any] = {"answer_id": e.answer_id, "item": from_id(e.item), "kind": e.kind, "weight": e.weight}
    if e.time is not None:
        event["time"] = datetime.fromtimestamp(e.time, timezone.utc).isoformat().replace("+00:00", "Z")
    if e.event_id:
        event["event_id"] = e.event_id
    return event


def to_receipt(data: Mapping[str, Any]) -> Receipt:
    """Converts a FeedbackResponse."""
    refused = [Refusal(r["index"], r["reason"], r["message"]) for r in data["refused"]]
    return Receipt(data["accepted"], data["known"], refused)


def to_result(data: Mapping[str, Any], request_id: str) -> Answer | errors.LikenessError:
    """Converts a SearchResult, one result of a batch."""
    if "error" in data:
        return errors.from_code(data["error"]["code"], data["error"]["message"])
    return to_answer(data["response"], request_id)


def to_route(data: Mapping[str, Any]) -> Route:
    """Converts a Route."""
    model = (data.get("model") or {}).get("name", "")
    return Route(data["name"], data["collection"], model, data["placement"], data["max_k"], dict(data))


def _hit(data: Mapping[str, Any]) -> Hit:
    payload = json.loads(data["payload_json"]) if data.get("payload_json") else None
    return Hit(_to_id(data["id"]), float(data["score"]), payload, data.get("ranked", False))


def _to_id(data: Mapping[str, Any]) -> Id:
    return data["text"] if "text" in data else int(data.get("number", data.get("negative", 0)))


def _certificate(data: Mapping[str, Any]) -> Certificate:
    calibration = data.get("calibration")
    return Certificate(
        status=_word(data.get("status", ""), "CERTIFICATE_STATUS_"),
        proof=_word(data.get("proof", ""), "PROOF_"),
        gap=_optional(data, "gap"),
        bound=_optional(data, "bound"),
        kth_score=_optional(data, "kth_score"),
        epsilon=float(data.get("epsilon", 0)),
        stop=_word(data.get("stop", ""), "STOP_"),
        depth=data.get("depth", 0),
        rounds=data.get("rounds", 0),
        candidates=int(data.get("candidates", 0)),
        calibration=_calibration(calibration) if calibration else None,
        uncalibrated=data.get("uncalibrated", ""),
        tied=data.get("tied", False),
        ordered=data.get("ordered", False),
        as_of=data.get("as_of"),
        rows_verified=data.get("rows_verified", False),
    )


def _calibration(data: Mapping[str, Any]) -> Calibration:
    return Calibration(data["recall"], data["share"], data["alpha"], int(data["queries"]), data["k"])


def _word(value: str, prefix: str) -> str:
    return value.removeprefix(prefix).lower().replace("unspecified", "")


def _optional(data: Mapping[str, Any], name: str) -> float | None:
    return None if data.get(name) is None else float(data[name])
