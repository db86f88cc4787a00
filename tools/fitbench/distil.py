"""A step of the fit of a learned probe in PyTorch, for its time beside that of
`likeness fit distilled`:

    pip install -r tools/fitbench/requirements.txt
    OMP_NUM_THREADS=1 python tools/fitbench/distil.py --head residual
    GOMAXPROCS=1 go test ./learn/fit/distilled -run '^$' -bench DistilStep -benchtime 40x

256 queries, 10,003 items of 384 numbers, a softmax over all items, targets on
256 items a query, Adam: the shapes of the questions of examples/data/banking77.
"""

import argparse
import json
import resource
import time

import torch
from torch.nn import functional as F

QUERIES, ITEMS, DIM, LIST, HIDDEN = 256, 10003, 384, 256, 512


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--head", choices=["linear", "residual"], default="residual")
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    items = F.normalize(torch.randn(ITEMS, DIM), dim=-1)
    queries = F.normalize(torch.randn(1024, DIM), dim=-1)
    rows = torch.stack([torch.randperm(ITEMS)[:LIST] for _ in range(1024)])
    targets = torch.softmax(torch.randn(1024, LIST) * 3, -1)
    w = torch.randn(DIM, DIM, requires_grad=True)
    parameters = [w]
    if args.head == "residual":
        w1, b1 = torch.randn(HIDDEN, DIM, requires_grad=True), torch.zeros(HIDDEN, requires_grad=True)
        w2, b2 = torch.zeros(DIM, HIDDEN, requires_grad=True), torch.zeros(DIM, requires_grad=True)
        parameters += [w1, b1, w2, b2]
    adam = torch.optim.Adam(parameters, lr=1e-2)

    def step():
        batch = torch.randperm(1024)[:QUERIES]
        q, at, p = queries[batch], rows[batch], targets[batch]
        u = q @ w
        if args.head == "residual":
            u = u + F.linear(F.silu(F.linear(q, w1, b1)), w2, b2)
        s = u @ items.T
        loss = (torch.logsumexp(s, -1) - (p * s.gather(1, at)).sum(-1)).mean() + (p * p.log()).sum(-1).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        return loss.item()

    for _ in range(3):
        step()
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_utime, time.perf_counter()
    for _ in range(args.steps):
        step()
    print(json.dumps({"head": args.head, "torch": torch.__version__, "steps": args.steps,
                      "cpu_ms_a_step": round(1e3 * (resource.getrusage(resource.RUSAGE_SELF).ru_utime - before) / args.steps, 2),
                      "wall_ms_a_step": round(1e3 * (time.perf_counter() - start) / args.steps, 2)}))


if __name__ == "__main__":
    main()
