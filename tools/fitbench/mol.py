"""Trains a Mixture-of-Logits of the default shape in PyTorch on BANKING77, for
the time of a step beside `likeness fit mol`:

    pip install -r tools/fitbench/requirements.txt
    OMP_NUM_THREADS=1 python tools/fitbench/mol.py --gates query
    GOMAXPROCS=1 go test ./learn/fit/mol -run '^$' -bench MoLStep -benchtime 100x

The shapes, the batch, the losses and the optimiser are the same: 8 by 4
components of 96 over 384 numbers, linear sides without normalisation, a softmax
over all 77 items, the load-balancing loss, dropout of the query, Adam.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

DATA = Path(__file__).resolve().parents[2] / "examples/data/banking77"
PQ, PX, D, DIM, TAU = 8, 4, 96, 384, 0.05


class MoL(nn.Module):
    def __init__(self, gates):
        super().__init__()
        self.full = gates == "full"
        self.query, self.item = nn.Linear(DIM, PQ * D), nn.Linear(DIM, PX * D)
        self.gate = nn.Sequential(nn.Linear(DIM, 128), nn.SiLU(), nn.Linear(128, PQ * PX, bias=False))
        if self.full:
            self.by_item = nn.Sequential(nn.Linear(DIM, 128), nn.SiLU(), nn.Linear(128, PQ * PX, bias=False))
            self.by_pair = nn.Sequential(nn.Linear(PQ * PX, 64), nn.SiLU(), nn.Linear(64, PQ * PX))

    def forward(self, q, x):
        f, g = self.query(q).view(-1, PQ, D), self.item(x).view(-1, PX, D)
        gates = self.gate(q)
        if not self.full:  # one inner product: the quickest way to compute it
            pi = torch.softmax(gates, -1)
            u = torch.einsum("bij,bid->bjd", pi.view(-1, PQ, PX), f).reshape(len(q), -1)
            return u @ g.reshape(len(x), -1).T / TAU, pi
        logits = torch.einsum("bid,njd->bnij", f, g).reshape(len(q), len(x), PQ * PX) / TAU
        z = gates[:, None] * self.by_item(x)[None] + self.by_pair(logits)
        pi = torch.softmax(F.silu(z), -1)
        return (pi * logits).sum(-1), pi


def load_balancing(pi):
    pi = pi.reshape(-1, pi.shape[-1])
    mean = pi.mean(0)
    return (mean * torch.log(mean + 1e-6)).sum() - (pi * torch.log(pi + 1e-6)).sum(-1).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gates", choices=["query", "full"], default="query")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    q = F.normalize(torch.from_numpy(np.load(DATA / "train_vectors.npy").astype(np.float32)), dim=-1)
    x = F.normalize(torch.from_numpy(np.load(DATA / "items_vectors.npy").astype(np.float32)), dim=-1)
    target = torch.tensor([json.loads(line)["item"] for line in open(DATA / "train.jsonl")])
    model = MoL(args.gates)
    adam = torch.optim.Adam(model.parameters(), lr=2e-3)

    def step():
        rows = torch.randint(len(q), (args.batch,))
        scores, pi = model(F.dropout(q[rows], 0.2), x)
        loss = F.cross_entropy(scores, target[rows]) + 1e-3 * load_balancing(pi)
        adam.zero_grad()
        loss.backward()
        adam.step()
        return loss.item()

    for _ in range(5):
        step()
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_utime, time.perf_counter()
    for _ in range(args.steps):
        loss = step()
    cpu = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
    print(json.dumps({"gates": args.gates, "torch": torch.__version__, "threads": args.threads, "steps": args.steps, "loss": round(loss, 4),
                      "cpu_ms_a_step": round(1e3 * cpu / args.steps, 2),
                      "wall_ms_a_step": round(1e3 * (time.perf_counter() - start) / args.steps, 2)}))


if __name__ == "__main__":
    main()
