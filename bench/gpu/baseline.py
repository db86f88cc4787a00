"""The cases of `likeness-gpu bench` in PyTorch: eager and compiled, float32 and float16, on the same table and queries.

usage: baseline.py FOLDER [--device cuda] [--seconds 2] [--runs 50] [--compile default|no]

FOLDER has a file CASE.safetensors for each case: the queries' operands, the layers of the gates, and the answers of
likeness. A table is made here of its seed, as package gpu/workload makes it. A line of JSON is printed for each way that a
case is run: how long the device took, by events, from queries on the device to answers on the device, and what share of
likeness's rows it found. The best of some sizes of chunks counts: the intermediate results of a whole table would not fit.
"""
import argparse
import json
import pathlib
import struct
import sys
import time

import torch
import torch._dynamo.utils

TYPES = {"F32": torch.float32, "I64": torch.int64}


def read(path):
    """(metadata, tensors) of a safetensors file"""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, tensors = json.loads(raw[8:8 + size]), {}
    metadata = header.pop("__metadata__", {})
    for name, t in header.items():
        begin, end = (8 + size + at for at in t["data_offsets"])
        tensors[name] = torch.frombuffer(bytearray(raw[begin:end]), dtype=TYPES[t["dtype"]]).reshape(t["shape"])
    return json.loads(metadata["case"]), tensors


def numbers(seed, first, count, device):
    """gpu/workload.Number of places first to first + count, in 64-bit integers of which the low half counts"""
    low = 0xFFFFFFFF
    h = (torch.arange(first, first + count, dtype=torch.int64, device=device) & low) * 0x9E3779B1 + seed & low
    h ^= h >> 16
    h = h * 0x85EBCA6B & low
    h ^= h >> 13
    h = h * 0xC2B2AE35 & low
    h ^= h >> 16
    return ((h >> 8) - (1 << 23)).to(torch.float32) * 2.0**-23


def table(case, device, kind):
    """(components, or whole rows; the items' part of the gates) with rows of zeros up to case['padded']"""
    rows, cols, units, block = case["rows"], case["features"], case["units"], case["block"]
    wide = units * block
    main = torch.zeros(case["padded"], wide or cols, dtype=kind, device=device)
    gates = torch.zeros(case["padded"], cols - wide, dtype=kind, device=device) if wide and cols > wide else None
    step = max(1, (1 << 24) // cols)
    for first in range(0, rows, step):
        n = min(step, rows - first)
        x = numbers(case["seed"], first * cols, n * cols, device).view(n, cols)
        if not wide:
            main[first:first + n] = x * 3**0.5
            continue
        g = x[:, :wide].reshape(n, units, block)
        main[first:first + n] = (g / g.norm(dim=2, keepdim=True)).view(n, wide)
        if gates is not None:
            gates[first:first + n] = x[:, wide:] * 3**0.5
    return main, gates


def mix(logits, item, t, silu):
    """φ of logits over τ: (..., L) and the items' part of the gates, broadcast over queries"""
    z = torch.nn.functional.silu(logits @ t["first"].T + t["first_bias"]) @ t["second"].T + t["second_bias"]
    if silu:
        z = torch.nn.functional.silu(z + t["gates"][:, None] * item)
    else:
        z = z + t["gates"][:, None] + item
    return (torch.softmax(z, -1) * logits).sum(-1)


def scorer(case, t):
    """score(rows, gates) of a piece of the table, or of gathered candidates"""
    if case["kind"] != "mol":
        return lambda rows, gates: t["vectors"] @ rows.T
    pq, px, d = case["pairs_query"], case["pairs_item"], case["dim"]
    f = t["components"]  # (B, P_Q, D), over τ

    def scan(rows, gates):
        n = rows.shape[0]
        logits = (f.reshape(-1, d) @ rows.view(n * px, d).T).view(f.shape[0], pq, n, px)
        return mix(logits.permute(0, 2, 1, 3).reshape(f.shape[0], n, pq * px), gates, t, case["silu"])

    def rescore(rows, gates):
        b, n = rows.shape[:2]
        logits = (rows.view(b, n * px, d) @ f.transpose(1, 2)).view(b, n, px, pq)
        return mix(logits.permute(0, 1, 3, 2).reshape(b, n, pq * px), gates, t, case["silu"])

    return rescore if case["candidates"] else scan


def runner(case, t, main, gates, score, chunk):
    """a function without arguments that answers the case"""
    k, rows = case["k"], case["rows"]
    if case["candidates"]:
        ids = t["candidates"]

        def run():
            s = score(main[ids], None if gates is None else gates[ids])
            top = s.topk(k, dim=1)
            return top.values, ids.gather(1, top.indices)
        return run
    scores = torch.empty(case["batch"], case["padded"], dtype=main.dtype, device=main.device)

    def run():
        for first in range(0, rows, chunk):
            scores[:, first:first + chunk] = score(main[first:first + chunk], None if gates is None else gates[first:first + chunk])
        return scores[:, :rows].topk(k, dim=1)
    return run


class Clock:
    """milliseconds that the device takes"""

    def __init__(self, device):
        self.cuda = device == "cuda"

    def time(self, run):
        if not self.cuda:
            began = time.perf_counter()
            run()
            return 1e3 * (time.perf_counter() - began)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)


