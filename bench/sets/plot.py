"""The plot of the page, without a library."""

from html import escape

COLOURS = {"likeness": "#2b4c9b", "reference": "#e08e5b"}


def gains(sets):
    """A group of bars for each set: MRR@10 of each model as a multiple of cosine's, with its interval."""
    left, width, bar, gap, y = 290, 860, 12, 26, 34
    rows = [(s, m, m["gain"], s["models"][0]["mrr"]) for s in sets for m in s["models"][1:]]
    most = max(g["high"] / cosine for _, _, g, cosine in rows)
    least = min(-0.1, *(g["low"] / cosine for _, _, g, cosine in rows))
    scale = (width - left - 20) / (most - least)
    parts = [f'<rect x="{left + 130 * i}" y="8" width="10" height="10" fill="{c}"/><text x="{left + 14 + 130 * i}" y="17">{n}</text>'
             for i, (n, c) in enumerate(COLOURS.items())]

    def at(share):
        return left + (share - least) * scale

    for s in sets:
        cosine = s["models"][0]["mrr"]
        parts.append(f'<text x="8" y="{y + 10}" font-weight="bold">{escape(s["name"])}</text>')
        for m in s["models"][1:]:
            g = {k: v / cosine for k, v in m["gain"].items()}
            x, w = min(at(0), at(g["mean"])), abs(g["mean"]) * scale
            parts.append(f'<text x="{left - 8}" y="{y + 10}" text-anchor="end">{escape(m["name"])}</text>'
                         f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="{bar - 2}" fill="{COLOURS[m["by"]]}"/>'
                         f'<line x1="{at(g["low"]):.1f}" x2="{at(g["high"]):.1f}" y1="{y + 5}" y2="{y + 5}" stroke="#222"/>')
            y += bar
        y += gap
    parts.append(f'<line x1="{at(0):.1f}" x2="{at(0):.1f}" y1="28" y2="{y - gap}" stroke="#222"/>'
                 f'<text x="{left}" y="{y - 4}">gain of MRR@10 over cosine, as a share of cosine\'s, from {least:+.0%} to {most:+.0%}; 95 % intervals</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y + 8}" font-family="sans-serif" font-size="12" fill="#222">'
            f'<rect width="{width}" height="{y + 8}" fill="#fff"/>' + "".join(parts) + "</svg>\n")
