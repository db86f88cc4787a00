#!/usr/bin/env python3
"""Times likeness beside NumPy, PyTorch and ONNX Runtime, case by case, in turns; bench/run.sh calls it.

Inputs are random and of the same shapes for everybody; likeness makes its own, of the same distribution. One thread. Each
round gives every engine a turn, so that a busy moment of the machine hits all; what counts is the quickest run of all
rounds. The peak is what likeness measures between its runs.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

import engines
import plots

ENGINES = ["numpy", "torch", "torch-bmm", "compile", "onnxruntime"]


def cases(quick):
    """(suite, name, subject, arguments of likeness bench score)"""
    for name, shape, rows in (("8x4x64", (8, 4, 64), 200_000), ("8x8x32", (8, 8, 32), 200_000), ("4x4x768", (4, 4, 768), 50_000)):
        for batch, count in ((1, 1000), (1, 4096), (32, 1000)):
            if quick and (batch, count) != (1, 4096):
                continue
            for gather in (False, True):
                where = "gathered" if gather else "in a row"
                args = ["--kind", "mol", "--shape", name, "--hidden", "128", "--candidates", str(count), "--batch", str(batch)]
                args += ["--gather", "--rows", str(rows)] if gather else []
                yield "mol", f"MoL {name}, {batch} x {count:,} {where}", lambda s=shape, b=batch, c=count, g=gather, n=rows: engines.mol(s, 128, b, c, g, n), args
    for batch, count in ((1, 1000), (1, 4096), (32, 1000)):
        if quick and (batch, count) != (1, 4096):
            continue
        args = ["--kind", "maxsim", "--shape", "32x4x128", "--candidates", str(count), "--batch", str(batch)]
        yield "maxsim", f"max-sim 32 by 4x128, {batch} x {count:,}", lambda b=batch, c=count: engines.maxsim(32, 4, 128, b, c), args
    for rank, name in ((0, "384"), (64, "384x64")):
        for batch, count, shared in ((1, 1000, False), (1, 4096, False), (32, 4096, False), (32, 4096, True)):
            if quick and (batch, count) != (1, 4096):
                continue
            args = ["--kind", "bilinear", "--shape", name, "--candidates", str(count), "--batch", str(batch), "--encode"]
            args += ["--shared"] if shared else []
            what = f"bilinear {name}, {batch} x {count:,}" + (" of the same" if shared else "") + ", with encoding"
            yield "bilinear", what, lambda r=rank, b=batch, c=count, s=shared: engines.bilinear(384, r, b, c, s), args


def timed(run, seconds, runs=5):
    """The quickest and the median of at least some runs, in ms of wall and processor time."""
    wall, cpu, end = [], [], time.perf_counter() + seconds
    while len(wall) < runs or time.perf_counter() < end:
        c, t = time.process_time(), time.perf_counter()
        run()
        wall.append((time.perf_counter() - t) * 1e3)
        cpu.append((time.process_time() - c) * 1e3)
        if time.perf_counter() > end + 4:
            break
    return wall, cpu


def likeness(binary, args, seconds):
    out = subprocess.run([binary, "bench", "score", *args, "--threads", "1", "--runs", "5", "--time", f"{seconds}s", "--output", "json"],
                         stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(out)


def measure(options, subject, args):
    """One case: every engine a turn in each round."""
    row = {"peak_gflops": 0.0, "engines": {}}
    names = [e for e in options.engines.split(",") if not (options.quick and e == "compile")]
    built = list(engines.runners(subject(), names))
    for _ in range(options.rounds):
        for engine, run in built:
            if isinstance(run, Exception):
                row["engines"][engine] = {"error": f"{type(run).__name__}: {str(run)[:200]}"}
                continue
            wall, cpu = timed(run, options.seconds)
            add(row["engines"], engine, min(wall), sorted(wall)[len(wall) // 2], min(cpu))
        r = likeness(options.binary, args, options.seconds)
        add(row["engines"], "likeness", r["ms"]["min"], r["ms"]["p50"], r["cpu_ms"]["min"])
        row["peak_gflops"] = max(row["peak_gflops"], r["peak_gflops"])
        row["gflop"] = r["flops_per_candidate"] * r["candidates"] * r["batch"] / 1e9
    return row


def add(table, engine, least, median, cpu):
    e = table.setdefault(engine, {"min_ms": least, "p50_ms": median, "cpu_min_ms": cpu})
    e["min_ms"], e["p50_ms"], e["cpu_min_ms"] = min(e["min_ms"], least), min(e["p50_ms"], median), min(e["cpu_min_ms"], cpu)


def machine(binary):
    model = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor())
    limits = json.loads(subprocess.run([binary, "bench", "machine", "--output", "json"], stdout=subprocess.PIPE, check=True, text=True).stdout)
    return {"cpu": model, "cpus": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}", "limits": limits}


def ratio(row):
    """How many times quicker likeness is than the best of the others."""
    ms = {e: v["min_ms"] for e, v in row["engines"].items() if "min_ms" in v}
    others = [v for e, v in ms.items() if e != "likeness"]
    return min(others) / ms["likeness"] if others else float("nan")


def table(result):
    names = [e for e in ENGINES if any(e in c["engines"] for c in result["cases"])]
    lines = ["| case | " + " | ".join(names) + " | likeness | share of peak | times the best |", "|---|" + "---|" * (len(names) + 3)]
    for c in result["cases"]:
        cells = [f"{c['engines'][e]['min_ms']:.3f}" if "min_ms" in c["engines"].get(e, {}) else "–" for e in names]
        own = c["engines"]["likeness"]["min_ms"]
        lines.append(f"| {c['case']} | " + " | ".join(cells) + f" | {own:.3f} | {c['gflop'] / own * 1e5 / c['peak_gflops']:.0f} % | {ratio(c):.2f} |")
    return "\n".join(lines)


def slower(result):
    """The cases in which likeness is not the quickest."""
    names = [f"{c['case']} ({ratio(c):.2f})" for c in result["cases"] if ratio(c) < 1]
    return f"Slower than the best of the others: {', '.join(names)}." if names else f"Slower than the best of the others: none of {len(result['cases'])} cases."


def command(options):
    words = ["bench/run.sh"] + ["--quick"] * options.quick
    return " ".join([*words, "--suite", options.suite, "--rounds", str(options.rounds), "--seconds", str(options.seconds)])


def write(result, out):
    result["load"][1] = os.getloadavg()[0]
    out.mkdir(parents=True, exist_ok=True)
    (out / "scoring.json").write_text(json.dumps(result, indent=1) + "\n")
    for file, suites in (("scoring-mol.svg", ["mol"]), ("scoring-other.svg", ["maxsim", "bilinear"])):
        some = [c for c in result["cases"] if c["suite"] in suites]
        if some:
            (out / file).write_text(plots.bars(some, [*ENGINES, "likeness"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one case a shape, without torch.compile")
    parser.add_argument("--suite", default="mol,maxsim,bilinear", help="which cases")
    parser.add_argument("--engines", default=",".join(ENGINES), help="beside likeness")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.25, help="of each turn, at least")
    parser.add_argument("--binary", default="bin/likeness")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/benchmarks"))
    options = parser.parse_args()
    import numpy, onnxruntime, torch

    result = {
        "date": datetime.date.today().isoformat(), "command": command(options), "machine": machine(options.binary),
        "versions": {"Python": platform.python_version(), "NumPy": numpy.__version__, "PyTorch": torch.__version__, "ONNX Runtime": onnxruntime.__version__},
        "load": [os.getloadavg()[0], 0.0], "cases": [],
    }
    for suite, name, subject, args in cases(options.quick):
        if suite not in options.suite.split(","):
            continue
        row = measure(options, subject, args)
        result["cases"].append({"suite": suite, "case": name, **row})
        print(f"{name}: {ratio(row):.2f} times the best", file=sys.stderr, flush=True)
        write(result, options.out)  # what there is, if the run is ended
    print(table(result))
    print(slower(result))


if __name__ == "__main__":
    main()
