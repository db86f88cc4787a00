#!/usr/bin/env python3
"""A rerank service to try likeness with: BM25 behind three dialects.

    python3 rerank_server.py --port 8080 --texts items.jsonl

    POST /rerank       as Text Embeddings Inference: texts in, a bare list out
    POST /v2/rerank    as Cohere: documents in, results[].relevance_score out
    POST /v1/rerank    as Jina: the same, with the documents if asked
    GET  /info         what TEI says of itself; GET /health

It needs Python 3.11 and nothing else. A score is a function of the query and one
text, as a cross-encoder's is: the weights of the words come from --texts and not
from the other texts of the call. --ms-per-text makes it as slow as one.
"""

import argparse
import collections
import hmac
import json
import math
import re
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

K1, B = 1.2, 0.75  # BM25's usual constants
TRIGRAM_WEIGHT = 0.25  # what a part of a word counts beside the whole


def terms(text):
    """The words of a text, and the trigrams of each, which find its other forms."""
    counts = collections.Counter()
    for word in re.findall(r"\w+", text.lower()):
        counts[word] += 1.0
        padded = f"_{word}_"
        for i in range(len(padded) - 2):
            counts["#" + padded[i : i + 3]] += 1.0
    return counts


class BM25:
    """Scores one text at a time, with the statistics of a sample of texts."""

    def __init__(self, sample):
        self.sample = len(sample)
        self.found = collections.Counter()
        lengths = []
        for text in sample:
            counts = terms(text)
            self.found.update(counts.keys())
            lengths.append(sum(counts.values()))
        self.length = sum(lengths) / len(lengths) if lengths else 40.0

    def weight(self, term):
        found = self.found[term]
        idf = math.log(1 + (self.sample - found + 0.5) / (found + 0.5)) if self.sample else 1.0
        return idf * (TRIGRAM_WEIGHT if term.startswith("#") else 1.0)

    def score(self, query, text):
        counts = terms(text)
        norm = K1 * (1 - B + B * sum(counts.values()) / self.length)
        return sum(
            self.weight(term) * times * counts[term] * (K1 + 1) / (counts[term] + norm)
            for term, times in terms(query).items()
            if term in counts
        )


class Refused(Exception):
    """A request that is answered with a status and a message."""

    def __init__(self, status, message, kind="Validation", headers=None):
        super().__init__(message)
        self.status, self.message, self.kind, self.headers = status, message, kind, headers or {}


def field(body, name, kind, default=...):
    value = body.get(name, default)
    if value is ...:
        raise Refused(422, f"missing field: {name}")
    if not isinstance(value, kind) or (kind is list and not all(isinstance(v, str) for v in value)):
        raise Refused(422, f"field {name} has the wrong type")
    return value


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, options):
        super().__init__((options.host, options.port), Handler)
        self.options = options
        self.bm25 = BM25(read_texts(options.texts))
        self.places = threading.BoundedSemaphore(options.max_concurrent)

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError):  # a client that went away is no news
            super().handle_error(request, client_address)

    def scores(self, query, texts):
        """The texts' places, best first, with their scores."""
        most = self.options.max_batch
        if len(texts) > most:
            raise Refused(413, f"batch size {len(texts)} > maximum allowed batch size {most}")
        if not texts:
            raise Refused(400, "batch is empty", "Empty")
        if not self.places.acquire(blocking=False):
            raise Refused(429, "model is overloaded", "Overloaded", {"Retry-After": str(self.options.retry_after)})
        try:
            time.sleep(self.options.ms_per_text * len(texts) / 1000)
            scored = [(self.bm25.score(query, text), i) for i, text in enumerate(texts)]
        finally:
            self.places.release()
        scored.sort(key=lambda pair: (-pair[0], pair[1]))
        return [(i, score) for score, i in scored]


def relevance(score):
    """A score between 0 and 1, in the same order."""
    return score / (score + 5)


def tei(server, body):
    query, texts = field(body, "query", str), field(body, "texts", list)
    raw, text = field(body, "raw_scores", bool, False), field(body, "return_text", bool, False)
    ranks = []
    for i, score in server.scores(query, texts):
        rank = {"index": i, "score": score if raw else relevance(score)}
        if text:
            rank["text"] = texts[i]
        ranks.append(rank)
    return ranks


