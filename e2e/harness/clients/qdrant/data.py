"""What the steps are made of: points, and tables of configurations, filters, queries and mistakes."""
import math

from qdrant_client import models as m

BIG = 2**64 - 1
UUID = "5c56c793-69f3-4fbf-87e6-c4bf54c28c26"


def numbers(seed, size):
    return [round(math.sin(seed * 1.7 + k * 2.3) * (1 + k / 3), 6) for k in range(size)]


def payload(i):
    return {
        "n": i,
        "f": i / 8 - 2,
        "colour": ["red", "green", "blue"][i % 3],
        "tags": [f"t{k}" for k in range(i % 4)],
        "flag": i % 2 == 0,
        "when": f"2024-0{1 + i % 9}-1{i % 10}T0{i % 10}:00:00Z",
        "place": {"lon": 10 + i / 10, "lat": 50 - i / 20},
        "text": ["the quick brown fox", "a lazy dog", "<b>html</b> & more", "naïve café 漢字 🙂"][i % 4],
        "uid": f"5c56c793-69f3-4fbf-87e6-0000000000{i % 7:02d}",
        "shop": [{"name": f"s{i % 5}", "price": i, "open": i % 2 == 1}, {"name": "s9", "price": 100 - i, "open": True}],
        "deep": {"er": {"est": i % 6}},
        "null": None,
        "empty": [],
        **({"rare": i} if i % 10 == 0 else {}),
    }


def id_of(i):
    return {38: BIG, 39: UUID}.get(i, i)


def rich(i):
    """A point with every kind of vector."""
    return m.PointStruct(
        id=id_of(i),
        payload=payload(i),
        vector={
            "dense": numbers(i, 4),
            "img": numbers(i + 50, 3),
            "multi": [numbers(3 * i + k, 2) for k in range(1 + i % 3)],
            "words": m.SparseVector(indices=[i % 7, 10 + i % 5, 20], values=[1.0 + i / 9, 0.5, i / 40]),
            "idf": m.SparseVector(indices=[i % 3, 5 + i % 4], values=[1.0, 2.0 + i / 10]),
        },
    )


def plain_point(i):
    return m.PointStruct(id=i, vector=numbers(i, 4), payload={"n": i, "group": i % 4})


RICH = dict(
    vectors_config={
        "dense": m.VectorParams(size=4, distance="Dot"),
        "img": m.VectorParams(size=3, distance="Cosine"),
        "multi": m.VectorParams(size=2, distance="Dot", multivector_config=m.MultiVectorConfig(comparator="max_sim")),
    },
    sparse_vectors_config={"words": m.SparseVectorParams(), "idf": m.SparseVectorParams(modifier="idf")},
    optimizers_config=m.OptimizersConfigDiff(default_segment_number=1),
)

V4 = m.VectorParams(size=4, distance="Dot")
HNSW = m.HnswConfigDiff

