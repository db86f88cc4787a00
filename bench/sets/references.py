"""What likeness is compared with: PyTorch and implicit, on the log that likeness fits.

Each PyTorch reference learns from nine tenths of the log, is judged on the other tenth
after every pass, and then learns from all of it for the best number of passes.
"""

import numpy as np
import torch

from data import history_query
from judge import judge

SEED = 1
BATCH = 512
NEGATIVES = 4096  # items that a softmax runs over beside the batch's own
PASSES = 10
PATIENCE = 2
STEPS = 400  # at least, of logs of fewer than four batches, as likeness takes them
HELD_OUT = 0.1
JUDGES = 1000  # held-out queries


class Learner(torch.nn.Module):
    """Vectors of queries and items whose inner product is the score."""

    rate = 5e-3

    def queries(self, q, users):
        return q

    def items(self, x, rows):
        return x

    def loss(self, scores, q, x):
        """scores of each query's wanted item, in column 0, and of other items; seen ones are -inf."""
        return torch.nn.functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))


class Bilinear(Learner):
    """qᵀWx from the identity, a softmax over the items, a pull to the identity."""

    def __init__(self, dim, scale, pull):
        super().__init__()
        self.w = torch.nn.Parameter(torch.eye(dim))
        self.scale, self.pull = scale, pull

    def queries(self, q, users):
        return q @ self.w

    def loss(self, scores, q, x):
        return super().loss(self.scale * scores, q, x) + self.pull * ((self.w - torch.eye(len(self.w))) ** 2).sum()


class Adapter(Learner):
    """A linear layer on the query, cosine, and the softmax over the batch's other items at
    scale 20: MultipleNegativesRankingLoss of sentence-transformers."""

    rate = 1e-3
    in_batch = True

    def __init__(self, dim):
        super().__init__()
        self.layer = torch.nn.Linear(dim, dim)
        torch.nn.init.eye_(self.layer.weight)
        torch.nn.init.zeros_(self.layer.bias)

    def queries(self, q, users):
        return torch.nn.functional.normalize(self.layer(q), dim=1)

    def loss(self, scores, q, x):
        return super().loss(20 * scores, q, x)


class Factors(Learner):
    """As LightFM: a vector for each user and item beside what their features give, an item's
    bias, and the margin to the worst of ten random items (WARP, sampled)."""

    rate = 2e-3
    negatives = 10

    def __init__(self, dim, users, items):
        super().__init__()
        self.of_query, self.of_item = torch.nn.Linear(dim, dim, bias=False), torch.nn.Linear(dim, dim, bias=False)
        torch.nn.init.eye_(self.of_query.weight)
        torch.nn.init.eye_(self.of_item.weight)
        self.user, self.item, self.bias = (torch.nn.Embedding(n, d) for n, d in ((users, dim), (items, dim), (items, 1)))
        for table in (self.user, self.item, self.bias):
            torch.nn.init.zeros_(table.weight)

    def queries(self, q, users):
        v = self.of_query(q) + self.user(users)
        return torch.cat([v, torch.ones(len(v), 1)], 1)

    def items(self, x, rows):
        return torch.cat([self.of_item(x) + self.item(rows), self.bias(rows)], 1)

    def loss(self, scores, q, x):
        return torch.relu(0.2 - scores[:, :1] + scores[:, 1:]).max(1).values.mean() + 1e-6 * ((q**2).sum() + (x**2).sum()) / len(q)


