"""A scorer of likeness to begin with: how many of the query's words an item's text has.

    likeness plugin check --arg scorer.py path/to/venv/bin/python

Change `score`, the fields that it reads and, with every change of a score, the version.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # where likeness_plugin lies

from likeness_plugin import TLS, serve  # noqa: E402


def words(text):
    return set(text.lower().split()) if isinstance(text, str) else set()


def score(query, items):
    """A score for each item, in order; higher is more relevant, None for an item that cannot be scored."""
    wanted = words(query.text)
    found = [words(payload.get("text")) for payload in items.payloads]
    return [len(wanted & has) / len(wanted | has) if has else None for has in found]


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--listen", help="unix:///folder/socket or host:port, for a process that likeness does not start")
    p.add_argument("--tls", nargs=3, metavar=("CERTIFICATE", "KEY", "CLIENTS"), help="PEM files, for host:port")
    a = p.parse_args()
    serve(
        score,
        name="words in common",
        version="1",
        text=True,
        payload_fields=["text"],
        max_items=1000,
        parallel=2,
        listen=a.listen,
        tls=TLS(*a.tls) if a.tls else None,
    )
