"""Searches of a collection with a route: those that are rescored say so by their
name, and the others are the database's."""

import argparse
import json
import logging
import pathlib
import sys

from pymilvus import AnnSearchRequest, MilvusClient, RRFRanker

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from steps import Steps  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--address", required=True, help="host:port")
parser.add_argument("--query", required=True, help="a vector in JSON")
options = parser.parse_args()
logging.disable(logging.CRITICAL)
query = json.loads(options.query)
client = MilvusClient(f"http://{options.address}")
step = Steps()


def hits(lists):
    return [[{"id": h["id"], "score": h["distance"], "entity": dict(h["entity"])} for h in one] for one in lists]


def search(**more):
    return hits(client.search("routed", **{"data": [query], "limit": 5, **more}))


every = ["name", "on", "price", "more", "extra", "vec"]
step("rescored: plain", search)
step("rescored: fields", search, output_fields=every)
step("rescored: every field", search, output_fields=["*"])
step("rescored: offset", search, search_params={"offset": 2})
step("rescored: filter", search, filter="on == true")
step("rescored: tuned", search, search_params={"metric_type": "IP", "params": {"nprobe": 4}})
step("rescored: field", search, anns_field="vec")
step("rescored: several", search, data=[query, query])
step("passed: radius", search, search_params={"params": {"radius": 0.1}})
step("passed: group", search, group_by_field="name")
step("passed: rounding", search, round_decimal=2)
step("rescored: Strong, as the collection", search, consistency_level="Strong")
step("passed: depth", search, limit=31)
step("degraded: template", search, filter="id in {ids}", filter_params={"ids": [1, 2]})
step("rescored: partition", search, partition_names=["_default"])


def hybrid(lists):
    return hits(client.hybrid_search("routed", [AnnSearchRequest([query], "vec", {"metric_type": "IP"}, limit=9)] * lists, RRFRanker(), limit=5))


step("rescored: hybrid of one list", hybrid, 1)
step("passed: hybrid", hybrid, 2)
step("passed: wrong dimension", search, data=[[1.0]])
step("passed: other collection", lambda: hits(client.search("plain", [query], limit=5, output_fields=every)))


def pages():
    it = client.search_iterator("routed", [query], batch_size=7, limit=20, search_params={"metric_type": "IP"})
    found = []
    while page := it.next():
        found.extend([h["id"], h["distance"]] for h in page)
    it.close()
    return found


step("passed: iterator", pages)
step("passed: query", lambda: [dict(r) for r in client.query("routed", "id < 3", output_fields=every)])
step("passed: get", lambda: [dict(r) for r in client.get("routed", [3, 1])])
client.close()
