"""What pymilvus can ask of a Milvus, a step a line.

The steps are the same whatever the server supports: a refusal is an answer too.
"""

import argparse
import asyncio
import base64
import json
import logging
import pathlib
import sys
import threading
import warnings

import grpc
import numpy as np
from pymilvus import (
    AnnSearchRequest,
    AsyncMilvusClient,
    Collection,
    CollectionSchema,
    DataType,
    FieldSchema,
    Function,
    FunctionType,
    MilvusClient,
    MilvusException,
    RRFRanker,
    WeightedRanker,
    connections,
    utility,
)
from pymilvus.grpc_gen import common_pb2, milvus_pb2, milvus_pb2_grpc
from google.protobuf.message import Message

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from steps import Steps  # noqa: E402

DIM = 8
ROWS = 60


def plain(x, depth=0):
    """What the client returned, as steps.plain can take it: hits with their values."""
    if x is None or isinstance(x, (bool, int, float, str, bytes, Message)):
        return x
    if isinstance(x, np.ndarray):
        return {"array": str(x.dtype), "values": x.tolist()}
    if isinstance(x, np.generic):
        return {"scalar": str(x.dtype), "value": x.item()}
    if isinstance(x, dict):
        return {str(k): plain(v, depth + 1) for k, v in x.items()}
    if hasattr(x, "to_dict") and depth < 8:
        return plain(x.to_dict(), depth + 1)
    if hasattr(x, "__iter__"):
        listed, extra = [plain(v, depth + 1) for v in x], getattr(x, "extra", None)
        return {"list": listed, "extra": plain(extra, depth + 1)} if extra else listed
    return type(x).__name__ if type(x).__module__.startswith("pymilvus") else str(x)


steps = Steps()


def step(name, call):
    """Does one step; it returns the client's own answer."""
    answer = []

    def once():
        answer.append(call())
        return plain(answer[0])

    steps(name, once)
    return answer[0] if answer else None


def vector(i, dim=DIM):
    """Any number of vectors that no two are alike."""
    x = np.arange(1, dim + 1, dtype=np.float32)
    return np.sin(x * (i + 1) * 0.37).astype(np.float32) + np.float32(i % 7) / 10


def row(i):
    return {
        "id": i,
        "vec": vector(i).tolist(),
        "flag": i % 2 == 0,
        "i8": i - 30,
        "i16": i * 100,
        "i32": i * 100_000,
        "i64": i * (1 << 50),
        "f32": i / 3,
        "f64": i / 7,
        "text": f"t{i % 5} é😀\"<&>" if i % 3 else "",
        "doc": {"n": i, "deep": {"x": [1, 2.5, None]}, "": "empty key", "big": (1 << 60) + 1},
        "longs": list(range(i % 4)),
        "words": [f"w{j}" for j in range(i % 3)],
        "extra": i,
        "tag": ["a", {"b": i}],
    }


def full_schema(client):
    s = client.create_schema(auto_id=False, enable_dynamic_field=True, description="every type")
    s.add_field("id", DataType.INT64, is_primary=True)
    s.add_field("vec", DataType.FLOAT_VECTOR, dim=DIM)
    s.add_field("flag", DataType.BOOL)
    s.add_field("i8", DataType.INT8)
    s.add_field("i16", DataType.INT16)
    s.add_field("i32", DataType.INT32)
    s.add_field("i64", DataType.INT64)
    s.add_field("f32", DataType.FLOAT)
    s.add_field("f64", DataType.DOUBLE)
    s.add_field("text", DataType.VARCHAR, max_length=200)
    s.add_field("doc", DataType.JSON)
    s.add_field("longs", DataType.ARRAY, element_type=DataType.INT64, max_capacity=8)
    s.add_field("words", DataType.ARRAY, element_type=DataType.VARCHAR, max_capacity=8, max_length=20)
    return s


def index(client, field, kind="FLAT", metric="IP", **params):
    p = client.prepare_index_params()
    p.add_index(field_name=field, index_type=kind, metric_type=metric, params=params)
    return p


def server(c):
    old = str(step("version", c.get_server_version)).startswith("v2.3")
    step("server type", c.get_server_type)
    step("list collections", c.list_collections)
    step("has no collection", lambda: c.has_collection("absent"))
    step("describe an absent collection", lambda: c.describe_collection("absent"))
    step("drop an absent collection", lambda: c.drop_collection("absent"))
    step("statistics of an absent collection", lambda: c.get_collection_stats("absent"))
    step("load an absent collection", lambda: c.load_collection("absent"))
    step("release an absent collection", lambda: c.release_collection("absent"))
    step("search an absent collection", lambda: c.search("absent", [vector(0).tolist()], limit=3))
    step("query an absent collection", lambda: c.query("absent", "id > 0"))
    step("insert into an absent collection", lambda: c.insert("absent", [{"id": 1}]))
    step("resource groups", c.list_resource_groups)
    step("describe a resource group", lambda: c.describe_resource_group("__default_resource_group"))
    step("create a resource group", lambda: c.create_resource_group("harness_rg"))
    step("drop a resource group", lambda: c.drop_resource_group("harness_rg"))
    return old