def cohere(server, body):
    for name in body:
        if name not in ("model", "query", "documents", "top_n", "max_tokens_per_doc", "priority"):
            raise Refused(422, f"unknown field: parameter '{name}' is not a valid field")
    field(body, "model", str)
    documents = field(body, "documents", list)
    ranks = too_many_is_invalid(server, field(body, "query", str), documents)
    results = [{"index": i, "relevance_score": relevance(score)} for i, score in ranks]
    return {
        "id": str(uuid.uuid4()),
        "results": results[: field(body, "top_n", int, len(documents))],
        "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
    }


def jina(server, body):
    model, documents = field(body, "model", str), field(body, "documents", list)
    with_documents = field(body, "return_documents", bool, True)
    results = []
    for i, score in too_many_is_invalid(server, field(body, "query", str), documents):
        result = {"index": i, "relevance_score": relevance(score)}
        if with_documents:
            result["document"] = {"text": documents[i]}
        results.append(result)
    tokens = sum(len(document.split()) for document in documents)
    return {
        "model": model,
        "results": results[: field(body, "top_n", int, len(documents))],
        "usage": {"total_tokens": tokens},
    }


def too_many_is_invalid(server, query, documents):
    """Cohere and Jina know no 413 for a list that is too long."""
    try:
        return server.scores(query, documents)
    except Refused as refused:
        if refused.status == 413:
            raise Refused(422, f"too many documents: {len(documents)}, at most {server.options.max_batch}") from None
        raise


ERRORS = {
    "/rerank": lambda r: {"error": r.message, "error_type": r.kind},
    "/v2/rerank": lambda r: {"id": str(uuid.uuid4()), "message": r.message},
    "/v1/rerank": lambda r: {"detail": r.message},
}
DIALECTS = {"/rerank": tei, "/v2/rerank": cohere, "/v1/rerank": jina}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    disable_nagle_algorithm = True
    timeout = 120

    def do_GET(self):
        if self.path == "/health":
            self.answer(200, {})
        elif self.path == "/info":
            o = self.server.options
            self.answer(200, {"model_id": "bm25", "model_sha": None, "max_client_batch_size": o.max_batch,
                              "max_concurrent_requests": o.max_concurrent, "version": "1"})  # fmt: skip
        else:
            self.answer(404, {"error": "no such path", "error_type": "NotFound"})

    def do_POST(self):
        try:
            body = self.body()
            if self.path not in DIALECTS:
                raise Refused(404, "no such path")
            self.answer(200, DIALECTS[self.path](self.server, body))
        except Refused as refused:
            shape = ERRORS.get(self.path, ERRORS["/rerank"])
            self.answer(refused.status, shape(refused), refused.headers)

    def body(self):
        """The request's JSON object. A body that is refused is read all the same, within
        bounds: closing on a client that still writes can lose it the answer."""
        token = self.server.options.token
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            self.close_connection = True
            raise Refused(411, "no Content-Length")
        if int(length) > self.server.options.max_bytes:
            left = min(int(length), 64 << 20)
            while left > 0 and (chunk := self.rfile.read(min(left, 1 << 16))):
                left -= len(chunk)
            self.close_connection = True
            raise Refused(413, "length limit exceeded")
        raw = self.rfile.read(int(length))
        if token and not hmac.compare_digest(self.headers.get("Authorization", ""), f"Bearer {token}"):
            raise Refused(401, "invalid token")
        try:
            body = json.loads(raw)
        except ValueError:
            raise Refused(400, "the body is no JSON") from None
        if not isinstance(body, dict):
            raise Refused(422, "the body is no object")
        return body

    def answer(self, status, value, headers=None):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def read_texts(path):
    """One text a line, or the "text" of one JSON object a line."""
    if not path:
        return []
    texts = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            line = line.strip()
            if line:
                texts.append(json.loads(line)["text"] if line.startswith("{") else line)
    return texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080, help="0 takes a free one")
    parser.add_argument("--texts", help="a sample of the texts, for the weights of words")
    parser.add_argument("--token", help="answer only to this bearer token")
    parser.add_argument("--max-batch", type=int, default=32, help="texts of one call")
    parser.add_argument("--max-bytes", type=int, default=2_000_000, help="bytes of one call")
    parser.add_argument("--max-concurrent", type=int, default=16, help="calls at a time; 429 beyond")
    parser.add_argument("--retry-after", type=int, default=1, help="seconds that a 429 asks to wait")
    parser.add_argument("--ms-per-text", type=float, default=0, help="time to spend on each text")
    server = Server(parser.parse_args())
    print(f"listening on http://{server.server_address[0]}:{server.server_address[1]}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
