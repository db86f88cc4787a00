"""Steps that write and read points."""
import data as d
from qdrant_client import models as m


def writes(step, c):
    step("upsert: rich points", c.upsert, "rich", [d.rich(i) for i in range(40)])
    step("upsert: plain points", c.upsert, "plain", [d.plain_point(i) for i in range(40)])
    ids = iter(range(1000, 2000))
    nil = {"dense": d.QUERY}
    for name, kw in {
        "one": dict(points=[m.PointStruct(id=next(ids), vector=nil)]),
        "without vectors": dict(points=[m.PointStruct(id=next(ids), vector={})]),
        "without payload": dict(points=[m.PointStruct(id=next(ids), vector=nil, payload=None)]),
        "empty payload": dict(points=[m.PointStruct(id=next(ids), vector=nil, payload={})]),
        "again": dict(points=[m.PointStruct(id=1000, vector=nil, payload={"v": 2})]),
        "twice in one": dict(points=[m.PointStruct(id=1500, vector=nil, payload={"v": k}) for k in (1, 2)]),
        "none": dict(points=[]),
        "batch": dict(points=m.Batch(ids=[next(ids), next(ids)], vectors={"dense": [d.QUERY, d.numbers(3, 4)]}, payloads=[{"a": 1}, {}])),
        "batch, lengths differ": dict(points=m.Batch(ids=[1, 2, 3], vectors={"dense": [d.QUERY]})),
        "no wait": dict(points=[m.PointStruct(id=next(ids), vector=nil)], wait=False),
        "ordering weak": dict(points=[m.PointStruct(id=next(ids), vector=nil)], ordering=m.WriteOrdering.WEAK),
        "ordering medium": dict(points=[m.PointStruct(id=next(ids), vector=nil)], ordering=m.WriteOrdering.MEDIUM),
        "ordering strong": dict(points=[m.PointStruct(id=next(ids), vector=nil)], ordering=m.WriteOrdering.STRONG),
        "timeout": dict(points=[m.PointStruct(id=next(ids), vector=nil)], timeout=10),
        "update filter": dict(points=[m.PointStruct(id=1000, vector=nil, payload={"v": 3})], update_filter=m.Filter(must=[d.match("v", 2)])),
        "insert only": dict(points=[m.PointStruct(id=1000, vector=nil, payload={"v": 4})], update_mode=m.UpdateMode.INSERT_ONLY),
        "update only": dict(points=[m.PointStruct(id=1999, vector=nil, payload={"v": 4})], update_mode=m.UpdateMode.UPDATE_ONLY),
        "shard key": dict(points=[m.PointStruct(id=next(ids), vector=nil)], shard_key_selector="eu"),
        "wrong dimensions": dict(points=[m.PointStruct(id=1, vector={"dense": [1.0]})]),
        "unknown vector": dict(points=[m.PointStruct(id=1, vector={"nobody": [1.0]})]),
        "default vector": dict(points=[m.PointStruct(id=1, vector=d.QUERY)]),
        "bad uuid": dict(points=[m.PointStruct(id="not-a-uuid", vector=nil)]),
        "negative id": dict(points=[m.PointStruct.model_construct(id=-1, vector=nil, payload=None)]),
        "id too great": dict(points=[m.PointStruct.model_construct(id=2**64, vector=nil, payload=None)]),
        "uuid without dashes": dict(points=[m.PointStruct(id="936da01f9abd4d9d80c702af85c822a8", vector=nil)]),
        "uuid as urn": dict(points=[m.PointStruct(id="urn:uuid:936da01f-9abd-4d9d-80c7-02af85c822a9", vector=nil)]),
        "id 0": dict(points=[m.PointStruct(id=0, vector=d.rich(0).vector, payload=d.payload(0))]),
        "sparse, word twice": dict(points=[m.PointStruct(id=1, vector={"words": m.SparseVector(indices=[1, 1], values=[1, 1])})]),
        "sparse, lengths differ": dict(points=[m.PointStruct(id=1, vector={"words": m.SparseVector(indices=[1], values=[1, 1])})]),
        "sparse, unsorted": dict(points=[m.PointStruct(id=next(ids), vector={"words": m.SparseVector(indices=[9, 1], values=[1, 2])})]),
        "multivector, none": dict(points=[m.PointStruct(id=next(ids), vector={"multi": []})]),
        "not a number": dict(points=[m.PointStruct(id=1600, vector={"dense": [float("nan")] * 4})]),
    }.items():
        step(f"upsert: {name}", c.upsert, "rich", **kw)
    payloads = {
        "big integers": {"a": 2**63 - 1, "b": -(2**63), "c": 2**53 + 1},
        "beyond 64 bits": {"a": 2**64},
        "floats": {"a": 1e308, "b": 5e-324, "c": 0.1, "d": -0.0, "e": 1e16, "f": 123456789.123456789},
        "whole floats": {"a": 1.0, "b": 1e20},
        "text": {"a": "<&>\u0000\u2028\"\\/", "b": "漢字 🙂 é", "": "empty key", "k e.y[0]": 1},
        "deep": {"a": {"b": [{"c": [[], {}, [None, [True]]]}]}},
        "many keys": {f"k{i}": i for i in range(300)},
        "long text": {"a": "x" * 100000},
        "nulls": {"a": None, "b": [None, None]},
        "not a number": {"a": float("nan")},
    }
    for number, (name, payload) in enumerate(payloads.items()):
        step(f"payload: upsert {name}", c.upsert, "rich", [m.PointStruct(id=2000 + number, vector=nil, payload=payload)])
        step(f"payload: read {name}", c.retrieve, "rich", [2000 + number])
    upload(step, c)
    payload_calls(step, c)
    vector_calls(step, c)
    batches(step, c)
    deletes(step, c)


