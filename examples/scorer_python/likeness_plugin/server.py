"""A grpclib server whose calls cost less: an answer is one write, not three."""

import asyncio
from typing import Any

import hyperframe.frame
from grpclib.config import Configuration
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.protocol import H2Protocol
from grpclib.server import Handler as Calls
from grpclib.server import Server as GRPCServer

# h2 makes a text of every frame for a log that nobody keeps: the hex digits of 64 KiB
# took a tenth of the time of a call.
hyperframe.frame.Frame.__repr__ = object.__repr__

# Of a stream and of a connection: a large request comes without a stop for window updates.
WINDOW = 16 << 20


class Together:
    """A transport that writes once in a turn of the loop. Headers, message and trailers
    of an answer are three writes otherwise: three TLS records, three system calls, and
    three times that the host wakes up."""

    def __init__(self, transport: asyncio.Transport):
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._transport.write(data)


class Protocol(H2Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(Together(transport))


class Methods(dict):
    """A server's methods. grpclib's own answer to any other lacks what gRPC in Go wants of an answer."""

    def get(self, path: str, default: Any = None) -> Any:
        return super().get(path) or Handler(self._unknown, Cardinality.UNARY_UNARY, bytes, bytes)

    async def _unknown(self, stream: Any) -> None:
        raise GRPCError(Status.UNIMPLEMENTED, "the plugin has no such method")


class Server(GRPCServer):
    def __init__(self, services: Any, codec: Any):
        config = Configuration(http2_connection_window_size=WINDOW, http2_stream_window_size=WINDOW)
        super().__init__([services], codec=codec, config=config)
        self._mapping = Methods(self._mapping)

    def _protocol_factory(self) -> Protocol:
        self.__gc_step__()
        handler = Calls(self._mapping, self._codec, self._status_details_codec, self.__dispatch__)
        self._handlers.add(handler)
        return Protocol(handler, self._config, self._h2_config)
