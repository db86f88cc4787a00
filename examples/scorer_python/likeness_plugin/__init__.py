"""Write a scorer of likeness in Python: one function, served as a plugin.

    from likeness_plugin import serve

    def score(query, items):
        return [-abs(len(i.payload["title"]) - len(query.text)) for i in items]

    serve(score, name="length", version="1", text=True, payload_fields=["title"])

likeness starts the process and speaks to it over a unix socket with mutual TLS;
hashicorp/go-plugin's handshake is in handshake.py, the messages are in schema.py, and http2.py
and server.py are the gRPC server.
"""

from .run import TLS, serve
from .scorer import Item, Items, Query, QueryError, TooLarge, Unavailable

__all__ = ["TLS", "Item", "Items", "Query", "QueryError", "TooLarge", "Unavailable", "serve"]
