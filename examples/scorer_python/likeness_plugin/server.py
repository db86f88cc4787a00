"""A grpclib server, with what Go's gRPC expects and with less to do in a call."""

from typing import Any

import hyperframe.frame
from grpclib.config import Configuration
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server as GRPCServer

# h2 makes a text of every frame for a log that nobody keeps: the hex digits of 64 KiB
# took a tenth of the time of a call.
hyperframe.frame.Frame.__repr__ = object.__repr__

# Of a stream and of a connection: a large request comes without a stop for window updates.
WINDOW = 16 << 20


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
