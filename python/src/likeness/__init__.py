"""Search Qdrant and Milvus by a similarity learned from what people chose.

`Client` and `AsyncClient` ask a running sidecar. `fit_bilinear` and `fit_mol` learn a similarity from a log, and `evaluate` says
whether it is worth it.
"""

from ._version import __version__
from .client import AsyncClient, Client
from .errors import (
    DeadlineExceeded,
    Forbidden,
    Internal,
    Invalid,
    LikenessError,
    NotFound,
    NotServable,
    Overloaded,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from .fitting import CommandFailed, EvalReport, FitReport, evaluate, fit_bilinear, fit_mol
from .types import Answer, Calibration, Certificate, Event, Hit, Id, Receipt, Refusal, Route, Search, Vector

__all__ = [
    "Answer",
    "AsyncClient",
    "Calibration",
    "Certificate",
    "Client",
    "CommandFailed",
    "DeadlineExceeded",
    "EvalReport",
    "Event",
    "FitReport",
    "Forbidden",
    "Hit",
    "Id",
    "Internal",
    "Invalid",
    "LikenessError",
    "NotFound",
    "NotServable",
    "Overloaded",
    "Receipt",
    "Refusal",
    "Route",
    "Search",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "Vector",
    "__version__",
    "evaluate",
    "fit_bilinear",
    "fit_mol",
]
