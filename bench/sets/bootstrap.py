"""How often the advice of `likeness fit bilinear` is right, fit by fit.

    python bench/sets/bootstrap.py --data DIR [--only banking77,ml-100k] [--logs 30] [--queries 2000] [--likeness bin/likeness]

Each log is drawn from a set's log, query by query with replacement. A fit at its defaults to the drawn
log advises one of the similarities that it compared: the inner product, diagonal, I + low rank, full. The set's test
queries, which no fit has seen, then say which of them was right to take. The script writes
docs/benchmarks/advice.json, beside what it has of other sets and lengths; `make generate` renders
docs/benchmarks/sets.md. The fits of a log are kept in the work directory and not done again.
"""

import argparse
import collections
import datetime
import json
import pathlib

import numpy as np

from data import READERS, ROOT
from judge import judge
from sets import RIGHT, bilinear_matrix, kept_set, open_model, run, write_log

PLAIN, UNCLEAR = "the plain inner product", "cannot tell"
MARGIN = 0.1  # share of the best gain that a right choice may lose, as verdict.DefaultMargin


def draw(events, queries, seed):
    """A bootstrap log."""
    return events.take(np.sort(np.random.default_rng(seed).integers(len(events), size=queries)))


def fit(likeness, folder, name, log, *flags):
    """The report of a fit, and its W; both are kept."""
    out, report = folder / f"{name}.safetensors", folder / f"{name}.json"
    if not report.exists():
        text = run([likeness, "fit", "bilinear", *log, *flags, "--out", out, "--force", "--output", "json"], folder / f"{name}.log")
        report.write_text(text, encoding="utf-8")
    header, weights = open_model(out)
    return json.loads(report.read_text(encoding="utf-8")), bilinear_matrix(header["config"], weights)


def cut(w, rank):
    """The identity plus the first components of w minus the identity."""
    u, s, v = np.linalg.svd(w - np.eye(len(w)))
    return np.eye(len(w)) + u[:, :rank] * s[:rank] @ v[:rank]


def find(likeness, a_set, log, folder):
    """What the fit to a bootstrap log advised, and MRR@10 of the test queries for each similarity that it compared."""
    folder.mkdir(parents=True, exist_ok=True)
    log = ["--items", folder.parent / "items.npy"] + write_log(log, folder, "log")
    report, full = fit(likeness, folder, "full", log)
    _, diagonal = fit(likeness, folder, "diagonal", log, "--form", "diagonal")
    found = {}
    for name in (c["name"] for c in report["choices"]):
        w = {PLAIN: lambda: np.eye(len(full)), "full": lambda: full, "diagonal": lambda: diagonal}.get(name, lambda: cut(full, int(name.split()[-1])))()
        found[name] = round(float(judge(lambda e, w=w: e.queries @ w.astype(np.float32) @ a_set.items.T, a_set.test).reciprocal.mean()), 5)
    v = report["verdict"]
    return UNCLEAR if v["answer"] == "unclear" else v["choose"], found


def is_right(name, found):
    """Whether the test queries say to take a similarity; as isRight of bench/sets/advice."""
    plain, best = found[PLAIN], max(found.values())
    if name == PLAIN:
        return best - plain < min(0.01, plain / 10)
    return plain < found[name] >= best - MARGIN * (best - plain)


def measure(likeness, name, data, work, logs, queries):
    a_set = kept_set(work / name / "set.pickle", name, data)
    np.save(work / name / "items.npy", a_set.items)
    queries = queries or len(a_set.log)
    advised, wrong, right = collections.Counter(), [], 0
    for seed in range(logs):
        advice, found = find(likeness, a_set, draw(a_set.log, queries, seed), work / name / f"log-{seed}-of-{queries}")
        kind = "I + low rank" if "rank" in advice else advice
        advised[kind] += 1
        print(name, seed, advice, found, flush=True)
        if advice == UNCLEAR:
            continue
        if is_right(advice, found):
            right += 1
        else:
            wrong.append({"seed": seed, "advised": advice, "found": found})
    told = right + len(wrong)
    return {"name": a_set.name, "logs": logs, "queries": queries, "test": len(a_set.test), "advised": dict(advised),
            "right": right, "told": told, "missed": right < RIGHT * told, "wrong": wrong}


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--data", type=pathlib.Path, required=True, help="directory of the data's files")
    args.add_argument("--work", type=pathlib.Path, default=ROOT / ".cache" / "bootstrap", help="directory for what is computed")
    args.add_argument("--only", default="banking77,ml-100k", help="sets to measure, of " + ", ".join(READERS))
    args.add_argument("--logs", type=int, default=30, help="bootstrap logs of each set")
    args.add_argument("--queries", type=int, help="queries of a bootstrap log; by default as many as the set's log has")
    args.add_argument("--likeness", type=pathlib.Path, default=ROOT / "bin" / "likeness")
    args.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "benchmarks" / "advice.json")
    args = args.parse_args()
    for name in args.only.split(","):
        (args.work / name).mkdir(parents=True, exist_ok=True)
    kept = json.loads(args.out.read_text(encoding="utf-8"))["sets"] if args.out.exists() else []
    of = {(s["name"], s["queries"]): s for s in kept}
    for name in args.only.split(","):
        found = measure(args.likeness, name, args.data, args.work, args.logs, args.queries)
        of[found["name"], found["queries"]] = found
    report = {"date": datetime.date.today().strftime("%Y-%m"), "sets": [of[key] for key in sorted(of)]}
    args.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
