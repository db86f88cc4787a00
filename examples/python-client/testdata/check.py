"""Asks a real sidecar everything that the client can; main_test.go runs it."""

import asyncio
import json
import math
import os
import sys
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import likeness_client as likeness

URL, TOKEN = os.environ["LIKENESS_URL"], os.environ["LIKENESS_TOKEN"]
QUESTIONS: dict[str, list[float]] = json.loads(Path(os.environ["LIKENESS_QUESTIONS"]).read_text())
TEXT, VECTOR = next(iter(QUESTIONS.items()))


def embed(text: str) -> list[float]:
    """The vectors that the model made of the questions; a service's embedding model in real life."""
    return QUESTIONS[text]


class TestClient(unittest.TestCase):
    def setUp(self) -> None:
        self.client = likeness.Client(URL, token=lambda: TOKEN)
        self.addCleanup(self.client.close)

    def test_search(self) -> None:
        answer = self.client.search("intents", VECTOR, 3)
        self.assertIn(0, [h.id for h in answer.hits], "the first question asks for intent 0")
        self.assertGreaterEqual(answer.hits[0].score, answer.hits[1].score)
        self.assertIn("text", answer.hits[0].payload or {})
        self.assertEqual((answer.certificate.status, answer.degraded, len(answer.hits)), ("exact", None, 3))
        self.assertAlmostEqual(answer.certificate.kth_score or 0, answer.hits[2].score, places=6)
        self.assertIsNone(self.client.search("intents", VECTOR, 1, payload=False).hits[0].payload)
        self.assertEqual(list(self.client.search("intents", VECTOR, 1, payload=["text"]).hits[0].payload or {}), ["text"])

    def test_filter(self) -> None:
        answer = self.client.search("intents", VECTOR, 3, filter={"must": [{"key": "id", "match": {"value": 5}}]})
        self.assertEqual([h.id for h in answer.hits], [5])

    def test_batch(self) -> None:
        searches = [{"route": "intents", "vector": v, "k": 1} for v in QUESTIONS.values()]
        searches.append({"route": "intents", "vector": [1.0], "k": 1})
        results = list(self.client.each(searches, batch=3))
        self.assertEqual(len(results), len(searches))
        self.assertTrue(all(isinstance(r, likeness.Answer) for r in results[:-1]), results)
        self.assertIsInstance(results[-1], likeness.Invalid)

    def test_score(self) -> None:
        best = self.client.search("intents", VECTOR, 1).hits[0]
        scores = self.client.score("intents", VECTOR, [best.id, 999])
        self.assertAlmostEqual(scores[0], best.score, places=5)
        self.assertTrue(math.isnan(scores[1]))

    def test_catalog(self) -> None:
        self.assertEqual([r.name for r in self.client.routes()], ["intents"])

    def test_errors(self) -> None:
        with self.assertRaises(likeness.Invalid) as caught:
            self.client.search("intents", VECTOR, -1)
        self.assertEqual(list(caught.exception.fields), ["k"])
        self.assertEqual(caught.exception.reason, "FIELD_INVALID")
        self.assertTrue(caught.exception.request_id)
        for error, search in {
            likeness.NotFound: {"route": "none/such", "vector": VECTOR},
            likeness.Invalid: {"route": "intents", "vector": [math.nan]},
            likeness.DeadlineExceeded: {"route": "intents", "vector": VECTOR, "timeout": 0.0},
            likeness.TooLarge: {"route": "intents", "vector": VECTOR, "text": "x" * 200_000},
        }.items():
            with self.assertRaises(error):
                self.client.search(**search)
        with self.assertRaises(likeness.Unauthenticated):
            likeness.Client(URL, token="guess").search("intents", VECTOR)
        with self.assertRaises(likeness.Unavailable):
            likeness.Client("http://127.0.0.1:1").search("intents", VECTOR)
        with self.assertRaises(ValueError):
            likeness.Client("http://likeness.example", token="open")

    def test_threads(self) -> None:
        found: list[int | str] = []

        def ask() -> None:
            for _ in range(10):
                found.append(self.client.search("intents", VECTOR, 1).hits[0].id)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(found, [self.client.search("intents", VECTOR, 1).hits[0].id] * 40)


class TestRetrievers(unittest.TestCase):
    def setUp(self) -> None:
        self.client = likeness.Client(URL, token=TOKEN)
        self.addCleanup(self.client.close)
        self.best = str(self.client.search("intents", VECTOR, 1).hits[0].id)

    def test_langchain(self) -> None:
        retriever = likeness.LangChainRetriever(self.client, "intents", embed, k=3)
        documents = retriever.invoke(TEXT)
        self.assertEqual(len(documents), 3)
        self.assertTrue(documents[0].page_content)
        self.assertEqual(documents[0].id, self.best)
        self.assertEqual(documents[0].metadata["likeness"]["certificate"], "exact")
        self.assertEqual(asyncio.run(retriever.ainvoke(TEXT)), documents)
        self.assertEqual(retriever.batch([TEXT]), [documents])
        self.assertEqual(retriever(TEXT), documents)

    def test_llama_index(self) -> None:
        class Bundle:
            query_str, embedding = TEXT, None

        class Embedded:
            query_str, embedding = "never embedded", VECTOR

        retriever = likeness.LlamaIndexRetriever(self.client, "intents", embed, k=2)
        nodes = retriever.retrieve(TEXT)
        self.assertEqual(nodes[0].node.node_id, self.best)
        self.assertTrue(nodes[0].node.get_content())
        self.assertGreaterEqual(nodes[0].score, nodes[1].score)
        for bundle in (Bundle(), Embedded()):
            self.assertEqual(retriever.retrieve(bundle), nodes)
        self.assertEqual(asyncio.run(retriever.aretrieve(TEXT)), nodes)

    def test_haystack(self) -> None:
        documents = likeness.HaystackRetriever(self.client, "intents", embed).run(query=TEXT, top_k=2)["documents"]
        self.assertEqual(documents[0].id, self.best)
        self.assertTrue(documents[0].content)
        self.assertEqual(documents[0].meta["likeness"]["degraded"], None)


if __name__ == "__main__":
    unittest.main()
