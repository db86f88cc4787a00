#!/usr/bin/env python3
"""Times exact scans of likeness beside NumPy, PyTorch and ONNX Runtime that score every item and take the best.

    make build && OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHON -W ignore bench/brute.py [--rounds 5] [--out docs/benchmarks]

PYTHON has what requirements.txt lists. One thread, or two where the name
says so: there the others score the rows of the
table itself, and the answers are compared, within the rounding of float32, or of bfloat16 where no float32 rows lie beside those. Every round gives each engine a turn; what is compared is the median
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
import tempfile
import time

import collection
import compare
import engines
import numpy as np

CHUNK = 4096
WANTED = {"float32": 1.7, "bfloat16": 2.2}  # times the best of the others
LIMIT = 0.6  # of float32 arithmetic or of memory
ROUNDING, ROUNDED = 1e-5, 2**-8  # of scores, in units of the largest logit: in float32, and of items in bfloat16
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


def likeness(binary, args, runs, threads=1):
    out = subprocess.run([binary, "bench", "scan", *args, "--threads", str(threads), "--runs", str(runs), "--time", "0s", "--output", "json"],
                         stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(out)


class Turns:
    """Times of one engine over all rounds, in ms."""

    def __init__(self):
        self.cpu, self.wall, self.extra = [], [], {}

    def tell(self, result, *keys):
        """Keeps what a run of likeness says of itself, of the round nearest to a limit."""
        if result["share_of_limit"] >= self.extra.get("share_of_limit", 0):
            self.extra = {k: result[k] for k in keys}

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
        t.tell(r, "scored_share", "flops_per_item", "peak_gflops", "binds", "share_of_limit")


def large(options):
    """Many items on two cores. Times are of the wall, as cores share the work; the top 10 of every engine must be the same."""
    name, items = "8x8x32", options.large
    engines.use(2)
    with tempfile.TemporaryDirectory() as d:
        weights, query, components, gates = collection.make(d, (8, 8, 32), 128, items)
        subject = engines.mixture((*query, components[None, :CHUNK], gates[None, :CHUNK]), weights)
        built = {e + " in chunks": engines.in_chunks(subject, e, components, gates) for e in ("torch-bmm", "onnxruntime")}
        base = ["--model", d + "/model", "--vectors", d + "/items.npy", "--queries", d + "/queries.npy", "--items", str(items)]
        own = {"likeness, tiles": [*base, "--tiles"], "likeness, bfloat16": [*base, "--format", "bfloat16"], "likeness, bfloat16 and float32": [*base, "--format", "bfloat16", "--full-precision"]}
        rows, reference = {}, built["onnxruntime in chunks"]()
        for _ in range(options.rounds):
            for engine, run in built.items():
                wall, _ = compare.timed(run, 0, 2)
                t = rows.setdefault(engine, Turns())
                t.cpu, t.wall, t.extra = t.cpu + wall, t.wall + wall, {"same_top": same(run(), reference)}
            for label, args in own.items():
                r = likeness(options.binary, args, 5, 2)
                t = rows.setdefault(label, Turns())
                t.cpu, t.wall = [*t.cpu, r["ms"]["p50"]], [*t.wall, r["ms"]["min"]]
                t.tell(r, "scored_share", "share_of_limit", "binds")
                t.extra |= {"same_top": agrees(r["top"], reference, ROUNDED if "--format" in args and "--full-precision" not in args else ROUNDING)}
    engines.use(1)
    return {"case": f"MoL {name}, {items:,} items, two threads, wall time", "engines": {e: r.row() for e, r in rows.items()}, "wanted": {"float32": 2.5, "bfloat16": 3.0}}


def same(scores, reference):
    return agrees(np.argsort(-scores, kind="stable")[:10].tolist(), reference)


def agrees(top, scores, rounding=ROUNDING):
    """Whether items are the best of scores: the same set, or others that score as much but for the rounding, of which each side has one."""
    order = np.argsort(-scores, kind="stable")[: len(top)]
    return len(set(top)) == len(order) and bool((scores[top] >= scores[order[-1]] - 2 * rounding / engines.TAU).all())


def products(options):
    """One inner product an item: what binds is the memory."""
    rows = {}
    for label, args in {
        "dot 256": ["--kind", "dot", "--shape", "256"], "bilinear 256": ["--kind", "bilinear", "--shape", "256"],
        "MoL 4x4x64, query-only gate": ["--query-only", "--shape", "4x4x64"],
    }.items():
        for _ in range(options.rounds):
            r = likeness(options.binary, [*args, "--items", "1000000"], 5)
            if label not in rows or r["ms"]["min"] < rows[label]["min_ms"]:
                rows[label] = {"min_ms": r["ms"]["min"], **{k: r[k] for k in ("gb_s", "sequential_gb_s", "binds", "share_of_limit")}}
    return rows


def memory(rows):
    lines = ["", "**One inner product of 256 numbers an item, 1,000,000 items**", "",
             "| | wall, least ms | GB/s | of what the memory delivers | wanted: 70 % |", "|---|---|---|---|---|"]
    for label, r in rows.items():
        share = r["gb_s"] / r["sequential_gb_s"]
        lines.append(f"| {label} | {r['min_ms']:.1f} | {r['gb_s']:.1f} | {100 * share:.0f} % of {r['sequential_gb_s']:.1f} | {'met' if share >= 0.7 else 'not met'} |")
    return "\n".join(lines)


def models(options):
    for model, arguments in trained():
        rows = {}
        for _ in range(options.rounds):
            turn(options, rows, arguments.items())
        yield {"case": f"{model}, 100,000 items", "engines": {e: r.row() for e, r in rows.items()}}


def wanted(best, own, bars):
    """What the scan is to reach, and whether it did."""
    parts = []
    for name, times in bars.items():
        ratio = best / min(ms for e, ms in own.items() if ("bfloat16" in e) == (name == "bfloat16"))
        parts.append(f"{times} in {name}: {'met' if ratio >= times else 'not met'}, {ratio:.2f}")
    return "Wanted: " + "; ".join(parts) + "."


def nearest(rows):
    """How near a scan comes to what binds it: one that scores every item, if there is one, as bounds spare others work."""
    engine, r = max(((e, r) for e, r in rows.items() if "share_of_limit" in r), key=lambda row: (row[1]["scored_share"] == 1, row[1]["share_of_limit"]))
    met = "met" if r["share_of_limit"] >= LIMIT else "not met"
    return f"Wanted: {100 * LIMIT:.0f} % of the limit that binds: {met}, {100 * r['share_of_limit']:.0f} % of {r['binds']} ({engine})."


def table(cases):
    lines = []
    for c in cases:
        median = "wall" if "wall time" in c["case"] else "processor time"
        lines += ["", f"**{c['case']}**", "", f"| | {median}, median ms | wall, least ms | scored in float32 | of the limit that binds |", "|---|---|---|---|---|"]
        for engine, r in c["engines"].items():
            share = f"{100 * r['scored_share']:.1f} %" if "scored_share" in r else ""
            limit = f"{100 * r['share_of_limit']:.0f} % ({r['binds']})" if "share_of_limit" in r else ""
            lines.append(f"| {engine} | {r['error']} | | | |" if "error" in r else f"| {engine} | {r['cpu_p50_ms']:.1f} | {r['min_ms']:.1f} | {share} | {limit} |")
        others = [r["cpu_p50_ms"] for e, r in c["engines"].items() if not e.startswith("likeness") and "cpu_p50_ms" in r]
        own = {e: r["cpu_p50_ms"] for e, r in c["engines"].items() if e.startswith("likeness")}
        if own:
            lines += ["", "Times the best of the others: " + ", ".join(f"{e} {min(others) / ms:.2f}" for e, ms in own.items()) + ".", wanted(min(others), own, c.get("wanted", WANTED))]
            lines.append(nearest(c["engines"]))
            tops = {e: r["same_top"] for e, r in c["engines"].items() if "same_top" in r}
            if tops:
                lines.append("The top 10 of the first query is that of ONNX Runtime: " + ", ".join(f"{e} {'yes' if ok else 'NO'}" for e, ok in tops.items()) + ".")
        else:
            first = c["engines"]["every item scored"]["cpu_p50_ms"]
            lines += ["", "Times every item scored: " + ", ".join(f"{e} {first / r['cpu_p50_ms']:.2f}" for e, r in c["engines"].items()) + "."]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shapes", default="8x4x64,8x8x32", help="of random models")
    parser.add_argument("--large", type=int, default=674_044, help="items of the case with two threads; 0 leaves it out")
    parser.add_argument("--binary", default="bin/likeness")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/benchmarks"))
    options = parser.parse_args()
    began = time.time()
    cases = [case(options, name, 100_000) for name in options.shapes.split(",") if name]
    if options.large:
        cases.append(large(options))
    cases += list(models(options))
    result = {
        "machine": compare.machine(options.binary), "date": datetime.date.today().isoformat(), "load": os.getloadavg(),
        "command": f"bench/brute.py --rounds {options.rounds} --shapes {options.shapes}", "seconds": round(time.time() - began), "cases": cases, "products": products(options),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "scan.json").write_text(json.dumps(result, indent=1) + "\n")
    print(table(cases), memory(result["products"]), sep="\n")


if __name__ == "__main__":
    main()
