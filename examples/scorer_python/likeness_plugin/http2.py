"""One connection of HTTP/2, as much of it as a gRPC server needs (RFC 9113).

What a frame costs is added to every call of a scorer, and libraries for any use of
HTTP/2 took more of a call's time than all the rest. hpack reads the headers.
"""

import socket
import ssl
import struct
import threading
from time import monotonic
from typing import Callable, Container, Iterator, Optional

import hpack

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FRAME_SIZE_ERROR, REFUSED_STREAM, COMPRESSION_ERROR = 0, 1, 2, 6, 7, 9

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME = 16384  # bytes of the largest that either side sends
HEADER_BYTES = 1 << 15  # of one call
STREAMS = 1000  # at a time
# Of a stream and of a connection: a large request comes without a stop for window updates.
WINDOW, FIRST_WINDOW = 16 << 20, 65535

_head = struct.Struct(">BHBBI")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    n = len(payload)
    return _head.pack(n >> 16, n & 0xFFFF, kind, flags, stream) + payload


def headers(stream: int, block: bytes, flags: int = 0) -> bytes:
    """A block of headers, in as many frames as it takes."""
    if len(block) <= FRAME:
        return frame(HEADERS, flags | END_HEADERS, stream, block)
    out = [frame(HEADERS, flags, stream, block[:FRAME])]
    for at in range(FRAME, len(block), FRAME):
        last = at + FRAME >= len(block)
        out.append(frame(CONTINUATION, END_HEADERS if last else 0, stream, block[at : at + FRAME]))
    return b"".join(out)


def literal(name: bytes, value: bytes) -> bytes:
    """A header that no table remembers (RFC 7541, section 6.2.2), so that any thread can write one."""
    return b"\x00" + _text(name) + _text(value)


def _text(b: bytes) -> bytes:
    n = len(b)
    if n < 127:
        return bytes((n,)) + b
    n, size = n - 127, bytearray(b"\x7f")
    while n >= 128:
        size.append(n & 127 | 128)
        n >>= 7
    size.append(n)
    return bytes(size) + b


def _number(n: int) -> bytes:
    return n.to_bytes(4, "big")


class ProtocolError(Exception):
    """The peer broke the protocol; code is what it is told."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code


class Plain:
    """A socket. One thread receives while others send."""

    def __init__(self, sock: socket.socket):
        self._sock, self._sending = sock, threading.Lock()

    def receive(self) -> bytes:
        """What came; EOFError is the end."""
        data = self._sock.recv(1 << 18)
        if not data:
            raise EOFError
        return data

    def send(self, data: bytes) -> None:
        with self._sending:
            self._sock.sendall(data)

    def close(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes who receives
        except OSError:
            pass
        self._sock.close()


class Secure(Plain):
    """TLS on a socket. OpenSSL's state is touched under a lock, the socket is waited for without."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext):
        super().__init__(sock)
        self._in, self._out, self._state = ssl.MemoryBIO(), ssl.MemoryBIO(), threading.Lock()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        while True:
            try:
                self._tls.do_handshake()
                return self.send(b"")
            except ssl.SSLWantReadError:
                self.send(b"")
                self._in.write(super().receive())

    def receive(self) -> bytes:
        while True:
            parts = []
            with self._state:
                try:
                    while data := self._tls.read(FRAME):
                        parts.append(data)
                    raise EOFError
                except ssl.SSLWantReadError:
                    answers = self._out.pending
            if answers:
                self.send(b"")
            if parts:
                return b"".join(parts)
            data = super().receive()
            with self._state:
                self._in.write(data)

    def send(self, data: bytes) -> None:
        with self._sending:  # records go in the order in which they were made
            with self._state:
                if data:
                    self._tls.write(data)
                data = self._out.read()
            self._sock.sendall(data)


class Stream:
    """A call: what came of it, and whether somebody waits for its answer."""

    __slots__ = ("id", "path", "until", "parts", "size", "got", "window", "open", "cancelled")

    def __init__(self, number: int, path: bytes, until: float, window: int):
        self.id, self.path, self.until = number, path, until
        self.parts: list[bytes] = []  # of the request
        self.size = 0
        self.got = 0  # bytes since the peer's window was updated
        self.window = window  # that the peer leaves us
        self.open = True  # the peer may send more
        self.cancelled = False

    def gone(self) -> bool:
        """Nobody waits any more."""
        return self.cancelled or monotonic() > self.until

    def length(self) -> Optional[int]:
        """Of its first message, as it says itself; None before it does."""
        if self.size < 5:
            return None
        if len(self.parts[0]) < 5:
            self.parts = [b"".join(self.parts)]
        return int.from_bytes(self.parts[0][1:5], "big")