def measured(clock, run, options):
    for _ in range(3):
        run()
    took, until = [], time.monotonic() + options.seconds
    while len(took) < options.runs and (not took or time.monotonic() < until):
        took.append(clock.time(run))
    took.sort()
    at = lambda share: took[max(0, -int(-share * len(took) // 1) - 1)]
    return {"runs": len(took), "min_ms": took[0], "p50_ms": at(0.5), "p99_ms": at(0.99)}


def chunks(case):
    """sizes of pieces to try; all of them divide case['padded']"""
    if case["candidates"]:
        return [0]
    if case["kind"] != "mol":
        return [case["padded"]]
    return [c for c in (8192, 32768, 131072) if c <= case["padded"]] or [case["padded"]]


def agreement(answer, want):
    ids = answer[1].cpu()
    same = [len(set(a.tolist()) & set(b.tolist())) / max(1, len(b)) for a, b in zip(ids, want)]
    return sum(same) / len(same)


def fresh():
    """forgets what was compiled: the cases share functions, of which only some versions would be"""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()


def graphs():
    """how many were compiled since"""
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def ways(case, tensors, options):
    """a row for each way"""
    clock = Clock(options.device)
    for kind in (torch.float32, torch.float16):
        t = {name: (x if name in ("candidates", "answers") else x.to(kind)).to(options.device) for name, x in tensors.items()}
        main, gates = table(case, options.device, kind)
        if case["kind"] == "mol":
            main = main.view(case["padded"], case["pairs_item"], case["dim"])
            gates = torch.zeros((), dtype=kind, device=options.device) if gates is None else gates
        score, best = scorer(case, t), None
        for compiled in (False, True)[:1 if options.compile == "no" else 2]:
            row = {"case": case["name"], "type": str(kind).removeprefix("torch."), "compiled": compiled}
            try:
                tried = chunks(case) if not compiled else [best]
                fresh()
                fn = torch.compile(score, dynamic=False, mode=options.compile) if compiled else score
                for chunk in tried:
                    run = runner(case, t, main, gates, fn, chunk)
                    agrees = agreement(run(), tensors["answers"])
                    times = measured(clock, run, options)
                    if "times" not in row or times["p50_ms"] < row["times"]["p50_ms"]:
                        row.update(times=times, chunk=chunk, agrees=agrees)
                        best = chunk
                if compiled:
                    row["graphs"] = graphs()
            except Exception as e:  # one way that fails is a row that says so
                row["error"] = f"{type(e).__name__}: {e}".splitlines()[0][:300]
                best = best or chunks(case)[0]
            yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=2, help="for a way of a case")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--compile", default="default", help="mode of torch.compile; no: only eager")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("PyTorch has no CUDA device")
    print(json.dumps({"pytorch": torch.__version__, "cuda": torch.version.cuda, "compile": options.compile}), flush=True)
    with torch.inference_mode():
        for path in sorted(options.folder.glob("*.safetensors")):
            case, tensors = read(path)
            most = max(chunks(dict(case, padded=1 << 30))) if case["kind"] == "mol" and not case["candidates"] else 1
            most = min(most, 1 << (case["rows"] - 1).bit_length())
            case["padded"] = -(-case["rows"] // most) * most
            for row in ways(case, tensors, options):
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
