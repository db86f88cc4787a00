#!/usr/bin/env python3
"""Times exact scans of likeness beside NumPy, PyTorch and ONNX Runtime that score every item and take the best.

    make build && OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHON -W ignore bench/brute.py [--rounds 5] [--out docs/benchmarks]

PYTHON has what requirements.txt lists. One thread. Every round gives each engine a turn; what is compared is the median
of processor time, which other work on the machine inflates least, and the least of wall time beside it. Where an engine
gains by chunks of 4,096 items, that is what counts. Trained models scan the questions of examples/data/banking77,
repeated and moved a little, with and without bounds that rule items out.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import time

import compare
import engines

CHUNK = 4096
WANTED = {"float32": 1.7, "bfloat16": 2.2}  # times the best of the others
BANKING = "examples/data/banking77/"


def subjects(name, items):
    """(engine, function that scores all items)"""
    pq, px, d = (int(n) for n in name.split("x"))
    whole = engines.mol((pq, px, d), 128, 1, items, False, 0)
    for engine, run in engines.runners(whole, ["torch", "torch-bmm", "onnxruntime"]):
        yield engine, run
    part = engines.mol((pq, px, d), 128, 1, CHUNK, False, 0)
    for engine, run in engines.runners(part, ["numpy", "torch-bmm", "onnxruntime"]):
        if isinstance(run, Exception):
            yield engine + " in chunks", run
        else:
            yield engine + " in chunks", lambda run=run: [run() for _ in range((items + CHUNK - 1) // CHUNK)]


def scans(name, items):
    """(label, arguments of likeness bench scan)"""
    base = ["--shape", name, "--items", str(items)]
    yield "likeness", base
    yield "likeness, tiles", [*base, "--tiles"]
    yield "likeness, tiles, every item scored", [*base, "--tiles", "--whole"]
    yield "likeness, bfloat16", [*base, "--format", "bfloat16"]


def trained():
    data = ["--items", "100000", "--vectors", BANKING + "items_vectors.npy", "--queries", BANKING + "test_vectors.npy"]
    for model in ("banking77-mol", "banking77-questions-mol"):
        base = ["--model", "examples/models/" + model, *data]
        yield model, {"every item scored": [*base, "--whole"], "float32": base, "float32 tiles": [*base, "--tiles"], "bfloat16": [*base, "--format", "bfloat16"]}


def likeness(binary, args, runs):
    out = subprocess.run([binary, "bench", "scan", *args, "--threads", "1", "--runs", str(runs), "--time", "0s", "--output", "json"],
                         stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(out)


class Turns:
    """Times of one engine over all rounds, in ms."""

    def __init__(self):
        self.cpu, self.wall, self.extra = [], [], {}

    def row(self):
        return {"cpu_p50_ms": statistics.median(self.cpu), "cpu_min_ms": min(self.cpu), "min_ms": min(self.wall), **self.extra}


def case(options, name, items):
    rows, built = {}, list(subjects(name, items))
    for _ in range(options.rounds):
        for engine, run in built:
            if isinstance(run, Exception):
                rows[engine] = str(run)[:200]
                continue
            wall, cpu = compare.timed(run, 0, 3)
            t = rows.setdefault(engine, Turns())
            t.cpu += cpu
            t.wall += wall
        turn(options, rows, scans(name, items))
    return {"case": f"MoL {name}, {items:,} items", "engines": {e: r.row() if isinstance(r, Turns) else {"error": r} for e, r in rows.items()}}


def turn(options, rows, arguments):
    for label, args in arguments:
        r = likeness(options.binary, args, 5)
        t = rows.setdefault(label, Turns())
        t.cpu.append(r["cpu_ms"]["p50"])
        t.wall.append(r["ms"]["min"])
        t.extra = {k: r[k] for k in ("scored_share", "flops_per_item", "peak_gflops", "binds", "share_of_limit")}


def models(options):
    for model, arguments in trained():
        rows = {}
        for _ in range(options.rounds):
            turn(options, rows, arguments.items())
        yield {"case": f"{model}, 100,000 items", "engines": {e: r.row() for e, r in rows.items()}}


def wanted(best, own):
    """What the scan is to reach, and whether it did."""
    parts = []
    for name, times in WANTED.items():
        ratio = best / min(ms for e, ms in own.items() if ("bfloat16" in e) == (name == "bfloat16"))
        parts.append(f"{times} in {name}: {'met' if ratio >= times else 'not met'}, {ratio:.2f}")
    return "Wanted: " + "; ".join(parts) + "."


def table(cases):
    lines = []
    for c in cases:
        lines += ["", f"**{c['case']}**", "", "| | processor time, median ms | wall, least ms | scored in float32 |", "|---|---|---|---|"]
        for engine, r in c["engines"].items():
            share = f"{100 * r['scored_share']:.1f} %" if "scored_share" in r else ""
            lines.append(f"| {engine} | {r['error']} | | |" if "error" in r else f"| {engine} | {r['cpu_p50_ms']:.1f} | {r['min_ms']:.1f} | {share} |")
        others = [r["cpu_p50_ms"] for e, r in c["engines"].items() if not e.startswith("likeness") and "cpu_p50_ms" in r]
        own = {e: r["cpu_p50_ms"] for e, r in c["engines"].items() if e.startswith("likeness")}
        if own:
            lines += ["", "Times the best of the others: " + ", ".join(f"{e} {min(others) / ms:.2f}" for e, ms in own.items()) + ".", wanted(min(others), own)]
        else:
            first = c["engines"]["every item scored"]["cpu_p50_ms"]
            lines += ["", "Times every item scored: " + ", ".join(f"{e} {first / r['cpu_p50_ms']:.2f}" for e, r in c["engines"].items()) + "."]
    return "\n".join(lines)


def document(result):
    limits = result["machine"]["limits"]
    return f"""# Exact scans beside NumPy, PyTorch and ONNX Runtime

One thread, {result['date']}; load average {result['load'][0]:.1f} when it ended. {result['machine']['cpu']}, {result['machine']['cpus']} CPUs:
{limits['peak_gflops']:.0f} GFLOP/s of float32 multiply-adds, {limits['sequential_gb_s']:.1f} GB/s sequentially. Made by
`{result['command']}`; the figures are in [scan.json](scan.json). K = 10, random weights unless a trained model is named;
the others only score, likeness also ranks. In chunks the others score the same 4,096 items again and again, from the cache; likeness
reads the whole table.
{table(result['cases'])}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shapes", default="8x4x64,8x8x32", help="of random models")
    parser.add_argument("--binary", default="bin/likeness")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/benchmarks"))
    options = parser.parse_args()
    began = time.time()
    cases = [case(options, name, 100_000) for name in options.shapes.split(",")] + list(models(options))
    result = {
        "machine": compare.machine(options.binary), "date": datetime.date.today().isoformat(), "load": os.getloadavg(),
        "command": f"bench/brute.py --rounds {options.rounds} --shapes {options.shapes}", "seconds": round(time.time() - began), "cases": cases,
    }
    text = document(result)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "scan.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "scan.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