def upload(step, c):
    c.create_collection("upload", d.V4)
    step("upload points", c.upload_points, "upload", [d.plain_point(i) for i in range(150)], batch_size=64, wait=True)
    step("upload collection", c.upload_collection, "upload", vectors=[d.numbers(i, 4) for i in range(40)], payload=[{"i": i} for i in range(40)], ids=list(range(500, 540)), batch_size=16, wait=True)
    step("uploaded", c.count, "upload")
    c.delete_collection("upload")


def payload_calls(step, c):
    selectors = {"ids": [1, 2], "filter": m.Filter(must=[d.match("n", 5)]), "ids selector": m.PointIdsList(points=[3]), "filter selector": m.FilterSelector(filter=m.Filter(must=[d.match("n", 6)])), "none": [], "missing ids": [10**7]}
    for name, points in selectors.items():
        step(f"set payload by {name}", c.set_payload, "rich", {"set": name}, points)
        step(f"overwrite payload by {name}", c.overwrite_payload, "plain", {"over": name}, points)
        step(f"delete payload by {name}", c.delete_payload, "rich", ["set"], points)
        step(f"clear payload by {name}", c.clear_payload, "plain", points)
    step("set payload at a key", c.set_payload, "rich", {"est": 77}, [7], key="deep.er")
    step("set payload at a bad key", c.set_payload, "rich", {"est": 77}, [7], key="deep..[")
    step("set payload: no wait", c.set_payload, "rich", {"z": 1}, [8], wait=False)
    step("set payload: strong", c.set_payload, "rich", {"z": 2}, [8], ordering=m.WriteOrdering.STRONG)
    step("delete payload: paths", c.delete_payload, "rich", ["z", "deep.er.est", "shop[].price"], [8])
    step("delete payload: no keys", c.delete_payload, "rich", [], [8])
    step("after the payload calls", c.retrieve, "rich", [1, 2, 3, 5, 6, 7, 8], with_vectors=False)
    for i in range(9):
        c.overwrite_payload("rich", d.payload(i), [d.id_of(i)])
    c.upsert("plain", [d.plain_point(i) for i in range(40)])


def vector_calls(step, c):
    for name, kw in {
        "one": dict(points=[m.PointVectors(id=1000, vector={"dense": [9.0, 8.0, 7.0, 6.0]})]),
        "several": dict(points=[m.PointVectors(id=1000, vector={"img": [1.0, 2.0, 2.0], "words": m.SparseVector(indices=[3], values=[1.5])}), m.PointVectors(id=1001, vector={"multi": [[1.0, 2.0]]})]),
        "missing point": dict(points=[m.PointVectors(id=10**7, vector={"dense": d.QUERY})]),
        "wrong dimensions": dict(points=[m.PointVectors(id=1000, vector={"dense": [9.0]})]),
        "unknown vector": dict(points=[m.PointVectors(id=1000, vector={"nobody": [9.0]})]),
        "filtered": dict(points=[m.PointVectors(id=1001, vector={"dense": d.QUERY})], update_filter=m.Filter(must=[d.match("v", 99)])),
        "none": dict(points=[]),
    }.items():
        step(f"update vectors: {name}", c.update_vectors, "rich", **kw)
    for name, (names, points) in {
        "by ids": (["img"], [1000]),
        "by filter": (["words"], m.Filter(must=[d.match("v", 3)])),
        "several": (["multi", "idf"], [1000, 1001]),
        "unknown": (["nobody"], [1000]),
        "no names": ([], [1000]),
        "missing point": (["img"], [10**7]),
    }.items():
        step(f"delete vectors: {name}", c.delete_vectors, "rich", names, points)
    step("after the vector calls", c.retrieve, "rich", [1000, 1001], with_vectors=True)


