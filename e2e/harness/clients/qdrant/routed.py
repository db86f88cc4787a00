"""Asks the questions of a file on a routed collection; prints ids and the bits of the scores."""
import argparse
import json
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from qdrant_client import QdrantClient
from qdrant_client import models as m
from steps import Steps

p = argparse.ArgumentParser(description=__doc__)
for option in ("--url", "--key", "--requests"):
    p.add_argument(option)
p.add_argument("--grpc-port", type=int)
p.add_argument("--grpc", action="store_true")
o = p.parse_args()
c, step = QdrantClient(url=o.url, grpc_port=o.grpc_port, prefer_grpc=o.grpc, api_key=o.key, timeout=30), Steps()


def hits(points):
    return [[p.id, struct.unpack("<I", struct.pack("<f", p.score))[0]] for p in points]


def filter_of(q):
    return m.Filter(must=[m.FieldCondition(key="item", range=m.Range(lt=q["below"]))]) if "below" in q else None


questions = [json.loads(line) for line in open(o.requests)]
for q in questions:
    step(q["step"], lambda: hits(c.query_points("questions", query=q["vector"], limit=q["limit"], offset=q["offset"], query_filter=filter_of(q)).points))
batch = [m.QueryRequest(query=q["vector"], limit=q["limit"], offset=q["offset"], filter=filter_of(q)) for q in questions]
step("batch", lambda: [hits(r.points) for r in c.query_batch_points("questions", batch)])
c.close()
