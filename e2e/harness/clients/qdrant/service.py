"""Steps about the service: versions, credentials, raw requests, snapshots, many at once."""
import asyncio
import concurrent.futures
import io
import time

import data as d
import httpx
from qdrant_client import AsyncQdrantClient
from qdrant_client import models as m


def shape(value):
    """The keys of an answer whose values are the moment's."""
    value = value.model_dump() if hasattr(value, "model_dump") else value
    if isinstance(value, dict):
        return {k: shape(v) for k, v in value.items()}
    return type(value).__name__


def calls(step, c, connect, o):
    step("info", c.info)
    for name, call in {
        "cluster status": c.cluster_status,
        "cluster of a collection": lambda: c.collection_cluster_info("plain"),
        "move a shard": lambda: c.cluster_collection_update("plain", m.MoveShardOperation(move_shard=m.MoveShard(shard_id=0, to_peer_id=1, from_peer_id=2))),
        "recover peer": c.recover_current_peer,
        "remove a peer": lambda: c.remove_peer(12345),
        "create shard key": lambda: c.create_shard_key("plain", "eu"),
        "delete shard key": lambda: c.delete_shard_key("plain", "eu"),
        "list shard keys": lambda: c.list_shard_keys("plain"),
        "cluster telemetry": lambda: shape(c.cluster_telemetry()),
        "optimizations": lambda: shape(c.get_optimizations("plain")),
        "healthz": c.http.service_api.healthz,
        "livez": c.http.service_api.livez,
        "readyz": c.http.service_api.readyz,
        "issues": c.http.beta_api.get_issues,
        "clear issues": c.http.beta_api.clear_issues,
    }.items():
        step(f"service: {name}", call)
    for name, key in {"wrong": "wrong", "none": None, "empty": ""}.items():
        other = connect(key=key, check_compatibility=False)
        step(f"key {name}: list", other.get_collections)
        step(f"key {name}: query", other.query_points, "plain", query=d.QUERY)
        step(f"key {name}: upsert", other.upsert, "plain", [d.plain_point(1)])
        step(f"key {name}: delete", other.delete_collection, "plain")
        other.close()
    raw(step, o)
    legacy(step, c)
    big(step, c, o)


def legacy(step, c):
    """Calls of the generated client that the newer ones have replaced."""
    api = c.http.search_api
    for name, call in {
        "search": lambda: api.search_points("rich", search_request=m.SearchRequest(vector=m.NamedVector(name="dense", vector=d.QUERY), limit=4, with_payload=True)),
        "search, sparse": lambda: api.search_points("rich", search_request=m.SearchRequest(vector=m.NamedSparseVector(name="words", vector=m.SparseVector(indices=[1], values=[1.0])), limit=4)),
        "search batch": lambda: api.search_batch_points("plain", search_request_batch=m.SearchRequestBatch(searches=[m.SearchRequest(vector=d.QUERY, limit=k) for k in (1, 3)])),
        "search groups": lambda: api.search_point_groups("plain", search_groups_request=m.SearchGroupsRequest(vector=d.QUERY, group_by="group", group_size=2, limit=3)),
        "recommend": lambda: api.recommend_points("plain", recommend_request=m.RecommendRequest(positive=[1], negative=[2], limit=3)),
        "recommend batch": lambda: api.recommend_batch_points("plain", recommend_request_batch=m.RecommendRequestBatch(searches=[m.RecommendRequest(positive=[k], limit=2) for k in (1, 2)])),
        "recommend groups": lambda: api.recommend_point_groups("plain", recommend_groups_request=m.RecommendGroupsRequest(positive=[1], group_by="group", group_size=1, limit=3)),
        "discover": lambda: api.discover_points("plain", discover_request=m.DiscoverRequest(target=1, context=[m.ContextExamplePair(positive=2, negative=3)], limit=3)),
        "discover batch": lambda: api.discover_batch_points("plain", discover_request_batch=m.DiscoverRequestBatch(searches=[m.DiscoverRequest(target=1, limit=2)])),
        "point": lambda: c.http.points_api.get_point("rich", 3),
        "point by uuid": lambda: c.http.points_api.get_point("rich", d.UUID),
        "point that is missing": lambda: c.http.points_api.get_point("rich", 10**9),
        "count": lambda: c.http.points_api.count_points("rich", count_request=m.CountRequest(exact=False)),
    }.items():
        step(f"generated: {name}", call)


