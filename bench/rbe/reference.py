"""The reference: support selection, CUR, regularised CUR and neural relevance-based
embeddings in NumPy and PyTorch, written from the paper alone, in float64 but for the
perceptrons. It reads the cells that `go run ./bench/rbe hits` left, computes every
hit rate again from the same split and the same support items, and says how far the
two are apart. The perceptrons draw what Go draws (gorand.py): start, watched queries
and order are the same, the arithmetic is not. Selections that draw nothing are made
again, too.

    python reference.py --dir DIR --ranker boosted
"""

import argparse
import json
import pathlib

import numpy as np
import torch

import gorand

PAIRS = ((1, 1), (10, 10), (100, 100))
MOST = 100  # supports of a cell


def l2_greedy(x, m):
    """Support items by equation 3, one by one: the row whose direction, once the rows
    before are taken out of it, holds the most of all rows."""
    x = x.astype(np.float64)
    gram = x.T @ x
    left, least = x.copy(), 1e-10 * (x * x).sum(1).max()
    held = left @ gram  # follows left: the gram matrix is of the rows as they were
    chosen = []
    for _ in range(m):
        n = (left * left).sum(1)
        gain = np.where(n > least, (held * left).sum(1) / np.maximum(n, 1e-300), -1)
        best = int(gain.argmax())
        if gain[best] < 0:
            break
        chosen.append(best)
        o = left[best] / np.linalg.norm(left[best])
        along = left @ o
        left -= np.outer(along, o)
        held -= np.outer(along, gram @ o)
    return chosen


def popular(x, m):
    return list(np.argsort(-x.astype(np.float64).mean(1), kind="stable")[:m])


def diverse(x, m):
    x = x.astype(np.float64)
    chosen = [int(((x - x.mean(0)) ** 2).sum(1).argmax())]
    nearest = np.full(len(x), np.inf)
    while len(chosen) < m:
        nearest = np.minimum(nearest, ((x - x[chosen[-1]]) ** 2).sum(1))
        chosen.append(int(nearest.argmax()))
    return chosen


def cur_items(known, supports, lam=0.0):
    """R(I, S_Q)·pinv(R(S_I, S_Q)), or with pinv_λ (section 3.2)."""
    known = known.astype(np.float64)
    a = known[supports]
    if lam == 0:
        return known @ np.linalg.pinv(a, rcond=2.0**-22)
    return known @ np.linalg.solve(a @ a.T + lam * np.eye(len(a)), a).T


def top(scores, k):
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def hit_rates(approximate, truth, pairs=PAIRS):
    """HitRate(P, T) of section 4 for pairs of P and T: rows are queries."""
    found, want = top(approximate, max(p for p, _ in pairs)), top(truth, max(t for _, t in pairs))
    rates = []
    for p, t in pairs:
        mark = np.zeros(truth.shape, bool)
        np.put_along_axis(mark, want[:, :t], True, 1)
        rates.append(float(np.take_along_axis(mark, found[:, :p], 1).sum(1).mean() / t))
    return rates


class Perceptrons(torch.nn.Module):
    """f_Q = R ∥ MLP(R) ∥ 1 and f_I = t ∥ MLP(t) ∥ offset(t) (appendix C). What is drawn
    is drawn in the order of the Go fit: the queries' perceptron, then the items'."""

    def __init__(self, m, hidden, out, scale_query, scale_item, draw):
        super().__init__()
        net = lambda: torch.nn.Sequential(torch.nn.Linear(m, hidden), torch.nn.ELU(), torch.nn.Linear(hidden, out))
        self.query, self.item, self.offset = net(), net(), torch.nn.Linear(m, 1)
        with torch.no_grad():
            for p in self.parameters():
                p.zero_()
            for part, scale in ((self.query, scale_query), (self.item, scale_item)):
                for layer, deviation in ((part[0], 1 / (m**0.5 * scale)), (part[2], hidden**-0.5)):
                    drawn = [draw.normal() * deviation for _ in range(layer.weight.numel())]
                    layer.weight.copy_(torch.tensor(drawn).view_as(layer.weight))
            self.item[2].weight.zero_()  # so that the start is CUR

    def forward(self, queries, items):
        return queries @ items.T + self.query(queries) @ self.item(items).T + self.offset(items).T


