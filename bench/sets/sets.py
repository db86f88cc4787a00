"""Where a learned similarity wins: likeness and others on six sets of data.

    python bench/sets/sets.py --data DIR [--only beauty,sports] [--work DIR] [--likeness bin/likeness]

DIR has the files of the data, which are not in the repository (docs/benchmarks/sets.md
says where they are). The script writes docs/benchmarks/sets.json and sets.svg; `make
generate` renders the page. What a set gave is kept in the work directory, by its
name, and not computed again: delete NAME/MODEL.npz there, or NAME.
"""

import argparse
import datetime
import json
import pathlib
import pickle
import platform
import resource
import subprocess
import time

import numpy as np
import torch
from safetensors.numpy import load_file

import plot
from data import READERS, ROOT
from judge import difference, judge
from references import REFERENCES

OUT = ROOT / "docs" / "benchmarks"

# What was wanted: a model, the one that it is compared with, and the least difference of MRR@10.
BARS = [("bilinear", "bilinear in PyTorch", -0.002), ("MoL, query gates", "bilinear", -0.003), ("MoL, full gates", "bilinear", -0.003)]
RIGHT = 0.95  # of the advice

RANK = 32  # of the low-rank form, by default
# By name: the flags of `likeness fit`.
FITS = {
    "diagonal": ["bilinear", "--form", "diagonal"],
    "low rank": ["bilinear", "--form", "identity_low_rank"],
    "bilinear": ["bilinear"],
    "max-sim": ["maxsim"],
    "MoL, query gates": ["mol"],
    "MoL, full gates": ["mol", "--gates", "full"],
}


def write_log(events, folder, name):
    """Files of a log for likeness: vectors, pairs and what was seen."""
    np.save(folder / f"{name}.npy", events.queries)
    times = events.times is not None
    with open(folder / f"{name}.csv", "w", encoding="ascii") as pairs:
        pairs.write("query,item,time\n" if times else "query,item\n")
        for q, wanted in enumerate(events.wanted):
            pairs.writelines(f"{q},{x},{events.times[q]}\n" if times else f"{q},{x}\n" for x in wanted)
    args = ["--queries", folder / f"{name}.npy", "--pairs", folder / f"{name}.csv"]
    if any(len(s) for s in events.seen):
        with open(folder / f"{name}-seen.csv", "w", encoding="ascii") as seen:
            seen.write("query,item\n")
            for q, items in enumerate(events.seen):
                seen.writelines(f"{q},{x}\n" for x in items)
        args += ["--seen", folder / f"{name}-seen.csv"]
    return args


def run(command, log):
    """The output of a command; its messages go to a file."""
    with open(log, "w", encoding="utf-8") as messages:
        return subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=messages, check=True, text=True).stdout


def open_model(path):
    """The header of a model of likeness, and its weights."""
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))["__metadata__"]
    return json.loads(header["likeness"]), load_file(path)


def scorer(path, items):
    """The scores of a model of likeness, computed here."""
    header, weights = open_model(path)
    config = header["config"]
    if header["kind"] == "bilinear":
        w = bilinear_matrix(config, weights)
        return lambda events: events.queries @ w @ items.T
    if header["kind"] == "maxsim":
        return maxsim_scorer(path, items)
    return mol_scorer(config, weights, items)


def bilinear_matrix(config, weights):
    """The W of a bilinear form."""
    return {"full": lambda: weights["W"], "diagonal": lambda: np.diag(weights["w"]), "low_rank": lambda: weights["P"] @ weights["Q"].T,
            "identity_low_rank": lambda: np.eye(len(weights["P"]), dtype=np.float32) + weights["P"] @ weights["Q"].T}[config.get("form", "full")]()


def maxsim_scorer(path, items):
    vectors = path.with_suffix(".vectors.npy")
    if not vectors.exists():
        return lambda events: events.queries @ items.T
    rows = np.load(vectors)
    owners = np.array([json.loads(line) for line in open(path.with_suffix(".owners.jsonl"), encoding="ascii")], int)
    starts = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])

    def score(events):
        scores = events.queries @ items.T
        if len(rows):
            own = owners[starts]
            scores[:, own] = np.maximum(scores[:, own], np.maximum.reduceat(events.queries @ rows.T, starts, axis=1))
        return scores

    return score