def databases(c, address, token):
    step("list databases", c.list_databases)
    step("create a database", lambda: c.create_database("harness_db"))
    step("create it again", lambda: c.create_database("harness_db"))
    step("describe a database", lambda: c.describe_database("harness_db"))
    step("databases, now one more", lambda: sorted(c.list_databases()))
    step("alter a database", lambda: c.alter_database_properties("harness_db", {"database.replica.number": 1}))
    there = step("connect to a database", lambda: MilvusClient(f"http://{address}", token=token, db_name="harness_db"))
    step("connect to a database that is not there", lambda: MilvusClient(f"http://{address}", token=token, db_name="absent_db").list_collections())
    if there:
        step("create a collection there", lambda: there.create_collection("inner", dimension=4, consistency_level="Strong"))
        step("list collections there", there.list_collections)
        step("insert there", lambda: there.insert("inner", [{"id": 1, "vector": [1, 2, 3, 4]}]))
        step("search there", lambda: there.search("inner", [[1, 2, 3, 4]], limit=1))
        step("not seen from the default one", lambda: c.has_collection("inner"))
        step("drop a database that is not empty", lambda: c.drop_database("harness_db"))
        step("drop the collection there", lambda: there.drop_collection("inner"))
        there.close()
    step("drop a database", lambda: c.drop_database("harness_db"))
    step("drop it again", lambda: c.drop_database("harness_db"))


def users(c):
    step("list users", c.list_users)
    step("create a user", lambda: c.create_user("harness_user", "Passw0rd!"))
    step("create the user again", lambda: c.create_user("harness_user", "Passw0rd!"))
    step("a user with a weak password", lambda: c.create_user("harness_weak", "x"))
    step("describe a user", lambda: c.describe_user("harness_user"))
    step("change a password", lambda: c.update_password("harness_user", "Passw0rd!", "Passw0rd?"))
    step("list roles", c.list_roles)
    step("create a role", lambda: c.create_role("harness_role"))
    step("grant a privilege", lambda: c.grant_privilege("harness_role", "Collection", "Search", "*"))
    step("describe a role", lambda: c.describe_role("harness_role"))
    step("grant a role", lambda: c.grant_role("harness_user", "harness_role"))
    step("describe the user of a role", lambda: c.describe_user("harness_user"))
    step("revoke a role", lambda: c.revoke_role("harness_user", "harness_role"))
    step("revoke a privilege", lambda: c.revoke_privilege("harness_role", "Collection", "Search", "*"))
    step("drop a role", lambda: c.drop_role("harness_role"))
    step("drop a role that is not there", lambda: c.drop_role("harness_role"))
    step("drop a user", lambda: c.drop_user("harness_user"))
    step("privilege groups", c.list_privilege_groups)