def divided(n, seed):
    """The known queries that are learned from, and the tenth that is watched."""
    order = np.array(gorand.Rand(seed, 0xD1).perm(n))
    watched = max(1, n // 10)
    return np.sort(order[watched:]), np.sort(order[:watched])


def batches(n, size, seed, epoch):
    """The queries of a round, epoch counted from 0, in its own order, and the generator
    that goes on to draw items."""
    draw = gorand.Rand(seed, epoch + 1)
    order = np.array(draw.perm(n))
    return [order[i:i + size] for i in range(0, n, size)], draw


def sample(truth, items, draws, draw):
    """All items, or the ten best of every query of a batch and random ones."""
    if items <= draws:
        return np.arange(items)
    return np.unique(np.concatenate([top(truth.numpy(), 10).ravel(), [draw.below(items) for _ in range(draws)]]))


def neural(known, supports, asked, o, seed, sharp=4.0, watched=10):
    """Scores of the held-out queries by perceptrons on top of CUR, and their round:
    cross-entropy of softmax(R̃/τ) to softmax(R/τ), τ the spread of R over sharp, Adam;
    the round of the best HitRate(watched) on a tenth of the known queries, or CUR."""
    items = torch.tensor(cur_items(known, supports), dtype=torch.float32)
    truth = torch.tensor(known.T.copy())
    learn, watch = divided(len(truth), seed)
    shown, learned = truth[watch][:, supports], truth[learn]
    queries = learned[:, supports]
    tau = float((learned.double() - learned.double().mean(1, keepdim=True)).square().mean().sqrt()) / sharp
    rms = lambda x: float(x.double().square().mean().sqrt())
    model = Perceptrons(len(supports), o["hidden"], o["out"], rms(queries), rms(items), gorand.Rand(seed, 0x2E7))
    adam = torch.optim.Adam(model.parameters(), lr=o["rate"])
    asked = torch.tensor(asked, dtype=torch.float32)

    @torch.inference_mode()
    def scores(some):
        return model(some, items).numpy()

    judge = lambda: hit_rates(scores(shown), truth[watch].numpy(), [(watched, watched)])[0]
    best, kept, at = judge(), scores(asked), 0
    for epoch in range(1, o["rounds"] + 1):
        parts, draw = batches(len(learn), o["batch"], seed, epoch - 1)
        for rows in parts:
            some = sample(learned[rows], len(items), o["draws"], draw)
            loss = torch.nn.functional.cross_entropy(model(queries[rows], items[some]) / tau, torch.softmax(learned[rows][:, some] / tau, 1))
            adam.zero_grad()
            loss.backward()
            adam.step()
        hit = judge()
        if hit > best:
            best, kept, at = hit, scores(asked), epoch
        if epoch - at >= 5:
            break
    return kept, at


def check(cell, scores, split, options):
    """A cell's hit rates by the reference, and the round that its perceptrons are of."""
    known_rows, held = split
    known, supports = scores[:, known_rows], cell["supports"]
    asked, truth = scores[supports][:, held].T, scores[:, held].T
    if cell["model"] == "neural":
        approximate, epoch = neural(known, supports, asked, options, cell["seed"])
    else:
        approximate, epoch = asked @ cur_items(known, supports, cell["lambda"]).T, 0
    return hit_rates(approximate, truth), epoch


def temperatures(scores, options):
    """What perceptrons add where they are trained for a list of 100 and not for its
    head: flatter targets, and the round is chosen by HitRate(100)."""
    order = np.random.default_rng(1).permutation(scores.shape[1])
    known, held = np.split(order, [round(0.7 * len(order))])
    for m in (20, 50):
        supports = l2_greedy(scores[:, known], m)
        asked, truth = scores[supports][:, held].T, scores[:, held].T
        rates = lambda a: [round(v, 4) for v in hit_rates(a, truth)]
        print(m, "cur", rates(asked @ cur_items(scores[:, known], supports).T), flush=True)
        for sharp, watched in ((4, 10), (2, 100), (1, 100), (0.5, 100)):
            print(m, f"sharp={sharp} watched={watched}", rates(neural(scores[:, known], supports, asked, options, 1, sharp, watched)[0]), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=pathlib.Path, required=True)
    parser.add_argument("--ranker", required=True)
    parser.add_argument("--seed", type=int, help="cells of this seed only; runs of different ones may go on at once")
    parser.add_argument("--temperatures", action="store_true", help="how the perceptrons depend on their target, and nothing else")
    args = parser.parse_args()
    torch.set_num_threads(1)
    scores = np.load(args.dir / f"{args.ranker}_judged.npy")
    if args.temperatures:
        return temperatures(scores, {"hidden": 128, "out": 64, "rate": 1e-3, "batch": 64, "rounds": 20, "draws": 2048})
    done = args.dir / f"{args.ranker}_reference.jsonl"
    seen = {tuple(json.loads(line)["key"]) for line in open(done)} if done.exists() else set()
    splits, options, again = {}, None, {}
    with open(done, "a") as sink:
        for line in open(args.dir / f"{args.ranker}_hits.jsonl"):
            cell = json.loads(line)
            if "known" in cell:
                known = np.array(cell["known"])
                splits[cell["seed"]] = (known, np.setdiff1d(np.arange(scores.shape[1]), known))
                options = cell["options"]
                continue
            key = (cell["model"], cell["select"], cell["m"], cell["seed"])
            if key in seen or args.seed and cell["seed"] != args.seed:
                continue
            known, held = splits[cell["seed"]]
            rates, epoch = check(cell, scores, (known, held), options)
            row = {"key": key, "rates": rates, "go": cell["rates"], "round": epoch, "go_round": cell["rounds"]}
            select = {"l2_greedy": l2_greedy, "popular": popular, "diverse": diverse}.get(cell["select"])
            if select and cell["model"] == "cur":
                place = (cell["select"], cell["seed"])
                if place not in again:  # fewer are the first of more
                    again[place] = [int(i) for i in select(scores[:, known], MOST)]
                row["same_supports"] = again[place][: cell["m"]] == cell["supports"]
            sink.write(json.dumps(row) + "\n")
            sink.flush()


if __name__ == "__main__":
    main()