COLLECTIONS = {
    "dot": dict(vectors_config=V4),
    "cosine": dict(vectors_config=m.VectorParams(size=4, distance="Cosine")),
    "euclid": dict(vectors_config=m.VectorParams(size=4, distance="Euclid")),
    "manhattan": dict(vectors_config=m.VectorParams(size=4, distance="Manhattan")),
    "one dimension": dict(vectors_config=m.VectorParams(size=1, distance="Dot")),
    "many dimensions": dict(vectors_config=m.VectorParams(size=4096, distance="Dot")),
    "most dimensions": dict(vectors_config=m.VectorParams(size=65536, distance="Dot")),
    "float16": dict(vectors_config=m.VectorParams(size=4, distance="Dot", datatype="float16")),
    "uint8": dict(vectors_config=m.VectorParams(size=4, distance="Dot", datatype="uint8")),
    "float32": dict(vectors_config=m.VectorParams(size=4, distance="Dot", datatype="float32")),
    "vectors on disk": dict(vectors_config=m.VectorParams(size=4, distance="Dot", on_disk=True)),
    "payload on disk": dict(vectors_config=V4, on_disk_payload=True),
    "payload in memory": dict(vectors_config=V4, on_disk_payload=False),
    "hnsw m": dict(vectors_config=V4, hnsw_config=HNSW(m=8)),
    "hnsw off": dict(vectors_config=V4, hnsw_config=HNSW(m=0, payload_m=16)),
    "hnsw all": dict(vectors_config=V4, hnsw_config=HNSW(m=4, ef_construct=50, full_scan_threshold=20, max_indexing_threads=1, on_disk=True, payload_m=8)),
    "hnsw of the vector": dict(vectors_config=m.VectorParams(size=4, distance="Dot", hnsw_config=HNSW(m=3))),
    "optimizers": dict(vectors_config=V4, optimizers_config=m.OptimizersConfigDiff(deleted_threshold=0.5, vacuum_min_vector_number=100, default_segment_number=2, flush_interval_sec=60)),
    "indexing threshold": dict(vectors_config=V4, optimizers_config=m.OptimizersConfigDiff(indexing_threshold=0)),
    "segment size": dict(vectors_config=V4, optimizers_config=m.OptimizersConfigDiff(max_segment_size=50000, memmap_threshold=30000)),
    "optimization threads": dict(vectors_config=V4, optimizers_config=m.OptimizersConfigDiff(max_optimization_threads=1)),
    "wal": dict(vectors_config=V4, wal_config=m.WalConfigDiff(wal_capacity_mb=1, wal_segments_ahead=0)),
    "two shards": dict(vectors_config=V4, shard_number=2),
    "replication": dict(vectors_config=V4, replication_factor=1, write_consistency_factor=1),
    "auto sharding": dict(vectors_config=V4, sharding_method=m.ShardingMethod.AUTO),
    "scalar": dict(vectors_config=V4, quantization_config=m.ScalarQuantization(scalar=m.ScalarQuantizationConfig(type="int8", quantile=0.99, always_ram=True))),
    "product x16": dict(vectors_config=V4, quantization_config=m.ProductQuantization(product=m.ProductQuantizationConfig(compression="x16", always_ram=False))),
    "product x4": dict(vectors_config=V4, quantization_config=m.ProductQuantization(product=m.ProductQuantizationConfig(compression="x4"))),
    "binary": dict(vectors_config=V4, quantization_config=m.BinaryQuantization(binary=m.BinaryQuantizationConfig(always_ram=True))),
    "binary two bits": dict(vectors_config=V4, quantization_config=m.BinaryQuantization(binary=m.BinaryQuantizationConfig(encoding="two_bits", query_encoding="scalar8bits"))),
    "quantized vector": dict(vectors_config=m.VectorParams(size=4, distance="Dot", quantization_config=m.ScalarQuantization(scalar=m.ScalarQuantizationConfig(type="int8")))),
    "multivector": dict(vectors_config=m.VectorParams(size=4, distance="Cosine", multivector_config=m.MultiVectorConfig(comparator="max_sim"))),
    "no vectors": dict(vectors_config={}),
    "named": dict(vectors_config={"a": V4, "b": m.VectorParams(size=2, distance="Cosine")}),
    "odd names": dict(vectors_config={"ünï/cøde": V4, "with space": V4}),
    "sparse only": dict(vectors_config={}, sparse_vectors_config={"s": m.SparseVectorParams()}),
    "sparse on disk": dict(vectors_config={}, sparse_vectors_config={"s": m.SparseVectorParams(index=m.SparseIndexParams(on_disk=True, full_scan_threshold=10))}),
    "sparse float16": dict(vectors_config={}, sparse_vectors_config={"s": m.SparseVectorParams(index=m.SparseIndexParams(datatype="float16"))}),
    "strict": dict(vectors_config=V4, strict_mode_config=m.StrictModeConfig(enabled=True, max_query_limit=5, max_timeout=3, unindexed_filtering_retrieve=False, unindexed_filtering_update=False, search_max_hnsw_ef=8, search_allow_exact=False)),
    "strict sizes": dict(vectors_config=V4, strict_mode_config=m.StrictModeConfig(enabled=True, upsert_max_batchsize=2, filter_max_conditions=1, condition_max_size=2)),
    "metadata": dict(vectors_config=V4, metadata={"owner": "me", "n": [1, {"x": None}]}),
    "zero dimensions": dict(vectors_config=m.VectorParams(size=0, distance="Dot")),
    "too many dimensions": dict(vectors_config=m.VectorParams(size=65537, distance="Dot")),
    "custom sharding": dict(vectors_config=V4, sharding_method=m.ShardingMethod.CUSTOM),
    "hnsw ef too small": dict(vectors_config=V4, hnsw_config=HNSW(ef_construct=1)),
    "quantile out of range": dict(vectors_config=V4, quantization_config=m.ScalarQuantization(scalar=m.ScalarQuantizationConfig(type="int8", quantile=2.0))),
    "no shards": dict(vectors_config=V4, shard_number=0),
}