def raw(step, o):
    """Requests that no method of the client makes."""
    # The server closes connections after some mistakes: each request has its own.
    http = httpx.Client(base_url=o.url, headers={"api-key": o.key}, limits=httpx.Limits(max_keepalive_connections=0))

    def ask(method, path, **kw):
        def call():
            r = http.request(method, path, **kw)
            varying = any(path.startswith(p) for p in ("/metrics", "/telemetry"))
            if r.headers.get("content-encoding") == "br":
                text = "compressed"  # this client reads no brotli
            elif r.headers.get("content-type") == "application/json" and not varying:
                text = r.json()
            elif varying:
                text = sorted({line.split()[2] for line in r.text.splitlines() if line.startswith("# TYPE")})
            else:
                text = r.text
            return {"status": r.status_code, "type": r.headers.get("content-type"), "body": text}
        return call

    json = {"content-type": "application/json"}
    for name, call in {
        "root": ask("GET", "/"), "metrics": ask("GET", "/metrics"), "metrics anonymized": ask("GET", "/metrics?anonymize=true"),
        "unknown path": ask("GET", "/nowhere"), "unknown method": ask("PURGE", "/collections"), "head": ask("HEAD", "/collections/plain"), "options": ask("OPTIONS", "/collections/plain"),
        "double slash": ask("GET", "//collections/plain/exists"), "trailing slash": ask("GET", "/collections/"), "dots": ask("GET", "/collections/../collections/plain/exists"),
        "escaped name": ask("GET", "/collections/pl%61in/exists"), "escaped slash": ask("GET", "/collections/a%2Fb"), "empty name": ask("GET", "/collections//exists"),
        "query twice": ask("GET", "/collections/plain/exists?a=1&a=2&&="), "semicolon": ask("GET", "/collections/plain/exists?a;b"),
        "bad argument": ask("POST", "/collections/plain/points/count?timeout=x", content="{}", headers=json),
        "timeout 0": ask("POST", "/collections/plain/points/count?timeout=0", content="{}", headers=json),
        "consistency": ask("POST", "/collections/plain/points/scroll?consistency=majority", content='{"limit":1}', headers=json),
        "no body": ask("POST", "/collections/plain/points/count"), "empty object": ask("POST", "/collections/plain/points/count", content="{}"), "no json": ask("POST", "/collections/plain/points/count", content="count!"),
        "cut json": ask("POST", "/collections/plain/points/search", content='{"vector":[1,', headers=json), "unknown field": ask("POST", "/collections/plain/points/count", content='{"tomorrow":[1]}', headers=json),
        "a key twice": ask("POST", "/collections/plain/points/count", content='{"exact":true,"exact":false}', headers=json),
        "numbers": ask("POST", "/collections/plain/points/query", content='{"query":[1.0e0,2E0,-0.0,10.000000000000000000001],"limit":3}', headers=json),
        "spaces": ask("POST", "/collections/plain/points/query", content=' {\n "query" : 3 , "limit":2\t}\r\n', headers=json),
        "byte order mark": ask("POST", "/collections/plain/points/count", content=b"\xef\xbb\xbf{}", headers=json), "bytes": ask("POST", "/collections/plain/points/count", content=b"\xff\xfe\x00", headers=json),
        "another type": ask("POST", "/collections/plain/points/count", content="{}", headers={"content-type": "text/plain"}),
        "id too great": ask("GET", "/collections/plain/points/18446744073709551616"), "id of letters": ask("GET", "/collections/plain/points/abc"), "negative id": ask("GET", "/collections/plain/points/-1"),
        "gzip asked": ask("GET", "/collections/plain", headers={"accept-encoding": "gzip"}), "br asked": ask("GET", "/collections/nobody", headers={"accept-encoding": "br"}), "nothing accepted": ask("GET", "/collections/nobody", headers={"accept-encoding": "identity"}),
        "bearer": ask("GET", "/collections/plain/exists", headers={"api-key": "", "authorization": f"Bearer {o.key}"}), "wrong bearer": ask("GET", "/collections/plain/exists", headers={"api-key": "", "authorization": "Bearer x"}),
        "origin": ask("GET", "/collections/plain/exists", headers={"origin": "http://example.com"}), "preflight": ask("OPTIONS", "/collections", headers={"origin": "http://example.com", "access-control-request-method": "PUT"}),
        "put with an empty name": ask("PUT", "/collections/", content="{}", headers=json), "patch": ask("PATCH", "/collections/nobody", content="{}", headers=json), "delete with a body": ask("DELETE", "/collections/nobody", content="{}", headers=json),
        "get with a body": ask("GET", "/collections/plain/exists", content="{}", headers=json), "expectation": ask("POST", "/collections/plain/points/count", content="{}", headers={"x-request-id": "7", "cache-control": "no-cache"}),
        "group 1": ask("POST", "/collections/plain/points/search/groups", content='{"vector":[1,2,3,4],"group_by":"group","limit":2,"group_size":1}', headers=json),
        "lock": ask("GET", "/locks"), "dashboard": ask("GET", "/dashboard"), "cluster": ask("GET", "/cluster"), "telemetry": ask("GET", "/telemetry?details_level=1"),
    }.items():
        step(f"raw: {name}", call)
    http.close()