_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


def _deadline(timeout: bytes) -> float:
    unit = _UNITS.get(timeout[-1:])
    if unit is None or not timeout[:-1].isdigit():
        return float("inf")
    return monotonic() + int(timeout[:-1]) * unit


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ProtocolError(PROTOCOL_ERROR, "more padding than there is")
    return payload[1 : len(payload) - payload[0]]


class Connection:
    """One peer. One thread reads at a time, any can answer.

    endless has the paths of calls whose request does not end; largest(path) is how long
    a message may be, which is looked at before its bytes are waited for.
    """

    def __init__(self, transport: Plain, endless: Container[bytes], largest: Callable[[bytes], int]):
        self._transport, self._endless, self._largest = transport, endless, largest
        self._decoder = hpack.Decoder(max_header_list_size=HEADER_BYTES)
        self._frames = self._read_frames()
        self._block: Optional[tuple[int, int, bytes]] = None  # headers that go on: stream, flags, bytes
        self._got = 0  # bytes since the peer's window was updated
        self._last = 0  # stream that the peer began
        self._room = threading.Condition()  # guards what follows
        self._streams: dict[int, Stream] = {}
        self._window, self._first_window = FIRST_WINDOW, FIRST_WINDOW  # that the peer leaves us

    def read(self) -> Stream:
        """The next call whose request is there, or is too long. EOFError, OSError and ProtocolError are the end."""
        for kind, flags, number, payload in self._frames:
            if self._block is not None and kind != CONTINUATION:
                raise ProtocolError(PROTOCOL_ERROR, "a frame among headers")
            stream = None
            if kind == DATA:
                stream = self._take_data(flags, number, payload)
            elif kind == HEADERS:
                block = _unpadded(flags, payload)
                stream = self._take_block(flags, number, block[5:] if flags & PRIORITY else block)
            elif kind == CONTINUATION:
                stream = self._take_continuation(flags, number, payload)
            else:
                self._take_control(kind, flags, number, payload)
            if stream is not None:
                return stream
        raise EOFError

    def _read_frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        settings = struct.pack(">HIHIHI", 3, STREAMS, 4, WINDOW, 6, HEADER_BYTES)
        self._send(frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, _number(WINDOW - FIRST_WINDOW)))
        buffer = b""
        while len(buffer) < len(PREFACE) and PREFACE.startswith(buffer):
            buffer += self._transport.receive()
        if not buffer.startswith(PREFACE):
            raise ProtocolError(PROTOCOL_ERROR, "this is no HTTP/2")
        at = len(PREFACE)
        while True:
            while len(buffer) - at >= 9:
                high, low, kind, flags, number = _head.unpack_from(buffer, at)
                size = high << 16 | low
                if size > FRAME:
                    raise ProtocolError(FRAME_SIZE_ERROR, f"a frame of {size} bytes")
                end = at + 9 + size
                if end > len(buffer):
                    break
                payload, at = buffer[at + 9 : end], end
                yield kind, flags, number & 0x7FFFFFFF, payload
            buffer, at = buffer[at:] + self._transport.receive(), 0

    def _take_block(self, flags: int, number: int, block: bytes) -> Optional[Stream]:
        if not flags & END_HEADERS:
            self._block = number, flags, block
            return None
        try:
            fields = dict(self._decoder.decode(block, raw=True))
        except hpack.HPACKError as e:
            raise ProtocolError(COMPRESSION_ERROR, f"headers: {e}") from None
        stream = self._streams.get(number)
        if stream is None:
            return self._begin(flags, number, fields)
        stream.open = not flags & END_STREAM  # these are trailers
        return None if stream.open or stream.path in self._endless else stream

    def _begin(self, flags: int, number: int, fields: dict[bytes, bytes]) -> Optional[Stream]:
        if number <= self._last:
            return None  # trailers of a call that has ended
        if not number & 1:
            raise ProtocolError(PROTOCOL_ERROR, f"a client's stream {number}")
        self._last = number
        stream = Stream(number, fields.get(b":path", b""), _deadline(fields.get(b"grpc-timeout", b"")), self._first_window)
        stream.open = not flags & END_STREAM
        with self._room:
            refused = len(self._streams) >= STREAMS
            if not refused:
                self._streams[number] = stream
        if refused:
            self._send(frame(RST_STREAM, 0, number, _number(REFUSED_STREAM)))
            return None
        return stream if not stream.open or stream.path in self._endless else None

    def _take_continuation(self, flags: int, number: int, more: bytes) -> Optional[Stream]:
        if self._block is None or self._block[0] != number or len(self._block[2]) + len(more) > HEADER_BYTES:
            raise ProtocolError(PROTOCOL_ERROR, "headers that nobody began, or too many of them")
        _, first, block = self._block
        self._block = None
        return self._take_block(first | flags & END_HEADERS, number, block + more)

    def _take_data(self, flags: int, number: int, payload: bytes) -> Optional[Stream]:
        self._got += len(payload)
        if self._got > WINDOW // 2:
            self._send(frame(WINDOW_UPDATE, 0, 0, _number(self._got)))
            self._got = 0
        stream = self._streams.get(number)
        if stream is None or not stream.open:
            return None
        stream.got += len(payload)
        stream.open = not flags & END_STREAM
        if stream.open and stream.got > WINDOW // 2:
            self._send(frame(WINDOW_UPDATE, 0, number, _number(stream.got)))
            stream.got = 0
        if stream.path in self._endless:
            return None
        payload = _unpadded(flags, payload)
        stream.parts.append(payload)
        stream.size += len(payload)
        too_long = stream.size >= 5 and max(stream.length(), stream.size - 5) > self._largest(stream.path)
        return stream if too_long or not stream.open else None

    def _take_control(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == PING and not flags & ACK:
            self._send(frame(PING, ACK, 0, payload))
        elif kind == SETTINGS and not flags & ACK:
            self._set(payload)
            self._send(frame(SETTINGS, ACK, 0))
        elif kind == RST_STREAM:
            with self._room:
                stream = self._streams.pop(number, None)
                if stream is not None:
                    stream.cancelled = True
                    self._room.notify_all()
        elif kind == WINDOW_UPDATE and len(payload) == 4:
            more = int.from_bytes(payload, "big") & 0x7FFFFFFF
            with self._room:
                if number == 0:
                    self._window += more
                elif number in self._streams:
                    self._streams[number].window += more
                self._room.notify_all()

    def _set(self, payload: bytes) -> None:
        for at in range(0, len(payload) - 5, 6):
            name, value = struct.unpack_from(">HI", payload, at)
            if name == 4:  # the window of new streams, and of those that there are
                with self._room:
                    for stream in self._streams.values():
                        stream.window += value - self._first_window
                    self._first_window = value
                    self._room.notify_all()

    def _send(self, data: bytes) -> None:
        try:
            self._transport.send(data)
        except OSError:
            pass  # who reads sees the end

    def begin(self, stream: Stream, head: bytes, message: bytes = b"") -> None:
        """Headers and a message of a call that does not end."""
        self._send(headers(stream.id, head) + self._in_frames(stream, message, self._grant(stream, len(message))))

    def answer(self, stream: Stream, head: bytes, message: bytes, tail: bytes) -> None:
        """Headers, a message and trailers. It waits for room at the peer."""
        out, at = headers(stream.id, head), 0
        while True:
            n = self._grant(stream, len(message) - at)
            out += self._in_frames(stream, message[at:] if at else message, n)
            at += n
            if at == len(message):
                return self._end(stream, out + headers(stream.id, tail, END_STREAM))
            self._send(out)
            out = b""
            with self._room:
                self._room.wait_for(lambda: stream.cancelled or min(self._window, stream.window) > 0)
            if stream.cancelled:
                return

    def _grant(self, stream: Stream, n: int) -> int:
        """How many of n bytes the peer has room for; they are taken."""
        with self._room:
            n = max(0, min(n, self._window, stream.window))
            self._window -= n
            stream.window -= n
        return n

    @staticmethod
    def _in_frames(stream: Stream, message: bytes, n: int) -> bytes:
        if n <= FRAME:
            return frame(DATA, 0, stream.id, message[:n]) if n else b""
        return b"".join(frame(DATA, 0, stream.id, message[at : min(at + FRAME, n)]) for at in range(0, n, FRAME))

    def fail(self, stream: Stream, tail: bytes) -> None:
        """Trailers alone."""
        self._end(stream, headers(stream.id, tail, END_STREAM))

    def _end(self, stream: Stream, data: bytes) -> None:
        with self._room:
            if self._streams.pop(stream.id, None) is None:
                return  # cancelled
        if stream.open:
            data += frame(RST_STREAM, 0, stream.id, _number(NO_ERROR))
        self._send(data)

    def close(self, code: int = NO_ERROR) -> None:
        """Ends every call."""
        with self._room:
            for stream in self._streams.values():
                stream.cancelled = True
            self._streams.clear()
            self._room.notify_all()
        self._send(frame(GOAWAY, 0, 0, _number(self._last) + _number(code)))
        self._transport.close()
