"""Asks a sidecar through rerank clients as applications install them, and prints a line for each."""

import json
import sys

import cohere
from langchain_cohere import CohereRerank
from langchain_core.documents import Document
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.cohere_rerank import CohereRerank as LlamaCohereRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

URL, ROUTE = sys.argv[1:]
QUERY = "my card has not arrived yet"
TEXTS = ["exchange rate", "card arrival", "top up by bank transfer"]


def tell(client, first, scores):
    print(json.dumps({"client": client, "first": first, "scores": scores}), flush=True)


def of_cohere(name, client):
    answer = client.rerank(model=ROUTE, query=QUERY, documents=TEXTS, top_n=2)
    tell(name + ", texts", TEXTS[answer.results[0].index], [r.relevance_score for r in answer.results])
    ids = ["43", "0", "11"]
    answer = client.rerank(model=ROUTE, query=QUERY, documents=ids, top_n=2)
    tell(name + ", ids", ids[answer.results[0].index], [r.relevance_score for r in answer.results])
    try:
        client.rerank(model="none", query=QUERY, documents=TEXTS)
    except cohere.core.ApiError as error:
        print(json.dumps({"client": name + ", error", "error": str(error)}), flush=True)


def main():
    of_cohere("cohere v2", cohere.ClientV2(api_key="none", base_url=URL))
    of_cohere("cohere v1", cohere.Client(api_key="none", base_url=URL))

    compressor = CohereRerank(cohere_api_key="none", base_url=URL, model=ROUTE, top_n=2)
    got = compressor.compress_documents([Document(page_content=text) for text in TEXTS], QUERY)
    tell("LangChain", got[0].page_content, [d.metadata["relevance_score"] for d in got])

    nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in TEXTS]
    for name, reranker in (
        ("LlamaIndex, Cohere", LlamaCohereRerank(api_key="none", base_url=URL, model=ROUTE, top_n=2)),
        ("LlamaIndex, TEI", TextEmbeddingInference(base_url=URL + "/v1/routes/" + ROUTE, top_n=2)),
    ):
        got = reranker.postprocess_nodes(nodes, query_str=QUERY)
        tell(name, got[0].node.get_content(), [n.score for n in got])


if __name__ == "__main__":
    main()