def big(step, c, o):
    http = httpx.Client(base_url=o.url, headers={"api-key": o.key, "content-type": "application/json"}, timeout=120)
    for name, size in {"1 MiB": 1 << 20, "8 MiB": 8 << 20}.items():
        step(f"big: a body of {name}", lambda: http.post("/collections/plain/points/count", content=b'{"exact":true' + b" " * size + b"}").json()["result"])

    def refused():
        """Beyond 32 MiB the server refuses while the body is still sent: its answer may be lost, its refusal not."""
        try:
            return http.post("/collections/plain/points/count", content=b" " * (33 << 20)).status_code >= 400
        except httpx.TransportError:
            return True
    step("big: a body beyond the limit is refused", refused)
    http.close()
    c.create_collection("big", m.VectorParams(size=1024, distance="Dot"))
    rows = [m.PointStruct(id=i, vector=[(i * 31 + k) % 97 / 97 for k in range(1024)]) for i in range(300)]
    step("big: upsert 300 x 1024", c.upsert, "big", rows)
    step("big: read them", lambda: [[p.id, sum(p.vector)] for p in c.scroll("big", limit=300, with_vectors=True)[0]])
    step("big: many ids", lambda: len(c.retrieve("big", list(range(20000)), with_payload=False)))
    step("big: a filter of many ids", c.count, "big", count_filter=m.Filter(must=[m.HasIdCondition(has_id=list(range(0, 20000, 2)))]))
    step("big: a long word", c.count, "plain", count_filter=m.Filter(must=[d.match("n", "x" * 500000)]))
    c.delete_collection("big")


def snapshots(step, c, o):
    made = step("snapshot: create", c.create_snapshot, "plain")
    step("snapshot: list", c.list_snapshots, "plain")
    http = httpx.Client(base_url=o.url, headers={"api-key": o.key}, timeout=60)

    def download(name):
        return lambda: http.get(f"/collections/plain/snapshots/{name}").status_code
    step("snapshot: download", download(made.name if made else "x"))
    step("snapshot: download a missing one", download("nobody.snapshot"))

    def upload(path, content):
        return lambda: http.post(path, files={"snapshot": ("s.snapshot", io.BytesIO(content))}).json()["result"]
    content = http.get(f"/collections/plain/snapshots/{made.name}").content if made else b""
    step("snapshot: upload", upload("/collections/copied/snapshots/upload?wait=true&priority=snapshot", content))
    step("snapshot: count in the copy", c.count, "copied")
    step("snapshot: query the copy", c.query_points, "copied", query=d.QUERY, limit=4, with_payload=True, with_vectors=True)
    step("snapshot: upload rubbish", lambda: http.post("/collections/copied/snapshots/upload", files={"snapshot": ("s.snapshot", b"rubbish")}).status_code)
    step("snapshot: upload without a part", lambda: http.post("/collections/copied/snapshots/upload", files={"other": b"x"}).status_code)
    step("snapshot: recover from nowhere", c.recover_snapshot, "copied", "file:///nowhere/x.snapshot")
    step("snapshot: recover from a bad address", c.recover_snapshot, "copied", "not an address")
    shard = step("snapshot: of a shard", c.create_shard_snapshot, "plain", 0)
    step("snapshot: list of a shard", c.list_shard_snapshots, "plain", 0)
    step("snapshot: of a missing shard", c.create_shard_snapshot, "plain", 7)
    step("snapshot: delete of a shard", c.delete_shard_snapshot, "plain", 0, shard.name if shard else "x")
    # Before the full one, which makes one of every collection and removes it again: in the same second, by the same name.
    step("snapshot: delete", c.delete_snapshot, "plain", made.name if made else "x")
    full = step("snapshot: full", c.create_full_snapshot)
    step("snapshot: full list", c.list_full_snapshots)
    step("snapshot: full delete", c.delete_full_snapshot, full.name if full else "x")
    step("snapshot: full delete again", c.delete_full_snapshot, "nobody.snapshot")
    step("snapshot: delete again", c.delete_snapshot, "plain", "nobody.snapshot")
    step("snapshot: no wait", c.create_snapshot, "plain", wait=False)
    # Qdrant 1.17.0 can lock itself for a minute if searches arrive while it makes a snapshot.
    deadline = time.monotonic() + 60
    while not o.only and not c.list_snapshots("plain") and time.monotonic() < deadline:
        time.sleep(0.05)
    http.close()