def mol_scorer(config, weights, items):
    """A Mixture-of-Logits by the formulae of testdata/golden/README.md, as `likeness fit mol` makes it: linear
    components, gates of one hidden layer."""
    w, x = {k: torch.from_numpy(v) for k, v in weights.items()}, torch.from_numpy(items)
    groups, tau = (config["query_dot_product_groups"], config["item_dot_product_groups"]), config["temperature"]

    def linear(y, name):
        return torch.nn.functional.linear(y, w[name + ".weight"], w.get(name + ".bias"))

    def gate(y, part, first):
        name = f"_gating_fn._{part}_partial_module.{first}"
        if name + ".weight" not in w:
            return None
        second = f"_gating_fn._{part}_partial_module.{first + 2}"
        y = linear(y, name)
        return linear(torch.nn.functional.silu(y), second) if second + ".weight" in w else y

    components = linear(x, "_item_embeddings_fn._item_emb_proj_module.1").reshape(len(x), groups[1], -1)
    item_gate = gate(x, "item_only", 1)

    @torch.no_grad()
    def score(events):
        q = torch.from_numpy(events.queries)
        f = linear(q, "_query_embeddings_fn._query_emb_proj_module.1").reshape(len(q), groups[0], -1)
        query_gate = gate(q, "query_only", 0)
        if item_gate is None:  # the gates do not know the item: one inner product
            gates = query_gate.softmax(1).reshape(len(q), *groups)
            return ((gates.transpose(1, 2) @ f).reshape(len(q), -1) @ components.reshape(len(x), -1).T / tau).numpy()
        return torch.cat([full(f[i], query_gate[i]) for i in range(len(q))]).numpy()

    def full(f, query_gate):
        logits = (components @ f.T / tau).transpose(1, 2).reshape(len(x), -1)
        gates = torch.nn.functional.silu(query_gate * item_gate + gate(logits, "qi", 1)).softmax(1)
        return (gates * logits).sum(1)[None]

    return score


class Measured:
    """What the models of a set found, by name. What each found is kept in the folder."""

    def __init__(self, a_set, folder):
        self.set, self.folder, self.cold, self.rows, self.found = a_set, folder, a_set.cold(), {}, {}

    def add(self, name, by, learn):
        """Judges what learn returns, scores and the seconds that it took, unless this was done before."""
        kept = self.folder / (file_name(name) + ".npz")
        if not kept.exists():
            score, seconds = learn()
            judged = judge(score, self.set.test)
            np.savez(kept, reciprocal=judged.reciprocal, recall=judged.recall, seconds=seconds)
        with np.load(kept) as judged:
            mrr = self.found[name] = judged["reciprocal"]
            row = {"name": name, "by": by, "mrr": mean(mrr), "recall": mean(judged["recall"]), "warm": mean(mrr[~self.cold]),
                   "cold": mean(mrr[self.cold]), "seconds": float(judged["seconds"])}
        row["gain"] = self.against(name, "cosine") if name != "cosine" else None
        self.rows[name] = row
        print(f"{self.set.name}: {name} {row['mrr']}, {row['seconds']} s", flush=True)

    def against(self, a, b):
        return difference(self.found[a], self.found[b], self.set.test.users)

    def best(self, by):
        return max((n for n, r in self.rows.items() if r["by"] == by), key=lambda n: self.rows[n]["mrr"])


def file_name(name):
    return name.replace(",", "").replace(" ", "-")


def mean(x):
    return round(float(x.mean()), 5) if len(x) else None


def outcome(d):
    return "wins" if d["low"] > 0 else "loses" if d["high"] < 0 else "ties"


def bar(difference, least):
    return {"difference": difference, "advice": None, "missed": difference["mean"] < least}


def measure(a_set, folder, likeness, fits):
    """The figures of a set."""
    np.save(folder / "items.npy", a_set.items)
    items = ["--items", folder / "items.npy"]
    log, test = (items + write_log(e, folder, n) for e, n in ((a_set.log, "log"), (a_set.test, "test")))
    m = Measured(a_set, folder)
    m.add("cosine", "plain", lambda: (lambda e: e.queries @ a_set.items.T, 0))
    for name, (learn, of_people) in REFERENCES.items():
        if a_set.histories is not None or not of_people:
            m.add(name, "reference", lambda learn=learn: timed(learn, a_set))
    for name in fits:
        out = folder / (file_name(name) + ".safetensors")
        m.add(name, "likeness", lambda name=name, out=out: fit([likeness, "fit", *FITS[name], *log, "--out", out, "--force", "--output", "json"], out, a_set.items))
    models = [a for n in fits for a in ("--model", folder / (file_name(n) + ".safetensors"))]
    return summarise(m, fits, folder, json.loads(run([likeness, "eval", *test, "--output", "json", "--resamples", "200", *models], folder / "eval.log")))


def timed(learn, a_set):
    start = time.process_time()
    score = learn(a_set)
    return score, round(time.process_time() - start, 1)