def schemas(c, old):
    """Collections of each kind of key and of vector; what a server lacks it refuses."""

    def make(name, key, vectors, **more):
        s = c.create_schema(**more)
        s.add_field("key", key, is_primary=True, **({"max_length": 64} if key == DataType.VARCHAR else {}))
        for field, kind, dim in vectors:
            s.add_field(field, kind, **({"dim": dim} if dim else {}))
        step(f"create: {name}", lambda: c.create_collection("harness_kind", schema=s))
        step(f"describe: {name}", lambda: c.describe_collection("harness_kind"))

    def drop(name):
        step(f"drop: {name}", lambda: c.drop_collection("harness_kind"))

    name = "text keys"
    make(name, DataType.VARCHAR, [("v", DataType.FLOAT_VECTOR, 4)])
    step("text keys: insert", lambda: c.insert("harness_kind", [{"key": k, "v": [1, i, 2, 3]} for i, k in enumerate(["a\"<é", "", "x\ny", "b"])]))
    step("text keys: a key too long", lambda: c.insert("harness_kind", [{"key": "k" * 65, "v": [1, 2, 3, 4]}]))
    step("text keys: index", lambda: c.create_index("harness_kind", index(c, "v", "FLAT", "L2")))
    step("text keys: load", lambda: c.load_collection("harness_kind"))
    step("text keys: search by L2", lambda: c.search("harness_kind", [[1, 2, 2, 3]], limit=3, output_fields=["key"], consistency_level="Strong"))
    step("text keys: query", lambda: c.query("harness_kind", 'key in ["b", ""]', output_fields=["key", "v"], consistency_level="Strong"))
    step("text keys: get", lambda: c.get("harness_kind", ["b", "absent"]))
    step("text keys: delete", lambda: c.delete("harness_kind", ids=["b"]))
    step("text keys: count", lambda: c.query("harness_kind", "", output_fields=["count(*)"], consistency_level="Strong"))
    drop(name)

    name = "auto ids"
    make(name, DataType.INT64, [("v", DataType.FLOAT_VECTOR, 4)], auto_id=True)
    step("auto ids: insert", lambda: c.insert("harness_kind", [{"v": [1, 2, 3, 4]}, {"v": [4, 3, 2, 1]}]))
    step("auto ids: insert with one", lambda: c.insert("harness_kind", [{"key": 7, "v": [1, 2, 3, 4]}]))
    drop(name)

    for name, kind, dim, datum, metric in [
        ("binary vectors", DataType.BINARY_VECTOR, 16, b"\x01\xf0", "HAMMING"),
        ("float16 vectors", DataType.FLOAT16_VECTOR, 4, np.array([1, 2, 3, 4], np.float16), "IP"),
        ("bfloat16 vectors", DataType.BFLOAT16_VECTOR, 4, bytes([0, 63, 128, 63, 0, 64, 64, 64]), "IP"),
        ("sparse vectors", DataType.SPARSE_FLOAT_VECTOR, 0, {1: 0.5, 100: 2.0}, "IP"),
        ("int8 vectors", DataType.INT8_VECTOR, 4, np.array([1, 2, 3, 4], np.int8), "COSINE"),
    ]:
        make(name, DataType.INT64, [("v", kind, dim)])
        kind_of_index = {"binary vectors": "BIN_FLAT", "sparse vectors": "SPARSE_INVERTED_INDEX"}.get(name, "FLAT")
        step(f"{name}: insert", lambda: c.insert("harness_kind", [{"key": 1, "v": datum}], retry_times=1))
        step(f"{name}: index", lambda: c.create_index("harness_kind", index(c, "v", kind_of_index, metric)))
        if not (old and "float16" in name):  # which takes them and reads beyond them
            step(f"{name}: load", lambda: c.load_collection("harness_kind"))
            step(f"{name}: search", lambda: c.search("harness_kind", [datum], limit=2, output_fields=["*"], consistency_level="Strong"))
        drop(name)

    make("two vectors", DataType.INT64, [("v", DataType.FLOAT_VECTOR, 4), ("w", DataType.FLOAT_VECTOR, 2)])
    drop("two vectors")
    make("no vector", DataType.INT64, [])
    make("dimension 0", DataType.INT64, [("v", DataType.FLOAT_VECTOR, -1)])
    make("dimension too great", DataType.INT64, [("v", DataType.FLOAT_VECTOR, 32769)])
    make("a name that is none", DataType.INT64, [("no name!", DataType.FLOAT_VECTOR, 4)])
    make("five vectors", DataType.INT64, [(f"v{i}", DataType.FLOAT_VECTOR, 4) for i in range(5)])
    step("drop: five vectors", lambda: c.drop_collection("harness_kind"))

    def nullable():
        s = c.create_schema()
        s.add_field("key", DataType.INT64, is_primary=True)
        s.add_field("v", DataType.FLOAT_VECTOR, dim=2)
        s.add_field("may", DataType.INT64, nullable=True)
        s.add_field("def", DataType.VARCHAR, max_length=20, default_value="none")
        return c.create_collection("harness_kind", schema=s)

    step("create: nullable and default values", nullable)
    step("insert null", lambda: c.insert("harness_kind", [{"key": 1, "v": [1, 2], "may": None}, {"key": 2, "v": [1, 3], "may": 5, "def": "x"}]))
    drop("nullable")

    def full_text():
        s = c.create_schema()
        s.add_field("key", DataType.INT64, is_primary=True)
        s.add_field("text", DataType.VARCHAR, max_length=100, enable_analyzer=True)
        s.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
        s.add_function(Function(name="bm25", input_field_names=["text"], output_field_names=["sparse"], function_type=FunctionType.BM25))
        return c.create_collection("harness_kind", schema=s)

    step("create: full text", full_text)
    drop("full text")
    step("create: quick set-up", lambda: c.create_collection("harness_quick", dimension=3, metric_type="COSINE"))
    step("describe: quick set-up", lambda: c.describe_collection("harness_quick"))
    step("index of the quick set-up", lambda: c.describe_index("harness_quick", "vector"))
    step("create it twice", lambda: c.create_collection("harness_quick", dimension=4))
    step("rename", lambda: c.rename_collection("harness_quick", "harness_renamed"))
    step("drop the old name", lambda: c.drop_collection("harness_quick"))
    step("drop the new name", lambda: c.drop_collection("harness_renamed"))


def indexes(c):
    s = c.create_schema()
    s.add_field("key", DataType.INT64, is_primary=True)
    s.add_field("v", DataType.FLOAT_VECTOR, dim=4)
    s.add_field("n", DataType.INT64)
    s.add_field("t", DataType.VARCHAR, max_length=20)
    step("a collection to index", lambda: c.create_collection("harness_index", schema=s, num_shards=1))
    for kind, params in [
        ("FLAT", {}), ("IVF_FLAT", {"nlist": 4}), ("IVF_SQ8", {"nlist": 4}), ("IVF_PQ", {"nlist": 4, "m": 2, "nbits": 8}),
        ("HNSW", {"M": 8, "efConstruction": 32}), ("SCANN", {"nlist": 4}), ("DISKANN", {}), ("GPU_CAGRA", {}), ("AUTOINDEX", {}), ("NONE", {}),
        ("HNSW", {"M": 1}), ("IVF_FLAT", {"nlist": 0}),
    ]:
        label = f"{kind} {json.dumps(params)}"
        step(f"index {label}", lambda: c.create_index("harness_index", index(c, "v", kind, "L2", **params), sync=False))
        step(f"describe index {label}", lambda: {k: v for k, v in (c.describe_index("harness_index", "v") or {}).items() if not k.endswith("_rows")})
        step(f"drop index {label}", lambda: c.drop_index("harness_index", "v"))
    for kind in ["INVERTED", "STL_SORT", "Trie", "BITMAP"]:
        step(f"scalar index {kind}", lambda: c.create_index("harness_index", index(c, "t" if kind == "Trie" else "n", kind, ""), sync=False))
        step(f"drop scalar index {kind}", lambda: c.drop_index("harness_index", "t" if kind == "Trie" else "n"))
    step("an index of a field that is not there", lambda: c.create_index("harness_index", index(c, "absent"), sync=False))
    step("an index of a wrong metric", lambda: c.create_index("harness_index", index(c, "v", "FLAT", "JACCARD"), sync=False))
    step("list indexes", lambda: c.list_indexes("harness_index"))
    step("load without an index", lambda: c.load_collection("harness_index"))
    step("drop the indexed", lambda: c.drop_collection("harness_index"))


