import argparse, pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from steps import Steps
from qdrant_client import QdrantClient, models
p = argparse.ArgumentParser()
p.add_argument("--url"); p.add_argument("--grpc-port", type=int); p.add_argument("--key"); p.add_argument("--grpc", action="store_true"); p.add_argument("--only", default="")
o = p.parse_args()
c = QdrantClient(url=o.url, grpc_port=o.grpc_port, prefer_grpc=o.grpc, api_key=o.key, timeout=30)
step = Steps(o.only)
step("create", c.create_collection, "c", models.VectorParams(size=4, distance="Dot"))
step("get", c.get_collection, "c")
step("get missing", c.get_collection, "d")