def field(key, **kw):
    return m.FieldCondition(key=key, **kw)


def match(key, value):
    return field(key, match=m.MatchValue(value=value))


RED, GREEN, SMALL = match("colour", "red"), match("colour", "green"), field("n", range=m.Range(lt=12))

FILTERS = {
    "must": m.Filter(must=[RED]),
    "must of two": m.Filter(must=[RED, SMALL]),
    "should": m.Filter(should=[RED, GREEN]),
    "must not": m.Filter(must_not=[RED]),
    "must, should, must not": m.Filter(must=[SMALL], should=[RED, GREEN], must_not=[match("n", 3)]),
    "min should 1": m.Filter(min_should=m.MinShould(conditions=[RED, SMALL, match("flag", True)], min_count=1)),
    "min should 2": m.Filter(min_should=m.MinShould(conditions=[RED, SMALL, match("flag", True)], min_count=2)),
    "min should 3": m.Filter(min_should=m.MinShould(conditions=[RED, SMALL, match("flag", True)], min_count=3)),
    "empty": m.Filter(),
    "one condition, no list": m.Filter(must=RED),
    "nested filter": m.Filter(must=[m.Filter(should=[RED, m.Filter(must_not=[SMALL])])]),
    "match int": m.Filter(must=[match("n", 7)]),
    "match bool": m.Filter(must=[match("flag", False)]),
    "match uuid": m.Filter(must=[match("uid", "5c56c793-69f3-4fbf-87e6-000000000003")]),
    "match nothing": m.Filter(must=[match("n", -1)]),
    "match a missing key": m.Filter(must=[match("nowhere", "x")]),
    "match in an array": m.Filter(must=[match("tags", "t1")]),
    "match another type": m.Filter(must=[match("n", "7")]),
    "match any words": m.Filter(must=[field("colour", match=m.MatchAny(any=["red", "blue"]))]),
    "match any numbers": m.Filter(must=[field("n", match=m.MatchAny(any=[1, 5, 9, 100]))]),
    "match any of none": m.Filter(must=[field("n", match=m.MatchAny(any=[]))]),
    "match except": m.Filter(must=[field("colour", match=m.MatchExcept(**{"except": ["red"]}))]),
    "match except numbers": m.Filter(must=[field("n", match=m.MatchExcept(**{"except": [1, 2, 3]}))]),
    "text": m.Filter(must=[field("text", match=m.MatchText(text="lazy"))]),
    "text, unicode": m.Filter(must=[field("text", match=m.MatchText(text="café"))]),
    "text, html": m.Filter(must=[field("text", match=m.MatchText(text="<b>"))]),
    "text any": m.Filter(must=[field("text", match=m.MatchTextAny(text_any="fox dog"))]),
    "phrase": m.Filter(must=[field("text", match=m.MatchPhrase(phrase="quick brown"))]),
    "range gt": m.Filter(must=[field("n", range=m.Range(gt=30))]),
    "range gte": m.Filter(must=[field("n", range=m.Range(gte=30))]),
    "range lt": m.Filter(must=[field("n", range=m.Range(lt=4))]),
    "range lte": m.Filter(must=[field("n", range=m.Range(lte=4))]),
    "range both": m.Filter(must=[field("f", range=m.Range(gte=-0.5, lt=0.75))]),
    "range empty": m.Filter(must=[field("f", range=m.Range(gt=5, lt=1))]),
    "range open": m.Filter(must=[field("f", range=m.Range())]),
    "dates": m.Filter(must=[field("when", range=m.DatetimeRange(gte="2024-05-01T00:00:00Z"))]),
    "dates with zone": m.Filter(must=[field("when", range=m.DatetimeRange(lt="2024-05-15T08:00:00+02:00"))]),
    "geo box": m.Filter(must=[field("place", geo_bounding_box=m.GeoBoundingBox(top_left=m.GeoPoint(lon=10, lat=50), bottom_right=m.GeoPoint(lon=12, lat=49)))]),
    "geo radius": m.Filter(must=[field("place", geo_radius=m.GeoRadius(center=m.GeoPoint(lon=11, lat=49.5), radius=50000.0))]),
    "geo polygon": m.Filter(must=[field("place", geo_polygon=m.GeoPolygon(exterior=m.GeoLineString(points=[m.GeoPoint(lon=x, lat=y) for x, y in [(10, 48), (13, 48), (13, 50), (10, 50), (10, 48)]])))]),
    "values count gte": m.Filter(must=[field("tags", values_count=m.ValuesCount(gte=2))]),
    "values count lt": m.Filter(must=[field("tags", values_count=m.ValuesCount(lt=1))]),
    "values count both": m.Filter(must=[field("tags", values_count=m.ValuesCount(gt=0, lte=2))]),
    "is empty": m.Filter(must=[m.IsEmptyCondition(is_empty=m.PayloadField(key="rare"))]),
    "is empty, an empty array": m.Filter(must=[m.IsEmptyCondition(is_empty=m.PayloadField(key="empty"))]),
    "not empty": m.Filter(must_not=[m.IsEmptyCondition(is_empty=m.PayloadField(key="rare"))]),
    "is null": m.Filter(must=[m.IsNullCondition(is_null=m.PayloadField(key="null"))]),
    "is null, another": m.Filter(must=[m.IsNullCondition(is_null=m.PayloadField(key="n"))]),
    "has id": m.Filter(must=[m.HasIdCondition(has_id=[1, 3, BIG, UUID])]),
    "has no id": m.Filter(must=[m.HasIdCondition(has_id=[])]),
    "has id of nobody": m.Filter(must=[m.HasIdCondition(has_id=[10**6])]),
    "has vector": m.Filter(must=[m.HasVectorCondition(has_vector="img")]),
    "has vector words": m.Filter(must=[m.HasVectorCondition(has_vector="words")]),
    "nested": m.Filter(must=[m.NestedCondition(nested=m.Nested(key="shop", filter=m.Filter(must=[match("name", "s2"), match("open", True)])))]),
    "nested must not": m.Filter(must=[m.NestedCondition(nested=m.Nested(key="shop", filter=m.Filter(must_not=[match("open", True)])))]),
    "path": m.Filter(must=[match("deep.er.est", 4)]),
    "path of arrays": m.Filter(must=[match("shop[].name", "s3")]),
    "path of an element": m.Filter(must=[match("shop[0].price", 8)]),
    "quoted path": m.Filter(must=[match('"deep".er', 4)]),
}

