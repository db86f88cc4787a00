"""The Python client's scenario: the same steps over REST and over gRPC (--grpc)."""
import argparse
import itertools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import data as d
import points
import service
from qdrant_client import QdrantClient
from qdrant_client import models as m
from steps import Steps


def collections(step, c):
    for number, (name, config) in enumerate(d.COLLECTIONS.items()):
        at = f"made{number}"
        if step(f"create: {name}", c.create_collection, at, **config):
            step(f"get: {name}", c.get_collection, at)
    for at, name in ((0, "dot"), (16, "optimizers")):
        step(f"create again: {name}", c.create_collection, f"made{at}", vectors_config=d.V4)
    step("exists", c.collection_exists, "made0")
    step("exists: missing", c.collection_exists, "nobody")
    step("list of collections", lambda: sorted(x.name for x in c.get_collections().collections))
    updates = {
        "hnsw": dict(hnsw_config=m.HnswConfigDiff(m=32, ef_construct=123)),
        "optimizers": dict(optimizers_config=m.OptimizersConfigDiff(indexing_threshold=15000)),
        "params": dict(collection_params=m.CollectionParamsDiff(on_disk_payload=True)),
        "vector": dict(vectors_config={"": m.VectorParamsDiff(on_disk=True)}),
        "unknown vector": dict(vectors_config={"nobody": m.VectorParamsDiff(on_disk=True)}),
        "quantization": dict(quantization_config=m.ScalarQuantization(scalar=m.ScalarQuantizationConfig(type="int8"))),
        "quantization off": dict(quantization_config=m.Disabled.DISABLED),
        "strict mode": dict(strict_mode_config=m.StrictModeConfig(enabled=True, max_query_limit=7)),
        "metadata": dict(metadata={"a": 1}),
        "nothing": dict(),
    }
    for name, update in updates.items():
        step(f"update: {name}", c.update_collection, "made0", **update)
    step("update: missing", c.update_collection, "nobody", hnsw_config=m.HnswConfigDiff(m=3))
    step("update sparse", c.update_collection, "made35", sparse_vectors_config={"s": m.SparseVectorParams(modifier="idf")})
    strict = {
        "limit": lambda: c.query_points("made38", query=d.QUERY, limit=9),
        "timeout": lambda: c.query_points("made38", query=d.QUERY, limit=2, timeout=60),
        "filter without an index": lambda: c.query_points("made38", query=d.QUERY, limit=2, query_filter=d.FILTERS["must"]),
        "ef": lambda: c.query_points("made38", query=d.QUERY, limit=2, search_params=m.SearchParams(hnsw_ef=100)),
        "exact": lambda: c.query_points("made38", query=d.QUERY, limit=2, search_params=m.SearchParams(exact=True)),
        "within": lambda: c.query_points("made38", query=d.QUERY, limit=2),
        "delete by filter": lambda: c.delete("made38", m.FilterSelector(filter=d.FILTERS["must"])),
        "batch": lambda: c.upsert("made39", [d.plain_point(i) for i in range(3)]),
        "conditions": lambda: c.scroll("made39", scroll_filter=d.FILTERS["must of two"]),
        "size of a condition": lambda: c.scroll("made39", scroll_filter=d.FILTERS["match any numbers"]),
    }
    for name, call in strict.items():
        step(f"strict mode: {name}", call)
    for number in range(len(d.COLLECTIONS)):
        if number not in (0, 1):
            try:
                c.delete_collection(f"made{number}")
            except Exception:  # refused when it was made
                pass
    step("delete: made", c.delete_collection, "made0")
    step("delete: deleted", c.delete_collection, "made0")
    step("recreate", c.recreate_collection, "made1", vectors_config=d.V4)
    for what, name in {"empty": "", "slash": "a/b", "space": "a b", "long": "n" * 300, "unicode": "größe-漢", "percent": "a%2Fb", "question": "a?b"}.items():
        step(f"name: create {what}", c.create_collection, name, vectors_config=d.V4)
        step(f"name: exists {what}", c.collection_exists, name)
        step(f"name: delete {what}", c.delete_collection, name)


