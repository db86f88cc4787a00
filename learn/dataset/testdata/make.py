"""Writes the Parquet files of this directory, as Arrow writes them.

Needs pyarrow==26.0.1 and numpy. The files hold, in every form, the vectors
(0.5, -2), (3, 4), (5, 6) with the ids 7, 8, 9 or a, b, c, and one log.
"""

import datetime
import pathlib
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).parent
ROWS = [[0.5, -2], [3, 4], [5, 6]]


def write(name, columns, **options):
    pq.write_table(pa.table(columns), HERE / (name + ".parquet"), **options)


def vectors(kind, fixed):
    values = [[kind.to_pandas_dtype()(x) for x in row] for row in ROWS]
    return pa.array(values, pa.list_(kind, 2) if fixed else pa.list_(kind))


write("list_float", {"id": pa.array([7, 8, 9]), "vector": vectors(pa.float32(), False)}, compression="snappy")
write("fixed_double", {"id": pa.array(["a", "b", "c"]), "vector": vectors(pa.float64(), True)}, compression="zstd", row_group_size=2)
write("fixed_half", {"id": pa.array([7, 8, 2**64 - 1], pa.uint64()), "vector": vectors(pa.float16(), True)}, compression="gzip", data_page_version="2.0")
write("plain", {"key": pa.array([uuid.UUID(int=i).bytes for i in range(3)], pa.uuid()), "a": vectors(pa.float32(), False), "b": vectors(pa.float32(), False)},
      compression="none", use_dictionary=False, data_page_size=1)
write("split", {"vector": vectors(pa.float32(), False)}, use_dictionary=False, column_encoding="BYTE_STREAM_SPLIT", compression="brotli")
write("ragged", {"vector": pa.array([[1.0, 2.0], [3.0]])})
write("holes", {"vector": pa.array([[1.0, 2.0], [3.0, None]]), "id": pa.array(["a", None])})

NOON = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc)
log = {
    "query": pa.array(["x", "y", "x", "gone"]),
    "item": pa.array([7, 8, 9, 7]),
    "weight": pa.array([1.5, None, 2, 1], pa.float32()),
    "time": pa.array([NOON, NOON, NOON + datetime.timedelta(seconds=5), NOON], pa.timestamp("us", tz="UTC")),
    "page": pa.array([1, 2, 3, 4]),
}
write("log", log)
write("lz4", {"vector": vectors(pa.float32(), False)}, compression="lz4")
write("log_int96", {**log, "item": pa.array(["7", "8", "9", "7"]), "weight": pa.array([1.5, None, 2, 1])}, use_deprecated_int96_timestamps=True, compression="brotli")
write("log_text", {"query": log["query"], "item": log["item"], "weight": log["weight"],
                   "time": pa.array(["2026-01-31T12:00:00Z", "1769860800", "1769860805000", "1769860800"])}, column_encoding={"time": "DELTA_BYTE_ARRAY", "query": "DELTA_LENGTH_BYTE_ARRAY", "item": "DELTA_BINARY_PACKED"}, use_dictionary=False)