def batches(step, c):
    by = m.PointIdsList(points=[1000])
    for name, ops in {
        "of all kinds": [
            m.UpsertOperation(upsert=m.PointsList(points=[m.PointStruct(id=1900, vector={"dense": d.QUERY}, payload={"b": 1})])),
            m.SetPayloadOperation(set_payload=m.SetPayload(payload={"b": 2, "c": 3}, points=[1900])),
            m.OverwritePayloadOperation(overwrite_payload=m.SetPayload(payload={"d": 4}, points=[1000])),
            m.DeletePayloadOperation(delete_payload=m.DeletePayload(keys=["c"], points=[1900])),
            m.UpdateVectorsOperation(update_vectors=m.UpdateVectors(points=[m.PointVectors(id=1900, vector={"img": [1.0, 0.0, 0.0]})])),
            m.DeleteVectorsOperation(delete_vectors=m.DeleteVectors(vector=["img"], points=[1900])),
            m.ClearPayloadOperation(clear_payload=by),
            m.DeleteOperation(delete=by),
        ],
        "of one": [m.DeleteOperation(delete=m.FilterSelector(filter=m.Filter(must=[d.match("b", 99)])))],
        "of none": [],
        "with a mistake in the middle": [
            m.SetPayloadOperation(set_payload=m.SetPayload(payload={"before": 1}, points=[1900])),
            m.UpsertOperation(upsert=m.PointsList(points=[m.PointStruct(id=1901, vector={"dense": [1.0]})])),
            m.SetPayloadOperation(set_payload=m.SetPayload(payload={"after": 1}, points=[1900])),
        ],
        "of a batch": [m.UpsertOperation(upsert=m.PointsBatch(batch=m.Batch(ids=[1902, 1903], vectors={"dense": [d.QUERY, d.QUERY]})))],
    }.items():
        step(f"batch update {name}", c.batch_update_points, "rich", ops)
    step("after the batch updates", c.retrieve, "rich", [1000, 1900, 1901, 1902], with_vectors=True)


def deletes(step, c):
    for name, selector in {
        "ids": [1900, 1902],
        "uuid": m.PointIdsList(points=["936da01f-9abd-4d9d-80c7-02af85c822a8"]),
        "nobody's id": [10**8],
        "no ids": [],
        "filter": m.FilterSelector(filter=m.Filter(must=[m.HasIdCondition(has_id=[1903])])),
        "filter of nobody": m.Filter(must=[d.match("n", -5)]),
    }.items():
        step(f"delete by {name}", c.delete, "rich", selector)
    step("delete: no wait", c.delete, "rich", [1004], wait=False)
    step("delete: strong", c.delete, "rich", [1005], ordering=m.WriteOrdering.STRONG)
    step("delete: many ids", c.delete, "rich", [*range(1000, 2100), "936da01f-9abd-4d9d-80c7-02af85c822a8", "936da01f-9abd-4d9d-80c7-02af85c822a9"])
    step("delete: the rest", c.delete, "rich", m.FilterSelector(filter=m.Filter(must_not=[m.HasIdCondition(has_id=[d.id_of(i) for i in range(40)])])))
    step("count after deletes", c.count, "rich")