def rows(c):
    step("create: every type", lambda: c.create_collection("harness", schema=full_schema(c), index_params=index(c, "vec"), consistency_level="Session"))
    step("describe: every type", lambda: c.describe_collection("harness"))
    step("load state", lambda: c.get_load_state("harness"))
    step("insert", lambda: c.insert("harness", [row(i) for i in range(ROWS)]))
    step("insert one", lambda: c.insert("harness", row(ROWS)))
    step("insert none", lambda: c.insert("harness", []))
    step("insert of a wrong dimension", lambda: c.insert("harness", [{**row(1), "vec": [1.0, 2.0]}]))
    step("insert of a wrong type", lambda: c.insert("harness", [{**row(1), "i64": "text"}]))
    step("insert without a field", lambda: c.insert("harness", [{"id": 1, "vec": vector(1).tolist()}]))
    step("insert of a text too long", lambda: c.insert("harness", [{**row(1), "text": "x" * 300}]))
    step("insert of an array too long", lambda: c.insert("harness", [{**row(1), "longs": list(range(9))}]))
    step("insert NaN", lambda: c.insert("harness", [{**row(1), "vec": [float("nan")] * DIM}]))
    step("upsert", lambda: c.upsert("harness", [{**row(3), "text": "upserted"}, row(ROWS + 1)]))
    step("partial upsert", lambda: c.upsert("harness", [{"id": 4, "i64": 44}], partial_update=True))
    step("flush", lambda: c.flush("harness"))
    step("statistics", lambda: c.get_collection_stats("harness"))
    step("count", lambda: c.query("harness", "", output_fields=["count(*)"]))
    step("count with a filter", lambda: c.query("harness", "i32 > 300000", output_fields=["count(*)"]))


EXPRESSIONS = [
    "id == 3", "id != 3 and id < 6", "id in [1, 2, 99]", "id not in [0, 1, 2] and id <= 5", "flag == true and id < 10", "i8 >= 25",
    "i16 == 700", "3 < i32 / 100000 < 7", "i64 == 2251799813685248", "f32 > 19.5", "f64 between", "text == ''", "text like 't1%'",
    'text like "%é%"', 'doc["n"] == 7', 'doc["deep"]["x"][1] > 2', 'json_contains(doc["deep"]["x"], 1) and id < 4', 'exists doc["n"] and id < 3',
    "array_contains(longs, 2) and id < 12", "array_length(longs) == 3 and id < 12", 'array_contains_any(words, ["w1"]) and id < 9', "longs[0] == 0 and id < 6",
    "extra > 57", '$meta["extra"] == 12', "not (id > 1)", "(id % 2 == 0) && (id < 7) || id == 59", "id ** 2 == 9", "id & 1 == 1",
    "absent_field == 3", "id ==", "'; drop", "id == 9223372036854775807", "id == 9223372036854775808", "text_match(text, 'x')", "1 == 1", "id in []",
]


def queries(c):
    for e in EXPRESSIONS:
        step(f"query: {e}", lambda: c.query("harness", e, output_fields=["id"]))
    step("query with templates", lambda: c.query("harness", "id in {ids} and i8 > {low}", filter_params={"ids": [1, 40, 41], "low": 5}, output_fields=["id"]))
    step("query with a template of text", lambda: c.query("harness", "text == {t}", filter_params={"t": "upserted"}, output_fields=["id", "text"]))
    step("query with a template missing", lambda: c.query("harness", "id == {x}", output_fields=["id"]))
    step("query every field", lambda: c.query("harness", "id in [3, 7]", output_fields=["*"]))
    step("query fields in an order", lambda: c.query("harness", "id == 5", output_fields=["words", "extra", "vec", "doc", "f64"]))
    step("query a field that is not there", lambda: c.query("harness", "id == 5", output_fields=["nothing"]))
    step("query a page", lambda: c.query("harness", "id >= 0", limit=4, offset=7, output_fields=["id", "text"]))
    step("query without filter or limit", lambda: c.query("harness", ""))
    step("query a limit too great", lambda: c.query("harness", "id >= 0", limit=16385))
    step("query an offset too great", lambda: c.query("harness", "id >= 0", limit=10, offset=16380))
    for level in ["Strong", "Bounded", "Eventually", "Session"]:
        step(f"query at {level}", lambda: len(c.query("harness", "id < 5", output_fields=["id"], consistency_level=level)))
    step("get", lambda: c.get("harness", [5, 1, 99], output_fields=["id", "text", "vec"]))
    step("get one", lambda: c.get("harness", 7))
    step("get none", lambda: c.get("harness", []))
    iterator("query iterator", lambda: c.query_iterator("harness", batch_size=13, limit=40, filter="id > 4", output_fields=["id", "text"]))
    iterator("query iterator of everything", lambda: c.query_iterator("harness", batch_size=25, filter="", output_fields=["id"]))


def iterator(name, make):
    opened = []
    step(f"{name}: open", lambda: opened.append(make()))
    if not opened:
        return
    it = opened[0]
    for i in range(6):
        page = step(f"{name}: page {i}", it.next)
        if not page:
            break
    step(f"{name}: close", it.close)


