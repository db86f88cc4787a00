"""Golden numbers of rbe.Refine: argmin Σ(⟨x_i, u⟩ − r_i)² + λ‖u − u₀‖² in float64, by
least squares on the stacked system and not by the normal equations.

    golden_refine.py --ridge 0.1 --out DIR     # DIR/rbe/refine.json; --ridge is rbe.Ridge
"""

import argparse
import json
import pathlib

import numpy as np


def narrow(x):
    return np.asarray(x, np.float32).astype(np.float64)


def case(name, ridge, rows, scores, start):
    x, r, u = narrow(rows), narrow(scores), narrow(start)
    d = x.shape[1]
    pull = np.sqrt(ridge * np.trace(x.T @ x) / d)
    want = u + np.linalg.lstsq(np.vstack([x, pull * np.eye(d)]), np.concatenate([r - x @ u, np.zeros(d)]), rcond=None)[0]
    return {"name": name, "rows": x.tolist(), "scores": r.tolist(), "start": u.tolist(), "want": want.tolist()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ridge", type=float, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    rng = np.random.default_rng(4)
    x, r, u = (rng.standard_normal(n).round(3) for n in ((9, 3), 9, 3))
    without, alike = x.copy(), x.copy()
    without[[0, 3]] = 0
    alike[:, 2] = alike[:, 0]
    cases = [
        case("more scores than elements", args.ridge, x, r, u),
        case("fewer scores than elements", args.ridge, x[:2], r[:2], u),
        case("one item four times", args.ridge, np.repeat(x[:1], 4, 0), np.repeat(r[:1], 4), u),
        case("equal items that disagree", args.ridge, np.repeat(x[:1], 2, 0), [1, -1], u),
        case("items of no score", args.ridge, without, r, u),
        case("nothing but items of no score", args.ridge, 0 * x, r, u),
        case("equal elements", args.ridge, alike, r, u),
        case("large scores", args.ridge, x * 1e4, r * 1e4, u),
        case("agreement already", args.ridge, x, x @ u, u),
    ]
    lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
    (args.out / "rbe" / "refine.json").write_text(f'{{"ridge": {args.ridge}, "cases": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
