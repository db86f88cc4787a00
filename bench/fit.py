"""The training of one full bilinear form in PyTorch, on one thread, beside
`likeness fit bilinear`: BANKING77 intents, the steps that one fit of likeness
takes (10 rounds of 20 steps of 500 pairs, softmax over all items, Adam).

    python -m pip install -r bench/requirements.txt
    python bench/fit.py

Prints JSON: CPU seconds of the steps, and MRR@10 on the test questions.
"""

import json
import platform
import time

import numpy as np
import torch

DATA = "examples/data/banking77/"
STEPS, BATCH, RATE, SCALE, PULL = 200, 500, 5e-3, 20.0, 1e-5


def vectors(name):
    x = torch.from_numpy(np.load(f"{DATA}{name}_vectors.npy").astype(np.float32))
    return x / x.norm(dim=1, keepdim=True)


def labels(name):
    with open(f"{DATA}{name}.jsonl") as rows:
        return torch.tensor([json.loads(row)["item"] for row in rows])


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    items, queries, wanted = vectors("items"), vectors("train"), labels("train")
    eye = torch.eye(items.shape[1])
    w = torch.nn.Parameter(eye.clone())
    adam = torch.optim.Adam([w], lr=RATE)
    start = time.process_time()
    order = torch.randperm(len(queries))
    for step in range(STEPS):
        at = step * BATCH % (len(queries) - BATCH + 1)
        if at < BATCH:
            order = torch.randperm(len(queries))
        batch = order[at : at + BATCH]
        adam.param_groups[0]["lr"] = RATE * (1 - step / STEPS)
        adam.zero_grad()
        scores = queries[batch] @ (w @ items.T)
        loss = torch.nn.functional.cross_entropy(SCALE * scores, wanted[batch]) + PULL * ((w - eye) ** 2).sum()
        loss.backward()
        adam.step()
    seconds = time.process_time() - start
    with torch.no_grad():
        scores, right = vectors("test") @ (w @ items.T), labels("test")
        ranks = 1 + (scores > scores.gather(1, right[:, None])).sum(1)
        mrr = torch.where(ranks <= 10, 1 / ranks, 0).double().mean().item()
    print(json.dumps({"what": "PyTorch, one thread", "cpu_seconds": round(seconds, 3), "mrr@10": round(mrr, 4),
                      "torch": torch.__version__, "machine": platform.processor() or platform.machine()}))


if __name__ == "__main__":
    main()