def searches(c):
    q = [vector(100).tolist()]
    many = [vector(100 + i).tolist() for i in range(5)]
    every = ["id", "vec", "flag", "i8", "i16", "i32", "i64", "f32", "f64", "text", "doc", "longs", "words", "extra"]
    step("search", lambda: c.search("harness", q, limit=5))
    step("search, no limit said", lambda: c.search("harness", q))
    step("search with every field", lambda: c.search("harness", q, limit=3, output_fields=every))
    step("search with *", lambda: c.search("harness", q, limit=3, output_fields=["*"]))
    step("search with a dynamic field", lambda: c.search("harness", q, limit=3, output_fields=["extra", "tag"]))
    step("search with $meta", lambda: c.search("harness", q, limit=3, output_fields=["$meta"]))
    step("search with a field that is not there", lambda: c.search("harness", q, limit=3, output_fields=["nothing"]))
    step("search with several vectors", lambda: c.search("harness", many, limit=4, output_fields=["text"]))
    step("search numpy", lambda: c.search("harness", [vector(100)], limit=2))
    step("search offset", lambda: c.search("harness", q, limit=3, search_params={"offset": 4}))
    step("search offset and limit too great", lambda: c.search("harness", q, limit=10, search_params={"offset": 16380}))
    step("search limit too great", lambda: c.search("harness", q, limit=16385))
    step("search limit 0", lambda: c.search("harness", q, limit=0))
    step("search by a limit below zero", lambda: c.search("harness", q, limit=-1))
    step("search of a wrong dimension", lambda: c.search("harness", [[1.0, 2.0]], limit=3))
    step("search of a wrong type", lambda: c.search("harness", [b"\x01\x02"], limit=3))
    step("search by a wrong field", lambda: c.search("harness", q, limit=3, anns_field="absent"))
    step("search by a scalar field", lambda: c.search("harness", q, limit=3, anns_field="i64"))
    step("search by a wrong metric", lambda: c.search("harness", q, limit=3, search_params={"metric_type": "L2"}))
    step("search by a metric that is none", lambda: c.search("harness", q, limit=3, search_params={"metric_type": "NOPE"}))
    step("search by the metric", lambda: c.search("harness", q, limit=3, search_params={"metric_type": "IP"}))
    step("search NaN", lambda: c.search("harness", [[float("nan")] * DIM], limit=3))
    step("search range", lambda: c.search("harness", q, limit=20, search_params={"params": {"radius": 0.5}}))
    step("search range from to", lambda: c.search("harness", q, limit=20, search_params={"params": {"radius": 0.1, "range_filter": 1.0}}))
    step("search range the wrong way", lambda: c.search("harness", q, limit=20, search_params={"params": {"radius": 1.0, "range_filter": 0.1}}))
    step("search grouped", lambda: c.search("harness", q, limit=3, group_by_field="i8", output_fields=["i8"]))
    step("search grouped by text", lambda: c.search("harness", q, limit=3, group_by_field="text", group_size=2, output_fields=["text"]))
    step("search grouped by a vector", lambda: c.search("harness", q, limit=3, group_by_field="vec"))
    step("search rounded", lambda: c.search("harness", q, limit=3, round_decimal=2))
    step("search with params of an index", lambda: c.search("harness", q, limit=3, search_params={"params": {"nprobe": 8, "ef": 64}}))
    step("search with ignore_growing", lambda: c.search("harness", q, limit=3, search_params={"ignore_growing": False}))
    step("search with hints", lambda: c.search("harness", q, limit=3, filter="i32 > 100000", search_params={"hints": "iterative_filter"}))
    step("search with a parameter nobody knows", lambda: c.search("harness", q, limit=3, search_params={"params": {"nobody": "knows"}}))
    step("search 0 vectors", lambda: c.search("harness", [], limit=3))
    step("search by ids", lambda: c.search("harness", ids=[1, 2], limit=3))
    for e in EXPRESSIONS[:24:2]:
        step(f"search where {e}", lambda: c.search("harness", q, limit=4, filter=e, output_fields=["id"]))
    step("search with templates", lambda: c.search("harness", q, limit=4, filter="id in {ids}", filter_params={"ids": [1, 2, 3]}))
    step("search with a broken filter", lambda: c.search("harness", q, limit=4, filter="id =="))
    for level in ["Strong", "Bounded", "Eventually", "Session", "Nonsense"]:
        step(f"search at {level}", lambda: c.search("harness", q, limit=4, consistency_level=level))
    step("search in a partition", lambda: c.search("harness", q, limit=4, partition_names=["_default"]))
    step("search in a partition that is not there", lambda: c.search("harness", q, limit=4, partition_names=["absent"]))
    iterator("search iterator", lambda: c.search_iterator("harness", q, batch_size=9, limit=25, output_fields=["text"], search_params={"metric_type": "IP"}))
    iterator("search iterator with a filter", lambda: c.search_iterator("harness", q, batch_size=9, limit=25, filter="id > 20", search_params={"metric_type": "IP"}))