QUERY = [0.3, -1.0, 0.5, 2.0]

# Keyword arguments of query_points on the collection of rich points.
QUERIES = {
    "nearest": dict(query=QUERY, using="dense"),
    "nearest, cosine": dict(query=[1.0, 0.5, -0.2], using="img"),
    "nearest by id": dict(query=7, using="dense"),
    "nearest by uuid": dict(query=UUID, using="dense"),
    "nearest by the greatest id": dict(query=BIG, using="dense"),
    "nearest, typed": dict(query=m.NearestQuery(nearest=QUERY), using="dense"),
    "mmr": dict(query=m.NearestQuery(nearest=QUERY, mmr=m.Mmr(diversity=0.5, candidates_limit=20)), using="dense"),
    "mmr, no diversity": dict(query=m.NearestQuery(nearest=QUERY, mmr=m.Mmr(diversity=0.0)), using="dense"),
    "sparse": dict(query=m.SparseVector(indices=[1, 11, 20], values=[0.5, 2.0, 1.0]), using="words"),
    "sparse by id": dict(query=5, using="words"),
    "sparse, unknown words": dict(query=m.SparseVector(indices=[999999], values=[1.0]), using="words"),
    "sparse, no words": dict(query=m.SparseVector(indices=[], values=[]), using="words"),
    "idf": dict(query=m.SparseVector(indices=[1, 6], values=[1.0, 0.3]), using="idf"),
    "multivector": dict(query=[[0.5, 1.0], [-1.0, 0.25]], using="multi"),
    "multivector of one": dict(query=[[0.5, 1.0]], using="multi"),
    "multivector by id": dict(query=4, using="multi"),
    "no query": dict(),
    "recommend": dict(query=m.RecommendQuery(recommend=m.RecommendInput(positive=[1, 4], negative=[2])), using="dense"),
    "recommend, average": dict(query=m.RecommendQuery(recommend=m.RecommendInput(positive=[1, 4], strategy="average_vector")), using="dense"),
    "recommend, best score": dict(query=m.RecommendQuery(recommend=m.RecommendInput(positive=[1], negative=[2, 9], strategy="best_score")), using="dense"),
    "recommend, sum scores": dict(query=m.RecommendQuery(recommend=m.RecommendInput(positive=[1], negative=[2, 9], strategy="sum_scores")), using="dense"),
    "recommend, vectors": dict(query=m.RecommendQuery(recommend=m.RecommendInput(positive=[QUERY, 3])), using="dense"),
    "recommend, negative only": dict(query=m.RecommendQuery(recommend=m.RecommendInput(negative=[3], strategy="best_score")), using="dense", limit=100),
    "recommend, sparse": dict(query=m.RecommendQuery(recommend=m.RecommendInput(positive=[3, 8])), using="words"),
    "discover": dict(query=m.DiscoverQuery(discover=m.DiscoverInput(target=QUERY, context=[m.ContextPair(positive=1, negative=2), m.ContextPair(positive=5, negative=6)])), using="dense"),
    "discover by id": dict(query=m.DiscoverQuery(discover=m.DiscoverInput(target=9, context=[m.ContextPair(positive=[1.0, 0, 0, 0], negative=2)])), using="dense"),
    "discover, no context": dict(query=m.DiscoverQuery(discover=m.DiscoverInput(target=9, context=[])), using="dense"),
    "context": dict(query=m.ContextQuery(context=[m.ContextPair(positive=1, negative=2), m.ContextPair(positive=30, negative=12)]), using="dense", limit=100),
    "order by": dict(query=m.OrderByQuery(order_by=m.OrderBy(key="n", direction="desc"))),
    "order by from": dict(query=m.OrderByQuery(order_by=m.OrderBy(key="n", start_from=20))),
    "rrf": dict(prefetch=[m.Prefetch(query=QUERY, using="dense", limit=9), m.Prefetch(query=[1.0, 0.5, -0.2], using="img", limit=9)], query=m.FusionQuery(fusion="rrf"), limit=100),
    "dbsf": dict(prefetch=[m.Prefetch(query=QUERY, using="dense", limit=9), m.Prefetch(query=m.SparseVector(indices=[1, 20], values=[1, 1]), using="words", limit=9)], query=m.FusionQuery(fusion="dbsf"), limit=100),
    "rrf with k": dict(prefetch=[m.Prefetch(query=QUERY, using="dense"), m.Prefetch(query=[1.0, 0.5, -0.2], using="img")], query=m.RrfQuery(rrf=m.Rrf(k=5)), limit=100),
    "rescore a prefetch": dict(prefetch=m.Prefetch(query=[1.0, 0.5, -0.2], using="img", limit=12), query=QUERY, using="dense"),
    "prefetch of prefetches": dict(prefetch=m.Prefetch(prefetch=[m.Prefetch(query=[[1.0, 0.5]], using="multi", limit=20)], query=[1.0, 0.5, -0.2], using="img", limit=12), query=QUERY, using="dense"),
    "prefetch with a filter": dict(prefetch=m.Prefetch(query=[1.0, 0.5, -0.2], using="img", filter=m.Filter(must=[RED]), limit=12), query=QUERY, using="dense"),
    "prefetch, threshold": dict(prefetch=m.Prefetch(query=[1.0, 0.5, -0.2], using="img", score_threshold=0.1), query=QUERY, using="dense"),
    "formula": dict(prefetch=m.Prefetch(query=QUERY, using="dense", limit=9), query=m.FormulaQuery(formula=m.SumExpression(sum=["$score", m.MultExpression(mult=[0.1, "n"])]))),
    "formula with conditions": dict(prefetch=m.Prefetch(query=QUERY, using="dense", limit=9), query=m.FormulaQuery(formula=m.SumExpression(sum=["$score", m.MultExpression(mult=[2.0, RED])]))),
    "formula, decay": dict(prefetch=m.Prefetch(query=QUERY, using="dense", limit=9), query=m.FormulaQuery(formula=m.GaussDecayExpression(gauss_decay=m.DecayParamsExpression(x="n", target=20.0, scale=5.0)))),
    "formula, defaults": dict(prefetch=m.Prefetch(query=QUERY, using="dense", limit=9), query=m.FormulaQuery(formula=m.DivExpression(div=m.DivParams(left="$score", right="rare", by_zero_default=3.0)), defaults={"rare": 2.0})),
    "sample": dict(query=m.SampleQuery(sample="random"), limit=100),
}

