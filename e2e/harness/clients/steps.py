"""Runs the steps of a scenario and prints what became of each as a line of JSON."""
import enum
import json
import math
import sys


def plain(value):
    """The value in JSON's types: models by their fields, messages by theirs."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if hasattr(value, "model_fields_set"):  # pydantic
        fields = type(value).model_fields
        return {"is": type(value).__name__, **{name: plain(getattr(value, name)) for name in fields}, **plain(value.model_extra or {})}
    if hasattr(value, "DESCRIPTOR"):  # protobuf
        from google.protobuf.json_format import MessageToDict

        return {"is": value.DESCRIPTOR.name, **plain(MessageToDict(value, preserving_proto_field_name=True))}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if hasattr(value, "tolist"):  # numpy
        return plain(value.tolist())
    if isinstance(value, (list, tuple)) or hasattr(value, "__iter__"):
        return [plain(v) for v in value]
    return str(value)


def failure(error):
    """Type, message and status of an exception, whichever client raised it."""
    code, message = getattr(error, "code", None), str(error)
    if callable(code):  # grpc.RpcError
        code, message = code().name, error.details()
    status = getattr(error, "status_code", None)
    if status is not None:
        code = status
    return {"type": type(error).__name__, "message": str(message), "code": "" if code is None else str(code)}


class Steps:
    """Call it with a step's name, a function and its arguments."""

    def __init__(self, only=""):
        self.only = only
        self.out = sys.stdout

    def __call__(self, name, call, *args, **kwargs):
        """Records the outcome and returns the result, None where it failed."""
        if self.only and self.only not in name:
            return None
        result = None
        try:
            result = call(*args, **kwargs)
            line = {"step": name, "result": plain(result)}
            if line["result"] is None:
                line["result"] = {"is": "None"}
        except Exception as error:  # every failure is an outcome
            line = {"step": name, "error": failure(error)}
        self.out.write(json.dumps(line, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace").decode() + "\n")
        self.out.flush()
        return result