def hybrid(c):
    s = c.create_schema()
    s.add_field("id", DataType.INT64, is_primary=True)
    s.add_field("a", DataType.FLOAT_VECTOR, dim=4)
    s.add_field("b", DataType.FLOAT_VECTOR, dim=3)
    s.add_field("t", DataType.VARCHAR, max_length=20)
    p = index(c, "a")
    p.add_index(field_name="b", index_type="FLAT", metric_type="COSINE")
    step("create: two vectors to fuse", lambda: c.create_collection("harness_two", schema=s, index_params=p, consistency_level="Session"))
    step("insert: two vectors to fuse", lambda: c.insert("harness_two", [
        {"id": i, "a": vector(i, 4).tolist(), "b": vector(i + 50, 3).tolist(), "t": f"t{i}"} for i in range(30)]))

    def requests(**more):
        return [AnnSearchRequest([vector(1, 4).tolist()], "a", {"metric_type": "IP"}, limit=8, **more),
                AnnSearchRequest([vector(2, 3).tolist()], "b", {"metric_type": "COSINE"}, limit=8)]

    step("hybrid by RRF", lambda: c.hybrid_search("harness_two", requests(), RRFRanker(60), limit=5, output_fields=["t"]))
    step("hybrid by RRF of another k", lambda: c.hybrid_search("harness_two", requests(), RRFRanker(1), limit=5))
    step("hybrid by weights", lambda: c.hybrid_search("harness_two", requests(), WeightedRanker(0.3, 0.7), limit=5, output_fields=["t", "a"]))
    step("hybrid by wrong weights", lambda: c.hybrid_search("harness_two", requests(), WeightedRanker(0.3), limit=5))
    step("hybrid with a filter", lambda: c.hybrid_search("harness_two", requests(expr="id > 10"), RRFRanker(), limit=5))
    step("hybrid with an offset", lambda: c.hybrid_search("harness_two", requests(), RRFRanker(), limit=4, offset=2))
    step("hybrid of nothing", lambda: c.hybrid_search("harness_two", [], RRFRanker(), limit=4))
    step("search one of two", lambda: c.search("harness_two", [vector(1, 4).tolist()], anns_field="a", limit=3))
    step("search two without saying which", lambda: c.search("harness_two", [vector(1, 4).tolist()], limit=3))
    step("drop: two vectors to fuse", lambda: c.drop_collection("harness_two"))


def partitions(c):
    step("list partitions", lambda: c.list_partitions("harness"))
    step("create a partition", lambda: c.create_partition("harness", "part"))
    step("create the partition again", lambda: c.create_partition("harness", "part"))
    step("has a partition", lambda: c.has_partition("harness", "part"))
    step("load a partition", lambda: c.load_partitions("harness", ["part"]))
    step("insert into a partition", lambda: c.insert("harness", [row(200), row(201)], partition_name="part"))
    step("insert into an absent partition", lambda: c.insert("harness", [row(202)], partition_name="absent"))
    step("search the partition", lambda: c.search("harness", [vector(1).tolist()], partition_names=["part"], limit=3))
    step("query the partition", lambda: c.query("harness", "id > 0", partition_names=["part"], output_fields=["id"]))
    step("partition statistics", lambda: c.get_partition_stats("harness", "_default") and None)
    step("delete in the partition", lambda: c.delete("harness", filter="id in [200, 201]", partition_name="part"))
    step("drop a loaded partition", lambda: c.drop_partition("harness", "part"))
    step("release a partition", lambda: c.release_partitions("harness", ["part"]))
    step("drop a partition", lambda: c.drop_partition("harness", "part"))
    step("drop the partition that has everything", lambda: c.drop_partition("harness", "_default"))


def aliases(c):
    step("create an alias", lambda: c.create_alias("harness", "harness_alias"))
    step("describe an alias", lambda: c.describe_alias("harness_alias"))
    step("list aliases", lambda: c.list_aliases("harness"))
    step("search by an alias", lambda: c.search("harness_alias", [vector(1).tolist()], limit=3, output_fields=["text"]))
    step("query by an alias", lambda: c.query("harness_alias", "id == 3", output_fields=["id"]))
    step("alter an alias", lambda: c.alter_alias("harness", "harness_alias"))
    step("an alias of nothing", lambda: c.create_alias("absent", "harness_alias2"))
    step("an alias named as the collection", lambda: c.create_alias("harness", "harness"))
    step("drop an alias", lambda: c.drop_alias("harness_alias"))
    step("search by a dropped alias", lambda: c.search("harness_alias", [vector(1).tolist()], limit=3))


def deletes(c):
    step("delete by ids", lambda: c.delete("harness", ids=[1, 2]))
    step("delete by a filter", lambda: c.delete("harness", filter="i8 > 25"))
    step("delete by a template", lambda: c.delete("harness", filter="id in {ids}", filter_params={"ids": [10, 11]}))
    step("delete nothing", lambda: c.delete("harness", filter="id > 1000"))
    step("delete by a broken filter", lambda: c.delete("harness", filter="id >"))
    step("delete by neither", lambda: c.delete("harness"))
    step("delete ids that are not there", lambda: c.delete("harness", ids=[77777]))
    step("count after the deletes", lambda: c.query("harness", "", output_fields=["count(*)"]))
    step("get what was deleted", lambda: c.get("harness", [1, 2, 3], output_fields=["id"]))
    step("compact", lambda: c.compact("harness") and None)
    step("properties", lambda: c.alter_collection_properties("harness", {"collection.ttl.seconds": 86400}))
    step("drop properties", lambda: c.drop_collection_properties("harness", ["collection.ttl.seconds"]))
    step("alter a field", lambda: c.alter_collection_field("harness", "text", {"max_length": 300}))
    step("add a field", lambda: c.add_collection_field("harness", "late", DataType.INT64, nullable=True))
    step("truncate an absent collection", lambda: c.truncate_collection("absent"))
    step("segments", lambda: sorted(i.num_rows for i in c.list_persistent_segments("harness")) and None)
    step("release", lambda: c.release_collection("harness"))
    step("search what is released", lambda: c.search("harness", [vector(1).tolist()], limit=3))
    step("load state of what is released", lambda: c.get_load_state("harness"))
    step("load again", lambda: c.load_collection("harness"))
    step("search what is loaded again", lambda: c.search("harness", [vector(1).tolist()], limit=3))