# What a plain nearest-neighbour query is asked with.
OPTIONS = {
    "limit 1": dict(limit=1),
    "limit 0": dict(limit=0),
    "limit of all": dict(limit=1000),
    "offset": dict(limit=5, offset=3),
    "offset beyond": dict(offset=1000),
    "payload": dict(with_payload=True),
    "no payload": dict(with_payload=False),
    "payload keys": dict(with_payload=["n", "deep.er"]),
    "payload include": dict(with_payload=m.PayloadSelectorInclude(include=["colour", "shop[].name"])),
    "payload exclude": dict(with_payload=m.PayloadSelectorExclude(exclude=["shop", "text"])),
    "vectors": dict(with_vectors=True),
    "named vectors": dict(with_vectors=["img", "words"]),
    "threshold": dict(score_threshold=1.0),
    "threshold of none": dict(score_threshold=1e9),
    "hnsw ef": dict(search_params=m.SearchParams(hnsw_ef=64)),
    "exact": dict(search_params=m.SearchParams(exact=True)),
    "indexed only": dict(search_params=m.SearchParams(indexed_only=True)),
    "quantization ignored": dict(search_params=m.SearchParams(quantization=m.QuantizationSearchParams(ignore=True))),
    "quantization rescored": dict(search_params=m.SearchParams(quantization=m.QuantizationSearchParams(rescore=True, oversampling=2.0))),
    "acorn": dict(search_params=m.SearchParams(acorn=m.AcornSearchParams(enable=True, max_selectivity=0.4))),
    "timeout": dict(timeout=5),
    "consistency 1": dict(consistency=1),
    "consistency all": dict(consistency=m.ReadConsistencyType.ALL),
    "consistency majority": dict(consistency=m.ReadConsistencyType.MAJORITY),
    "consistency quorum": dict(consistency=m.ReadConsistencyType.QUORUM),
    "lookup from": dict(query=3, lookup_from=m.LookupLocation(collection="plain")),
    "everything": dict(limit=3, offset=2, with_payload=True, with_vectors=True, query_filter=m.Filter(must_not=[RED]), search_params=m.SearchParams(exact=True), score_threshold=-5.0, timeout=9),
}

