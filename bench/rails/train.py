"""Trains a Mixture-of-Logits by the recipe of RAILS's own code, and leaves a checkpoint as that code
writes it, beside items, queries and scores that PyTorch computed.

The sequence model, the similarity, the sampler and the loss are RAILS's (SASRec, 8 x 4 components of 64
numbers, sampled softmax, the mutual information loss of the gates); only the loop is here. Each user's last
rating is held out. A step takes 256 positions of the sequences of 16 users.

    git clone https://github.com/bailuding/rails
    python bench/rails/train.py --rails rails --ratings ml-100k/u.data --out DIR --steps 1000
    likeness model import --from rails DIR/checkpoint.pt DIR/model.safetensors --config DIR/config.json
    go run ./bench/rails -dir DIR          # are the scores equal?

u.data has lines of user, item, rating and time, with tabs between them. It needs torch, numpy, gin-config
and pandas.
"""

import argparse
import json
import os
import pathlib
import random
import sys
import time

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # RAILS compiles parts of the similarity, which takes long on a CPU

import numpy as np  # noqa: E402
import torch  # noqa: E402

LENGTH, DIM, USERS, POSITIONS, NEGATIVES = 100, 50, 16, 256, 128
MOL = {
    "query_dot_product_groups": 8, "item_dot_product_groups": 4, "dot_product_dimension": 64, "temperature": 0.05,
    "query_dropout_rate": 0.0, "query_hidden_dim": 512, "query_nonlinearity": "swiglu",
    "item_dropout_rate": 0.1, "item_hidden_dim": -1, "item_nonlinearity": "swiglu", "dot_product_l2_norm": True,
    "gating_query_hidden_dim": 128, "gating_qi_hidden_dim": 128, "gating_item_hidden_dim": 128,
    "softmax_dropout_rate": 0.2, "gating_combination_type": "glu_silu",
}


def read_sequences(path):
    """The items of each user by time, numbered from 1 without gaps."""
    users, numbers = {}, {}
    for line in open(path, encoding="utf-8"):
        fields = line.split("\t")
        if not fields[0].isdigit():
            continue  # a header
        user, item, _, at = map(int, fields)
        users.setdefault(user, []).append((at, item))
    for ratings in users.values():
        for _, item in ratings:
            numbers.setdefault(item, 0)
    for n, item in enumerate(sorted(numbers)):
        numbers[item] = n + 1
    return [[numbers[item] for _, item in sorted(users[u])] for u in sorted(users)], len(numbers)


class Recipe:
    """RAILS's parts, put together as its train.py does for MovieLens."""

    def __init__(self, items):
        import modeling.similarity_utils as similarity
        from modeling.sequential.autoregressive_losses import LocalNegativesSampler
        from modeling.sequential.embedding_modules import LocalEmbeddingModule
        from modeling.sequential.input_features_preprocessors import LearnablePositionalEmbeddingInputFeaturesPreprocessor
        from modeling.sequential.losses.sampled_softmax import SampledSoftmaxLoss
        from modeling.sequential.output_postprocessors import LayerNormEmbeddingPostprocessor
        from modeling.sequential.sasrec import SASRec

        self.similarity, self.name = similarity.create_mol_interaction_module(
            query_embedding_dim=DIM, item_embedding_dim=DIM, gating_query_fn=True, gating_item_fn=True, bf16_training=False, **MOL)
        self.items = LocalEmbeddingModule(num_items=items, item_embedding_dim=DIM)
        self.model = SASRec(
            max_sequence_len=LENGTH, max_output_len=1, embedding_dim=DIM, num_blocks=2, num_heads=1, ffn_hidden_dim=DIM,
            ffn_activation_fn="relu", ffn_dropout_rate=0.2, embedding_module=self.items, similarity_module=self.similarity,
            input_features_preproc_module=LearnablePositionalEmbeddingInputFeaturesPreprocessor(
                max_sequence_len=LENGTH + 1, embedding_dim=DIM, dropout_rate=0.2),
            output_postproc_module=LayerNormEmbeddingPostprocessor(embedding_dim=DIM, eps=1e-6))
        self.loss = SampledSoftmaxLoss(num_to_sample=NEGATIVES, softmax_temperature=1.0, model=self.model)
        self.negatives = LocalNegativesSampler(
            num_items=items, item_emb=self.items._item_emb, all_item_ids=list(range(1, items + 1)), l2_norm=False, l2_norm_eps=1e-6)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0)

    def step(self, ids, lengths):
        """Predicts a sample of the items from those before them, and returns the loss."""
        self.model.train()
        embeddings = self.items.get_item_embeddings(ids)
        out = self.model(past_lengths=lengths, past_ids=ids, past_embeddings=embeddings, past_payloads={})
        targets = ids[:, 1:].flatten()
        sample = targets.nonzero()[:, 0]
        sample = sample[torch.randperm(len(sample))[:POSITIONS]]
        loss, parts = self.loss.jagged_forward(
            output_embeddings=out[:, :-1].reshape(-1, DIM)[sample], supervision_ids=targets[sample],
            supervision_embeddings=embeddings[:, 1:].reshape(-1, DIM)[sample], supervision_weights=torch.ones(len(sample)),
            negatives_sampler=self.negatives)
        loss = loss + 0.001 * parts.get("mi_loss", torch.tensor(0.0)).mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.item()

    @torch.no_grad()
    def score(self, ids, lengths, items):
        """Query vectors, item vectors, and the scores of every item for every query."""
        self.model.eval()
        parts = [(ids[at:at + 64], lengths[at:at + 64]) for at in range(0, len(ids), 64)]
        queries = torch.cat([
            self.model.encode(past_lengths=n, past_ids=i, past_embeddings=self.items.get_item_embeddings(i), past_payloads={}) for i, n in parts])
        vectors = self.items.get_item_embeddings(torch.arange(1, items + 1))
        scores = [self.similarity(query_embeddings=queries[at:at + 64], item_embeddings=vectors.unsqueeze(0))[0] for at in range(0, len(queries), 64)]
        return queries, vectors, torch.cat(scores)


