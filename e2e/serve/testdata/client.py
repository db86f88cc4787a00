"""Asks through the official Python client; prints ids and scores as JSON lines."""
import json
import sys

from qdrant_client import QdrantClient, models

rest, grpc_port, key = sys.argv[1], int(sys.argv[2]), sys.argv[3]
vector = [1.0, -2.0, 0.5, 3.0]
only = models.Filter(must=[models.FieldCondition(key="n", match=models.MatchValue(value=1))])
for prefer_grpc in (False, True):
    client = QdrantClient(url=rest, grpc_port=grpc_port, prefer_grpc=prefer_grpc, api_key=key, timeout=30)
    answers = [
        client.query_points("routed", query=vector, limit=10).points,
        client.query_points("routed", query=vector, limit=5, offset=2, with_payload=True, with_vectors=True).points,
        client.query_points("routed", query=vector, query_filter=only).points,
    ]
    requests = [models.QueryRequest(query=vector, limit=4), models.QueryRequest(query=vector, limit=10, filter=only)]
    answers += [a.points for a in client.query_batch_points("routed", requests)]
    for points in answers:
        print(json.dumps([[str(p.id), p.score] for p in points]))
    assert client.count("plain").count == 30 and client.scroll("routed", limit=3)[0]
    assert answers[1][0].payload["big"] == 2**63 - 1 and len(answers[1][0].vector) == 4
    client.close()
