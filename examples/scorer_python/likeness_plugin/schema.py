"""The messages that a scorer exchanges, of likeness.plugin.v1, likeness.v1 and grpc.health.v1.

They are declared here, field by field as in the .proto files, so that nothing has to be
generated; protobuf reads and writes them in C. A test compares them with the Go side.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_F = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "bool": _F.TYPE_BOOL,
    "bytes": _F.TYPE_BYTES,
    "double": _F.TYPE_DOUBLE,
    "float": _F.TYPE_FLOAT,
    "int32": _F.TYPE_INT32,
    "int64": _F.TYPE_INT64,
    "sint64": _F.TYPE_SINT64,
    "string": _F.TYPE_STRING,
    "uint64": _F.TYPE_UINT64,
}

# name: {field: (number, type)}; "[]" is repeated, "?" has presence, other names are messages.
MESSAGES = {
    "ContextEntry": {"key": (1, "string"), "value": (2, "float")},
    "WeightedItem": {"id": (1, "ItemId"), "weight": (2, "?float")},
    "Query": {
        "vector": (1, "[]float"),
        "user_id": (2, "?int64"),
        "context": (3, "[]ContextEntry"),
        "text": (4, "string"),
        "item_ids": (5, "[]WeightedItem"),
        "vectors": (6, "[]Vector"),
    },
    "Vector": {"values": (1, "[]float")},
    "ItemId": {"number": (1, "?uint64"), "negative": (2, "?sint64"), "text": (3, "?string")},
    "ScoreRequest": {"query": (1, "Query"), "ids": (2, "[]ItemId"), "payloads": (3, "[]string"), "vectors": (4, "bytes")},
    "ScoreResponse": {"scores": (1, "[]float"), "version": (2, "string")},
    "DescribeScorerResponse": {
        "name": (1, "string"),
        "version": (2, "string"),
        "max_items": (3, "int32"),
        "max_bytes": (4, "int64"),
        "parallel": (5, "int32"),
        "cost": (6, "double"),
        "text": (7, "bool"),
        "payload": (8, "bool"),
        "payload_fields": (9, "[]string"),
        "vectors": (10, "bool"),
    },
    "HealthCheckRequest": {"service": (1, "string")},
    "HealthCheckResponse": {"status": (1, "int32")},
}


def _declare() -> dict[str, type]:
    file = descriptor_pb2.FileDescriptorProto(name="likeness_plugin.proto", package="likeness_plugin", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            f = message.field.add(name=field, number=number, label=_F.LABEL_OPTIONAL)
            if kind.startswith("[]"):
                f.label, kind = _F.LABEL_REPEATED, kind[2:]
            if kind.startswith("?"):
                f.proto3_optional, kind = True, kind[1:]
                f.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name="_" + field)
            if kind in _TYPES:
                f.type = _TYPES[kind]
            else:
                f.type, f.type_name = _F.TYPE_MESSAGE, f".likeness_plugin.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {m: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"likeness_plugin.{m}")) for m in MESSAGES}


_declared = _declare()
ScoreRequest = _declared["ScoreRequest"]
ScoreResponse = _declared["ScoreResponse"]
DescribeScorerResponse = _declared["DescribeScorerResponse"]
HealthCheckRequest = _declared["HealthCheckRequest"]
HealthCheckResponse = _declared["HealthCheckResponse"]
