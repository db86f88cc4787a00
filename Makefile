# make help lists the targets. Each does its own set-up on a machine with Go,
# Python 3.11, Node, gcc and make; what it fetches and builds lies in .cache, so
# that a second run is quick and needs no network.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

CACHE := $(CURDIR)/.cache
TOOLS := $(CACHE)/tools
export LIKENESS_SERVERS ?= $(CACHE)/servers
export PATH := $(TOOLS):$(PATH)

# What `likeness version` prints.
VERSION ?= $(shell git describe --tags --exact-match 2>/dev/null)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null)
DATE    := $(shell git log -1 --format=%cI 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)

# Of `make soak`: the time for each fuzz target, whether to do the
# rest of the long runs, where the results go.
FUZZTIME ?= 2m
LONG     ?= 1
SOAK_OUT ?= docs/benchmarks

# Of `make bench-proxy`: the processors that client, proxy and Qdrant share.
BENCH_CPUS ?= 0,1

##@ The two commands

.PHONY: quickstart
quickstart: build $(if $(filter qdrant milvus,$(STORE)),servers) ## Search two real collections by a learned similarity, beside cosine (STORE=qdrant|milvus, FULL=1)
	@STORE="$(STORE)" FULL="$(FULL)" go run ./examples/quickstart

.PHONY: test
test: servers ## Run every test, against the real servers too (15 minutes at most)
	@tools/test.sh

##@ Building

.PHONY: build
build: ## Build bin/likeness
	@go build -ldflags '$(LDFLAGS)' -o bin/likeness ./cmd/likeness

.PHONY: gpu
gpu: $(TOOLS)/.built-lint ## Build bin/likeness-gpu and check it as far as that goes without a GPU
	@LDFLAGS='$(LDFLAGS)' tools/gpu-check.sh

.PHONY: gpu-bundle
gpu-bundle: ## Pack bin/likeness-gpu with PTX and golden cases, for a machine with nothing but a driver
	@LDFLAGS='$(LDFLAGS)' tools/gpu-bundle.sh

.PHONY: generate
generate: $(TOOLS)/.built ## Remake the generated code and the generated pages of docs/reference
	@tools/generate.sh

.PHONY: baseline
baseline: $(TOOLS)/.built ## Remake proto/baseline.binpb, the API that `make lint` holds the schema compatible with
	@buf build --exclude-source-info -o proto/baseline.binpb

.PHONY: proto-rules
proto-rules: ## Remake proto/third_party from the protovalidate version of go.mod
	@tools/proto-rules.sh

##@ Releasing

# Of `make release`: what to build for, and where to.
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
DIST      ?= dist

.PHONY: release
release: $(TOOLS)/.built-supply ## Build archives, wheels, images, bills of materials, chart and checksums into dist (VERSION=1.2.3, PLATFORMS, DIST)
	@PLATFORMS="$(PLATFORMS)" tools/release.sh "$(VERSION)" "$(DIST)"

.PHONY: image
image: $(TOOLS)/.built-supply ## Build the container images of the commit into dist, without a container engine (VERSION=1.2.3, DIST)
	@PARTS=images PLATFORMS="$(filter linux/%,$(PLATFORMS))" tools/release.sh "$(or $(VERSION),0.0.0-$(shell git rev-parse --short=12 HEAD))" "$(DIST)"

.PHONY: wheels
wheels: $(TOOLS)/.built-supply ## Build the Python wheels of the commit, with the binary in them, into dist (VERSION=1.2.3, PLATFORMS, DIST)
	@PARTS=wheels PLATFORMS="$(PLATFORMS)" tools/release.sh "$(or $(VERSION),0.0.0-dev.0)" "$(DIST)"

.PHONY: release-check
release-check: $(TOOLS)/.built-supply ## Build a release in two folders: the same bytes, and a changed one is noticed
	@LIKENESS_RELEASE=1 go test ./deploy -run '^TestRelease' -count 1 -timeout 30m -v

##@ Checking

.PHONY: lint
lint: $(TOOLS)/.built $(TOOLS)/.built-lint ## Check format, style, schemas and that what is generated is up to date
	@tools/lint.sh

.PHONY: vulnerabilities
vulnerabilities: ## Look for known vulnerabilities that the code can reach (STRICT=1: fail where that cannot be told)
	@tools/vulnerabilities.sh $(if $(STRICT),--strict)

# Of `make mutants`: the list to run (tools/mutants/AREA.txt), a text that a defect
# must contain, how many to test at a time.
# AGAIN=1 runs only what no test noticed the last time. FIRST=1 adds the share of a new list to the first-sight shares.
AREA  ?=
MATCH ?=
JOBS  ?= 1
AGAIN ?=
FIRST ?=

.PHONY: mutants
mutants: ## Plant the defects of tools/mutants one at a time and see which the tests notice (AREA=bounds, MATCH=text, JOBS=1, ALSO=./e2e/serve, FIRST=1)
	@go -C tools run ./mutants -root .. -area "$(AREA)" -match "$(MATCH)" -jobs "$(JOBS)" -also "$(ALSO)" $(if $(AGAIN),-again) $(if $(FIRST),-first ../docs/benchmarks/mutants-sample.json) $(if $(MATCH),,-results ../docs/benchmarks/mutants.json)

