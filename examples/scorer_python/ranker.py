"""A gradient-boosted ranker as a scorer of likeness; train.py makes its model.

    python ranker.py --model ../../.cache/scorer_python/ranker.json            (likeness starts it)
    python ranker.py --model … --listen unix:///run/user/1000/ranker.sock      (likeness reaches it)
"""

import argparse
import hashlib
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import lightgbm  # noqa: E402
import numpy  # noqa: E402

from features import Features  # noqa: E402
from likeness_plugin import TLS, serve  # noqa: E402


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default=os.path.join(here, "..", "..", ".cache", "scorer_python", "ranker.json"))
    p.add_argument("--field", default="text", help="the payload field that has an item's text (text)")
    p.add_argument("--listen", help="unix:///folder/socket or host:port, for a process that likeness does not start")
    p.add_argument("--tls", nargs=3, metavar=("CERTIFICATE", "KEY", "CLIENTS"), help="PEM files, for host:port")
    a = p.parse_args()
    with open(a.model, "rb") as f:
        data = f.read()
    model = json.loads(data)
    features = Features(model["weights"], model["mean_length"])
    booster = lightgbm.Booster(model_str=model["trees"])

    def score(query, items):
        texts = [p.get(a.field) for p in items.payloads]
        known = [isinstance(t, str) for t in texts]
        scores = booster.predict(features.matrix(query.text, [t if k else "" for t, k in zip(texts, known)]), num_threads=1)
        return numpy.where(known, scores, numpy.nan)

    serve(
        score,
        name="BANKING77 ranker",
        version=hashlib.sha256(data).hexdigest()[:12],  # another model, other scores
        text=True,
        payload_fields=[a.field],
        max_items=1000,
        parallel=2,
        listen=a.listen,
        tls=TLS(*a.tls) if a.tls else None,
    )


if __name__ == "__main__":
    main()
