"""The first stage of LEMUR's own code (github.com/ejaasaari/lemur, measured at 434860b) on the collections of late.py.

    python bench/late/lemur_run.py --data DIR --lemur CHECKOUT [--only cranfield] [--epochs 10]

It learns from the vectors of the log, as the companion does, with the options of its README: 10 epochs, 2,048 numbers.
Its training looks at 1,000 items, which spares memory. Run late.py first: the share of exact MaxSim's best ten that LEMUR
finds becomes a stage of the collection in docs/benchmarks/late.json.
"""

import argparse
import importlib
import json
import pathlib
import sys
import time

import late
import numpy as np
import states
import torch

TRAINING_ITEMS = 1000


def tensors(texts):
    return torch.from_numpy(texts.rows), torch.from_numpy(texts.counts.astype(np.int32))


def judge(c, epochs, model):
    began = time.process_time()
    items, counts = tensors(c.items)
    log, log_counts = tensors(c.log)
    model.fit(train=items, train_counts=counts, learn=log, learn_counts=log_counts, train_subset_size=TRAINING_ITEMS, epochs=epochs)
    spent = time.process_time() - began
    found = late.top((model.compute_features(tensors(c.tests)) @ model.W.T).numpy(), late.DEPTHS[-1])
    return {"name": "LEMUR", "numbers": model.W.shape[1], "epochs": epochs, "processor_seconds": round(spent, 1),
            "recall": late.recall(found, late.top(late.maxsim(c.tests, c.items), late.K))}


def add_stage(collection, one):
    """Puts LEMUR among the first stages of a collection that late.py has judged."""
    result = json.loads(late.OUT.read_text(encoding="utf-8"))["collections"][collection]
    result["stages"] = [s for s in result["stages"] if s["name"] != one["name"]] + [one]
    late.keep("collections", collection, result)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--lemur", type=pathlib.Path, required=True)
    parser.add_argument("--only", default=",".join(states.READERS))
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    sys.path.insert(0, str(args.lemur))
    for name in args.only.split(","):
        torch.manual_seed(late.SEED)
        c = states.READERS[name](args.data)
        one = judge(c, args.epochs, importlib.import_module("lemur.lemur").Lemur())
        print(json.dumps(one), file=sys.stderr, flush=True)
        add_stage(c.name, one)


if __name__ == "__main__":
    main()