.PHONY: mutants-sweep
mutants-sweep: $(TOOLS)/.built ## Change each comparison, sign and step of a package and print what its tests do not notice (PKG=./rerank/scan)
	@tools/sweep.sh "$(PKG)"

# Of `make mutants-sample`: how many defects, drawn with which seed, more arguments of go test for the
# packages' own tests, and those for more tests than their own.
N     ?= 40
SEED  ?= 1
TESTS ?=
ALSO  ?=

.PHONY: mutants-sample
mutants-sample: ## Plant N random defects in packages and print the share that their tests notice, and the others (PKG=./sidecar/search/..., N=40, SEED=1, TESTS="-skip Servers", ALSO=./e2e/serve)
	@go -C tools run ./mutants -root .. -sample "$(PKG)" -n "$(N)" -seed "$(SEED)" -tests "$(TESTS)" -also "$(ALSO)"

.PHONY: soak
soak: build servers $(if $(filter 0,$(LONG)),,$(TOOLS)/.built-supply) ## Fuzz every parser for FUZZTIME and do the long runs (LONG=0: not), into docs/benchmarks
	@FUZZTIME=$(FUZZTIME) LONG=$(LONG) SOAK_OUT=$(SOAK_OUT) tools/soak.sh

.PHONY: bench
bench: $(TOOLS)/.built ## Run the Go benchmarks ten times and print benchstat's summary
	@mkdir -p $(CACHE)
	@go test -run '^$$' -bench . -benchmem -count 10 ./rerank/... ./learn/... ./adapters/embedded/... ./sidecar/... | tee $(CACHE)/bench.txt
	@benchstat $(CACHE)/bench.txt

.PHONY: bench-proxy
bench-proxy: build servers ## Measure what the proxy costs on two cores, into docs/benchmarks (six minutes, BENCH_CPUS=0,1)
	@go build -o $(CACHE)/bench-proxy ./bench/proxy
	@taskset -c $(BENCH_CPUS) $(CACHE)/bench-proxy

.PHONY: bench-recall
bench-recall: servers ## Measure what Qdrant's indexes find of rewritten searches, into docs/benchmarks (two minutes)
	@go run ./bench/recall

.PHONY: bench-search
bench-search: build servers ## Measure where the time of a search goes, alone and under load, into docs/benchmarks (four minutes)
	@go build -o $(CACHE)/bench-search ./bench/search
	@$(CACHE)/bench-search

# Of `make bench-sets`: the directory of the data's files (docs/benchmarks/sets.md).
SETS_DATA ?=

.PHONY: bench-sets
bench-sets: build ## Fit six sets of data beside PyTorch and implicit, into docs/benchmarks (SETS_DATA=DIR)
	@bench/sets/run.sh "$(SETS_DATA)"

.PHONY: compatibility
compatibility: servers ## Run the conformance kit against every server and remake docs/reference/compatibility.md and proxy.md
	@tools/compatibility.sh

.PHONY: versions
versions: ## Print which versions of clients, servers and frameworks the tests run, and the newest in their registries (STRICT=1: fail if one was not run)
	@go -C tools run ./versions -root .. $(if $(STRICT),-check)

##@ Set-up, done by the others

.PHONY: servers
servers: ## Fetch the real Qdrant and Milvus servers by checksum
	@tools/servers.sh "$(LIKENESS_SERVERS)" >/dev/null

.PHONY: tools
tools: $(TOOLS)/.built $(TOOLS)/.built-lint $(TOOLS)/.built-supply ## Build the pinned developer tools

$(TOOLS)/.built: tools/go.mod tools/go.sum tools/gateway/go.mod
	@echo "tools: building buf, the protoc plugins and benchstat (once, some minutes)" >&2
	@mkdir -p $(TOOLS)
	@cd tools && GOBIN=$(TOOLS) go install tool
	@cd tools/gateway && GOBIN=$(TOOLS) go install tool
	@touch $@

$(TOOLS)/.built-lint: tools/lint/go.mod tools/lint/go.sum
	@echo "tools: building golangci-lint (once, some minutes)" >&2
	@mkdir -p $(TOOLS)
	@cd tools/lint && GOBIN=$(TOOLS) go install tool
	@touch $@

# Without paths, so that a bill of materials, which names the tool by its checksum, is the same everywhere.
$(TOOLS)/.built-supply: tools/supply/go.mod tools/supply/go.sum tools/supply/hatchling.txt
	@echo "tools: building cyclonedx-gomod and govulncheck, fetching hatchling (once)" >&2
	@mkdir -p $(TOOLS)
	@cd tools/supply && CGO_ENABLED=0 GOFLAGS=-trimpath GOBIN=$(TOOLS) go install tool
	@python3 -m venv --clear $(TOOLS)/hatchling.venv
	@$(TOOLS)/hatchling.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r tools/supply/hatchling.txt
	@printf '#!/bin/sh\nexec "$${0%%/*}/hatchling.venv/bin/python" -m hatchling "$$@"\n' >$(TOOLS)/hatchling && chmod +x $(TOOLS)/hatchling
	@touch $@

.PHONY: clean
clean: ## Remove what was built and fetched
	@rm -rf bin dist .cache

.PHONY: help
help: ## Print this
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' Makefile