def aliases(step, c):
    def change(*ops):
        return lambda: c.update_collection_aliases(list(ops))

    def create(alias, name):
        return m.CreateAliasOperation(create_alias=m.CreateAlias(collection_name=name, alias_name=alias))

    def delete(alias):
        return m.DeleteAliasOperation(delete_alias=m.DeleteAlias(alias_name=alias))

    def rename(old, new):
        return m.RenameAliasOperation(rename_alias=m.RenameAlias(old_alias_name=old, new_alias_name=new))

    for name, call in {
        "create": change(create("one", "plain")),
        "create two": change(create("two", "plain"), create("three", "rich")),
        "of nobody": change(create("four", "nobody")),
        "named as a collection": change(create("rich", "plain")),
        "rename": change(rename("two", "zwei")),
        "rename nobody": change(rename("two", "deux")),
        "switch": change(delete("one"), create("one", "rich")),
        "delete nobody": change(delete("vier")),
        "no change": change(),
        "list": lambda: sorted((a.alias_name, a.collection_name) for a in c.get_aliases().aliases),
        "of a collection": lambda: sorted(a.alias_name for a in c.get_collection_aliases("rich").aliases),
        "of a missing one": lambda: c.get_collection_aliases("nobody"),
        "query": lambda: c.query_points("zwei", query=d.QUERY, limit=3),
        "count": lambda: c.count("one"),
        "exists": lambda: c.collection_exists("one"),
        "get": lambda: c.get_collection("zwei"),
        "delete the collection by it": lambda: c.delete_collection("zwei"),
        "delete": change(delete("one"), delete("zwei"), delete("three")),
    }.items():
        step(f"alias: {name}", call)


def queries(step, c):
    for name, query in d.QUERIES.items():
        def ask(query=query):
            found = c.query_points("rich", **{"limit": 8, "with_payload": ["n"], **query}).points
            return sorted(str(p.id) for p in found) if name == "sample" else found
        step(f"query: {name}", ask)
    for name, options in d.OPTIONS.items():
        step(f"query with {name}", c.query_points, "rich", **{"query": d.QUERY, "using": "dense", **options})
    for name, filter in itertools.islice(d.FILTERS.items(), 0, None, 3):
        step(f"query where {name}", c.query_points, "rich", query=d.QUERY, using="dense", query_filter=filter, limit=6, with_payload=False)
    three = [m.QueryRequest(query=d.QUERY, using="dense", limit=k, with_payload=True) for k in (1, 2, 3)]
    for name, requests in {
        "of three": three,
        "of none": [],
        "of kinds": [m.QueryRequest(query=3, using="img", limit=2), m.QueryRequest(limit=2), m.QueryRequest(**{**d.QUERIES["rrf"], "limit": 100})],
        "with one mistake": [three[0], m.QueryRequest(query=[1.0], using="dense", limit=1)],
        "of fifty": [m.QueryRequest(query=d.numbers(i, 4), using="dense", limit=3) for i in range(50)],
    }.items():
        step(f"query batch {name}", c.query_batch_points, "rich", requests)
    for name, kw in {
        "": {},
        "size 1": dict(group_size=1),
        "of two": dict(limit=2, group_size=5),
        "by number": dict(group_by="n"),
        "by path": dict(group_by="deep.er.est"),
        "by a missing key": dict(group_by="nowhere"),
        "by a float": dict(group_by="f"),
        "with payload and vectors": dict(with_payload=True, with_vectors=["img"]),
        "with a filter": dict(query_filter=d.FILTERS["range lt"]),
        "threshold": dict(score_threshold=0.5),
        "lookup": dict(group_by="n", with_lookup=m.WithLookup(collection="plain", with_payload=True, with_vectors=True)),
        "lookup by name": dict(group_by="n", with_lookup="plain"),
        "lookup in nobody": dict(group_by="n", with_lookup="nobody"),
        "recommend": dict(query=m.RecommendQuery(recommend=m.RecommendInput(positive=[1, 4]))),
        "limit 0": dict(limit=0),
    }.items():
        step(f"groups {name}".strip(), c.query_points_groups, "rich", **{"group_by": "colour", "query": d.QUERY, "using": "dense", "limit": 4, "group_size": 2, **kw})
    for name, kw in {"": {}, "of four": dict(sample=4, limit=2), "filtered": dict(query_filter=d.FILTERS["range lt"]), "img": dict(using="img"), "unknown vector": dict(using="x"), "sample 1": dict(sample=1), "sample 0": dict(sample=0)}.items():
        kw = {"using": "dense", "sample": 100, "limit": 3, **kw}
        few = kw["sample"] == 4  # a random choice: its size is compared

        def size(r):
            return [type(r).__name__, len(getattr(r, "ids", None) or r.pairs)]

        pairs, offsets = (lambda: c.search_matrix_pairs("rich", **kw)), (lambda: c.search_matrix_offsets("rich", **kw))
        step(f"matrix pairs {name}".strip(), (lambda: type(pairs()).__name__) if few else pairs)
        step(f"matrix offsets {name}".strip(), (lambda: size(offsets())) if few else offsets)


