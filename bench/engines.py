"""The similarities as a careful user of NumPy, PyTorch and ONNX Runtime would score them.

As in likeness, an item's components and its part of the gates are stored, and the query's side is computed once and is
not timed, except in the cases "with encoding". Every engine's scores are compared with NumPy's before it is timed.
"""
import logging
import os
import tempfile

import numpy as np
import onnxruntime as ort
import torch

torch.set_grad_enabled(False)
logging.getLogger("torch.onnx").setLevel(logging.ERROR)

TAU = 0.05
threads = 1  # of each engine; NumPy's are OPENBLAS_NUM_THREADS


def use(n):
    """Sets the threads of PyTorch and of sessions that are made from now on."""
    global threads
    threads = n
    torch.set_num_threads(n)


use(1)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def unit(x):
    return x / np.sqrt((x * x).sum(-1, keepdims=True))


class Subject:
    """A case: its inputs as NumPy arrays, NumPy's function, and PyTorch modules by name."""

    def __init__(self, inputs, numpy, modules):
        self.inputs, self.numpy, self.modules = inputs, numpy, modules
        self.want = numpy(*inputs)


def runners(subject, engines):
    """Yields (engine, function) for the engines that run; a failure is the function's place."""
    tensors = tuple(torch.from_numpy(np.ascontiguousarray(a)) for a in subject.inputs)
    for engine in engines:
        try:
            if engine == "numpy":
                run = lambda: subject.numpy(*subject.inputs)
            elif engine.startswith("torch"):
                module = subject.modules.get(engine.removeprefix("torch").lstrip("-") or "eager")
                if module is None:
                    continue
                run = bind(module, tensors)
            elif engine == "compile":
                torch._dynamo.reset()
                run = bind(torch.compile(subject.modules["eager"]), tensors)
            else:
                run = session(subject.modules.get("bmm", subject.modules["eager"]), tensors)
            difference = float(np.abs(np.asarray(run()).reshape(subject.want.shape) - subject.want).max())
            if difference > 2e-3 * max(1.0, float(np.abs(subject.want).max())):
                raise AssertionError(f"differs from NumPy by {difference}")
            yield engine, run
        except Exception as e:  # a library that cannot do a case is a result
            yield engine, e


def bind(module, tensors):
    return lambda: module(*tensors)


def session(module, tensors):
    run = export(module, tensors)
    arrays = tuple(t.numpy() for t in tensors)
    return lambda: run(*arrays)


def export(module, tensors):
    """An ONNX Runtime session of a module, for inputs of the same shapes."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "m.onnx")
        names = [f"x{i}" for i in range(len(tensors))]
        torch.onnx.export(module, tensors, path, input_names=names, output_names=["scores"], dynamo=True, external_data=False, verbose=False)
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        s = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    taken = {i.name for i in s.get_inputs()}
    return lambda *arrays: s.run(None, {n: a for n, a in zip(names, arrays) if n in taken})[0]


def in_chunks(subject, engine, items, gates):
    """Scores all rows of items and gates by an engine that takes as many as the subject, a MoL's, has: a function."""
    query, gate = subject.inputs[:2]
    size = subject.inputs[2].shape[1]
    if engine == "numpy":
        score = subject.numpy
    elif engine == "onnxruntime":
        score = export(subject.modules["bmm"], tuple(torch.from_numpy(a) for a in subject.inputs))
    else:
        module = subject.modules["bmm" if engine == "torch-bmm" else "eager"]
        score = lambda *arrays: module(*(torch.from_numpy(a) for a in arrays)).numpy()

    def run():
        out = np.empty(len(items), np.float32)
        for start in range(0, len(items), size):
            start = min(start, len(items) - size)  # the last chunk is whole, too
            part = slice(start, start + size)
            out[part] = score(query, gate, items[None, part], gates[None, part])[0]
        return out

    return run


def mol(shape, hidden, batch, count, gather, rows):
    """Mixture-of-Logits with full gates; logits in the order (item component, query component)."""
    pq, px, d = shape
    n = pq * px
    r = np.random.default_rng(1)
    normal = lambda *s: r.standard_normal(s, dtype=np.float32)
    w1, b1 = normal(n, hidden) / n**0.5, normal(hidden) * 0.1
    w2, b2 = normal(hidden, n) / hidden**0.5, normal(n) * 0.1
    query, gate = unit(normal(batch, pq, d)) / np.float32(TAU), normal(batch, n)
    if gather:
        table, gates = unit(normal(rows, px, d)), normal(rows, n)
        picked = r.integers(0, rows, (batch, count))
        inputs = (query, gate, table, gates, picked)
    else:
        inputs = (query, gate, unit(normal(batch, count, px, d)), normal(batch, count, n))
    return mixture(inputs, (w1, b1, w2, b2))


