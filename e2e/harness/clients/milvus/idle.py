"""Keeps a connection without a call while it pings, and calls again. pymilvus pings
every ten seconds; --every makes it quicker."""

import argparse
import pathlib
import sys
import time

from pymilvus import MilvusClient

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from steps import Steps  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--address", required=True, help="host:port")
parser.add_argument("--every", type=int, default=10000, help="milliseconds between pings")
parser.add_argument("--pings", type=int, default=5, help="how many to wait for")
options = parser.parse_args()
client = MilvusClient(f"http://{options.address}", grpc_options={
    "grpc.keepalive_time_ms": options.every,
    "grpc.http2.max_pings_without_data": 0,  # as many as the time asks for
})
step = Steps()
step("before", client.list_collections)
time.sleep((options.pings + 0.5) * options.every / 1000)
step("after", client.list_collections)
client.close()