def mistakes(step, c):
    nearest = dict(query=d.QUERY, using="dense")
    for name, kw in {
        "too few dimensions": dict(query=[1.0, 2.0], using="dense"),
        "too many dimensions": dict(query=[1.0] * 5, using="dense"),
        "no dimensions": dict(query=[], using="dense"),
        "unknown vector": dict(query=d.QUERY, using="nobody"),
        "default vector": dict(query=d.QUERY),
        "dense for sparse": dict(query=d.QUERY, using="words"),
        "sparse for dense": dict(query=m.SparseVector(indices=[1], values=[1.0]), using="dense"),
        "sparse, lengths differ": dict(query=m.SparseVector(indices=[1, 2], values=[1.0]), using="words"),
        "sparse, word twice": dict(query=m.SparseVector(indices=[1, 1], values=[1.0, 2.0]), using="words"),
        "multi for dense": dict(query=[[1.0, 2.0]], using="dense"),
        "multi, ragged": dict(query=[[1.0, 2.0], [1.0]], using="multi"),
        "missing id": dict(query=10**9, using="dense"),
        "recommend a missing id": dict(query=m.RecommendQuery(recommend=m.RecommendInput(positive=[10**9])), using="dense"),
        "recommend nothing": dict(query=m.RecommendQuery(recommend=m.RecommendInput()), using="dense"),
        "fusion without prefetch": dict(query=m.FusionQuery(fusion="rrf")),
        "fusion and vector": dict(query=m.FusionQuery(fusion="rrf"), using="dense", prefetch=[m.Prefetch(query=d.QUERY, using="dense")]),
        "prefetch of an unknown vector": dict(prefetch=m.Prefetch(query=d.QUERY, using="nobody"), **nearest),
        "formula without prefetch": dict(query=m.FormulaQuery(formula="$score")),
        "formula of an unknown variable": dict(prefetch=m.Prefetch(query=d.QUERY, using="dense"), query=m.FormulaQuery(formula="nowhere")),
        "order by without an index": dict(query=m.OrderByQuery(order_by="nowhere")),
        "lookup in nobody": dict(query=3, using="dense", lookup_from=m.LookupLocation(collection="nobody")),
        "threshold of text": dict(score_threshold="much", **nearest),
        "negative limit": dict(limit=-1, **nearest),
        "huge limit": dict(limit=10**12, **nearest),
        "consistency 0": dict(consistency=0, **nearest),
        "shard key": dict(shard_key_selector="eu", **nearest),
        "infinite": dict(query=[float("inf"), 0.0, 0.0, 0.0], using="dense", limit=100),
        "not a number": dict(query=[float("nan"), 0.0, 0.0, 0.0], using="dense", limit=100),
        "tiny and huge": dict(query=[1e-40, 1e30, -1e30, 3e38], using="dense", limit=100),
        "range of text": dict(query_filter=m.Filter(must=[m.FieldCondition.model_construct(key="n", range={"gt": "x"})]), **nearest),
        "date that is none": dict(query_filter=m.Filter(must=[m.FieldCondition.model_construct(key="when", range={"gt": "yesterday"})]), **nearest),
        "key of brackets": dict(query_filter=m.Filter(must=[d.match("a[", 1)]), **nearest),
        "empty key": dict(query_filter=m.Filter(must=[d.match("", 1)]), **nearest),
        "open polygon": dict(query_filter=m.Filter(must=[d.field("place", geo_polygon=m.GeoPolygon(exterior=m.GeoLineString(points=[m.GeoPoint(lon=1, lat=1), m.GeoPoint(lon=2, lat=2)])))]), **nearest),
        "latitude": dict(query_filter=m.Filter(must=[d.field("place", geo_radius=m.GeoRadius(center=m.GeoPoint(lon=1, lat=100), radius=1.0))]), **nearest),
        "condition of nothing": dict(query_filter=m.Filter(must=[m.FieldCondition(key="n")]), **nearest),
        "min should beyond": dict(query_filter=m.Filter(min_should=m.MinShould(conditions=[d.RED], min_count=5)), **nearest),
        "mmr diversity": dict(query=m.NearestQuery(nearest=d.QUERY, mmr=m.Mmr(diversity=5.0)), using="dense"),
        "oversampling": dict(search_params=m.SearchParams(quantization=m.QuantizationSearchParams(oversampling=0.1)), **nearest),
    }.items():
        step(f"mistake: {name}", c.query_points, "rich", **kw)
    for name, call in {
        "query": lambda: c.query_points("nobody", query=d.QUERY),
        "query batch": lambda: c.query_batch_points("nobody", [m.QueryRequest(query=d.QUERY, limit=1)]),
        "groups": lambda: c.query_points_groups("nobody", "n", query=d.QUERY),
        "scroll": lambda: c.scroll("nobody"),
        "count": lambda: c.count("nobody"),
        "facet": lambda: c.facet("nobody", "n"),
        "retrieve": lambda: c.retrieve("nobody", [1]),
        "upsert": lambda: c.upsert("nobody", [d.plain_point(1)]),
        "delete points": lambda: c.delete("nobody", [1]),
        "set payload": lambda: c.set_payload("nobody", {"a": 1}, [1]),
        "overwrite payload": lambda: c.overwrite_payload("nobody", {"a": 1}, [1]),
        "delete payload": lambda: c.delete_payload("nobody", ["a"], [1]),
        "clear payload": lambda: c.clear_payload("nobody", [1]),
        "update vectors": lambda: c.update_vectors("nobody", [m.PointVectors(id=1, vector=d.QUERY)]),
        "delete vectors": lambda: c.delete_vectors("nobody", ["a"], [1]),
        "create index": lambda: c.create_payload_index("nobody", "a", "keyword"),
        "delete index": lambda: c.delete_payload_index("nobody", "a"),
        "get": lambda: c.get_collection("nobody"),
        "delete": lambda: c.delete_collection("nobody"),
        "create snapshot": lambda: c.create_snapshot("nobody"),
        "list snapshots": lambda: c.list_snapshots("nobody"),
        "delete snapshot": lambda: c.delete_snapshot("nobody", "s"),
        "matrix pairs": lambda: c.search_matrix_pairs("nobody"),
        "batch update": lambda: c.batch_update_points("nobody", [m.DeleteOperation(delete=m.PointIdsList(points=[1]))]),
        "cluster": lambda: c.collection_cluster_info("nobody"),
    }.items():
        step(f"missing collection: {name}", call)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--url", required=True)
    p.add_argument("--grpc-port", type=int, required=True)
    p.add_argument("--key", default=None)
    p.add_argument("--grpc", action="store_true")
    p.add_argument("--only", default="", help="only steps whose names contain this")
    o = p.parse_args()

    def connect(key=o.key, grpc=o.grpc, **kw):
        return QdrantClient(url=o.url, grpc_port=o.grpc_port, prefer_grpc=grpc, api_key=key, timeout=120, **kw)

    c, step = connect(), Steps(o.only)
    c.create_collection("rich", **d.RICH)
    c.create_collection("plain", d.V4, optimizers_config=m.OptimizersConfigDiff(default_segment_number=1))
    points.writes(step, c)
    points.reads(step, c)
    queries(step, c)
    mistakes(step, c)
    aliases(step, c)
    collections(step, c)
    service.calls(step, c, connect, o)
    service.snapshots(step, c, o)
    service.at_once(step, c, o)
    c.close()


main()
