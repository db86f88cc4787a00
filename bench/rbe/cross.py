"""Ranker (b): a small cross-encoder in PyTorch, trained from scratch on the questions
that are neither items nor queries: every word of one question attends to the words of
the other, and a perceptron compares each with what it found.

    python cross.py --out DIR    # DIR/cross_judged.npy, cross_tune.npy: scores, items by queries; cross.json
"""

import argparse
import json
import os
import pathlib
import re
import time

import numpy as np
import torch
from torch import nn

import data

WORD = re.compile(r"[a-z0-9]+|'[a-z]+")
LONGEST, DIM, HIDDEN = 14, 48, 32
GRAMS = 4096  # buckets of character n-grams
EPOCHS, BATCH, NEAR, SAME, OTHER, RATE = 5, 32, 7, 1, 6, 3e-3


class Pieces:
    """Turns texts into word ids and, for each word of the vocabulary, buckets of its
    character n-grams; words that are not in it have their n-grams alone."""

    def __init__(self):
        self.ids, self.grams = {}, []

    def word(self, w):
        if w not in self.ids:
            self.ids[w] = len(self.ids) + 1
            t = f"<{w}>"
            grams = {t[k:k + n] for n in (3, 4) for k in range(len(t) - n + 1)}
            self.grams.append(sorted(hashed(g) for g in grams)[:12])
        return self.ids[w]

    def texts(self, texts):
        rows = torch.zeros(len(texts), LONGEST, dtype=torch.long)
        for i, t in enumerate(texts):
            ids = [self.word(w) for w in WORD.findall(t.lower())][:LONGEST] or [self.word("?")]
            rows[i, :len(ids)] = torch.tensor(ids)
        return rows

    def table(self):
        """The n-gram buckets of every word id, filled up with bucket 0 (none)."""
        out = torch.zeros(len(self.ids) + 1, 12, dtype=torch.long)
        for i, g in enumerate(self.grams):
            out[i + 1, :len(g)] = torch.tensor(g)
        return out


def hashed(gram):
    h = 2166136261
    for c in gram.encode():
        h = (h ^ c) * 16777619 & 0xFFFFFFFF
    return 1 + h % (GRAMS - 1)


class Cross(nn.Module):
    """words(text) depends on one text and is made once; score(a, b) on the pair."""

    def __init__(self, trained_words, table):
        super().__init__()
        self.trained, self.table = trained_words, table  # ids above have no vector of their own
        self.vectors = nn.Embedding(trained_words + 1, DIM, padding_idx=0)
        self.grams = nn.Embedding(GRAMS, DIM, padding_idx=0)
        nn.init.normal_(self.vectors.weight, std=0.3)
        nn.init.normal_(self.grams.weight, std=0.3)
        self.near = nn.Conv1d(DIM, DIM, 3, padding=1)
        self.attend = nn.Linear(DIM, DIM)
        self.compare = nn.Linear(4 * DIM, HIDDEN)
        self.weigh = nn.Linear(DIM, 1)
        self.judge = nn.Sequential(nn.Linear(4 * HIDDEN, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, 1))
        self.drop = nn.Dropout(0.25)

    def words(self, ids):
        """(texts, words) to the words' vectors, their vectors to attend by, their
        weights and the mask."""
        words, place = ids.unique(return_inverse=True)
        grams = self.table[words]
        own = torch.where(words <= self.trained, words, 0)
        if self.training:
            own = own * (torch.rand(own.shape) > 0.1)
        e = self.vectors(own) + self.grams(grams).sum(-2) / (grams > 0).sum(-1, keepdim=True).clamp(min=1).sqrt()
        mask = (ids > 0).float()
        e = self.drop(e[place]) * mask[..., None]
        h = e + nn.functional.gelu(self.near(e.transpose(1, 2)).transpose(1, 2))
        h = h * mask[..., None]
        return h, self.attend(h), torch.sigmoid(self.weigh(h)).squeeze(-1) * mask, mask

    def score(self, a, b):
        """R of pairs: texts of a against texts of b, row by row."""
        (ha, ka, wa, ma), (hb, kb, wb, mb) = a, b
        s = torch.matmul(ka, kb.transpose(1, 2)) / DIM**0.5
        to_b = torch.softmax(s.masked_fill(mb[:, None, :] == 0, -30), 2)
        to_a = torch.softmax(s.masked_fill(ma[:, :, None] == 0, -30), 1)
        left, right = self.side(ha, torch.matmul(to_b, hb), wa, ma), self.side(hb, torch.matmul(to_a.transpose(1, 2), ha), wb, mb)
        return self.judge(torch.cat([left, right], -1)).squeeze(-1)

    def side(self, h, found, weight, mask):
        v = nn.functional.gelu(self.compare(torch.cat([h, found, h * found, (h - found).abs()], -1)))
        mean = (v * weight[..., None]).sum(1) / weight.sum(1, keepdim=True).clamp(min=1e-3)
        return self.drop(torch.cat([mean, (v * mask[..., None]).amax(1)], -1))