def orm(address, token):
    """The older interface, with connections and collections of its own."""
    user, _, password = (token or ":").partition(":")
    step("ORM: connect", lambda: connections.connect("orm", uri=f"http://{address}", user=user, password=password))
    fields = [FieldSchema("pk", DataType.INT64, is_primary=True), FieldSchema("v", DataType.FLOAT_VECTOR, dim=4), FieldSchema("n", DataType.INT64)]
    col = step("ORM: create", lambda: Collection("harness_orm", CollectionSchema(fields, "by the ORM"), using="orm", consistency_level="Session", num_shards=1))
    if col is None:
        return
    step("ORM: schema", lambda: col.schema.to_dict())
    step("ORM: insert columns", lambda: col.insert([[1, 2, 3], [[1, 2, 3, 4], [4, 3, 2, 1], [0, 1, 0, 1]], [10, 20, 30]]).primary_keys)
    step("ORM: insert columns that differ in length", lambda: col.insert([[1, 2], [[1, 2, 3, 4]], [10]]))
    step("ORM: upsert", lambda: col.upsert([[3], [[0, 1, 0, 2]], [33]]).primary_keys)
    step("ORM: index", lambda: col.create_index("v", {"index_type": "IVF_FLAT", "metric_type": "L2", "params": {"nlist": 2}}) and None)
    step("ORM: has an index", col.has_index)
    step("ORM: load", col.load)
    step("ORM: progress", lambda: utility.loading_progress("harness_orm", using="orm"))
    step("ORM: search", lambda: col.search([[1, 2, 3, 4]], "v", {"metric_type": "L2", "params": {"nprobe": 2}}, limit=3, output_fields=["n"]))
    step("ORM: search with an expression", lambda: col.search([[1, 2, 3, 4]], "v", {"metric_type": "L2"}, limit=3, expr="n > 10"))
    step("ORM: search in the future", lambda: [h.ids for h in col.search([[1, 2, 3, 4]], "v", {"metric_type": "L2"}, limit=3, _async=True).result()])
    step("ORM: query", lambda: col.query("pk > 1", output_fields=["n", "v"]))
    step("ORM: count", lambda: col.query("", output_fields=["count(*)"]))
    step("ORM: delete", lambda: col.delete("pk in [1]").delete_count)
    step("ORM: partitions", lambda: [p.name for p in col.partitions])
    step("ORM: flush", lambda: col.flush())
    step("ORM: number of entities", lambda: col.num_entities)
    step("ORM: release", col.release)
    step("ORM: drop", col.drop)
    step("ORM: has it no more", lambda: utility.has_collection("harness_orm", using="orm"))
    step("ORM: hybrid timestamps", lambda: utility.mkts_from_unixtime(1_700_000_000))
    step("ORM: disconnect", lambda: connections.disconnect("orm"))