def reads(step, c):
    for name, filter in d.FILTERS.items():
        step(f"scroll where {name}", c.scroll, "rich", scroll_filter=filter, limit=12, with_payload=["n"])
    for name, filter in list(d.FILTERS.items())[::2]:
        step(f"count where {name}", c.count, "rich", count_filter=filter)
    for name, filter in list(d.FILTERS.items())[::4]:
        step(f"count about where {name}", c.count, "rich", count_filter=filter, exact=False)
    for name, (key, schema) in d.INDEXES.items():
        step(f"index: create {name}", c.create_payload_index, "rich", key, schema)
    step("index: no type", c.create_payload_index, "rich", "n", None)
    step("index: no wait", c.create_payload_index, "plain", "late", "keyword", wait=False)
    step("index: bad type", lambda: c.create_payload_index("rich", "n", "colour"))
    step("index: all of them", lambda: sorted((k, str(v.params)) for k, v in c.get_collection("rich").payload_schema.items()))
    for key, schema in {"text": m.TextIndexParams(type="text", tokenizer="word", phrase_matching=True), "n": "integer", "f": "float", "when": "datetime"}.items():
        c.create_payload_index("rich", key, schema)
    for name, filter in list(d.FILTERS.items())[::2]:
        step(f"scroll with indexes where {name}", c.scroll, "rich", scroll_filter=filter, limit=9, with_payload=False)
    scrolls(step, c)
    retrieves(step, c)
    for name, kw in {
        "words": dict(key="colour"), "numbers": dict(key="n"), "bools": dict(key="flag"), "arrays": dict(key="tags"), "uuids": dict(key="uid"), "paths": dict(key="deep.er.est"),
        "exact": dict(key="colour", exact=True), "filtered": dict(key="colour", facet_filter=d.FILTERS["range lt"]), "limit 1": dict(key="colour", limit=1), "limit 0": dict(key="colour", limit=0),
        "no index": dict(key="null"), "a float": dict(key="f"), "text": dict(key="text"), "a missing key": dict(key="gone"), "consistency": dict(key="colour", consistency=m.ReadConsistencyType.ALL), "timeout": dict(key="colour", timeout=3),
    }.items():
        step(f"facet: {name}", c.facet, "rich", **kw)
    for key in ("tags", "gone", "shop[].name"):
        step(f"index: delete {key}", c.delete_payload_index, "rich", key)


def scrolls(step, c):
    for name, kw in {
        "all": dict(limit=100), "first page": dict(limit=10), "from an id": dict(limit=5, offset=20), "from a uuid": dict(limit=5, offset=d.UUID), "from the greatest id": dict(limit=5, offset=d.BIG), "from nobody": dict(offset=10**9),
        "no payload": dict(limit=4, with_payload=False), "vectors": dict(limit=4, with_vectors=True), "named vectors": dict(limit=4, with_vectors=["multi", "idf"]), "unknown vector": dict(limit=4, with_vectors=["nobody"]),
        "include": dict(limit=4, with_payload=m.PayloadSelectorInclude(include=["n"])), "exclude": dict(limit=4, with_payload=m.PayloadSelectorExclude(exclude=["shop"])),
        "limit 0": dict(limit=0), "consistency": dict(limit=2, consistency=m.ReadConsistencyType.QUORUM), "timeout": dict(limit=2, timeout=4),
        "order by n": dict(order_by="n", limit=7), "order by n down": dict(order_by=m.OrderBy(key="n", direction="desc"), limit=7), "order by f from": dict(order_by=m.OrderBy(key="f", start_from=0.5), limit=7),
        "order by date": dict(order_by=m.OrderBy(key="when", direction="asc", start_from="2024-09-19T00:00:00Z"), limit=3), "order by a word": dict(order_by="colour"), "order by nobody": dict(order_by="gone"), "order by with an offset": dict(order_by="n", offset=3),
        "order by, filtered": dict(order_by="n", limit=5, scroll_filter=d.FILTERS["must not"]), "bad offset": dict(offset="nope"), "shard key": dict(shard_key_selector="eu"),
    }.items():
        step(f"scroll: {name}", c.scroll, "rich", **kw)

    def pages():
        offset, seen = None, []
        while True:
            found, offset = c.scroll("plain", limit=9, offset=offset, with_payload=False)
            seen.append([p.id for p in found])
            if offset is None:
                return seen
    step("scroll: page by page", pages)


def retrieves(step, c):
    for name, kw in {
        "one": dict(ids=[3]), "several": dict(ids=[5, 4, d.BIG, d.UUID]), "twice the same": dict(ids=[5, 5]), "missing": dict(ids=[10**9]), "none": dict(ids=[]), "some missing": dict(ids=[1, 10**9, 2]),
        "no payload": dict(ids=[1], with_payload=False), "keys": dict(ids=[1], with_payload=["shop[].name"]), "exclude": dict(ids=[1], with_payload=m.PayloadSelectorExclude(exclude=["deep.er"])),
        "vectors": dict(ids=[1, 2], with_vectors=True), "a vector": dict(ids=[1], with_vectors=["words"]), "unknown vector": dict(ids=[1], with_vectors=["nobody"]),
        "bad uuid": dict(ids=["zzz"]), "consistency": dict(ids=[1], consistency=1), "timeout": dict(ids=[1], timeout=5), "all": dict(ids=list(range(38))), "shard key": dict(ids=[1], shard_key_selector="eu"),
    }.items():
        step(f"retrieve: {name}", c.retrieve, "rich", **kw)