INDEXES = {
    "keyword": ("colour", "keyword"),
    "integer": ("n", "integer"),
    "float": ("f", "float"),
    "geo": ("place", "geo"),
    "bool": ("flag", "bool"),
    "datetime": ("when", "datetime"),
    "uuid": ("uid", "uuid"),
    "text": ("text", "text"),
    "nested key": ("shop[].name", "keyword"),
    "path": ("deep.er.est", "integer"),
    "keyword on disk": ("tags", m.KeywordIndexParams(type="keyword", on_disk=True, is_tenant=True)),
    "integer without range": ("rare", m.IntegerIndexParams(type="integer", lookup=True, range=False)),
    "integer principal": ("n", m.IntegerIndexParams(type="integer", lookup=True, range=True, is_principal=True, on_disk=True)),
    "float on disk": ("f", m.FloatIndexParams(type="float", on_disk=True)),
    "text, words": ("text", m.TextIndexParams(type="text", tokenizer="word", min_token_len=2, max_token_len=10, lowercase=True)),
    "text, prefix": ("text", m.TextIndexParams(type="text", tokenizer="prefix", lowercase=False)),
    "text, phrases": ("text", m.TextIndexParams(type="text", tokenizer="multilingual", phrase_matching=True)),
    "text, stopwords": ("text", m.TextIndexParams(type="text", stopwords=m.StopwordsSet(languages=["english"], custom=["fox"]), stemmer=m.SnowballParams(type="snowball", language="english"))),
    "bool on disk": ("flag", m.BoolIndexParams(type="bool", on_disk=True)),
    "datetime principal": ("when", m.DatetimeIndexParams(type="datetime", is_principal=True)),
    "uuid tenant": ("uid", m.UuidIndexParams(type="uuid", is_tenant=True)),
    "geo on disk": ("place", m.GeoIndexParams(type="geo", on_disk=True)),
    "a key that nobody has": ("nowhere", "keyword"),
    "another type": ("text", "integer"),
}
