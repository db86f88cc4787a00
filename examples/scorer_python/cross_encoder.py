"""A cross-encoder as a scorer of likeness: any checkpoint of Hugging Face's transformers with one output.

    pip install torch transformers
    python cross_encoder.py --model /models/my-cross-encoder --device cuda      (likeness starts it)

The checkpoint is a local folder; nothing is fetched. Not in requirements.txt, and not run by the tests: torch is large.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402
from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: E402

from likeness_plugin import TLS, Unavailable, serve  # noqa: E402


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, help="the checkpoint's folder")
    p.add_argument("--version", help="changes with every change of a score (the folder's name)")
    p.add_argument("--field", default="text", help="the payload field that has an item's text (text)")
    p.add_argument("--batch", type=int, default=32, help="pairs that go through the model at once (32)")
    p.add_argument("--longest", type=int, default=512, help="tokens of a pair (512)")
    p.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    p.add_argument("--listen", help="unix:///folder/socket or host:port, for a process that likeness does not start")
    p.add_argument("--tls", nargs=3, metavar=("CERTIFICATE", "KEY", "CLIENTS"), help="PEM files, for host:port")
    a = p.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(a.model, local_files_only=True)
    model = AutoModelForSequenceClassification.from_pretrained(a.model, local_files_only=True).to(a.device).eval()
    if model.config.num_labels != 1:
        raise SystemExit(f"{a.model} has {model.config.num_labels} outputs, a cross-encoder has one")

    @torch.inference_mode()
    def score(query, items):
        texts = [payload.get(a.field) for payload in items.payloads]
        rows = [r for r, t in enumerate(texts) if isinstance(t, str)]
        rows.sort(key=lambda r: len(texts[r]))  # pairs of like length are padded little
        scores = torch.full((len(texts),), torch.nan)
        for at in range(0, len(rows), a.batch):
            if query.cancelled:
                raise Unavailable("the caller has gone")
            some = rows[at : at + a.batch]
            pairs = tokenizer(
                [query.text] * len(some), [texts[r] for r in some],
                padding=True, truncation=True, max_length=a.longest, return_tensors="pt",
            )
            scores[some] = model(**pairs.to(a.device)).logits[:, 0].float().cpu()
        return scores

    serve(
        score,
        name="cross-encoder " + os.path.basename(os.path.normpath(a.model)),
        version=a.version or os.path.basename(os.path.normpath(a.model)),
        text=True,
        payload_fields=[a.field],
        max_items=256,
        listen=a.listen,
        tls=TLS(*a.tls) if a.tls else None,
    )


if __name__ == "__main__":
    main()
