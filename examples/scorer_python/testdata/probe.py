"""A scorer for the test: it does what the query's text says, and can tell all that it was given."""

import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from likeness_plugin import QueryError, TooLarge, Unavailable, schema, serve  # noqa: E402


def score(query, items):
    if query.text == "tell":
        told = {
            "user_id": query.user_id,
            "vector": [float(x) for x in query.vector],
            "context": query.context,
            "ids": items.ids,
            "payloads": items.payloads,
            "vectors": [[float(x) for x in i.vector] for i in items if i.vector is not None],
        }
        raise QueryError(json.dumps(told))
    if query.text == "wait":
        with open(sys.argv[1], "w", encoding="utf-8") as f:
            f.write("waiting")
        deadline = time.monotonic() + 60
        while not query.cancelled and time.monotonic() < deadline:
            time.sleep(0.005)
        with open(sys.argv[1], "w", encoding="utf-8") as f:
            f.write("cancelled" if query.cancelled else "not cancelled")
    if query.text == "print":
        print("printed by the scorer", flush=True)
    if query.text == "exit":
        sys.exit(3)
    for text, error in (("query", QueryError), ("large", TooLarge), ("later", Unavailable), ("fails", KeyError)):
        if query.text == text:
            raise error("so it is")
    return {
        "short": lambda: [1.0],
        "infinite": lambda: [float("inf")] * len(items),
        "none": lambda: [None] * len(items),
        "text": lambda: ["much"] * len(items),
    }.get(query.text, lambda: [float(r) for r in range(len(items))])()


if sys.argv[1:] == ["schema"]:
    json.dump(schema.MESSAGES, sys.stdout)
else:
    serve(score, name="probe", version="7", payload=True, vectors=True, max_items=300, max_bytes=1 << 20, parallel=2, cost=0.5)
