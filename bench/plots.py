"""Plots as SVG, without a library."""
from html import escape

COLOURS = {"numpy": "#8da0b3", "torch": "#e08e5b", "torch-bmm": "#efb98f", "compile": "#b5563c", "onnxruntime": "#6f9e6e", "likeness": "#2b4c9b"}


def bars(cases, engines):
    """One group of bars a case: how long each engine takes, as a multiple of likeness."""
    left, width, bar, gap, top = 290, 860, 9, 12, 40
    scale, most = None, 0.0
    groups = []
    for c in cases:
        own = c["engines"]["likeness"]["min_ms"]
        values = [(e, c["engines"][e]["min_ms"] / own) for e in engines if "min_ms" in c["engines"].get(e, {})]
        most = max([most, *(v for _, v in values)])
        groups.append((c["case"], values))
    most = min(most, 6.0)
    scale = (width - left - 60) / max(most, 1.0)
    parts, y = [], top
    for name, values in groups:
        parts.append(f'<text x="{left - 8}" y="{y + len(values) * bar / 2 + 4:.0f}" text-anchor="end">{escape(name)}</text>')
        for engine, v in values:
            w = min(v, most) * scale
            parts.append(f'<rect x="{left}" y="{y}" width="{w:.1f}" height="{bar - 1}" fill="{COLOURS[engine]}"><title>{escape(engine)}: {v:.2f}</title></rect>')
            if v > most:
                parts.append(f'<text x="{left + w + 3:.0f}" y="{y + bar - 1}" font-size="9">{v:.1f}</text>')
            y += bar
        y += gap
    x = left
    for e in engines:
        parts.append(f'<rect x="{x}" y="12" width="10" height="10" fill="{COLOURS[e]}"/><text x="{x + 14}" y="21">{escape(e)}</text>')
        x += 22 + 7 * len(e)
    parts.append(f'<line x1="{left + scale:.1f}" x2="{left + scale:.1f}" y1="{top - 6}" y2="{y}" stroke="#2b4c9b" stroke-dasharray="3 3"/>')
    parts.append(f'<text x="{left}" y="{y + 12}">time, as a multiple of likeness; shorter is better</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y + 24}" font-family="sans-serif" font-size="12" fill="#222">'
            f'<rect width="{width}" height="{y + 24}" fill="#fff"/>' + "".join(parts) + "</svg>\n")