def mixture(inputs, weights):
    """A Mixture-of-Logits of given inputs; weights are those of the gates, in x out."""
    w1, b1, w2, b2 = weights
    (n, hidden), (batch, pq, d) = w1.shape, inputs[0].shape
    px, count = n // pq, inputs[-1].shape[1]

    def plain(query, gate, items, gates):
        logits = np.matmul(items.reshape(batch, count * px, d), query.transpose(0, 2, 1)).reshape(batch * count, n)
        h = logits @ w1 + b1
        h *= sigmoid(h)
        g = (h @ w2 + b2).reshape(batch, count, n)
        g += gate[:, None] * gates
        g *= sigmoid(g)
        g -= g.max(-1, keepdims=True)
        np.exp(g, out=g)
        return (g * logits.reshape(batch, count, n)).sum(-1) / g.sum(-1)

    def numpy(query, gate, table, gates, picked=None):
        if picked is None:
            return plain(query, gate, table, gates)
        return plain(query, gate, table[picked], gates[picked])

    class Module(torch.nn.Module):
        def __init__(self, einsum):
            super().__init__()
            self.einsum = einsum
            first, second = torch.nn.Linear(n, hidden), torch.nn.Linear(hidden, n)
            first.weight.data, first.bias.data = torch.from_numpy(w1.T.copy()), torch.from_numpy(b1)
            second.weight.data, second.bias.data = torch.from_numpy(w2.T.copy()), torch.from_numpy(b2)
            self.gates = torch.nn.Sequential(first, torch.nn.SiLU(), second)

        def forward(self, query, gate, items, gates, picked=None):
            if picked is not None:
                items, gates = items[picked], gates[picked]
            if self.einsum:
                logits = torch.einsum("bnd,bxmd->bxmn", query, items).reshape(batch, count, n)
            else:
                logits = torch.bmm(items.reshape(batch, count * px, d), query.transpose(1, 2)).reshape(batch, count, n)
            g = torch.nn.functional.silu(gate.unsqueeze(1) * gates + self.gates(logits))
            return (torch.softmax(g, -1) * logits).sum(-1)

    return Subject(inputs, numpy, {"eager": Module(True).eval(), "bmm": Module(False).eval()})


def maxsim(tokens, vectors, d, batch, count):
    """Sum over the query's vectors of the greatest inner product with one of the item's."""
    r = np.random.default_rng(2)
    query = unit(r.standard_normal((batch, tokens, d), dtype=np.float32))
    items = unit(r.standard_normal((batch, count, vectors, d), dtype=np.float32))

    def numpy(query, items):
        s = np.matmul(items.reshape(batch, count * vectors, d), query.transpose(0, 2, 1))
        return s.reshape(batch, count, vectors, tokens).max(2).sum(-1)

    class Einsum(torch.nn.Module):
        def forward(self, query, items):
            return torch.einsum("btd,bxvd->bxtv", query, items).amax(-1).sum(-1)

    class Bmm(torch.nn.Module):
        def forward(self, query, items):
            s = torch.bmm(items.reshape(batch, count * vectors, d), query.transpose(1, 2))
            return s.reshape(batch, count, vectors, tokens).amax(2).sum(-1)

    return Subject((query, items), numpy, {"eager": Einsum(), "bmm": Bmm()})


def bilinear(d, rank, batch, count, shared):
    """qᵀWx, the query's product with W timed; with a rank, items store their factor."""
    r = np.random.default_rng(3)
    w = r.standard_normal((d, rank or d), dtype=np.float32) / d
    query = r.standard_normal((batch, d), dtype=np.float32)
    items = r.standard_normal((1 if shared else batch, count, rank or d), dtype=np.float32)

    def numpy(query, items):
        p = query @ w
        return p @ items[0].T if shared else (items @ p[:, :, None])[..., 0]

    weight = torch.from_numpy(w)

    class Module(torch.nn.Module):
        def forward(self, query, items):
            p = query @ weight
            return p @ items[0].T if shared else torch.bmm(items, p.unsqueeze(2)).squeeze(2)

    return Subject((query, items), numpy, {"eager": Module()})
