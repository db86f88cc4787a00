"""A scorer of likeness to begin with: how many of the query's words an item's text has.

    likeness plugin check --arg scorer.py path/to/venv/bin/python

Change `score`, the fields that it reads and, with every change of a score, the version.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # where likeness_plugin lies

from likeness_plugin import serve  # noqa: E402


def words(text):
    return set(text.lower().split())


def score(query, items):
    """A score for each item, in order; higher is more relevant, None for an item without a text."""
    wanted = words(query.text)
    return [
        len(wanted & words(p["text"])) / len(wanted | words(p["text"])) if "text" in p else None for p in items.payloads
    ]


if __name__ == "__main__":
    serve(score, name="words in common", version="1", text=True, payload_fields=["text"], max_items=1000, parallel=2)