def limits(c):
    """Big messages, cancels, deadlines and several calls at a time."""
    step("create: big", lambda: c.create_collection("harness_big", dimension=4096, metric_type="IP", consistency_level="Session"))
    big = np.ones(4096, np.float32)
    step("insert: a request of many megabytes", lambda: c.insert("harness_big", [{"id": i, "vector": big, "pad": "x" * 100} for i in range(300)])["insert_count"])
    step("search: an answer of many megabytes", lambda: len(c.search("harness_big", [big], limit=300, output_fields=["vector", "pad"])[0]))
    step("query: an answer of many megabytes", lambda: len(c.query("harness_big", "id >= 0", limit=300, output_fields=["vector", "pad"])))
    step("search: many big vectors", lambda: [len(x) for x in c.search("harness_big", [big] * 20, limit=2)])
    step("search: 16,385 vectors", lambda: [len(x) for x in c.search("harness_big", [[1.0]] * 16385, limit=1)])
    step("drop: big", lambda: c.drop_collection("harness_big"))

    def late():  # whether the answer is in time, who notices that it is not, and how it says so, is chance
        try:
            c.query("harness", "id >= 0", limit=60, output_fields=["*"], timeout=0.001)
        except (MilvusException, grpc.RpcError):
            pass
        return c.query("harness", "id == 1", output_fields=["id"])  # the connection is as good as before

    step("a deadline of a millisecond", late)

    def together():
        answers = [None] * 16

        def one(i):
            answers[i] = c.query("harness", f"id == {i + 20}", output_fields=["id", "text"])

        threads = [threading.Thread(target=one, args=(i,)) for i in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return answers

    step("16 queries at a time", together)


def asynchronous(address, token):
    async def run():
        c = AsyncMilvusClient(f"http://{address}", token=token or "")
        try:
            both = await asyncio.gather(
                c.search("harness", [vector(3).tolist()], limit=3, output_fields=["text"]),
                c.query("harness", "id in [20, 21]", output_fields=["id"]),
                c.get("harness", [22], output_fields=["id"]),
            )
            return [plain(b) for b in both]
        finally:
            await c.close()

    step("asynchronous: search, query and get", lambda: asyncio.run(run()))


# UNLIKE are the methods that retry for twelve seconds, or tell what goes on in the
# background: metrics, compactions, segments.
UNLIKE = ["Import", "GetMetrics", "GetCompactionState", "GetCompactionStateWithPlans", "GetPersistentSegmentInfo", "GetReplicas", "GetQuerySegmentInfo"]


def raw(address, token):
    """Every method of the service with an empty request, and what no client sends."""
    auth = [("authorization", base64.b64encode(token.encode()).decode())] if token else []
    channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)])
    stub = milvus_pb2_grpc.MilvusServiceStub(channel)
    service = milvus_pb2.DESCRIPTOR.services_by_name["MilvusService"]
    for method in service.methods:
        if method.client_streaming or method.server_streaming:
            continue
        request = getattr(milvus_pb2, method.input_type.name, None) or getattr(common_pb2, method.input_type.name, None)
        if request is None or method.name in UNLIKE:
            continue

        def call():
            answer, more = getattr(stub, method.name).with_call(request(), timeout=20, metadata=auth)
            return {"answer": plain(answer), "trailers": sorted(k for k, _ in more.trailing_metadata())}

        step(f"empty {method.name}", call)

    def bytes_to(path, payload, **more):
        rpc = channel.unary_unary(path, request_serializer=lambda b: b, response_deserializer=lambda b: b)
        answer, state = rpc.with_call(payload, timeout=20, metadata=auth, **more)
        return {"answer": answer, "trailers": sorted(k for k, _ in state.trailing_metadata())}

    search = "/milvus.proto.milvus.MilvusService/"
    step("a method that is not there", lambda: bytes_to(search + "Nothing", b""))
    step("a service that is not there", lambda: bytes_to("/nobody.Knows/It", b"\x08\x01"))
    step("a telemetry service", lambda: bytes_to("/milvus.proto.milvus.ClientTelemetryService/ClientHeartbeat", b""))
    step("health of gRPC", lambda: bytes_to("/grpc.health.v1.Health/Check", b""))
    step("reflection", lambda: bytes_to("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", b""))
    step("a broken message", lambda: bytes_to(search + "DescribeCollection", b"\xff\xff\xff"))
    step("a message beyond every limit", lambda: bytes_to(search + "DescribeCollection", bytes(65 << 20)))
    step("a message with a field nobody knows", lambda: bytes_to(search + "HasCollection", b"\x1a\x07harness" + b"\xf2\xff\x7f\x03abc"))
    step("a compressed message", lambda: bytes_to(search + "HasCollection", b"\x1a\x07harness", compression=grpc.Compression.Gzip))
    step("metadata of every kind", lambda: channel.unary_unary(search + "HasCollection")(
        b"\x1a\x07harness", timeout=20, metadata=[*auth, ("x-plain", "a, b"), ("x-twice", "1"), ("x-twice", "2"), ("x-bytes-bin", b"\x00\xff")]))

    def cancelled():
        future = channel.unary_unary(search + "HasCollection").future(b"\x1a\x07harness", timeout=20, metadata=auth)
        future.cancel()  # or it was quicker

    step("a call that is cancelled", cancelled)

    def many_cancels():
        for _ in range(40):
            channel.unary_unary(search + "HasCollection").future(b"\x1a\x07harness", timeout=20, metadata=auth).cancel()
        return channel.unary_unary(search + "HasCollection")(b"\x1a\x07harness", timeout=20, metadata=auth)

    step("a call after forty cancelled ones", many_cancels)
    channel.close()


def credentials(address, token):
    step("without a password", lambda: MilvusClient(f"http://{address}").list_collections())
    step("with a wrong password", lambda: MilvusClient(f"http://{address}", token="root:wrong").list_collections())
    step("with an unknown user", lambda: MilvusClient(f"http://{address}", user="nobody", password="nothing").list_collections())
    step("with an API key", lambda: MilvusClient(f"http://{address}", token="an-api-key").list_collections())
    step("with the password", lambda: MilvusClient(f"http://{address}", token=token).list_collections() and None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True, help="host:port")
    parser.add_argument("--token", default="", help="user:password")
    options = parser.parse_args()
    address, token = options.address, options.token
    logging.disable(logging.CRITICAL)  # pymilvus logs what the steps say
    warnings.simplefilter("ignore")
    c = MilvusClient(f"http://{address}", token=token)
    for name in ["harness", "harness_kind", "harness_quick", "harness_renamed", "harness_index", "harness_two", "harness_orm", "harness_big"]:
        try:
            c.drop_collection(name)
        except (MilvusException, grpc.RpcError):
            pass
    old = server(c)
    databases(c, address, token)
    users(c)
    schemas(c, old)
    indexes(c)
    rows(c)
    queries(c)
    searches(c)
    hybrid(c)
    partitions(c)
    aliases(c)
    limits(c)
    asynchronous(address, token)
    deletes(c)
    orm(address, token)
    raw(address, token)
    credentials(address, token)
    step("drop: every type", lambda: c.drop_collection("harness"))
    step("close", c.close)


if __name__ == "__main__":
    main()