def choose(x, rows):
    return tuple(t[rows] for t in x)


def candidates(y, near, rng):
    """For every question a list of others: some of the nearest by the base vector,
    whatever their intent, some of its intent and random ones."""
    out = np.zeros((len(y), NEAR + SAME + OTHER), np.int64)
    by = {c: np.flatnonzero(y == c) for c in np.unique(y)}
    for i in range(len(y)):
        same = by[y[i]][by[y[i]] != i]
        out[i] = np.concatenate([rng.choice(near[i], NEAR, False), rng.choice(same, SAME, len(same) < SAME), rng.choice(len(y), OTHER)])
    return out


def train(model, ids, split, base, seconds):
    rng, y = np.random.default_rng(data.SEED), split.learn_labels
    near = np.argsort(-(base @ base.T), axis=1)[:, 1:61]
    labels = torch.from_numpy(y)
    adam = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.02)
    steps = EPOCHS * ((len(y) + BATCH - 1) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, RATE, total_steps=steps, pct_start=0.1)
    width = NEAR + SAME + OTHER
    stands = torch.zeros(width)  # a random one stands for many
    stands[-OTHER:] = 3
    for epoch in range(EPOCHS):
        model.train()
        lists, total = torch.from_numpy(candidates(y, near, rng)), 0.0
        for rows in torch.from_numpy(rng.permutation(len(y))).split(BATCH):
            q, x = model.words(ids[rows]), model.words(ids[lists[rows].flatten()])
            q = choose(q, torch.arange(len(rows)).repeat_interleave(width))
            s = model.score(q, x).view(len(rows), width)
            same = (labels[lists[rows]] == labels[rows][:, None]).float()
            # Each of its intent against all of other intents; and every pair for
            # itself, so that scores of different queries compare.
            others = torch.logsumexp((s + stands).masked_fill(same > 0, -30), 1, keepdim=True)
            loss = ((torch.logaddexp(s, others) - s) * same).sum() / same.sum()
            loss = loss + nn.functional.binary_cross_entropy_with_logits(s, same)
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
            schedule.step()
            total += loss.item() * len(rows)
        print(f"epoch {epoch + 1}: loss {total / len(y):.4f}, {seconds():.0f} s", flush=True)


def scorer(model, items, queries):
    """Scores all items for a query. Padding is cut where no word of a block is."""
    model.eval()
    blocks = []
    with torch.inference_mode():
        for rows in torch.argsort((items > 0).sum(1)).split(256):
            n = int((items[rows] > 0).sum(1).max())
            blocks.append((rows, model.words(items[rows][:, :n])))

    @torch.inference_mode()
    def score(query):
        q, out = queries[query], np.zeros(len(items), np.float32)
        one = model.words(q[None, :int((q > 0).sum())])
        for rows, x in blocks:
            pair = tuple(t.expand(len(rows), *t.shape[1:]) for t in one)
            out[rows.numpy()] = model.score(pair, x).numpy()
        return out, None

    return score


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--workers", type=int, default=1, help="processes that score")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(data.SEED)
    started = time.process_time()
    seconds = lambda: time.process_time() - started
    split = data.Split()
    base_learn, base_items, base_queries = data.base_vectors(split)
    pieces = Pieces()
    learn = pieces.texts(split.learn_texts)
    known = len(pieces.ids)
    items, queries = pieces.texts(split.item_texts), pieces.texts(split.query_texts)
    model = Cross(known, pieces.table())
    kept = args.out / "cross.pt"
    if kept.exists():  # a run that was stopped goes on from here
        model.load_state_dict(torch.load(kept))
    else:
        train(model, learn, split, base_learn, seconds)
        torch.save(model.state_dict(), kept)
    trained = seconds()
    scores, _ = data.each_query(scorer(model, items, queries), split, args.workers)
    data.save(args.out, "cross", scores.T, base_items, base_queries, split)
    report = {"ranker": "cross", "seed": data.SEED, "parameters": sum(p.numel() for p in model.parameters()), "epochs": EPOCHS,
              "cpu_seconds": {"training": round(trained), "scoring": round(sum(os.times()[:4]) - trained)},
              **data.quality(scores, base_queries @ base_items.T, split)}
    (args.out / "cross.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
