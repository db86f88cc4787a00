"""Fits and evaluates similarities with the binary that the wheel carries, on arrays, frames and files."""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from . import _binary
from .types import Id

Rows = Any
"""Vectors: a path (.npy, .safetensors, .parquet), an array of one row each, or a frame with the columns ``id`` and
``vector``. A frame is anything with columns, such as of pandas or polars. Items may be None, where ``config`` and
``collection`` say where they are. Queries may be texts, of which ``embedder`` makes the vectors; each is its own id."""

Pairs = Any
"""A log of choices: a path (.csv, .jsonl, .parquet), a frame with the columns ``query`` and ``item``, and perhaps
``weight`` and ``time``, or pairs of a query and an item. Both are ids, or row numbers where there are no ids."""


class CommandFailed(RuntimeError):
    """The binary refused its input or failed.

    Attributes:
        code: Its exit code: 2 for an input that is not valid.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class FitReport:
    """What a fit found. It shows itself in a notebook.

    Attributes:
        path: The model file.
        recommendation: What to do with the model, in words.
        warnings: What to be careful of.
        gain: What held-out queries gain in MRR@10 over the plain inner product.
        standard_error: The standard error of that gain.
        data: The whole report, as ``likeness fit --output json`` prints it.
        plot: An SVG of the fit's spectrum; empty where the fit drew none.
    """

    path: Path
    recommendation: str
    warnings: list[str]
    gain: float
    standard_error: float
    data: dict[str, Any] = field(repr=False)
    plot: str = field(repr=False, default="")

    def __str__(self) -> str:
        return "\n".join([*self._lines(), *(f"warning: {w}" for w in self.warnings)])

    def _lines(self) -> list[str]:
        lines = self.recommendation.splitlines()
        measure = "nDCG@10" if self.data.get("measure") == "ndcg@10" else "MRR@10"
        for name, key in (("held-out queries", "logged"), ("held-out items, as without logs", "cold")):
            if part := self.data.get(key):
                lines.append(
                    f"{name}: {measure} {part['value']:.4f}, {part['baseline']:.4f} by the plain inner product "
                    f"({part['gain']:+.4f} ± {part['standard_error']:.4f}, {part['queries']} queries)"
                )
        return lines

    def _repr_html_(self) -> str:
        head, *rest = (html.escape(line) for line in self._lines())
        paragraphs = "".join(f"<p>{line}</p>" for line in rest)
        warnings = "".join(f"<p><em>Warning: {html.escape(w)}</em></p>" for w in self.warnings)
        return f"<div><p><strong>{head}</strong></p>{paragraphs}{warnings}{self.plot}</div>"


@dataclass(frozen=True)
class EvalReport:
    """Whether a model is worth it. It shows itself in a notebook.

    Attributes:
        answer: ``yes``, ``no`` or ``unclear``.
        choose: Name of the model to take; empty if none is.
        text: The verdict in words.
        data: The whole report, as ``likeness eval --output json`` prints it.
        html: The report as a page with plots.
    """

    answer: str
    choose: str
    text: list[str]
    data: dict[str, Any] = field(repr=False)
    html: str = field(repr=False)

    def __str__(self) -> str:
        return "\n".join(self.text)

    def _repr_html_(self) -> str:
        # In a frame of its own: the page brings styles, which would change the notebook's.
        style = "width:100%;height:40em;border:0"
        return f'<iframe srcdoc="{html.escape(self.html)}" sandbox style="{style}"></iframe>'


def fit_bilinear(
    items: Rows,
    queries: Rows,
    pairs: Pairs,
    out: str | os.PathLike[str],
    *,
    item_ids: Sequence[Id] | None = None,
    query_ids: Sequence[Id] | None = None,
    overwrite: bool = False,
    progress: IO[str] | None | bool = True,
    **options: Any,
) -> FitReport:
    """Learns W of φ(q, x) = qᵀWx from a log of what people chose, over the vectors as they are stored.

    Args:
        items: The vectors of the items.
        queries: The vectors of the queries.
        pairs: The log.
        out: The model file to write, ``.safetensors``.
        item_ids: Ids of the items' rows, where ``items`` is an array.
        query_ids: Ids of the queries' rows, where ``queries`` is an array.
        overwrite: Replace a model that is there.
        progress: Where the progress is written: stderr, a file, or nowhere (False).
        **options: Flags of ``likeness fit bilinear``, such as ``form="low_rank"``, ``rank=32``, ``cold="guard"``,
            ``config="likeness.yaml"``, ``collection="products"``.

    Raises:
        CommandFailed: The input is not valid, or the fit failed.

    Example:
        >>> report = likeness.fit_bilinear(items, queries, log, "products.safetensors")
        >>> print(report.recommendation)
    """
    with tempfile.TemporaryDirectory(prefix="likeness-") as folder:
        if options.get("form", "full") == "full":  # the others have no spectrum
            options = {"plot": Path(folder, "spectrum.svg")} | options
        inputs = _inputs(Path(folder), items, queries, pairs, item_ids, query_ids)
        return _fit("bilinear", inputs, out, overwrite, progress, options)


def fit_mol(
    items: Rows,
    queries: Rows,
    pairs: Pairs,
    out: str | os.PathLike[str],
    *,
    item_ids: Sequence[Id] | None = None,
    query_ids: Sequence[Id] | None = None,
    overwrite: bool = False,
    progress: IO[str] | None | bool = True,
    **options: Any,
) -> FitReport:
    """Learns a Mixture-of-Logits from a log. The arguments are those of `fit_bilinear`.

    Args:
        **options: Flags of ``likeness fit mol``, such as ``gates="full"``, ``pairs_query=8``.
    """
    with tempfile.TemporaryDirectory(prefix="likeness-") as folder:
        inputs = _inputs(Path(folder), items, queries, pairs, item_ids, query_ids)
        return _fit("mol", inputs, out, overwrite, progress, options)


def evaluate(
    models: str | os.PathLike[str] | FitReport | Iterable[str | os.PathLike[str] | FitReport],
    items: Rows,
    queries: Rows,
    pairs: Pairs,
    *,
    item_ids: Sequence[Id] | None = None,
    query_ids: Sequence[Id] | None = None,
    trained_pairs: Pairs | None = None,
    k: int = 10,
    progress: IO[str] | None | bool = True,
    **options: Any,
) -> EvalReport:
    """Says whether a model is worth it, how sure that is, and which of several is the simplest as good as the best.

    Args:
        models: A model file, the report of a fit, or several of either.
        items: The vectors of the items.
        queries: The vectors of queries that the fit has not seen.
        pairs: What people chose for those.
        item_ids: Ids of the items' rows, where ``items`` is an array.
        query_ids: Ids of the queries' rows, where ``queries`` is an array.
        trained_pairs: The log of the fit, which tells popular, rare and unseen items apart.
        k: Length of an answer.
        progress: As in `fit_bilinear`.
        **options: Flags of ``likeness eval``, such as ``baseline="dot"``, ``confidence=0.99``.

    Raises:
        CommandFailed: The input is not valid, or the evaluation failed.
    """
    several = [models] if isinstance(models, str | os.PathLike | FitReport) else list(models)
    with tempfile.TemporaryDirectory(prefix="likeness-") as folder:
        page = Path(folder, "report.html")
        arguments = _inputs(Path(folder), items, queries, pairs, item_ids, query_ids)
        if trained_pairs is not None:
            arguments["trained_pairs"] = _pairs(Path(folder), "trained", trained_pairs)
        arguments |= {"model": [m.path if isinstance(m, FitReport) else m for m in several], "k": k, "html": page}
        data = _run(["eval"], arguments | options, progress)
        verdict = data.get("verdict") or {}
        return EvalReport(
            verdict.get("answer", ""), verdict.get("choose", ""), verdict.get("text", []), data, page.read_text()
        )


def _fit(
    kind: str,
    inputs: dict[str, Any],
    out: str | os.PathLike[str],
    overwrite: bool,
    progress: IO[str] | None | bool,
    options: dict[str, Any],
) -> FitReport:
    data = _run(["fit", kind], inputs | {"out": out, "force": overwrite} | options, progress)
    logged, plot = data.get("logged") or {}, Path(options.get("plot", ""))
    return FitReport(
        Path(out),
        data.get("recommendation", ""),
        data.get("warnings") or [],
        logged.get("gain", float("nan")),
        logged.get("standard_error", float("nan")),
        data,
        plot.read_text() if plot.is_file() else "",
    )


def _run(command: list[str], options: dict[str, Any], progress: IO[str] | None | bool) -> dict[str, Any]:
    """Runs the binary, copies its progress, and returns its JSON.

    Raises:
        CommandFailed: It ended with another exit code than 0. The message is what it said last.
    """
    arguments = [str(_binary.path()), *command, "--output", "json"]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for v in value if isinstance(value, list) else [value]:
            arguments.append(f"{flag}={str(v).lower() if isinstance(v, bool) else v}")
    to = sys.stderr if progress is True else progress or None
    said: list[str] = []
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(arguments, stdout=output, stderr=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stderr is not None
            for line in process.stderr:
                said.append(line)
                if to is not None:
                    to.write(line)
                    to.flush()
        except BaseException:
            process.terminate()  # a fit writes the best that it has
            raise
        code = process.wait()
        output.seek(0)
        if code != 0:
            raise CommandFailed("".join(said[-10:]).strip() or f"likeness {command[0]} ended with {code}", code)
        report: dict[str, Any] = json.load(output)
        return report


def _inputs(
    folder: Path,
    items: Rows,
    queries: Rows,
    pairs: Pairs,
    item_ids: Sequence[Id] | None,
    query_ids: Sequence[Id] | None,
) -> dict[str, Any]:
    """Returns the flags of the inputs, which are written into a folder where they are no files."""
    return {
        **_rows(folder, "items", "item_ids", items, item_ids),
        **_rows(folder, "queries", "query_ids", queries, query_ids),
        "pairs": _pairs(folder, "pairs", pairs),
    }


def _rows(folder: Path, name: str, ids_name: str, rows: Rows, ids: Sequence[Id] | None) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    if rows is None:
        return flags
    if isinstance(rows, str | os.PathLike):
        flags[name] = rows
    elif isinstance(rows, Sequence) and rows and all(isinstance(r, str) for r in rows):
        flags[name] = _lines(folder / f"{name}.jsonl", ({"query": text} for text in rows))
    else:
        if _is_frame(rows):
            _need(rows, name, "vector")
            if ids is None and "id" in rows.columns:
                ids = list(rows["id"])
            rows = list(rows["vector"])
        vectors = np.asarray(rows, dtype=np.float32)
        if vectors.ndim != 2:
            raise ValueError(f"{name} have the shape {vectors.shape}: want a matrix, one row a vector")
        if ids is not None and len(ids) != len(vectors):
            raise ValueError(f"{name} have {len(vectors)} rows, and {len(ids)} ids")
        flags[name] = folder / f"{name}.npy"
        np.save(flags[name], vectors)
    if ids is not None:
        flags[ids_name] = _ids(folder / f"{name}.ids", ids)
    return flags


def _ids(file: Path, ids: Sequence[Id]) -> Path:
    texts = [str(i) for i in ids]
    for i, text in enumerate(texts):
        if not text or "\n" in text or "\r" in text:
            raise ValueError(f"id {i} is {text!r}: an id is one line of text")
    file.write_text("\n".join(texts) + "\n")
    return file.rename(file.with_suffix(".txt"))


def _pairs(folder: Path, name: str, pairs: Pairs) -> str | os.PathLike[str]:
    if isinstance(pairs, str | os.PathLike):
        return pairs
    if _is_frame(pairs):
        _need(pairs, name, "query", "item")
        columns = [c for c in ("query", "item", "weight", "time") if c in pairs.columns]
        rows: Iterable[Mapping[str, Any]] = (
            dict(zip(columns, row, strict=True)) for row in zip(*(list(pairs[c]) for c in columns), strict=True)
        )
    else:
        rows = (p if isinstance(p, Mapping) else dict(zip(("query", "item", "weight"), p, strict=False)) for p in pairs)
    return _lines(folder / f"{name}.jsonl", rows)


def _lines(file: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    with file.open("w") as lines:
        for row in rows:
            lines.write(json.dumps(row, default=_plain) + "\n")
    return file


def _is_frame(value: Any) -> bool:
    return hasattr(value, "columns") and hasattr(value, "__getitem__")


def _need(frame: Any, name: str, *columns: str) -> None:
    for column in columns:
        if column not in frame.columns:
            has = ", ".join(map(str, frame.columns))
            raise ValueError(f"the frame of {name} has no column {column!r}; it has {has}")


def _plain(value: Any) -> Any:
    """Converts what JSON does not know: numbers of NumPy, and times of pandas and of the standard library."""
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "isoformat"):
        text: str = value.isoformat()
        return text if value.tzinfo else text + "Z"
    raise TypeError(f"{value!r} is of the type {type(value).__name__}, which a log cannot hold")
