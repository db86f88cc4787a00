export LIKENESS_SERVERS ?= $(CURDIR)/.cache/servers

.PHONY: servers
servers: ## Fetch the real Qdrant and Milvus servers that the tests run against
	@tools/servers.sh "$(LIKENESS_SERVERS)" >/dev/null