def at_once(step, c, o):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        def each(call, n=64):
            return lambda: list(pool.map(call, range(n)))
        step("at once: queries", each(lambda i: [[p.id, p.score] for p in c.query_points("plain", query=d.numbers(i, 4), limit=3).points]))
        step("at once: writes", each(lambda i: c.upsert("plain", [d.plain_point(100 + i)]).status))
        step("at once: after the writes", c.count, "plain")
        step("at once: reads and mistakes", each(lambda i: outcome(c, i)))
        step("at once: deletes", each(lambda i: c.delete("plain", [100 + i]).status))

    async def gather(work):
        a = AsyncQdrantClient(url=o.url, grpc_port=o.grpc_port, prefer_grpc=o.grpc, api_key=o.key, timeout=120)
        try:
            return await asyncio.gather(*work(a), return_exceptions=True)
        finally:
            await a.close()

    def cancelled(a):
        """Calls that are given up at once, and some that are not."""
        tasks = [asyncio.ensure_future(a.count("rich")) for _ in range(40)]
        for task in tasks[::2]:
            task.cancel()
        return tasks
    for name, work in {
        "counts": lambda a: [a.count("rich") for _ in range(20)],
        "queries": lambda a: [a.query_points("rich", query=d.numbers(i, 4), using="dense", limit=3) for i in range(20)],
        "upserts": lambda a: [a.upsert("plain", [d.plain_point(i)]) for i in range(8)],
        "scroll": lambda a: [a.scroll("rich", limit=3, order_by="n")],
        "collections": lambda a: [a.collection_exists("rich"), a.collection_exists("nobody"), a.get_aliases()],
        "mistakes": lambda a: [a.query_points("rich", query=[1.0], using="dense")],
        "groups": lambda a: [a.query_points_groups("rich", "n", query=d.QUERY, using="dense", limit=2)],
        "facet": lambda a: [a.facet("rich", "colour")],
        "cancelled": cancelled,
    }.items():
        def settled(work=work):
            return [type(r).__name__ if isinstance(r, BaseException) else getattr(r, "status", r) for r in asyncio.run(gather(work))]
        step(f"async: {name}", settled)
    if o.grpc:
        from qdrant_client import grpc
        step("deadline: far", lambda: c.grpc_points.Count(grpc.CountPoints(collection_name="rich"), timeout=20, metadata=[("api-key", o.key)]).result)
        calls = [c.grpc_points.Count.future(grpc.CountPoints(collection_name="rich"), metadata=[("api-key", o.key)]) for _ in range(30)]
        step("cancel: thirty calls", lambda: [f.cancel() and None for f in calls])
        step("cancel: calls after them", lambda: [c.count("rich").count for _ in range(10)])


def outcome(c, i):
    try:
        return c.count("rich" if i % 2 else "nobody").count
    except Exception as error:
        return type(error).__name__
