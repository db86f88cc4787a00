"""Connections that are kept, and calls that are made again within a budget."""

import http.client
import random
import ssl
import threading
import time
from urllib.parse import urlsplit


class Budget:
    """Retries that are left: gRPC's throttle (A6). A failure takes one token of ten, a success gives back a tenth, and
    below half of them nothing is tried again, so that an outage costs at most about a tenth more calls."""

    def __init__(self) -> None:
        self._tokens, self._lock = 10.0, threading.Lock()

    def succeeded(self) -> None:
        with self._lock:
            self._tokens = min(10.0, self._tokens + 0.1)

    def failed(self) -> bool:
        """Takes a token; whether another try is allowed."""
        with self._lock:
            self._tokens = max(0.0, self._tokens - 1)
            return self._tokens > 5


class Connections:
    """Connections to one address, for any number of threads. Each is used by one call at a time."""

    def __init__(self, url: str, context: ssl.SSLContext | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"{url!r} is not a sidecar's URL: write http://host:port or https://host:port")
        self.secure, self.host = parts.scheme == "https", parts.hostname
        self._port, self._context = parts.port, context
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def _take(self) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            if self._idle:
                return self._idle.pop(), True
        if self.secure:
            context = self._context or ssl.create_default_context()
            return http.client.HTTPSConnection(self.host, self._port, context=context), False
        return http.client.HTTPConnection(self.host, self._port), False

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def call(self, method: str, path: str, body: bytes | None, headers: dict[str, str], deadline: float) -> tuple[int, dict[str, str], bytes]:
        """One request. A kept connection that the sidecar has closed meanwhile is replaced once. Raises OSError."""
        while True:
            connection, kept = self._take()  # kept ones run out, so that this ends
            left = deadline - time.monotonic()
            if left <= 0:
                connection.close()
                raise TimeoutError
            connection.timeout = left
            if connection.sock is not None:
                connection.sock.settimeout(left)
            try:
                connection.request(method, path, body, headers | {"Grpc-Timeout": f"{max(1, int(left * 1000))}m"})
                answer = connection.getresponse()
                data = answer.read()
            except TimeoutError:
                connection.close()
                raise
            except (OSError, http.client.HTTPException) as e:
                connection.close()
                if kept and not isinstance(e, ssl.SSLError):
                    continue
                raise ConnectionError(str(e) or type(e).__name__) from e
            with self._lock:
                if not answer.will_close:
                    self._idle.append(connection)
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, data


class Backoff:
    """Pauses between tries: by chance up to 50 ms, then 100 ms, so that callers do not come together."""

    def __init__(self, tries: int) -> None:
        self._tries, self._made = tries, 1

    def next(self, asked: float | None) -> float | None:
        """Seconds before another try, at least what the sidecar asked for; None after the last."""
        if self._made >= self._tries:
            return None
        self._made += 1
        return (asked or 0.0) + random.uniform(0, 0.025 * 2**self._made)
