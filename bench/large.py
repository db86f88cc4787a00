"""A large fit of `likeness fit bilinear` beside the same steps in PyTorch: 200,000 items of 128
dimensions, 1,000,000 pairs of 100,000 queries, made of a mixture.

    python -m pip install -r bench/requirements.txt
    python bench/large.py --dir data/large                  # writes the data
    /usr/bin/time -v bin/likeness fit bilinear --items data/large/items.npy --queries data/large/queries.npy \\
        --pairs data/large/pairs.csv --out data/large/model.safetensors
    python bench/large.py --dir data/large --train --rounds 29  # as many as the fit took in all: 7 trials of 1, 10, 10 and 2

Each query chose the ten items of its cluster that a hidden linear map scores best, among a hundred
at random. Prints JSON: CPU and wall seconds of the rounds of 32 steps over 512 pairs, with 512
sampled items beside those of the batch.
"""

import argparse
import json
import pathlib
import time

import numpy as np

ITEMS, QUERIES, DIM, CLUSTERS, CHOSEN, OFFERED = 200_000, 100_000, 128, 2000, 10, 100
BATCH, STEPS, DRAWS, RATE, SCALE, PULL = 512, 32, 512, 5e-3, 20.0, 1e-4


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def make(folder, norm):
    random = np.random.default_rng(1)
    centres = random.standard_normal((CLUSTERS, DIM), dtype=np.float32)
    of_item, of_query = random.integers(CLUSTERS, size=ITEMS), random.integers(CLUSTERS, size=QUERIES)
    items = unit(centres[of_item] + 0.7 * random.standard_normal((ITEMS, DIM), dtype=np.float32))
    queries = unit(centres[of_query] + 0.7 * random.standard_normal((QUERIES, DIM), dtype=np.float32))
    hidden = np.eye(DIM, dtype=np.float32) + 0.1 * random.standard_normal((DIM, DIM), dtype=np.float32)
    np.save(folder / "items.npy", norm * items)
    np.save(folder / "queries.npy", norm * queries)
    order = np.argsort(of_item, kind="stable")
    starts = np.searchsorted(of_item[order], np.arange(CLUSTERS + 1))
    mapped = queries @ hidden
    with open(folder / "pairs.csv", "w") as out:
        out.write("query,item\n")
        for q, c in enumerate(of_query):
            own = order[starts[c] : starts[c + 1]]
            offered = random.choice(own, size=min(OFFERED, len(own)), replace=False)
            best = offered[np.argsort(-(items[offered] @ mapped[q]))[:CHOSEN]]
            out.writelines(f"{q},{x}\n" for x in best)


def train(folder, rounds):
    import torch

    torch.manual_seed(1)
    items, queries = (torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("items", "queries"))
    pairs = torch.from_numpy(np.loadtxt(folder / "pairs.csv", delimiter=",", skiprows=1, dtype=np.int64))
    eye = torch.eye(DIM)
    w = torch.nn.Parameter(eye.clone())
    adam = torch.optim.Adam([w], lr=RATE)
    cpu, wall = time.process_time(), time.time()
    for step in range(rounds * STEPS):
        batch = pairs[torch.randint(len(pairs), (BATCH,))]
        candidates = torch.cat([batch[:, 1], torch.randint(ITEMS, (DRAWS,))])
        adam.param_groups[0]["lr"] = RATE * (1 - step / (rounds * STEPS))
        adam.zero_grad()
        scores = SCALE * (queries[batch[:, 0]] @ w) @ items[candidates].T
        loss = torch.nn.functional.cross_entropy(scores, torch.arange(BATCH)) + PULL * ((w - eye) ** 2).sum()
        loss.backward()
        adam.step()
    print(json.dumps({"what": "PyTorch", "threads": torch.get_num_threads(), "rounds": rounds, "loss": round(loss.item(), 4),
                      "cpu_seconds": round(time.process_time() - cpu, 2), "wall_seconds": round(time.time() - wall, 2),
                      "torch": torch.__version__}))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=pathlib.Path, required=True, help="folder of the data")
    parser.add_argument("--train", action="store_true", help="train in PyTorch; otherwise write the data")
    parser.add_argument("--norm", type=np.float32, default=np.float32(1), help="norm of the vectors that are written")
    parser.add_argument("--rounds", type=int, default=29)
    a = parser.parse_args()
    if a.train:
        train(a.dir, a.rounds)
    else:
        a.dir.mkdir(parents=True, exist_ok=True)
        make(a.dir, a.norm)


if __name__ == "__main__":
    main()