def fit(command, out, items):
    """Fits, keeps the report, and returns the scores and the seconds of the processors."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    text = run(command, out.with_suffix(".log"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    out.with_suffix(".json").write_text(text, encoding="utf-8")
    return scorer(out, items), round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)


def summarise(m, fits, folder, check):
    """The figures of a set. check is what likeness eval says of the fits, whose MRR@10 must be the one found here."""
    a_set, models = m.set, m.rows
    for name, judged in zip(fits, check["models"]):
        if abs(judged["metrics"]["mrr@10"] - m.found[name].mean()) > 5e-4:
            raise SystemExit(f"{a_set.name}: {name}: likeness eval finds MRR@10 {judged['metrics']['mrr@10']}, this script {m.found[name].mean()}")
    ours, theirs = m.best("likeness"), m.best("reference")
    own = {"of": ours, "over": "cosine", **m.against(ours, "cosine")}
    other = {"of": ours, "over": theirs, **m.against(ours, theirs)}
    return {
        "name": a_set.name, "kind": a_set.kind, "split": a_set.split,
        "items": len(a_set.items), "dim": a_set.items.shape[1], "log": len(a_set.log), "test": len(a_set.test), "cold": int(m.cold.sum()),
        "models": list(models.values()),
        "over_cosine": {**own, "outcome": outcome(own)}, "over_reference": {**other, "outcome": outcome(other)},
        "beats_cosine": outcome(own), "beats_reference": outcome(other),
        "bars": [bar(m.against(a, b), least) if a in models else None for a, b, least in BARS],
        "verdict": {"fit": json.loads((folder / "bilinear.json").read_text(encoding="utf-8"))["verdict"], "eval": {"choose": check["verdict"]["choose"], "text": check["verdict"]["text"]}},
        "advice": {"models": [{"name": n, "numbers": k, "ranks": m.found[n].round(6).tolist()} for n, k in numbers(a_set.items.shape[1]) if n in models],
                   "wanted": [int(w[0]) for w in a_set.test.wanted], "held_out": max(1, len(a_set.log) // 10)},
    }


def numbers(dim):
    """The similarities that `likeness fit bilinear` compares, and how many numbers each stores."""
    return ("cosine", 0), ("diagonal", dim), ("low rank", 2 * RANK * dim), ("bilinear", dim * dim)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--data", type=pathlib.Path, required=True, help="directory of the data's files")
    args.add_argument("--work", type=pathlib.Path, default=ROOT / ".cache" / "sets", help="directory for what is computed")
    args.add_argument("--only", default=",".join(READERS), help="sets to measure, of " + ", ".join(READERS) + "; with none, what is kept is put together")
    args.add_argument("--without", action="append", default=[], choices=list(FITS), help="a fit to leave out, such as the one that takes longest")
    args.add_argument("--likeness", type=pathlib.Path, default=ROOT / "bin" / "likeness")
    args.add_argument("--out", type=pathlib.Path, default=OUT)
    args = args.parse_args()
    torch.set_num_threads(1)
    fits = [n for n in FITS if n not in args.without]
    for name in filter(None, args.only.split(",")):
        folder = args.work / name
        folder.mkdir(parents=True, exist_ok=True)
        figures = measure(kept_set(folder / "set.pickle", name, args.data), folder, args.likeness, fits)
        (folder / "figures.json").write_text(json.dumps(figures), encoding="utf-8")
    done = [json.loads(p.read_text(encoding="utf-8")) for p in (args.work / n / "figures.json" for n in READERS) if p.exists()]
    for figures in done:
        a = figures["advice"] = advise(figures)
        told = a["right"] + a["wrong"]
        text = f"{a['right']} of {told}" + (f", cannot tell {a['unclear']} times" if a["unclear"] else "")
        figures["bars"].append({"difference": None, "advice": text, "missed": a["right"] < RIGHT * told})
    report = {"date": datetime.date.today().strftime("%Y-%m"), "machine": f"two cores, {platform.machine()}, PyTorch on one of them",
              "torch": torch.__version__, "sets": done,
              "left_out": [n for n in READERS if not (args.work / n / "figures.json").exists()]}
    (args.out / "sets.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (args.out / "sets.svg").write_text(plot.gains(done), encoding="utf-8")


def kept_set(path, name, data):
    """A set, which takes some seconds to make, from its file."""
    if not path.exists():
        path.write_bytes(pickle.dumps(READERS[name](data)))
    return pickle.loads(path.read_bytes())


def advise(figures):
    """How often the advice of a fit is right, by bench/sets/advice."""
    out = subprocess.run(["go", "run", "./bench/sets/advice"], cwd=ROOT, input=json.dumps(figures["advice"]), stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(out.stdout)


if __name__ == "__main__":
    main()
