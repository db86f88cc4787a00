"""A gRPC server for one scorer: threads that take turns at reading a connection."""

import collections
import contextlib
import logging
import socket
import ssl
import threading
import time
from typing import Any, Callable, Iterable, Optional
from urllib.parse import quote

from .http2 import INTERNAL_ERROR, Connection, Plain, ProtocolError, Secure, Stream, literal

INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 3, 4, 5, 8, 12, 13, 14

HANDSHAKE_SECONDS = 20.0
_OK_STATUS = b"\x88"  # :status 200, in HTTP/2's static table
_HEAD = _OK_STATUS + literal(b"content-type", b"application/grpc+proto")
_DONE = literal(b"grpc-status", b"0")

log = logging.getLogger("likeness_plugin")


class Failed(Exception):
    """A call's end, as its caller sees it."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status, self.message = status, message

    def tail(self) -> bytes:
        text = quote(self.message, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~").encode()
        return _HEAD + literal(b"grpc-status", b"%d" % self.status) + literal(b"grpc-message", text)


def message_of(stream: Stream, limit: int) -> bytes:
    """The one message of a call."""
    size = stream.length()
    if size is not None and size > limit:
        raise Failed(RESOURCE_EXHAUSTED, f"the request has {size} bytes, the limit is {limit} (max_bytes); send fewer items")
    data = b"".join(stream.parts)
    stream.parts = []
    if size is None or data[0] or len(data) != size + 5:
        raise Failed(UNIMPLEMENTED, "one message, not compressed, is expected")
    return data[5:]


def _framed(message: bytes) -> bytes:
    return b"\x00" + len(message).to_bytes(4, "big") + message


class Methods:
    """What a server answers, by path.

    quick(message) answers at once; lasting(message) is the first message, or None, of a
    call that then only waits; scored(stream, message) takes a thread. All raise Failed.
    """

    def __init__(self) -> None:
        self.quick: dict[bytes, Callable[[bytes], bytes]] = {}
        self.lasting: dict[bytes, Callable[[bytes], Optional[bytes]]] = {}
        self.endless: set[bytes] = set()  # of lasting: the request does not end
        self.scored: dict[bytes, Callable[[Stream, bytes], bytes]] = {}
        self.limits: dict[bytes, int] = {}  # bytes of a message
        self.limit = 1 << 16  # of the others

    def largest(self, path: bytes) -> int:
        return self.limits.get(path, self.limit)


class _Peer:
    """A connection and the threads that take turns at reading it."""

    def __init__(self, connection: Connection):
        self.connection = connection
        self.reading = threading.Lock()
        self.threads = self.waiting = 0  # guarded by the server's lock


class Server:
    """Scores `parallel` calls at a time, over all connections.

    The thread that has read a call scores it, and leaves the reading to another: a call
    is handed to no other thread, and health is told meanwhile.
    """

    def __init__(self, methods: Methods, parallel: int):
        self._methods, self._parallel = methods, parallel
        self._lock = threading.Condition()  # guards what follows
        self._free = parallel
        self._calls = 0  # that wait or are scored; one whose caller has gone counts
        self._queue: collections.deque[tuple[Connection, Stream]] = collections.deque()
        self._listeners: list[socket.socket] = []
        self._peers: set[_Peer] = set()
        self._draining = False

    def listen(self, listener: socket.socket, context: Optional[ssl.SSLContext] = None) -> None:
        self._listeners.append(listener)
        _thread(self._accept, listener, context)

    def drain(self, seconds: float) -> bool:
        """Refuses new calls and waits for those that run; whether all are done."""
        with self._lock:
            self._draining = True
            return self._lock.wait_for(lambda: not self._calls, seconds)

    @property
    def draining(self) -> bool:
        return self._draining

    def close(self) -> None:
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            peers = list(self._peers)
        for peer in peers:
            peer.connection.close()

    def _accept(self, listener: socket.socket, context: Optional[ssl.SSLContext]) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                if listener.fileno() < 0:
                    return
                time.sleep(0.01)  # too many files: until others have ended
                continue
            _thread(self._serve, sock, context)

    def _serve(self, sock: socket.socket, context: Optional[ssl.SSLContext]) -> None:
        try:
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(HANDSHAKE_SECONDS)
            transport = Secure(sock, context) if context else Plain(sock)
            sock.settimeout(None)
        except (OSError, EOFError) as e:
            log.warning("a connection was not taken: %s", e or "it ended")
            return sock.close()
        peer = _Peer(Connection(transport, self._methods.endless, self._methods.largest))
        with self._lock:
            self._peers.add(peer)
            peer.threads = 1
        self._follow(peer)

    def _follow(self, peer: _Peer) -> None:
        """The life of a thread of a connection."""
        while True:
            with self._lock:
                peer.waiting += 1
            with peer.reading:
                with self._lock:
                    peer.waiting -= 1
                stream = self._next(peer.connection)
                if stream is None:
                    break
                with self._lock:
                    alone = not peer.waiting and peer.threads <= self._parallel
                    peer.threads += alone
                if alone:
                    _thread(self._follow, peer)
            self._work(peer.connection, stream)
        with self._lock:
            self._peers.discard(peer)

    def _next(self, c: Connection) -> Optional[Stream]:
        """Reads, and answers what is quick, until there is a call to score and room for it."""
        while True:
            try:
                stream = c.read()
            except (EOFError, OSError):
                return c.close()
            except ProtocolError as e:
                log.warning("a connection was closed: %s", e)
                return c.close(e.code)
            except Exception:
                log.exception("a connection was closed")
                return c.close(INTERNAL_ERROR)
            try:
                if self._admit(c, stream):
                    return stream
            except Failed as e:
                c.fail(stream, e.tail())

    def _admit(self, c: Connection, stream: Stream) -> bool:
        """Whether the call is to be scored by this thread, now."""
        m, path = self._methods, stream.path
        if path in m.scored:
            if self._draining:
                raise Failed(UNAVAILABLE, "the plugin is shutting down")
            stream.parts = [message_of(stream, m.largest(path))]
            with self._lock:
                self._calls += 1
                if self._free:
                    self._free -= 1
                    return True
                self._queue.append((c, stream))
        elif path in m.quick:
            c.answer(stream, _HEAD, _framed(m.quick[path](message_of(stream, m.largest(path)))), _DONE)
        elif path in m.lasting:
            first = m.lasting[path](b"" if path in m.endless else message_of(stream, m.largest(path)))
            c.begin(stream, _HEAD, b"" if first is None else _framed(first))
        else:
            raise Failed(UNIMPLEMENTED, "the plugin has no such method")
        return False

    def _work(self, c: Connection, stream: Stream) -> None:
        """Scores a call, and then those that wait."""
        while True:
            self._score(c, stream)
            with self._lock:
                self._calls -= 1
                if not self._queue:
                    self._free += 1
                    self._lock.notify_all()
                    return
                c, stream = self._queue.popleft()

    def _score(self, c: Connection, stream: Stream) -> None:
        try:
            answer = b"" if stream.gone() else self._methods.scored[stream.path](stream, stream.parts.pop())
            if stream.gone():
                raise Failed(DEADLINE_EXCEEDED, "the deadline passed before the answer was there")
            c.answer(stream, _HEAD, _framed(answer), _DONE)
        except Failed as e:
            c.fail(stream, e.tail())


def _thread(run: Callable[..., Any], *args: Any) -> None:
    threading.Thread(target=run, args=args, daemon=True).start()