def batch(sequences):
    """The sequences without their last item, padded."""
    ids, lengths = torch.zeros(len(sequences), LENGTH + 1, dtype=torch.int64), torch.zeros(len(sequences), dtype=torch.int64)
    for row, sequence in enumerate(sequences):
        known = sequence[:-1][-LENGTH:]
        ids[row, :len(known)], lengths[row] = torch.tensor(known), len(known)
    return ids, lengths


def quality(scores, sequences):
    """Where the held-out items rank among those that the user has not rated before."""
    scores = scores.clone()
    for row, sequence in enumerate(sequences):
        known = [item - 1 for item in set(sequence[:-1]) - {sequence[-1]}]
        scores[row, known] = -torch.inf
    target = torch.tensor([sequence[-1] - 1 for sequence in sequences])
    rank = (scores > scores.gather(1, target[:, None])).sum(1) + 1
    return {"hit_rate_at_10": (rank <= 10).float().mean().item(), "hit_rate_at_50": (rank <= 50).float().mean().item(),
            "mrr": (1 / rank.float()).mean().item()}


def popularity(sequences, items):
    """Scores by the number of ratings, for comparison."""
    counts = torch.zeros(items)
    for sequence in sequences:
        for item in sequence[:-1]:
            counts[item - 1] += 1
    return counts.repeat(len(sequences), 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rails", required=True, help="a clone of github.com/bailuding/rails")
    parser.add_argument("--ratings", required=True, help="u.data of MovieLens-100K")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    sys.path.insert(0, args.rails)
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    sequences, items = read_sequences(args.ratings)
    recipe = Recipe(items)
    began, losses = time.monotonic(), []
    while len(losses) < args.steps and time.monotonic() - began < args.seconds:
        losses.append(recipe.step(*batch(random.sample(sequences, USERS))))
        if len(losses) % 20 == 0:
            print(f"step {len(losses)}, loss {np.mean(losses[-20:]):.3f}, {time.monotonic() - began:.0f} s", flush=True)
    queries, vectors, scores = recipe.score(*batch(sequences), items)
    report = {"steps": len(losses), "model": recipe.name, "trained": quality(scores, sequences), "popularity": quality(popularity(sequences, items), sequences)}
    print(json.dumps(report, indent=1))
    args.out.mkdir(parents=True, exist_ok=True)
    torch.save({"epoch": 1, "model_state_dict": recipe.model.state_dict()}, args.out / "checkpoint.pt")
    (args.out / "config.json").write_text(json.dumps(MOL))
    for name, matrix in {"items": vectors, "queries": queries, "scores": scores}.items():
        np.save(args.out / f"{name}.npy", matrix.numpy().astype("<f4"))


if __name__ == "__main__":
    main()