def limits(events):
    """The greatest number of passes over a log, and after how many without a gain they end."""
    batches = -(-sum(map(len, events.wanted)) // BATCH)
    return (PASSES, PATIENCE) if batches >= 4 else (-(-STEPS // batches), STEPS // batches // 4)


class Trainer:
    """Trains learners on a log."""

    def __init__(self, a_set):
        self.log, self.x, self.has_users = a_set.log, torch.from_numpy(a_set.items), a_set.histories is not None
        self.logged = np.unique(np.concatenate(self.log.wanted))
        rng = np.random.default_rng(SEED)
        users = rng.permutation(np.unique(self.log.users))
        held = np.isin(self.log.users, users[: int(HELD_OUT * len(users))])
        self.held_out = self.log.take(rng.permutation(np.flatnonzero(held))[:JUDGES])
        self.rest = self.log.take(np.flatnonzero(~held))

    def choose(self, makers):
        """The best of some learners by the held-out queries, learned from the whole log."""
        best = max(((self.try_one(m), m) for m in makers), key=lambda t: t[0])
        (_, passes), maker = best
        learner = maker()
        for _ in self.passes(learner, self.log, passes, max(passes, 1)):
            pass
        return lambda events: self.scores(learner, events)

    def try_one(self, maker):
        """MRR@10 of the held-out queries and the number of passes that it took."""
        torch.manual_seed(SEED)
        learner, best = maker(), (0.0, 0)
        most, patience = limits(self.rest)
        for n in self.passes(learner, self.rest, most, most):
            mrr = judge(lambda e: self.scores(learner, e), self.held_out).reciprocal.mean()
            best = max(best, (mrr, n), key=lambda t: t[0])
            if n - best[1] >= patience:
                break
        return best

    def passes(self, learner, events, passes, planned):
        """Trains, and yields the number of passes after each."""
        torch.manual_seed(SEED)
        rng = np.random.default_rng(SEED)
        query = np.repeat(np.arange(len(events)), [len(w) for w in events.wanted])
        wanted = np.concatenate(events.wanted)
        vectors, adam = torch.from_numpy(events.queries), torch.optim.Adam(learner.parameters(), lr=learner.rate)
        steps, step = planned * -(-len(query) // BATCH), 0
        for n in range(1, passes + 1):
            order = rng.permutation(len(query))
            for at in range(0, len(order), BATCH):
                adam.param_groups[0]["lr"] = learner.rate * (1 - step / steps)
                step += 1
                self.step(learner, adam, events, vectors, query[order[at:at + BATCH]], wanted[order[at:at + BATCH]], rng)
            yield n

    def step(self, learner, adam, events, vectors, query, wanted, rng):
        others = wanted if getattr(learner, "in_batch", False) else self.others(learner, rng)
        rows = torch.from_numpy(np.concatenate([wanted, others]))
        q = learner.queries(vectors[query], self.users(events.users[query]))
        x = learner.items(self.x[rows], rows)
        right, rest = x[: len(wanted)], x[len(wanted):]
        scores = torch.cat([(q * right).sum(1, keepdim=True), q @ rest.T], 1)
        scores = scores.masked_fill(torch.from_numpy(self.left_out(events, query, others)), -1e9)
        adam.zero_grad()
        learner.loss(scores, q, x).backward()
        adam.step()

    def others(self, learner, rng):
        most = getattr(learner, "negatives", NEGATIVES)
        return self.logged if len(self.logged) <= most else rng.choice(self.logged, most, replace=False)

    def left_out(self, events, query, others):
        """Which scores are of items that the query wants, or has seen; the wanted one's is not."""
        column = np.full(len(self.x), -1)
        column[others] = np.arange(len(others))
        known = [np.concatenate([events.wanted[q], events.seen[q]]) for q in query]
        row, at = np.repeat(np.arange(len(query)), [len(k) for k in known]), column[np.concatenate(known)]
        out = np.zeros((len(query), 1 + len(others)), bool)
        out[row[at >= 0], 1 + at[at >= 0]] = True
        if len(others) == len(query):  # the batch's own items, which may repeat
            out[:, 1:] |= others[None, :] == others[:, None]
        return out

    @torch.no_grad()
    def scores(self, learner, events):
        x = learner.items(self.x, torch.arange(len(self.x)))
        return (learner.queries(torch.from_numpy(events.queries), self.users(events.users)) @ x.T).numpy()

    def users(self, users):
        return torch.from_numpy(users if self.has_users else np.zeros_like(users))


def bilinear(a_set):
    trainer, dim = Trainer(a_set), a_set.items.shape[1]
    return trainer.choose([lambda s=s, p=p: Bilinear(dim, s, p) for s, p in ((20, 1e-5), (20, 3e-3), (10, 1e-5))])


def adapter(a_set):
    return Trainer(a_set).choose([lambda: Adapter(a_set.items.shape[1])])


def factors(a_set):
    trainer, users = Trainer(a_set), len(a_set.histories or [None])
    return trainer.choose([lambda: Factors(a_set.items.shape[1], users, len(a_set.items))])


def again(a_set):
    """Cosine of vectors that were made again, with the log: item2vec's way of learning from it."""
    x = a_set.vectors_again
    return lambda events: np.stack([history_query(x, h) for h in events.seen]) @ x.T


def implicit_model(kind):
    def learn(a_set):
        import implicit.als
        import implicit.bpr
        import scipy.sparse

        users = np.repeat(np.arange(len(a_set.histories)), [len(h) for h in a_set.histories])
        items = np.concatenate(a_set.histories)
        matrix = scipy.sparse.csr_matrix((np.ones(len(users), np.float32), (users, items)),
                                         shape=(len(a_set.histories), len(a_set.items)))
        make = {"bpr": implicit.bpr.BayesianPersonalizedRanking, "als": implicit.als.AlternatingLeastSquares}[kind]
        model = make(factors=a_set.items.shape[1], random_state=SEED)
        model.fit(matrix, show_progress=False)
        return lambda events: model.user_factors[events.users] @ model.item_factors.T

    return learn


# By name: what learns, and whether it needs people's histories.
REFERENCES = {
    "bilinear in PyTorch": (bilinear, False),
    "adapter": (adapter, False),
    "LightFM-like": (factors, False),
    "item2vec again": (again, True),
    "BPR-MF": (implicit_model("bpr"), True),
    "ALS": (implicit_model("als"), True),
}
