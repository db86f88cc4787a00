"""Search Qdrant and Milvus by a similarity learned from what people chose.

`Client` and `AsyncClient` ask a running sidecar.
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
from .types import Answer, Calibration, Certificate, Hit, Id, Route, Search, Vector

__all__ = [
    "Answer",
    "AsyncClient",
    "Calibration",
    "Certificate",
    "Client",
    "DeadlineExceeded",
    "Forbidden",
    "Hit",
    "Id",
    "Internal",
    "Invalid",
    "LikenessError",
    "NotFound",
    "NotServable",
    "Overloaded",
    "Route",
    "Search",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "Vector",
    "__version__",
]
